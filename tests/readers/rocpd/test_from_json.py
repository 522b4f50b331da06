"""JSON of rocprofv3 is read like the database of the same run."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from tests.readers.reading import rows_of
from tests.readers.rocpd.database import GPU, HSACO, ZERO, write

import alltrace
from alltrace.readers.registry import is_report, open_report
from alltrace.trace.errors import InputError

TABLES = ("kernels", "copies", "api", "ranges", "memory", "kernel_counters")
KINDS = [
    ("NONE", []),
    ("HSA_AMD_EXT_API", ["hsa_amd_memory_async_copy"]),
    ("HIP_RUNTIME_API_EXT", ["hipMalloc", "hipLaunchKernel"]),
    ("MARKER_CORE_RANGE_API", ["roctxThreadRangeA"]),
    ("MEMORY_COPY", ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"]),
    ("MEMORY_ALLOCATION", ["MEMORY_ALLOCATION_NONE", "MEMORY_ALLOCATION_ALLOCATE", "MEMORY_ALLOCATION_FREE"]),
    ("KERNEL_DISPATCH", ["KERNEL_DISPATCH_NONE", "KERNEL_DISPATCH_COMPLETE"]),
]
NUMBER = {kind: n for n, (kind, _) in enumerate(KINDS)}


def handle(number):
    return {"handle": number}


def record(kind, operation, start, end, call, **more):
    times = {"start_timestamp": ZERO + start, "end_timestamp": ZERO + end, "thread_id": 78}
    return (
        {"size": 8, "kind": NUMBER[kind], "operation": operation, "correlation_id": {"internal": call, "external": 0}}
        | times
        | more
    )


def dispatch(start, end, call, kernel, stream, number):
    sizes = {"workgroup_size": {"x": 256, "y": 2, "z": 1}, "grid_size": {"x": 1000, "y": 4, "z": 1}}
    about = {
        "agent_id": handle(4),
        "queue_id": handle(5),
        "kernel_id": kernel,
        "dispatch_id": number,
        "group_segment_size": 512,
    } | sizes
    return record("KERNEL_DISPATCH", 1, start, end, call, dispatch_info=about, stream_id=handle(stream))


def document(pid=77, **buffers):
    """The content of `database.write`, as JSON."""
    copy = {"dst_agent_id": handle(4), "src_agent_id": handle(0), "bytes": 4096, "stream_id": handle(2)}
    counted = {
        "dispatch_data": {"dispatch_info": {"dispatch_id": 1}},
        "records": [{"counter_id": handle(11), "value": 1024.0}],
    }
    agents = [
        {"id": handle(0), "type": 1, "logical_node_type_id": 0, "name": "host"},
        {
            "id": handle(4),
            "type": 2,
            "logical_node_type_id": 2,
            "name": "gfx942",
            "product_name": "AMD Instinct MI300X",
            **GPU,
        },
    ]
    symbols = [
        {"kernel_id": 6, "kernel_name": HSACO, "formatted_kernel_name": "void at::gemm<4>(int)", "arch_vgpr_count": 64},
        {"kernel_id": 7, "kernel_name": "plain.kd", "formatted_kernel_name": ""},
    ]
    return {
        "metadata": {
            "pid": pid,
            "node": {"hostname": "node7"},
            "command": ["/opt/bin/train", "--fast"],
            "environment": {"RANK": "3", "TOKEN": "secret"},
        },
        "agents": agents,
        "counters": [{"id": handle(11), "name": "SQ_WAVES"}],
        "strings": {
            "buffer_records": [{"kind": kind, "operations": operations} for kind, operations in KINDS],
            "marker_api": [{"key": 1, "value": "step 1"}],
        },
        "kernel_symbols": symbols,
        "callback_records": {"counter_collection": [counted]},
        "buffer_records": {
            "kernel_dispatch": [dispatch(100, 300, 2, 6, 2, 1), dispatch(300, 310, 4, 7, 0, 2)],
            "hip_api": [record("HIP_RUNTIME_API_EXT", 1, 10, 30, 2)],
            "hsa_api": [record("HSA_AMD_EXT_API", 0, 40, 90, 3)],
            "marker_api": [record("MARKER_CORE_RANGE_API", 0, 0, 900, 1)],
            "memory_copy": [record("MEMORY_COPY", 1, 50, 80, 3, **copy)],
            "memory_allocation": [
                record("MEMORY_ALLOCATION", 1, 5, 6, 5, agent_id=handle(4), address="0x7000", allocation_size=64)
            ],
            **buffers,
        },
    }


def written(path, *processes):
    path.write_text(json.dumps({"rocprofiler-sdk-tool": list(processes) or [document()]}))
    return path


def report_of(path):
    with closing(open_report(path)) as reader:
        return reader.report


@pytest.mark.parametrize("table", TABLES)
def test_rows_are_those_of_the_database(tmp_path, table):
    rows = rows_of(written(tmp_path / "77_results.json"), table)
    assert rows == rows_of(write(tmp_path / "77_results.db"), table)
    assert rows


def test_who_it_is_about_is_as_in_the_database(tmp_path):
    reports = [report_of(p) for p in (written(tmp_path / "x.json"), write(tmp_path / "x.db"))]
    ours, theirs = (r._replace(path="") for r in reports)
    assert ours == theirs
    assert reports[0].path == str(tmp_path / "x.json")
    assert (ours.host, ours.environment, ours.environment_removed) == ("node7", {"RANK": "3"}, 1)


def test_ranks_ranges_of_steps_and_communication_are_those_of_a_job(tmp_path):
    """Two ranks with ROCTx ranges as steps, in which RCCL's kernel is communication."""
    for rank in range(2):
        content = document(pid=100 + rank)
        content["metadata"]["environment"] = {"RANK": str(rank), "WORLD_SIZE": "2"}
        content["kernel_symbols"][1]["formatted_kernel_name"] = (
            "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
        )
        content["strings"]["marker_api"] = [{"key": 1000 + n, "value": f"step {n}"} for n in range(3)]
        marks = [record("MARKER_CORE_RANGE_API", 0, 10_000 * n, 10_000 * n + 9_000, 1000 + n) for n in range(3)]
        work = []
        for n in range(3):
            work.append(dispatch(10_000 * n + 1000, 10_000 * n + 3000, 10 + n, 6, 2, 2 * n + 1))
            work.append(dispatch(10_000 * n + 3000, 10_000 * n + 4000, 20 + n, 7, 2, 2 * n + 2))
        content["buffer_records"] = {"marker_api": marks, "kernel_dispatch": work}
        written(tmp_path / f"{100 + rank}_results.json", content)
    run = alltrace.open(str(tmp_path), cache_dir=tmp_path / "cache")
    assert [r.rank for r in run.ranks] == [0, 1]
    rows = run.recipe("breakdown").to_pylist()
    assert [(r["compute_ns"], r["exposed_communication_ns"]) for r in rows] == [(6000, 3000)] * 2
    steps = run.recipe("steps").to_pylist()
    assert [(r["rank"], r["step"], r["start_ns"]) for r in steps] == [
        (rank, n, 10_000 * n) for rank in range(2) for n in range(3)
    ]


