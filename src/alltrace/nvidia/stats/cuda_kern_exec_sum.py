"""The report `cuda_kern_exec_sum`: launch, queue and execution times of each kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.nvidia.stats.base import RANK_CELL, Cell
from alltrace.nvidia.stats.cuda import KERNEL_NAME, NamedKernels
from alltrace.nvidia.stats.cuda_exec import API_TABLE, KERNEL_TABLE
from alltrace.recipes.base import Chart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Answer, Part, RunFacts

_PHASES = {"T": "call and kernel together", "A": "the call", "Q": "the wait in the queue", "K": "the kernel"}
_LABELS = {
    "PID": "process_id",
    "TID": "thread_id",
    "DevId": "ordinal",
    "API Name": "call_name(text_of(api))",
    "Kernel Name": KERNEL_NAME,
}
_KEYS = ("rank", "process_id", "thread_id", "ordinal", "api", "launch_range", "kernel")
# `launches` has a row for each call of a kernel: T from the start of the call to the end of call or kernel, whichever is later;
# Q null if the kernel started before the end of the call. Medians are of numbers below 2^52, for which DuckDB's are exact;
# deviations are from the integer part of the mean, so that all sums are of whole numbers.
_MAP = """
WITH launched AS (
  SELECT rank, process, device, correlation, start, "end", {{launch_range}} AS launch_range, {{kernel}} AS kernel
  FROM kernels WHERE "end" IS NOT NULL
),
launches AS (
  SELECT launched.rank, pid AS process_id, tid AS thread_id, ordinal, api.name AS api, launch_range, kernel,
    greatest(api."end", launched."end") - api.start AS T,
    api."end" - api.start AS A,
    if(launched.start >= api."end", launched.start - api."end", NULL) AS Q,
    launched."end" - launched.start AS K
  FROM launched
    JOIN api ON launched.rank = api.rank AND launched.correlation = api.correlation
      AND coalesce(launched.process, -1) = coalesce(api.process, -1)
    LEFT JOIN processes ON processes.rank = api.rank AND processes.process = api.process
    LEFT JOIN threads ON threads.rank = api.rank AND threads.thread = api.thread
    LEFT JOIN devices ON devices.rank = launched.rank AND devices.device = launched.device
  WHERE api."end" IS NOT NULL
),
keys AS (SELECT {keys}, {labels} FROM (SELECT DISTINCT {keys} FROM launches)),
numbered AS (SELECT *, dense_rank() OVER (ORDER BY rank, {named}) AS g FROM keys),
timed AS (SELECT g, {phases} FROM launches JOIN numbered ON {same}),
sums AS (SELECT g, {sums} FROM timed GROUP BY g),
summed AS (SELECT g, {statistics} FROM timed JOIN sums USING (g) GROUP BY g)
SELECT rank, {named}, summed.* EXCLUDE (g) FROM summed JOIN (SELECT DISTINCT g, rank, {named} FROM numbered) USING (g)
"""
_SUMS = "count({p}) AS n_{p}, sum({p}) AS total_{p}, total_{p} // n_{p} AS center_{p}"
_STATISTICS = """
    any_value(n_{p}) AS "{p}Count", any_value(total_{p} / n_{p}) AS "{p}Avg", median({p}) AS "{p}Med", min({p}) AS "{p}Min",
    max({p}) AS "{p}Max",
    if("{p}Count" > 1, sqrt(greatest(
      sum(square(({p} - center_{p})::HUGEINT))::DOUBLE - square(any_value(total_{p} - n_{p} * center_{p})::DOUBLE) / "{p}Count", 0
    ) / ("{p}Count" - 1)), 0) AS "{p}StdDev\""""


_MAP_STATEMENT = _MAP.format(
    keys=", ".join(_KEYS),
    labels=", ".join(f'{expression} AS "{name}"' for name, expression in _LABELS.items()),
    named=", ".join(f'"{name}"' for name in _LABELS),
    phases=", ".join(_PHASES),
    same=" AND ".join(f"launches.{key} IS NOT DISTINCT FROM numbered.{key}" for key in _KEYS),
    sums=", ".join(_SUMS.format(p=phase) for phase in _PHASES),
    statistics=",".join(_STATISTICS.format(p=phase) for phase in _PHASES),
)


def _statistics(phase: str) -> tuple[Cell, ...]:
    of = f"of {_PHASES[phase]}."
    return (
        Cell(f"{phase}Avg", "mean_time", f"Mean time {of}"),
        Cell(f"{phase}Med", "mean_time", f"Median time {of}"),
        Cell(f"{phase}Min", "time", f"Shortest time {of}"),
        Cell(f"{phase}Max", "time", f"Longest time {of}"),
        Cell(f"{phase}StdDev", "mean_time", f"Standard deviation (n - 1) of the time {of}"),
    )


class CudaKernExecSum(NamedKernels):
    """The times of launch, queue and execution, by thread, GPU, call and kernel; processes of different ranks stay apart."""

    name = "cuda_kern_exec_sum"
    title = "CUDA Kernel Launch & Exec Time Summary"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "kernels": KERNEL_TABLE,
        "api": API_TABLE,
        "processes": ("process", "pid"),
        "threads": ("thread", "tid"),
        "devices": ("device", "ordinal"),
    }
    requires: ClassVar[tuple[str | tuple[str, ...], ...]] = ("kernels", "api")
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("PID", "int", "Process that made the call."),
        Cell("TID", "int", "Thread that made the call."),
        Cell("DevId", "int", "CUDA ordinal of the GPU."),
        Cell("Count", "int", "Kernels."),
        Cell("QCount", "int", "Kernels that started after the end of the call."),
        *(cell for phase in _PHASES for cell in _statistics(phase)),
        Cell("API Name", "text", "Function called."),
        Cell("Kernel Name", "text", "Kernel."),
    )
    chart: ClassVar[Chart | None] = Chart("stacked_bars", "Kernel Name", ("AAvg (ns)", "QAvg (ns)", "KAvg (ns)"), detail="PID")

    def map_statement(self, options: Mapping[str, Any]) -> str:
        """The rows of the rank, which no other rank has a part in."""
        return _MAP_STATEMENT.format_map(self.words(options))

    def reduce_statement(self, options: Mapping[str, Any]) -> str:
        """The rows of all ranks, the longest mean total first."""
        order = ('"TAvg" DESC', "rank", *(f'"{label}"' for label in _LABELS))
        return f'SELECT rank AS "{RANK_CELL.title}", "TCount" AS "Count", * EXCLUDE (rank) FROM parts ORDER BY {", ".join(order)}'

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The statistics of each thread, device, call and kernel, the longest mean total first."""
        if not any(part.table.num_rows for part in parts):
            return self.answer({cell.title: [] for cell in self.answer_cells(options)}, options)
        table = self.over_parts(parts, run, options)
        return self.answer({name: table.column(name) for name in table.column_names}, options)


RECIPE = CudaKernExecSum()
