"""How many kernels were launched and not finished on each device, how many of these ran, and how long there were none.

A kernel is in flight from the start of the call that launched it to its own end, and executes from its own start. In
`starved_ns` the device has nothing to do and nothing queued: it waits for the host. In `held_ns` kernels wait while
none executes: for the launch itself, for a copy, or for an event of another stream or rank. A kernel whose call was
not recorded is in flight while it executes. `queue-length` has the queues stream by stream and over time, `launches` has the
delays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.device_intervals import GPU, device_rows
from alltrace.recipes.analysis.launched_work import KERNEL, TABLES, gpu_work
from alltrace.recipes.base import Answer, Chart, Part, Question
from alltrace.trace import columns as col
from alltrace.trace.intervals import by_track, concurrency, merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alltrace.recipes.base import Options, RankTables, RunFacts

_DECIMALS = {"starved_percent": 1, "in_flight_mean": 2, "executing_mean": 2, "queued_mean": 2}


COLUMNS: col.Columns = (
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
)


def _map(rank: RankTables, _options: Options) -> Any:
    """A row per device."""
    work = gpu_work(rank)
    every = np.flatnonzero(work.kind == KERNEL)
    known = work.call[every] >= 0
    launched = np.where(known, np.minimum(work.of_calls("start", every), work.start[every]), work.start[every])
    order = np.lexsort((launched, work.device[every]))
    every, known, launched = every[order], known[order], launched[order]
    rows = []
    for (device,), at in by_track(work.device[every]):
        begin, start, end = launched[at], work.start[every][at], work.end[every][at]
        span = int(end.max() - begin.min())
        flight, running = concurrency(begin, end), concurrency(start, end)
        flying, executing = merge(begin, end).total_ns, merge(start, end).total_ns
        rows.append(
            {
                "device": device, "kernels": len(start), "unmatched": int((~known[at]).sum()), "span_ns": span,
                "in_flight_mean": _mean(begin, end, span), "in_flight_max": int(flight.counts.max(initial=0)),
                "executing_mean": _mean(start, end, span), "executing_max": int(running.counts.max(initial=0)),
                "queued_mean": _mean(begin, start, span), "starved_ns": span - flying, "held_ns": flying - executing,
                "executing_ns": executing, "starved_percent": 100 * (span - flying) / span if span else 0.0,
            }
        )  # fmt: skip
    return pa.Table.from_pylist(rows)


def _merge(parts: Sequence[Part], run: RunFacts, _options: Options) -> Answer:
    """The rows of all ranks."""
    rows = device_rows(parts, run)
    lost = sum(row["unmatched"] for row in rows)
    notes = [f"the calls of {lost} of {sum(r['kernels'] for r in rows)} kernels are not known"] if lost else []
    asked = {part.rank for part in parts}
    if any(r.rows.get("graphs") for r in run.ranks if r.rank in asked):
        notes.append(
            "CUDA graphs traced as a whole are not kernels here: while one runs, its device counts as starved or held "
            "(capture with --cuda-graph-trace=node to see its kernels)"
        )
    return Answer.of(rows, COLUMNS, tuple(notes))


def _mean(start: Any, end: Any, span: int) -> float:
    """The mean number of intervals that are open in a span that holds them all."""
    return float((end - start).sum()) / span if span else 0.0


QUESTION = Question(
    "in-flight",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables=TABLES,
    requires=("kernels", "api"),
    chart=Chart("stacked_bars", "rank", ("executing_ns", "held_ns", "starved_ns"), detail="gpu"),
)
