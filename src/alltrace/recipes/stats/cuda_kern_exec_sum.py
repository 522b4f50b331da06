"""The report `cuda_kern_exec_sum`: launch, queue and execution times of each kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import COUNT, VALUE, collect, group, summarize
from alltrace.recipes.base import Chart
from alltrace.recipes.stats.base import RANK, RANK_CELL, Cell, StatsReport, with_rank
from alltrace.recipes.stats.cuda import KERNEL_KEYS, KERNEL_OPTIONS, call_labels, column, kernel_keys, kernel_labels
from alltrace.recipes.stats.cuda_exec import API_TABLE, KERNEL_TABLE, executions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts

_PHASES = {"T": "total_ns", "A": "api_ns", "Q": "queue_ns", "K": "kernel_ns"}
_WORDS = {"T": "call and kernel together", "A": "the call", "Q": "the wait in the queue", "K": "the kernel"}
_KEYS = ("pid", "tid", "device", "api", *KERNEL_KEYS)
_STATISTICS = {"Avg": "mean", "Med": "median", "Min": "min", "Max": "max", "StdDev": "stddev"}


def _statistics(phase: str) -> tuple[Cell, ...]:
    of = f"of {_WORDS[phase]}."
    return (
        Cell(f"{phase}Avg", "mean_time", f"Mean time {of}"),
        Cell(f"{phase}Med", "mean_time", f"Median time {of}"),
        Cell(f"{phase}Min", "time", f"Shortest time {of}"),
        Cell(f"{phase}Max", "time", f"Longest time {of}"),
        Cell(f"{phase}StdDev", "mean_time", f"Standard deviation (n - 1) of the time {of}"),
    )


class CudaKernExecSum(StatsReport):
    """The times of launch, queue and execution, by thread, GPU, call and kernel; processes of different ranks stay apart."""

    name = "cuda_kern_exec_sum"
    title = "CUDA Kernel Launch & Exec Time Summary"
    tables: ClassVar = {"kernels": KERNEL_TABLE, "api": API_TABLE}
    requires = ("kernels", "api")
    options = KERNEL_OPTIONS
    cells = (
        Cell("PID", "int", "Process that made the call."),
        Cell("TID", "int", "Thread that made the call."),
        Cell("DevId", "int", "CUDA ordinal of the GPU."),
        Cell("Count", "int", "Kernels."),
        Cell("QCount", "int", "Kernels that started after the end of the call."),
        *(cell for phase in _PHASES for cell in _statistics(phase)),
        Cell("API Name", "text", "Function called."),
        Cell("Kernel Name", "text", "Kernel."),
    )
    chart = Chart("stacked_bars", "Kernel Name", ("AAvg (ns)", "QAvg (ns)", "KAvg (ns)"), detail="PID")

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The distribution of each phase (`phase`, an index of T, A, Q, K) by thread, device, call and kernel."""
        kernels, phases = executions(rank, options)
        keys = {**{k: column(phases, k) for k in _KEYS[:4]}, **kernel_keys(rank, kernels, options)}
        codes, first = group(list(keys.values()))
        distinct = pa.table(keys).take(pa.array(first))
        parts = []
        for number, name in enumerate(_PHASES.values()):
            events = pa.table({"row": codes, VALUE: column(phases, name)}).drop_null()
            part = collect({"row": column(events, "row")}, events.column(VALUE))
            known = distinct.take(column(part, "row"))
            phase = pa.array(np.full(part.num_rows, number, np.int8))
            columns = {"phase": phase, **{k: column(known, k) for k in _KEYS}}
            parts.append(pa.table({**columns, VALUE: column(part, VALUE), COUNT: column(part, COUNT)}))
        return pa.concat_tables(parts)

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The statistics of each thread, device, call and kernel, the longest mean total first."""
        tables = [with_rank(part) for part in parts if part.table.num_rows]
        if not tables:
            return self.answer({cell.title: [] for cell in self.answer_cells(options)}, options)
        whole = pa.concat_tables(tables)
        keys = [RANK, *_KEYS]
        codes, first = group([whole.column(k) for k in keys])
        distinct = whole.select(keys).take(pa.array(first))
        called = {
            RANK_CELL.title: column(distinct, RANK),
            "PID": column(distinct, "pid"),
            "TID": column(distinct, "tid"),
            "DevId": column(distinct, "device"),
            "API Name": call_labels(run.texts(column(distinct, "api"))),
            "Kernel Name": kernel_labels(distinct, run),
        }
        rows, first = group(list(called.values()))
        found = pa.table(called).take(pa.array(first))
        columns = {title: found.column(title) for title in called}
        row = pa.array(rows[codes])
        for number, phase in enumerate(_PHASES):
            table = pa.table({"row": row, VALUE: whole.column(VALUE), COUNT: whole.column(COUNT)})
            columns.update(_phase(table.filter(pc.equal(whole.column("phase"), number)), phase, found.num_rows))
        columns["Count"] = columns.pop("TCount")
        answer = pa.table(columns)
        order = [("TAvg", "descending"), *((title, "ascending") for title in called)]
        answer = answer.take(pc.sort_indices(answer, order))
        return self.answer({k: answer.column(k) for k in answer.column_names}, options)


def _phase(table: Any, phase: str, rows: int) -> dict[str, Any]:
    """The statistics of one phase for each of `rows` rows; null where it has no values, but a count and deviation of 0."""
    summary = summarize(table)
    at = pc.index_in(pa.array(np.arange(rows)), column(summary, "row"))
    columns = {f"{phase}{title}": column(summary, name).take(at) for title, name in _STATISTICS.items()}
    columns[f"{phase}StdDev"] = pc.fill_null(columns[f"{phase}StdDev"], 0.0)
    columns[f"{phase}Count"] = pc.fill_null(column(summary, COUNT).take(at), 0)
    return columns


RECIPE = CudaKernExecSum()
