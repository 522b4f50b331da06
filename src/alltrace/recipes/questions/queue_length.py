"""How much launched work waits in each stream: outstanding kernels, copies, fills and graphs traced as a whole, over time.

A piece of work is outstanding from the start of the call that launched it to its own start on the device. A long queue means
that the host runs ahead; an empty one that the device waits for the host; a full one (`--full`) blocks the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.device_intervals import GPU, device_rows
from alltrace.recipes.analysis.launched_work import GRAPHS, TABLES, gpu_work, with_graphs
from alltrace.recipes.base import Answer, Chart, Option, Part, Question
from alltrace.trace import columns as col
from alltrace.trace.intervals import bin_coverage_ns, bin_edges, bin_load_ns, by_track, concurrency, merge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from alltrace.recipes.base import Options, RankTables, RunFacts


COLUMNS: col.Columns = (
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
)


def _map(rank: RankTables, options: Options) -> Any:
    """One row per stream and part of time."""
    work = with_graphs(rank, gpu_work(rank))
    known = np.flatnonzero(work.call >= 0)
    order = known[np.lexsort((work.start[known], work.stream[known], work.device[known]))]
    begin = work.of_calls("start", order)
    rows = []
    for (device, stream), places in by_track(work.device[order], work.stream[order]):
        starts, ends = begin[places], work.start[order][places]
        found = _lengths(starts, np.maximum(ends, starts), options["bins"], options["full"])
        rows += [{"device": device, "stream": stream, **row} for row in found]
    return pa.Table.from_pylist(rows)


def _merge(parts: Sequence[Part], run: RunFacts, _options: Options) -> Answer:
    """The rows of all ranks."""
    rows = device_rows(parts, run)
    notes = ("no call that launched GPU work is known",) if parts and not rows else ()
    return Answer.of(rows, COLUMNS, notes)


def _lengths(starts: Any, ends: Any, bins: int, full: int) -> Iterator[dict[str, Any]]:
    """The queue of one stream in each part of its time, from when pieces were outstanding."""
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
    # the largest number within a part is at its beginning or where the number changes
    at_edge = level.counts[np.maximum(np.searchsorted(level.times, edges[:-1], "right") - 1, 0)]
    first = np.searchsorted(level.times, edges, "left")
    calls = np.searchsorted(np.sort(starts), edges, "left")
    for n in range(len(edges) - 1):
        changes = level.counts[first[n] : first[n + 1]]
        span = int(edges[n + 1] - edges[n])
        yield {
            "start_ns": int(edges[n]),
            "span_ns": span,
            "launches": int(calls[n + 1] - calls[n]) + (int(len(starts) - calls[n + 1]) if n == len(edges) - 2 else 0),
            "mean_length": float(load[n]) / span,
            "max_length": int(max(at_edge[n], changes.max(initial=0))),
            "empty_ns": span - int(covered[n]),
            "full_ns": int(blocked[n]),
        }


QUESTION = Question(
    "queue-length",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables={**TABLES, "graphs": GRAPHS},
    requires=("kernels", "api"),
    options=(
        Option("bins", int, 1, "number of equal time bins per stream, one row each", least=1, most=100_000),
        Option("full", int, 1024, "number of outstanding pieces at which a queue is full", least=1),
    ),
    chart=Chart("lines", "start_ns", ("mean_length", "max_length"), "rank"),
    clock="one",
)
