from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pytest

from alltrace.readers.nsys import SUFFIXES, is_report
from alltrace.readers.nsys.source import BATCH_BYTES, rows_per_batch
from alltrace.readers.registry import is_report as known
from alltrace.readers.registry import open_report
from alltrace.trace.errors import InputError

KERNEL = (
    "CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName,"
    " shortName, gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread, graphNodeId)"
)


def kernel(start, pid, device=0, name=1, correlation=1, stream=7):
    return (start, start + 5, device, 1, stream, correlation, pid, name, name, 2, 3, 4, 32, 1, 1, 40, None)


def test_kernels_have_names_rows_and_nulls(export, read, tid):
    rows = [kernel(30, tid(9), name=2), kernel(10, tid(9)), kernel(20, tid(8), stream=13)]
    got = read(export({KERNEL: rows}, strings={1: "gemm(int)", 2: "ncclDevKernel", 3: "never used"}))
    assert got.column("kernels", "start") == [30, 10, 20]  # in the order of the report
    assert got.column("kernels", "name") == ["ncclDevKernel", "gemm(int)", "gemm(int)"]
    assert got.column("kernels", "stream") == [7, 7, 13]
    assert got.column("kernels", "grid_y") == [3, 3, 3]
    assert got.column("kernels", "registers") == [40, 40, 40]
    for absent in ("green_context", "mangled_name", "graph_node", "kind", "cluster_x"):
        assert got.column("kernels", absent) == [None] * 3
    assert sorted(got.texts.values()) == ["gemm(int)", "ncclDevKernel"]
    assert [(p["process"], p["pid"]) for p in got.rows("processes")] == [(0, 8), (1, 9)]
    assert got.column("kernels", "process") == [1, 1, 0]
    assert got.estimate == 3


def test_the_plain_table_wins_and_else_the_highest_version_by_number(export, read, tid):
    numbered = {f"CUPTI_ACTIVITY_KIND_KERNEL_V{n}{KERNEL[26:]}": [kernel(n, tid(9))] for n in (2, 9, 10)}
    assert read(export(numbered, strings={1: "k"})).column("kernels", "start") == [10]
    assert read(export({**numbered, KERNEL: [kernel(77, tid(9))]}, strings={1: "k"})).column("kernels", "start") == [77]


def test_text_that_is_not_utf8_is_replaced_and_unknown_ids_have_no_name(export, read, tid):
    rows = [kernel(1, tid(9), name=1), kernel(2, tid(9), name=99), kernel(3, tid(9), name=-4)]
    got = read(export({KERNEL: rows}, strings={1: b"caf\xe9"}))
    assert got.column("kernels", "name") == ["caf\\xe9", None, None]


def test_string_ids_far_apart(export, read, tid):
    big = 1 << 60
    got = read(
        export({KERNEL: [kernel(1, tid(9), name=big), kernel(2, tid(9), name=5)]}, strings={big: "far", 5: "near"})
    )
    assert got.column("kernels", "name") == ["far", "near"]


def test_one_string_under_two_ids_is_one_name(export, read, tid):
    got = read(export({KERNEL: [kernel(1, tid(9), name=1), kernel(2, tid(9), name=2)]}, strings={1: "same", 2: "same"}))
    assert got.column("kernels", "name") == ["same", "same"]
    assert list(got.texts.values()) == ["same"]


def test_a_row_without_a_start_is_dropped(export, read, tid):
    lost = (None, *kernel(1, tid(9))[1:])
    assert read(export({KERNEL: [lost, kernel(4, tid(9))]}, strings={1: "k"})).column("kernels", "start") == [4]


