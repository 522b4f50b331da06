"""Which tables of an export become which canonical tables, as plain declarations."""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Literal, NamedTuple

from alltrace.trace.schema import TABLES

# CUDA: kernels, copies, API calls, waits, graphs, memory, page faults.


# The vocabulary of the mapping: from which source columns, and how, a canonical column is made.

How = Literal["copy", "loose", "id", "string", "text", "thread", "process", "device", "words", "flag", "constant"]


class Field(NamedTuple):
    """How one canonical column is made."""

    # `copy`: the value, which must fit the canonical type. `loose`: the value, null if it does not fit. `id`: the
    # value, null if it is 2^32-1, with which CUPTI marks what does not apply. `string`: the name with the id in
    # `StringIds` that the column has. `text`: the name in the column itself. `thread` and `process`: the row of a
    # global thread or process id. `device`: the row of a CUDA ordinal. `words`: the word at the number in `words`.
    # `flag`: whether the number is not 0. `constant`: always `word`.
    how: How
    column: str | None = None  # the source column
    words: tuple[str, ...] = ()  # the words of an enum
    word: str | None = None  # the constant
    # for `string`: words for the number in the column `otherwise_column` if the name is null
    otherwise: tuple[str, ...] = ()
    otherwise_column: str | None = None  # see `otherwise`


class Source(NamedTuple):
    """How the rows of one table of the export become rows of one canonical table."""

    table: str  # the canonical table
    source: str  # the table of the export; one that ends in `*` means all tables with that beginning
    fields: dict[str, Field]  # canonical column to field; the columns not named are null
    # column of the export and number: only rows with that number there are events, unless the column is missing
    only: tuple[str, int] | None = None


def copy(column: str) -> Field:
    """The value itself."""
    return Field("copy", column)


def loose(column: str) -> Field:
    """The value if it fits; an id that CUPTI marks as invalid has all bits set and does not."""
    return Field("loose", column)


def identifier(column: str) -> Field:
    """The value if CUPTI does not mark it as invalid."""
    return Field("id", column)


def string(column: str) -> Field:
    """The name with the id in the column."""
    return Field("string", column)


def words(choice: tuple[str, ...], column: str) -> Field:
    """The word at the number."""
    return Field("words", column, words=choice)


def constant(word: str, choice: tuple[str, ...] = ()) -> Field:
    """Always the same word."""
    return Field("constant", words=choice or (word,), word=word)


THREAD = {"thread": Field("thread", "globalTid"), "process": Field("process", "globalTid")}
PROCESS = {"process": Field("process", "globalPid")}
TIMES = {"start": copy("start"), "end": copy("end")}


COPY_KINDS = (
    "unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "UvmHtoD", "UvmDtoH",
    "UvmDtoD", "memset",
)  # fmt: skip
"""CUPTI's numbers of the kinds of copies, and our own last one."""

MEMORY_KINDS = ("pageable", "pinned", "device", "array", "managed", "device-static", "managed-static", "unknown")
SYNC_KINDS = ("unknown", "event", "stream-wait", "stream", "context")

_DEVICE = {"device": Field("device", "deviceId")}
_GPU = {
    **TIMES,
    **PROCESS,
    **_DEVICE,
    "context": loose("contextId"),
    "green_context": loose("greenContextId"),
    "stream": copy("streamId"),
    "correlation": copy("correlationId"),
}

