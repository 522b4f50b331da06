"""The recipes of statistics by name: of reports of `nsys stats`, of durations, of NCCL's operations.

nsys takes the smallest first quartile, the median of medians and the largest third quartile of its files for those of
all, and of durations the mean of the deviations; here all are exact, under nsys' names.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia import report_sums
from alltrace.nvidia.cells import RANK_CELL, Cell, cells, ordered
from alltrace.nvidia.filters import filtered
from alltrace.nvidia.kernel_names import BASE, MANGLED
from alltrace.nvidia.ranges import OF_NCCL, RANGES
from alltrace.nvidia.recipe import (
    FILE,
    FILE_CELL,
    FILES,
    NsysRecipe,
    Results,
    SqlNsysRecipe,
    file_column,
    file_columns,
    files,
    filtered_input,
)
from alltrace.nvidia.report import RANK
from alltrace.nvidia.report_sums import Sum
from alltrace.recipes.analysis.distribution import COUNT, collect
from alltrace.recipes.analysis.nvtx_projection import PROJECTION_READS
from alltrace.recipes.analysis.sql_engine import run_statement, with_rank
from alltrace.recipes.analysis.statistics_sql import distribution_statement, merged_statement, statistics_statement
from alltrace.recipes.base import Answer, Chart, Needs, Option, Options, Part, RunFacts
from alltrace.recipes.sql_recipe import PARTS, Statements, not_by_sql, parts_table
from alltrace.run.rank import Rank

_FILES = "a list where several ranks have it."


class ReportSum(NsysRecipe):
    """The statistics of a report of `nsys stats`, over all ranks and for each."""

    def __init__(self, report: Sum, doc: str, *, device: bool = True, own: tuple[Option, ...] = ()) -> None:
        self._report, self._label = report, report.named[0]
        whole, part = ("bytes", "mean_bytes") if report.sizes else ("ns", "mean_ns")
        share = (
            () if report.sizes else (Cell("Time", "percent", "Share of the sum of Total Time over the rows listed."),)
        )
        statistics = (
            Cell(self._label.title, "text", self._label.doc),
            *share,
            *cells(
                f"{report.totaled} | {whole} | Their sum.",
                f"{report.counted} | int | How many there were.",
                f"Avg | {part} | Mean.",
                f"Q1 | {part} | First quartile (Hyndman and Fan's type 2, as in `stats`).",
                f"Med | {part} | Median.",
                f"Q3 | {part} | Third quartile.",
                f"Min | {whole} | Smallest.",
                f"Max | {whole} | Largest.",
                f"StdDev | {part} | Standard deviation of a sample (n - 1); 0 for one.",
            ),
        )
        # nsys rounds times of a report, and sizes of all only
        exact = {"mean_bytes": "exact_bytes"}
        each = (cell._replace(kind=exact.get(cell.kind, cell.kind), half_up=True) for cell in statistics)
        ends = cells(
            f"Min File | text | Rank's report with the smallest; {_FILES}",
            f"Max File | text | With the largest; {_FILES}",
        )
        super().__init__(
            report.name,
            doc,
            tables=report.tables,
            requires=report.requires,
            results={"all_stats": (*statistics, *ends), "rank_stats": (*each, FILE_CELL)},
            chart=Chart("bars", self._label.title, (report.totaled,)),
            device=device,
            own=own,
        )

    def map_rank(self, rank: Rank, options: Options) -> Any:
        return self._report.map(rank, options)

    def map_ranks(self, ranks: Sequence[Rank], options: Options) -> Any:
        return self._report.map_ranks([filtered(rank, options, host=not self.projects) for rank in ranks], options)

    def shown_statement(self, options: Options) -> str:
        """The statistics over all ranks as one statement; those of each rank are the same by rank."""
        passing = filtered_input(options)
        if passing is not None:
            raise not_by_sql(self.name, passing)
        return self._report.shown_statement({**options, "quartiles": True})

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        if not parts:
            return self.answer({})
        of_all, of_rank = (
            self._report.statements.over_parts(parts, run, {**options, "quartiles": True, "by_rank": by_rank})
            for by_rank in (False, True)
        )
        ends = {f"{end} File": self._holders(of_all, of_rank, end.lower(), run) for end in ("Min", "Max")}
        rank = of_rank.column(RANK)
        each = {**self._report.by_title(of_rank, rank), FILE: file_column(run, rank.to_pylist()), RANK: rank}
        order = (f"-{self._report.totaled}", self._label.title)
        every = ordered({**self._report.by_title(of_all), **ends}, *order)
        return self.answer({"all_stats": every, "rank_stats": ordered(each, RANK, *order)})

    def _holders(self, of_all: Any, of_rank: Any, which: str, run: RunFacts) -> pa.Array:
        """For each row of `of_all` the files of the ranks that have its smallest or largest value."""
        names, called = (*self._report.labels, which), files(run)
        holders: dict[tuple[Any, ...], list[int]] = {}
        for *key, rank in zip(*(of_rank.column(c).to_pylist() for c in (*names, RANK)), strict=True):
            holders.setdefault(tuple(key), []).append(rank)
        rows = zip(*(of_all.column(c).to_pylist() for c in names), strict=True)
        return pa.array([", ".join(called[r] for r in sorted(holders[key])) for key in rows], pa.string())


cuda_api_sum = ReportSum(
    report_sums.cuda_api_sum,
    "The time that CUDA calls took on the CPU, by function, over all ranks and on each.",
    device=False,
)
cuda_gpu_kern_sum = ReportSum(
    report_sums.cuda_gpu_kern_sum,
    "The time that kernels ran on GPUs, by name, over all ranks and on each.",
    own=(BASE, MANGLED),
)
cuda_gpu_mem_size_sum = ReportSum(
    report_sums.cuda_gpu_mem_size_sum,
    "The bytes of copies and fills on GPUs, by direction, over all ranks and on each.",
)
cuda_gpu_mem_time_sum = ReportSum(
    report_sums.cuda_gpu_mem_time_sum,
    "The time that copies and fills took on GPUs, by direction, over all ranks and on each.",
)
osrt_sum = ReportSum(
    report_sums.osrt_sum,
    "The time that calls of the operating system's runtime took, by function, over all ranks and on each.",
    device=False,
)

TEXT = "Text"
_STATISTICS = {
    "Mean": "mean", "Std": "stddev", "Min": "min", "Q1": "q1", "Median": "median", "Q3": "q3", "Max": "max",
    "Sum": "total",
}  # fmt: skip
_APPROXIMATED = ("Std", "Q1", "Median", "Q3")


def duration_cells(label: str, doc: str, *, exact: bool) -> tuple[Cell, ...]:
    """A name and pandas' statistics of it: quartiles linear between neighbours, and no deviation of one value."""
    # With `exact` they are one rank's, which nsys does not round.
    kind, note, of_all = ("exact_ns", "", "") if exact else ("mean_ns", " (approx)", ", exact over all ranks")
    return (
        Cell(label, "text", doc),
        *cells(
            "Count | int | How many there were.",
            f"Mean | {kind} | Mean duration.",
            f"Std{note} | {kind} | Standard deviation of a sample (n - 1){of_all}; null for one.",
            "Min | ns | Shortest.",
            f"Q1{note} | {kind} | First quartile, linear between neighbours{of_all}.",
            f"Median{note} | {kind} | Median{of_all}.",
            f"Q3{note} | {kind} | Third quartile{of_all}.",
            "Max | ns | Longest.",
            "Sum | ns | Their sum.",
        ),
    )


