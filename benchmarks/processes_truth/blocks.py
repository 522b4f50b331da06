"""How the gain of taking a cause away is measured: pairs of blocks, one with the cause and one without."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ERROR_SHARE = 0.1
"""The gain is known if its standard error is at most this share of it."""


@dataclass(frozen=True)
class Blocks:
    """How many blocks of how many steps.

    Attributes:
        seed: Of the order of blocks.
        steps: Measured steps of a block.
        unmeasured: Steps at the beginning of a block that do not count, because batches of the last one are still
            there.
        least: Pairs at least.
        most: Pairs at most.
    """

    seed: int
    steps: int = 30
    unmeasured: int = 4
    least: int = 4
    most: int = 10

    def enough(self, gains: Sequence[int]) -> bool:
        """Whether the gains of the pairs so far say well enough what the gain is."""
        if len(gains) < self.least:
            return False
        return len(gains) >= self.most or error_of(gains) <= ERROR_SHARE * abs(statistics.mean(gains))


def error_of(gains: Sequence[float]) -> float:
    """The standard error of the mean of gains of pairs of blocks."""
    return statistics.stdev(gains) / sqrt(len(gains)) if len(gains) > 1 else float("inf")
