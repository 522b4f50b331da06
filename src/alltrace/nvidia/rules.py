"""The recipes that nsys has as rules too: rows to look at, worst first, and advice."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.cells import Cell, cells, stack
from alltrace.nvidia.filters import NVTX
from alltrace.nvidia.kernel_names import MEMORY_LABELS
from alltrace.nvidia.recipe import FILE, FILE_CELL, NsysRecipe, SqlNsysRecipe, filtered_input, part_files
from alltrace.recipes.analysis.lookups import look_up
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Reads, RunFacts
from alltrace.recipes.sql_recipe import Statements
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.intervals import bin_load_ns, by_track

ROWS = Option("rows", int, -1, "The most rows of each rank; -1 for all.", least=-1)


class Rule(NsysRecipe):
    """Rows that are worth a look, the worst first, what to do about them, and what it means if there are `none`.

    `cells` are its columns but the last, `File`; `settings` its options other than `--rows` and `--nvtx`. `rows` are
    those of one rank, a `pyarrow.Table` with a column per cell; `Row#` is added. `height` is the column that a picture
    shows over `Start`.
    """

    clock = "one"

    def __init__(
        self,
        name: str,
        doc: str,
        *,
        cells: tuple[Cell, ...],
        advice: str,
        none: str,
        rows: Callable[[Rank, Options], Any] | None = None,
        settings: tuple[Option, ...] = (),
        order: tuple[tuple[str, str], ...] = (("Duration", "descending"), ("Start", "ascending")),
        height: str = "Duration",
        **facts: Any,
    ) -> None:
        self.cells, self.advice, self.none, self.settings, self.order, self._rows = (
            cells,
            advice,
            none,
            settings,
            order,
            rows,
        )
        results, own = {"analysis": (*cells, FILE_CELL)}, (*settings, ROWS, NVTX)
        super().__init__(name, doc, results=results, chart=Chart("scatter", "Start", (height,), FILE), own=own, **facts)

    def rows(self, rank: Rank, options: Options) -> Any:
        if self._rows is None:
            raise NotImplementedError
        return self._rows(rank, options)

    def map_rank(self, rank: Rank, options: Options) -> Any:
        rows = self.rows(rank, options)
        rest = [name for name in rows.column_names if name not in dict(self.order)]
        order = [
            *self.order,
            *((name, "ascending") for name in rest if not pa.types.is_dictionary(rows.schema.field(name).type)),
        ]
        rows = rows.take(pc.sort_indices(rows, order))
        return rows if options["rows"] < 0 else rows.slice(0, options["rows"])

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        if not parts:
            return self.answer({}, (self.none,))
        whole = stack([part.table for part in parts]).combine_chunks()
        numbers = [i + 1 for part in parts for i in range(part.table.num_rows)]
        columns = {name: whole.column(name) for name in whole.column_names}
        return self.answer({"analysis": {**columns, FILE: part_files(run, parts), "Row#": numbers}}, (self.advice,))


class SqlRule(Rule, SqlNsysRecipe):
    """A rule with the rows of a statement."""

    def __init__(self, name: str, doc: str, *, map_sql: str, **facts: Any) -> None:
        super().__init__(name, doc, **facts)
        self._map_sql = map_sql

    @property
    def statements(self) -> Statements:
        first = "the first rows of each rank"
        return self.select(self._map_sql, computed=lambda o: filtered_input(o) or (first if o["rows"] >= 0 else None))

    def rows(self, rank: Rank, options: Options) -> Any:
        return self.statements.map_rank(rank, options).drop_columns(["rank"])

    def map_ranks(self, ranks: Sequence[Rank], options: Options) -> None:
        """Nothing: the worst rows of each rank are chosen from its own."""


_PLACE = cells(
    "PID | int | Process id.", "Device ID | int | CUDA ordinal of the GPU.", "Context ID | int | CUDA context."
)
_MEMORY = "".join(f" WHEN '{word}' THEN '{label}'" for word, label in MEMORY_LABELS.items())
_KINDS = cells("Src Kind | text | Memory copied from.", "Dst Kind | text | Memory written.")
# a copy counts once: if several rows of calls have its correlation id in its process, such as one for each version of a
# function's name, the first to start counts
_COPIES = """
WITH chosen AS (SELECT *, row_number() OVER () AS row FROM copies WHERE {copies}),
calls AS (SELECT *, row_number() OVER () AS row FROM api),
launched AS (
  SELECT chosen.*, calls.name AS call
  FROM chosen JOIN calls ON chosen.rank = calls.rank AND chosen.correlation = calls.correlation
    AND coalesce(chosen.process, -1) = coalesce(calls.process, -1)
  QUALIFY row_number() OVER (PARTITION BY chosen.row ORDER BY calls.start, calls.row) = 1
)
SELECT launched.rank, "end" - start AS "Duration", start AS "Start", bytes AS "Bytes", pid AS "PID",
  ordinal AS "Device ID",
  context AS "Context ID", nullif(green_context, 0) AS "Green Context ID", stream AS "Stream ID",
  names.value AS "API Name", {memory}
