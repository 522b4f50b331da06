"""How the members of an operation leave it: late, as measured, and of a rooted operation one side without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.synth.scatter import Delays

if TYPE_CHECKING:
    from benchmarks.programs.training import Lowered

ROOTED = {"Broadcast": True, "Reduce": False, "Scatter": True, "Gather": False}
"""Rooted operations, and whether their root is the one that sends."""


class Scatter:
    """The ends of all operations of a program; everything follows from its seed.

    Args:
        lowered: The program's instructions, which know what each operation is.
        factor: Times what was measured; 0 lets all members end at once.
    """

    def __init__(self, lowered: Lowered, factor: float) -> None:
        self._lowered = lowered
        self._delays = (
            Delays(lowered.program.seed, factor) if factor and "communication" not in lowered.without.natural else None
        )

    def root(self, communicator: int, number: int) -> tuple[int, bool] | None:
        """The rank of the root of a rooted operation, and whether it sends; the first member is the root."""
        sends = ROOTED.get(self._lowered.operations[communicator, number].name)
        return None if sends is None else (self._lowered.program.communicators[communicator].ranks[0], sends)

    def delays_ns(self, communicator: int, number: int, transfer_ns: int) -> dict[int, int]:
        """By rank, how much later than the transfer its kernel ends, in ns."""
        if self._delays is None:
            return {}
        program = self._lowered.program
        ranks = program.communicators[communicator].ranks
        across = len({program.grid.host_of(r) for r in ranks}) > 1
        operation = self._lowered.operations[communicator, number].name
        delays = self._delays.of(communicator, number, operation, transfer_ns, len(ranks), across=across)
        return dict(zip(ranks, delays, strict=True))
