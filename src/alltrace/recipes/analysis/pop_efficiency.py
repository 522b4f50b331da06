"""The efficiencies of the POP model, for devices and for hosts: pure arithmetic over times.

Definitions of the POP centre of excellence as extended to GPUs by BSC's BasicAnalysis and TALP (DLB `talp/perf_metrics.c`). Every
efficiency is a number from 0 to 1, or None if it is undefined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class DeviceTree:
    """The device side: `parallel` is the product of the other three.

    Attributes:
        parallel: Useful time of the devices' time: sum U / (D T).
        load_balance: Mean useful time of the largest: what is lost by waiting for a device with more work.
        communication: Largest useful time divided by the largest active time: the loss from exposed copies and communication.
        orchestration: Largest active time divided by the whole time: the loss while no device has work.
    """

    parallel: float | None
    load_balance: float | None
    communication: float | None
    orchestration: float | None


@dataclass(frozen=True)
class HostTree:
    """The host side: `parallel` is `mpi_parallel` times `offload`, and `mpi_parallel` is `load_balance` times `communication`.

    Attributes:
        parallel: Time outside of MPI and of the GPU runtime, of the hosts' time.
        mpi_parallel: Time outside of MPI, of the hosts' time.
        load_balance: Mean time outside of MPI of the largest.
        communication: Largest time outside of MPI of the whole time.
        offload: Of the time outside of MPI, what is not spent in calls of the GPU runtime.
    """

    parallel: float | None
    mpi_parallel: float | None
    load_balance: float | None
    communication: float | None
    offload: float | None


def device_tree(useful: Sequence[int], active: Sequence[int], span: int, *, processes: Sequence[int] | None = None) -> DeviceTree:
    """The efficiencies of D devices.

    Args:
        useful: Useful time of each device.
        active: Useful time and exposed communication of each device.
        span: The region's time T, in the same unit.
        processes: The process of each device, as TALP takes the maxima over processes; None for maxima over devices. With several
            devices in a process the parts may then exceed 1.
    """
    if not useful or span <= 0:
        return DeviceTree(None, None, None, None)
    tops = [_largest(values, processes) for values in (useful, active)]
    count = len(useful)
    total = sum(useful)
    return DeviceTree(total / (count * span), _ratio(total / count, tops[0]), _ratio(tops[0], tops[1]), tops[1] / span)


def host_tree(mpi: Sequence[int], runtime: Sequence[int], span: int) -> HostTree:
    """The efficiencies of H ranks on the host.

    Args:
        mpi: Time in MPI of each rank.
        runtime: Time in calls of the GPU runtime of each rank, outside of MPI.
        span: The region's time T, in the same unit.
    """
    if not mpi or span <= 0:
        return HostTree(None, None, None, None, None)
    outside = [span - m for m in mpi]
    total, all_useful = sum(outside), sum(outside) - sum(runtime)
    whole = len(mpi) * span
    return HostTree(
        all_useful / whole, total / whole, _ratio(total / len(mpi), max(outside)), max(outside) / span, _ratio(all_useful, total)
    )


def scalability(reference: int, reference_count: int, useful: int, count: int, *, weak: bool) -> float | None:
    """The computation scalability of a run against a reference: 1 if the useful time did not grow.

    Args:
        reference: Summed useful time of the reference.
        reference_count: Its devices or ranks.
        useful: Summed useful time of the run.
        count: Its devices or ranks.
        weak: The problem grew with the devices, so that the useful time may grow with them.
    """
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
