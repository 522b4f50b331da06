"""GPU kernels by name: how often, how long in all, and the exact distribution of their durations, over all ranks.

Median and quartiles are of all durations together (linear interpolation, Hyndman and Fan type 7), not medians of the
ranks' medians; `--by-rank` shows each rank separately.
"""

from collections.abc import Sequence

from alltrace.recipes.analysis.statistics_sql import distribution_statement, merged_statement, statistics_statement
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, Reads, RunFacts
from alltrace.recipes.sql_recipe import Statements, answer_table
from alltrace.trace import columns as col

_RANK = col.RANK
_KEYS = ("name", "kind")
_SELECTED = {
    "total_ns": "total AS total_ns",
    "time_percent": "total / coalesce(nullif(sum(total) OVER (), 0), 1) * 100 AS time_percent",
    **{f"{name}_ns": f"{name} AS {name}_ns" for name in ("mean", "q1", "median", "q3", "min", "max", "stddev")},
}

COLUMNS: col.Columns = (
    col.text("name", "kernel"),
    col.text("kind", "class by the kernel rules"),
    col.whole("ranks", "ranks that ran it"),
    col.whole("count", "launches"),
    col.ns("total_ns", "summed duration"),
    col.percent("time_percent", "total_ns as a share of the sum over all rows"),
    col.real("mean_ns", "mean duration", "ns", 1),
    col.real("q1_ns", "exact first quartile", "ns", 1),
    col.real("median_ns", "exact median", "ns", 1),
    col.real("q3_ns", "exact third quartile", "ns", 1),
    col.ns("min_ns", "shortest"),
    col.ns("max_ns", "longest"),
    col.real("stddev_ns", "standard deviation of the sample", "ns", 1),
)

READS: Reads = {"kernels": ("start", "end", "name", "short_name", "kind")}

CHART = Chart("bars", "name", ("total_ns",), title="Time in each kernel")

_EVENTS = """SELECT rank, coalesce({name}) AS name, kind, "end" - start AS value FROM kernels
WHERE $kind IS NULL OR kind = $kind"""


def _columns(options: Options) -> col.Columns:
    if not options["by_rank"]:
        return COLUMNS
    return (_RANK, *(c for c in COLUMNS if c.name != "ranks"))


def _chart(options: Options) -> Chart | None:
    if not options["by_rank"]:
        return CHART
    return Chart("stacked_bars", "rank", ("total_ns",), "name", title="Time in kernels on each rank")


def _events(options: Options) -> str:
    """Which of the two names is the kernel's; the other is used if a report lacks it."""
    return _EVENTS.format_map({"name": "short_name, name" if options["names"] == "short" else "name, short_name"})


def _merge_statement(options: Options, events: str | None = None) -> str | None:
    return None if options["by_rank"] else merged_statement(_KEYS, ranks=True, events=events)


def _reduce_statement(options: Options) -> str:
    by_rank = options["by_rank"]
    statistics = statistics_statement(
        {"name": "text_of(name)", "kind": "kind"},
        _KEYS,
        "type_7",
        by_rank=by_rank,
        further=None if by_rank else {"ranks": "count(DISTINCT rank)"},
    )
    columns = ", ".join(_SELECTED.get(c.name, c.name) for c in _columns(options))
    return f"SELECT {columns}\nFROM ({statistics})\nORDER BY total_ns DESC, name, kind{', rank' if by_rank else ''}"


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    columns = _columns(options)
    if any(p.table.num_rows for p in parts):
        return Answer(answer_table(SQL.over_parts(parts, run, options), columns), columns)
    notes = (f"no kernel is of class {options['kind']!r}",) if parts and options["kind"] is not None else ()
    return Answer.of((), columns, notes)


SQL = Statements(
    READS,
    map=lambda options: distribution_statement(_KEYS, _events(options)),
    together=lambda options: _merge_statement(options, _events(options)),
    reduce=_reduce_statement,
    merge=_merge_statement,
)


QUESTION = Question(
    "kernels",
    __doc__,
    _columns,
    SQL.map_rank,
    _merge,
    tables=READS,
    options=(
        Option("by_rank", bool, False, "a row per rank and kernel"),
        Option("names", str, "full", "names with template arguments and parameters, or without", ("full", "short")),
        Option("kind", str, None, "only kernels of this class, such as compute or collective"),
    ),
    chart=_chart,
    sql=SQL,
    map_ranks=SQL.map_ranks,
    important=("name", "rank", "total_ns", "time_percent", "count", "median_ns"),
)
