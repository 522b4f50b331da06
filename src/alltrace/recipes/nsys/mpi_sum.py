"""The recipe `mpi_sum`: durations of MPI calls by function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.nsys.described import Described
from alltrace.recipes.stats.host import timed, whole_calls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import RankTables


class MpiSum(Described):
    """How long MPI calls took, by function, over all ranks and on each.

    A call that waits for several requests counts once, however many rows the profiler wrote of it. Calls without length are left
    out.
    """

    name = "mpi_sum"
    device = False
    tables: ClassVar = {"mpi": ("start", "end", "thread", "name", "kind")}

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The calls."""
        return timed(whole_calls(rank.table("mpi", self.tables["mpi"])))


RECIPE = MpiSum()
