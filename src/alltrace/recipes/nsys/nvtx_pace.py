"""The recipe `nvtx_pace`: the pace of an NVTX range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.nsys.pace import Pace
from alltrace.recipes.nsys.ranges import called

if TYPE_CHECKING:
    from alltrace.recipes.base import RankTables


class NvtxPace(Pace):
    """The pace of an NVTX range: how long each of its occurrences took on each rank, and how long after the last it came.

    Choose a name that occurs once in each iteration, best one that ends when all ranks are there, such as a barrier: a rank whose
    delta is long is late. The first table has a row per iteration and rank; nsys' tables, a column per rank, follow.
    """

    name = "nvtx_pace"
    device = False
    tables: ClassVar = {"ranges": ("start", "end", "name", "thread")}

    def events(self, rank: RankTables, name: str) -> Any:
        """The ranges of that text that were closed."""
        found = called(rank, rank.table("ranges", self.tables["ranges"]), name)
        return found.filter(found.column("end").is_valid())


RECIPE = NvtxPace()