def test_copies_of_both_kinds(export, read, tid):
    got = read(
        export(
            {
                "CUPTI_ACTIVITY_KIND_MEMCPY(start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, dstKind, srcDeviceId, dstDeviceId)": [  # noqa: E501
                    (1, 2, 0, 7, 5, tid(9), 100, 1, 1, 2, None, None),
                    (3, 4, 0, 7, 6, tid(9), 200, 10, 2, 2, 0, 1),
                    (5, 6, 0, 7, 7, tid(9), 300, 77, 9, 2, None, None),
                ],
                "CUPTI_ACTIVITY_KIND_MEMSET(start, end, deviceId, streamId, correlationId, globalPid, value, bytes, memKind)": [  # noqa: E501
                    (7, 8, 0, 7, 8, tid(9), 255, 64, 4)
                ],
            }
        )
    )
    assert got.column("copies", "kind") == ["HtoD", "PtoP", "unknown", "memset"]
    assert got.column("copies", "src_kind") == ["pinned", "device", "unknown", None]
    assert got.column("copies", "dst_kind") == ["device", "device", "device", "managed"]
    assert got.column("copies", "bytes") == [100, 200, 300, 64]
    assert got.column("copies", "value") == [None, None, None, 255]
    ordinals = got.column("devices", "ordinal")
    assert [None if d is None else ordinals[d] for d in got.column("copies", "dst_device")] == [None, 1, None, None]


def test_api_calls_have_threads_and_their_names(export, read, tid):
    got = read(
        export(
            {
                "CUPTI_ACTIVITY_KIND_RUNTIME(start, end, eventClass, globalTid, correlationId, nameId, returnValue)": [
                    (1, 2, 0, tid(9, 11), 5, 1, 0),
                    (3, 4, 1, tid(9, 12), 6, 2, 700),
                    (5, 6, 0, tid(9, 11), 7, 1, 1 << 40),
                ],
                "ThreadNames(nameId, priority, globalTid)": [
                    (3, 20, tid(9, 11)),
                    (2, 5, tid(9, 11)),
                    (3, 1, tid(4, 4)),
                ],
            },
            strings={1: "cudaLaunchKernel_v7000", 2: "cuMemcpyHtoD_v2", 3: "python"},
        )
    )
    assert got.column("api", "kind") == ["runtime", "driver", "runtime"]
    assert got.column("api", "name") == ["cudaLaunchKernel_v7000", "cuMemcpyHtoD_v2", "cudaLaunchKernel_v7000"]
    assert got.column("api", "return_value") == [0, 700, None]  # does not fit
    assert got.column("api", "thread") == [0, 1, 0]
    assert [(t["tid"], t["name"], t["priority"], t["process"]) for t in got.rows("threads")] == [
        (11, "python", 20, 0),
        (12, None, None, 0),
    ]


def test_a_wait_for_a_context_has_no_stream(export, read, tid):
    got = read(
        export(
            {
                "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION(start, end, deviceId, contextId, streamId, correlationId, globalPid, syncType, eventId)": [  # noqa: E501
                    (1, 2, 0, 1, 0xFFFFFFFF, 5, tid(9), 4, 0xFFFFFFFF),
                    (3, 4, 0, 1, 7, 6, tid(9), 1, 3),
                ]
            }
        )
    )
    assert got.column("syncs", "kind") == ["context", "event"]
    assert got.column("syncs", "stream") == [None, 7]
    assert got.column("syncs", "event") == [None, 3]


SYNCS = (
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION(start, end, deviceId, streamId, correlationId, globalPid, syncType, eventId)"
)
RECORDS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT(deviceId, contextId, streamId, correlationId, globalPid, eventId)"


def test_a_wait_is_for_the_last_record_of_its_event_before_it(export, read, tid):
    one, two, nothing = tid(9), tid(8), 0xFFFFFFFF
    waits = [
        (10, 11, 0, 17, 5, one, 2, 3),  # event 3 was recorded by call 4, and by call 2 before that
        (12, 13, 0, 17, 3, one, 2, 3),
        (14, 15, 0, 17, 1, one, 2, 3),  # before any record
        (16, 17, 0, 17, 9, one, 2, 4),  # an event that nobody recorded
        (18, 19, 0, 17, 9, two, 2, 3),  # another process numbers its events itself
        (20, 21, 0, nothing, 9, one, 3, nothing),
        (22, 23, 0, 17, None, one, 2, 3),
    ]
    records = [
        (0, 1, 7, 4, one, 3),
        (0, 1, 16, 2, one, 3),
        (0, 1, 20, 6, one, 3),
        (0, 1, 21, 8, two, 3),
        (0, 1, 7, 1, two, 4),
    ]
    got = read(export({SYNCS: waits, RECORDS: records}))
    assert got.column("syncs", "record_correlation") == [4, 2, None, None, 8, None, None]
    assert got.column("syncs", "record_stream") == [7, 16, None, None, 21, None, None]


