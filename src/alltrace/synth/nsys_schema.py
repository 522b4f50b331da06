"""The tables of an Nsight Systems export, as data: columns with their types, for two versions of the export schema.

A column is written `name:type`, with `!` after it if the column is never null and `*` if it is the primary key. Types
are those of the columnar exports; in SQLite every integer is INTEGER.
"""

from dataclasses import dataclass

_TABLES_3_7 = {
    "StringIds": "id:i32!* value:text!",
    "ProcessStreams": "globalPid:u64! filenameId:i64! contentId:i64!",
    "TARGET_INFO_SYSTEM_ENV": "globalVid:u64 devStateName:text! name:text! nameEnum:i32! value:text!",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs:u64 utcTime:text localTime:text",
    "ANALYSIS_DETAILS": "globalVid:u64! duration:u64! startTime:u64! stopTime:u64!",
    "PROCESSES": "globalPid:u64 pid:u64 name:text",
    "ThreadNames": "nameId:u64! priority:u64 globalTid:u64",
    "TARGET_INFO_GPU": (
        "vmId:i64! id:i64! name:text busLocation:text isDiscrete:bool l2CacheSize:i64 totalMemory:u64 "
        "memoryBandwidth:u64 clockRate:i64 smCount:i64 pwGpuId:i64 uuid:text luid:u64 chipName:text cuDevice:i32 "
        "ctxswDevPath:text ctrlDevPath:text revision:i64 nodeMask:i64 constantMemory:i64 maxIPC:i64 "
        "maxRegistersPerBlock:i64 maxShmemPerBlock:i64 maxShmemPerBlockOptin:i64 maxShmemPerSm:i64 "
        "maxRegistersPerSm:i64 threadsPerWarp:i64 asyncEngines:i64 maxWarpsPerSm:i64 maxBlocksPerSm:i64 "
        "maxThreadsPerBlock:i64 maxBlockDimX:i64 maxBlockDimY:i64 maxBlockDimZ:i64 maxGridDimX:i64 maxGridDimY:i64 "
        "maxGridDimZ:i64 computeMajor:i64 computeMinor:i64 smMajor:i64 smMinor:i64"
    ),
    "TARGET_INFO_CUDA_CONTEXT_INFO": (
        "nullStreamId:i64! hwId:i64! vmId:i64! processId:i64! deviceId:i64! contextId:i64! parentContextId:i64"
        " isGreenContext:bool"
    ),
    "TARGET_INFO_CUDA_STREAM": (
        "streamId:i64! hwId:i64! vmId:i64! processId:i64! contextId:i64! priority:i64! flag:i64!"
    ),
    "TARGET_INFO_GPU_METRICS": "typeId:u64! sourceId:u64! typeName:text! metricId:i64! metricName:text!",
    "GPU_METRICS": "timestamp:i64 typeId:u64! metricId:i64! value:i64!",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start:i64! end:i64! deviceId:i64! contextId:u64! greenContextId:u64 streamId:u64! correlationId:i64 "
        "globalPid:u64 demangledName:u64! shortName:u64! mangledName:u64 launchType:i64 cacheConfig:i64 "
        "registersPerThread:i64! gridX:i32! gridY:i32! gridZ:i32! blockX:i32! blockY:i32! blockZ:i32! "
        "staticSharedMemory:i32! dynamicSharedMemory:i32! localMemoryPerThread:i32! localMemoryTotal:i32! gridId:i64! "
        "sharedMemoryExecuted:i64 graphNodeId:u64 sharedMemoryLimitConfig:i64"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start:i64! end:i64! deviceId:i64! contextId:u64! greenContextId:u64 streamId:u64! correlationId:i64 "
        "globalPid:u64 bytes:u64! copyKind:u64! deprecatedSrcId:i64 srcKind:i64 dstKind:i64 srcDeviceId:i64 "
        "srcContextId:i64 dstDeviceId:i64 dstContextId:i64 migrationCause:i64 graphNodeId:u64 virtualAddress:u64"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        "start:i64! end:i64! deviceId:i64! contextId:u64! greenContextId:u64 streamId:u64! correlationId:i64 "
        "globalPid:u64 value:i64! bytes:u64! graphNodeId:u64 memKind:i64"
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        "start:i64! end:i64! deviceId:i64! contextId:u64! greenContextId:u64 streamId:u64! correlationId:i64 "
        "globalPid:u64 syncType:i64! eventId:i64!"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start:i64! end:i64! eventClass:i64! globalTid:u64 correlationId:i64 nameId:u64! returnValue:i64!"
        " callchainId:i64"
    ),
    "NVTX_EVENTS": (
        "start:i64! end:i64 eventType:i64! rangeId:u64 category:u64 color:i64 text:text globalTid:u64 endGlobalTid:u64 "
        "textId:i64 domainId:u64 uint64Value:u64 int64Value:i64 doubleValue:f64 uint32Value:i64 int32Value:i32 "
        "floatValue:f32 jsonTextId:i64 jsonText:text"
    ),
    "OSRT_API": (
        "start:i64! end:i64! eventClass:i64! globalTid:u64 nameId:u64! returnValue:i64! nestingLevel:i64"
        " callchainId:i64!"
    ),
    "MPI_RANKS": "globalTid:u64! rank:i32!",
    "MPI_COMMUNICATORS": (
        "rank:i32 timestamp:i64 commHandle:u64 parentHandle:u64 localRank:i32 size:i32 groupRoot:i32 groupRootUid:i32"
        " members:text"
    ),
    "MPI_COLLECTIVES_EVENTS": (
        "start:i64! end:i64 globalTid:u64 textId:i64 commHandle:u64 rootRank:i32 size:u64 recvSize:u64"
        " requestHandle:u64"
    ),
    "META_DATA_CAPTURE": "name:text! value:text",
    "META_DATA_EXPORT": "name:text! value:text",
}

