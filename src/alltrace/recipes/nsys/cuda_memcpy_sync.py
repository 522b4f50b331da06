"""The recipe `cuda_memcpy_sync`: synchronous copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.base import Chart
from alltrace.recipes.nsys.base import Cell
from alltrace.recipes.nsys.cuda_copies import PLACE, READS, TIMES, is_async, is_kind, launched, like, memory, place
from alltrace.recipes.nsys.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import RankTables

_SMALL_BYTES = 64_000


class CudaMemcpySync(Rule):
    """Synchronous copies, for which the calling thread waits, the longest first.

    Copies of up to 64,000 bytes from the host to a device, and copies within a device, are left out: the call does not wait for
    them.
    """

    name = "cuda_memcpy_sync"
    tables: ClassVar = READS
    requires = ("copies", "api")
    cells = (*TIMES, Cell("Src Kind", "text", "Memory copied from."), Cell("Dst Kind", "text", "Memory written."), *PLACE)
    chart = Chart("scatter", "Start", ("Duration",), "File")
    advice = (
        "Copy with cudaMemcpy*Async on a stream of its own, from and to pinned memory, so that the thread goes on and copies "
        "overlap with kernels."
    )
    none = "No synchronous copy was found."

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The copies."""
        found = launched(rank)
        calls = pc.and_(like(found.column("call"), "cudaMemcpy"), pc.invert(is_async(found.column("call"))))
        small = pc.fill_null(pc.less_equal(found.column("bytes"), _SMALL_BYTES), fill_value=False)
        small = pc.and_(is_kind(found, "kind", "HtoD"), small)
        within = pc.fill_null(pc.equal(found.column("src_device"), found.column("dst_device")), fill_value=False)
        moved = pc.invert(is_kind(found, "kind", "memset"))
        found = found.filter(pc.and_(pc.and_(calls, moved), pc.invert(pc.or_(small, within))))
        return pa.table({**place(rank, found), "Src Kind": memory(found, "src_kind"), "Dst Kind": memory(found, "dst_kind")})


RECIPE = CudaMemcpySync()
