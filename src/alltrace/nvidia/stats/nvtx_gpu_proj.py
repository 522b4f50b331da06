"""What the two reports of projected ranges share: the projected ranges of a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.stats.base import StatsReport
from alltrace.nvidia.stats.nvtx_stack import levels, pids_and_tids
from alltrace.recipes.analysis.nvtx_projection import PROJECTION_READS, Projection, projection
from alltrace.trace.arrays import integers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import RankTables


class ProjectionReport(StatsReport):
    """A report on the ranges of the CPU projected on the GPU work launched inside them."""

    tables: ClassVar[Mapping[str, tuple[str, ...]]] = PROJECTION_READS
    requires: ClassVar[tuple[str | tuple[str, ...], ...]] = ("api", ("kernels", "copies"))

    def without(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What follows if ranges are missing."""
        return {"ranges": "all GPU work lies outside of ranges"}

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The projected ranges of the rank, in the order of its report; `parent` is a row of the result.

        A last row with a null `source_row` represents the work outside all ranges, if there is any, with its correlation ids.
        """
        found = projection(rank)
        ranges = found.ranges
        start, end = integers(ranges.column("start")), integers(ranges.column("end"))
        number = np.bincount(found.parent[found.parent >= 0], minlength=len(start))
        pid, tid = pids_and_tids(rank, integers(ranges.column("thread")))
        table = pa.table({
                "first": found.first, "last": found.last, "start": start, "end": end, "operations": found.operations,
                "PID": pid, "TID": tid, "Lvl": levels(found.parent), "NumChild": number, "parent": found.parent,
                "name": ranges.column("name"), "domain": ranges.column("domain"),
                "kind": pc.cast(ranges.column("kind"), pa.string()), "source_row": ranges.column("source_row"),
                "correlations": pa.nulls(len(start), pa.list_(pa.int64())),
            })  # fmt: skip
        return pa.concat_tables([table, _outside(rank, found, table.schema)]) if found.outside.num_rows else table


def _outside(rank: RankTables, found: Projection, schema: Any) -> Any:
    """One row for the work outside all ranges; its process and thread are those that the last of it was launched by."""
    work = found.outside
    last = integers(work.column("end"))
    at = int(np.argmax(last))
    pid, tid = pids_and_tids(rank, integers(work.column("thread"))[at : at + 1])
    ids = np.unique(integers(work.column("correlation")))
    row: dict[str, Any] = dict.fromkeys(schema.names)
    row.update(first=int(integers(work.column("start")).min()), last=int(last[at]), PID=int(pid[0]), TID=int(tid[0]))
    row.update(operations=len(ids), NumChild=0, correlations=ids)
    return pa.Table.from_pylist([row], schema=schema)
