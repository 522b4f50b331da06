"""What calls are named: those of CUDA and of HIP alike."""

from __future__ import annotations

from tests.together import together

from alltrace.trace import host_patterns as patterns

CALLS = {
    "SYNCS": ("cudaStreamSynchronize_v3020", "cuCtxSynchronize", "hipDeviceSynchronize", "hipEventSynchronize"),
    "ALLOCATIONS": (
        "cudaMalloc_v3020",
        "cuMemFree_v2",
        "cudaHostAlloc",
        "hipMalloc",
        "hipHostMalloc",
        "hipHostFree",
        "hipFree",
    ),
    "COPIES": ("cudaMemcpyAsync", "cuMemcpyHtoD_v2", "hipMemcpyAsync", "hipMemcpyWithStream"),
    "CODE_CALLS": ("cuModuleLoadData", "cuLibraryLoadData", "hipModuleLoadData"),
    "MODULE_CALLS": (
        "cuModuleUnload",
        "cudaFuncGetAttributes",
        "hipModuleUnload",
        "hipFuncSetAttribute",
        "hipGraphInstantiate",
    ),
    "COMPILING_CALLS": ("nvrtcCompileProgram", "hiprtcCompileProgram"),
}
"""Names of calls, by the table that they are in."""

OTHERS = (
    "cudaLaunchKernel",
    "hipLaunchKernel",
    "hipMallocAsync",
    "cudaMallocAsync_v11020",
    "hipGetDevice",
    "hipStreamCreate",
)


@together("table", CALLS)
def test_calls_of_cuda_and_hip_are_known(table):
    names = [*CALLS[table], *OTHERS]
    assert patterns.matching(names, getattr(patterns, table)) == list(range(len(CALLS[table])))
