from __future__ import annotations

import pytest

from alltrace.readers.nsys import identity
from alltrace.readers.nsys.read import open_report

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid, demangledName)"
SECRET = "hunter2-very-secret"


def kernel(pid, device=0):
    return (1, 2, device, 7, 1, pid, None)


@pytest.mark.parametrize("table", ["META_DATA_EXPORT", "EXPORT_META_DATA"])
def test_versions_host_and_clock(export, read, tid, table):
    tables = {
        KERNEL: [kernel(tid(9))],
        f"{table}(name TEXT, value TEXT)": [
            ("EXPORT_PRODUCT_VERSION", "2025.1.1.110"),
            ("EXPORT_SCHEMA_VERSION", "3.17.1"),
        ],
        "TARGET_INFO_SESSION_START_TIME(utcEpochNs, utcTime TEXT)": [(1_700_000_000_000_000_000, "x")],
        "ANALYSIS_DETAILS(globalVid, duration, startTime, stopTime)": [(0, 500, 100, 600)],
        "TARGET_INFO_SYSTEM_ENV(globalVid, name TEXT, value TEXT)": [(0, "Hostname", "node7")],
    }
    report = read(export(tables)).report
    assert report.profiler == "Nsight Systems 2025.1.1.110"
    assert report.schema_version == "3.17.1"
    assert (report.host, report.utc_ns, report.start_ns, report.stop_ns) == ("node7", 1_700_000_000_000_000_000, 0, 500)
    assert report.format == "nsys-sqlite"


def test_an_export_that_says_nothing_about_itself(export, read, tid):
    report = read(export({KERNEL: [kernel(tid(9))]})).report
    assert (report.profiler, report.schema_version, report.host, report.utc_ns) == ("Nsight Systems", None, None, None)
    assert (report.start_ns, report.stop_ns, report.world_size) == (None, None, None)
    assert report.environment == {}


@pytest.mark.parametrize("stamp", [2**63 - 1, -(2**63), -1])
def test_a_stamp_that_is_no_time_is_none(export, read, tid, stamp):
    stamps = "TARGET_INFO_SESSION_START_TIME(utcEpochNs, systemClockNs)"
    report = read(export({KERNEL: [kernel(tid(9))], stamps: [(stamp, stamp)]})).report
    assert (report.utc_ns, report.system_clock_ns) == (None, None)


def test_only_allowed_variables_are_kept(export, read, tid):
    tables = {
        KERNEL: [kernel(tid(9))],
        "META_DATA_CAPTURE(name TEXT, value TEXT)": [
            ("PROCESS_0:ENVIRONMENT_VARIABLE", 'RANK="3"'),
            ("PROCESS_0:ENVIRONMENT_VARIABLE", f'HF_TOKEN="{SECRET}"'),
            ("PROCESS_0:ENVIRONMENT_VARIABLE", f'NCCL_ALGO="{SECRET * 20}"'),
            ("PROCESS_0:ENVIRONMENT_VARIABLE", f'NCCL_PROTO="\n{SECRET}"'),
            ("PROCESS_0:ENVIRONMENT_VARIABLE", "no assignment"),
            ("PROCESS_0:COMMAND_LINE", f"train.py --token {SECRET}"),
        ],
        "TARGET_INFO_SYSTEM_ENV(globalVid, name TEXT, value TEXT)": [
            (0, "DeviceEnvironment", f"RANK=9;WORLD_SIZE=16;API_KEY={SECRET};NCCL_NET=AWS Libfabric"),
            (0, "OsVersion", SECRET),
        ],
        "PROCESSES(globalPid, pid, name TEXT)": [(tid(9), 9, f"/usr/bin/python train.py --key {SECRET}")],
        "ProcessStreams(globalPid, filenameId, contentId)": [(tid(9), 50, 51)],
        "ANALYSIS_FILE(id, filename TEXT, contentId, globalPid)": [(1, SECRET, 51, tid(9))],
        "DIAGNOSTIC_EVENT(timestamp, source, severity, text TEXT)": [
            (1, 1, 2, f"120 events were dropped: {SECRET}"),
            (2, 1, 3, "some samples were lost"),
            (3, 1, 1, f"nothing dropped {SECRET}"),
        ],
    }
    got = read(export(tables, strings={50: SECRET, 51: SECRET}))
    assert got.report.environment == {"RANK": "3", "WORLD_SIZE": "16", "NCCL_NET": "AWS Libfabric"}
    assert got.report.environment_removed == 4
    assert got.report.world_size == 16
    assert [p.name for p in got.report.processes] == ["python"]
    assert "The profiler reported 2 times that events or samples were lost." in map(str, got.report.warnings)
    assert SECRET not in got.everything()


