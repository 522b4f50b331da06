"""What came of joining NCCL's logs with a trace: the result alone, for modules that do not join."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from alltrace.align.schema import Group
    from alltrace.run.manifest import LogMatch

NEARLY_ALL = 0.98


@dataclass
class Joined:
    """What came of the logs of a run.

    Attributes:
        tables: Each rank's `collectives`, filled.
        texts: Strings that the tables refer to now.
        matches: For each rank how its log fits.
        told: For each rank and row the id of the communicator's name by the log, 0 without one.
        groups: The communicators, named as the logs name them where the trace does not.
        notes: What a reader must know.
    """

    tables: dict[int, Any]
    texts: set[str] = field(default_factory=set)
    matches: list[LogMatch] = field(default_factory=list)
    told: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether the logs name the communicator of nearly every operation of every rank."""
        operations = sum(m.operations for m in self.matches)
        named = sum(int((its != 0).sum()) for its in self.told.values())
        lacking = any(m.operations and m.reason is not None for m in self.matches)
        return operations > 0 and not lacking and named >= NEARLY_ALL * operations
