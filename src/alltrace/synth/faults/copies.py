"""Faults of copies: from pageable memory, synchronous, or over a slow link."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from alltrace.synth.faults.base import Fault, around, bounded
from alltrace.synth.program import MAIN_THREAD, Collective, Compute, Copy, Group, HostWork, Op
from alltrace.synth.scenario import Scenario
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
        return dataclasses.replace(op, duration_ns=2_000 + int(op.size_bytes / self.gb_per_s), pageable=True, blocking=True)


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
            dataclasses.replace(op, duration_ns=int(op.duration_ns * self.factor))
            if isinstance(op, Copy) and op.kind == kind
            else op
            for op in ops
        ]

    def transfer_ns(self, group: Group, op: Collective, step: int, transfer_ns: int) -> int:
        slow = self.direction == "link" and self.during(step) and not set(self.ranks).isdisjoint(group.ranks)
        return int(transfer_ns * self.factor) if slow else transfer_ns

    def check(self, scenario: Scenario) -> None:
        super().check(scenario)
        if self.direction not in _DIRECTIONS:
            raise UsageError.unknown("direction", self.direction, _DIRECTIONS)
