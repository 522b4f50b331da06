"""The base of all faults: where and when one is, and what it can change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from alltrace.synth.program import Collective, Compute, Group, Op
from alltrace.synth.scenario import Layout, Scenario
from alltrace.synth.timeline import Timeline
from alltrace.trace.errors import UsageError

_LARGEST = 1e15


@dataclass(frozen=True)
class Fault:
    """The base of all faults; does nothing."""

    kind: ClassVar[str] = "none"  # the fault's name
    finding: ClassVar[str] = "none"  # the kind of finding that a diagnosis names for it
    everywhere: ClassVar[bool] = True  # whether all ranks have it if no ranks are set; otherwise ranks are required
    in_capture: ClassVar[bool] = False  # only the reports are at fault, not the run; such a fault costs no time
    ranks: tuple[int, ...] = ()  # the ranks at fault
    steps: tuple[int, int] | None = None  # the first and the last step that have it, both included; None for all

    def hits(self, rank: int, step: int) -> bool:
        return rank in self.ranks and self.during(step)

    def during(self, step: int) -> bool:
        return self.steps is None or self.steps[0] <= step <= self.steps[1]

    def edit(self, rank: int, step: int, ops: list[Op], rng: np.random.Generator) -> list[Op]:
        """The instructions of one rank and step with the fault added; the input list is not changed."""
        # `ops`: the instructions so far. `rng`: random numbers of this fault and rank alone, so that one fault never
        # changes another's draw.
        return ops

    def cured(self) -> Fault:
        """Its replacement in the run that measures its cost: nothing, or the part that costs time for other reasons."""
        return Fault()

    def transfer_ns(self, group: Group, op: Collective, step: int, transfer_ns: int) -> int:
        """How long a collective lasts after its last arrival, with the fault added."""
        return transfer_ns

    def record(self, line: Timeline, steps: Sequence[tuple[int, int]], rng: np.random.Generator) -> Timeline | None:
        """The recorded part of what happened, in the report of a rank with the fault; None for no report."""
        # `line`: what happened, or what other faults left of it. `steps`: start and end of each step of the rank.
        # `rng`: random numbers of this fault and rank alone.
        return line

    def complaint(self, lost: int) -> str | None:
        """What the profiler writes into the report about it, with the number of missing device and API events."""
        return None

    def placed(self, layout: Layout, groups: tuple[Group, ...]) -> Fault:
        """The fault with all its ranks named. `layout`: the layout of the run. `groups`: its communicators."""
        if self.everywhere and not self.ranks:
            return dataclasses.replace(self, ranks=tuple(range(layout.ranks)))
        return self

    def moved(self, layout: Layout) -> Fault:
        """The fault in another layout: a rank that does not exist there becomes its remainder by their number."""
        return dataclasses.replace(self, ranks=tuple(sorted({rank % layout.ranks for rank in self.ranks})))

    def check(self, scenario: Scenario) -> None:
        """Nothing, if the fault fits the scenario."""
        # Raises `UsageError`: it names a rank that does not exist, or none where some are needed, or values out of
        # bounds.
        layout = scenario.layout
        beyond = [rank for rank in self.ranks if not 0 <= rank < layout.ranks]
        if beyond:
            raise UsageError(
                f"fault {self.kind!r} names rank {beyond[0]}, but the run has ranks 0 to {layout.ranks - 1}"
            )
        if not self.everywhere and not self.ranks:
            raise UsageError(f"fault {self.kind!r} needs ranks, such as {self.kind}:ranks=0")
        if self.steps is not None and not 0 <= self.steps[0] <= self.steps[1]:
            raise UsageError(
                f"fault {self.kind!r} has the steps {self.steps[0]} to {self.steps[1]}; expected the first step before"
                " the last"
            )
        if self.steps is not None and self.steps[0] >= scenario.steps:
            raise UsageError(
                f"fault {self.kind!r} begins at step {self.steps[0]}, but the run has steps 0 to {scenario.steps - 1}"
            )
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and not abs(value) <= _LARGEST:
                raise UsageError(
                    f"{field.name} of fault {self.kind!r} must be a number up to {_LARGEST:g}; {value} was given"
                )
            least = field.metadata.get("least")
            if least is not None and value < least:
                raise UsageError(f"{field.name} of fault {self.kind!r} must be at least {least:g}; {value:g} was given")
            most = field.metadata.get("most")
            if most is not None and value > most:
                raise UsageError(f"{field.name} of fault {self.kind!r} must be at most {most:g}; {value:g} was given")

    def truth(self) -> dict[str, Any]:
        """The fault in the form of the truth file: its kind and its values."""
        return {
            "kind": self.kind,
            **{name: value for name, value in dataclasses.asdict(self).items() if value is not None},
        }


def bounded(default: float, least: float, most: float | None = None) -> Any:
    """A field with bounds that `Fault.check` looks after."""
    return dataclasses.field(default=default, metadata={"least": least, "most": most})


def around(
    ops: list[Op],
    before: Callable[[Compute], Iterable[Op]] = lambda _: (),
    after: Callable[[Compute], Iterable[Op]] = lambda _: (),
) -> list[Op]:
    """The instructions with others put before and after the kernels of each layer."""
    from alltrace.synth.program import Compute

    edited: list[Op] = []
    for op in ops:
        if isinstance(op, Compute) and op.part != "optimizer":
            edited += [*before(op), op, *after(op)]
        else:
            edited.append(op)
    return edited