def test_a_wait_finds_the_only_record_of_an_export(export, read, tid):
    got = read(export({SYNCS: [(10, 11, 0, 17, 5, tid(9), 2, 3)], RECORDS: [(0, 1, 7, 4, tid(9), 3)]}))
    assert (got.column("syncs", "record_correlation"), got.column("syncs", "record_stream")) == ([4], [7])


def test_a_wait_without_records_of_events_has_no_record(export, read, tid):
    got = read(export({SYNCS: [(10, 11, 0, 17, 5, tid(9), 2, 3)], RECORDS: []}))
    assert (got.column("syncs", "event"), got.column("syncs", "record_correlation")) == ([3], [None])
    lacking = RECORDS.replace(", eventId", "")
    got = read(export({SYNCS: [(10, 11, 0, 17, 5, tid(9), 2, 3)], lacking: [(0, 1, 7, 4, tid(9))]}))
    assert (got.column("syncs", "event"), got.column("syncs", "record_stream")) == ([3], [None])


def test_mpi_calls_of_all_kinds(export, read, tid):
    t = tid(9, 9)
    got = read(
        export(
            {
                "MPI_P2P_EVENTS(start, end, globalTid, textId, commHandle, tag, remoteRank, size, requestHandle)": [
                    (1, 2, t, 1, 140653714390576, 3, 1, 4096, None)
                ],
                "MPI_COLLECTIVES_EVENTS(start, end, globalTid, textId, commHandle, rootRank, size, recvSize, requestHandle)": [  # noqa: E501
                    (3, 4, t, 2, 8, 0, 384, 32, None)
                ],
                "MPI_START_WAIT_EVENTS(start, end, globalTid, textId, requestHandle)": [(5, 6, t, 1, 77)],
                "MPI_OTHER_EVENTS(start, end, globalTid, textId)": [(7, 8, t, 2)],
                "MPI_RANKS(globalTid, rank)": [(t, 6)],
                "MPI_COMMUNICATORS(rank, commHandle, parentHandle, localRank, size, members TEXT)": [
                    (6, 8, 0, 2, 12, "4,5,6")
                ],
            },
            strings={1: "MPI_Send", 2: "MPI_Bcast"},
        )
    )
    assert got.column("mpi", "kind") == ["p2p", "collective", "start-wait", "other"]
    assert got.column("mpi", "bytes") == [4096, 32, None, None]
    assert got.column("mpi", "sent_bytes") == [None, 384, None, None]
    assert got.column("mpi", "recv_bytes") == [None, 32, None, None]
    assert got.column("mpi", "peer") == [1, None, None, None]
    assert got.column("mpi", "request") == [None, None, 77, None]
    assert got.report.world_size == 12
    assert [(p.pid, p.mpi_rank, p.gpu) for p in got.report.processes] == [(9, 6, False)]
    (row,) = got.rows("communicators")
    assert (row["communicator"], row["group_rank"], row["size"], row["members"], row["process"]) == (
        8,
        2,
        12,
        "4,5,6",
        0,
    )


def test_overheads_by_name_or_by_type(export, read, tid):
    got = read(
        export(
            {
                "PROFILER_OVERHEAD(start, end, globalTid, nameId, overheadType)": [
                    (1, 2, tid(9, 9), 1, 3),
                    (3, 4, None, None, 3),
                ],
                "CUPTI_ACTIVITY_KIND_OVERHEAD(start, end, globalTid, overheadType)": [(5, 6, tid(9, 9), 7)],
            },
            strings={1: "flush"},
        )
    )
    assert got.column("overheads", "name") == ["flush", "buffer flush", "lazy function loading"]
    assert got.column("overheads", "thread") == [0, None, 0]


