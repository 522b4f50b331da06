"""Exports that went through other tools, which declare columns as they please."""

from __future__ import annotations

import pytest
from tests.together import together

from alltrace.readers.nsys.mapping import find_table, sources_of

THREAD = (1 << 48) | (9 << 24) | 11
TABLES = {
    "NVTX_EVENTS": ("start end eventType text:TEXT globalTid textId domainId", [
        (1, None, 75, "mine", THREAD, None, 1), (1, None, 39, "worker", THREAD, None, 0),
        (2, 5, 59, "step", THREAD, None, 1),
    ]),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start end globalTid correlationId nameId", [(3, 4, THREAD, 1, 1)]),
    "CUPTI_ACTIVITY_KIND_KERNEL": ("start end deviceId streamId correlationId globalPid demangledName", [
        (5, 6, 0, 7, 1, THREAD & ~0xFFFFFF, 2),
    ]),
    "CUDA_GPU_MEMORY_USAGE_EVENTS": ("start globalPid deviceId bytes name:TEXT",
        [(3, THREAD & ~0xFFFFFF, 0, 8, "buffer")]),
    "MPI_RANKS": ("globalTid rank", [(THREAD, 3)]),
    "ThreadNames": ("nameId priority globalTid", [(3, 20, THREAD)]),
    "TARGET_INFO_GPU": ("id name:TEXT busLocation:TEXT uuid:TEXT cuDevice", [(0, "H100", "0:1", "GPU-1", 0)]),
    "TARGET_INFO_CUDA_STREAM": ("streamId processId contextId priority flag", [(7, 9, 1, 0, 1)]),
    "TARGET_INFO_NVTX_CUDA_STREAM": ("streamId processId contextId name:TEXT", [(7, 9, 1, "compute")]),
    "GENERIC_EVENTS": ("timestamp typeId data:TEXT", [(8, 1, '{"reads": 5}')]),
}  # fmt: skip


def declared(kind):
    """The tables, all columns of numbers declared as `kind`, or with `BLOB` those of text, which then hold bytes."""
    made = {}
    for table, (columns, rows) in TABLES.items():
        texts = [c.endswith(":TEXT") for c in columns.split()]
        types = [
            ("BLOB" if kind == "BLOB" else "TEXT") if text else ("INTEGER" if kind == "BLOB" else kind)
            for text in texts
        ]
        names = [c.partition(":")[0] for c in columns.split()]
        inside = ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))
        made[f"{table}({inside})"] = [
            tuple(v.encode() if kind == "BLOB" and isinstance(v, str) else v for v in row) for row in rows
        ]
    return made


@pytest.mark.parametrize("kind", ["INTEGER", "BIGINT", "REAL", "TEXT", "BLOB"])
def test_what_a_column_is_declared_as_changes_nothing(export, read, kind):
    got = read(export(declared(kind), strings={1: "cudaLaunchKernel", 2: "gemm", 3: "main"}))
    assert [(p.pid, p.mpi_rank, p.device_ordinal) for p in got.report.processes] == [(9, 3, 0)]
    assert [(r["start"], r["end"], r["name"], r["domain"]) for r in got.rows("ranges")] == [(2, 5, "step", "mine")]
    assert got.column("api", "name") == ["cudaLaunchKernel"]
    assert got.column("kernels", "name") == ["gemm"]
    assert got.column("memory", "name") == ["buffer"]
    assert [(t["name"], t["priority"]) for t in got.rows("threads")] == [("main", 20)]
    assert [(d["name"], d["bus_id"], d["uuid"]) for d in got.rows("devices")] == [("H100", "0:1", "GPU-1")]
    assert [(s["stream"], s["name"]) for s in got.rows("streams")] == [(7, "compute")]
    assert [(g["time"], g["metric"], g["value"]) for g in got.rows("generic_metrics")] == [(8, "reads", 5.0)]


def test_a_time_that_is_no_number_is_none(export, read):
    got = read(
        export(
            {
                "CUPTI_ACTIVITY_KIND_KERNEL(start TEXT, end TEXT)": [("x", "y"), ("5", "9")],
                "NVTX_EVENTS(start TEXT, end, eventType, text TEXT)": [("x", 1, 59, "a"), ("3", 4, 59, "a")],
                "GPU_METRICS(timestamp TEXT, typeId, metricId, value)": [("x", 1, 1, 1), ("7", 1, 1, 1)],
                "OSRT_FILE_ACCESS_EVENTS(startedAt TEXT, fileAccessId)": [("x", 1), ("3", 1)],
                "GENERIC_EVENTS(timestamp TEXT, typeId, genericEventId)": [("x", 1, 1), ("6", 1, 2)],
                "GENERIC_EVENT_DATA(genericEventId, fieldIdx, intVal)": [(1, 1, 1), (2, 1, 1)],
            }
        )
    )
    assert got.column("kernels", "start") == [5]
    assert got.column("ranges", "start") == [3]
    assert got.column("gpu_metrics", "time") == [7]
    assert got.column("file_accesses", "start") == [3]
    assert got.column("generic_metrics", "time") == [6]


# Tables of an export are found by name, whichever version of them it has.


@together(
    ("tables", "found"),
    [
        (["OTHER", "EVENTS"], "EVENTS"),
        (["EVENTS_V9", "EVENTS"], "EVENTS"),
        (["EVENTS_V9", "EVENTS_V10", "EVENTS_V2"], "EVENTS_V10"),
        (["EVENTS_V02", "EVENTS_V2"], "EVENTS_V02"),
        (["EVENTS_V", "EVENTS_VX", "EVENTS_V1_V2", "MORE_EVENTS_V3", f"EVENTS_V{'9' * 5000}"], None),
        ([], None),
    ],
)
def test_the_newest_version_of_a_table(tables, found):
    assert find_table(tables, "EVENTS") == found


def test_each_set_of_tables_has_its_own_sources():
    api = [("CUPTI_ACTIVITY_KIND_RUNTIME", "api"), ("OSRT_API", "osrt")]
    for raw, table in [*api, *api]:
        assert [(found, source.table) for found, source in sources_of(table, [raw])] == [(raw, table)]
        assert list(sources_of(table, ["StringIds"])) == []
    assert [
        found for found, _ in sources_of("kernels", ["CUPTI_ACTIVITY_KIND_KERNEL_V3", "CUPTI_ACTIVITY_KIND_KERNEL_V11"])
    ] == ["CUPTI_ACTIVITY_KIND_KERNEL_V11"]
