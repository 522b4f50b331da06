import pytest
from tests.making import copy, kernel, make_run

from alltrace.recipes.execution.ask import ask
from alltrace.trace.errors import UsageError


def call(start, correlation, name, end=None, **others):
    return {
        "start": start,
        "end": start + 5 if end is None else end,
        "name": name,
        "correlation": correlation,
        **others,
    }


def rows(tmp_path, recipe, tables, **options):
    answer = ask(make_run(tmp_path / "run", {0: tables}), recipe, options)
    return answer.table.to_pylist(), answer.notes


def test_asynchronous_copies_of_pageable_memory(tmp_path):
    copies = [
        copy(10, 30, src_kind="pageable", dst_kind="device", correlation=1, bytes=7, green_context=0),
        copy(40, 45, "DtoH", src_kind="device", dst_kind="pageable", correlation=2),
        copy(50, 99, src_kind="pinned", dst_kind="device", correlation=3),
        copy(60, 99, src_kind="pageable", dst_kind="device", correlation=4),  # a synchronous call
        copy(70, 99, src_kind="pageable", dst_kind="device", correlation=5),  # no call
        copy(80, 99, "memset", dst_kind="pageable", correlation=1),
    ]
    names = ("cudaMemcpyAsync_v3020", "cudaMemcpy2DAsync", "cudaMemcpyAsync", "cudaMemcpy")
    api = [call(10 * i, i + 1, n) for i, n in enumerate(names)]
    found, notes = rows(tmp_path, "cuda_memcpy_async", {"copies": copies, "api": api})
    assert found == [
        {
            "Duration": 20, "Start": 10, "Src Kind": "Pageable", "Dst Kind": "Device", "Bytes": 7, "PID": 4000,
            "Device ID": 0, "Context ID": 1, "Green Context ID": None, "Stream ID": 30,
            "API Name": "cudaMemcpyAsync_v3020", "File": "rank0",
        },
        {
            "Duration": 5, "Start": 40, "Src Kind": "Device", "Dst Kind": "Pageable", "Bytes": 1 << 20, "PID": 4000,
            "Device ID": 0, "Context ID": 1, "Green Context ID": None, "Stream ID": 30, "API Name": "cudaMemcpy2DAsync",
            "File": "rank0",
        },
    ]  # fmt: skip
    assert "pinned" in notes[0]


def test_synchronous_copies_and_fills_count_once_and_in_their_process(tmp_path):
    copies = [
        copy(10, 30, src_kind="pageable", correlation=1),
        copy(10, 30, src_kind="pageable", correlation=1, process=1),
    ]
    api = [call(3, 1, "cudaMemcpyAsync_v3020"), call(2, 1, "cudaMemcpyAsync"), call(1, 1, "cudaMemcpyAsync", process=2)]
    found, _ = rows(tmp_path, "cuda_memcpy_async", {"copies": copies, "api": api})
    assert [(r["PID"], r["API Name"]) for r in found] == [(4000, "cudaMemcpyAsync")]
    copies = [
        copy(0, 10, bytes=64_000, correlation=1),  # small, from the host
        copy(0, 20, bytes=64_001, correlation=1),
        copy(0, 30, "DtoH", bytes=4, correlation=1),
        copy(0, 40, "DtoD", src_device=0, dst_device=0, correlation=1),
        copy(0, 50, "PtoP", src_device=0, dst_device=1, correlation=1),
        copy(0, 60, "DtoH", correlation=2),
    ]
    api = [call(0, 1, "cudaMemcpy_v3020"), call(0, 2, "cudaMemcpyAsync")]
    found, _ = rows(tmp_path / "2", "cuda_memcpy_sync", {"copies": copies, "api": api})
    assert [r["Duration"] for r in found] == [50, 30, 20]
    kinds = ("pinned", "managed", "device", "pageable", "pinned")
    copies = [copy(0, 10 + i, "memset", dst_kind=k, correlation=1 + (i == 4)) for i, k in enumerate(kinds)]
    api = [call(0, 1, "cudaMemset_v3020"), call(0, 2, "cudaMemsetAsync")]
    found, _ = rows(tmp_path / "3", "cuda_memset_sync", {"copies": [*copies, copy(0, 9, correlation=1)], "api": api})
    assert [(r["Duration"], r["Memory Kind"]) for r in found] == [(11, "Managed"), (10, "Pinned")]


