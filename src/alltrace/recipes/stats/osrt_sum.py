"""The report `osrt_sum`: time in each call of the operating system's runtime."""

from __future__ import annotations

from typing import ClassVar

from alltrace.recipes.stats.base import Cell
from alltrace.recipes.stats.host import CallSum


class OsrtSum(CallSum):
    """The time that calls of the operating system's runtime took, by function."""

    name = "osrt_sum"
    title = "OS Runtime Summary"
    tables: ClassVar = {"osrt": ("start", "end", "name")}
    counted = "Num Calls"
    named = (Cell("Name", "text", "Function."),)


RECIPE = OsrtSum()
