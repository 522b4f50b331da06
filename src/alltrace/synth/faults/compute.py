"""Faults of the work on the device: slow ranks, slow hosts, uneven work."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from alltrace.synth.faults.base import Fault, bounded
from alltrace.synth.program import Compute, Group, Op
from alltrace.synth.scenario import Layout, Scenario
from alltrace.trace.errors import UsageError


def _stretched(ops: list[Op], factor: float) -> list[Op]:
    return [
        dataclasses.replace(op, durations_ns=(op.durations_ns * factor).astype(op.durations_ns.dtype))
        if isinstance(op, Compute)
        else op
        for op in ops
    ]


@dataclass(frozen=True)
class SlowRank(Fault):
    """A rank with slower kernels, such as one with a throttled device."""

    kind: ClassVar[str] = "slow-rank"
    finding: ClassVar[str] = "straggler"
    everywhere: ClassVar[bool] = False
    factor: float = bounded(1.2, 0.01)  # its kernels' durations are multiplied by this
    # after this many steps the fault moves to the next of the ranks; 0 for all of them all the time
    rotate_every: int = bounded(0, 0)

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        """The instructions with every kernel longer, if it is the turn of the rank."""
        if self.rotate_every and self.ranks[step // self.rotate_every % len(self.ranks)] != rank:
            return ops
        return _stretched(ops, self.factor)

    def truth(self) -> dict[str, Any]:
        facts = super().truth()
        if not self.rotate_every:
            del facts["rotate_every"]
        return facts


@dataclass(frozen=True)
class SlowHost(Fault):
    """A host on which all ranks' kernels take longer, such as one that is too hot."""

    kind: ClassVar[str] = "slow-host"
    finding: ClassVar[str] = "slow-host"
    hosts: tuple[int, ...] = (0,)  # the hosts, 0-based
    factor: float = bounded(1.2, 0.01)  # the kernels' durations are multiplied by this

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        return _stretched(ops, self.factor)

    def placed(self, layout: Layout, groups: tuple[Group, ...]) -> Fault:
        return dataclasses.replace(
            self, ranks=tuple(rank for rank in range(layout.ranks) if layout.host_of(rank) in self.hosts)
        )

    def moved(self, layout: Layout) -> Fault:
        return dataclasses.replace(self, hosts=tuple(sorted({host % layout.hosts for host in self.hosts})))

    def check(self, scenario: Scenario) -> None:
        super().check(scenario)
        beyond = [host for host in self.hosts if not 0 <= host < scenario.layout.hosts]
        if beyond or not self.hosts:
            named = f"names host {beyond[0]}" if beyond else "names none"
            raise UsageError(f"fault {self.kind!r} {named}, but the run has hosts 0 to {scenario.layout.hosts - 1}")
        if self.ranks:
            raise UsageError(f"fault {self.kind!r} takes hosts, not ranks, such as {self.kind}:hosts=0")


@dataclass(frozen=True)
class Imbalance(Fault):
    """Ranks that get more work than others: they run more kernels of the same lengths.

    Where the model has experts, only these get more; in other layouts all layers do.
    """

    kind: ClassVar[str] = "imbalance"
    finding: ClassVar[str] = "imbalance"
    everywhere: ClassVar[bool] = False
    extra: float = bounded(0.5, 0.0)  # additional kernels, as a share

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        """The instructions with some kernels of each layer, or of each expert, launched once more."""
        part = "expert" if any(isinstance(op, Compute) and op.part == "expert" for op in ops) else "layer"
        return [self._more(op) if isinstance(op, Compute) and op.part == part else op for op in ops]

    def _more(self, op: Compute) -> Compute:
        count = round(len(op.kernels) * (1.0 + self.extra))
        return dataclasses.replace(
            op, kernels=np.resize(op.kernels, count), durations_ns=np.resize(op.durations_ns, count)
        )
