"""Which push/pop range encloses which: fills `depth` and `parent` of `ranges` while sorted rows stream by.

The parent of a range is the enclosing push/pop range of its thread that minimises the two distances between their
starts and ends, as nsys' report `nvtx_pushpop_trace` defines it; for a fixed child, that is the shortest enclosing
range. Ranges of one thread are mostly nested, but those of different domains may interleave, so a stack is not enough.
The code keeps per thread a frontier: the ranges that can still be the shortest enclosing one of something later. By
descending end, their durations descend, so that the parent is found by bisection, and with nested ranges the frontier
is the stack.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.trace.arrays import Int64
from alltrace.trace.nesting import NestingSweep

_INT64_MAX = np.iinfo(np.int64).max
_DEPTH_MAX = np.iinfo(np.int16).max


class Nesting:
    """The sweep, with the state that it carries from row group to row group.

    `pushpop`: the code of `pushpop` in the dictionary of the `kind` column; None when there are no such ranges.
    `open_end_ns`: when open ranges end; None for never.
    """

    def __init__(self, pushpop: int | None, open_end_ns: int | None) -> None:
        self._pushpop = -1 if pushpop is None else pushpop
        self._open_end = _INT64_MAX if open_end_ns is None else open_end_ns
        self._sweep = NestingSweep()
        self.crossing = False  # whether a range so far ends after another one in which it began

    def fill(self, rows: pa.Table) -> pa.Table:
        """`rows`, the next ones of the file, with `depth` and `parent` filled.

        A range with an unknown thread or start, and a start/end range, gets nulls. The depth saturates at the end of
        int16.
        """
        kinds = rows.column("kind").combine_chunks().indices
        known = pc.and_(pc.is_valid(rows.column("thread")), pc.is_valid(rows.column("start"))).to_numpy()
        nests = known & pc.fill_null(pc.equal(kinds, self._pushpop), False).to_numpy(zero_copy_only=False)
        starts = _numbers(rows, "start", 0)
        depths, parents = self._sweep.step(
            nests, _numbers(rows, "thread", 0), starts, _numbers(rows, "end", self._open_end)
        )
        self.crossing = self.crossing or bool(self._sweep.crosses.any())
        columns = {
            "depth": pa.array(np.minimum(depths, _DEPTH_MAX).astype(np.int16), mask=depths < 0),
            "parent": pa.array(parents, mask=parents < 0),
        }
        for name, column in columns.items():
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        return rows


def _numbers(rows: pa.Table, name: str, null: int) -> Int64:
    values: Any = pc.fill_null(rows.column(name), pa.scalar(null, rows.schema.field(name).type)).to_numpy()
    numbers: Int64 = values.astype(np.int64, copy=False)
    return numbers