def test_processes_on_the_gpu_are_found_from_rows_when_contexts_name_several(export, read, tid):
    tables = {
        KERNEL: [kernel(tid(9), 2), kernel(tid(9), 1), kernel(tid(7), 0)],
        "CUPTI_ACTIVITY_KIND_MEMCPY(start, end, deviceId, globalPid, bytes, copyKind)": [(1, 2, 3, tid(6), 5, 1)],
        "TARGET_INFO_CUDA_CONTEXT_INFO(processId, deviceId, contextId)": [(5, 0, 1), (6, 3, 1), (7, 0, 1), (9, 1, 1)],
        "NVTX_EVENTS(start, end, eventType, text TEXT, globalTid)": [(1, 2, 59, "r", tid(4, 4))],
    }
    got = read(export(tables))
    assert [(p.process, p.pid, p.gpu, p.device_ordinal) for p in got.report.processes] == [
        (0, 6, True, 3), (1, 7, True, 0), (2, 9, True, 1),
    ]  # fmt: skip
    assert got.column("processes", "pid") == [6, 7, 9, 4]  # the others follow
    assert got.column("ranges", "process") == [3]


def test_one_process_is_known_without_reading_all_rows(export, tid):
    from alltrace.readers.nsys import identity
    from alltrace.readers.nsys.entities import Entities
    from alltrace.readers.nsys.sqlite import open_sqlite
    from alltrace.readers.nsys.strings import Strings

    path = export(
        {
            KERNEL: [kernel(tid(9), 1)] * 5000,
            "TARGET_INFO_CUDA_STREAM(processId, contextId, streamId)": [(9, 1, 7), (9, 1, 13)],
        }
    )
    source = open_sqlite(path)
    read_rows = []
    original = source.batches

    def counted(table, columns, batch_rows=131_072):
        for batch in original(table, columns, batch_rows):
            read_rows.append(batch.num_rows if table.startswith("CUPTI") else 0)
            yield batch

    source.batches = counted
    found = identity.processes(source, Entities(source, Strings(source)), {})
    source.close()
    assert [(p.pid, p.device_ordinal) for p in found] == [(9, 1)]
    assert sum(read_rows) <= 64


def test_a_process_that_makes_no_stream_of_its_own_is_found_behind_another_that_does(export, read, tid):
    tables = {
        KERNEL: [kernel(tid(9), 0)] * 200 + [kernel(tid(7), 1)] * 200,
        "TARGET_INFO_CUDA_CONTEXT_INFO(processId, deviceId, contextId)": [(9, 0, 1), (7, 1, 1)],
        "TARGET_INFO_CUDA_STREAM(processId, contextId, streamId)": [(9, 1, 13)],
    }
    got = read(export(tables))
    assert [(p.pid, p.device_ordinal) for p in got.report.processes] == [(7, 1), (9, 0)]


def test_the_busiest_process_of_a_host_comes_first(export, read, tid):
    rows = [(1, 2, 59, "r", tid(4, 4)), (3, 4, 59, "r", tid(8, 8)), (5, 6, 59, "r", tid(8, 9))]
    got = read(export({"NVTX_EVENTS(start, end, eventType, text TEXT, globalTid)": rows}))
    assert [(p.pid, p.gpu) for p in got.report.processes] == [(8, False), (4, False)]


def test_mpi_ranks_from_the_names_of_threads(export, read, tid):
    tables = {
        "MPI_OTHER_EVENTS(start, end, globalTid, textId)": [(1, 2, tid(8, 8), 1), (1, 2, tid(9, 9), 1)],
        "ThreadNames(nameId, priority, globalTid)": [
            (2, 0, tid(8, 8)),
            (3, 0, tid(9, 9)),
            (2, 0, tid(7, 6)),
            (4, 0, tid(5, 5)),
        ],
    }
    got = read(export(tables, strings={1: "MPI_Init", 2: "MPI Rank 1", 3: "MPI Rank 0", 4: "MPI Rank x"}))
    assert {p.pid: p.mpi_rank for p in got.report.processes} == {8: 1, 9: 0}


