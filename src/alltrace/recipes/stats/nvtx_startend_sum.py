"""The report `nvtx_startend_sum`: time in each NVTX start/end range."""

from __future__ import annotations

from alltrace.recipes.stats.base import Cell
from alltrace.recipes.stats.nvtx import RangeSum


class NvtxStartendSum(RangeSum):
    """The time that start/end ranges took, by name."""

    name = "nvtx_startend_sum"
    title = "NVTX Start/End Range Summary"
    kind = "startend"
    named = (Cell("Range", "text", "Range."),)


RECIPE = NvtxStartendSum()
