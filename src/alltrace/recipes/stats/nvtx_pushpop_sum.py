"""The report `nvtx_pushpop_sum`: time in each NVTX push/pop range."""

from __future__ import annotations

from alltrace.recipes.stats.base import Cell
from alltrace.recipes.stats.nvtx import RangeSum


class NvtxPushpopSum(RangeSum):
    """The time that push/pop ranges took, by name."""

    name = "nvtx_pushpop_sum"
    title = "NVTX Push/Pop Range Summary"
    kind = "pushpop"
    named = (Cell("Range", "text", "Range."),)


RECIPE = NvtxPushpopSum()
