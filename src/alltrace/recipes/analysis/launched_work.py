"""A rank's GPU work with the call that launched each piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.execution.shared_tables import once
from alltrace.run.collecting import in_pieces
from alltrace.run.launch_matching import CALLS, Launches, match_launches
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers

KERNEL, COPY, FILL, GRAPH = range(4)
KINDS = ("kernel", "copy", "fill", "graph")

TABLES: dict[str, tuple[str, ...]] = {
    "kernels": ("start", "end", "device", "stream", "correlation", "process", "name", "short_name", "graph_node"),
    "copies": ("start", "end", "device", "stream", "correlation", "process", "kind", "bytes"),
    "api": ("start", "end", "process", "thread", "correlation", "name"),
}
"""What `gpu_work` reads."""

GRAPHS = ("start", "end", "device", "stream", "correlation", "process")  # what `with_graphs` reads of `graphs` besides


@dataclass(frozen=True)
class GpuWork:
    """The kernels, copies and fills of a rank, and with `with_graphs` its graphs; int64 arrays of one length."""

    start: Int64  # start on the device, ns
    end: Int64  # end, ns; not before the start
    device: Int64  # row of `devices`, -1 if unknown
    stream: Int64  # stream id, -1 if unknown
    kind: Int64  # index into `KINDS`
    name: Int64  # id of the kernel's name, of the short one if it has one; 0 if there is none, and for all but kernels
    call: Int64  # row in `calls` of the call that launched it, the earliest of several; -1 if none is known
    direction: Int64  # of copies and fills the row of its word in `directions`; -1 for others
    directions: list[str]  # such as `HtoD`
    calls: Any  # the rank's API calls: a table with `start`, `end`, `thread` and `name`

    def of_calls(self, column: str, rows: Int64) -> Int64:
        """A column of the calls of the work in `rows`; -1 if the call is not known."""
        values = integers(self.calls.column(column), -1)
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
    kernels, copies = (rank.table(t, TABLES[t]) for t in ("kernels", "copies"))
    both = [kernels, copies]

    def column(name: str, null: int) -> Int64:
        return np.concatenate([integers(t.column(name), null) for t in both])

    start = column("start", 0)
    words = pc.fill_null(copies.column("kind").cast(pa.string()), "unknown").combine_chunks().dictionary_encode()
    directions = words.dictionary.to_pylist()
    direction = words.indices.to_numpy().astype(np.int64)
    fill = np.array([d == "memset" for d in directions], np.bool_)[direction]
    name = integers(pc.coalesce(kernels.column("short_name"), kernels.column("name")))
    pairs = launches_of(rank, column("process", -1), column("correlation", -1))
    calls, call = rank.table("api", TABLES["api"]), _calls(pairs, len(start))
    return GpuWork(
        start,
        np.maximum(column("end", 0), start),
        column("device", -1),
        column("stream", -1),
        np.concatenate((np.full(kernels.num_rows, KERNEL, np.int64), np.where(fill, FILL, COPY))).astype(np.int64),
        np.concatenate((name, np.zeros(copies.num_rows, np.int64))),
        call,
        np.concatenate((np.full(kernels.num_rows, -1, np.int64), direction)),
        directions,
        calls,
    )


def launches_of(rank: Rank, process: Int64, correlation: Int64) -> Launches:
    """`match_launches` for the rank's kernels, then copies and fills; made once if recipes share its tables."""
    return once(rank, "launches", lambda: match_launches(in_pieces(rank, "api", CALLS), process, correlation))


def with_graphs(rank: Rank, work: GpuWork) -> GpuWork:
    """`work` with the rank's graphs traced as a whole after it, which keep a device as busy as kernels do."""
    if not rank.has("graphs"):
        return work
    start, end, device, stream, correlation, process = (
        integers(c, 0 if n in ("start", "end") else -1) for n, c in zip(GRAPHS, rank.table("graphs", GRAPHS).columns, strict=True)
    )
    none = np.full(len(start), -1, np.int64)
    call = _calls(match_launches([work.calls], process, correlation), len(start))
    return GpuWork(
        np.concatenate((work.start, start)),
        np.concatenate((work.end, np.maximum(end, start))),
        np.concatenate((work.device, device)),
        np.concatenate((work.stream, stream)),
        np.concatenate((work.kind, np.full_like(none, GRAPH))),
        np.concatenate((work.name, np.zeros_like(none))),
        np.concatenate((work.call, call)),
        np.concatenate((work.direction, none)),
        work.directions,
        work.calls,
    )


def _calls(pairs: Launches, operations: int) -> Int64:
    """The row in `api` of the call that launched each operation, -1 if unknown."""
    calls = np.full(operations, -1, np.int64)
    at = pairs.call_of_pair()
    # a driver call may be nested in its runtime call and share its correlation: the outer one counts
    order = np.lexsort((-pairs.end[at], pairs.start[at], pairs.op))
    first = order[np.concatenate(([True], pairs.op[order][1:] != pairs.op[order][:-1]))] if len(order) else order
    calls[pairs.op[first]] = pairs.row[at[first]]
    return calls
