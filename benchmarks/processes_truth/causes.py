"""The causes that are planted in real processes, and what a right diagnosis names."""

from __future__ import annotations

from dataclasses import dataclass

RANKS = 4
_HOST = ("slow-host", "host-pause", "straggler")


@dataclass(frozen=True)
class Cause:
    """A cause.

    Attributes:
        name: How it is chosen.
        planted: What is done, on which rank.
        culprits: The ranks that a finding has to name; empty if it is of the job.
        kinds: The kinds of a right first finding.
        needs: What the machine must allow: `cpu`, `blkio` or `memory` for a control group of that kind, `link` for a
            link between network namespaces.
        programs: The programs that have it.
    """

    name: str
    planted: str
    culprits: tuple[int, ...]
    kinds: tuple[str, ...]
    needs: str | None = None
    programs: tuple[str, ...] = ("torch",)


_LINK = ("exposed-communication", "slow-communicator", "low-bandwidth")
_BOTH = ("torch", "mpi")

CAUSES = (
    Cause("slow-rank", "rank 2 has a tenth of a CPU", (2,), ("straggler", "slow-host"), "cpu", _BOTH),
    Cause("slow-loader", "the loader of rank 3 takes 130 ms a batch", (3,), ("data-stall",)),
    Cause("uneven-batches", "rank 1 has batches half as long again", (1,), ("imbalance", "straggler"), None, _BOTH),
    Cause("slow-link", "the link of rank 3 carries 400 Mbit/s", (), _LINK, "link"),
    Cause("garbage-collection", "rank 2 collects garbage in each step", (2,), _HOST),
    Cause("late-barrier", "rank 1 prepares something for 25 ms before the barrier", (1,), _HOST, None, _BOTH),
    Cause("checkpoint", "rank 0 writes 4 MB to disk in each step, and the others wait", (0,), _HOST, None, _BOTH),
    Cause("lock", "a thread of rank 3 holds a lock for 25 ms of each step", (3,), _HOST, None, _BOTH),
    Cause("slow-storage", "rank 2 reads 1 MB in each step, of a disk that gives 6 MB/s", (2,), ("data-stall", *_HOST),
        "blkio"),
    Cause("memory-pressure", "the memory of rank 3 does not hold what it reads", (3,), ("data-stall", *_HOST),
        "memory"),
)  # fmt: skip

LEFT_OUT = {
    "slow-link-latency": "the kernel has no netem, and gloo's peers connect to addresses of their own, past any relay"
}
"""Causes that are not measured, and why."""
