"""A rank's kernels in few bytes each: when they ran, and which of few kinds of launches each is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alltrace.run.collecting import Growing, in_pieces
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Int64, blocks, integers, is_one_of
from alltrace.trace.distinct import distinct, distinct_rows
from alltrace.trace.kernel_rules import NOT_COMPUTE

Int32 = NDArray[np.int32]

LAUNCH = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "dynamic_shared_memory")
"""What launches of one kernel must have in common to be the same work."""

RESOURCES = ("registers", "static_shared_memory")  # what a launch uses of a multiprocessor in addition to `LAUNCH`

_KIND = ("process", "device", "stream", "name", *LAUNCH, *RESOURCES)


@dataclass(frozen=True)
class KernelRows:
    """The kernels of a rank in the order of their table: n of k kinds; a time that is null is 0."""

    start: Int64
    end: Int64
    kind: Int32  # place of each one's kind in `kinds`, n
    kinds: Int64  # a row for each column of `_KIND`, of each kind the value, -1 for null; (13, k)
    talks: Flags  # which of them communicate
    in_graph: Flags  # which of them a graph launched

    def of_kinds(self, *columns: str) -> list[Int64]:
        """The values that each kind has in some columns, k."""
        return [self.kinds[_KIND.index(column)] for column in columns]

    def first_of_names(self) -> Int64:
        names, name = distinct(*self.of_kinds("name"))
        begin, first = np.full(len(names), np.iinfo(np.int64).max), np.full(len(names), len(self.start))
        for some in blocks(len(self.start)):
            np.minimum.at(begin, name[self.kind[some]], self.start[some])
        for some in blocks(len(self.start)):
            own = name[self.kind[some]]
            rows = np.flatnonzero(self.start[some] == begin[own])
            np.minimum.at(first, own[rows], some.start + rows)
        return first


def read_kernels(rank: Rank) -> tuple[KernelRows, Int64]:
    """The kernels of a rank, and of each its correlation id, -1 for null."""
    count = rank.record.rows.get("kernels", 0)
    times, kinds, marks = Growing(3, count), Growing(1, count, np.int32), Growing(2, count, np.bool_)
    of_pieces = [np.empty((len(_KIND), 0), np.int64)]
    before = 0
    for piece in in_pieces(rank, "kernels", ("start", "end", "correlation", "kind", "graph_node", *_KIND)):
        values, code = distinct_rows(*(integers(piece.column(c), -1) for c in _KIND))
        of_pieces.append(values)
        kinds.add((before + code).astype(np.int32))
        before += values.shape[1]
        times.add(*(integers(piece.column(c), null) for c, null in (("start", 0), ("end", 0), ("correlation", -1))))
        marks.add(is_one_of(piece.column("kind"), NOT_COMPUTE), piece.column("graph_node").is_valid().to_numpy())
    distinct_kinds, place = distinct_rows(*np.concatenate(of_pieces, axis=1))
    (kind,) = kinds.columns()
    for some in blocks(len(kind)):
        kind[some] = place[kind[some]]
    start, end, correlation = times.columns()
    return KernelRows(start, end, kind, distinct_kinds, *marks.columns()), correlation
