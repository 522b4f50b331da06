"""The CUDA reports on tables made by hand: two ranks, numbers worked out on paper."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.together import together

from alltrace.recipes.base import Part
from alltrace.recipes.registry import find_report
from alltrace.trace.schema import TABLES

TEXTS = {
    1: "gemm<float>", 2: "gemm", 3: "cudaLaunchKernel_v7000", 4: "forward", 5: "python", 6: "GPU A", 7: "cudaMalloc",
    8: "x.c:1", 9: "cudaLaunchKernel_v1100",
}  # fmt: skip


class FakeRun:
    ranks = ()
    span_ns = (0, 1000)

    def texts(self, ids: Any) -> pa.Array:
        return pa.array([TEXTS.get(i) for i in ids.to_pylist()], pa.string())

    def name_table(self) -> pa.Table:
        return pa.table({"id": list(TEXTS), "value": list(TEXTS.values())})


class FakeRank(FakeRun):
    host = "h"

    def __init__(self, rank: int, **tables: list[dict[str, Any]]) -> None:
        self.rank = rank
        self.tables = tables

    def has(self, table: str) -> bool:
        return bool(self.tables.get(table))

    def table(self, table: str, columns: Any = None) -> pa.Table:
        return pa.Table.from_pylist(self.tables.get(table, []), TABLES[table].arrow_schema(columns))


def kernel(start: int, end: int, correlation: int, **more: Any) -> dict[str, Any]:
    dims = {"grid_x": 4, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1, "registers": 32}
    place = {"process": 0, "device": 0, "context": 1, "green_context": 0, "stream": 7}
    shared = {"static_shared_memory": 0, "dynamic_shared_memory": 49152}
    names = {"name": 1, "short_name": 2}
    return {"start": start, "end": end, "correlation": correlation, **place, **dims, **shared, **names, **more}


def call(start: int, end: int, correlation: int, name: int = 3) -> dict[str, Any]:
    return {
        "start": start,
        "end": end,
        "process": 0,
        "thread": 0,
        "correlation": correlation,
        "name": name,
        "return_value": 0,
    }


DICTIONARIES: dict[str, list[dict[str, Any]]] = {
    "processes": [{"process": 0, "pid": 100, "name": 5}],
    "threads": [{"thread": 0, "process": 0, "tid": 101, "name": 5, "priority": 20}],
    "devices": [{"device": 0, "ordinal": 2, "name": 6}],
}
FIRST = FakeRank(
    0,
    kernels=[kernel(100, 110, 1), kernel(200, 230, 2)],
    api=[call(10, 60, 1), call(150, 210, 2), call(300, 400, 3, 7)],
    ranges=[{"start": 0, "end": 100, "thread": 0, "name": 4, "kind": "pushpop"}],
    copies=[
        {
            "start": 500,
            "end": 700,
            "kind": "HtoD",
            "bytes": 2_000_000,
            "src_kind": "pinned",
            "dst_kind": "device",
            "device": 0,
        },
        {"start": 450, "end": 460, "kind": "memset", "bytes": 500, "dst_kind": "device", "device": 0},
    ],
    **DICTIONARIES,
)
SECOND = FakeRank(1, kernels=[kernel(120, 140, 1), kernel(105, 145, 9)], api=[call(20, 120, 1)], **DICTIONARIES)


def ask(spec: str, *ranks: FakeRank, **options: Any) -> list[dict[str, Any]]:
    report = find_report(spec)
    given = {**{o.name: o.default for o in report.options}, **options}
    answer = report.merge([Part(r.rank, report.map(r, given)) for r in ranks], FakeRun(), given)
    assert tuple(answer.table.column_names) == tuple(c.name for c in report.answer_columns(given))
    rows: list[dict[str, Any]] = answer.table.to_pylist()
    return rows


def test_kernels_of_all_ranks_by_rank_range_and_dimensions():
    assert ask("cuda_gpu_kern_sum", FIRST, SECOND) == [
        {
            "Time (%)": 100.0, "Total Time (ns)": 100, "Instances": 4, "Avg (ns)": 25.0, "Med (ns)": 25.0,
            "Min (ns)": 10, "Max (ns)": 40, "StdDev (ns)": 12.9, "Name": "gemm<float>",
        }
    ]  # fmt: skip
    rows = ask("cuda_gpu_kern_sum:base", SECOND, FIRST, by_rank=True)
    assert [(r["Rank"], r["Time (%)"], r["Total Time (ns)"], r["Name"]) for r in rows] == [
        (0, 100, 40, "gemm"),
        (1, 100, 60, "gemm"),
    ]
    assert [r["Name"] for r in ask("cuda_gpu_kern_sum:mangled", FIRST)] == ["gemm<float>"]
    rows = ask("cuda_gpu_kern_sum:nvtx-name", FIRST, SECOND)
    assert [(r["Total Time (ns)"], r["Name"]) for r in rows] == [(90, "gemm<float>"), (10, "forward/gemm<float>")]
    other = FakeRank(2, kernels=[kernel(0, 5, 1, grid_x=12345)], **DICTIONARIES)
    rows = ask("cuda_gpu_kern_gb_sum", FIRST, other)
    assert [(r["Instances"], r["GridXYZ"], r["BlockXYZ"]) for r in rows] == [
        (2, "   4    1    1", " 128    1    1"),
        (1, "12345    1    1", " 128    1    1"),
    ]


def test_calls_copies_and_everything_together():
    rows = ask("cuda_api_sum", FIRST, SECOND)
    assert [(r["Name"], r["Num Calls"], r["Total Time (ns)"], r["Med (ns)"]) for r in rows] == [
        ("cudaLaunchKernel", 3, 210, 60.0),
        ("cudaMalloc", 1, 100, 100.0),
    ]
    assert [r["Time (%)"] for r in rows] == [67.7, 32.3]
    times = ask("cuda_gpu_mem_time_sum", FIRST, SECOND)
    assert [(r["Operation"], r["Total Time (ns)"], r["Time (%)"]) for r in times] == [
        ("[CUDA memcpy Host-to-Device]", 200, 95.2),
        ("[CUDA memset]", 10, 4.8),
    ]
    sizes = ask("cuda_gpu_mem_size_sum", FIRST)
    assert [(r["Operation"], r["Total (MB)"], r["Max (MB)"], r["StdDev (MB)"]) for r in sizes] == [
        ("[CUDA memcpy Host-to-Device]", 2.0, 2.0, 0.0),
        ("[CUDA memset]", 0.001, 0.001, 0.0),
    ]
    rows = ask("cuda_api_gpu_sum", FIRST)
    assert [(r["Category"], r["Operation"], r["Total Time (ns)"]) for r in rows] == [
        ("MEMORY_OPER", "[CUDA memcpy Host-to-Device]", 200),
        ("CUDA_API", "cudaLaunchKernel", 110),
        ("CUDA_API", "cudaMalloc", 100),
        ("CUDA_KERNEL", "gemm<float>", 40),
        ("MEMORY_OPER", "[CUDA memset]", 10),
    ]
    assert {r["Category"] for r in ask("cuda_gpu_sum", FIRST)} == {"CUDA_KERNEL", "MEMORY_OPER"}


def test_calls_and_gpu_work_in_order_of_all_ranks():
    rows = ask("cuda_api_trace", FIRST, SECOND, by_rank=True)
    assert [(r["Rank"], r["Start (ns)"]) for r in rows] == [(0, 10), (1, 20), (0, 150), (0, 300)]
    assert rows[0] == {
        "Rank": 0, "Start (ns)": 10, "Duration (ns)": 50, "Name": "cudaLaunchKernel", "Result": 0, "CorrID": 1,
        "Pid": 100, "Tid": 101, "T-Pri": 20, "Thread Name": "python",
    }  # fmt: skip
    rows = ask("cuda_gpu_trace", FIRST, SECOND)
    assert [r["Start (ns)"] for r in rows] == [100, 105, 120, 200, 450, 500]
    assert rows[0] == {
        "Start (ns)": 100, "Duration (ns)": 10, "CorrId": 1, "GrdX": 4, "GrdY": 1, "GrdZ": 1, "BlkX": 128, "BlkY": 1,
        "BlkZ": 1, "Reg/Trd": 32, "StcSMem (MB)": 0.0, "DymSMem (MB)": 0.049, "Bytes (MB)": None,
        "Throughput (MB/s)": None, "SrcMemKd": None, "DstMemKd": None, "Device": "GPU A (2)", "Ctx": 1,
        "GreenCtx": None, "Strm": 7, "Name": "gemm<float>",
    }  # fmt: skip
    fill, copy = rows[4], rows[5]
    assert (fill["SrcMemKd"], fill["DstMemKd"], fill["Name"]) == ("Device", None, "[CUDA memset]")
    assert (copy["SrcMemKd"], copy["DstMemKd"], copy["Bytes (MB)"]) == ("Pinned", "Device", 2.0)
    assert copy["Throughput (MB/s)"] == 2.0 * (1_000_000_000 // 200)


def test_launches_one_by_one_and_by_process():
    rows = ask("cuda_kern_exec_trace", FIRST, SECOND)
    phases = (
        "API Start (ns)",
        "API Dur (ns)",
        "Queue Start (ns)",
        "Queue Dur (ns)",
        "Kernel Start (ns)",
        "Total Dur (ns)",
    )
    assert [tuple(r[p] for p in phases) for r in rows] == [
        (10, 50, 60, 40, 100, 100),
        (20, 100, 120, 0, 120, 120),
        (150, 60, None, None, 200, 80),  # the kernel began within the call
    ]
    assert (rows[0]["DevId"], rows[0]["API Function"]) == (2, "cudaLaunchKernel")
    rows = ask("cuda_kern_exec_sum", FIRST, SECOND, by_rank=True)
    assert [(r["Rank"], r["Count"], r["QCount"], r["TAvg (ns)"], r["QAvg (ns)"], r["KMax (ns)"]) for r in rows] == [
        (1, 1, 1, 120.0, 0.0, 20),
        (0, 2, 1, 90.0, 40.0, 30),
    ]
    late = FakeRank(0, kernels=[kernel(20, 30, 1)], api=[call(10, 60, 1)], **DICTIONARIES)
    row = ask("cuda_kern_exec_sum", late)[0]
    assert (row["QCount"], row["QAvg (ns)"], row["QMin (ns)"], row["QStdDev (ns)"], row["TMax (ns)"]) == (
        0,
        None,
        None,
        0.0,
        50,
    )


def test_a_kernel_counts_for_each_call_with_its_correlation_id() -> None:
    calls = [call(10, 60, 1), call(20, 40, 1, 9), {**call(0, 5, 1), "process": 1}, {**call(0, 9, 2), "process": None}]
    kernels = [
        kernel(100, 130, 1),
        {**kernel(50, 52, 2), "process": None},
        kernel(0, 1, 7),
        {**kernel(0, 1, 1), "correlation": None},
    ]
    rows = ask("cuda_kern_exec_sum", FakeRank(0, kernels=kernels, api=calls, **DICTIONARIES))
    assert [(r["PID"], r["Count"], r["API Name"], r["TAvg (ns)"], r["AMed (ns)"], r["KStdDev (ns)"]) for r in rows] == [
        (100, 2, "cudaLaunchKernel", 115.0, 35.0, 0.0),  # two versions of one name
        (None, 1, "cudaLaunchKernel", 52.0, 9.0, 0.0),
    ]


def unified(rank: int) -> FakeRank:
    base = 0x7F0000000000
    moved = [
        ("UvmHtoD", 4096, 7, base),
        ("UvmDtoH", 500, 4, base),
        ("UvmDtoD", 9999, 1, base),
        ("UvmHtoD", 100, 10, base + 1),
    ]
    copies = [{"start": 0, "end": took, "kind": kind, "bytes": size, "address": at} for kind, size, took, at in moved]
    faults = [
        {"start": 0, "kind": "cpu", "address": base + 2, "source": 8},
        {"start": 0, "kind": "gpu", "address": base + 3, "count": 30},
    ]
    return FakeRank(rank, copies=copies, page_faults=faults)


def test_unified_memory() -> None:
    rows = ask("um_sum", unified(0), unified(1))
    assert [tuple(r.values()) for r in rows] == [
        ("0x7F0000000000", 0.008, 0.001, None, None, 417818.178),  # 9,192 bytes * floor(1e9 / 22)
        ("0x7F0000000001", 0.0, None, None, None, 10000.0),
        ("0x7F0000000002", None, None, 2, None, None),
        ("0x7F0000000003", None, None, None, 60, None),
    ]
    assert len(ask("um_sum:rows=1", unified(0))) == 1
    assert ask("um_sum:rows=0", unified(0)) == []
    assert [r["Rank"] for r in ask("um_sum:rows=-1", unified(0), unified(1), by_rank=True)] == [0] * 4 + [1] * 4
    assert [tuple(r.values()) for r in ask("um_total_sum", unified(0), unified(1))] == [
        (0.008, 0.001, 2, 60, "0x7F0000000000", "0x7F0000000003")
    ]
    assert ask("um_cpu_page_faults_sum", unified(0), unified(1)) == [
        {"CPU Page Faults": 2, "CPU Instruction Address": "x.c:1"}
    ]
    assert ask("um_total_sum", FIRST) == []


CUDA = [
    "cuda_api_gpu_sum", "cuda_api_sum", "cuda_api_trace", "cuda_gpu_kern_gb_sum", "cuda_gpu_kern_sum",
    "cuda_gpu_mem_size_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_sum", "cuda_gpu_trace", "cuda_kern_exec_sum",
    "cuda_kern_exec_trace", "um_cpu_page_faults_sum", "um_sum", "um_total_sum",
]  # fmt: skip


@together("by_rank", [False, True])
@together("name", CUDA)
def test_no_rank_and_empty_ranks_give_no_rows(name: str, by_rank: bool) -> None:
    assert ask(name, by_rank=by_rank) == []
    assert ask(name, FakeRank(0), by_rank=by_rank) == []
    report = find_report(name)
    tables = {t: [] for t in report.tables}
    assert ask(name, FakeRank(0, **tables), by_rank=by_rank) == []


@pytest.mark.parametrize("name", [n for n in CUDA if n.endswith("_sum") and n != "cuda_kern_exec_sum"])
def test_a_rank_split_in_two_gives_the_same_sums(name: str) -> None:
    whole = ask(name, FIRST, unified(1))
    halves = []
    for half in range(2):
        tables = {k: v if k in DICTIONARIES else v[half::2] for k, v in FIRST.tables.items()}
        halves.append(FakeRank(half, **tables))
    assert ask(name, *halves, unified(2)) == whole


def test_a_rank_without_work_of_a_kind_is_no_obstacle() -> None:
    rows = ask("cuda_gpu_trace", FakeRank(0, copies=FIRST.tables["copies"]), SECOND)
    assert [r["Start (ns)"] for r in rows] == [105, 120, 450, 500]
    assert rows[2]["Device"] is None
    assert pc.is_valid(pa.array([rows[0]["Device"]])).to_pylist() == [True]
