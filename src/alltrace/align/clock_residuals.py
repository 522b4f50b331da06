"""What remains of the error of clocks once they are solved for: by rank and by host, with the evidence there was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from alltrace.align.clock_fit import MAD_TO_SIGMA, Block, Fit, Units, residuals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from alltrace.align.clock_fit import Floats
    from alltrace.trace.arrays import Int64

LEAST_INSTANCES = 3
"""With fewer, a residual would only show that a line goes through two points."""


@dataclass(frozen=True)
class Remaining:
    """Residuals and evidence.

    Attributes:
        ranks: For each rank the synchronising instances that the fit used.
        hosts: For each host likewise, each instance once.
        late: For each rank what its ends are later than the median of their instance, ns.
    """

    ranks: Int64
    hosts: Int64
    late: Sequence[Floats]

    def of(self, ranks: NDArray[np.intp]) -> float | None:
        """The typical residual of the ends of `ranks`, by their places, ns; None with too little evidence."""
        chosen = ranks.tolist()
        if not chosen or self.ranks[chosen].max() < LEAST_INSTANCES:
            return None
        pool = np.concatenate([self.late[i] for i in chosen])
        return max(1.0, MAD_TO_SIGMA * float(np.median(np.abs(pool))))


def remaining(blocks: Sequence[Block], units: Units, fitted: Fit) -> Remaining:
    """What remains after `fitted`."""
    late: list[list[Floats]] = [[] for _ in units.of_rank]
    count = np.zeros(len(units.of_rank), np.int64)
    by_host: list[list[Int64]] = [[] for _ in range(units.hosts)]
    for block in blocks:
        residual = residuals(block, units, fitted.c, fitted.b, fitted.t0)
        used = block.present & (block.weights > 0)
        used &= (used.sum(axis=1) >= 2)[:, None]
        for column, rank in enumerate(block.ranks):
            late[rank].append(residual[block.present[:, column], column])
            count[rank] += int(used[:, column].sum())
            by_host[units.host_of_rank[rank]].append(block.instances[used[:, column]])
    hosts = np.array([len(np.unique(np.concatenate(h))) if h else 0 for h in by_host], np.int64)
    return Remaining(count, hosts, [np.concatenate(r) if r else np.empty(0) for r in late])