def test_calls_that_wait_and_times_of_little_use(tmp_path):
    names = {
        "cudaDeviceSynchronize_v3020": 10,
        "cudaStreamSynchronize": 30,
        "cudaEventSynchronize": 90,
        "cudaLaunchKernel": 80,
    }
    api = [call(0, i, n, end) for i, (n, end) in enumerate(names.items())]
    found, notes = rows(tmp_path, "cuda_api_sync", {"api": api})
    assert [(r["Duration"], r["TID"], r["API Name"]) for r in found] == [
        (30, 4001, "cudaStreamSynchronize"),
        (10, 4001, "cudaDeviceSynchronize_v3020"),
    ]
    assert len(notes) == 1
    # chunks of 10: full, 50 %, 10 %, empty, full and a half on another stream, 5 of 5
    kernels = [kernel(0, 10), kernel(10, 15), kernel(20, 21), kernel(40, 50), kernel(45, 50, stream=8), kernel(50, 55)]
    found, _ = rows(tmp_path / "2", "gpu_time_util", {"kernels": kernels}, chunks=6, threshold=50)
    assert [(r["Row#"], r["In-Use"], r["Start"], r["Duration"]) for r in found] == [(1, 5.0, 20, 20)]
    for chunks in (0, 1001):
        with pytest.raises(UsageError, match="--chunks"):
            ask(
                make_run(tmp_path / "3" / f"{chunks}", {0: {"kernels": [kernel(0, 5)]}}),
                "gpu_time_util",
                {"chunks": chunks},
            )
    found, _ = rows(tmp_path / "3", "gpu_time_util", {"kernels": [kernel(7, 7)]})
    assert found == []


MS = 1_000_000


def gaps(tmp_path, tables, **options):
    answer = ask(make_run(tmp_path / "run", {0: tables}), "gpu_gaps", options)
    return [(r["Row#"], r["Duration"], r["Start"]) for r in answer.table.to_pylist()], answer


def test_gaps_are_longest_first_and_overhead_is_work(tmp_path):
    tables = {
        "kernels": [kernel(0, 10 * MS), kernel(12 * MS, 13 * MS), kernel(20 * MS, 21 * MS)],
        "copies": [copy(2 * MS, 11 * MS)],
    }
    rows, answer = gaps(tmp_path, tables, gap=1)
    assert rows == [(1, 7 * MS, 13 * MS)]  # a gap as long as the limit does not count
    assert answer.table.to_pylist()[0] == {
        "Row#": 1, "Duration": 7 * MS, "Start": 13 * MS, "PID": 4000, "Device ID": 0, "Context ID": 1, "File": "rank0",
    }  # fmt: skip
    assert "blocking call" in answer.notes[0]
    flush = {"start": 14 * MS, "end": 19 * MS, "name": "CUDA profiling data flush overhead"}
    other = {"start": 14 * MS, "end": 19 * MS, "name": "something else"}
    outside = {"start": 15 * MS, "end": 30 * MS, "name": "CUDA profiling stop overhead"}
    kernels = [kernel(0, 13 * MS), kernel(20 * MS, 21 * MS)]
    rows, _ = gaps(tmp_path / "2", {"kernels": kernels, "overheads": [flush, other, outside]}, gap=0)
    assert rows == [(1, MS, 13 * MS), (2, MS, 19 * MS)]


def test_no_gap_and_kernels_that_end_before_they_start(tmp_path):
    kernels = [kernel(i * 10 * MS, i * 10 * MS + MS) for i in range(4)]
    rows, _ = gaps(tmp_path, {"kernels": kernels}, gap=1, rows=2)
    assert rows == [(1, 9 * MS, MS), (2, 9 * MS, 11 * MS)]
    answer = ask(make_run(tmp_path / "other", {0: {"kernels": kernels}}), "gpu_gaps")
    assert answer.table.num_rows == 0
    assert answer.notes == (
        "No GPU was without work for longer than the limit between its first and its last operation.",
    )
    answer = ask(make_run(tmp_path / "2" / "run", {0: {"kernels": [kernel(100, 50)]}}), "gpu_time_util")
    assert answer.table.num_rows == 0
