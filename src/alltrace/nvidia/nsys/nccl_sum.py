"""The recipe `nccl_sum`: calls of NCCL by function, and its operations on the GPU by size and by communicator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.nsys.base import RANK_CELL, Cell
from alltrace.nvidia.nsys.duration_sums import NvtxSum, RangeDurationSum, statistics, statistics_columns
from alltrace.nvidia.nsys.ranges import OF_NCCL, RANGES
from alltrace.recipes.analysis.distribution import COUNT, VALUE, collect, summarize
from alltrace.recipes.base import Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Answer, RankTables, RunFacts

_OPERATION = ("op", "datatype", "bytes", "group_size", "communicator")
_WHAT = "on_gpu"
_SIZE_CELLS = (
    Cell("Operation", "text", "The operation."),
    Cell("Datatype", "text", "Type of its elements; empty if neither the trace nor a log has it."),
    Cell("Bytes", "bytes", "Message size of one rank; null if neither the trace nor a log has it."),
    Cell("Group Size", "int", "Ranks of the communicator; null if unknown."),
    Cell("Ranks", "int", "Ranks that took part."),
)


class NcclSum(RangeDurationSum):
    """How long calls of NCCL took on the CPU, by function, over all ranks and on each; and its operations on the GPU.

    The calls are the ranges of the NVTX domain NCCL of every process, or of RCCL. `operations` has what ran on the GPU by
    operation, type, message size and size of the group, `communicators` by communicator and rank: from NCCL's own trace, from
    payloads, from kernels, and from NCCL's logs if the run was imported with them. How long ranks waited for each other is in
    `collectives`.
    """

    name = "nccl_sum"
    device = False
    aligned = True
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {**RANGES, "collectives": ("start", "end", *_OPERATION)}
    events: ClassVar[str] = f"{NvtxSum.events} {OF_NCCL}"
    results: ClassVar[Mapping[str, tuple[Cell, ...]]] = {
        **RangeDurationSum.results,
        "operations": (*_SIZE_CELLS, *statistics("", "", exact=False)[1:]),
        "communicators": (
            Cell("Communicator", "text", "The communicator, as the trace or the log names it, or as it was inferred."),
            RANK_CELL,
            Cell("Group Size", "int", "Its ranks; null if unknown."),
            Cell("Count", "int", "Operations."),
            Cell("Bytes", "bytes", "Summed message size of operations with a known size; null if none is known."),
            Cell("Sum", "ns", "Their summed duration on the GPU."),
        ),
    }

    def computed_input(self, options: Mapping[str, Any]) -> str:
        """The operations, which the alignment derives."""
        return "the collective operations of all ranks"

    def map_rank(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The distributions of the rank's calls, and of its operations on the GPU."""
        calls = super().map_rank(rank, options)
        found = rank.table("collectives", ("start", "end", *_OPERATION))
        lasted = pc.subtract(found.column("end"), found.column("start"))
        timed = lasted.is_valid()
        works = collect({c: found.column(c).filter(timed) for c in _OPERATION}, pc.max_element_wise(lasted.filter(timed), 0))
        tables = [
            table.append_column(_WHAT, pa.array([on_gpu] * table.num_rows, pa.bool_()))
            for table, on_gpu in ((calls, False), (works, True))
        ]
        return pa.concat_tables(tables, promote_options="default")

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The tables of the calls and of the operations."""
        calls = [Part(p.rank, p.table.filter(pc.invert(p.table.column(_WHAT))).drop_columns([_WHAT, *_OPERATION])) for p in parts]
        calls = [p for p in calls if p.table.num_rows]
        answer = super().combine(calls, run, options)
        works = [_with_rank(p) for p in parts]
        whole = pa.concat_tables(works) if works else None
        if whole is None or not whole.num_rows:
            return answer
        made = {"operations": _operations(whole, run), "communicators": _communicators(whole, run)}
        further = self.answer(made).further
        return answer._replace(further={**answer.further, **{name: further[name] for name in made}})


def _with_rank(part: Part) -> Any:
    """The part's operations, with their rank."""
    works = part.table.filter(part.table.column(_WHAT)).select([*_OPERATION, VALUE, COUNT])
    return works.append_column("rank", pa.array([part.rank] * works.num_rows, pa.int64()))


def _operations(works: Any, run: RunFacts) -> dict[str, Any]:
    keys = ["op", "datatype", "bytes", "group_size"]
    summary = summarize(works.select([*keys, VALUE, COUNT]), "linear")
    ranks = works.group_by(keys).aggregate([("rank", "count_distinct")])
    count = dict(zip(_rows(ranks, keys), ranks.column("rank_count_distinct").to_pylist(), strict=True))
    summary = summary.append_column("ranks", pa.array([count[key] for key in _rows(summary, keys)], pa.int64()))
    summary = summary.append_column("operation", _texts(run, summary.column("op")))
    summary = summary.append_column("type", _texts(run, summary.column("datatype")))
    order = [("operation", "ascending"), ("bytes", "ascending"), ("type", "ascending"), ("group_size", "ascending")]
    summary = summary.take(pc.sort_indices(summary, order))
    return {
        "Operation": summary.column("operation"),
        "Datatype": summary.column("type"),
        "Bytes": summary.column("bytes"),
        "Group Size": summary.column("group_size").cast(pa.int64()),
        "Ranks": summary.column("ranks"),
        **statistics_columns(summary, exact=False),
    }


def _rows(table: Any, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def _communicators(works: Any, run: RunFacts) -> dict[str, Any]:
    works = works.append_column("time", pc.multiply(works.column(VALUE), works.column(COUNT)))
    works = works.append_column("moved", pc.multiply(works.column("bytes"), works.column(COUNT)))
    keys = ["communicator", "rank", "group_size"]
    found = works.group_by(keys).aggregate([(COUNT, "sum"), ("moved", "sum"), ("time", "sum")])
    found = found.append_column("called", _texts(run, found.column("communicator")))
    found = found.take(pc.sort_indices(found, [("called", "ascending"), ("rank", "ascending"), ("group_size", "ascending")]))
    return {
        "Communicator": found.column("called"),
        "Rank": found.column("rank"),
        "Group Size": found.column("group_size").cast(pa.int64()),
        "Count": found.column(f"{COUNT}_sum"),
        "Bytes": found.column("moved_sum"),
        "Sum": found.column("time_sum"),
    }


def _texts(run: RunFacts, ids: Any) -> Any:
    return pc.fill_null(run.texts(ids.combine_chunks()), "")


RECIPE = NcclSum()
