"""How long each kernel, copy, range, call, collective and step takes: the exact distribution over all ranks.

Things are identified by what they are, not by where they ran, so that two runs can be compared: kernels, ranges and
calls by name, copies by direction, collectives by operation, message size and size of the group, steps by kind. Names
of ranges omit counters, such as the number of a step (`step 12`) or what PyTorch writes after an operator (`seq`,
`op_id`, `sizes`, `input_op_ids`); names of calls omit the version that nsys adds (`_v7000`) and the PyTorch profiler
does not. Quartiles are of all durations together (linear interpolation, Hyndman and Fan type 7).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow.compute as pc

from alltrace.recipes.analysis.sql_engine import run_statement
from alltrace.recipes.analysis.statistics_sql import distribution_statement, merged_statement, statistics_statement
from alltrace.recipes.analysis.unsized_operations import notes_on_sizes
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, Reads, RunFacts
from alltrace.recipes.sql_recipe import PARTS, Statements, answer_table, id_table, parts_table
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.errors import UsageError
from alltrace.trace.name_stems import NUMBERED, stem_sql

WHAT = ("kernel", "copy", "range", "call", "collective", "step")
KEYS = ("what", "name", "bytes", "group_size")  # what a thing is: two runs' things of equal keys are the same thing

_STORED = ("what", "id", "word", "bytes", "group_size")
"""The columns of the ranks' parts that identify things: names as ids, or as words."""

_LABEL = "coalesce(word, text_of(id), '(no name)')"


def _labels(options: Mapping[str, Any]) -> dict[str, str]:
    """The names of things: an expression for each of `KEYS`."""
    ranged = stem_sql(f"stem_of({_LABEL})", (NUMBERED,) if options.get("merge_numbers") else ())
    # the version of CUDA that nsys adds to a call's name; `_v2` and the like are the call's own
    called = f"regexp_replace({_LABEL}, '_v[0-9]{{4,5}}$', '')"
    return {
        "what": "what",
        "name": f"CASE what WHEN 'call' THEN {called} WHEN 'range' THEN {ranged} ELSE {_LABEL} END",
        "bytes": "bytes",
        "group_size": "group_size",
    }


_IDENTITY = (
    col.text("what", "kernel, copy, range, call, collective or step"),
    col.text("name", "its name; for a copy its direction, for a collective its operation, for a step its kind"),
    col.size("bytes", "for a collective: message size of one rank; else null"),
    col.whole("group_size", "for a collective: ranks of its communicator; else null"),
)


COLUMNS: col.Columns = (
    *_IDENTITY,
    col.whole("count", "count over all ranks"),
    col.ns("total_ns", "summed duration"),
    col.real("mean_ns", "mean duration", "ns"),
    col.ns("min_ns", "shortest"),
    col.real("q1_ns", "exact first quartile", "ns"),
    col.real("median_ns", "exact median", "ns"),
    col.real("q3_ns", "exact third quartile", "ns"),
    col.ns("max_ns", "longest"),
)

READS: Reads = {
    "kernels": ("start", "end", "name", "short_name"),
    "copies": ("start", "end", "kind"),
    "ranges": ("start", "end", "name"),
    "api": ("start", "end", "name"),
    "collectives": ("start", "end", "op", "bytes", "group_size"),
}


def _reads(options: Options) -> dict[str, tuple[str, ...]]:
    return {t: c for t, c in dict(READS).items() if any(t in _TABLES[w] for w in chosen(options))}


def _rank_tables(rank: Rank, options: Options) -> dict[str, Any]:
    """The tables of the selected kinds, except those that only steps need."""
    tables = {_SOURCES[what].table for what in chosen(options) if what in _SOURCES}
    return {table: id_table(rank, table, READS[table]) for table in sorted(tables)}


def _map_statement(options: Options) -> str:
    """The distributions of one rank; names are ids, which are equal in all runs."""
    wanted = chosen(options)
    return "\nUNION ALL ".join(
        [_NOTHING, *(source.statement(what) for what, source in _SOURCES.items() if what in wanted)]
    )


def _reduce_statement(options: Options) -> str:
    statistics = statistics_statement(_labels(options), _STORED, "type_7")
    names = [c.name for c in COLUMNS]
    columns = ", ".join(f"{n.removesuffix('_ns')} AS {n}" if n.endswith("_ns") else n for n in names)
    return f"SELECT {columns}\nFROM ({statistics})\nORDER BY total_ns DESC, what, name, bytes, group_size"


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    rows = (
        SQL.over_parts(_with_steps(parts, run, options), run, options)
        if parts
        else col.schema_of(COLUMNS).empty_table()
    )
    table = answer_table(rows, COLUMNS)
    unsized = table.filter(pc.and_(pc.equal(table.column("what"), "collective"), pc.is_null(table.column("bytes"))))
    return Answer(table, COLUMNS, tuple(notes_on_sizes(run, pc.sum(unsized.column("count")).as_py() or 0)))


