"""Databases of rocprofv3 made by its published schema: what they are read into, and damage."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import pytest
from tests.readers.reading import rows_of
from tests.readers.rocpd.database import UUID, Database, sizes, write

import alltrace
from alltrace.readers import rocpd
from alltrace.readers.registry import is_report, open_report
from alltrace.trace.errors import AlltraceError, InputError


def facts(path, table, *columns):
    return [tuple(r[c] for c in columns) for r in rows_of(path, table)]


@pytest.fixture(params=[False, True], ids=["times in rows", "times by number"])
def database(request, tmp_path):
    return write(tmp_path / "77_results.db", tracks=request.param)


def test_events_are_canonical_rows_in_both_versions_of_the_schema(database):
    device = ("start", "end", "device", "stream", "correlation")
    assert facts(
        database, "kernels", *device, "name", "short_name", "grid_x", "grid_y", "block_x", "registers", "shared_memory"
    ) == [
        (100, 300, 0, 2, 2, "void at::gemm<4>(int)", "gemm", 4, 2, 256, 64, 512),
        (300, 310, 0, 0, 4, "plain", "plain", 4, 2, 256, None, 512),
    ]
    assert facts(database, "copies", *device, "kind", "bytes") == [(50, 80, 0, 2, 3, "HtoD", 4096)]
    assert facts(database, "api", "start", "end", "thread", "correlation", "name", "kind") == [
        (10, 30, 0, 2, "hipLaunchKernel", "runtime"),
        (40, 90, 0, 3, "hsa_amd_memory_async_copy", "driver"),
    ]
    assert facts(database, "ranges", "start", "end", "thread", "name", "kind") == [(0, 900, 0, "step 1", "pushpop")]
    assert facts(database, "memory", "time", "device", "kind", "bytes", "address") == [(5, 0, "allocate", 64, 0x7000)]
    counters = facts(database, "kernel_counters", "time", "device", "thread", "number", "name", "metric", "value")
    assert counters == [(100, 0, None, 1, "void at::gemm<4>(int)", "SQ_WAVES", 1024.0)]


def test_who_the_database_is_about(database):
    reader = open_report(database)
    report, made = reader.report, reader.dictionaries()
    assert (report.format, report.host, report.system_clock_ns, report.utc_ns) == (
        "rocpd",
        "node7",
        5_000_000_000,
        None,
    )
    assert (report.environment, report.environment_removed) == ({"RANK": "3"}, 1)
    assert [(p.pid, p.name, p.gpu) for p in report.processes] == [(77, "train", True)]
    assert [str(w) for w in report.warnings] == [
        "the reader of rocprofv3 databases is experimental: it was only tested with databases made from the published"
        " schema"
    ]
    (device,) = made["devices"].to_pylist()
    assert (device["ordinal"], device["bus_id"], device["sm_count"]) == (2, "0000:0c:02.0", 304)
    assert made["threads"].column("tid").to_pylist() == [78]
    reader.close()


def test_a_run_of_it_answers_questions(database, tmp_path):
    run = alltrace.open(str(database), cache_dir=tmp_path / "cache")
    assert [r.rank for r in run.ranks] == [3]
    (row,) = run.recipe("breakdown").to_pylist()
    assert (row["span_ns"], row["compute_ns"], row["exposed_copy_ns"], row["idle_ns"]) == (260, 210, 30, 20)
    assert {r["name"]: r["total_ns"] for r in run.recipe("kernels").to_pylist()} == {
        "void at::gemm<4>(int)": 200,
        "plain": 10,
    }
    assert any("experimental" in str(note) for note in run.recipe("info").notes)


def test_without_streams_of_hip_queues_tell_the_stream(tmp_path):
    made = Database(tmp_path / "x.db", tracks=False)
    for queue in (5, 6):
        kernel = {
            "kernel_id": 6,
            "dispatch_id": queue,
            "queue_id": queue,
            "stream_id": 0,
            **sizes((1, 1, 1), (1, 1, 1)),
        }
        made.event("kernel_dispatch", queue, queue + 1, category="KERNEL_DISPATCH", call=1, agent_id=4, **kernel)
    made.close()
    assert facts(tmp_path / "x.db", "kernels", "stream") == [(5,), (6,)]


def test_processes_that_were_merged_into_one_database_stay_apart(tmp_path):
    path = write(tmp_path / "x.db")
    with closing(sqlite3.connect(path)) as one, one:
        other = write(tmp_path / "other.db", suffix="_b", pid=99)
        one.execute("ATTACH ? AS other", (str(other),))
        for (name,) in one.execute("SELECT name FROM other.sqlite_master WHERE name LIKE 'rocpd%'").fetchall():
            one.execute(f'CREATE TABLE "{name}" AS SELECT * FROM other."{name}"')
    assert [p.pid for p in open_report(path).report.processes] == [77, 99]
    assert facts(path, "kernels", "process", "device", "start") == [(0, 0, 100), (0, 0, 300), (1, 1, 100), (1, 1, 300)]


def test_rows_without_a_time_that_can_be_are_counted(tmp_path):
    made = Database(tmp_path / "x.db", tracks=False)
    for start, end in ((10, 20), (None, 20), (30, 20), ("soon", 40), (-5, 3)):
        made.event(
            "kernel_dispatch",
            start,
            end,
            category="K",
            call=1,
            agent_id=4,
            kernel_id=99,
            dispatch_id=1,
            **sizes((0, 1, 1), (1, 1, 1)),
        )
    made.close()
    reader = open_report(tmp_path / "x.db")
    (batch,) = [b for _, b in reader.stream(("kernels",))]
    assert batch.select(["start", "end", "grid_x"]).to_pylist() == [{"start": 0, "end": 10, "grid_x": None}]
    assert [str(w) for w in reader.warnings()] == ["rows left out because their start or end is implausible: 4"]


def test_a_database_of_nsys_called_db_is_not_its(tmp_path):
    with closing(sqlite3.connect(tmp_path / "x.db")) as other, other:
        other.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    assert (is_report(tmp_path / "x.db"), rocpd.is_report(tmp_path / "x.db")) == (True, False)


def test_a_view_in_place_of_the_table_is_refused(tmp_path):
    with closing(sqlite3.connect(tmp_path / "x.db")) as made, made:
        made.execute("CREATE VIEW rocpd_kernel_dispatch AS SELECT 1 AS id")
    with pytest.raises(InputError, match="it has no table rocpd_kernel_dispatch"):
        open_report(tmp_path / "x.db")


def test_damage_is_an_error_or_rows(tmp_path):
    data = write(tmp_path / "x.db").read_bytes()
    draw = random.Random(1)
    for _ in range(60):
        damaged = bytearray(data[: draw.choice([len(data), draw.randrange(len(data))])])
        for _ in range(draw.randrange(4)):
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        path = tmp_path / "damaged.db"
        path.write_bytes(damaged)
        if not is_report(path):
            continue
        try:
            reader = open_report(path)
            for _ in reader.stream(("kernels", "copies", "api", "ranges", "memory", "kernel_counters")):
                pass
            reader.close()
        except AlltraceError as error:
            assert str(path) in str(error)  # noqa: PT017


def test_names_of_tables_with_a_suffix_are_one_set(tmp_path):
    path = write(tmp_path / "x.db")
    with closing(sqlite3.connect(path)) as made, made:
        names = [
            n for (n,) in made.execute("SELECT name FROM sqlite_master WHERE type = 'table'") if n.startswith("rocpd_")
        ]
    assert all(n.endswith(UUID) for n in names)
    assert len(open_report(path).report.processes) == 1


def test_a_number_of_compute_units_that_cannot_be_is_unknown(tmp_path):
    path = write(tmp_path / "77_results.db")
    with closing(sqlite3.connect(path)) as opened, opened:
        for n, count in enumerate((0, -1, 2**31 - 1, 2**31)):
            row = (10 + n, 9, 77, "GPU", n, "gfx942", f'{{"cu_count": {count}}}')
            columns = "id, nid, pid, type, type_index, name, extdata"
            opened.execute(f'INSERT INTO "rocpd_info_agent{UUID}" ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)', row)
    with closing(open_report(path)) as reader:
        list(reader.stream(("kernels",)))
        numbers = [d["sm_count"] for d in reader.dictionaries()["devices"].to_pylist()]
    assert numbers == [304, 0, None, 2**31 - 1, None]
