"""Faults of communication and copies: slow communicators and links, no overlap, pageable and synchronous copies."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from alltrace.synth.faults.base import Fault, around, bounded
from alltrace.synth.program import (
    COMPUTE_STREAM,
    DATA_STREAM_OF_NCCL,
    MAIN_THREAD,
    Collective,
    Compute,
    Copy,
    Group,
    HostWork,
    Op,
    StreamWait,
)
from alltrace.synth.scenario import Layout, Scenario
from alltrace.trace.errors import UsageError

_TO_DEVICE, _TO_HOST = 1, 2
_DIRECTIONS = {"to-device": _TO_DEVICE, "to-host": _TO_HOST, "link": None}


@dataclass(frozen=True)
class PageableCopy(Fault):
    """Batches are copied from pageable memory: slowly, and the call returns only when the copy is done."""

    kind: ClassVar[str] = "pageable-copy"
    finding: ClassVar[str] = "pageable-copy"
    gb_per_s: float = bounded(3.0, 0.01)  # how fast, in bytes per nanosecond

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        return [self._slower(op) if isinstance(op, Copy) and op.kind == _TO_DEVICE else op for op in ops]

    def _slower(self, op: Copy) -> Copy:
        return dataclasses.replace(
            op, duration_ns=2_000 + int(op.size_bytes / self.gb_per_s), pageable=True, blocking=True
        )


@dataclass(frozen=True)
class SyncCopy(Fault):
    """A result is fetched with a synchronous copy after each layer that the main thread launches."""

    kind: ClassVar[str] = "sync-copy"
    finding: ClassVar[str] = "sync-copy"
    size_bytes: int = bounded(4 << 20, 1)
    host_ns: int = bounded(40_000, 0)  # host time with it before it continues

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        return around(ops, after=self._fetch)

    def _fetch(self, op: Compute) -> tuple[Op, ...]:
        if op.thread != MAIN_THREAD:
            return ()
        copy = Copy(self.size_bytes, 2_000 + self.size_bytes // 25, kind=_TO_HOST, synchronous=True)
        return copy, HostWork(self.host_ns)


@dataclass(frozen=True)
class LowBandwidth(Fault):
    """A rank with copies in one direction, or a link to the other devices, far slower than its peers'."""

    kind: ClassVar[str] = "low-bandwidth"
    finding: ClassVar[str] = "low-bandwidth"
    everywhere: ClassVar[bool] = False
    direction: str = "to-device"  # `to-device`, `to-host`, or `link` for all collectives that the rank takes part in
    factor: float = bounded(10.0, 0.01)  # they take this many times as long

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        kind = _DIRECTIONS[self.direction]
        return [
            (
                dataclasses.replace(op, duration_ns=int(op.duration_ns * self.factor))
                if isinstance(op, Copy) and op.kind == kind
                else op
            )
            for op in ops
        ]

    def transfer_ns(self, group: Group, op: Collective, step: int, transfer_ns: int) -> int:
        slow = self.direction == "link" and self.during(step) and not set(self.ranks).isdisjoint(group.ranks)
        return int(transfer_ns * self.factor) if slow else transfer_ns

    def check(self, scenario: Scenario) -> None:
        super().check(scenario)
        if self.direction not in _DIRECTIONS:
            raise UsageError.unknown("direction", self.direction, _DIRECTIONS)


@dataclass(frozen=True)
class SlowCommunicator(Fault):
    """Communicators with slower transfers, such as over a bad link.

    Without communicators it is those that have all of `ranks` as members, which is how a link is named; without ranks
    either, the first one after the one of all ranks.
    """

    kind: ClassVar[str] = "slow-communicator"
    finding: ClassVar[str] = "slow-communicator"
    communicators: tuple[str, ...] = ()  # their names
    factor: float = bounded(3.0, 0.01)  # transfers take this many times as long

    def transfer_ns(self, group: Group, op: Collective, step: int, transfer_ns: int) -> int:
        return int(transfer_ns * self.factor) if group.name in self.communicators and self.during(step) else transfer_ns

    def placed(self, layout: Layout, groups: tuple[Group, ...]) -> Fault:
        names = self.communicators
        if not names and self.ranks:
            names = tuple(group.name for group in groups if set(self.ranks) <= set(group.ranks))
        elif not names:
            names = (groups[min(1, len(groups) - 1)].name,)
        members = {rank for group in groups if group.name in names for rank in group.ranks}
        return dataclasses.replace(self, communicators=names, ranks=self.ranks or tuple(sorted(members)))

    def check(self, scenario: Scenario) -> None:
        super().check(scenario)
        from alltrace.synth.layouts import LAYOUTS

        names = [group.name for group in LAYOUTS[scenario.layout.kind](scenario).groups]
        for name in self.communicators:
            if name not in names:
                raise UsageError.unknown("communicator", name, names)


@dataclass(frozen=True)
class ExposedCommunication(Fault):
    """Kernels wait for every collective, so that none overlaps with them."""

    kind: ClassVar[str] = "exposed-communication"
    finding: ClassVar[str] = "exposed-communication"

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        edited: list[Op] = []
        for op in ops:
            edited.append(op)
            if isinstance(op, Collective):
                edited.append(StreamWait(COMPUTE_STREAM, op.stream, op.thread))
        return edited


@dataclass(frozen=True)
class SerializedCommunication(Fault):
    """The collectives of all communicators run on one stream, one after another, although they are independent."""

    kind: ClassVar[str] = "serialized-communication"
    finding: ClassVar[str] = "serialized-communication"

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        streams = {op.stream for op in ops if isinstance(op, Collective)}
        edited: list[Op] = []
        for op in ops:
            if isinstance(op, Collective):
                edited.append(dataclasses.replace(op, stream=DATA_STREAM_OF_NCCL))
            elif isinstance(op, StreamWait) and op.other in streams:
                edited.append(dataclasses.replace(op, other=DATA_STREAM_OF_NCCL))
            else:
                edited.append(op)
        return edited

    def check(self, scenario: Scenario) -> None:
        super().check(scenario)
        layout = scenario.layout
        pair = layout.kind == "pipeline" and layout.ranks == layout.pipeline_stages == 2
        if pair or (layout.kind == "data" and layout.tensor_parallel in {1, layout.ranks}):
            raise UsageError(
                f"fault {self.kind!r} needs a layout in which a rank has several communicators, such as"
                " tensor_parallel=4"
            )