def duration_columns(summary: Any, *, exact: bool) -> dict[str, Any]:
    """The columns of `duration_cells` but the name, from what `summarize` gave."""
    columns = {title: summary.column(name) for title, name in _STATISTICS.items()}
    columns["Std"] = pc.if_else(pc.greater(summary.column(COUNT), 1), columns["Std"], None)
    noted = {title if exact or title not in _APPROXIMATED else f"{title} (approx)": c for title, c in columns.items()}
    return {"Count": summary.column(COUNT), **noted}


DURATION_RESULTS: Results = {
    "all_stats": duration_cells(TEXT, "What is named so.", exact=False),
    "rank_stats": (*duration_cells(TEXT, "What is named so.", exact=True), RANK_CELL, FILE_CELL),
    **FILES,
}
_BOX = Chart("box", TEXT, ("Min", "Q1 (approx)", "Median (approx)", "Q3 (approx)", "Max"))
_CALL_LABEL = "coalesce(text_of(name), '')"
# the text of a range, after the domain if several domains have it
_RANGE_LABEL = """coalesce(if(count(*) OVER (PARTITION BY coalesce(text_of(name), '')) > 1, text_of(domain) || ':', ''),
'')
      || coalesce(text_of(name), '')"""


class DurationSum(SqlNsysRecipe):
    """The statistics of durations by name, over all ranks and for each.

    `events` is a SELECT of `rank`, `keys` of name ids and `value` (ns), a row for each event; those without length are
    left out, as nsys does. `label` is an expression over the keys. One that counts domains depends on those of all
    ranks.
    """

    results: ClassVar[Results] = DURATION_RESULTS
    chart = _BOX

    def __init__(
        self,
        name: str,
        doc: str,
        *,
        events: str,
        keys: tuple[str, ...] = ("domain", "name"),
        label: str = _RANGE_LABEL,
        **facts: Any,
    ) -> None:
        self._keys, self._label, self._events = keys, label, events
        super().__init__(name, doc, **facts)

    @property
    def statements(self) -> Statements:
        return self.select(
            f"{distribution_statement(self._keys, self._events)} HAVING value > 0",
            reduce=self._reduce,
            merge=lambda options: None if options.get("by_rank") else merged_statement(self._keys),
            stand_alone=lambda options: bool(options.get("by_rank")) and self._label is _CALL_LABEL,
        )

    def _reduce(self, options: Options) -> str:
        """The statistics by name, over all ranks or with the option `by_rank` for each."""
        by_rank = bool(options.get("by_rank"))
        statement = statistics_statement({TEXT: self._label}, self._keys, "type_7", by_rank=by_rank)
        return f'{statement}\nORDER BY {"rank, " if by_rank else ""}"{TEXT}"'

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        if not parts:
            return self.answer({})
        of_all, of_rank = (
            self.statements.over_parts(parts, run, {**options, "by_rank": by_rank}) for by_rank in (False, True)
        )
        rank = of_rank.column(RANK)
        every = {TEXT: of_all.column(TEXT), **duration_columns(of_all, exact=False)}
        each = {TEXT: of_rank.column(TEXT), **duration_columns(of_rank, exact=True), "Rank": rank}
        each[FILE] = file_column(run, rank.to_pylist())
        return self.answer({"all_stats": every, "rank_stats": each, "files": file_columns(parts, run)})