_NEWER_KERNEL = (
    " qmdBulkReleaseDone:i64 qmdPreexitDone:i64 qmdLastCtaDone:i64 graphId:u64 clusterX:i64 clusterY:i64 clusterZ:i64 "
    "clusterSchedulingPolicy:i64 maxPotentialClusterSize:i64 maxActiveClusters:i64 sharedMemoryRequestedPercentage:i64 "
    "tensorSizeMinusOneElements:text!"
)

_TABLES_3_25 = {
    **_TABLES_3_7,
    "TARGET_INFO_SESSION_START_TIME": _TABLES_3_7["TARGET_INFO_SESSION_START_TIME"] + " systemClockNs:u64",
    "TARGET_INFO_CUDA_DEVICE": "gpuId:i64! cudaId:i64! pid:i64! uuid:text numMultiprocessors:i64",
    "GPU_METRICS": _TABLES_3_7["GPU_METRICS"] + " rawTimestamp:i64",
    "CUPTI_ACTIVITY_KIND_KERNEL": _TABLES_3_7["CUPTI_ACTIVITY_KIND_KERNEL"] + _NEWER_KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": _TABLES_3_7["CUPTI_ACTIVITY_KIND_MEMCPY"] + " copyCount:u64",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        "start:i64! end:i64! deviceId:i64! contextId:u64! greenContextId:u64 streamId:u64! correlationId:i64 "
        "globalPid:u64 deprecatedSyncType:i64 syncType:i64! eventId:i64! eventSyncId:i64"
    ),
    "NVTX_EVENTS": _TABLES_3_7["NVTX_EVENTS"] + " binaryData:text",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        "start:i64! end:i64! deviceId:i64! contextId:u64! greenContextId:u64 streamId:u64! correlationId:i64 "
        "globalPid:u64 graphId:u64! graphExecId:u64!"
    ),
    "DIAGNOSTIC_EVENT": "timestamp:i64! timestampType:i64! source:i64! severity:i64! text:text! globalPid:u64",
}

_ENUM = "id:i64!* name:text label:text"

