"""A small simulator of programs with groups of ranks that take turns: which works when, and the truth about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alltrace.api import OpenRun
from tests.making import kernel, make_run

MS = 1_000_000
_KERNEL_NS = 900_000


@dataclass(frozen=True)
class Phase:
    """A phase of each cycle: the roles that work in it, how long each does, and how long nobody works behind it, ms."""

    ms: Mapping[str, int]
    behind_ms: int = 0


def write_program(
    folder: Path, cycles: int, phases: Sequence[Phase], ranks: Mapping[str, Sequence[int]], *, one_device: bool = False
) -> tuple[OpenRun, int, int]:
    """A run of such a program.

    Args:
        folder: Where to make it.
        cycles: How often all phases come.
        phases: Those of each cycle.
        ranks: The ranks of each role.
        one_device: Whether the roles share their devices.

    Returns:
        The run; what it would take less if each role worked without waiting for others, ns; and its span.
    """
    rows: dict[int, dict[str, Any]] = {r: {"kernels": [], "api": []} for its in ranks.values() for r in its}
    at, busy, any_busy = 1 * MS, dict.fromkeys(ranks, 0), 0
    for _ in range(cycles):
        for phase in phases:
            for role, length in phase.ms.items():
                for rank in ranks[role]:
                    _work(rows[rank], at, length * MS)
                busy[role] += length
            longest = max(phase.ms.values())
            any_busy += longest
            at += (longest + phase.behind_ms) * MS
    if one_device:
        for its in ranks.values():
            for place, rank in enumerate(its):
                rows[rank]["devices"] = [{"device": 0, "ordinal": 0, "uuid": f"GPU-{place}", "name": "H200"}]
    roles = {r: role for role, its in ranks.items() for r in its}
    run = make_run(folder, rows, roles=roles)
    return run, (any_busy - max(busy.values())) * MS, at - 1 * MS - phases[-1].behind_ms * MS


def _work(rows: dict[str, Any], start: int, length: int) -> None:
    """Kernels back to back, each launched ahead of its start."""
    at = start
    while at + _KERNEL_NS <= start + length:
        number = len(rows["api"])
        launched = at - 400_000 if at > start else at - 20_000
        rows["api"].append(
            {"start": launched, "end": launched + 8_000, "name": "cudaLaunchKernel", "correlation": number}
        )
        rows["kernels"].append(kernel(at, min(at + 1 * MS, start + length), correlation=number))
        at += 1 * MS
