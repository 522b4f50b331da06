"""A window clips what reaches beyond it, at both ends and in every format."""

import csv
import random
from collections import Counter

import pytest
from tests.making import kernel, make_run, random_rows

from alltrace.export.chrome import export_chrome
from alltrace.export.paraver.writer import export_paraver
from alltrace.export.selection import select, window_of
from alltrace.export.tables import export_tables
from alltrace.trace.errors import UsageError
from alltrace.trace.range_selector import parse_range
from alltrace.trace.schema import TABLES

TIMED = ["kernels", "copies", "graphs", "api", "ranges", "mpi", "ucx", "osrt", "syscalls", "openacc", "openmp"]
POINTS = ["marks", "gpu_metrics", "memory"]
LENGTH = 2000
SINCE, UNTIL = 500, 900


@pytest.fixture(scope="module")
def ranks():
    draw = random.Random(3)
    rows = {r: {t: random_rows(t, 80, draw, length=LENGTH) for t in (*TIMED, *POINTS)} for r in range(2)}
    for r in rows.values():
        r["kernels"] += [
            kernel(0, LENGTH),
            kernel(SINCE - 5, SINCE),
            kernel(UNTIL, UNTIL + 4),
            kernel(SINCE, SINCE),
            kernel(499, 501),
        ]
    return rows


@pytest.fixture(scope="module")
def run(ranks, tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("window") / "run", ranks)


def clipped(ranks, table):
    """The parts of a table's rows that lie in the window, ns from its start."""
    last = max(
        row.get("end") or row.get("time") or 0 for rows in ranks.values() for t in (*TIMED, *POINTS) for row in rows[t]
    )
    found = Counter()
    for rows in ranks.values():
        for row in rows[table]:
            start, end = row["start"], row["end"]
            end = end if end is not None else last if table == "ranges" else start
            end = max(end, start)
            if start < UNTIL and (end > SINCE or start >= SINCE):
                found[max(start, SINCE) - SINCE, min(end, UNTIL) - SINCE] += 1
    return found


def test_tables(ranks, run, tmp_path):
    zero = run.span_ns[0]
    selection = select(run, window_ns=(SINCE - zero, UNTIL - zero))
    export_tables(selection, tmp_path / "out", "csv")
    for table in TIMED:
        with (tmp_path / "out" / f"{table}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        found = Counter((int(r["start"]) - SINCE, int(r["end"]) - SINCE) for r in rows if r["end"])
        open_ = sum(not r["end"] for r in rows)
        wanted = clipped(ranks, table)
        if not open_:
            assert found == wanted, table
        else:
            assert sum((found - wanted).values()) == 0, table
            assert found.total() + open_ == wanted.total()
    for table in POINTS:
        order = TABLES[table].order
        wanted = sorted(row[order] for rows in ranks.values() for row in rows[table] if SINCE <= row[order] < UNTIL)
        with (tmp_path / "out" / f"{table}.csv").open(newline="") as file:
            assert sorted(int(r[order]) for r in csv.DictReader(file)) == wanted


def test_viewers(ranks, run, tmp_path):
    zero = run.span_ns[0]
    selection = select(run, window_ns=(SINCE - zero, UNTIL - zero))
    wanted = sum((clipped(ranks, t) for t in TIMED), Counter())
    from tests.export.test_slices import chrome, perfetto

    for read in (perfetto, chrome):
        found = read(run, tmp_path / read.__name__, window_ns=(SINCE - zero, UNTIL - zero))
        assert Counter((s[1], s[2]) for s in found) == wanted
    assert export_chrome(selection, tmp_path / "t").slices == wanted.total()


def test_paraver(ranks, run, tmp_path):
    zero = run.span_ns[0]
    export_paraver(select(run, window_ns=(SINCE - zero, UNTIL - zero)), tmp_path / "out.prv", details=True)
    lines = (tmp_path / "out.prv").read_text().splitlines()
    assert f":{UNTIL - SINCE}_ns:" in lines[0]
    times = [int(t) for line in lines if line[:1] in "123" for t in line.split(":")[5:7][: 1 + (line[0] == "1")]]
    assert min(times) == 0
    assert max(times) == UNTIL - SINCE
    begun = Counter(
        int(line.split(":")[5])
        for line in lines
        if line[0] == "2" and ":63000006:" in f":{line}:" and ":63000006:0" not in line
    )
    kernels = clipped(ranks, "kernels")
    assert begun.total() <= kernels.total()
    assert set(begun) <= {start for start, _ in kernels}
    assert begun[0]


def test_calls_of_collectives_without_a_kernel_are_in_tables(tmp_path):
    operations = [
        {
            "start": None,
            "end": None,
            "api_start": t,
            "api_end": t + 5,
            "op": "AllReduce",
            "device": None,
            "stream": None,
        }
        for t in (100, 200, 300)
    ]
    run = make_run(tmp_path / "run", {0: {"collectives": operations, "kernels": [kernel(0, 400)]}})
    assert export_tables(select(run), tmp_path / "all", "csv")["collectives"] == 3
    assert export_tables(select(run, window_ns=(150, 250)), tmp_path / "some", "csv")["collectives"] == 1


def named(run, text):
    return window_of(run, run.ranks, parse_range("--range", text))


def test_a_range_is_a_window_to_the_end_of_the_work_launched_in_it(tmp_path):
    call = {"name": "cudaLaunchKernel", "kind": "runtime"}

    def rank(shift):
        return {
            "ranges": [
                {"start": 1000 + shift, "end": 1100 + shift, "name": "step", "kind": "pushpop"},
                {"start": 2000 + shift, "end": 2100 + shift, "name": "step", "kind": "pushpop"},
                {"start": 2010, "end": 2020, "name": "step", "kind": "pushpop", "domain": "other"},
                {"start": 9000, "end": None, "name": "open", "kind": "startend"},
            ],
            "api": [
                {"start": 1050 + shift, "end": 1060 + shift, "correlation": 1, **call},
                {"start": 2050 + shift, "end": 2060 + shift, "correlation": 2, **call},
                {"start": 1050, "end": 1060, "correlation": 3, "thread": 1, **call},  # another thread's
                {"start": 1100 + shift, "end": 1160 + shift, "correlation": 4, **call},  # after the range
            ],
            "kernels": [kernel(1500 + shift, 1600 + shift, correlation=1), kernel(2070, 2080, correlation=2)],
            "copies": [{"start": 5000, "end": 5500, "kind": "HtoD", "correlation": c} for c in (3, 4)],
            "osrt": [{"start": 0, "end": 10_000, "name": "read"}],
        }

    run = make_run(tmp_path / "run", {0: rank(0), 1: rank(7)})
    assert named(run, "step") == (1000, 2107)
    assert named(run, "step/0") == (1000, 1607)
    assert named(run, "step/1") == (2000, 2107)
    assert named(run, "step@other") == (2010, 2020)
    assert named(run, "step@*/0") == (1000, 1607)
    assert named(run, "open") == (9000, 10_000)
    for text in ("step/2", "stop", "step@no"):
        with pytest.raises(UsageError, match="no rank has an NVTX range"):
            named(run, text)
    chosen = select(run, within=parse_range("--range", "step/1"))
    assert chosen.window_ns == (2000, 2107)
    assert export_tables(chosen, tmp_path / "out", "parquet")["kernels"] == 2
