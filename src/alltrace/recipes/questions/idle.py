"""Why devices were idle: the time between two pieces of work, by what the second one waited for.

A gap is between two pieces of work of one device (kernels, copies, graphs) on any streams, or of one stream with `--by
stream`. While the next piece was not launched yet, the host is the cause: in a call that waits for the GPU, or
elsewhere. From the launch on, the launch is. What was launched before the gap began waited on the device: for as long
as two kernels of a stream have between them anyway (`--kernel-delay-ns`), or else for other work. The parts sum to the
idle time, to the nanosecond. Time with possibly lost records is left out, also from the span.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.device_intervals import GPU, device_rows
from alltrace.recipes.analysis.launched_work import GRAPHS, TABLES, GpuWork, gpu_work, with_graphs
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts
from alltrace.run.collecting import in_pieces
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.arrays import integers
from alltrace.trace.intervals import by_track, clip, difference, gaps, merge, merge_by_track, overlap_ns

_CAUSES = ("host_sync_ns", "host_ns", "launch_ns", "kernel_wait_ns", "dependency_ns", "unknown_ns")
_SYNC = r"^(?:cuda|cu|hip)\w*Synchronize"
_STREAM = col.whole("stream", "CUDA stream")

COLUMNS: col.Columns = (
    col.RANK,
    GPU,
    col.ns("span_ns", "from the first start to the last end of the work"),
    col.whole("gaps", "gaps in which nothing ran"),
    col.ns("idle_ns", "total length of the gaps"),
    col.percent("idle_percent", "idle_ns as a share of span_ns"),
    col.ns("host_sync_ns", "the next work was not launched yet; its thread was in a call that waits for the GPU"),
    col.ns("host_ns", "the next work was not launched yet; its thread did something else"),
    col.ns("launch_ns", "the next work was being launched, and nothing was queued before"),
    col.ns("kernel_wait_ns", "the next work was queued; the gap is shorter than kernel_delay_ns"),
    col.ns("dependency_ns", "the next work was queued; the gap is longer: it waited for other work or an event"),
    col.ns("unknown_ns", "the call that launched the next work is unknown"),
)


def _columns(options: Options) -> col.Columns:
    return COLUMNS if options["by"] == "device" else (*COLUMNS[:2], _STREAM, *COLUMNS[2:])


def _map(rank: Rank, options: Options) -> Any:
    work = with_graphs(rank, gpu_work(rank))
    waits = _Waits(rank, work)
    streams = work.stream if options["by"] == "stream" else np.zeros_like(work.stream)
    rows = []
    order = np.lexsort((work.start, streams, work.device))
    for (device, stream), places in by_track(work.device[order], streams[order]):
        mine = order[places]
        start, end = work.start[mine], work.end[mine]
        busy = merge(start, end)
        unrecorded = rank.unrecorded(busy)
        open_ = difference(gaps(busy), unrecorded)
        # of work that starts together the longest is the next, so that no order of rows matters
        first = mine[np.lexsort((work.of_calls("row", mine), -end, start))]
        after = first[np.searchsorted(work.start[first], open_.ends, "left")] if len(open_.ends) else mine[:0]
        rows.append(
            {
                "device": device,
                "stream": stream,
                "start_ns": int(start.min()),
                "end_ns": int(max(end.max(), start.max())),
                "left_out_ns": clip(unrecorded, int(start.min()), int(max(end.max(), start.max()))).total_ns,
                "gaps": len(open_.starts),
                **waits.causes(open_.starts, open_.ends, after, options["kernel_delay_ns"]),
            }
        )
    return pa.Table.from_pylist(rows)


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    columns = _columns(options)
    rows = device_rows(parts, run)
    for row in rows:
        span, idle = row["end_ns"] - row["start_ns"] - row["left_out_ns"], sum(row[c] for c in _CAUSES)
        row |= {"span_ns": span, "idle_ns": idle, "idle_percent": 100 * idle / span if span else None}
    return Answer.of(rows, columns)


class _Waits:
    """Splits gaps by what the next work waited for."""

    def __init__(self, rank: Rank, work: GpuWork) -> None:
        self._work = work
        self._synchronizing = _synchronizing(rank)

    def causes(self, starts: Any, ends: Any, after: Any, delay_ns: int) -> dict[str, int]:
        """The time of each cause over gaps, with the next work in `after`."""
        work = self._work
        called, thread = work.of_calls("start", after), work.of_calls("thread", after)
        has_call = work.call[after] >= 0
        length = ends - starts
        late = has_call & (called > starts)
        launched = np.minimum(called, ends)
        host = np.where(late, launched - starts, 0)
        synced = np.zeros_like(host)
        for number in np.unique(thread[late]).tolist():
            rows = np.flatnonzero(late & (thread == number))
            if number in self._synchronizing:
                synced[rows] = overlap_ns(starts[rows], launched[rows], self._synchronizing[number])
        queued = has_call & ~late
        parts = {
            "host_sync_ns": synced,
            "host_ns": host - synced,
            "launch_ns": np.where(late, ends - launched, 0),
            "kernel_wait_ns": np.where(queued & (length < delay_ns), length, 0),
            "dependency_ns": np.where(queued & (length >= delay_ns), length, 0),
            "unknown_ns": np.where(has_call, 0, length),
        }
        return {name: int(values.sum()) for name, values in parts.items()}


def _synchronizing(rank: Rank) -> dict[int, Any]:
    """By thread, when it was in a call that waits for the GPU."""
    waits = [np.empty((3, 0), np.int64)]
    for calls in in_pieces(rank, "api", ("thread", "start", "end", "name")):
        names = pc.unique(calls.column("name")).drop_null()
        waiting = pc.filter(names, pc.match_substring_regex(rank.texts(names), _SYNC))
        its = calls.filter(pc.is_in(calls.column("name"), value_set=waiting))
        waits.append(np.stack([integers(column, -1) for column in its.columns[:3]]))
    thread, start, end = np.concatenate(waits, axis=1)
    return merge_by_track(thread, start, np.maximum(end, start))


QUESTION = Question(
    "idle",
    __doc__,
    _columns,
    _map,
    _merge,
    tables={"kernels": TABLES["kernels"], "copies": TABLES["copies"], "graphs": GRAPHS, "api": TABLES["api"]},
    requires=("kernels",),
    options=(
        Option("by", str, "device", "gaps of each device, or of each stream separately", ("device", "stream")),
        Option(
            "kernel_delay_ns",
            int,
            30_000,
            "a shorter gap between queued work counts as the ordinary delay, in ns",
            least=0,
        ),
    ),
    chart=Chart("stacked_bars", "rank", _CAUSES),
    of_hosts=True,
    important=("rank", "gpu", "idle_percent", "host_ns", "idle_ns"),
)
