"""What runs on the CPU: MPI, UCX, the operating system, OpenACC, OpenMP, the profiler itself, scheduling."""

from __future__ import annotations

from alltrace.readers.nsys.mapping.fields import THREAD, TIMES, Field, Source, constant, copy, loose, string

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
    Source("mpi", "MPI_START_WAIT_EVENTS", {**_MPI, "kind": constant("start-wait", MPI_KINDS), "request": copy("requestHandle")}),
    Source("mpi", "MPI_OTHER_EVENTS", {**_MPI, "kind": constant("other", MPI_KINDS)}),
    Source("ucx", "UCP_SUBMIT_EVENTS", {**_UCX, "kind": constant("submit", UCX_KINDS)}),
    Source("ucx", "UCP_PROGRESS_EVENTS", {**_UCX, "kind": constant("progress", UCX_KINDS)}),
    Source("ucx", "UCP_EVENTS", {**_MPI, "kind": constant("event", UCX_KINDS)}),
    Source(
        "osrt",
        "OSRT_API",
        {**_CALL, "name": string("nameId"), "return_value": copy("returnValue"), "nesting_level": loose("nestingLevel")},
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
