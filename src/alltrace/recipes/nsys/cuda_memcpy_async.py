"""The recipe `cuda_memcpy_async`: asynchronous copies that are not."""

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


class CudaMemcpyAsync(Rule):
    """Asynchronous copies from or to pageable memory, the longest first.

    Such a copy goes through a buffer, and the call returns only when that is done, so it is synchronous after all.
    """

    name = "cuda_memcpy_async"
    tables: ClassVar = READS
    requires = ("copies", "api")
    cells = (*TIMES, Cell("Src Kind", "text", "Memory copied from."), Cell("Dst Kind", "text", "Memory written."), *PLACE)
    chart = Chart("scatter", "Start", ("Duration",), "File")
    advice = (
        "Copy from and to pinned memory (cudaMallocHost, cudaHostRegister, or pin_memory of a data loader): an asynchronous copy "
        "of pageable memory makes the calling thread wait."
    )
    none = "No asynchronous copy was from or to pageable memory."

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The copies."""
        found = launched(rank)
        calls = pc.and_(like(found.column("call"), "cudaMemcpy"), is_async(found.column("call")))
        pageable = pc.or_(is_kind(found, "src_kind", "pageable"), is_kind(found, "dst_kind", "pageable"))
        moved = pc.invert(is_kind(found, "kind", "memset"))
        found = found.filter(pc.and_(pc.and_(calls, pageable), moved))
        return pa.table({**place(rank, found), "Src Kind": memory(found, "src_kind"), "Dst Kind": memory(found, "dst_kind")})


RECIPE = CudaMemcpyAsync()
