"""Hand-made runs with ranks that synchronize in collectives, with planted clocks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.making import make_run

if TYPE_CHECKING:
    from pathlib import Path

    from alltrace.api import OpenRun

STEP_NS = 10_000_000


def arrival(rank: int, step: int) -> int:
    """When a rank arrives in true time: rank 2 is last by 2 ms, the others within 0.1 ms."""
    return (step + 1) * STEP_NS + (2_000_000 if rank == 2 else 20_000 * rank)


def rows_of(
    rank: int,
    steps: int,
    ahead: int,
    *,
    size: int,
    members: int = 4,
    op: str = "AllReduce",
    communicator: str | None = "c0",
):
    """A rank's collectives: all start as in `arrival` and end 500 microseconds after the last, by a clock `ahead`."""
    found = []
    for step in range(steps):
        end = max(arrival(r, step) for r in range(members)) + 500_000
        found.append(
            {
                "start": arrival(rank, step) + ahead,
                "end": end + ahead + random.Random(1000 * rank + step).randrange(300),
                "stream": 20,
                "communicator": communicator,
                "op": op,
                "sequence": step,
                "bytes": size,
                "group_rank": rank,
                "group_size": members,
                "datatype": "float32",
                "evidence": "trace",
            }
        )
    return found


def planted_run(
    folder: Path, *, steps: int = 20, size: int = 1 << 20, ahead: tuple[int, ...] = (0, 300_000, -7_000_000, 0)
) -> OpenRun:
    """Four ranks on two hosts that meet in all-reduces; each rank's times are `ahead` of the true ones."""
    ranks = {r: {"collectives": rows_of(r, steps, a, size=size)} for r, a in enumerate(ahead)}
    return make_run(folder, ranks, hosts={0: "a", 1: "a", 2: "b", 3: "b"})
