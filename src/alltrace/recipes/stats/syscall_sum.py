"""The report `syscall_sum`: time in each system call."""

from __future__ import annotations

from typing import ClassVar

from alltrace.recipes.stats.base import Cell
from alltrace.recipes.stats.host import CallSum


class SyscallSum(CallSum):
    """The time that system calls took, by name."""

    name = "syscall_sum"
    title = "System Call Summary"
    tables: ClassVar = {"syscalls": ("start", "end", "name")}
    counted = "Num Calls"
    named = (Cell("Name", "text", "System call."),)


RECIPE = SyscallSum()