CUDA = (
    Source(
        "kernels",
        "CUPTI_ACTIVITY_KIND_KERNEL",
        {
            **_GPU,
            "name": string("demangledName"),
            "short_name": string("shortName"),
            "mangled_name": string("mangledName"),
            "grid_x": copy("gridX"),
            "grid_y": copy("gridY"),
            "grid_z": copy("gridZ"),
            "block_x": copy("blockX"),
            "block_y": copy("blockY"),
            "block_z": copy("blockZ"),
            "registers": copy("registersPerThread"),
            "static_shared_memory": copy("staticSharedMemory"),
            "dynamic_shared_memory": copy("dynamicSharedMemory"),
            "shared_memory": copy("sharedMemoryExecuted"),
            "local_memory_per_thread": loose("localMemoryPerThread"),
            "local_memory": loose("localMemoryTotal"),
            "graph_node": copy("graphNodeId"),
            "graph": copy("graphId"),
            "cluster_x": loose("clusterX"),
            "cluster_y": loose("clusterY"),
            "cluster_z": loose("clusterZ"),
        },
    ),
    Source(
        "copies",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        {
            **_GPU,
            "kind": words(COPY_KINDS[:-1], "copyKind"),
            "bytes": copy("bytes"),
            "src_kind": words(MEMORY_KINDS, "srcKind"),
            "dst_kind": words(MEMORY_KINDS, "dstKind"),
            "src_device": Field("device", "srcDeviceId"),
            "dst_device": Field("device", "dstDeviceId"),
            "address": copy("virtualAddress"),
            "migration_cause": loose("migrationCause"),
            "graph_node": copy("graphNodeId"),
        },
    ),
    Source(
        "copies",
        "CUPTI_ACTIVITY_KIND_MEMSET",
        {
            **_GPU,
            "kind": constant("memset", COPY_KINDS),
            "bytes": copy("bytes"),
            "dst_kind": words(MEMORY_KINDS, "memKind"),
            "value": copy("value"),
            "graph_node": copy("graphNodeId"),
        },
    ),
    Source(
        "api",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        {
            **TIMES,
            **THREAD,
            "correlation": copy("correlationId"),
            "name": string("nameId"),
            "return_value": loose("returnValue"),
            "kind": words(("runtime", "driver"), "eventClass"),
        },
    ),
    Source(
        "syncs",
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        {
            **TIMES,
            **PROCESS,
            **_DEVICE,
            "context": loose("contextId"),
            "stream": identifier("streamId"),
            "correlation": copy("correlationId"),
            "kind": words(SYNC_KINDS, "syncType"),
            "event": identifier("eventId"),
        },
    ),
    Source(
        "graphs",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        {**_GPU, "graph": copy("graphId"), "graph_exec": copy("graphExecId")},
    ),
    Source(
        "memory",
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        {
            "time": copy("start"),
            **PROCESS,
            **_DEVICE,
            "stream": copy("streamId"),
            "correlation": copy("correlationId"),
            "kind": words(("allocate", "free"), "memoryOperationType"),
            "memory": words(MEMORY_KINDS, "memKind"),
            "bytes": copy("bytes"),
            "address": copy("address"),
            "name": Field("text", "name"),
        },
    ),
    Source(
        "page_faults",
        "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
        {
            "start": copy("start"),
            **PROCESS,
            "kind": constant("cpu", ("cpu", "gpu")),
            "address": copy("address"),
            "instruction": copy("originalFaultPc"),
            "source": string("CpuInstruction"),
            "module": string("module"),
        },
    ),
    Source(
        "page_faults",
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
        {
            **TIMES,
            **PROCESS,
            **_DEVICE,
            "kind": constant("gpu", ("cpu", "gpu")),
            "address": copy("address"),
            "count": copy("numberOfPageFaults"),
            "access": loose("faultAccessType"),
        },
    ),
)


# What runs on the CPU: MPI, UCX, the operating system, OpenACC, OpenMP, the profiler itself, scheduling.

MPI_KINDS = ("p2p", "collective", "start-wait", "other")
UCX_KINDS = ("submit", "progress", "event")
OPENACC_KINDS = ("data", "launch", "other")
OVERHEAD_TYPES = (
    "undefined", "unknown", "driver compiler", "buffer flush", "instrumentation", "resource creation or destruction",
    "module loading", "lazy function loading", "command buffer full",
)  # fmt: skip
"""CUPTI's numbers of the kinds of overhead."""

_OSRT_CALL = 27  # other classes say when the profiler began and ceased to record calls

_CALL = {**TIMES, **THREAD}
_MPI = {**_CALL, "name": string("textId")}
_UCX = {**_MPI, "bytes": copy("packedSize"), "tag": copy("tag"), "peer": copy("peerWorkerUid")}
_OPENACC = {
    **_CALL,
    "name": string("nameId"),
    "event_kind": loose("eventKind"),
    "file": string("srcFile"),
    "line": loose("lineNo"),
    "function": string("funcName"),
}
_OVERHEAD = {**_CALL, "name": Field("string", "nameId", otherwise=OVERHEAD_TYPES, otherwise_column="overheadType")}

