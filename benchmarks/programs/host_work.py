"""What a host does besides launching: pauses, allocations, modules, compilation, and what makes a rank late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.programs.machine import CALL, HOST, IO, POP, PUSH, STALL

if TYPE_CHECKING:
    from benchmarks.programs.model import Cause, View

COMPUTE = 7
TIMES = {"host-pause": 1, "unexplained": 1, "recompilation": 1, "allocation": 2, "module-loading": 2, "leak": 2}
"""Kinds of work that are planted between layers, and how many times in a step."""

LATE_RANGES = {
    "logging": ("log_metrics", "SummaryWriter.add_scalar", "wandb.log"),
    "evaluation": ("evaluate", "compute_metrics", "validation bookkeeping"),
    "checkpoint": ("save_checkpoint", "torch.save", "write_state"),
    "device": ("evaluate", "ema_update", "compute_metrics"),
}
"""What a late rank does before a barrier, and ranges that name it."""

Instructions = list[tuple[Any, ...]]


def work_of(cause: Cause, took_ns: int, view: View) -> Instructions:
    """The instructions of planted work of one of the kinds in `TIMES`."""
    if cause.kind == "host-pause":
        return [(HOST, took_ns)]
    if cause.kind == "module-loading":
        return [(CALL, cause.variant, took_ns, False)]
    if cause.kind == "unexplained":
        return [(STALL, COMPUTE, took_ns)]
    if cause.kind == "recompilation":
        compiled = [(HOST, took_ns * 9 // 10), (CALL, "cuModuleLoadData", took_ns // 10, False)]
        return ranged(cause.variant if view.operators or view.phases else "", compiled)
    if cause.variant == "cudaMalloc":
        return [(CALL, "cudaMalloc_v3020", took_ns, False)]
    return [(CALL, "cudaFree_v3020", took_ns // 2, True), (CALL, "cudaMalloc_v3020", took_ns - took_ns // 2, False)]


def late_work_of(cause: Cause, took_ns: int, view: View) -> Instructions:
    """What the host of a late rank does: computing alone, in pieces between calls, or writing to a file."""
    what, _, text = cause.variant.partition(": ")
    if what == "checkpoint":
        work: Instructions = [(HOST, took_ns // 5), (IO, "write", took_ns * 4 // 5, view.osrt)]
    elif what == "evaluation":
        work = [(HOST, took_ns // 4)] * 3 + [(HOST, took_ns - 3 * (took_ns // 4))]
    else:
        work = [(HOST, took_ns)]
    return ranged(text, work)


def ranged(text: str, instructions: Instructions) -> Instructions:
    """The instructions in a range with this text, if there is one."""
    return [(PUSH, text, "", None), *instructions, (POP,)] if text else instructions