mpi_sum = DurationSum(
    "mpi_sum",
    """How long MPI calls took, by function, over all ranks and on each.

    A call that waits for several requests counts once, however many rows the profiler wrote of it. Calls without length
    are left out.
    """,
    device=False,
    tables={"mpi": ("start", "end", "thread", "name", "kind")},
    keys=("name",),
    label=_CALL_LABEL,
    events="""SELECT rank, name, max("end") - start AS value FROM mpi GROUP BY rank, thread, start, name, kind""",
)
_RANGE_EVENTS = """SELECT rank, domain, name, "end" - start AS value FROM ranges"""
_PROJECTED_EVENTS = "SELECT rank, domain, name, projected.value AS value FROM projected"
_PROJECTION_NEEDS: Needs = ("ranges", "api", ("kernels", "copies"))
nvtx_sum = DurationSum(
    "nvtx_sum",
    """How long NVTX ranges took on the CPU, by name, over all ranks and on each.

    Ranges pushed and popped, and started and ended, count alike. Those still open at the end of the capture, and those
    without length, are left out. The name of a range is its text, or `domain:text` if two domains have the same text.
    """,
    device=False,
    tables=RANGES,
    events=_RANGE_EVENTS,
)
nvtx_gpu_proj_sum = DurationSum(
    "nvtx_gpu_proj_sum",
    """How long the GPU work launched inside NVTX ranges took, by name, over all ranks and on each.

    It takes from its first start to its last end.

    A launch belongs to every range of its thread that contains the call. Ranges without work, those that another thread
    ended and those still open at the end of the capture are left out.
    """,
    tables=PROJECTION_READS,
    projects=True,
    requires=_PROJECTION_NEEDS,
    events=_PROJECTED_EVENTS,
)
nccl_gpu_proj_sum = DurationSum(
    "nccl_gpu_proj_sum",
    """How long the GPU work of calls of NCCL took, by function, over all ranks and on each: from its first start to its
    last end.

    A kernel that several grouped calls share counts for each of them.
    """,
    tables=PROJECTION_READS,
    projects=True,
    requires=_PROJECTION_NEEDS,
    events=f"{_PROJECTED_EVENTS} {OF_NCCL}",
)

