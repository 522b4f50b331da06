"""How GPU work was launched: the time of the call, the delay until the work starts, and the time of the work itself.

The delay is from the end of the call to the start of the work; work that starts while its call still runs has none.
Short work takes less time than the call that launched it, so the host cannot keep the device busy with it alone.

`--by device` counts the kernels that were launched and not finished on each device, and those of them that ran. A
kernel is in flight from the start of the call that launched it to its own end, and executes from its own start. In
`starved_ns` the device has nothing to do and nothing queued: it waits for the host. In `held_ns` kernels wait while
none executes: for the launch itself, for a copy, or for an event of another stream or rank. A kernel whose call was not
recorded is in flight while it executes.

`--by stream` shows how much launched work waits in each stream, and with `--bins` over time: kernels, copies, fills and
graphs traced as a whole. A piece of work is outstanding from the start of the call that launched it to its own start on
the device. A long queue means that the host runs ahead; an empty one that the device waits for the host; a full one
(`--full`) blocks the host.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.device_intervals import GPU, device_rows
from alltrace.recipes.analysis.launched_work import GRAPHS, KERNEL, TABLES, gpu_work, with_graphs
from alltrace.recipes.analysis.statistics_sql import distribution_statement, merged_statement, statistics_statement
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts
from alltrace.recipes.sql_recipe import Statements, answer_table
from alltrace.run.collecting import whole_columns
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.intervals import bin_coverage_ns, bin_edges, bin_load_ns, by_track, concurrency, merge

_CALL, _GPU, _DELAY, _SHORT = range(4)
_MEASURED = """
WITH measured AS (
  SELECT *, greatest(call_end - call_start, 0) AS call, "end" - start AS gpu,
    greatest(start - greatest(call_end, call_start), 0) AS delay
  FROM launched
)
"""
_VALUES = f"""{_MEASURED}
SELECT rank, {{keys}}{_CALL} AS measure, call AS value FROM measured
UNION ALL SELECT rank, {{keys}}{_GPU}, gpu FROM measured
UNION ALL SELECT rank, {{keys}}{_DELAY}, delay FROM measured
UNION ALL SELECT rank, {{keys}}{_SHORT}, (gpu < call)::BIGINT FROM measured
"""
_OF_EACH_RANK = f"""{_MEASURED}
SELECT rank, count(*) AS launches,
  sum(call) / count(*) AS call_mean_ns, exact_median(call) AS call_median_ns, max(call) AS call_max_ns,
  sum(gpu) / count(*) AS gpu_mean_ns, exact_median(gpu) AS gpu_median_ns,
  sum(delay) / count(*) AS delay_mean_ns, exact_median(delay) AS delay_median_ns, max(delay) AS delay_max_ns,
  count(*) FILTER (gpu < call) AS short,
  count(*) FILTER (call > $call_cutoff_ns) AS slow,
  count(*) FILTER (delay > $delay_cutoff_ns) AS late