HOST = (
    Source(
        "mpi",
        "MPI_P2P_EVENTS",
        {
            **_MPI,
            "kind": constant("p2p", MPI_KINDS),
            "bytes": copy("size"),
            "communicator": copy("commHandle"),
            "peer": loose("remoteRank"),
            "tag": copy("tag"),
            "request": copy("requestHandle"),
        },
    ),
    Source(
        "mpi",
        "MPI_COLLECTIVES_EVENTS",
        {
            **_MPI,
            "kind": constant("collective", MPI_KINDS),
            "sent_bytes": copy("size"),
            "recv_bytes": copy("recvSize"),
            "communicator": copy("commHandle"),
            "root": loose("rootRank"),
            "request": copy("requestHandle"),
        },
    ),
    Source(
        "mpi",
        "MPI_START_WAIT_EVENTS",
        {**_MPI, "kind": constant("start-wait", MPI_KINDS), "request": copy("requestHandle")},
    ),
    Source("mpi", "MPI_OTHER_EVENTS", {**_MPI, "kind": constant("other", MPI_KINDS)}),
    Source("ucx", "UCP_SUBMIT_EVENTS", {**_UCX, "kind": constant("submit", UCX_KINDS)}),
    Source("ucx", "UCP_PROGRESS_EVENTS", {**_UCX, "kind": constant("progress", UCX_KINDS)}),
    Source("ucx", "UCP_EVENTS", {**_MPI, "kind": constant("event", UCX_KINDS)}),
    Source(
        "osrt",
        "OSRT_API",
        {
            **_CALL,
            "name": string("nameId"),
            "return_value": copy("returnValue"),
            "nesting_level": loose("nestingLevel"),
        },
        only=("eventClass", _OSRT_CALL),
    ),
    *(
        Source("syscalls", table, {**_CALL, "name": string("nameId"), "return_value": copy("returnValue")})
        for table in ("SYSCALL", "SYSCALLS", "SYSCALL_API", "SYSCALL_EVENTS")
    ),
    Source(
        "openacc",
        "CUPTI_ACTIVITY_KIND_OPENACC_DATA",
        {**_OPENACC, "kind": constant("data", OPENACC_KINDS), "bytes": copy("bytes"), "variable": string("varName")},
    ),
    Source(
        "openacc",
        "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH",
        {**_OPENACC, "kind": constant("launch", OPENACC_KINDS), "kernel": string("kernelName")},
    ),
    Source("openacc", "CUPTI_ACTIVITY_KIND_OPENACC_OTHER", {**_OPENACC, "kind": constant("other", OPENACC_KINDS)}),
    Source("openmp", "OPENMP_EVENT_KIND_*", {**_CALL, "name": string("nameId"), "event_kind": loose("eventKind")}),
    Source("overheads", "PROFILER_OVERHEAD", _OVERHEAD),
    Source("overheads", "CUPTI_ACTIVITY_KIND_OVERHEAD", _OVERHEAD),
    Source(
        "sched",
        "SCHED_EVENTS",
        {"time": copy("start"), **THREAD, "cpu": loose("cpu"), "scheduled_in": Field("flag", "isSchedIn")},
    ),
)

_LONGEST_VERSION = 10

SOURCES: tuple[Source, ...] = (*CUDA, *HOST)


def find_table(tables: Collection[str], name: str) -> str | None:
    """The table called `name`, or else its version with the highest suffix `_V<n>`, or None."""
    return name if name in tables else _newest(tuple(tables)).get(name)


@lru_cache(8)
def _newest(tables: tuple[str, ...]) -> dict[str, str]:
    """The table with the highest suffix `_V<n>` of each name."""
    versions = [(int(t[len(stem) + 2 :]), stem, t) for t in reversed(tables) if (stem := _stem(t)) != t]
    return {stem: table for _, stem, table in sorted(versions, key=itemgetter(0))}


