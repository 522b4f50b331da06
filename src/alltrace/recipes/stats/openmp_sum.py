"""The report `openmp_sum`: time in each OpenMP event."""

from __future__ import annotations

from typing import ClassVar

from alltrace.recipes.stats.base import Cell
from alltrace.recipes.stats.host import CallSum


class OpenmpSum(CallSum):
    """The time that OpenMP events took, by name."""

    name = "openmp_sum"
    title = "OpenMP Summary"
    tables: ClassVar = {"openmp": ("start", "end", "name")}
    counted = "Num Calls"
    named = (Cell("Name", "text", "Event."),)


RECIPE = OpenmpSum()
