"""The efficiencies of the POP model, for devices and for hosts: pure arithmetic over times.

Definitions of the POP centre of excellence as extended to GPUs by BSC's BasicAnalysis and TALP (DLB
`talp/perf_metrics.c`). Every efficiency is a number from 0 to 1, or None if it is undefined.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceTree:
    """The device side: `parallel` is the product of the other three."""

    parallel: float | None  # useful time of the devices' time: sum U / (D T)
    load_balance: float | None  # mean useful time of the largest: what is lost by waiting for a device with more work
    # largest useful time divided by the largest active time: the loss from exposed copies and communication
    communication: float | None
    orchestration: float | None  # largest active time divided by the whole time: the loss while no device has work


@dataclass(frozen=True)
class HostTree:
    """The host side: `parallel` is `mpi_parallel` * `offload`, `mpi_parallel` is `load_balance` * `communication`."""

    parallel: float | None  # time outside of MPI and of the GPU runtime, of the hosts' time
    mpi_parallel: float | None  # time outside of MPI, of the hosts' time
    load_balance: float | None  # mean time outside of MPI of the largest
    communication: float | None  # largest time outside of MPI of the whole time
    offload: float | None  # of the time outside of MPI, what is not spent in calls of the GPU runtime


def device_tree(
    useful: Sequence[int], active: Sequence[int], span: int, *, processes: Sequence[int] | None = None
) -> DeviceTree:
    """The efficiencies of devices; with `processes`, maxima are over these, as in TALP: parts may then exceed 1."""
    if not useful or span <= 0:
        return DeviceTree(None, None, None, None)
    tops = [_largest(values, processes) for values in (useful, active)]
    count = len(useful)
    total = sum(useful)
    return DeviceTree(total / (count * span), _ratio(total / count, tops[0]), _ratio(tops[0], tops[1]), tops[1] / span)


def host_tree(mpi: Sequence[int], runtime: Sequence[int], span: int) -> HostTree:
    """The efficiencies of H ranks on the host."""
    if not mpi or span <= 0:
        return HostTree(None, None, None, None, None)
    outside = [span - m for m in mpi]
    total, all_useful = sum(outside), sum(outside) - sum(runtime)
    whole = len(mpi) * span
    return HostTree(
        all_useful / whole,
        total / whole,
        _ratio(total / len(mpi), max(outside)),
        max(outside) / span,
        _ratio(all_useful, total),
    )


def scalability(reference: int, reference_count: int, useful: int, count: int, *, weak: bool) -> float | None:
    """The computation scalability of a run against a reference: 1 if the useful time did not grow."""
    strong = _ratio(reference, useful)
    if strong is None or not weak:
        return strong
    return None if not reference_count else strong * count / reference_count


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _largest(values: Sequence[int], processes: Sequence[int] | None) -> int:
    if processes is None:
        return max(values)
    sums: dict[int, int] = {}
    for process, value in zip(processes, values, strict=True):
        sums[process] = sums.get(process, 0) + value
    return max(sums.values())