FROM launched
  JOIN names ON names.id = call
  LEFT JOIN processes ON processes.rank = launched.rank AND processes.process = launched.process
  LEFT JOIN devices ON devices.rank = launched.rank AND devices.device = launched.device
WHERE {calls}
"""


def _copy_rule(
    name: str,
    doc: str,
    *,
    copies: str,
    calls: str,
    advice: str,
    none: str,
    memory: Mapping[str, str],
    kinds: tuple[Cell, ...] = _KINDS,
) -> SqlRule:
    """A rule on copies and fills: conditions on `copies` and the call's name, and the columns of kinds of memory."""
    of_memory = ", ".join(f'CASE {column}{_MEMORY} ELSE {column} END AS "{title}"' for title, column in memory.items())
    return SqlRule(
        name,
        doc,
        tables={
            "copies": (
                "start", "end", "process", "device", "context", "green_context", "stream", "correlation", "kind",
                "bytes", "src_kind", "dst_kind", "src_device", "dst_device",
            ),
            "api": ("start", "process", "correlation", "name"),
            "processes": ("process", "pid"),
            "devices": ("device", "ordinal"),
        },
        requires=("copies", "api"),
        cells=(
            *cells("Duration | ns | How long it took on the GPU.", "Start | ns | When it began."),
            *kinds,
            *cells("Bytes | bytes | Size."),
            *_PLACE,
            *cells(
                "Green Context ID | int | CUDA green context.",
                "Stream ID | int | CUDA stream.",
                "API Name | text | Call that launched it.",
            ),
        ),
        map_sql=_COPIES.format(copies=copies, calls=calls, memory=of_memory),
        advice=advice,
        none=none,
    )  # fmt: skip


_SRC_AND_DST = {"Src Kind": "src_kind", "Dst Kind": "dst_kind"}
cuda_memcpy_async = _copy_rule(
    "cuda_memcpy_async",
    """Asynchronous copies from or to pageable memory, the longest first.

    Such a copy goes through a buffer, and the call returns only when that is done, so it is synchronous after all.
    """,
    memory=_SRC_AND_DST,
    copies="kind IS DISTINCT FROM 'memset' AND (src_kind = 'pageable' OR dst_kind = 'pageable')",
    calls="names.value ILIKE 'cudaMemcpy%' AND names.value ILIKE '%Async%'",
    advice=(
        "Copy from and to pinned memory (cudaMallocHost, cudaHostRegister, or pin_memory of a data loader): an "
        "asynchronous copy of pageable memory makes the calling thread wait."
    ),
    none="No asynchronous copy was from or to pageable memory.",
)
cuda_memcpy_sync = _copy_rule(
    "cuda_memcpy_sync",
    """Synchronous copies, for which the calling thread waits, the longest first.

    Copies of up to 64,000 bytes from the host to a device, and copies within a device, are left out: the call does not
    wait for them.
    """,
    memory=_SRC_AND_DST,
    copies="""kind IS DISTINCT FROM 'memset' AND NOT coalesce(kind = 'HtoD' AND bytes <= 64000, false)
  AND NOT coalesce(src_device = dst_device, false)""",
    calls="names.value ILIKE 'cudaMemcpy%' AND names.value NOT ILIKE '%Async%'",
    advice=(
        "Copy with cudaMemcpy*Async on a separate stream, from and to pinned memory, so that the thread continues and"
        " copies overlap with kernels."
    ),
    none="No synchronous copy was found.",
)
cuda_memset_sync = _copy_rule(
    "cuda_memset_sync",
    "Synchronous fills of pinned or managed memory, for which the calling thread waits, the longest first.",
    memory={"Memory Kind": "dst_kind"},
    kinds=cells("Memory Kind | text | Memory filled."),
    copies="kind = 'memset' AND dst_kind IN ('pinned', 'managed')",
    calls="names.value ILIKE 'cudaMemset%' AND names.value NOT ILIKE '%Async%'",
    advice="Fill with cudaMemset*Async, so that the calling thread goes on.",
    none="No synchronous fill of pinned or managed memory was found.",
)
cuda_api_sync = SqlRule(
    "cuda_api_sync",
    "Calls that wait for a whole device or a stream, the longest first: cudaDeviceSynchronize and"
    " cudaStreamSynchronize.",
    device=False,
    tables={
        "api": ("start", "end", "thread", "name"),
        "threads": ("thread", "process", "tid"),
        "processes": ("process", "pid"),
    },
    requires=("api",),
    cells=cells(
        "Duration | ns | How long the thread waited.",
        "Start | ns | When it began to.",
        "PID | int | Process id.",
        "TID | int | Thread id.",
        "API Name | text | Call.",
    ),
    advice=(
        "Wait for less, and later: for an event (cudaEventSynchronize, cudaStreamWaitEvent) in place of a stream, "
        "and for a stream in place of a device."
    ),
    none="No call waited for a whole device or stream.",
    map_sql="""
SELECT api.rank, "end" - start AS "Duration", start AS "Start", coalesce(pid, -1) AS "PID", coalesce(tid, -1) AS "TID",
  names.value AS "API Name"
FROM api
  JOIN names ON names.id = name
  LEFT JOIN threads ON threads.rank = api.rank AND threads.thread = api.thread
  LEFT JOIN processes ON processes.rank = api.rank AND processes.process = threads.process
WHERE api.thread IS NOT NULL AND "end" IS NOT NULL
  AND (names.value ILIKE 'cudaDeviceSynchronize%' OR names.value ILIKE 'cudaStreamSynchronize%')
""",
)

