from __future__ import annotations

import pyarrow as pa

from alltrace.nvidia.kernel_names import call_labels, copy_labels, launches
from alltrace.recipes.analysis.lookups import look_up


def launched(process: list[int], correlation: list[int | None]) -> pa.Table:
    return pa.table({"process": pa.array(process, pa.int32()), "correlation": pa.array(correlation, pa.int64())})


def test_launches_join_and_names_are_those_of_nsys():
    kernels = launched([0, 1, 0, 0], [7, 7, 8, None])
    api = launched([1, 0, 0, 0], [7, 9, 7, 7])
    kernel, call = launches(kernels, api)
    assert list(zip(kernel.tolist(), call.tolist(), strict=True)) == [(0, 2), (0, 3), (1, 0)]
    far = 2**62
    kernel, call = launches(launched([1, 0], [far, -far]), launched([0, 1], [-far, far]))
    assert list(zip(kernel.tolist(), call.tolist(), strict=True)) == [(0, 1), (1, 0)]
    names = pa.array(["cudaFree_v3020", "cuMemHostRegister_v2", "a_v12345", "cudaFree"])
    assert call_labels(names).to_pylist() == ["cudaFree", "cuMemHostRegister_v2", "a_v12345", "cudaFree"]
    labels = copy_labels(pa.array(["HtoD", "memset", "UvmDtoH", None])).to_pylist()
    assert labels == ["[CUDA memcpy Host-to-Device]", "[CUDA memset]", "[CUDA memcpy Unified Device-to-Host]", None]
    table = pa.table({"process": pa.array([1, 0], pa.int32()), "pid": pa.array([10, 20], pa.int64())})
    assert look_up(table, "pid", pa.array([0, 1, None, 5], pa.int32())).to_pylist() == [20, 10, None, None]
