"""The rules on waiting for the GPU: synchronous copies and fills, asynchronous ones that are not, and calls that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.nvidia.kernel_names import MEMORY_LABELS
from alltrace.nvidia.nsys.base import Cell, SqlNsysRecipe
from alltrace.nvidia.nsys.gpu_work import PLACE
from alltrace.nvidia.nsys.rule import Rule
from alltrace.recipes.base import Chart
from alltrace.recipes.sql_recipe import SqlRecipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import RankTables

_TIMES = (Cell("Duration", "ns", "How long it took on the GPU."), Cell("Start", "ns", "When it began."))
_PLACE = (
    Cell("Bytes", "bytes", "Size."),
    *PLACE,
    Cell("Green Context ID", "int", "CUDA green context."),
    Cell("Stream ID", "int", "CUDA stream."),
    Cell("API Name", "text", "Call that launched it."),
)
_MEMORY = "".join(f" WHEN '{word}' THEN '{label}'" for word, label in MEMORY_LABELS.items())
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
SELECT launched.rank, "end" - start AS "Duration", start AS "Start", bytes AS "Bytes", pid AS "PID", ordinal AS "Device ID",
  context AS "Context ID", nullif(green_context, 0) AS "Green Context ID", stream AS "Stream ID",
  names.value AS "API Name", {memory}
FROM launched
  JOIN names ON names.id = call
  LEFT JOIN processes ON processes.rank = launched.rank AND processes.process = launched.process
  LEFT JOIN devices ON devices.rank = launched.rank AND devices.device = launched.device
WHERE {calls}
"""


class SqlRule(Rule, SqlNsysRecipe):
    """A rule with the rows of a statement."""

    def computed_input(self, options: Mapping[str, Any]) -> str | None:
        """Which rows pass the filters, and which are the first of each rank, if not all are wanted."""
        return super().computed_input(options) or ("the first rows of each rank" if options["rows"] >= 0 else None)

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The rows of the map's statement."""
        return SqlRecipe.map(self, rank, options).drop_columns(["rank"])