_OPERATIONS = ("kernels", "copies", "graphs")
_WORK_READS: Reads = {
    **dict.fromkeys(_OPERATIONS, ("start", "end", "process", "device", "context")),
    "overheads": ("start", "end", "process", "name"),
}
_OVERHEADS = frozenset(
    {"CUDA profiling data flush overhead", "CUDA profiling stop overhead", "CUDA profiling overhead"}
)
"""Names of the overheads that keep a GPU from work, as nsys writes them."""


class _Work(NamedTuple):
    """What kept one GPU busy for one process, by ascending starts, and the cells of `_PLACE`."""

    place: tuple[int | None, int | None, int | None]
    start: Int64
    end: Int64

    def rows(self, columns: Mapping[str, Any]) -> Any:
        table = pa.table(dict(columns))
        for cell, value in zip(_PLACE, self.place, strict=True):
            table = table.append_column(cell.title, pa.array([value] * table.num_rows, pa.int64()))
        return table


def _gpu_work(rank: Rank) -> Iterator[_Work]:
    """What ran on each GPU for each process (kernels, copies, fills, graphs), and the profiler's overhead within."""
    whole = pa.concat_tables([rank.table(name, _WORK_READS[name]) for name in _OPERATIONS]).combine_chunks()
    if not whole.num_rows:
        return
    process, device, start, end = (integers(whole.column(c), -1) for c in ("process", "device", "start", "end"))
    lost = _overheads(rank)
    order = np.lexsort((end, start, device, process))
    process, device, start, end = process[order], device[order], start[order], end[order]
    context = integers(whole.column("context"), -1)[order]
    processes, devices = rank.table("processes", ["process", "pid"]), rank.table("devices", ["device", "ordinal"])
    for (owner, gpu), rows in by_track(process, device):
        begin, close = start[rows], end[rows]
        inside = (lost[0] == owner) & (lost[1] >= begin[0]) & (lost[2] <= close.max())
        begin, close = np.concatenate((begin, lost[1][inside])), np.concatenate((close, lost[2][inside]))
        by_start = np.argsort(begin, kind="stable")
        first = int(context[rows][0])
        place = (
            look_up(processes, "pid", pa.array([owner])).to_pylist()[0],
            look_up(devices, "ordinal", pa.array([gpu])).to_pylist()[0],
            None if first < 0 else first,
        )
        yield _Work(place, begin[by_start], close[by_start])


