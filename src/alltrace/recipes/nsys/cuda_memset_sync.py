"""The recipe `cuda_memset_sync`: synchronous fills."""

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


class CudaMemsetSync(Rule):
    """Synchronous fills of pinned or managed memory, for which the calling thread waits, the longest first."""

    name = "cuda_memset_sync"
    tables: ClassVar = READS
    requires = ("copies", "api")
    cells = (*TIMES, Cell("Memory Kind", "text", "Memory filled."), *PLACE)
    chart = Chart("scatter", "Start", ("Duration",), "File")
    advice = "Fill with cudaMemset*Async, so that the calling thread goes on."
    none = "No synchronous fill of pinned or managed memory was found."

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The fills."""
        found = launched(rank)
        calls = pc.and_(like(found.column("call"), "cudaMemset"), pc.invert(is_async(found.column("call"))))
        kinds = pc.and_(is_kind(found, "kind", "memset"), is_kind(found, "dst_kind", "pinned", "managed"))
        found = found.filter(pc.and_(calls, kinds))
        return pa.table({**place(rank, found), "Memory Kind": memory(found, "dst_kind")})


RECIPE = CudaMemsetSync()
