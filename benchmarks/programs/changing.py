"""What differs on a rank in a step: slower clocks, rare long kernels, work that grows, and work that is uneven."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.programs.model import Cause, Program
    from benchmarks.programs.names import Kernel

OF_TOKENS = ("embedding", "norm", "gemm", "attention", "act", "mlp", "expert", "conv", "loss")
"""Parts of a step whose work grows with the length of the sequences; the optimizer's does not."""


SEQUENCES, EXPERT, STAGE, OTHER_KERNEL = "longer sequences", "hot expert", "more layers", "other kernel"
"""How uneven work comes about; in a variant, what it is in detail follows after a comma."""


class Changing:
    """What acts on a rank in the present step.

    Attributes:
        work: The work of parts of the step, times the usual one; `*` for all.
        more: How many kernels more there are for each kernel of a part; `*` for all.
        layers: Of the rank's stage.
        other_kernels: The part of a layer that other kernels do, and how many times as long they take; None if none do.

    Args:
        program: The program.
        rank: The rank.
    """

    def __init__(self, program: Program, rank: int) -> None:
        self._program = program
        self._lengths = program.lengths[program.grid.place(rank)[2] % len(program.lengths)] if program.lengths else ()
        self._rank = rank
        self.work: dict[str, float] = {}
        self.more: dict[str, float] = {}
        self.layers = program.layers
        self.other_kernels: tuple[str, float] | None = None
        self._compute = self._memory = 1.0
        self._stall_ns = 0
        self._until_stall = 0
        self._due = 0.0

    def begin(self, step: int, causes: dict[str, list[Cause]]) -> None:
        """Begin a step in which these causes act, by kind.

        Growing allocations are put under `leak`, for the host makes them.
        """
        program = self._program
        self._compute = self._memory = 1.0
        self._due = 0.0
        for cause in causes["throttling"]:
            self._compute *= cause.amount_in(step)
            self._memory *= cause.memory_amount
        self._stall_ns = sum(int(cause.amount_in(step)) for cause in causes["device-stall"])
        self._until_stall = (31 * step + 7 * self._rank) % (8 * self._program.layers * self._program.micro)
        length = self._lengths[step] if self._lengths else 1.0
        length *= math.prod(
            c.amount for c in causes["imbalance"] if c.variant.startswith(SEQUENCES) and self._turn(c, step)
        )
        self.more = defaultdict(float)
        self.layers = program.layers
        self.other_kernels = None
        for cause in causes["regression"]:
            if cause.variant.startswith("sequences"):
                length *= cause.amount_in(step)
            elif cause.variant.startswith("kernels"):
                self.more["*"] += cause.amount_in(step) - 1
            else:
                causes["leak"].append(cause)
        self.work = (
            {part: length * length if part == "attention" else length for part in OF_TOKENS} if length != 1 else {}
        )
        if program.tokens:
            self.work["expert"] = self.work.get("expert", 1.0) * program.tokens[self._rank]
        for cause in causes["imbalance"]:
            self._uneven(cause, step)

    def _turn(self, cause: Cause, step: int) -> bool:
        """Whether it is a rank's turn, of a cause that goes from one place in data parallelism to the next."""
        grid = self._program.grid
        if cause.variant == "rotating":
            return grid.place(self._rank)[2] == grid.place(cause.ranks[step % len(cause.ranks)])[2]
        return not cause.variant.endswith("rotating") or grid.place(self._rank)[2] == step % grid.dp

    def _uneven(self, cause: Cause, step: int) -> None:
        """Let a rank have more work."""
        what, _, how = cause.variant.partition(", ")
        if what == STAGE:
            self.layers += round(cause.amount)
        elif what == OTHER_KERNEL:
            self.other_kernels = how, cause.amount
        elif what == EXPERT:  # with more kernels and larger grids at once, half of the factor is due to each
            self.more["expert"] += {"kernels": cause.amount, "grids": 1.0, "both": math.sqrt(cause.amount)}[how] - 1
            more_of_each = {"kernels": 1.0, "grids": cause.amount, "both": math.sqrt(cause.amount)}[how]
            self.work["expert"] = self.work.get("expert", 1.0) * more_of_each
        elif what == "launches":
            self.more["*"] += cause.amount - 1
        elif what != SEQUENCES and self._turn(cause, step):
            part = {"expert": "expert", "sequence": "attention"}.get(what, "*")
            self.work[part] = self.work.get(part, 1.0) * cause.amount

    def work_of(self, part: str) -> float:
        """The work of a kernel of a part, times the usual one."""
        return self.work.get("*", 1.0) * self.work.get(part, 1.0) if self.work and part else 1.0

    def again(self, part: str) -> int:
        """How many kernels more there are in place of the next one of a part."""
        if not part or not self.more:
            return 0
        self._due += self.more.get("*", 0.0) + self.more.get(part, 0.0)
        now = int(self._due)
        self._due -= now
        return now

    def slower(self, kernel: Kernel) -> float:
        """The factor of the duration of a kernel."""
        return self._memory if kernel.memory_bound else self._compute

    def stall_ns(self, part: str) -> int:
        """By how much the next kernel of a part takes longer than usual, which one kernel of a step does."""
        if not self._stall_ns or not part:
            return 0
        self._until_stall -= 1
        return self._stall_ns if self._until_stall == -1 else 0
