"""What a first profile of a job costs: which ranks, what they slow down, how large reports get, what to type.

The costs of an event were measured by a program of Python on two shared cores (nsys 2023.4.4, PyTorch 2.13 for CPUs,
medians of three): see `docs/guides/first-profile-512.md`. Events of CUDA were not, for lack of a GPU: one is taken to
be as large as a call of the operating system, the largest that was measured.
"""

import math
from typing import NamedTuple

from alltrace.trace.errors import UsageError

FLOOR_BYTES = 200_000
"""A report of nsys without any event."""
IMPORT_S = 3.4e-6
"""CPU seconds of `alltrace import` for each event."""


class Cost(NamedTuple):
    us: float  # by how much the program is slowed down, us
    size: float  # bytes in the report


COSTS = {
    "nsys range": Cost(4.0, 11),
    "nsys os call": Cost(6.0, 34),
    "torch operator": Cost(4.0, 69),
    "torch operator with shapes": Cost(11.0, 74),
    "torch operator with stacks": Cost(11.0, 83),
}
_LAUNCH_SIZE = 2 * COSTS["nsys os call"].size  # the call and the kernel
_OPERATORS_PER_LAUNCH = 3
_MOST_BYTES = 100e9


class Job(NamedTuple):
    ranks: int  # how many there are
    per_node: int = 8  # ranks of a node
    seconds: float = 30.0  # how long is recorded
    launches_per_s: float = 10_000.0  # kernels that a rank launches in a second
    profiler: str = "nsys"  # `nsys` or `torch`


class Line(NamedTuple):
    what: str
    answer: str


def plan_job(job: Job) -> list[Line]:
    if job.ranks % job.per_node and job.ranks > job.per_node:
        raise UsageError(f"--ranks {job.ranks} is not a multiple of --per-node {job.per_node}; give another --per-node")
    most = job.seconds * _MOST_BYTES / (report_bytes(job) * job.ranks)
    planned = job._replace(seconds=min(job.seconds, max(1.0, math.floor(most))))
    shorter = (
        "" if planned == job else f"; {job.seconds:g} s of all ranks would be {_size(report_bytes(job) * job.ranks)}"
    )
    report, tasks = report_bytes(planned), min(job.per_node, job.ranks)
    launches = planned.seconds * planned.launches_per_s * planned.ranks
    by = " --profiler torch" if job.profiler == "torch" else ""
    return [
        Line("ranks", "all: which rank waits for which is known only if every rank was recorded"),
        Line("record", f"{planned.seconds:g} s of steady steps, asked for while the job runs{shorter}"),
        Line("start", f"srun -N{max(1, job.ranks // job.per_node)} --ntasks-per-node={tasks} --kill-on-bad-exit=1 \\"),
        Line("", f"alltrace capture arm -o reports{by} -- python train.py"),
        Line("then", "alltrace capture now reports --steps N"),
        Line("", "(N: as many steps as take this long; in another terminal)"),
        Line("slow-down", _slow_down(planned)),
        Line("a report", f"about {_size(report)}, at {planned.launches_per_s:,.0f} launches a second"),
        Line("all reports", f"about {_size(report * planned.ranks)}, on a file system that all nodes share"),
        Line("each node", f"{_size(2 * report * tasks)} in a local TMPDIR or --tmp until reports are made"),
        Line(
            "import", f"about {_time(launches * _events(planned) * IMPORT_S)} of CPU, shared by all processors (--jobs)"
        ),
        Line("afterwards", "alltrace import reports/ -o run"),
        Line("", "alltrace diagnose run"),
        Line("", "alltrace report run -o run.html"),
    ]


def report_bytes(job: Job) -> float:
    """The size of one rank's report, bytes."""
    launches = job.seconds * job.launches_per_s
    if job.profiler == "torch":
        operators = COSTS["torch operator"].size * _OPERATORS_PER_LAUNCH
        return launches * (operators + 2 * COSTS["torch operator"].size)
    return FLOOR_BYTES + launches * _LAUNCH_SIZE


def _events(job: Job) -> int:
    """Events for each launch: the call and the kernel, and with PyTorch's profiler the operators around it."""
    return 2 + (_OPERATORS_PER_LAUNCH if job.profiler == "torch" else 0)


def _slow_down(job: Job) -> str:
    if job.profiler == "torch":
        us = COSTS["torch operator"].us * _OPERATORS_PER_LAUNCH
        share = us * job.launches_per_s / 1e6
        return (
            f"about {us:g} us of CPU for each launch, {100 * share:.0f} % of a thread; hidden while the GPU lags behind"
            " the host"
        )
    return (
        f"{COSTS['nsys range'].us:g} us of CPU for each range, {COSTS['nsys os call'].us:g} us for each system call"
        " with --trace osrt; compare a step before the window with one in it"
    )


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def _time(seconds: float) -> str:
    return f"{math.ceil(seconds / 60)} min" if seconds >= 120 else f"{math.ceil(seconds)} s"
