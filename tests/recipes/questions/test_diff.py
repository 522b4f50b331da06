from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.making import kernel, make_run

from alltrace.recipes.questions.diff import compare, compared, rank_test
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run


def distribution(things):
    rows = [{"what": "kernel", "name": n, "bytes": None, "group_size": None, "value": v, "count": c} for n, v, c in things]
    kinds = [("what", pa.string()), ("name", pa.string()), ("bytes", pa.int64()), ("group_size", pa.int64())]
    return pa.Table.from_pylist(rows, pa.schema([*kinds, ("value", pa.int64()), ("count", pa.int64())]))


def test_changes_by_hand():
    a = distribution([("x", 10, 50), ("x", 20, 50), ("old", 5, 1), ("y", 7, 30)])
    b = distribution([("x", 20, 50), ("x", 40, 50), ("new", 9, 2), ("y", 7, 30)])
    rows = {r["name"]: r for r in compared(a, b).to_pylist()}
    assert [r["name"] for r in compared(a, b).to_pylist()] == ["x", "new", "old", "y"]
    x = rows["x"]
    assert (x["total_a_ns"], x["total_b_ns"], x["total_change_ns"], x["total_change_percent"]) == (1500, 3000, 1500, 100.0)
    assert (x["q1_a_ns"], x["median_a_ns"], x["q3_a_ns"]) == (10, 15, 20)
    assert (x["median_b_ns"], x["median_change_percent"]) == (30, 100.0)
    # half of B's 20s tie with half of A: 0.5 * (0.5 + 0.25) + 0.5
    assert x["longer_share"] == pytest.approx(0.875)
    assert x["verdict"] == "slower"
    assert (rows["old"]["verdict"], rows["old"]["total_change_ns"], rows["old"]["median_b_ns"]) == ("only_a", -5, None)
    assert (rows["new"]["verdict"], rows["new"]["total_change_percent"]) == ("only_b", None)
    assert (rows["y"]["verdict"], rows["y"]["p_value"]) == ("same", 1.0)
    back = {r["name"]: r for r in compared(b, a).to_pylist()}
    assert back["x"]["verdict"] == "faster"
    assert back["x"]["longer_share"] == pytest.approx(0.125)


def test_the_threshold_and_alpha_decide():
    a = distribution([("x", v, 10) for v in range(1000, 1100)])
    b = distribution([("x", v + 20, 10) for v in range(1000, 1100)])
    assert compared(a, b).column("verdict").to_pylist() == ["slower"]
    assert compared(a, b, threshold_percent=5.0).column("verdict").to_pylist() == ["same"]
    few = distribution([("x", 1020, 1)]), distribution([("x", 1000, 1)])
    assert compared(*few).column("verdict").to_pylist() == ["same"]  # one of each can be chance


# R: wilcox.test(c(1,2,3,4,5,6,7,8), c(5,6,7,8,9,10,11,12), exact=FALSE) gives W = 8, p = 0.01315
def test_the_rank_test_against_known_values():
    values = np.arange(1, 13)
    a = np.isin(values, range(1, 9)).astype(np.int64)
    b = np.isin(values, range(5, 13)).astype(np.int64)
    share, p = rank_test(a, b)
    assert share == pytest.approx(56 / 64)
    assert p == pytest.approx(0.01315, abs=2e-4)
    assert rank_test(a, np.zeros_like(a)) is None
    assert rank_test(np.array([3]), np.array([4])) == (0.5, 1.0)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12), st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_the_share_counts_pairs(a, b):
    counts = [np.bincount(s, minlength=7) for s in (a, b)]
    share, p = rank_test(*counts)
    assert share == pytest.approx(sum((y > x) + (y == x) / 2 for x in a for y in b) / (len(a) * len(b)))
    assert 0 <= p <= 1
    other, q = rank_test(counts[1], counts[0])
    assert (other, q) == (pytest.approx(1 - share), pytest.approx(p))


def test_runs_are_compared_over_ranks(tmp_path):
    runs = []
    for name, length in (("a", 100), ("b", 150)):
        ranks = {r: {"kernels": [kernel(i * 1000, i * 1000 + length, name="gemm") for i in range(20)]} for r in range(2)}
        runs.append(Run(make_run(tmp_path / name, ranks).path))
    (row,) = [r for r in compare(*runs, what="kernel").table.to_pylist() if r["name"] == "gemm"]
    assert (row["count_a"], row["count_b"], row["total_change_ns"], row["verdict"]) == (40, 40, 2000, "slower")
    assert compare(runs[0], runs[0], what="kernel").table.column("verdict").to_pylist() == ["same"]


def test_other_numbers_of_ranks_are_told_where_all_are_asked(tmp_path):
    runs = [Run(make_run(tmp_path / str(n), {r: {"kernels": [kernel(0, 100)]} for r in range(n)}).path) for n in (1, 2)]
    told = "run A has 1 rank and run B 2, so counts and totals differ for that alone"
    assert told in compare(*runs).notes
    answer = compare(*runs, ranks=[0])
    assert answer.table.column("count_a").to_pylist() == answer.table.column("count_b").to_pylist() == [1]
    assert told not in answer.notes


def test_a_planted_slow_rank_shows_in_its_steps_and_compute(tmp_path):
    runs = []
    for name, faults in (("a", []), ("b", ["slow-rank:ranks=1"])):
        write_run("tiny", tmp_path / name / "in", faults=faults)
        import_reports([str(tmp_path / name / "in")], tmp_path / name / "run", jobs=1)
        runs.append(Run(tmp_path / name / "run"))
    answer = compare(*runs)
    whats = set(answer.table.column("what").to_pylist())
    assert {"kernel", "collective", "call", "step"} <= whats
    total = sum(r["total_change_ns"] for r in answer.table.to_pylist() if r["what"] == "kernel")
    assert total > 0
