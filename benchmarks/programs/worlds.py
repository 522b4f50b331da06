"""How a program is seen: as profilers record by default, of machines as they were measured, or ideally."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.programs.model import Program

PAYLOADS = {"json": 20, "binary": 20, "names": 25, "none": 10}
"""What reports tell of communicators, by how often: payloads, names of NCCL's ranges alone, or no such ranges."""

SEVERAL_DEVICES = 0.2
"""The share of programs with several devices in a process, of those that can have them."""


def as_ideal(program: Program) -> Program:
    """The same program in the ideal world: ends at once, all identifiers, equal streams and names, a device each."""
    view = replace(
        program.view, nccl="none" if program.mpi else "json", streams_differ=False, protocols_differ=False,
        groups=False, devices=1, stamp_ns=0, windows=(), dropped=(),
    )  # fmt: skip
    return replace(program, scatter=0.0, view=view)


def as_recorded(program: Program, seed: int) -> Program:
    """The same program as profilers record it by default, its ends as measured; what is told follows from the seed."""
    chance = random.Random(f"{seed} as recorded")
    nccl = chance.choices(list(PAYLOADS), list(PAYLOADS.values()))[0]
    local = program.grid.ranks // program.grid.hosts
    several = [d for d in (2, 4, 8) if local % d == 0]
    alone = program.mpi or program.view.missing or program.view.late
    devices = chance.choice(several) if several and not alone and chance.random() < SEVERAL_DEVICES else 1
    view = replace(
        program.view, nccl="none" if program.mpi else nccl, streams_differ=True, protocols_differ=True,
        groups=nccl != "none" and not program.mpi, devices=devices, stamp_ns=500,
    )  # fmt: skip
    return replace(program, scatter=1.0, view=view)
