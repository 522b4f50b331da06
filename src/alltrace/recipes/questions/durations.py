"""The recipe `durations`: what is compared between two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.compute as pc

from alltrace.recipes.base import Answer, AnswerColumn, Chart, Option, Part, Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts

WHAT = ("kernel", "copy", "range", "call", "collective", "step")
KEYS = ("what", "name", "bytes", "group_size")
"""What a thing is: two runs' things of equal keys are the same thing."""

_STORED = ("what", "id", "word", "bytes", "group_size")
"""The columns of what ranks contribute that tell things apart: names as ids, or as words."""

_VERSION = "_v[0-9]{4,5}$"
"""The version of CUDA that nsys adds to a call's name; `_v2` and the like are the call's own."""

_IDENTITY = (
    AnswerColumn("what", None, "kernel, copy, range, call, collective or step"),
    AnswerColumn("name", None, "its name; of a copy its direction, of a collective its operation, of a step its kind"),
    AnswerColumn("bytes", "bytes", "of a collective: message size of one rank; else null"),
    AnswerColumn("group_size", None, "of a collective: ranks of its communicator; else null"),
)


class Durations(Recipe):
    """How long each kernel, copy, range, call, collective and step takes: the exact distribution over all ranks.

    Things are told apart by what they are, not by where they ran, so that those of two runs can be compared: kernels, ranges and
    calls by name, copies by direction, collectives by operation, message size and size of the group, steps by kind. Names of calls
    stand without the version that nsys adds (`_v7000`) and the PyTorch profiler does not. Quartiles are of all durations together
    (linear interpolation, Hyndman and Fan type 7).
    """

    name = "durations"
    aligned = True
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "kernels": ("start", "end", "name", "short_name"),
        "copies": ("start", "end", "kind"),
        "ranges": ("start", "end", "name"),
        "api": ("start", "end", "name"),
        "collectives": ("start", "end", "op", "bytes", "group_size"),
    }
    options = (Option("what", str, None, "only these, such as kernel,step; one or several of " + ", ".join(WHAT)),)
    columns: ClassVar[tuple[AnswerColumn, ...]] = (
        *_IDENTITY,
        AnswerColumn("count", None, "how often, over all ranks"),
        AnswerColumn("total_ns", "ns", "summed duration"),
        AnswerColumn("mean_ns", "ns", "mean duration"),
        AnswerColumn("min_ns", "ns", "shortest"),
        AnswerColumn("q1_ns", "ns", "exact first quartile"),
        AnswerColumn("median_ns", "ns", "exact median"),
        AnswerColumn("q3_ns", "ns", "exact third quartile"),
        AnswerColumn("max_ns", "ns", "longest"),
    )
    chart = Chart("box", "name", ("min_ns", "q1_ns", "median_ns", "q3_ns", "max_ns"), title="Durations", log_y=True)

    def reads(self, options: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The tables of what is asked for."""
        return {t: c for t, c in super().reads(options).items() if any(t in _TABLES[w] for w in chosen(options))}

    def needs(self, options: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
        """Any of them; steps are found in ranges, or in kernels."""
        return (tuple(self.reads(options)),)

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The distributions of one rank; names are ids, which are equal in all runs."""
        import pyarrow as pa

        wanted = chosen(options)
        parts = [_EMPTY()]
        for what, made in _SOURCES.items():
            if what in wanted:
                parts += [_keyed(what, columns, durations) for columns, durations in made(rank)]
        return pa.concat_tables(parts)

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """A row per thing, the largest total first."""
        import pyarrow as pa

        from alltrace.recipes.analysis.distribution import group
        from alltrace.recipes.analysis.merged_distributions import GROUP, Pool

        steps = _steps(parts, run) if "step" in chosen(options) else None
        pool = Pool([Part(-1, _EMPTY()), *parts, *([] if steps is None else [Part(-1, steps)])], _STORED)
        named = _named_keys(pool.keys, run)
        groups, first = group([named.column(k) for k in KEYS])
        summary = pool.summarize(groups, "linear")
        named = pc.take(named, pa.array(first))
        table = pa.table([*named.columns, *summary.drop_columns([GROUP]).columns], names=[*KEYS, *summary.column_names[1:]])
        table = table.rename_columns([c if c in (*KEYS, "count") else f"{c}_ns" for c in table.column_names])
        order = pc.sort_indices(table, [("total_ns", "descending"), ("what", "ascending"), ("name", "ascending")])
        table = table.take(order)
        return Answer(table.select([c.name for c in self.columns]), self.columns)


def chosen(options: Mapping[str, Any]) -> set[str]:
    """The kinds of things that are asked for.

    Raises:
        UsageError: One is unknown.
    """
    from alltrace.trace.errors import UsageError

    text = options.get("what")
    if text is None:
        return set(WHAT)
    names = [n.strip() for n in text.split(",") if n.strip()]
    for name in names:
        if name not in WHAT:
            raise UsageError.unknown("thing for --what", name, WHAT)
    if not names:
        raise UsageError(f"--what names nothing; expected one or several of {', '.join(WHAT)}")
    return set(names)


def distribution(parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Any:
    """The distributions of all ranks with texts for names: columns of `KEYS`, `value` (ns) and `count`."""
    import pyarrow as pa

    from alltrace.recipes.analysis.distribution import group, merge

    steps = _steps(parts, run) if "step" in chosen(options) else None
    whole = merge([_EMPTY(), *(part.table for part in parts), *([] if steps is None else [steps])])
    codes, first = group([whole.column(c) for c in _STORED])
    named = _named_keys(whole.select(_STORED).take(pa.array(first)), run)
    rows = pa.array(codes)
    # there may be a million durations of a few names, so words go as dictionaries until the last
    words = {k: named.column(k).combine_chunks() for k in KEYS}
    coded = [c.dictionary_encode().take(rows) if pa.types.is_string(c.type) else c.take(rows) for c in words.values()]
    table = pa.table([*coded, whole.column("value"), whole.column("count")], names=[*KEYS, "value", "count"])
    del whole, codes, rows, coded
    table = merge([table])
    plain = [pa.field(f.name, f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in table.schema]
    return table.cast(pa.schema(plain))


def _named_keys(keys: Any, run: RunFacts) -> Any:
    """The columns `KEYS` of a table with those of `_STORED`."""
    import pyarrow as pa

    texts = pa.chunked_array([run.texts(keys.column("id").combine_chunks())], pa.string())
    name = pc.coalesce(keys.column("word"), texts, "(no name)")
    calls = pc.equal(keys.column("what"), "call")
    name = pc.if_else(calls, pc.replace_substring_regex(name, _VERSION, ""), name)
    return pa.table([keys.column("what"), name, keys.column("bytes"), keys.column("group_size")], names=KEYS)


def _steps(parts: Sequence[Part], run: RunFacts) -> Any:
    """The distribution of the steps of the ranks that were asked; the alignment has them."""
    import numpy as np
    import pyarrow as pa

    if run.alignment is None:
        return None
    steps = run.alignment.steps
    asked = np.array([p.rank for p in parts], np.int64)
    steps = steps.filter(pa.array(np.isin(steps.column("rank").to_numpy(), asked)))
    if not steps.num_rows:
        return None
    kind = steps.column("kind").cast(pa.string())
    return _keyed("step", {"word": kind}, pc.subtract(steps.column("end"), steps.column("start")))


def _EMPTY() -> Any:  # noqa: N802  a constant, but of what is loaded late
    import pyarrow as pa

    kinds = {
        "what": pa.string(), "id": pa.int64(), "word": pa.string(), "bytes": pa.int64(), "group_size": pa.int64(),
        "value": pa.int64(), "count": pa.int64(),
    }  # fmt: skip
    return pa.schema(list(kinds.items())).empty_table()


def _keyed(what: str, columns: Mapping[str, Any], durations: Any) -> Any:
    """One kind's distribution in the columns that all kinds share."""
    import pyarrow as pa

    from alltrace.recipes.analysis.distribution import collect

    made = collect(columns, durations)
    empty = _EMPTY()
    arrays = []
    for field in empty.schema:
        if field.name == "what":
            arrays.append(pa.repeat(what, made.num_rows))
        elif field.name in made.column_names:
            arrays.append(made.column(field.name).cast(field.type))
        else:
            arrays.append(pa.nulls(made.num_rows, field.type))
    return pa.table(arrays, schema=empty.schema)


def _ended(rank: RankTables, table: str, columns: tuple[str, ...]) -> tuple[Any, Any] | None:
    """The rows of a table that have both times, and their durations; None where there are none."""
    rows = rank.table(table, columns)
    whole = pc.and_(pc.is_valid(rows.column("start")), pc.is_valid(rows.column("end")))
    if not pc.all(whole).as_py():
        rows = rows.filter(whole)
    if not rows.num_rows:
        return None
    return rows, pc.max_element_wise(pc.subtract(rows.column("end"), rows.column("start")), 0)


def _named(table: str, columns: tuple[str, ...]) -> Any:
    def made(rank: RankTables) -> list[tuple[dict[str, Any], Any]]:

        found = _ended(rank, table, columns)
        if found is None:
            return []
        rows, durations = found
        name = rows.column("name")
        if "short_name" in columns and name.null_count:
            name = pc.coalesce(name, rows.column("short_name"))
        return [({"id": name}, durations)]

    return made


def _copies(rank: RankTables) -> list[tuple[dict[str, Any], Any]]:
    import pyarrow as pa

    found = _ended(rank, "copies", Durations.tables["copies"])
    if found is None:
        return []
    rows, durations = found
    return [({"word": rows.column("kind").cast(pa.string())}, durations)]


def _collectives(rank: RankTables) -> list[tuple[dict[str, Any], Any]]:
    found = _ended(rank, "collectives", Durations.tables["collectives"])
    if found is None:
        return []
    rows, durations = found
    return [({"id": rows.column("op"), "bytes": rows.column("bytes"), "group_size": rows.column("group_size")}, durations)]


_TABLES = {
    "kernel": ("kernels",),
    "copy": ("copies",),
    "range": ("ranges",),
    "call": ("api",),
    "collective": ("collectives",),
    "step": ("ranges", "kernels"),
}
_SOURCES: dict[str, Any] = {
    "kernel": _named("kernels", Durations.tables["kernels"]),
    "copy": _copies,
    "range": _named("ranges", Durations.tables["ranges"]),
    "call": _named("api", Durations.tables["api"]),
    "collective": _collectives,
}


RECIPE = Durations()
