"""The ranges that recipes of NVTX and NCCL are about: on the CPU, and projected on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import VALUE
from alltrace.recipes.analysis.nvtx_projection import projection
from alltrace.recipes.execution.shared_tables import once

if TYPE_CHECKING:
    from alltrace.recipes.base import RankTables

OF_NCCL = "JOIN names ON names.id = domain WHERE names.value IN ('NCCL', 'RCCL')"
"""What leaves ranges of the NVTX domains in which communication libraries name their calls, in whichever process."""

RANGES = {"ranges": ("start", "end", "name", "domain")}


def projected(rank: RankTables) -> Any:
    """The closed ranges that launched GPU work, in the extent of that work; `start`, `end`, `name`, `domain` and `value`, ns."""

    def make() -> Any:
        found = projection(rank)
        table = pa.table(
            {
                "start": found.first,
                "end": found.last,
                "name": found.ranges.column("name"),
                "domain": found.ranges.column("domain"),
                VALUE: found.last - found.first,
            }
        )
        return table.filter(pc.invert(found.ranges.column("open")))

    return once(rank, "projected ranges", make)


def projected_table(rank: RankTables) -> Any:
    """`projected`, with the rank in front, as a table of a statement."""
    found = projected(rank)
    return found.add_column(0, "rank", pa.array(np.full(found.num_rows, rank.rank, np.int32)))
