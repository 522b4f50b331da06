"""Faults of the host: slow launches, needless waits, pauses, late data, allocations, and gaps that nothing explains."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from alltrace.synth.faults.base import Fault, around, bounded
from alltrace.synth.program import COMPUTE_STREAM, Call, Compute, DeviceGap, HostWork, Op, Synchronize


@dataclass(frozen=True)
class LaunchBound(Fault):
    """Many tiny kernels that the host launches more slowly than the device runs them."""

    kind: ClassVar[str] = "launch-bound"
    finding: ClassVar[str] = "launch-bound"
    pieces: int = bounded(4, 1)  # every kernel is split into this many, with the same total duration
    gap_ns: int = bounded(32_000, 1_000)  # host time between two launches

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        return [self._smaller(op) if isinstance(op, Compute) else op for op in ops]

    def _smaller(self, op: Compute) -> Compute:
        kernels = np.repeat(op.kernels, self.pieces)
        durations = np.maximum(np.repeat(op.durations_ns // self.pieces, self.pieces), 500)
        return dataclasses.replace(op, kernels=kernels, durations_ns=durations, gap_ns=self.gap_ns)

    def cured(self) -> Fault:
        """As many kernels, launched at the usual pace: the device's time between them is no fault of the host."""
        return _SmallKernels(**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)})


@dataclass(frozen=True)
class _SmallKernels(LaunchBound):
    """The small kernels alone."""

    def _smaller(self, op: Compute) -> Compute:
        return dataclasses.replace(super()._smaller(op), gap_ns=op.gap_ns)


@dataclass(frozen=True)
class NeedlessSync(Fault):
    """The host waits for the device after each layer."""

    kind: ClassVar[str] = "sync"
    finding: ClassVar[str] = "sync"
    device: bool = False  # it waits for the whole device and not for a stream
    host_ns: int = bounded(60_000, 0)  # host time with the result before it continues

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        stream = None if self.device else COMPUTE_STREAM
        return around(ops, after=lambda op: (Synchronize(stream, op.thread), HostWork(self.host_ns, op.thread)))


@dataclass(frozen=True)
class HostPause(Fault):
    """The launching thread sometimes pauses, as for a garbage collection; each rank at its own place in the step."""

    kind: ClassVar[str] = "host-pause"
    finding: ClassVar[str] = "host-pause"
    pause_ns: int = bounded(40_000_000, 0)  # how long
    every: int = bounded(3, 1)  # in one of this many steps, the last of them

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        if (step + 1) % self.every:
            return ops
        places = [place for place, op in enumerate(ops) if isinstance(op, Compute)]
        if not places:
            return ops
        place = places[int(rng.integers(0, max(len(places) // 3, 1)))]
        return [*ops[:place], HostWork(self.pause_ns, ops[place].thread), *ops[place:]]


@dataclass(frozen=True)
class DataStall(Fault):
    """The data loader is late, and the device has nothing to do."""

    kind: ClassVar[str] = "data-stall"
    finding: ClassVar[str] = "data-stall"
    stall_ns: int = bounded(15_000_000, 0)  # how much longer a batch takes
    every: int = bounded(1, 1)  # in one of this many steps, from the first on

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        if step % self.every:
            return ops
        longer = int(self.stall_ns * rng.uniform(0.9, 1.1))
        return [
            (
                dataclasses.replace(op, duration_ns=op.duration_ns + longer)
                if isinstance(op, HostWork) and op.call == "read"
                else op
            )
            for op in ops
        ]


@dataclass(frozen=True)
class IdleGap(Fault):
    """The device pauses once in every step although work is queued, and nothing in the report shows why."""

    kind: ClassVar[str] = "idle-gap"
    finding: ClassVar[str] = "idle-gap"
    gap_ns: int = bounded(4_000_000, 0)  # how long

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        places = [place for place, op in enumerate(ops) if isinstance(op, Compute) and op.part != "optimizer"]
        if not places:
            return ops
        place = places[len(places) // 2]
        return [*ops[:place], DeviceGap(self.gap_ns, thread=ops[place].thread), *ops[place:]]


@dataclass(frozen=True)
class Allocation(Fault):
    """Memory of the device is allocated and freed around every layer, and freeing waits for the device."""

    kind: ClassVar[str] = "allocation"
    finding: ClassVar[str] = "allocation"
    malloc_ns: int = bounded(100_000, 1)  # how long an allocation takes
    free_ns: int = bounded(40_000, 1)  # how long it takes to free, after the wait

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        return around(
            ops,
            before=lambda op: (Call("cudaMalloc_v3020", self.malloc_ns, thread=op.thread),),
            after=lambda op: (Call("cudaFree_v3020", self.free_ns, drains=True, thread=op.thread),),
        )