def _overheads(rank: Rank) -> list[Int64]:
    """Process, start and end of the profiler's overheads that count."""
    table = rank.table("overheads", _WORK_READS["overheads"])
    texts = rank.texts(table.column("name").combine_chunks()).to_pylist() if table.num_rows else []
    rows = np.array([i for i, t in enumerate(texts) if t in _OVERHEADS], np.int64)
    return [integers(table.column(c), -1)[rows] for c in ("process", "start", "end")]


def _work_rows(tables: Sequence[Any], columns: Mapping[str, pa.DataType]) -> Any:
    schema = pa.schema({**columns, **{cell.title: pa.int64() for cell in _PLACE}})
    return pa.concat_tables([schema.empty_table(), *tables])


def _gaps(rank: Rank, options: Options) -> Any:
    tables = []
    for work in _gpu_work(rank):
        reach = np.maximum.accumulate(work.end)
        length = work.start[1:] - reach[:-1]
        at = np.flatnonzero(length > options["gap"] * 1_000_000)
        tables.append(work.rows({"Duration": length[at], "Start": reach[at]}))
    return _work_rows(tables, {"Duration": pa.int64(), "Start": pa.int64()})


gpu_gaps = Rule(
    "gpu_gaps",
    """Times in which a GPU had no work of a process for longer than a limit, the longest first.

    Covers the time from the start of the process' first kernel, copy or fill on the GPU to the end of its last. The
    profiler's own overhead within counts as work.
    """,
    tables=_WORK_READS,
    requires=(_OPERATIONS,),
    settings=(Option("gap", int, 500, "Gaps longer than this; ms.", least=0),),
    cells=(
        *cells(
            "Row# | int | Its place among its rank's.",
            "Duration | ns | How long it is.",
            "Start | ns | When it begins.",
        ),
        *_PLACE,
    ),
    rows=_gaps,
    advice=(
        "Before each gap, look for what the CPU did: a blocking call, input and output, or work that could overlap; "
        "`alltrace gaps` says what filled the gaps of each rank."
    ),
    none="No GPU was without work for longer than the limit between its first and its last operation.",
)


def _low_use(rank: Rank, options: Options) -> Any:
    tables = []
    for work in _gpu_work(rank):
        first, last = int(work.start[0]), int(work.end.max())
        length = -(-(last - first) // options["chunks"])
        if length <= 0:  # without length, or of a kernel that ends before it starts
            continue
        edges = np.append(np.arange(first, last, length), last)
        chunk = np.diff(edges)
        used = 100.0 * bin_load_ns(work.start, work.end, edges) / chunk
        low = used < options["threshold"]
        begins = np.flatnonzero(low & ~np.concatenate(([False], low[:-1])))
        ends = np.flatnonzero(low & ~np.concatenate((low[1:], [False])))
        weights = np.concatenate(([0.0], np.cumsum(used * chunk)))
        took = edges[ends + 1] - edges[begins]
        use = (weights[ends + 1] - weights[begins]) / took
        tables.append(work.rows({"In-Use": use, "Duration": took, "Start": edges[begins]}))
    return _work_rows(tables, {"In-Use": pa.float64(), "Duration": pa.int64(), "Start": pa.int64()})


gpu_time_util = Rule(
    "gpu_time_util",
    """Times in which a GPU was used less than a limit, the least used first.

    The time from a process' first operation on a GPU to its last is cut into chunks of equal length, the last as short
    as it must be. A chunk's use is the time of all operations in it, added up, so it can be above 100 %; the
    profiler's own overhead counts as an operation. Neighbouring chunks below the limit become one, with their mean.
    """,
    tables=_WORK_READS,
    requires=(_OPERATIONS,),
    settings=(
        Option("threshold", int, 50, "Report chunks with a use below this; %.", least=0),
        Option("chunks", int, 30, "Chunks of the time of a process on a GPU, at most 1000.", least=1, most=1000),
    ),
    cells=(
        Cell("Row#", "int", "Its place among its rank's."),
        Cell("In-Use", "percent", "Time of operations over the time.", half_up=True),
        *cells("Duration | ns | How long it is.", "Start | ns | When it begins."),
        *_PLACE,
    ),
    order=(("In-Use", "ascending"), ("Duration", "descending"), ("Start", "ascending")),
    height="In-Use",
    rows=_low_use,
    advice=(
        "Little of the GPU's time is used here: look for what the CPU did meanwhile, and for work that could run at"
        " once."
    ),
    none="No GPU was used less than the limit in any part of its time.",
)
