import csv

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.making import HOSTILE, copy, kernel, make_run

from alltrace.export.selection import select
from alltrace.export.tables import FORMATS, export_tables
from alltrace.run.manifest import Clock
from alltrace.trace.errors import UsageError

RANKS = {
    0: {"kernels": [kernel(10, 20), kernel(30, 2**40, "k2(int)")], "copies": [copy(5, 9)]},
    1: {
        "kernels": [kernel(110, 120)],
        "ranges": [{"start": 100, "end": None, "name": n, "kind": "pushpop"} for n in HOSTILE],
    },
}
CLOCKS = (Clock("host0"), Clock("host1", offset_ns=100))


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", RANKS, hosts={0: "host0", 1: "host1"}, clocks=CLOCKS)


def read(path, form):
    if form == "parquet":
        return pq.read_table(path).to_pylist()
    if form == "arrow":
        with pa.ipc.open_file(path) as file:
            return file.read_all().to_pylist()
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("form", FORMATS)
def test_tables_of_all_ranks_with_names_as_text_on_the_aligned_clock(run, tmp_path, form):
    rows = export_tables(select(run), tmp_path / "out", form)
    assert rows == {"kernels": 3, "copies": 1, "ranges": 9, "processes": 2, "threads": 2, "devices": 2, "streams": 2}
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(f"{t}.{form}" for t in rows)
    found = read(tmp_path / "out" / f"kernels.{form}", form)
    wanted = ("rank", "host", "start", "end", "name")
    assert [[str(r[c]) for c in wanted] for r in found] == [
        ["0", "host0", "10", "20", "void gemm_kernel(int)"],
        ["0", "host0", "30", str(2**40), "k2(int)"],
        ["1", "host1", "10", "20", "void gemm_kernel(int)"],
    ]
    ranges = read(tmp_path / "out" / f"ranges.{form}", form)
    assert [r["name"] for r in ranges] == list(HOSTILE)
    assert {r["end"] for r in ranges} == ({""} if form == "csv" else {None})


def test_only_some_ranks_tables_and_a_window(run, tmp_path):
    chosen = select(run, ranks=[0], only=["kernels"], window_ns=(25, 31))
    assert chosen.window_ns == (25, 31)  # the first event of the run starts at 0, on rank 1
    assert export_tables(chosen, tmp_path / "out", "csv") == {
        "kernels": 1,
        "processes": 1,
        "threads": 1,
        "devices": 1,
        "streams": 1,
    }


def test_what_is_there_is_not_written_over(run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(UsageError, match="exists"):
        export_tables(select(run), tmp_path / "out", "csv")
