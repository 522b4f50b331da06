"""How GPU work was launched: the time of the call, the delay until the work starts, and the time of the work itself.

The delay is from the end of the call to the start of the work; work that starts while its call still runs has none. Short
work takes less time than the call that launched it, so the host cannot keep the device busy with it alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.launched_work import TABLES, gpu_work
from alltrace.recipes.analysis.statistics_sql import distribution_statement, merged_statement, statistics_statement
from alltrace.recipes.base import Answer, Chart, Option, Part, Question
from alltrace.recipes.sql_recipe import Statements, answer_table
from alltrace.trace import columns as col

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Options, RankTables, RunFacts

_CALL, _GPU, _DELAY, _SHORT = range(4)
_MEASURED = f"""
WITH measured AS (
  SELECT *, greatest(call_end - call_start, 0) AS call, "end" - start AS gpu,
    greatest(start - greatest(call_end, call_start), 0) AS delay
  FROM launched
)
SELECT rank, {{keys}}{_CALL} AS measure, call AS value FROM measured
UNION ALL SELECT rank, {{keys}}{_GPU}, gpu FROM measured
UNION ALL SELECT rank, {{keys}}{_DELAY}, delay FROM measured
UNION ALL SELECT rank, {{keys}}{_SHORT}, (gpu < call)::BIGINT FROM measured
"""
_ABOVE = {
    "slow": "sum(count) FILTER (value > $call_cutoff_ns)",
    "late": "sum(count) FILTER (value > $delay_cutoff_ns)",
}
_REDUCE = f"""
WITH statistics AS ({{statistics}})
SELECT {{by}}, max(count) AS launches,
  any_value(mean) FILTER (measure = {_CALL}) AS call_mean_ns,
  any_value(median) FILTER (measure = {_CALL}) AS call_median_ns,
  any_value(max) FILTER (measure = {_CALL}) AS call_max_ns,
  any_value(mean) FILTER (measure = {_GPU}) AS gpu_mean_ns,
  any_value(median) FILTER (measure = {_GPU}) AS gpu_median_ns,
  any_value(mean) FILTER (measure = {_DELAY}) AS delay_mean_ns,
  any_value(median) FILTER (measure = {_DELAY}) AS delay_median_ns,
  any_value(max) FILTER (measure = {_DELAY}) AS delay_max_ns,
  any_value(total) FILTER (measure = {_SHORT}) AS short,
  coalesce(any_value(slow) FILTER (measure = {_CALL}), 0) AS slow,
  coalesce(any_value(late) FILTER (measure = {_DELAY}), 0) AS late