def test_openmp_tables_are_told_apart(export, read, tid):
    columns = "(start, end, globalTid, nameId, eventKind)"
    got = read(
        export(
            {
                f"OPENMP_EVENT_KIND_TASK{columns}": [(1, 2, tid(9, 9), 1, 5)],
                f"OPENMP_EVENT_KIND_SYNC_REGION_WAIT_V2{columns}": [(3, 4, tid(9, 9), 1, 6)],
            },
            strings={1: "omp"},
        )
    )
    assert sorted(zip(got.column("openmp", "kind"), got.column("openmp", "start"), strict=True)) == [
        ("sync-region-wait", 3),
        ("task", 1),
    ]


def test_scheduling_memory_and_page_faults(export, read, tid):
    got = read(
        export(
            {
                "SCHED_EVENTS(start, cpu, isSchedIn, globalTid)": [(1, 3, 1, tid(9, 9)), (2, 3, 0, tid(9, 9))],
                "CUDA_GPU_MEMORY_USAGE_EVENTS(start, globalPid, deviceId, address, bytes, memKind, memoryOperationType, name TEXT)": [  # noqa: E501
                    (5, tid(9), 0, 4096, 64, 2, 1, "table")
                ],
                "CUDA_UM_CPU_PAGE_FAULT_EVENTS(start, globalPid, address, originalFaultPc, CpuInstruction, module)": [
                    (6, tid(9), 8192, 12, 1, 2)
                ],
                "CUDA_UM_GPU_PAGE_FAULT_EVENTS(start, end, globalPid, deviceId, address, numberOfPageFaults, faultAccessType)": [  # noqa: E501
                    (7, 9, tid(9), 0, 16384, 3, 1)
                ],
            },
            strings={1: "main", 2: "a.out"},
        )
    )
    assert got.column("sched", "scheduled_in") == [True, False]
    (row,) = got.rows("memory")
    assert (row["time"], row["kind"], row["memory"], row["bytes"], row["name"]) == (5, "free", "device", 64, "table")
    assert got.column("page_faults", "kind") == ["cpu", "gpu"]
    assert got.column("page_faults", "count") == [None, 3]
    assert got.column("page_faults", "source") == ["main", None]


def test_a_database_that_is_no_export_is_refused(export, tmp_path):
    import sqlite3

    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table customers (id INTEGER)")
    with pytest.raises(InputError, match="SQLite database of something else"):
        open_report(path)


def test_tables_listed_are_those_with_rows(export, read, tid):
    got = read(
        export(
            {KERNEL: [kernel(1, tid(9))], "OSRT_API(start, end, globalTid, nameId, returnValue)": []}, strings={1: "k"}
        )
    )
    assert got.report.tables == ("kernels",)
    assert [w.text for w in got.report.warnings] == ["The report has no NVTX events."]


# The size of batches.


def test_wide_rows_make_short_batches():
    wide = {f"c{i}": pa.int64() for i in range(32)}
    assert rows_per_batch(wide) == BATCH_BYTES // 256 + 1
    assert rows_per_batch({**wide, "text": pa.string()}) == BATCH_BYTES // 288 + 1


def test_narrow_rows_make_no_endless_batches():
    assert rows_per_batch({"c": pa.int8()}) == 65_536


MAGIC = b"SQLite format 3\x00 and more"


def test_files(tmp_path):
    cases = {
        "a.nsys-rep": (b"", True),
        "b.qdrep": (b"x", True),
        "c.qdstrm": (b"x", True),
        "d.sqlite": (b"", True),  # so that the error names it
        "e.sqlite": (b"not a database", True),
        "f.db": (MAGIC, True),
        "g.db": (b"Berkeley", False),
        "h.sqlite3": (MAGIC, True),
        "i.json": (MAGIC, False),
        "J.SQLITE": (MAGIC, True),
    }
    for name, (content, expected) in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert is_report(path) is expected, name
        assert known(path) is expected, name
    assert not is_report(tmp_path / "absent.sqlite")


def test_folders(tmp_path):
    (tmp_path / "rep_pqtdir").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "renamed").mkdir()
    (tmp_path / "renamed" / "StringIds.parquet").write_bytes(b"")
    (tmp_path / "folder.sqlite").mkdir()
    assert is_report(tmp_path / "rep_pqtdir")
    assert is_report(tmp_path / "renamed")
    assert not is_report(tmp_path / "other")
    assert not is_report(tmp_path / "folder.sqlite")
    assert "_pqtdir" in SUFFIXES