class CopyRule(SqlRule):
    """A rule on copies and fills with a known call.

    Attributes:
        copies: A condition on the rows of `copies`.
        calls: A condition on `names.value`, the name of the call that launched one.
        memory: Columns that hold kinds of memory, by the title of their cell.
    """

    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "copies": (
            "start", "end", "process", "device", "context", "green_context", "stream", "correlation", "kind", "bytes", "src_kind",
            "dst_kind", "src_device", "dst_device",
        ),
        "api": ("start", "process", "correlation", "name"),
        "processes": ("process", "pid"),
        "devices": ("device", "ordinal"),
    }  # fmt: skip
    requires: ClassVar[tuple[str | tuple[str, ...], ...]] = ("copies", "api")
    chart: ClassVar[Chart | None] = Chart("scatter", "Start", ("Duration",), "File")
    map_sql: ClassVar[str]
    copies: ClassVar[str]
    calls: ClassVar[str]
    memory: ClassVar[Mapping[str, str]] = {"Src Kind": "src_kind", "Dst Kind": "dst_kind"}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Compose the statement."""
        if "copies" in vars(cls):
            memory = ", ".join(f'CASE {column}{_MEMORY} ELSE {column} END AS "{title}"' for title, column in cls.memory.items())
            cls.map_sql = _COPIES.format(copies=cls.copies, calls=cls.calls, memory=memory)
        super().__init_subclass__(**kwargs)


class CudaMemcpyAsync(CopyRule):
    """Asynchronous copies from or to pageable memory, the longest first.

    Such a copy goes through a buffer, and the call returns only when that is done, so it is synchronous after all.
    """

    name = "cuda_memcpy_async"
    cells: ClassVar[tuple[Cell, ...]] = (
        *_TIMES,
        Cell("Src Kind", "text", "Memory copied from."),
        Cell("Dst Kind", "text", "Memory written."),
        *_PLACE,
    )
    advice = (
        "Copy from and to pinned memory (cudaMallocHost, cudaHostRegister, or pin_memory of a data loader): an asynchronous copy "
        "of pageable memory makes the calling thread wait."
    )
    none = "No asynchronous copy was from or to pageable memory."
    copies = "kind IS DISTINCT FROM 'memset' AND (src_kind = 'pageable' OR dst_kind = 'pageable')"
    calls = "names.value ILIKE 'cudaMemcpy%' AND names.value ILIKE '%Async%'"


class CudaMemcpySync(CopyRule):
    """Synchronous copies, for which the calling thread waits, the longest first.

    Copies of up to 64,000 bytes from the host to a device, and copies within a device, are left out: the call does not wait for
    them.
    """

    name = "cuda_memcpy_sync"
    cells: ClassVar[tuple[Cell, ...]] = (
        *_TIMES,
        Cell("Src Kind", "text", "Memory copied from."),
        Cell("Dst Kind", "text", "Memory written."),
        *_PLACE,
    )
    advice = (
        "Copy with cudaMemcpy*Async on a separate stream, from and to pinned memory, so that the thread continues and copies "
        "overlap with kernels."
    )
    none = "No synchronous copy was found."
    copies = """kind IS DISTINCT FROM 'memset' AND NOT coalesce(kind = 'HtoD' AND bytes <= 64000, false)
  AND NOT coalesce(src_device = dst_device, false)"""
    calls = "names.value ILIKE 'cudaMemcpy%' AND names.value NOT ILIKE '%Async%'"


class CudaMemsetSync(CopyRule):
    """Synchronous fills of pinned or managed memory, for which the calling thread waits, the longest first."""

    name = "cuda_memset_sync"
    cells: ClassVar[tuple[Cell, ...]] = (*_TIMES, Cell("Memory Kind", "text", "Memory filled."), *_PLACE)
    advice = "Fill with cudaMemset*Async, so that the calling thread goes on."
    none = "No synchronous fill of pinned or managed memory was found."
    copies = "kind = 'memset' AND dst_kind IN ('pinned', 'managed')"
    calls = "names.value ILIKE 'cudaMemset%' AND names.value NOT ILIKE '%Async%'"
    memory: ClassVar[Mapping[str, str]] = {"Memory Kind": "dst_kind"}


class CudaApiSync(SqlRule):
    """Calls that wait for a whole device or a stream, the longest first: cudaDeviceSynchronize and cudaStreamSynchronize."""

    name = "cuda_api_sync"
    device = False
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "api": ("start", "end", "thread", "name"),
        "threads": ("thread", "process", "tid"),
        "processes": ("process", "pid"),
    }
    requires: ClassVar[tuple[str | tuple[str, ...], ...]] = ("api",)
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("Duration", "ns", "How long the thread waited."),
        Cell("Start", "ns", "When it began to."),
        Cell("PID", "int", "Process id."),
        Cell("TID", "int", "Thread id."),
        Cell("API Name", "text", "Call."),
    )
    chart: ClassVar[Chart | None] = Chart("scatter", "Start", ("Duration",), "File")
    advice = (
        "Wait for less, and later: for an event (cudaEventSynchronize, cudaStreamWaitEvent) in place of a stream, and for a stream "
        "in place of a device."
    )
    none = "No call waited for a whole device or stream."
    map_sql = """
SELECT api.rank, "end" - start AS "Duration", start AS "Start", coalesce(pid, -1) AS "PID", coalesce(tid, -1) AS "TID",
  names.value AS "API Name"
FROM api
  JOIN names ON names.id = name
  LEFT JOIN threads ON threads.rank = api.rank AND threads.thread = api.thread
  LEFT JOIN processes ON processes.rank = api.rank AND processes.process = threads.process
WHERE api.thread IS NOT NULL AND "end" IS NOT NULL
  AND (names.value ILIKE 'cudaDeviceSynchronize%' OR names.value ILIKE 'cudaStreamSynchronize%')
"""
