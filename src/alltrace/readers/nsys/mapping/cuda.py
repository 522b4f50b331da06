"""CUDA: kernels, copies, API calls, waits, graphs, memory, page faults."""

from __future__ import annotations

from alltrace.readers.nsys.mapping.fields import (
    PROCESS,
    THREAD,
    TIMES,
    Field,
    Source,
    constant,
    copy,
    identifier,
    loose,
    string,
    words,
)

COPY_KINDS = (
    "unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "UvmHtoD", "UvmDtoH", "UvmDtoD",
    "memset",
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
    Source("graphs", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", {**_GPU, "graph": copy("graphId"), "graph_exec": copy("graphExecId")}),
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
