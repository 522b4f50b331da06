"""The canonical tables: what every reader writes, every run stores and every recipe reads.

The declarations are plain data, so that this module is light and the documentation can be checked against it;
`Table.arrow_schema` turns one into a `pyarrow.Schema`.

Conventions, for every table:

* `start`, `end` and `time` are int64 nanoseconds. In a file they are on the clock of the rank's host, relative to the
  rank's time base (see `alltrace.run.clock`); what a run hands out is on the run's aligned clock. Intervals are
  half-open.
* A column of type `name` holds the int64 id of an interned string (`alltrace.trace.names`); the text is in `names`.
* `process`, `thread` and `device` are row numbers of the rank's dictionaries `processes`, `threads` and `devices`.
* A column that a source does not have is null, not 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from alltrace.trace.columns import Column as Column
from alltrace.trace.columns import ColumnType, schema_of

FORMAT_VERSION = 9


class Table(NamedTuple):
    name: str  # the table's name, which is also its file's
    doc: str  # what a row is
    columns: tuple[Column, ...]  # the columns, in order
    # the columns that identify the track of a row; files are sorted by these and then by `order`
    track: tuple[str, ...] = ()
    order: str | None = "start"  # the column of time that rows are sorted by within a track, or None for a dictionary

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @property
    def sort_keys(self) -> tuple[str, ...]:
        return (*self.track, *([self.order] if self.order else []))

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.name}.{name}")

    def time_columns(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns if c.type == "time")

    def name_columns(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns if c.type == "name")

    def arrow_schema(self, columns: Iterable[str] | None = None) -> Any:
        return schema_of(self.columns if columns is None else tuple(self.column(c) for c in columns))


def _c(name: str, kind: ColumnType, doc: str, unit: str | None = None) -> Column:
    return Column(name, kind, "ns" if kind == "time" else unit, doc)


_START = _c("start", "time", "start")
_END = _c("end", "time", "end")
_TIME = _c("time", "time", "the moment")
_PROCESS = _c("process", "int32", "row of `processes`")
_THREAD = _c("thread", "int32", "row of `threads`")
_DEVICE = _c("device", "int32", "row of `devices`")
_CONTEXT = _c("context", "int32", "CUDA context id")
_GREEN = _c("green_context", "int32", "CUDA green context id")
_STREAM = _c("stream", "int64", "CUDA stream id")
_CORRELATION = _c("correlation", "int64", "joins an API call and the GPU work it launched, within a process")
_NAME = _c("name", "name", "name")
_GRAPH_NODE = _c("graph_node", "int64", "CUDA graph node id")

_GPU_TRACK = ("process", "device", "stream")

# fmt: off
_EVENT_TABLES = (
    Table(
        "kernels",
        "One GPU kernel.",
        (
            _START, _END, _PROCESS, _DEVICE, _CONTEXT, _GREEN, _STREAM, _CORRELATION,
            _c("name", "name", "demangled name with its arguments"),
            _c("short_name", "name", "name without template arguments and parameters"),
            _c("mangled_name", "name", "name as the linker knows it"),
            _c("kind", "enum",
                "class by the kernel rules: compute, collective, p2p, exchange, unclassified, meeting or another "
                "class of a rule"),
            _c("grid_x", "int32", "blocks in x"), _c("grid_y", "int32", "blocks in y"),
            _c("grid_z", "int32", "blocks in z"), _c("block_x", "int32", "threads in x"),
            _c("block_y", "int32", "threads in y"), _c("block_z", "int32", "threads in z"),
            _c("registers", "int32", "registers per thread"),
            _c("static_shared_memory", "int32", "static shared memory per block", "bytes"),
            _c("dynamic_shared_memory", "int32", "dynamic shared memory per block", "bytes"),
            _c("shared_memory", "int32", "shared memory per block as executed", "bytes"),
            _c("local_memory_per_thread", "int32", "local memory per thread", "bytes"),
            _c("local_memory", "int64", "local memory that the driver keeps for the launch", "bytes"),
            _c("occupancy_percent", "int32", "achieved occupancy in percent, as the profiler of PyTorch estimates it"),
            _GRAPH_NODE, _c("graph", "int64", "CUDA graph id"),
            _c("cluster_x", "int32", "blocks of a cluster in x"), _c("cluster_y", "int32", "blocks of a cluster in y"),
            _c("cluster_z", "int32", "blocks of a cluster in z"),
        ),
        _GPU_TRACK,
    ),
    Table(
        "copies",
        "One copy or fill on a GPU: memcpy, memset, peer copy, unified-memory migration.",
        (
            _START, _END, _PROCESS, _DEVICE, _CONTEXT, _GREEN, _STREAM, _CORRELATION,
            _c("kind", "enum",
                "memset, or the direction: HtoD, DtoH, DtoD, HtoH, PtoP, HtoA, AtoH, AtoA, AtoD, DtoA, UvmHtoD, "
                "UvmDtoH, UvmDtoD, unknown"),
            _c("bytes", "int64", "size", "bytes"),
            _c("src_kind", "enum",
                "memory copied from: pageable, pinned, device, array, managed, device-static, managed-static, unknown"),
            _c("dst_kind", "enum", "memory written, same words"),
            _c("src_device", "int32", "device copied from, row of `devices`"),
            _c("dst_device", "int32", "device written, row of `devices`"),
            _c("value", "int64", "value of a memset"),
            _c("address", "int64", "virtual address of a migration"),
            _c("migration_cause", "int32", "cause of a unified-memory migration, as CUPTI numbers it"),
            _GRAPH_NODE,
            _c("collective", "bool",
                "true where a call of NCCL launched it as part of a collective by copy engines; else null"),
        ),
        _GPU_TRACK,
    ),
    Table(
        "api",
        "One call of the CUDA runtime or driver API.",
        (
            _START, _END, _PROCESS, _THREAD, _CORRELATION,
            _c("name", "name", "function as recorded, with a version suffix where there is one"),
            _c("return_value", "int32", "CUDA error code"),
            _c("kind", "enum", "runtime or driver"),
        ),
        ("thread",),
    ),
    Table(
        "syncs",
        "One wait for a stream, an event or a context.",
        (
            _START, _END, _PROCESS, _DEVICE, _CONTEXT, _STREAM, _CORRELATION,
            _c("kind", "enum", "event, stream-wait, stream, context or unknown"),
            _c("event", "int64", "CUDA event id"),
            _c("record_correlation", "int64",
                "of a wait for an event: correlation of the call that recorded it; null if unknown"),
            _c("record_stream", "int64", "CUDA stream that the event was recorded on"),
        ),
        _GPU_TRACK,
    ),
    Table(
        "graphs",
        "One launch of a whole CUDA graph, traced as a whole: the kernels inside are not known.",
        (
            _START, _END, _PROCESS, _DEVICE, _CONTEXT, _GREEN, _STREAM, _CORRELATION,
            _c("graph", "int64", "CUDA graph id"),
            _c("graph_exec", "int64", "executable graph id"),
        ),
        _GPU_TRACK,
    ),
    Table(
        "ranges",
        "One named range: NVTX push/pop or start/end, or record_function.",
        (
            _START, _c("end", "time", "end; null when it was still open at the end of the capture"), _PROCESS, _THREAD,
            _c("end_thread", "int32", "thread that ended a start/end range, row of `threads`"),
            _c("domain", "name", "NVTX domain; null for the default one"),
            _NAME,
            _c("kind", "enum", "pushpop or startend"),
            _c("depth", "int16", "length of the chain of parents, 0 for an outermost range; null for start/end ranges"),
            _c("parent", "int64", "row number, in this file, of the innermost enclosing push/pop range of the thread"),
            _c("category", "int64", "NVTX category id"),
            _c("color", "int64", "ARGB color"),
            _c("payload", "text", "payload: a number, or JSON"),
            _c("sequence", "int64",
                "of an operator of PyTorch: number that a forward operator shares with its backward"),
            _c("source_row", "int64", "number of the event among those of its report, from 1"),
        ),
        ("thread",),
    ),
    Table(
        "frames",
        "One call of a function of the interpreter, of a profiler that follows them all: the stacks of operators.",
        (_START, _END, _PROCESS, _THREAD, _NAME),
        ("thread",),
    ),
    Table(
        "marks",
        "One NVTX mark.",
        (
            _TIME, _PROCESS, _THREAD, _c("domain", "name", "NVTX domain"), _NAME,
            _c("category", "int64", "NVTX category id"), _c("color", "int64", "ARGB color"),
            _c("payload", "text", "payload: a number, or JSON"),
        ),
        ("thread",),
        "time",
    ),
    Table(
        "collectives",
        "One communication operation on one rank.",
        (
            _c("start", "time", "start on the device; null if only the call is known"),
            _c("end", "time", "end on the device"),
            _c("api_start", "time", "start of the call"),
            _c("api_end", "time",
                "end of the call; of an MPI call that only begins an operation the end of the call that completes it"),
            _c("wait_start", "time",
                "start of the call that completes what an MPI call only began; null where one call does both"),
            _PROCESS, _THREAD, _DEVICE, _STREAM,
            _c("communicator", "name", "identity of the communicator, equal on all its ranks where that is known"),
            _c("op", "name",
                "operation: AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, Send, Recv, ..."),
            _c("sequence", "int64", "sequence number within the communicator"),
            _c("bytes", "int64", "message size of this rank", "bytes"),
            _c("count", "int64", "elements"), _c("datatype", "name", "element type"),
            _c("peer", "int32", "peer of a send or receive, as a rank of the communicator"),
            _c("tag", "int64", "tag of an MPI message; below 0 if a receive takes any"),
            _c("root", "int32", "root of a rooted operation, as a rank of the communicator"),
            _c("synchronous", "bool",
                "of an MPI send: true if it ends only once its receive has begun, false if it never waits for "
                "that; null if its size decides"),
            _c("tested", "bool",
                "true if a call that tests completed an MPI operation: it is not known how long the rank waited"),
            _c("group_rank", "int32", "this rank's number in the communicator"),
            _c("group_size", "int32", "ranks of the communicator"),
            _c("evidence", "enum",
                "what the row was made from: trace, nvtx+kernel, nvtx+copy (copy engines), nvtx, kernel, exchange "
                "(a kernel that waits for peers inside), mpi; with +log where NCCL's log filled something"),
        ),
        ("device", "stream"),
    ),
    Table(
        "mpi",
        "One MPI call or request.",
        (
            _START, _END, _PROCESS, _THREAD, _NAME,
            _c("kind", "enum", "p2p, collective, start-wait or other"),
            _c("bytes", "int64", "size of the message, as `bytes` of `collectives`", "bytes"),
            _c("sent_bytes", "int64", "bytes that a collective sends, as the profiler counts them", "bytes"),
            _c("recv_bytes", "int64", "bytes that a collective receives, as the profiler counts them", "bytes"),
            _c("communicator", "int64",
                "handle of the communicator within the process; below 0 if the handle was used before"),
            _c("peer", "int32", "remote rank of a point-to-point call"),
            _c("tag", "int64", "message tag"), _c("root", "int32", "root rank of a collective"),
            _c("request", "int64", "request handle"),
        ),
        ("thread",),
    ),
    Table(
        "ucx",
        "One UCX operation.",
        (
            _START, _END, _PROCESS, _THREAD, _NAME, _c("kind", "enum", "submit, progress or event"),
            _c("bytes", "int64", "message size", "bytes"), _c("tag", "int64", "message tag"),
            _c("peer", "int64", "unique id of the peer's worker"),
        ),
        ("thread",),
    ),
    Table(
        "osrt",
        "One call of the operating-system runtime.",
        (
            _START, _END, _PROCESS, _THREAD, _NAME, _c("return_value", "int64", "returned value"),
            _c("nesting_level", "int32", "calls of the thread that enclose it"),
        ),
        ("thread",),
    ),
    Table(
        "file_accesses",
        "One access to an opened file: opening, closing, reading or writing.",
        (
            _START, _END, _PROCESS, _THREAD, _NAME, _c("file", "name", "path of the file"),
            _c("access", "int64", "number of the opened file; the same from opening to closing"),
            _c("kind", "enum", "read, write, open, close or other"),
            _c("bytes", "int64", "bytes read or written", "bytes"),
        ),
        ("thread",),
    ),
    Table(
        "syscalls",
        "One system call.",
        (_START, _END, _PROCESS, _THREAD, _NAME, _c("return_value", "int64", "returned value")),
        ("thread",),
    ),
    Table(
        "openacc",
        "One OpenACC construct.",
        (
            _START, _END, _PROCESS, _THREAD, _NAME, _c("kind", "enum", "data, launch or other"),
            _c("event_kind", "int32", "event, as OpenACC numbers it"),
            _c("bytes", "int64", "bytes of a data event", "bytes"),
            _c("file", "name", "source file"), _c("line", "int32", "line of the source file"),
            _c("function", "name", "function"), _c("kernel", "name", "kernel launched"),
            _c("variable", "name", "variable moved"),
        ),
        ("thread",),
    ),
    Table(
        "openmp",
        "One OpenMP event.",
        (
            _START, _END, _PROCESS, _THREAD, _NAME, _c("kind", "enum",
                "table of the source: task, parallel, sync, work, target, ..."),
            _c("event_kind", "int32", "event, as the source numbers it"),
        ),
        ("thread",),
    ),
    Table(
        "gpu_metrics",
        "One sample of a GPU metric.",
        (_TIME, _DEVICE, _c("metric", "name", "metric"), _c("value", "float64", "value, in the metric's unit")),
        ("device", "metric"),
        "time",
    ),
    Table(
        "nic_metrics",
        "One sample of a network adapter's metric.",
        (
            _START, _END, _c("nic", "name", "adapter"), _c("guid", "int64", "adapter's GUID"),
            _c("metric", "name", "metric"), _c("value", "float64", "value, in the metric's unit"),
            _c("model", "name", "adapter's model"),
        ),
        ("nic", "metric"),
    ),
    Table(
        "switch_metrics",
        "One sample of a network switch's metric.",
        (
            _START, _END, _c("guid", "int64", "switch's GUID"), _c("metric", "name", "metric"),
            _c("value", "float64", "value, in the metric's unit"),
        ),
        ("guid", "metric"),
    ),
    Table(
        "generic_metrics",
        "One value of another sampler: storage, EFA, power, ...",
        (
            _TIME, _c("source", "name", "sampler"), _c("metric", "name", "metric, with its device where there is one"),
            _c("value", "float64", "value"),
        ),
        ("source", "metric"),
        "time",
    ),
    Table(
        "memory",
        "One allocation or release of device memory.",
        (
            _TIME, _PROCESS, _DEVICE, _STREAM, _CORRELATION, _c("kind", "enum", "allocate or free"),
            _c("memory", "enum", "pageable, pinned, device, array, managed, device-static, managed-static, unknown"),
            _c("bytes", "int64", "size", "bytes"), _c("address", "int64", "virtual address"),
            _c("name", "name", "variable, for static memory"),
        ),
        ("process", "device"),
        "time",
    ),
    Table(
        "allocations",
        "One block that PyTorch's allocator allocated or freed, on a GPU or the host.",
        (
            _TIME, _PROCESS, _THREAD, _c("device", "int32", "row of `devices`; null for memory of the host"),
            _c("memory", "enum",
                "what has the memory: cpu, cuda, hip, xpu, mtia, ..., device with PyTorch's number of its kind, or "
                "cuda snapshot"),
            _c("kind", "enum", "allocate or free"), _c("bytes", "int64", "size of the block", "bytes"),
            _c("address", "int64", "virtual address of the block"),
            _c("allocated_bytes", "int64", "device memory that the allocator has handed out, after this event",
                "bytes"),
            _c("reserved_bytes", "int64", "memory that the allocator has reserved on the device", "bytes"),
            _c("stack", "name",
                "Python functions that allocated the block, the outermost first, from a memory snapshot"),
            _c("source_row", "int64", "number of the event in its report, from 1"),
        ),
        ("process", "device"),
        "time",
    ),
    Table(
        "kernel_counters",
        "One counter of one kernel, measured while kernels ran one by one: the value is exact, the time is not.",
        (
            _c("time", "time",
                "start of the call that launched the kernel; if unknown, a moment that only gives the order"),
            _PROCESS, _DEVICE, _c("thread", "int32", "thread of the call; null if unknown"), _CORRELATION,
            _c("number", "int64", "the kernel's number among those measured on its device, from 1"), _NAME,
            _c("metric", "name", "metric, with the name in CUPTI"),
            _c("value", "float64", "value, in the metric's unit"),
        ),
        ("process", "device"),
        "time",
    ),
    Table(
        "page_faults",
        "One unified-memory page fault.",
        (
            _START, _END, _PROCESS, _DEVICE, _c("kind", "enum", "cpu or gpu"),
            _c("address", "int64", "virtual address"), _c("count", "int64", "faults grouped in the row"),
            _c("instruction", "int64", "instruction address of a CPU fault"),
            _c("source", "name", "code of a CPU fault, resolved"), _c("module", "name", "module of a CPU fault"),
            _c("access", "int32", "access type, as CUPTI numbers it"),
        ),
        ("process",),
    ),
    Table(
        "overheads",
        "One interval in which the profiler itself held the program up.",
        (_START, _END, _PROCESS, _THREAD, _NAME),
        ("thread",),
    ),
    Table(
        "suspects",
        "One row of a report that cannot be true: what the report says, why that cannot be, and what is believed "
        "instead.",
        (
            _START, _c("end", "time", "end, as recorded"), _PROCESS, _THREAD, _DEVICE, _STREAM, _CORRELATION,
            _c("table", "enum", "the table of the row"),
            _c("reason", "enum",
                "unreachable, backward, no time, far, too long, late, repeated, overrun, crossing, device or size: "
                "see `alltrace.run.plausibility`"),
            _c("believed_end", "time", "end that questions use; null if they leave the row out"),
            _NAME, _c("bytes", "int64", "size of a copy, as recorded", "bytes"),
        ),
        ("table",),
    ),
    Table(
        "sched",
        "One scheduling event of a thread.",
        (_TIME, _PROCESS, _THREAD, _c("cpu", "int32", "CPU"),
            _c("scheduled_in", "bool", "true when the thread starts to run")),
        ("thread",),
        "time",
    ),
    Table(
        "samples",
        "One CPU sample: the frame at the top of its call stack.",
        (
            _TIME, _PROCESS, _THREAD, _c("cpu", "int32", "CPU"),
            _c("cycles", "int64", "CPU cycles since the last sample"), _c("symbol", "name", "function at the top"),
            _c("module", "name", "module of that function"),
        ),
        ("thread",),
        "time",
    ),
)

_DICTIONARIES = (
    Table(
        "names",
        "One interned string.",
        (_c("id", "int64", "id"), _c("value", "text", "text")),
        (),
        None,
    ),
    Table(
        "processes",
        "One process of the rank.",
        (
            _PROCESS, _c("pid", "int64", "process id, in the host's or the container's numbering"), _NAME,
            _c("source_id", "int64", "the profiler's own id of the process"),
        ),
        (),
        None,
    ),
    Table(
        "threads",
        "One thread of the rank.",
        (
            _THREAD, _PROCESS, _c("tid", "int64", "thread id"), _NAME, _c("priority", "int32", "scheduling priority"),
            _c("source_id", "int64", "the profiler's own id of the thread"),
        ),
        (),
        None,
    ),
    Table(
        "devices",
        "One GPU that the rank used.",
        (
            _DEVICE, _c("ordinal", "int32", "CUDA ordinal within the process"),
            _c("gpu", "int32", "the profiler's number of the GPU"), _c("uuid", "text", "UUID"),
            _c("bus_id", "text", "PCI bus id"), _NAME, _c("sm_count", "int32", "multiprocessors"),
            _c("memory_bytes", "int64", "memory", "bytes"), _c("memory_bandwidth_bytes_per_s", "int64",
                "peak memory bandwidth", "bytes/s"), _c("clock_hz", "int64", "clock", "Hz"),
            _c("compute_major", "int32", "compute capability, major"),
            _c("compute_minor", "int32", "compute capability, minor"),
            _c("max_warps_per_sm", "int32", "warps per multiprocessor"),
            _c("max_blocks_per_sm", "int32", "blocks per multiprocessor"),
            _c("max_registers_per_sm", "int32", "registers per multiprocessor"),
            _c("max_shared_memory_per_sm", "int32", "shared memory per multiprocessor", "bytes"),
            _c("numa_node", "int32", "NUMA node of the host that it is attached to"),
        ),
        (),
        None,
    ),
    Table(
        "cpus",
        "One CPU of the rank's host.",
        (_c("cpu", "int32", "CPU, as in `sched` and `samples`"), _c("socket", "int32", "the socket that it is in")),
        (),
        None,
    ),
    Table(
        "streams",
        "One CUDA stream of the rank.",
        (
            _PROCESS, _CONTEXT, _STREAM, _c("priority", "int32", "priority"),
            _c("flag", "int32", "1 default, 2 non-blocking, 3 null stream"), _NAME,
        ),
        (),
        None,
    ),
    Table(
        "communicators",
        "One communicator as a member rank describes it.",
        (
            _c("communicator", "int64", "handle, as in `mpi`"),
            _c("uid", "int64", "unique id, equal on all its ranks; null for the world"),
            _c("group_rank", "int32", "this rank's number in it"), _c("size", "int32", "ranks"),
            _c("parent", "int64", "handle of the communicator it was made from"),
            _c("members", "text", "world ranks, comma-separated"), _PROCESS,
        ),
        (),
        None,
    ),
)

# fmt: on

TABLES: dict[str, Table] = {t.name: t for t in (*_EVENT_TABLES, *_DICTIONARIES)}
EVENT_TABLES: tuple[str, ...] = tuple(t.name for t in _EVENT_TABLES)
DICTIONARIES: tuple[str, ...] = tuple(t.name for t in _DICTIONARIES)