def test_warnings(export, read, tid):
    tables = {
        "META_DATA_EXPORT(name TEXT, value TEXT)": [("EXPORT_SCHEMA_VERSION", "3.31.0")],
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start, end, deviceId, streamId, globalPid, graphId, graphExecId)": [
            (1, 2, 0, 7, tid(9), 4, 5)
        ],
    }
    got = read(export(tables))
    assert [w.text.split(",")[0].split(" (")[0] for w in got.report.warnings] == [
        "CUDA graphs were traced as a whole",
        "The report has no NVTX events.",
        "The export's schema 3.31 is newer than 3.30",
    ]
    assert got.column("graphs", "graph_exec") == [5]
    no_cuda = read(export({"OSRT_API(start, end, globalTid, nameId, returnValue)": [(1, 2, tid(9, 9), None, -1)]}))
    assert [w.text for w in no_cuda.report.warnings] == [
        "The report has no CUDA events.",
        "The report has no NVTX events.",
    ]
    assert no_cuda.column("osrt", "return_value") == [-1]


def test_tables_with_rows_that_are_not_read_are_named(export, read, tid):
    """Facts of the report, tables without rows, and those of other programs are not."""
    tables = {
        "OSRT_API(start, end, globalTid, nameId)": [(1, 2, tid(9, 9), None)],
        "OSRT_CALLCHAINS(id, symbol, stackDepth)": [(1, 2, 0)],
        "CUDA_GRAPH_EVENTS(start, end, nameId, globalTid)": [(1, 2, 3, tid(9, 9))],
        "CUDNN_EVENTS(start, end, nameId, globalTid)": [],
        "CUPTI_ACTIVITY_KIND_ENVIRONMENT_V2(timestamp, deviceId)": [(1, 0)],
        "NEW_KIND_OF_EVENTS(start, end)": [(1, 2)],
        "TARGET_INFO_SYSTEM_ENV(name TEXT, value TEXT)": [("a", "b")],
        "MPI_RANKS(globalTid, rank)": [(tid(9, 9), 0)],
        "ENUM_OPENMP_THREAD(id, name TEXT, label TEXT)": [(1, "a", "b")],
        "cudaAPIStats(name TEXT)": [("a",)],
    }
    texts = [w.text for w in read(export(tables)).report.warnings]
    names = "CUDA_GRAPH_EVENTS, CUPTI_ACTIVITY_KIND_ENVIRONMENT_V2, NEW_KIND_OF_EVENTS, OSRT_CALLCHAINS"
    assert f"Tables with rows that alltrace does not read: {names}." in texts


def test_known_processes_are_numbered_as_before_and_not_looked_for(export, tid, monkeypatch):
    """Opened again, a report whose rows name the less busy process first numbers both as it did."""
    path = export(
        {"OSRT_API(start, end, globalTid, nameId)": [(1, 2, tid(4), 1), (1, 2, tid(8), 1), (3, 4, tid(8), 1)]}
    )
    first = open_report(path)
    assert [(p.process, p.pid, p.source_id) for p in first.report.processes] == [
        (0, 8, tid(8) >> 24),
        (1, 4, tid(4) >> 24),
    ]
    monkeypatch.delattr(identity, "_busiest")
    again = open_report(path, first.report.processes)
    assert again.report.processes == first.report.processes
    for reader in (first, again):
        (rows,) = (batch.column("process").to_pylist() for _, batch in reader.stream(["osrt"]))
        assert rows == [1, 0, 0]
        assert reader.dictionaries()["processes"].column("pid").to_pylist() == [8, 4]
        reader.close()


def test_all_columns_of_a_start_end_range(export, tid):
    columns = "start, end, eventType, textId, globalTid, domainId, color, category, int32Value, endGlobalTid"
    rows = [(0, None, 75, 2, tid(4), 7, None, None, None, None), (5, 9, 60, 1, tid(4), 7, 3, 2, 11, tid(4, 5))]
    path = export({f"NVTX_EVENTS({columns})": rows}, strings={1: "work", 2: "mine"})
    reader = open_report(path)
    ((_, batch),) = reader.stream(["ranges"])
    texts = {n["id"]: n["value"] for n in reader.dictionaries()["names"].to_pylist()}
    (row,) = batch.to_pylist()
    reader.close()
    assert (row["start"], row["end"], texts[row["name"]], texts[row["domain"]]) == (5, 9, "work", "mine")
    assert (row["color"], row["category"], row["payload"], row["kind"]) == (3, 2, "11", "startend")