def test_processes_of_one_document_stay_apart(tmp_path):
    path = written(tmp_path / "x.json", document(), document(99))
    assert [p.pid for p in report_of(path).processes] == [77, 99]
    assert [r["process"] for r in rows_of(path, "kernels")] == [0, 0, 1, 1]


def test_counters_of_dispatches_that_are_recorded_with_them_alone(tmp_path):
    content = document(kernel_dispatch=[])
    data = dispatch(100, 300, 2, 6, 2, 9)
    content["callback_records"] = {
        "counter_collection": [
            {"dispatch_data": data, "thread_id": 78, "records": [{"counter_id": handle(11), "value": 3}]}
        ]
    }
    path = written(tmp_path / "x.json", content)
    assert [r["value"] for r in rows_of(path, "kernel_counters")] == [3.0]
    assert [(r["end"] - r["start"], r["name"]) for r in rows_of(path, "kernels")] == [(200, "void at::gemm<4>(int)")]


def test_the_database_of_a_folder_of_the_callers_is_made_once(tmp_path, monkeypatch):
    path, scratch = written(tmp_path / "x.json"), tmp_path / "scratch"
    scratch.mkdir()
    open_report(path, scratch=scratch).close()
    (made,) = scratch.iterdir()
    before = made.stat().st_mtime_ns
    open_report(path, scratch=scratch).close()
    assert [made.stat().st_mtime_ns] == [p.stat().st_mtime_ns for p in scratch.iterdir()] == [before]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"rocprofiler-sdk-tool": [', "it is damaged or ends early"),
        ('{"rocprofiler-sdk-tool": []}', "it has no process in 'rocprofiler-sdk-tool'"),
        ('{"rocprofiler-sdk-tool": [3]}', "it has no process in 'rocprofiler-sdk-tool'"),
        ('{"rocprofiler-sdk-tool": ' + "[" * 100_000, "it is damaged or ends early"),
    ],
)
def test_damage_is_an_error_in_a_sentence(tmp_path, text, found):
    path = tmp_path / "x.json"
    path.write_text(text)
    assert is_report(path)
    with pytest.raises(InputError, match=found):
        open_report(path)


ODD = [None, 7, "x", {}, 2**70, 1.5, [[]], [{}], "\ud800"]


@pytest.mark.parametrize(
    "part", ["metadata", "agents", "counters", "strings", "kernel_symbols", "callback_records", "buffer_records"]
)
def test_parts_of_another_form_are_as_if_missing(tmp_path, part):
    for value in ODD:
        reader = open_report(written(tmp_path / "x.json", document() | {part: value}))
        for _ in reader.stream(TABLES):
            pass
        reader.dictionaries()
        reader.close()


def test_values_of_another_form_leave_out_their_row_or_themselves(tmp_path):
    for name in (
        "kind",
        "operation",
        "start_timestamp",
        "end_timestamp",
        "thread_id",
        "correlation_id",
        "dispatch_info",
        "stream_id",
    ):
        for value in (None, "x", {}, 2**70):
            changed = dispatch(100, 300, 2, 6, 2, 1) | {name: value}
            call = record("HIP_RUNTIME_API_EXT", 1, 10, 30, 2) | {name: value}
            content = document(kernel_dispatch=[changed, dispatch(400, 500, 3, 6, 2, 2)], hip_api=[call])
            rows = rows_of(written(tmp_path / "x.json", content), "kernels")
            assert rows[-1]["end"] - rows[-1]["start"] == 100
            rows_of(tmp_path / "x.json", "api")


@pytest.mark.parametrize("between", ["", "\n", " \n\0"])
def test_documents_one_behind_the_other_are_all_read(tmp_path, between):
    path = written(tmp_path / "results.json", document(77), document(78))
    together = [(p.pid, p.gpu) for p in report_of(path).processes]
    texts = [json.dumps({"rocprofiler-sdk-tool": [document(pid)]}) for pid in (77, 78)]
    path.write_text(between.rstrip("\0").join(texts) + between)
    assert [(p.pid, p.gpu) for p in report_of(path).processes] == together == [(77, True), (78, True)]
    path.write_text(texts[0] + texts[1][:-9])
    with pytest.raises(InputError, match="it is damaged or ends early"):
        report_of(path)
