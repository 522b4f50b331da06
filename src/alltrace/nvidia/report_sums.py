"""The reports of `nsys stats` with a row of statistics per name, and those that are sums of another kind."""

from collections.abc import Mapping, Sequence
from typing import Any

from alltrace.nvidia.cells import Cell, cells, shares
from alltrace.nvidia.kernel_names import BASE, COPY_LABELS, KERNEL_NAME, MANGLED, NVTX_NAME
from alltrace.nvidia.ranges import RANGE_NAME, STYLE_NAME
from alltrace.nvidia.report import BY_RANK, RANK, SqlReport, by_rank
from alltrace.recipes.analysis.distribution import COUNT
from alltrace.recipes.analysis.statistics_sql import distribution_statement, merged_statement, statistics_statement
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, RunFacts
from alltrace.recipes.sql_recipe import Statements

KERNEL_OPTIONS = (NVTX_NAME, BASE, MANGLED, BY_RANK)
STATISTICS = {"Avg": "mean", "Q1": "q1", "Med": "median", "Q3": "q3", "Min": "min", "Max": "max", "StdDev": "stddev"}
"""What nsys calls the statistics of a name."""


class Sum(SqlReport):
    """A report with a row of statistics per name: a statement that selects events, and texts of their keys.

    `events` is a SELECT of `rank`, `keys` and `value` (whole ns, or bytes with `sizes`), a row for each event. `labels`
    has an expression over the keys for the title of each of `named`, the cells after the statistics, and for each of
    `hidden`, which keep rows apart and are not printed; null is an empty text. Keys of equal labels become one row.
    `counted` is the title of the number of events, `totaled` that of their sum. Rows of equal totals are in order of
    `ties`: titles, or `count`.
    """

    def __init__(
        self,
        name: str,
        title: str,
        doc: str,
        *,
        events: str,
        labels: Mapping[str, str],
        named: tuple[Cell, ...],
        keys: tuple[str, ...] = ("name",),
        counted: str = "Instances",
        hidden: tuple[str, ...] = (),
        ties: tuple[str, ...] | None = None,
        sizes: bool = False,
        totaled: str | None = None,
        **facts: Any,
    ) -> None:
        self.keys, self.events, self.labels, self.named, self.counted, self.sizes = (
            keys,
            events,
            labels,
            named,
            counted,
            sizes,
        )
        self.totaled = totaled or ("Total" if sizes else "Total Time")
        self.ties = ties or (COUNT, named[-1].title, *(cell.title for cell in named[:-1]))
        whole, mean = ("size", "size") if sizes else ("time", "mean_time")
        share = () if sizes else (Cell("Time", "share", "Share of the sum of Total Time over the rows listed."),)
        statistics = (
            *share,
            Cell(self.totaled, whole, "Sum of the sizes." if sizes else "Sum of the durations."),
            Cell(counted, "int", "How many there were."),
            Cell("Avg", mean, "Mean."),
            Cell("Med", mean, "Median."),
            Cell("Min", whole, "Smallest."),
            Cell("Max", whole, "Largest."),
            Cell("StdDev", mean, "Standard deviation of a sample (n - 1); 0 for one value."),
        )
        super().__init__(name, title, doc, cells=(*statistics, *named), **facts)

    def answer_chart(self, options: Options) -> Chart | None:
        """The totals of the first names; by rank, how they add up."""
        name, total = self.named[-1].header, next(c.header for c in self.cells if c.title == self.totaled)
        if options.get("by_rank"):
            return Chart("stacked_bars", self.rank_cell.header, (total,), name)
        return Chart("bars", name, (total,), detail=self.named[0].header if len(self.named) > 1 else None)

    def distinct(self, options: Options) -> tuple[str, ...]:
        """The keys; without the range around a launch if it is not requested, as it is null then."""
        return tuple(key for key in self.keys if key != "launch_range" or options.get("nvtx_name"))

    @property
    def statements(self) -> Statements:
        return self.select(
            lambda options: distribution_statement(self.distinct(options), self.events.format_map(self.words(options))),
            self._reduce_statement,
            merge=lambda options: None if by_rank(options) else merged_statement(self.distinct(options)),
            stand_alone=by_rank,
        )

    def _reduce_statement(self, options: Options) -> str:
        """The statistics of each name over all ranks, or by rank, largest total first; with `quartiles` these too."""
        alone, words = by_rank(options), self.words(options)
        labels = {title: f"coalesce({expression.format_map(words)}, '')" for title, expression in self.labels.items()}
        order = [*([RANK] if alone else []), "total DESC", *(f'"{name}"' for name in self.ties)]
        quartiles = bool(options.get("quartiles"))
        statistics = statistics_statement(labels, self.distinct(options), by_rank=alone, quartiles=quartiles)
        return f"{statistics}\nORDER BY {', '.join(order)}"

    def by_title(self, table: Any, within: Any = None) -> dict[str, Any]:
        """The columns by title of the rows of the last statement; shares are `within` ranks, if any."""
        columns = {title: table.column(title) for title in (cell.title for cell in self.named)}
        columns |= {self.totaled: table.column("total"), self.counted: table.column(COUNT)}
        columns |= {title: table.column(name) for title, name in STATISTICS.items() if name in table.column_names}
        return columns if self.sizes else {**columns, "Time": shares(table.column("total"), within)}

    def merge(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        if not any(part.table.num_rows for part in parts):
            return self.empty(options)
        table = self.statements.over_parts(parts, run, options)
        rank = table.column(RANK) if options.get("by_rank") else None
        return self.answer(
            {**self.by_title(table, rank), **({} if rank is None else {self.rank_cell.title: rank})}, options
        )


_DIMS = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_KERNELS = ("start", "end", "name", "short_name", "mangled_name", "process", "correlation")
_COPY = (
    "CASE kind WHEN 'memset' THEN '[CUDA memset]' ELSE '[CUDA memcpy ' || CASE kind "
    + " ".join(f"WHEN '{kind}' THEN '{label}'" for kind, label in COPY_LABELS.items())
    + " ELSE kind END || ']' END"
)
_DURATION = '"end" - start AS value'
_FUNCTION = cells("Name | name | Function.")
_KERNEL_CELL = Cell("Name", "name", "Kernel.")
_OPERATION = cells("Operation | name | Copy, with its direction, or fill.")
DIM_CELLS = cells(
    "GridXYZ | name | Blocks of the grid in x, y and z.", "BlockXYZ | name | Threads of a block in x, y and z."
)
_CATEGORY = Cell("Category", "name", "CUDA_API, CUDA_KERNEL or MEMORY_OPER.")
STYLE_CELL = Cell("Style", "name", "PushPop or StartEnd.")

cuda_gpu_kern_sum = Sum(
    "cuda_gpu_kern_sum",
    "CUDA GPU Kernel Summary",
    "The time that kernels ran on GPUs, by name.",
    tables={"kernels": _KERNELS},
    keys=("launch_range", "kernel"),
    named=(_KERNEL_CELL,),
    events=f"SELECT rank, {{launch_range}} AS launch_range, {{kernel}} AS kernel, {_DURATION} FROM kernels",
    labels={"Name": "{kernel_name}"},
    options=KERNEL_OPTIONS,
)
cuda_gpu_kern_gb_sum = Sum(
    "cuda_gpu_kern_gb_sum",
    "CUDA GPU Kernel/Grid/Block Summary",
    "The time that kernels ran on GPUs, by name, grid and block.",
    tables={"kernels": (*_KERNELS, *_DIMS)},
    keys=("launch_range", "kernel", *_DIMS),
    named=(*DIM_CELLS, _KERNEL_CELL),
    events=(
        f"SELECT rank, {{launch_range}} AS launch_range, {{kernel}} AS kernel, {', '.join(_DIMS)}, {_DURATION} FROM"
        " kernels"
    ),
    labels={
        "GridXYZ": "printf('%4d %4d %4d', grid_x, grid_y, grid_z)",
        "BlockXYZ": "printf('%4d %4d %4d', block_x, block_y, block_z)",
        "Name": "{kernel_name}",
    },
    options=KERNEL_OPTIONS,
)
_GPU_EVENTS = f"""SELECT rank, 'CUDA_KERNEL' AS category, {{launch_range}} AS launch_range, {{kernel}} AS kernel,
  NULL::VARCHAR AS kind, {_DURATION} FROM kernels
UNION ALL SELECT rank, 'MEMORY_OPER', NULL, NULL, kind, {_DURATION} FROM copies"""
cuda_gpu_sum = Sum(
    "cuda_gpu_sum",
    "CUDA GPU Summary (Kernels/MemOps)",
    "The time of kernels, copies and fills on GPUs, by name.",
    tables={"kernels": _KERNELS, "copies": ("start", "end", "kind")},
    keys=("category", "launch_range", "kernel", "kind"),
    named=(_CATEGORY, Cell("Operation", "name", "Kernel, copy or fill.")),
    ties=("Operation", "Category"),
    events=_GPU_EVENTS,
    labels={"Category": "category", "Operation": f"coalesce({_COPY}, {{kernel_name}})"},
    options=KERNEL_OPTIONS,
)
cuda_api_gpu_sum = Sum(
    "cuda_api_gpu_sum",
    "CUDA Summary (API/Kernels/MemOps)",
    "The time of CUDA calls on the CPU, and of kernels, copies and fills on GPUs, by name.",
    tables={**cuda_gpu_sum.tables, "api": ("start", "end", "name")},
    keys=cuda_gpu_sum.keys,
    named=cuda_gpu_sum.named,
    ties=cuda_gpu_sum.ties,
    events=f"{_GPU_EVENTS}\nUNION ALL SELECT rank, 'CUDA_API', NULL, name, NULL, {_DURATION} FROM api",
    labels={
        "Category": "category",
        "Operation": f"coalesce({_COPY}, if(category = 'CUDA_API', call_name(text_of(kernel)), {{kernel_name}}))",
    },
    options=KERNEL_OPTIONS,
)
cuda_api_sum = Sum(
    "cuda_api_sum",
    "CUDA API Summary",
    "The time that calls of the CUDA runtime and driver took, by function.",
    tables={"api": ("start", "end", "name")},
    counted="Num Calls",
    named=_FUNCTION,
    # versions of one function that are recorded apart stay apart, as in nsys, for a call may be recorded in both
    hidden=("recorded",),
    events=f"SELECT rank, name, {_DURATION} FROM api",
    labels={"Name": "call_name(text_of(name))", "recorded": "text_of(name)"},
)
cuda_gpu_mem_time_sum = Sum(
    "cuda_gpu_mem_time_sum",
    "CUDA GPU MemOps Summary (by Time)",
    "The time of copies and fills on GPUs, by direction.",
    tables={"copies": ("start", "end", "kind")},
    keys=("kind",),
    counted="Count",
    named=_OPERATION,
    events=f"SELECT rank, kind, {_DURATION} FROM copies",
    labels={"Operation": _COPY},
)
cuda_gpu_mem_size_sum = Sum(
    "cuda_gpu_mem_size_sum",
    "CUDA GPU MemOps Summary (by Size)",
    "The bytes of copies and fills on GPUs, by direction.",
    tables={"copies": ("kind", "bytes")},
    keys=("kind",),
    counted="Count",
    named=_OPERATION,
    sizes=True,
    events="SELECT rank, kind, bytes AS value FROM copies",
    labels={"Operation": _COPY},
)


def _range_sum(name: str, title: str, doc: str, where: str, *, style: bool = False) -> Sum:
    """A report on ranges; one that was still open ends at the latest time of any range or mark of the rank."""
    of_style = {"Style": STYLE_NAME} if style else {}
    return Sum(
        name,
        title,
        doc,
        tables={"ranges": ("start", "end", "name", "domain", "kind"), "marks": ("time",)},
        requires=("ranges",),
        keys=("kind", "domain", "name"),
        named=(*((STYLE_CELL,) if style else ()), Cell("Range", "name", "Range.")),
        # ranges without a text are apart from those with an empty one
        hidden=("unnamed",),
        ties=("Range", "unnamed", *of_style),
        events=f"""SELECT rank, kind, domain, name, coalesce("end", latest) - start AS value
FROM ranges JOIN (
  SELECT rank, max(time) AS latest
  FROM (SELECT rank, greatest(start, "end") AS time FROM ranges UNION ALL SELECT rank, time FROM marks) GROUP BY rank
) USING (rank)
WHERE {where}""",
        labels={**of_style, "Range": RANGE_NAME, "unnamed": "if(text_of(name) IS NULL, '', 'named')"},
    )


nvtx_sum = _range_sum(
    "nvtx_sum", "NVTX Range Summary", "The time that ranges took, by name and style.", "true", style=True
)
nvtx_pushpop_sum = _range_sum(
    "nvtx_pushpop_sum",
    "NVTX Push/Pop Range Summary",
    "The time that push/pop ranges took, by name.",
    "kind = 'pushpop'",
)
nvtx_startend_sum = _range_sum(
    "nvtx_startend_sum",
    "NVTX Start/End Range Summary",
    "The time that start/end ranges took, by name.",
    "kind = 'startend'",
)


def _call_sum(name: str, title: str, doc: str, table: str, named: tuple[Cell, ...] = _FUNCTION) -> Sum:
    return Sum(
        name,
        title,
        doc,
        tables={table: ("start", "end", "name")},
        counted="Num Calls",
        named=named,
        events=f"SELECT rank, name, {_DURATION} FROM {table}",
        labels={"Name": "text_of(name)"},
    )


osrt_sum = _call_sum(
    "osrt_sum", "OS Runtime Summary", "The time that calls of the operating system's runtime took, by function.", "osrt"
)
syscall_sum = _call_sum(
    "syscall_sum",
    "System Call Summary",
    "The time that system calls took, by name.",
    "syscalls",
    cells("Name | name | System call."),
)
openmp_sum = _call_sum(
    "openmp_sum",
    "OpenMP Summary",
    "The time that OpenMP events took, by name.",
    "openmp",
    cells("Name | name | Event."),
)
openacc_sum = Sum(
    "openacc_sum",
    "OpenACC Summary",
    "The time that OpenACC constructs took, by construct and line.",
    tables={"openacc": ("start", "end", "name", "file", "line")},
    keys=("name", "file", "line"),
    ties=("Name",),
    counted="Num Calls",
    named=cells("Name | name | Construct, and its file and line: `Wait@main.f90:12`."),
    events=f"SELECT rank, name, file, line, {_DURATION} FROM openacc",
    labels={"Name": "text_of(name) || coalesce('@' || text_of(file) || coalesce(':' || line, ''), '')"},
)
mpi_event_sum = Sum(
    "mpi_event_sum",
    "MPI Event Summary",
    """The time that MPI calls took, by function.

    A call counts once: of the rows that a wait for many requests and a send-receive leave, one is taken, the longest.
    """,
    tables={"mpi": ("start", "end", "thread", "name", "kind")},
    keys=("kind", "name"),
    named=(*cells("Source | name | Class of the event: p2p, collectives, start_wait or other."), *_FUNCTION),
    events="""SELECT rank, kind, name, max("end") - start AS value FROM mpi GROUP BY rank, thread, start, name, kind""",
    labels={
        "Source": "CASE kind WHEN 'collective' THEN 'collectives' WHEN 'start-wait' THEN 'start_wait' ELSE kind END",
        "Name": "text_of(name)",
    },
)
mpi_msg_size_sum = Sum(
    "mpi_msg_size_sum",
    "MPI Message Size Summary",
    "The sizes of MPI messages, by function: of point-to-point calls, and what collectives sent and received.",
    tables={"mpi": ("name", "kind", "bytes", "sent_bytes", "recv_bytes")},
    keys=("source", "name"),
    sizes=True,
    totaled="Total Message Volume",
    named=(*cells("Source | name | p2p, coll_send or coll_recv."), *_FUNCTION),
    events="""SELECT rank, 'p2p' AS source, name, bytes AS value FROM mpi WHERE kind = 'p2p'
UNION ALL SELECT rank, 'coll_send', name, sent_bytes FROM mpi WHERE kind = 'collective'
UNION ALL SELECT rank, 'coll_recv', name, recv_bytes FROM mpi WHERE kind = 'collective'""",
    labels={"Source": "source", "Name": "text_of(name)"},
)

_PHASES = {"T": "call and kernel together", "A": "the call", "Q": "the wait in the queue", "K": "the kernel"}
_LABELS = {
    "PID": "process_id",
    "TID": "thread_id",
    "DevId": "ordinal",
    "API Name": "call_name(text_of(api))",
    "Kernel Name": KERNEL_NAME,
}
_KEYS = ("rank", "process_id", "thread_id", "ordinal", "api", "launch_range", "kernel")
_NAMED = ", ".join(f'"{name}"' for name in _LABELS)
# `launches` has a row for each call of a kernel: T from the start of the call to the end of call or kernel, whichever
# is later; Q null if the kernel started before the end of the call. Medians are of numbers below 2^52, for which
# DuckDB's are exact; deviations are from the integer part of the mean, so that all sums are of whole numbers.
_LAUNCHES = """
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
    any_value(n_{p}) AS "{p}Count", any_value(total_{p} / n_{p}) AS "{p}Avg", median({p}) AS "{p}Med",
    min({p}) AS "{p}Min",
    max({p}) AS "{p}Max",
    if("{p}Count" > 1, sqrt(greatest(
      sum(square(({p} - center_{p})::HUGEINT))::DOUBLE - square(any_value(total_{p} - n_{p} * center_{p})::DOUBLE) /
      "{p}Count", 0
    ) / ("{p}Count" - 1)), 0) AS "{p}StdDev\""""
cuda_kern_exec_sum = SqlReport(
    "cuda_kern_exec_sum",
    "CUDA Kernel Launch & Exec Time Summary",
    "The times of launch, queue and execution, by thread, GPU, call and kernel; processes of different ranks stay"
    " apart.",
    tables={
        "kernels": ("start", "end", "process", "device", "correlation", "name", "short_name", "mangled_name"),
        "api": ("start", "end", "process", "thread", "correlation", "name"),
        "processes": ("process", "pid"),
        "threads": ("thread", "tid"),
        "devices": ("device", "ordinal"),
    },
    requires=("kernels", "api"),
    options=KERNEL_OPTIONS,
    cells=cells(
        "PID | int | Process that made the call.",
        "TID | int | Thread that made the call.",
        "DevId | int | CUDA ordinal of the GPU.",
        "Count | int | Kernels.",
        "QCount | int | Kernels that started after the end of the call.",
        *(
            f"{phase}{title} | {kind} | {what} time of {doing}."
            for phase, doing in _PHASES.items()
            for title, kind, what in (
                ("Avg", "mean_time", "Mean"),
                ("Med", "mean_time", "Median"),
                ("Min", "time", "Shortest"),
                ("Max", "time", "Longest"),
                ("StdDev", "mean_time", "Standard deviation (n - 1) of the"),
            )
        ),
        "API Name | name | Function called.",
        "Kernel Name | name | Kernel.",
    ),
    chart=Chart("stacked_bars", "Kernel Name", ("AAvg (ns)", "QAvg (ns)", "KAvg (ns)"), detail="PID"),
    map_sql=_LAUNCHES.format(
        keys=", ".join(_KEYS),
        labels=", ".join(f'{expression} AS "{name}"' for name, expression in _LABELS.items()),
        named=_NAMED,
        phases=", ".join(_PHASES),
        same=" AND ".join(f"launches.{key} IS NOT DISTINCT FROM numbered.{key}" for key in _KEYS),
        sums=", ".join(_SUMS.format(p=phase) for phase in _PHASES),
        statistics=",".join(_STATISTICS.format(p=phase) for phase in _PHASES),
    ),
    reduce_sql=(
        f'SELECT rank AS "Rank", "TCount" AS "Count", * EXCLUDE (rank) FROM parts ORDER BY "TAvg" DESC, rank, {_NAMED}'
    ),
)

# for each address the bytes migrated, the time of these migrations, and the page faults; each null if there was none
_ACTIVITY = """
SELECT rank, address, sum(htod) AS htod, sum(dtoh) AS dtoh, sum(took_ns) AS took_ns, sum(cpu) AS cpu, sum(gpu) AS gpu
FROM (
  SELECT rank, address, if(kind = 'UvmHtoD', bytes, NULL) AS htod, if(kind = 'UvmDtoH', bytes, NULL) AS dtoh,
    "end" - start AS took_ns, NULL::BIGINT AS cpu, NULL::BIGINT AS gpu
  FROM copies WHERE kind IN ('UvmHtoD', 'UvmDtoH')
  UNION ALL SELECT rank, address, NULL, NULL, NULL, if(kind = 'cpu', coalesce(count, 1), NULL),
    if(kind = 'gpu', coalesce(count, 1), NULL)
  FROM page_faults WHERE kind IN ('cpu', 'gpu')
) GROUP BY rank, address
"""
_ACTIVITY_READS = {"copies": ("start", "end", "kind", "bytes", "address"), "page_faults": ("kind", "address", "count")}
um_sum = SqlReport(
    "um_sum",
    "Unified Memory Analysis Summary",
    "Unified-memory migrations and page faults by virtual address, the fastest migrations first.",
    tables=_ACTIVITY_READS,
    options=(Option("rows", int, default=10, help="The most rows; a negative number for all."), BY_RANK),
    cells=(
        *cells(
            "Virtual Address | name | Base address of the pages.",
            "HtoD Migration size | size | Bytes moved from host to device.",
            "DtoH Migration size | size | Bytes moved from device to host.",
            "CPU Page Faults | int | Page faults on the CPU.",
        ),
        Cell(" GPU Page Faults", "int", "Page faults on GPUs."),
        Cell(
            "Migration Throughput",
            "throughput",
            "Bytes moved times the whole number of such moves that fit in a second.",
        ),
    ),
    chart=Chart("stacked_bars", "Virtual Address", ("HtoD Migration size (MB)", "DtoH Migration size (MB)")),
    map_sql=_ACTIVITY,
    reduce_sql="""
SELECT {rank_cell}'0x' || hex(address) AS "Virtual Address", htod AS "HtoD Migration size",
dtoh AS "DtoH Migration size",
  cpu AS "CPU Page Faults", gpu AS " GPU Page Faults", rate AS "Migration Throughput"
FROM (
  SELECT {by_rank}address, sum(htod) AS htod, sum(dtoh) AS dtoh, sum(took_ns) AS took_ns, sum(cpu) AS cpu,
  sum(gpu) AS gpu,
    (coalesce(sum(htod), 0) + coalesce(sum(dtoh), 0))::DOUBLE
      * if(sum(took_ns) > 0, 1000000000 // sum(took_ns), NULL)::DOUBLE AS rate,
    row_number() OVER (ORDER BY {by_rank}rate DESC NULLS LAST,
      CASE WHEN sum(cpu) IS NOT NULL THEN 0 WHEN sum(gpu) IS NOT NULL THEN 1 ELSE 2 END, address) AS row
  FROM parts WHERE address IS NOT NULL GROUP BY {by_rank}address
) WHERE row <= $rows OR $rows < 0 ORDER BY row""",
)
um_total_sum = SqlReport(
    "um_total_sum",
    "Unified Memory Totals Summary",
    "Unified-memory migrations and page faults in all; no row where there were none.",
    tables=_ACTIVITY_READS,
    cells=cells(
        "Total HtoD Migration Size | size | Bytes moved from host to device.",
        "Total DtoH Migration Size | size | Bytes moved from device to host.",
        "Total CPU Page Faults | int | Page faults on the CPU.",
        "Total GPU PageFaults | int | Page faults on GPUs; empty if there were none.",
        "Minimum Virtual Address | name | Lowest address moved or faulted on.",
        "Maximum Virtual Address | name | Highest address moved or faulted on.",
    ),
    map_sql=_ACTIVITY,
    reduce_sql="""
SELECT {rank_cell}sum(htod) AS "Total HtoD Migration Size", sum(dtoh) AS "Total DtoH Migration Size",
  coalesce(sum(cpu), 0) AS "Total CPU Page Faults", sum(gpu) AS "Total GPU PageFaults",
  '0x' || hex(min(address)) AS "Minimum Virtual Address", '0x' || hex(max(address)) AS "Maximum Virtual Address"
FROM parts GROUP BY {by_rank}() ORDER BY ALL""",
)
um_cpu_page_faults_sum = SqlReport(
    "um_cpu_page_faults_sum",
    "Unified Memory CPU Page Faults Summary",
    "Unified-memory page faults on the CPU by the instruction that caused them, the most first.",
    tables={"page_faults": ("kind", "source")},
    cells=cells(
        "CPU Page Faults | int | Page faults.",
        "CPU Instruction Address | name | Instruction that caused them, resolved where the source has symbols.",
    ),
    chart=Chart("bars", "CPU Instruction Address", ("CPU Page Faults",)),
    map_sql="SELECT rank, source, count(*) AS count FROM page_faults WHERE kind = 'cpu' GROUP BY rank, source",
    reduce_sql="""
SELECT {rank_cell}sum(count) AS "CPU Page Faults", coalesce(text_of(source), '') AS "CPU Instruction Address"
FROM parts GROUP BY {by_rank}source ORDER BY {by_rank}"CPU Page Faults" DESC, "CPU Instruction Address\"""",
)
