"""Writes what hanging jobs leave in forms that the simulator does not have: pickles of several versions, damaged
dumps."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any

from alltrace.synth.hanging_jobs import HangFault, Job, Layout, calls_of, groups_of, write_job

KINDS = tuple("skip stuck gpu size order operation no-send no-receive killed exception host network".split())


def drawn(seed: int, kind: str | None = None, *, whole: bool = True) -> tuple[Job, bool, int]:
    """A simulated job with a fault drawn by the seed, whether only open operations are in its dumps, and the ranks of a
    host.

    `whole`: whether dumps hold all operations, so that a rank that left its usual order can be told from one that did
    not.
    """
    draws = random.Random(seed)
    while True:
        ranks, tensor, stages = draws.choice([4, 8, 16, 16]), draws.choice([1, 2, 4]), draws.choice([1, 2, 4])
        kind_here = kind or KINDS[seed % len(KINDS)]
        if tensor * stages > ranks or (kind_here in ("no-send", "no-receive") and stages == 1):
            continue
        flags = {name: draws.random() < 0.3 for name in ("experts", "batched")}
        layout = Layout(
            ranks, tensor, stages, **flags, described=whole or draws.random() < 0.7, ahead=draws.choice([1, 4, 8])
        )
        per_host = ranks // 2 if kind_here == "host" else 8
        first = draws.randrange(2) * per_host
        one = kind_here in ("no-send", "no-receive", "network", "order", "size", "operation", "skip")
        culprits = (
            range(first, first + per_host)
            if kind_here == "host"
            else draws.sample(range(ranks), 1 if one else draws.choice([1, 2]))
        )
        calls = len(calls_of(layout, min(culprits), groups_of(layout)))
        job = Job(
            layout, HangFault(kind_here, tuple(sorted(culprits)), draws.choice([3, 4]), draws.randrange(calls)), seed
        )
        if job.hangs and job.culprits:
            active = not whole and layout.described and draws.random() < 0.3
            return job, active, per_host


def write_pickles(folder: Path, job: Job, *, active: bool = False, age_s: float = 600.0) -> None:
    """The dumps of a job as pickles called `_dump_N`, as NCCL's process group writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(job.layout.ranks):
        path = folder / f"_dump_{rank}"
        path.write_bytes(pickle.dumps(job.dump_of(rank, active=active), protocol=2))
        written_ns = job.last_ns + int(age_s * 1e9)
        os.utime(path, ns=(written_ns, written_ns))


def damage(folder: Path, seed: int, share: float = 1 / 3) -> list[Path]:
    """Removes, cuts or empties a share of the dumps; returns those that are touched."""
    draws = random.Random(seed)
    touched = []
    for path in sorted(folder.glob("nccl_trace_rank_*")):
        if draws.random() >= share:
            continue
        touched.append(path)
        written_ns, data = path.stat().st_mtime_ns, path.read_bytes()
        match draws.choice("mce"):
            case "m":
                path.unlink()
                continue
            case "c":
                path.write_bytes(data[: int(len(data) * draws.random())])
            case _:
                path.write_bytes(b"")
        os.utime(path, ns=(written_ns, written_ns))
    return touched


__all__ = ["Any", "HangFault", "Job", "Layout", "damage", "drawn", "write_job", "write_pickles"]