SQL = Statements(
    _reads,
    map=_map_statement,
    reduce=_reduce_statement,
    merge=merged_statement(_STORED),
    rank_tables=_rank_tables,
    computed=lambda options: "the training steps" if "step" in chosen(options) else None,
)


def chosen(options: Mapping[str, Any]) -> set[str]:
    """The selected kinds of things. Raises `UsageError`: one is unknown."""
    text = options.get("what")
    if text is None:
        return set(WHAT)
    names = [n.strip() for n in text.split(",") if n.strip()]
    for name in names:
        if name not in WHAT:
            raise UsageError.unknown("thing for --what", name, WHAT)
    if not names:
        raise UsageError(f"--what is empty; expected one or more of {', '.join(WHAT)}")
    return set(names)


def distribution(parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Any:
    """The distributions of all ranks with texts for names: columns of `KEYS`, `value` (ns) and `count`."""
    with_empty = [*_with_steps(parts, run, options), Part(-1, run_statement(_NOTHING, {}))]
    return run_statement(
        _NAMED.format(name=_labels(options)["name"]), {PARTS: parts_table(with_empty), "names": run.name_table()}
    )


def _with_steps(parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> list[Part]:
    """The parts, and one for the steps of the selected ranks, taken from the alignment."""
    if run.alignment is None or "step" not in chosen(options):
        return list(parts)
    steps = run_statement(_STEPS, {"steps": run.alignment.steps}, {"ranks": [p.rank for p in parts]})
    return [*parts, Part(-1, steps)]


class _Source(NamedTuple):
    """Where one kind of thing is found: the table, and the columns that identify its things."""

    table: str
    id: str = "NULL"
    word: str = "NULL"
    bytes: str = "NULL"
    group_size: str = "NULL"

    def statement(self, what: str) -> str:
        """The distribution of a rank's durations, of rows that have both times."""
        columns = {"id": f"{self.id}::BIGINT", "word": f"{self.word}::VARCHAR"}
        columns |= {"bytes": f"{self.bytes}::BIGINT", "group_size": f"{self.group_size}::BIGINT"}
        selected = ", ".join(f"{expression} AS {name}" for name, expression in columns.items())
        took = f"SELECT rank, '{what}' AS what, {selected}, \"end\" - start AS took FROM {self.table}"
        return distribution_statement(_STORED, f"SELECT * EXCLUDE (took), if(took < 0, 0, took) AS value FROM ({took})")


_SOURCES = {
    "kernel": _Source("kernels", id="coalesce(name, short_name)"),
    "copy": _Source("copies", word="kind"),
    "range": _Source("ranges", id="name"),
    "call": _Source("api", id="name"),
    "collective": _Source("collectives", id="op", bytes="bytes", group_size="group_size"),
}
_TABLES = {**{what: (source.table,) for what, source in _SOURCES.items()}, "step": ("ranges", "kernels")}
_NOTHING = """SELECT 0::INTEGER AS rank, '' AS what, 0::BIGINT AS id, '' AS word, 0::BIGINT AS bytes,
0::BIGINT AS group_size,
  0::BIGINT AS value, 0::BIGINT AS count WHERE false"""
_STEPS = distribution_statement(
    _STORED,
    """SELECT rank, 'step' AS what, NULL::BIGINT AS id, kind::VARCHAR AS word, NULL::BIGINT AS bytes,
    NULL::BIGINT AS group_size,
    "end" - start AS value FROM steps WHERE rank IN (SELECT unnest($ranks::BIGINT[]))""",
)
_NAMED = f"""
WITH named AS (
  SELECT {", ".join(_STORED)}, {{name}} AS name FROM (SELECT DISTINCT {", ".join(_STORED)} FROM parts)
)
SELECT parts.what, name, parts.bytes, parts.group_size, value, sum(count)::BIGINT AS count
FROM parts JOIN named ON {" AND ".join(f"parts.{c} IS NOT DISTINCT FROM named.{c}" for c in _STORED)}
GROUP BY ALL
"""

QUESTION = Question(
    "durations",
    __doc__,
    COLUMNS,
    SQL.map_rank,
    _merge,
    tables=READS,
    reading=_reads,
    requires=lambda options: (tuple(_reads(options)),),
    options=(
        Option("what", str, None, "only these, such as kernel,step; one or more of " + ", ".join(WHAT)),
        Option(
            "merge_numbers", bool, False, "combine ranges whose names differ only in numbers, such as those of layers"
        ),
    ),
    chart=Chart("box", "name", ("min_ns", "q1_ns", "median_ns", "q3_ns", "max_ns"), title="Durations", log_y=True),
    clock="aligned",
    sql=SQL,
    map_ranks=SQL.map_ranks,
    important=("what", "name", "median_ns", "count", "total_ns"),
)
