"""The report `mpi_event_sum`: time in each MPI function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from alltrace.recipes.analysis.distribution import VALUE
from alltrace.recipes.stats.base import Cell, SumReport
from alltrace.recipes.stats.cuda import column
from alltrace.recipes.stats.host import timed, whole_calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts


class MpiEventSum(SumReport):
    """The time that MPI calls took, by function.

    A call counts once: of the rows that a wait for many requests and a send-receive leave, one is taken, the longest.
    """

    name = "mpi_event_sum"
    title = "MPI Event Summary"
    tables: ClassVar = {"mpi": ("start", "end", "thread", "name", "kind")}
    keys = ("kind", "name")
    named = (
        Cell("Source", "text", "Class of the event: p2p, collectives, start_wait or other."),
        Cell("Name", "text", "Function."),
    )

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Sequence[Any]:
        """The calls."""
        calls = whole_calls(timed(rank.table("mpi", self.tables["mpi"])))
        return [
            pa.table({"kind": calls.column("kind").cast(pa.string()), "name": calls.column("name"), VALUE: calls.column(VALUE)})
        ]

    def labels(self, keys: Any, run: RunFacts, options: Mapping[str, Any]) -> Sequence[Any]:
        """The class and the function."""
        words = {"collective": "collectives", "start-wait": "start_wait"}
        source = pa.array([words.get(k, k) for k in column(keys, "kind").to_pylist()], pa.string())
        return [source, run.texts(column(keys, "name"))]


RECIPE = MpiEventSum()
