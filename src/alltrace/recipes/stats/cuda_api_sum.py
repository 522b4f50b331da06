"""The report `cuda_api_sum`: time in each CUDA call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from alltrace.recipes.analysis.collecting import in_pieces
from alltrace.recipes.analysis.distribution import VALUE
from alltrace.recipes.stats.base import Cell, SumReport
from alltrace.recipes.stats.cuda import call_labels, column, durations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts


class CudaApiSum(SumReport):
    """The time that calls of the CUDA runtime and driver took, by function."""

    name = "cuda_api_sum"
    title = "CUDA API Summary"
    tables: ClassVar = {"api": ("start", "end", "name")}
    keys = ("name",)
    counted = "Num Calls"
    named = (Cell("Name", "text", "Function."),)
    hidden = ("recorded",)

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Any]:
        """The calls."""
        for api in in_pieces(rank, "api", self.tables["api"], lengths=True):
            yield pa.table({"name": api.column("name"), VALUE: durations(api)})

    def labels(self, keys: Any, run: RunFacts, options: Mapping[str, Any]) -> Sequence[Any]:
        """The function; versions of one that are recorded apart stay apart, as in nsys, for a call may be recorded in both."""
        recorded = run.texts(column(keys, "name"))
        return [call_labels(recorded), recorded]


RECIPE = CudaApiSum()
