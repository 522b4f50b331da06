import sqlite3
from contextlib import closing

import pytest
from tests.making import make_run

import alltrace
from alltrace.recipes.execution.ask import ask
from alltrace.synth import write_run
from alltrace.trace.errors import UsageError


def test_calls_bytes_and_sizes(tmp_path):
    def osrt(name, took, returned, start=0):
        return {"start": start, "end": start + took, "name": name, "return_value": returned}

    ranks = {
        0: {
            "osrt": [
                osrt("read", 10, 100),
                osrt("read", 20, 0),
                osrt("read", 30, -1),
                osrt("open64", 7, 3),
                osrt("poll", 99, 1),
            ]
        },
        1: {"osrt": [osrt("read", 40, 5000), osrt("pwrite64", 50, 4096)]},
    }
    answer = ask(make_run(tmp_path / "run", ranks), "file_access_sum")
    rows = [
        (r["Function"], r["Kind"], r["Count"], r["Bytes"], r["Avg Size"], r["Total Time"], r["Med"])
        for r in answer.table.to_pylist()
    ]
    assert rows == [
        ("read", "read", 4, 5100, 2550.0, 100, 25.0),
        ("pwrite64", "write", 1, 4096, 4096.0, 50, 50.0),
        ("open64", "open", 1, None, None, 7, 7.0),
    ]
    of_rank = answer.further["rank_operations"].table.to_pylist()
    assert [(r["Rank"], r["Function"], r["Bytes"]) for r in of_rank] == [
        (0, "read", 100), (0, "open64", None), (1, "pwrite64", 4096), (1, "read", 5000),
    ]  # fmt: skip
    assert [tuple(r.values()) for r in answer.further["sizes"].table.to_pylist()] == [
        ("read", 0, 1, 1, 0), ("read", 64, 128, 1, 100), ("read", 4096, 8192, 1, 5000), ("write", 4096, 8192, 1, 4096),
    ]  # fmt: skip
    assert answer.notes == ()


def access(start, took, kind, path, size=0, **others):
    return {
        "start": start,
        "end": start + took,
        "kind": kind,
        "file": path,
        "bytes": size,
        "access": 1,
        "name": kind,
        **others,
    }


def named(tmp_path):
    """Two hosts; one file is read by both ranks, one written by the second, one only opened."""
    ranks = {
        0: {
            "file_accesses": [
                access(0, 5, "open", "/data/a"), access(10, 100, "read", "/data/a", 8000),
                access(120, 50, "read", "/data/a", 100), access(200, 5, "close", "/data/a"),
                access(300, 7, "open", "/etc/hosts"),
            ],
            "ranges": [{"start": 0, "end": 115, "name": "load", "kind": "pushpop"}],
        },
        1: {
            "file_accesses": [
                access(0, 10, "read", "/data/a", 900), access(20, 30, "write", "/out/b", 5000),
                access(60, 1, "read", "/out/b", 0), access(70, 2, "other", "/out/b"),
            ]
        },
    }  # fmt: skip
    return make_run(tmp_path / "run", ranks, hosts={0: "here", 1: "there"})


def cells(table, *titles):
    return [tuple(row[t] for t in titles) for row in table.table.to_pylist()]


def test_files_by_name_those_with_most_bytes_first(tmp_path):
    answer = ask(named(tmp_path), "file_access_sum")
    titles = (
        "Path",
        "Pattern",
        "Ranks",
        "Reads",
        "Writes",
        "Opens",
        "Closes",
        "Bytes Read",
        "Bytes Written",
        "Avg Read Size",
    )
    assert cells(answer.further["file_access"], *titles) == [
        ("/data/a", "read-only", 2, 3, 0, 1, 1, 9000, 0, 3000.0),
        ("/out/b", "mixed", 1, 1, 1, 0, 0, 0, 5000, 0.0),
        ("/etc/hosts", "no data", 1, 0, 0, 1, 0, 0, 0, None),
    ]
    times = ("Small Calls", "Read Time", "Write Time", "Other Time", "Total Time")
    assert cells(answer.further["file_access"], *times) == [(2, 160, 0, 10, 170), (0, 1, 30, 2, 33), (0, 0, 0, 7, 7)]
    assert answer.further["range_access"].table.num_rows == 0
    assert answer.table.num_rows == 0


def test_files_by_process_host_and_range(tmp_path):
    answer = ask(named(tmp_path), "file_access_sum")
    found = cells(answer.further["process_access"], "Rank", "PID", "Files", "Bytes Read", "Bytes Written", "Total Time")
    assert found == [(0, 4000, 2, 8100, 0, 167), (1, 4000, 2, 900, 5000, 43)]
    found = cells(answer.further["host_access"], "Host", "Ranks", "Files", "Reads", "Writes")
    assert found == [("here", 1, 2, 2, 0), ("there", 1, 2, 2, 1)]
    run = named(tmp_path / "2")
    answer = ask(run, "file_access_sum", {"per_nvtx": True, "ignore": "^/etc"})
    found = cells(answer.further["range_access"], "Range", "Reads", "Opens", "Bytes Read", "Bytes Written")
    assert found == [("load", 1, 1, 8000, 0), (None, 3, 0, 1000, 5000)]
    assert [p for (p,) in cells(answer.further["file_access"], "Path")] == ["/data/a", "/out/b"]
    with pytest.raises(UsageError, match="not a valid regular expression"):
        ask(run, "file_access_sum", {"ignore": "("})