FROM measured GROUP BY rank
"""
_ABOVE = {"slow": "sum(count) FILTER (value > $call_cutoff_ns)", "late": "sum(count) FILTER (value > $delay_cutoff_ns)"}
_REDUCE = f"""
WITH statistics AS ({{statistics}})
SELECT name, max(count) AS launches,
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
FROM statistics GROUP BY name ORDER BY launches DESC, coalesce(name, '') LIMIT if($top = 0, NULL, $top)
"""
_KEYS = {"kernel": ("name", "word"), "call": ("name",)}

_LAUNCHES = (
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
COLUMNS: dict[str, col.Columns] = {
    "rank": (col.RANK, *_LAUNCHES),
    "kernel": (col.text("name", "kernel, `copy` and its direction, or `fill`"), *_LAUNCHES),
    "call": (col.text("name", "the API call"), *_LAUNCHES),
    "device": (
        col.RANK,
        GPU,
        col.whole("kernels", "kernels"),
        col.whole("unmatched", "kernels with an unknown call"),
        col.ns("span_ns", "from the first launch to the last end"),
        col.real("in_flight_mean", "mean number in flight, weighted by time", decimals=2),
        col.whole("in_flight_max", "largest number"),
        col.real("executing_mean", "mean number of executing kernels", decimals=2),
        col.whole("executing_max", "largest number"),
        col.real("queued_mean", "in_flight_mean minus executing_mean", decimals=2),
        col.ns("starved_ns", "time with none in flight"),
        col.ns("held_ns", "time with kernels in flight and none executing"),
        col.ns("executing_ns", "time with at least one executing"),
        col.percent("starved_percent", "starved_ns as a share of span_ns"),
    ),
    "stream": (
        col.RANK,
        GPU,
        col.whole("stream", "CUDA stream"),
        col.ns("start_ns", "start of the bin on the run's aligned clock"),
        col.ns("span_ns", "its length; all bins last from the first call to the last start of work"),
        col.whole("launches", "calls that start in it"),
        col.real("mean_length", "mean number of outstanding pieces, weighted by time", decimals=2),
        col.whole("max_length", "largest number"),
        col.ns("empty_ns", "time with none outstanding"),
        col.ns("full_ns", "time with `full` or more outstanding"),
    ),
}
_MEDIANS = ("call_median_ns", "delay_median_ns", "gpu_median_ns")
_CHARTS = {
    "rank": Chart("bars", "rank", _MEDIANS),
    "kernel": Chart("bars", "name", _MEDIANS),
    "call": Chart("bars", "name", _MEDIANS),
    "device": Chart("stacked_bars", "rank", ("executing_ns", "held_ns", "starved_ns"), detail="gpu"),
    "stream": Chart("lines", "start_ns", ("mean_length", "max_length"), "rank"),
}


def _columns(options: Options) -> col.Columns:
    return COLUMNS[options["by"]]


def _map_statement(options: Options) -> str:
    if _stand_alone(options):
        return _OF_EACH_RANK
    return distribution_statement((*_KEYS[options["by"]], "measure"), _values(options))


def _values(options: Options) -> str:
    return _VALUES.format_map({"keys": "".join(f"{key}, " for key in _KEYS.get(options["by"], ()))})


def _merge_statement(options: Options, events: str | None = None) -> str | None:
    return None if _stand_alone(options) else merged_statement((*_KEYS[options["by"]], "measure"), events=events)


def _rank_tables(rank: Rank, options: Options) -> dict[str, Any]:
    """The work with a known call, as the table `launched`: matching is a loop, as calls may share a correlation id.

    Its columns are `rank`, `name` (the id of the kernel's or call's name), `word` (the name of a copy or fill, else
    null), and the start and end of the work and of the call.
    """
    work = gpu_work(rank)
    rows = np.flatnonzero(work.call >= 0)
    columns = {"rank": pa.array(np.full(len(rows), rank.rank, np.int32))}
    if options["by"] == "call":
        columns["name"] = pa.array(whole_columns(rank, ("api",), {"name": -1})[0][work.of_calls("row", rows)])
    elif options["by"] == "kernel":
        name, direction = work.name[rows], work.direction[rows]
        columns["name"] = pa.array(name, mask=name == 0)
        words = pa.array(direction.astype(np.int32), mask=direction < 0)
        columns["word"] = pa.DictionaryArray.from_arrays(words, pa.array(work.words, pa.string()))
    columns |= {"start": pa.array(work.start[rows]), "end": pa.array(work.end[rows])}
    columns |= {f"call_{time}": pa.array(work.of_calls(time, rows)) for time in ("start", "end")}
    return {"launched": pa.table(columns)}


def _stand_alone(options: Options) -> bool:
    return bool(options["by"] == "rank")


def _reduce_statement(options: Options) -> str:
    if _stand_alone(options):
        return "SELECT * FROM parts ORDER BY rank"
    keys = _KEYS[options["by"]]
    labels = {"name": f"coalesce({', '.join(['text_of(name)', *keys[1:]])})", "measure": "measure"}
    return _REDUCE.format(
        statistics=statistics_statement(labels, (*keys, "measure"), "type_7", quartiles=False, further=_ABOVE)
    )


SQL = Statements(
    TABLES,
    map=_map_statement,
    reduce=_reduce_statement,
    merge=_merge_statement,
    together=lambda options: _merge_statement(options, _values(options)),
    stand_alone=_stand_alone,
    rank_tables=_rank_tables,
    computed="which call launched which work",
)


def _map(rank: Rank, options: Options) -> Any:
    if options["by"] == "device":
        return pa.Table.from_pylist(list(_devices(rank)))
    if options["by"] == "stream":
        return pa.Table.from_pylist(list(_streams(rank, options)))
    return SQL.map_rank(rank, options)


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    columns = _columns(options)
    if options["by"] == "device":
        rows = device_rows(parts, run)
        return Answer.of(rows, columns, tuple(_device_notes(rows, parts, run)))
    if options["by"] == "stream":
        table = col.table_of(device_rows(parts, run), columns)
    elif any(part.table.num_rows for part in parts):
        table = answer_table(SQL.over_parts(parts, run, options), columns)
    else:
        table = col.table_of((), columns)
    return Answer(table, columns, ("no call that launched GPU work is known",) if parts and not table.num_rows else ())


def _devices(rank: Rank) -> Iterator[dict[str, Any]]:
    """How many kernels are in flight and execute on each device."""
    work = gpu_work(rank)
    kernels = np.flatnonzero(work.kind == KERNEL)
    has_call = work.call[kernels] >= 0
    launched = np.where(has_call, np.minimum(work.of_calls("start", kernels), work.start[kernels]), work.start[kernels])
    order = np.lexsort((launched, work.device[kernels]))
    kernels, has_call, launched = kernels[order], has_call[order], launched[order]
    for (device,), at in by_track(work.device[kernels]):
        begin, start, end = launched[at], work.start[kernels][at], work.end[kernels][at]
        span = int(end.max() - begin.min())
        flight, running = concurrency(begin, end), concurrency(start, end)
        flying, executing = merge(begin, end).total_ns, merge(start, end).total_ns
        yield {
            "device": device, "kernels": len(start), "unmatched": int((~has_call[at]).sum()), "span_ns": span,
            "in_flight_mean": _mean(begin, end, span), "in_flight_max": int(flight.counts.max(initial=0)),
            "executing_mean": _mean(start, end, span), "executing_max": int(running.counts.max(initial=0)),
            "queued_mean": _mean(begin, start, span), "starved_ns": span - flying, "held_ns": flying - executing,
            "executing_ns": executing, "starved_percent": 100 * (span - flying) / span if span else 0.0,
        }  # fmt: skip


def _mean(start: Any, end: Any, span: int) -> float:
    """The mean number of intervals that are open in a span that holds them all."""
    return float((end - start).sum()) / span if span else 0.0


def _device_notes(rows: Sequence[dict[str, Any]], parts: Sequence[Part], run: RunFacts) -> Iterator[str]:
    unmatched = sum(row["unmatched"] for row in rows)
    if unmatched:
        yield f"the calls of {unmatched} of {sum(r['kernels'] for r in rows)} kernels are not known"
    ranks = {part.rank for part in parts}
    if any(r.rows.get("graphs") for r in run.ranks if r.rank in ranks):
        yield (
            "CUDA graphs traced as a whole are not kernels here: while one runs, its device counts as starved or held "
            "(capture with --cuda-graph-trace=node to see its kernels)"
        )


def _streams(rank: Rank, options: Options) -> Iterator[dict[str, Any]]:
    """The queue of each stream in each bin of its time."""
    work = with_graphs(rank, gpu_work(rank))
    launched = np.flatnonzero(work.call >= 0)
    order = launched[np.lexsort((work.start[launched], work.stream[launched], work.device[launched]))]
    begin = work.of_calls("start", order)
    for (device, stream), rows in by_track(work.device[order], work.stream[order]):
        starts, ends = begin[rows], work.start[order][rows]
        for length in _lengths(starts, np.maximum(ends, starts), options["bins"], options["full"]):
            yield {"device": device, "stream": stream, **length}


def _lengths(starts: Any, ends: Any, bins: int, full: int) -> Iterator[dict[str, Any]]:
    """The queue of one stream in each bin of its time, from when pieces were outstanding."""
    low, high = int(starts.min()), int(ends.max())
    if high <= low:
        nothing = {"mean_length": 0.0, **dict.fromkeys(("span_ns", "max_length", "empty_ns", "full_ns"), 0)}
        yield {"start_ns": low, "launches": len(starts), **nothing}
        return
    edges = bin_edges(low, high, min(bins, high - low))
    load, covered = bin_load_ns(starts, ends, edges), bin_coverage_ns(merge(starts, ends), edges)
    level = concurrency(starts, ends)
    above = np.flatnonzero(level.counts >= full)
    blocked = bin_coverage_ns(merge(level.times[above], level.times[above + 1]), edges)
    # the largest number within a bin is at its beginning or where the number changes
    at_edge = level.counts[np.maximum(np.searchsorted(level.times, edges[:-1], "right") - 1, 0)]
    first = np.searchsorted(level.times, edges, "left")
    calls = np.searchsorted(np.sort(starts), edges, "left")
    calls[-1] = len(starts)  # a call at the very end is of the last bin
    for n, span in enumerate(np.diff(edges).tolist()):
        changes = level.counts[first[n] : first[n + 1]]
        yield {
            "start_ns": int(edges[n]),
            "span_ns": span,
            "launches": int(calls[n + 1] - calls[n]),
            "mean_length": float(load[n]) / span,
            "max_length": int(max(at_edge[n], changes.max(initial=0))),
            "empty_ns": span - int(covered[n]),
            "full_ns": int(blocked[n]),
        }


QUESTION = Question(
    "launches",
    __doc__,
    _columns,
    _map,
    _merge,
    tables=TABLES,
    reading=lambda options: {**TABLES, "graphs": GRAPHS} if options["by"] == "stream" else TABLES,
    requires=("kernels", "api"),
    options=(
        Option("by", str, "rank", "what a row is; by device and stream with other columns", tuple(COLUMNS)),
        Option("call_cutoff_ns", int, 50_000, "a longer call counts as slow, in ns", least=0),
        Option("delay_cutoff_ns", int, 100_000, "a longer delay counts as late, in ns", least=0),
        Option("top", int, 50, "maximum number of rows by kernel or call, by decreasing launches; 0 for all", least=0),
        Option("bins", int, 1, "by stream, number of equal time bins per stream, one row each", least=1, most=100_000),
        Option("full", int, 1024, "by stream, number of outstanding pieces at which a queue is full", least=1),
    ),
    chart=lambda options: _CHARTS[options["by"]],
    clock=lambda options: "one" if options["by"] == "stream" else "own",
    sql=SQL,
    map_ranks=lambda ranks, options: SQL.map_ranks(ranks, options) if options["by"] in ("rank", *_KEYS) else None,
    important=("rank", "launches", "delay_median_ns", "call_median_ns", "late", "slow", "short"),
)