_ON_GPU = "(SELECT * FROM parts WHERE on_gpu)"
_OPERATION = ("op", "datatype", "bytes", "group_size", "communicator")
_LABELS = {
    "Operation": "coalesce(text_of(op), '')",
    "Datatype": "coalesce(text_of(datatype), '')",
    "Bytes": "bytes",
    "Group Size": "group_size",
}
_RANKS = {"ranks": "count(DISTINCT rank)"}
_OPERATIONS = f"""
{statistics_statement(_LABELS, tuple(_OPERATION[:4]), "type_7", further=_RANKS, source=_ON_GPU)}
ORDER BY "Operation", "Bytes", "Datatype", "Group Size\""""
_COMMUNICATORS = f"""
SELECT coalesce(text_of(communicator), '') AS "Communicator", rank AS "Rank", group_size AS "Group Size",
sum(count) AS "Count",
  sum(bytes * count) AS "Bytes", sum(value * count) AS "Sum"
FROM {_ON_GPU} AS parts GROUP BY parts.communicator, rank, group_size
ORDER BY "Communicator", rank, group_size, parts.communicator"""


class NcclSum(DurationSum):
    """How long calls of NCCL took on the CPU, by function, over all ranks and on each; and its operations on the GPU.

    The calls are the ranges of the NVTX domain NCCL of every process, or of RCCL. `operations` has what ran on the GPU
    by operation, type, message size and size of the group, `communicators` by communicator and rank: from NCCL's own
    trace, from payloads, from kernels, and from NCCL's logs if the run was imported with them. How long ranks waited
    for each other is in `collectives`.
    """

    name = "nccl_sum"
    device = False
    clock = "aligned"
    results: ClassVar[Results] = {
        **DURATION_RESULTS,
        "operations": (
            *cells(
                "Operation | text | The operation.",
                "Datatype | text | Type of its elements; empty if neither the trace nor a log has it.",
                "Bytes | bytes | Message size of one rank; null if neither the trace nor a log has it.",
                "Group Size | int | Ranks of the communicator; null if unknown.",
                "Ranks | int | Ranks that took part.",
            ),
            *duration_cells("", "", exact=False)[1:],
        ),
        "communicators": (
            Cell("Communicator", "text", "The communicator, as the trace or the log names it, or as it was inferred."),
            RANK_CELL,
            *cells(
                "Group Size | int | Its ranks; null if unknown.",
                "Count | int | Operations.",
                "Bytes | bytes | Summed message size of operations with a known size; null if none is known.",
                "Sum | ns | Their summed duration on the GPU.",
            ),
        ),
    }

    def __init__(self) -> None:
        tables = {**RANGES, "collectives": ("start", "end", *_OPERATION)}
        super().__init__(self.name, type(self).__doc__ or "", tables=tables, events=f"{_RANGE_EVENTS} {OF_NCCL}")

    @property
    def statements(self) -> Statements:
        return replace(super().statements, computed="the collective operations of all ranks")

    def map_rank(self, rank: Rank, options: Options) -> Any:
        calls = super().map_rank(rank, options)
        work = rank.table("collectives", ("start", "end", *_OPERATION))
        lasted = pc.subtract(work.column("end"), work.column("start"))
        timed = lasted.is_valid()
        works = collect(
            {c: work.column(c).filter(timed) for c in _OPERATION}, pc.max_element_wise(lasted.filter(timed), 0)
        )
        works = with_rank(works, rank.rank)
        tables = [
            t.append_column("on_gpu", pa.repeat(on_gpu, t.num_rows)) for t, on_gpu in ((calls, False), (works, True))
        ]
        return pa.concat_tables(tables, promote_options="permissive")

    def map_ranks(self, ranks: Sequence[Rank], options: Options) -> None:
        """Nothing: operations are counted in the tables of each rank."""

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        calls = [
            Part(p.rank, p.table.filter(pc.invert(p.table.column("on_gpu"))).drop_columns(["on_gpu", *_OPERATION]))
            for p in parts
        ]
        answer = super().combine([p for p in calls if p.table.num_rows], run, options)
        works = [part for part in parts if pc.any(part.table.column("on_gpu")).as_py()]
        if not works:
            return answer
        tables = {PARTS: parts_table(works), "names": run.name_table()}
        operations, communicators = (run_statement(statement, tables) for statement in (_OPERATIONS, _COMMUNICATORS))
        columns = {title: operations.column(title) for title in _LABELS} | {"Ranks": operations.column("ranks")}
        columns |= duration_columns(operations, exact=False)
        more = self.answer(
            {"operations": columns, "communicators": {n: communicators.column(n) for n in communicators.column_names}}
        )
        further = {name: more.further[name] for name in ("operations", "communicators")}
        return answer._replace(further={**answer.further, **further})


nccl_sum = NcclSum()