def test_what_costs_more_than_it_must_is_said(tmp_path):
    small = [access(i * 10, 1, "read", "/a", 10) for i in range(3)]
    opened = [access(100 + i * 10, 9, "open", f"/m/{i}") for i in range(4)]
    answer = ask(make_run(tmp_path / "run", {0: {"file_accesses": [*small, *opened]}}), "file_access_sum")
    assert [note.partition(";")[0] for note in answer.notes] == [
        "100 % of the accesses to files move less than 4096 bytes",
        "92 % of the time in accesses to files is opening, closing and the like, and not data",
    ]


# as export schema 3.30 has them
TABLES = """
CREATE TABLE OSRT_FILE_ACCESS_EVENTS (
  fileAccessId INTEGER NOT NULL, threadId INTEGER NOT NULL, startedAt INTEGER NOT NULL, endedAt INTEGER NOT NULL,
  eventType INTEGER NOT NULL, apiCallId INTEGER NOT NULL, bytesProcessed INTEGER NOT NULL, context TEXT NOT NULL);
CREATE TABLE OSRT_FILE_ACCESS_DESCRIPTORS (
  fileAccessId INTEGER NOT NULL, processId INTEGER NOT NULL, openedAt INTEGER NOT NULL, closedAt INTEGER NOT NULL,
  filePath TEXT NOT NULL);
CREATE TABLE ENUM_OSRT_FILE_ACCESS_EVENT_TYPE (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_OSRT_FILE_ACCESS_EVENT_TYPE VALUES
  (0, 'FILE_ACCESS_OPEN', 'Open'), (1, 'FILE_ACCESS_CLOSE', 'Close'), (2, 'FILE_ACCESS_READ', 'Read'),
  (3, 'FILE_ACCESS_WRITE', 'Write');
INSERT INTO StringIds VALUES (900001, 'pread64'), (900002, 'open64');
"""


@pytest.mark.parametrize("whole_ids", [False, True], ids=["plain ids", "global ids"])
def test_a_report_with_accesses_to_files(tmp_path, whole_ids):
    write_run("healthy", tmp_path / "reports", ranks=2, hosts=2, steps=2, layers=4, ideal=True)
    for rank, report in enumerate(sorted((tmp_path / "reports").glob("*.sqlite"))):
        with closing(sqlite3.connect(report)) as database, database:
            database.executescript(TABLES)
            ((start, end, thread),) = database.execute(
                "SELECT start, end, globalTid FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId "
                "WHERE coalesce(n.text, s.value) = 'step 1'"
            ).fetchall()
            pid, tid = (thread >> 24) & 0xFFFFFF, thread & 0xFFFFFF
            process, own = (thread & ~0xFFFFFF, thread) if whole_ids else (pid, tid)
            database.execute("INSERT INTO OSRT_FILE_ACCESS_DESCRIPTORS VALUES (7, ?, 0, 0, '/data/shard')", (process,))
            read = (start + 20, start + 50, 2, 900001, 4096 + rank)
            events = [(start + 1, start + 11, 0, 900002, 0), read, (end + 9, end + 10, 1, 900002, 0)]
            database.executemany(
                "INSERT INTO OSRT_FILE_ACCESS_EVENTS VALUES (7, ?, ?, ?, ?, ?, ?, '')",
                [(own, s, e, kind, call, size) for s, e, kind, call, size in events],
            )
    run = alltrace.open(tmp_path / "reports", cache_dir=tmp_path / "cache")
    assert [r.rows["file_accesses"] for r in run.ranks] == [3, 3]
    assert set(run.rank(0).texts(run.rank(0).table("file_accesses", ["name"]).column("name")).to_pylist()) == {
        "pread64",
        "open64",
    }
    answer = ask(run, "file_access_sum", {"per_nvtx": True})
    titles = ("Path", "Pattern", "Ranks", "Reads", "Opens", "Closes", "Bytes Read", "Total Time")
    assert cells(answer.further["file_access"], *titles) == [("/data/shard", "read-only", 2, 2, 2, 2, 8193, 82)]
    ranges = {
        r["Range"]: (r["Reads"], r["Closes"], r["Bytes Read"]) for r in answer.further["range_access"].table.to_pylist()
    }
    assert (ranges["step 1"][0], ranges["step 1"][2]) == (2, 8193)
    assert sum(closes for _, closes, _ in ranges.values()) == 2