_NEEDED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "NVTX_EVENTS": (("ranges", "marks"), ("start", "eventType")),
    "NVTXT_EVENTS": (("ranges", "marks"), ("start", "eventType")),
    "GPU_METRICS": (("gpu_metrics",), ("timestamp", "typeId", "metricId", "value")),
    "NET_NIC_METRIC": (("nic_metrics",), ("start", "end", "metricsListId", "metricsIdx", "value")),
    "NET_IB_SWITCH_METRIC": (("switch_metrics",), ("start", "end", "metricsListId", "metricsIdx", "value")),
    "COMPOSITE_EVENTS": (("samples",), ("start",)),
    "OSRT_FILE_ACCESS_EVENTS": (("file_accesses",), ("startedAt", "fileAccessId")),
}
"""Tables that no `Source` maps: their canonical tables, and the columns that their rows require."""


def missing_columns(table: str, columns: Collection[str]) -> list[str]:
    """The columns that a table of `_NEEDED` cannot be read without, and lacks."""
    return [c for c in _NEEDED[_stem(table)][1] if c not in columns]


def unreadable(tables: Mapping[str, Collection[str]]) -> Iterator[tuple[str, tuple[str, ...], list[str]]]:
    """The tables of an export that cannot be read: the canonical table of each, and the columns it lacks for that."""
    for stem, (canonical, _) in _NEEDED.items():
        table = find_table(tables, stem)
        if table is not None and (missing := missing_columns(table, tables[table])):
            yield table, canonical, missing
    for made_of in dict.fromkeys(source.table for source in SOURCES):
        for table, source in sources_of(made_of, tables):
            time = source.fields.get(TABLES[made_of].order or "")
            if time is not None and time.column is not None and time.column not in tables[table]:
                yield table, (made_of,), [time.column]


_OTHERS_READ = re.compile(
    r"(ANALYSIS|TARGET_INFO|META_DATA|EXPORT_META_DATA|ENUM|MPI_(RANKS|COMMUNICATORS)|NVTX_PAYLOAD|GENERIC_EVENT|"
    r"OSRT_FILE_ACCESS|"
    r"NIC_ID_MAP|SAMPLING_CALLCHAINS|DIAGNOSTIC_EVENT|CUPTI_ACTIVITY_KIND_CUDA_EVENT)(_|S$|$)"
)
"""Tables that complete rows of others, or say something of the report."""
_NAMED_BY_NSYS = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
"""As Nsight Systems names tables of events; `nsys stats` and others add further tables to an export."""


def unread(tables: Collection[str]) -> Iterator[str]:
    """The tables of an export, by name, whose events become rows of no canonical table."""
    read = {raw for canonical in TABLES for raw, _ in sources_of(canonical, tables)}
    for table in sorted(tables):
        stem = _stem(table)
        if (
            table not in read
            and stem not in _NEEDED
            and not _OTHERS_READ.match(stem)
            and _NAMED_BY_NSYS.fullmatch(table)
        ):
            yield table


def sources_of(table: str, tables: Collection[str]) -> list[tuple[str, Source]]:
    """The tables of an export that hold rows of a canonical table, each with its mapping."""
    return _sources(tuple(tables)).get(table, [])


@lru_cache(8)  # the reports of a job mostly have the same tables
def _sources(tables: tuple[str, ...]) -> dict[str, list[tuple[str, Source]]]:
    by_table: dict[str, list[tuple[str, Source]]] = {}
    for source in SOURCES:
        by_table.setdefault(source.table, []).extend(_matching(source, tables))
    return by_table


def _matching(source: Source, tables: tuple[str, ...]) -> Iterator[tuple[str, Source]]:
    if not source.source.endswith("*"):
        table = find_table(tables, source.source)
        if table:
            yield table, source
    else:
        beginning = source.source[:-1]
        stems = sorted({_stem(t) for t in tables if t.startswith(beginning)})
        for stem in stems:
            table = find_table(tables, stem)
            if table:
                kind = stem[len(beginning) :].lower().replace("_", "-")
                yield table, Source(source.table, table, {**source.fields, "kind": constant(kind)})


def _stem(table: str) -> str:
    head, mark, version = table.rpartition("_V")
    return head if mark and version.isdecimal() and len(version) < _LONGEST_VERSION else table
