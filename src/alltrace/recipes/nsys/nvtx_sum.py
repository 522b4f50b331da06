"""The recipe `nvtx_sum`: durations of NVTX ranges by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.analysis.collecting import in_pieces
from alltrace.recipes.nsys.described import DescribedRanges
from alltrace.recipes.nsys.ranges import RANGES, closed, with_length

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alltrace.recipes.base import RankTables


class NvtxSum(DescribedRanges):
    """How long NVTX ranges took on the CPU, by name, over all ranks and on each.

    Ranges pushed and popped, and started and ended, count alike. Those still open at the end of the capture, and those without
    length, are left out. A range is called by its text; where two domains have one text, by `domain:text`.
    """

    name = "nvtx_sum"
    device = False
    tables: ClassVar = RANGES

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The ranges."""
        return closed(rank)

    def pieces(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Any]:
        """The ranges; a rank that holds them for other questions gives them whole."""
        if getattr(rank, "batches", None) is None:
            yield self.rows(rank, options)
            return
        for ranges in in_pieces(rank, "ranges", RANGES["ranges"], lengths=True):
            yield with_length(ranges)


RECIPE = NvtxSum()