ENUMS: dict[str, tuple[tuple[int, str, str], ...]] = {
    "ENUM_NSYS_EVENT_TYPE": ((33, "NvtxCategory", "NvtxCategory"), (34, "NvtxMark", "NvtxMark"),
        (39, "NvtxThread", "NvtxThread"), (59, "NvtxPushPopRange", "NvtxPushPopRange"),
        (60, "NvtxStartEndRange", "NvtxStartEndRange"), (70, "NvtxtPushPopRange", "NvtxtPushPopRange"),
        (71, "NvtxtStartEndRange", "NvtxtStartEndRange"), (75, "NvtxDomainCreate", "NvtxDomainCreate"),
        (76, "NvtxDomainDestroy", "NvtxDomainDestroy")),
    "ENUM_NSYS_EVENT_CLASS": ((0, "TRACE_PROCESS_EVENT_CUDA_RUNTIME", "CUDA runtime"),
        (1, "TRACE_PROCESS_EVENT_CUDA_DRIVER", "CUDA driver"), (27, "TRACE_PROCESS_EVENT_OS_RUNTIME", "OSRT runtime")),
    "ENUM_CUDA_MEMCPY_OPER": ((0, "CUDA_MEMCPY_KIND_UNKNOWN", "Unknown"),
        (1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device"), (2, "CUDA_MEMCPY_KIND_DTOH", "Device-to-Host"),
        (8, "CUDA_MEMCPY_KIND_DTOD", "Device-to-Device"), (9, "CUDA_MEMCPY_KIND_HTOH", "Host-to-Host"),
        (10, "CUDA_MEMCPY_KIND_PTOP", "Peer-to-Peer")),
    "ENUM_CUDA_MEM_KIND": ((0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable"),
        (1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned"), (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device"),
        (4, "CUDA_MEMOPR_MEMORY_KIND_MANAGED", "Managed"), (7, "CUDA_MEMOPR_MEMORY_KIND_UNKNOWN", "Unknown")),
    "ENUM_CUDA_KERNEL_LAUNCH_TYPE": ((0, "CUDA_KERNEL_LAUNCH_TYPE_UNKNOWN", "Unknown"),
        (1, "CUDA_KERNEL_LAUNCH_TYPE_REGULAR", "Regular")),
    "ENUM_CUDA_SHARED_MEM_LIMIT_CONFIG": ((0, "CUDA_SHARED_MEM_LIMIT_DEFAULT", "Default"),
        (1, "CUDA_SHARED_MEM_LIMIT_OPTIN", "Opt in")),
    "ENUM_CUDA_FUNC_CACHE_CONFIG": ((0, "CU_FUNC_CACHE_PREFER_NONE", "None"),
        (1, "CU_FUNC_CACHE_PREFER_SHARED", "Shared"), (2, "CU_FUNC_CACHE_PREFER_L1", "L1"),
        (3, "CU_FUNC_CACHE_PREFER_EQUAL", "Equal")),
    "ENUM_CUPTI_STREAM_TYPE": ((0, "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_UNKNOWN", "Unknown stream type"),
        (1, "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_DEFAULT", "Default stream"),
        (2, "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING", "Non-blocking stream"),
        (3, "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL", "Null stream")),
    "ENUM_CUPTI_SYNC_TYPE": ((0, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_UNKNOWN", "Unknown"),
        (1, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE", "Event sync"),
        (2, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT", "Stream wait sync"),
        (3, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE", "Stream sync"),
        (4, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE", "Context sync")),
}  # fmt: skip
"""The enumerations next to the events, `(id, name, label)`, with the entries that a simulated run needs."""

NEWER_ENUMS: dict[str, tuple[tuple[int, str, str], ...]] = {
    "ENUM_DIAGNOSTIC_SEVERITY_LEVEL": ((0, "UnknownLevel", "Unknown"), (1, "Info", "Info"), (2, "Warning", "Warning"),
        (3, "Error", "Error")),
    "ENUM_DIAGNOSTIC_SOURCE_TYPE": ((0, "UnknownSource", "Unknown source"), (1, "Injection", "Injection"),
        (2, "Daemon", "Daemon"), (3, "Analysis", "Analysis")),
    "ENUM_DIAGNOSTIC_TIMESTAMP_SOURCE": ((0, "UnknownTimestamp", "Unknown timestamp"),
        (1, "TargetTimestamp", "Target timestamp"), (2, "HostTimestamp", "Host timestamp")),
}  # fmt: skip
"""Those that only the newer schema has."""

PRODUCTS = {"3.7.2": "2023.4.4.54", "3.25.0": "2026.2.1.210"}
"""The version of Nsight Systems that writes each schema version."""


@dataclass(frozen=True)
class Column:
    """A column: its name, its type as written above, and whether it may be null or is the key."""

    name: str
    type: str
    required: bool
    key: bool

    @property
    def declaration(self) -> str:
        kind = {"text": "TEXT", "f64": "REAL", "f32": "REAL"}.get(self.type, "INTEGER")
        return f"{self.name:<27} {kind}{' NOT NULL' if self.required else ''}{' PRIMARY KEY' if self.key else ''}"


def schema(version: str) -> dict[str, tuple[Column, ...]]:
    """The columns of every table of a schema version, enumerations included. `version`: a key of `PRODUCTS`."""
    tables = dict(_TABLES_3_7 if version == "3.7.2" else _TABLES_3_25)
    tables.update(dict.fromkeys(enums(version), _ENUM))
    return {table: tuple(map(_column, text.split())) for table, text in tables.items()}


def enums(version: str) -> dict[str, tuple[tuple[int, str, str], ...]]:
    return ENUMS if version == "3.7.2" else {**ENUMS, **NEWER_ENUMS}


def _column(text: str) -> Column:
    name, _, kind = text.partition(":")
    return Column(name, kind.rstrip("!*"), "!" in kind, "*" in kind)
