"""The report `nvtx_sum`: time in each NVTX range."""

from __future__ import annotations

from alltrace.recipes.stats.base import Cell
from alltrace.recipes.stats.nvtx import STYLE, RangeSum


class NvtxSum(RangeSum):
    """The time that ranges took, by name and style."""

    name = "nvtx_sum"
    title = "NVTX Range Summary"
    kind = None
    named = (STYLE, Cell("Range", "text", "Range."))
    ties = ("Range", "unnamed", "Style")


RECIPE = NvtxSum()
