"""What changes in time on a rank: slower clocks, rare long kernels, work that grows, and sequences that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.programs.model import Cause, Program
    from benchmarks.programs.names import Kernel

OF_TOKENS = ("embedding", "norm", "gemm", "attention", "act", "mlp", "expert", "conv", "loss")
"""Parts of a step whose work grows with the length of the sequences; the optimizer's does not."""


class Changing:
    """What acts on a rank in the present step.

    Args:
        program: The program.
        rank: The rank.
    """

    def __init__(self, program: Program, rank: int) -> None:
        self._program = program
        self._lengths = program.lengths[program.grid.place(rank)[2] % len(program.lengths)] if program.lengths else ()
        self._rank = rank
        self._compute = self._memory = 1.0
        self._stall_ns = 0
        self._until_stall = 0

    def begin(self, step: int, causes: dict[str, list[Cause]]) -> tuple[dict[str, float], float]:
        """Begin a step in which these causes act, by kind; returns the work of its parts, and kernels more for each kernel.

        Growing allocations are put under `leak`, for the host makes them.
        """
        self._compute = self._memory = 1.0
        for cause in causes["throttling"]:
            self._compute *= cause.amount_in(step)
            self._memory *= cause.memory_amount
        self._stall_ns = sum(int(cause.amount_in(step)) for cause in causes["device-stall"])
        self._until_stall = (31 * step + 7 * self._rank) % (8 * self._program.layers * self._program.micro)
        length = self._lengths[step] if self._lengths else 1.0
        more = 0.0
        for cause in causes["regression"]:
            if cause.variant.startswith("sequences"):
                length *= cause.amount_in(step)
            elif cause.variant.startswith("kernels"):
                more += cause.amount_in(step) - 1
            else:
                causes["leak"].append(cause)
        work = {part: length * length if part == "attention" else length for part in OF_TOKENS} if length != 1 else {}
        return work, more

    def slower(self, kernel: Kernel) -> float:
        """The factor of the duration of a kernel."""
        return self._memory if kernel.memory_bound else self._compute

    def stall_ns(self, part: str) -> int:
        """By how much the next kernel of a part takes longer than usual, which one kernel of a step does."""
        if not self._stall_ns or not part:
            return 0
        self._until_stall -= 1
        return self._stall_ns if self._until_stall == -1 else 0
