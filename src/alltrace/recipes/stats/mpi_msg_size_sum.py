"""The report `mpi_msg_size_sum`: message sizes of each MPI function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import VALUE
from alltrace.recipes.stats.base import Cell, SumReport
from alltrace.recipes.stats.cuda import column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts

_SOURCES = (("p2p", "p2p", "bytes"), ("collective", "coll_send", "bytes"), ("collective", "coll_recv", "recv_bytes"))


class MpiMsgSizeSum(SumReport):
    """The sizes of MPI messages, by function: of point-to-point calls, and what collectives sent and received."""

    name = "mpi_msg_size_sum"
    title = "MPI Message Size Summary"
    tables: ClassVar = {"mpi": ("name", "kind", "bytes", "recv_bytes")}
    keys = ("source", "name")
    sizes = True
    totaled = "Total Message Volume"
    named = (Cell("Source", "text", "p2p, coll_send or coll_recv."), Cell("Name", "text", "Function."))

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Sequence[Any]:
        """The messages, by source; events without a size are none."""
        mpi = rank.table("mpi", self.tables["mpi"])
        kind = column(mpi, "kind").cast(pa.string())
        made = []
        for word, source, size in _SOURCES:
            sent = mpi.filter(pc.and_(pc.equal(kind, word), column(mpi, size).is_valid()))
            where = pa.array([source] * sent.num_rows, pa.string())
            made.append(pa.table({"source": where, "name": sent.column("name"), VALUE: sent.column(size)}))
        return made

    def labels(self, keys: Any, run: RunFacts, options: Mapping[str, Any]) -> Sequence[Any]:
        """The source and the function."""
        return [column(keys, "source"), run.texts(column(keys, "name"))]


RECIPE = MpiMsgSizeSum()