FROM statistics GROUP BY {{by}} ORDER BY {{order}}
"""
_FIRST = {
    "rank": col.RANK,
    "kernel": col.text("name", "kernel, `copy` and its direction, or `fill`"),
    "call": col.text("name", "the API call"),
}

_MEDIANS = ("call_median_ns", "delay_median_ns", "gpu_median_ns")


COLUMNS: col.Columns = (
    _FIRST["rank"],
    col.whole("launches", "kernels, copies and fills with a known call"),
    col.real("call_mean_ns", "mean duration of the call", "ns", 1),
    col.real("call_median_ns", "exact median", "ns", 1),
    col.ns("call_max_ns", "longest"),
    col.real("gpu_mean_ns", "mean duration of the work", "ns", 1),
    col.real("gpu_median_ns", "exact median", "ns", 1),
    col.real("delay_mean_ns", "mean delay", "ns", 1),
    col.real("delay_median_ns", "exact median", "ns", 1),
    col.ns("delay_max_ns", "longest"),
    col.whole("short", "launches with work that takes less time than the call"),
    col.whole("slow", "launches with a call longer than call_cutoff_ns"),
    col.whole("late", "launches with a delay longer than delay_cutoff_ns"),
)

MAP_SQL = distribution_statement(("{keys}measure",), _MEASURED)


def _columns(options: Options) -> col.Columns:
    """By kernel or call, `name` comes first instead of `rank`."""
    return (_FIRST[options["by"]], *COLUMNS[1:])


def _chart(options: Options) -> Chart | None:
    """With a name instead of the rank, the name is on the axis."""
    return Chart("bars", _columns(options)[0].name, _MEDIANS)


def _map_statement(options: Options) -> str:
    """The columns that identify rows."""
    return MAP_SQL.format_map({"keys": "".join(f"{key}, " for key in _keys(options))})


def _computed(_options: Options) -> str:
    """The matching of calls and work."""
    return "which call launched which work"


def _rank_tables(rank: RankTables, options: Options) -> dict[str, Any]:
    """The work with a known call, as the table `launched`: matching is a loop, as several calls may have one correlation id.

    Its columns are `rank`, `name` (the id of the kernel's or call's name), `word` (the name of a copy or fill, else null),
    and the start and end of the work and of the call.
    """
    work = gpu_work(rank)
    rows = np.flatnonzero(work.call >= 0)
    columns = {"rank": pa.array(np.full(len(rows), rank.rank, np.int32))}
    if options["by"] == "call":
        columns["name"] = pa.array(work.of_calls("name", rows))
    elif options["by"] == "kernel":
        name, direction = work.name[rows], work.direction[rows]
        columns["name"] = pa.array(name, mask=name == 0)
        places = pa.array(direction.astype(np.int32), mask=direction < 0)
        columns["word"] = pa.DictionaryArray.from_arrays(places, pa.array(work.words, pa.string()))
    columns |= {"start": pa.array(work.start[rows]), "end": pa.array(work.end[rows])}
    columns |= {f"call_{time}": pa.array(work.of_calls(time, rows)) for time in ("start", "end")}
    return {"launched": pa.table(columns)}


def _merge_statement(options: Options) -> str | None:
    """The distribution over all ranks, unless each has its own row."""
    return None if _stand_alone(options) else merged_statement((*_keys(options), "measure"))


def _stand_alone(options: Options) -> bool:
    """By rank."""
    return bool(options["by"] == "rank")


def _reduce_statement(options: Options) -> str:
    """A row per rank, kernel or call."""
    by_rank = options["by"] == "rank"
    keys = _keys(options)
    named = {} if by_rank else {"name": f"coalesce({', '.join(['text_of(name)', *keys[1:]])})"}
    statistics = statistics_statement(
        {**named, "measure": "measure"}, (*keys, "measure"), "type_7", quartiles=False, by_rank=by_rank, further=_ABOVE
    )
    order = "rank" if by_rank else "launches DESC, coalesce(name, '') LIMIT if($top = 0, NULL, $top)"
    return _REDUCE.format(by="rank" if by_rank else "name", statistics=statistics, order=order)


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    """The rows of the statement."""
    columns = _columns(options)
    if any(p.table.num_rows for p in parts):
        return Answer(answer_table(SQL.over_parts(parts, run, options), columns), columns)
    return Answer.of((), columns, ("no call that launched GPU work is known",) if parts else ())


SQL = Statements(
    TABLES,
    map=_map_statement,
    reduce=_reduce_statement,
    merge=_merge_statement,
    stand_alone=_stand_alone,
    rank_tables=_rank_tables,
    computed=_computed,
)


def _keys(options: Mapping[str, Any]) -> tuple[str, ...]:
    return {"rank": (), "call": ("name",), "kernel": ("name", "word")}[options["by"]]


QUESTION = Question(
    "launches",
    __doc__,
    _columns,
    SQL.map_rank,
    _merge,
    tables=TABLES,
    requires=("kernels", "api"),
    options=(
        Option("by", str, "rank", "what a row is", tuple(_FIRST)),
        Option("call_cutoff_ns", int, 50_000, "a longer call counts as slow, in ns", least=0),
        Option("delay_cutoff_ns", int, 100_000, "a longer delay counts as late, in ns", least=0),
        Option("top", int, 50, "maximum number of rows by kernel or call, by decreasing launches; 0 for all", least=0),
    ),
    chart=_chart,
    sql=SQL,
)
