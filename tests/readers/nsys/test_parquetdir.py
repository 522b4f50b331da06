from __future__ import annotations

import os
import sys
import textwrap

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.nsight_run import run_nsys

from alltrace.readers.nsys.parquetdir import ParquetFolder
from alltrace.readers.registry import open_report
from alltrace.trace.errors import InputError


def write(folder, tables):
    folder.mkdir()
    for name, table in tables.items():
        pq.write_table(pa.table(table), folder / f"{name}.parquet", row_group_size=2, compression="none")
    return folder


def test_types_are_those_of_sqlite(tmp_path, read, tid):
    high = tid(9, 9) | 1 << 63
    folder = write(
        tmp_path / "rep_pqtdir",
        {
            "StringIds": {
                "id": pa.array([1, 2], pa.int32()),
                "value": pa.array(["cudaMalloc", b"\xff\xfe".decode("latin-1")]),
            },
            "CUPTI_ACTIVITY_KIND_RUNTIME": {
                "start": pa.array([1, 2, 3]),
                "end": pa.array([2, 3, 4]),
                "eventClass": pa.array([0, 0, 1], pa.int64()),
                "globalTid": pa.array([tid(9, 9), high, tid(9, 9)], pa.uint64()),
                "correlationId": pa.array([5, 6, 7], pa.uint64()),
                "nameId": pa.array([1, 1, None], pa.uint64()),
                "returnValue": pa.array([0, -1, 700], pa.int32()),
            },
        },
    )
    got = read(folder)
    assert got.report.format == "nsys-parquet"
    assert got.column("api", "name") == ["cudaMalloc", "cudaMalloc", None]
    assert got.column("api", "return_value") == [0, -1, 700]
    assert got.column("threads", "source_id") == [tid(9, 9), high - (1 << 64)]
    assert got.column("threads", "tid") == [9, 9]
    assert got.column("processes", "pid") == [9, 9]


def test_a_folder_whose_name_is_no_utf8(tmp_path):
    folder = write(tmp_path / "x_pqtdir", {"T": {"a": [1, 2, 3]}})
    source = ParquetFolder(folder.rename(tmp_path / os.fsdecode(b"\xff_pqtdir")))
    assert [b.column(0).to_pylist() for b in source.batches("T", {"a": pa.int64()})] == [[1, 2, 3]]
    source.close()


def test_small_row_groups_become_full_batches(tmp_path):
    folder = write(tmp_path / "x_pqtdir", {"T": {"a": list(range(11)), "b": [str(i) for i in range(11)]}})
    source = ParquetFolder(folder)
    assert source.tables == {"T": {"a": "int64", "b": "string"}}
    assert source.count_about("T") == 11
    batches = list(source.batches("T", {"b": pa.string(), "a": pa.int16()}, batch_rows=4))
    assert [b.num_rows for b in batches] == [4, 4, 3]
    assert [v for b in batches for v in b.column(1).to_pylist()] == list(range(11))
    assert batches[0].schema == pa.schema({"b": pa.string(), "a": pa.int16()})
    source.close()


def test_a_value_too_large_is_named(tmp_path):
    source = ParquetFolder(write(tmp_path / "x_pqtdir", {"T": {"a": [1 << 40]}}))
    with pytest.raises(InputError, match="table T, column a: a value does not fit int16"):
        list(source.batches("T", {"a": pa.int16()}))
    source.close()


def test_damaged_and_empty_folders(tmp_path):
    folder = tmp_path / "empty_pqtdir"
    folder.mkdir()
    with pytest.raises(InputError, match=r"the folder has no \.parquet files"):
        open_report(folder)
    (folder / "StringIds.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match=r"StringIds\.parquet: it cannot be read as Parquet"):
        open_report(folder)


APP = """
    import threading, time, nvtx
    def work(n):
        for i in range(n):
            with nvtx.annotate(f"step{i % 3}", domain="dom" if i % 2 else None, color="blue", category="cat"):
                with nvtx.annotate("inner"):
                    time.sleep(0.0002)
    outer = nvtx.start_range("outer")
    worker = threading.Thread(target=work, args=(1200,)); worker.start(); work(1200); worker.join()
    nvtx.mark("mark", domain="dom", category="k")
    nvtx.end_range(outer)
    nvtx.push_range("never popped")
"""


@pytest.mark.oracle
@pytest.mark.slow
def test_the_same_report_in_all_three_forms(tmp_path, nsys, read, monkeypatch):
    pytest.importorskip("nvtx")
    (tmp_path / "app.py").write_text(textwrap.dedent(APP))

    def run(*arguments):
        run_nsys(nsys, arguments, tmp_path)

    profile = ["profile", "-f", "true", "-t", "nvtx,osrt", "-s", "none", "--cpuctxsw=none", "-o", "rep"]
    run(*profile, sys.executable, "app.py")
    run("export", "-t", "sqlite", "-o", "rep.sqlite", "rep.nsys-rep")
    run("export", "-t", "parquetdir", "-o", "rep_pqtdir", "rep.nsys-rep")
    monkeypatch.setenv("ALLTRACE_NSYS", str(nsys))
    before = sorted(p.name for p in tmp_path.iterdir())
    sqlite, folder, report = (read(tmp_path / n) for n in ("rep.sqlite", "rep_pqtdir", "rep.nsys-rep"))
    assert sorted(p.name for p in tmp_path.iterdir()) == before  # nothing is written beside the report
    if not sqlite.tables.get("ranges"):
        pytest.skip("this nsys does not see the ranges of this nvtx package")
    assert sqlite.tables["ranges"].num_rows >= 4800
    assert set(sqlite.column("ranges", "domain")) == {None, "dom"}
    assert {"outer", "inner", "never popped", "step0"} <= set(sqlite.column("ranges", "name"))
    for other in (folder, report):
        assert other.report.processes == sqlite.report.processes
        assert (other.report.utc_ns, other.report.stop_ns) == (sqlite.report.utc_ns, sqlite.report.stop_ns)
        assert other.report.host == sqlite.report.host
        assert other.tables.keys() == sqlite.tables.keys()
        for name in (*sqlite.tables, *sqlite.dictionaries):
            assert other.rows(name) == sqlite.rows(name), name
