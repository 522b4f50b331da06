"""A rank's GPU work with the call that launched each piece."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.recipes.execution.shared_tables import once
from alltrace.run.collecting import Growing, in_pieces, whole_columns
from alltrace.run.launch_matching import CALLS, Launches, match_launches
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, coded, integers

KERNEL, COPY, FILL, GRAPH = range(4)
KINDS = ("kernel", "copy", "fill", "graph")

TABLES: dict[str, tuple[str, ...]] = {
    "kernels": ("start", "end", "device", "stream", "correlation", "process", "name", "short_name", "graph_node"),
    "copies": ("start", "end", "device", "stream", "correlation", "process", "kind", "bytes"),
    "api": ("start", "end", "process", "thread", "correlation", "name"),
}
"""What `gpu_work` reads."""

_TIMED = {"start": 0, "end": 0, "device": -1, "stream": -1, "process": -1, "correlation": -1}

GRAPHS = ("start", "end", "device", "stream", "correlation", "process")
"""What `with_graphs` reads of `graphs` besides."""


@dataclass(frozen=True)
class GpuWork:
    """The kernels, copies and fills of a rank, and with `with_graphs` its graphs; int64 arrays of one length."""

    start: Int64  # start on the device, ns
    end: Int64  # end, ns; not before the start
    device: Int64  # row of `devices`, -1 if unknown
    stream: Int64  # stream id, -1 if unknown
    kind: NDArray[np.int8]  # index into `KINDS`
    name: Int64  # id of the kernel's name, of the short one if it has one; 0 if there is none, and for all but kernels
    call: Int64  # index into `calls` of the call that launched it, the earliest of several; -1 if none is known
    direction: NDArray[np.int16]  # of copies and fills the row of its word in `directions`; -1 for others
    directions: list[str]  # such as `HtoD`
    # `thread`, `start` and `end` of the calls that launched something, and `row` in the table `api`
    calls: Mapping[str, Int64]

    def of_calls(self, column: str, rows: Int64) -> Int64:
        """A column of the calls of the work in `rows`; -1 if the call is not known."""
        values = self.calls[column]
        call = self.call[rows]
        return np.where(call >= 0, values[np.maximum(call, 0)], -1) if len(values) else np.full(len(rows), -1, np.int64)

    @property
    def words(self) -> list[str]:
        """The names of copies and fills of each of `directions`: `copy` and the direction, or `fill`."""
        return ["fill" if d == "memset" else f"copy {d}" for d in self.directions]


def gpu_work(rank: Rank) -> GpuWork:
    """The work of a rank, kernels first, also without calls; made once if recipes share the rank's tables."""
    return once(rank, "gpu work", lambda: _gpu_work(rank))


def _gpu_work(rank: Rank) -> GpuWork:
    count = sum(rank.record.rows.get(table, 0) for table in ("kernels", "copies"))
    columns, names, words = Growing(len(_TIMED), count), Growing(1, count), []
    for piece in in_pieces(rank, "kernels", (*_TIMED, "short_name", "name")):
        columns.add(*(integers(piece.column(c), null) for c, null in _TIMED.items()))
        names.add(integers(pc.coalesce(piece.column("short_name"), piece.column("name"))))
    kernels = len(names.columns()[0])
    for piece in in_pieces(rank, "copies", (*_TIMED, "kind")):
        columns.add(*(integers(piece.column(c), null) for c, null in _TIMED.items()))
        words += pc.fill_null(piece.column("kind").cast(pa.string()), "unknown").chunks
    directions, word = coded(pa.chunked_array(words, pa.string()))
    names.add(np.zeros(len(word), np.int64))
    fill = np.array([d == "memset" for d in directions.to_pylist()], np.bool_)[word]
    start, end, device, stream, process, correlation = columns.columns()
    calls, call = _calls(launches_of(rank, process, correlation), len(start))
    return GpuWork(
        start,
        np.maximum(end, start, out=end),
        device,
        stream,
        np.concatenate((np.full(kernels, KERNEL, np.int8), np.where(fill, FILL, COPY).astype(np.int8))),
        names.columns()[0],
        call,
        np.concatenate((np.full(kernels, -1, np.int16), word.astype(np.int16))),
        directions.to_pylist(),
        calls,
    )


def launches_of(rank: Rank, process: Int64, correlation: Int64) -> Launches:
    """`match_launches` for the rank's kernels, then copies and fills; made once if recipes share its tables."""
    return once(rank, "launches", lambda: match_launches(in_pieces(rank, "api", CALLS), process, correlation))


def with_graphs(rank: Rank, work: GpuWork) -> GpuWork:
    """`work` with the rank's graphs traced as a whole after it, which keep a device as busy as kernels do."""
    if not rank.has("graphs"):
        return work
    start, end, device, stream, process, correlation = whole_columns(rank, ("graphs",), _TIMED)
    calls, call = _calls(match_launches(in_pieces(rank, "api", CALLS), process, correlation), len(start))
    call[call >= 0] += len(work.calls["row"])
    return GpuWork(
        np.concatenate((work.start, start)),
        np.concatenate((work.end, np.maximum(end, start))),
        np.concatenate((work.device, device)),
        np.concatenate((work.stream, stream)),
        np.concatenate((work.kind, np.full(len(start), GRAPH, np.int8))),
        np.concatenate((work.name, np.zeros_like(start))),
        np.concatenate((work.call, call)),
        np.concatenate((work.direction, np.full(len(start), -1, np.int16))),
        work.directions,
        {column: np.concatenate((values, calls[column])) for column, values in work.calls.items()},
    )


def _calls(pairs: Launches, operations: int) -> tuple[dict[str, Int64], Int64]:
    """The calls that launched something, and which of them launched each operation, -1 if unknown."""
    call = np.full(operations, -1, np.int64)
    at = pairs.call_of_pair()
    if pairs.one_call_each():
        call[pairs.op] = at
    else:
        # a driver call may be nested in its runtime call and share its correlation: the outer one counts
        order = np.lexsort((-pairs.end[at], pairs.start[at], pairs.op))
        first = order[np.concatenate(([True], pairs.op[order][1:] != pairs.op[order][:-1]))]
        call[pairs.op[first]] = at[first]
    return {"thread": pairs.thread, "start": pairs.start, "end": pairs.end, "row": pairs.row}, call
