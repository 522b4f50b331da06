from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.making import collective, kernel, make_run

from alltrace.recipes.questions.changed import change_in_words
from alltrace.recipes.questions.diff import compare, compared, rank_test
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run
from alltrace.trace.errors import UsageError


def distribution(things):
    rows = [
        {"what": "kernel", "name": n, "bytes": None, "group_size": None, "value": v, "count": c} for n, v, c in things
    ]
    kinds = [("what", pa.string()), ("name", pa.string()), ("bytes", pa.int64()), ("group_size", pa.int64())]
    return pa.Table.from_pylist(rows, pa.schema([*kinds, ("value", pa.int64()), ("count", pa.int64())]))


def test_changes_by_hand():
    a = distribution([("x", 10, 50), ("x", 20, 50), ("old", 5, 1), ("y", 7, 30)])
    b = distribution([("x", 20, 50), ("x", 40, 50), ("new", 9, 2), ("y", 7, 30)])
    rows = {r["name"]: r for r in compared(a, b).to_pylist()}
    assert [r["name"] for r in compared(a, b).to_pylist()] == ["x", "new", "old", "y"]
    x = rows["x"]
    assert (x["total_a_ns"], x["total_b_ns"], x["total_change_ns"], x["total_change_percent"]) == (
        1500,
        3000,
        1500,
        100.0,
    )
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


def test_kernels_that_two_profilers_spell_differently_are_compared(tmp_path):
    """Only where one name of either run alone has the spelling: of several none is joined."""
    theirs = {
        "void k<(int)4>(int, T2)": "void k<4>(int, float)",
        "void same<(int)1>(T1)": "void same<(int)1>(T1)",
        "void one<(int)2>(int)": "void one<2>(int)",
        "void one<(int)2>(float)": "void one<2>(float)",
    }
    for label, names in (("a", list(theirs)), ("b", list(theirs.values()))):
        rows = [kernel(100 * n, 100 * n + 50 + n, name=name) for n, name in enumerate(names)]
        make_run(tmp_path / label, {0: {"kernels": rows}})
    found = compare(Run(tmp_path / "a"), Run(tmp_path / "b"), what="kernel", jobs=1)
    rows = {row["name"]: (row["count_a"], row["count_b"], row["total_b_ns"]) for row in found.table.to_pylist()}
    assert rows == {
        "void k<(int)4>(int, T2)": (1, 1, 50),
        "void same<(int)1>(T1)": (1, 1, 51),
        **dict.fromkeys(list(theirs)[2:], (1, 0, 0)),
        "void one<2>(int)": (0, 1, 52),
        "void one<2>(float)": (0, 1, 53),
    }
    assert any(note.startswith("1 kernel of run B has the name of run A") for note in found.notes)
    again = compare(Run(tmp_path / "a"), Run(tmp_path / "a"), what="kernel", jobs=1)
    assert not any("spell" in note for note in again.notes)


def test_the_threshold_and_alpha_decide():
    a = distribution([("x", v, 10) for v in range(1000, 1100)])
    b = distribution([("x", v + 20, 10) for v in range(1000, 1100)])
    assert compared(a, b).column("verdict").to_pylist() == ["slower"]
    assert compared(a, b, threshold_percent=5.0).column("verdict").to_pylist() == ["same"]
    few = distribution([("x", 1020, 1)]), distribution([("x", 1000, 1)])
    assert compared(*few).column("verdict").to_pylist() == ["same"]  # one of each can be chance


@pytest.mark.parametrize(
    ("before", "after", "verdicts"),
    [
        # 18 copies of 10 us, then 4,645 of 7 us: each is shorter, all of them cost far more
        ([("x", 10_000, 18)], [("x", 7_000, 4645)], ("slower", "more", "shorter")),
        ([("x", 10_000, 4645)], [("x", 14_000, 18)], ("faster", "fewer", "longer")),
        # a tenth of the calls takes fifty times as long, which no median shows
        ([("x", 100, 1000)], [("x", 100, 800), ("x", 5000, 200)], ("slower", "same", "same")),
        ([("x", 100, 1000)], [("x", 150, 1000)], ("slower", "same", "longer")),
        # half as many that take twice as long cost the same
        ([("x", 100, 1000)], [("x", 200, 500)], ("same", "fewer", "longer")),
        ([("x", 100, 1000)], [("x", 100, 1005)], ("same", "same", "same")),
        # one of each can be chance, and is not the same if they are far apart
        ([("x", 100, 1)], [("x", 500, 1)], ("one_sample", "same", "one_sample")),
        ([("x", 100, 1)], [("x", 89, 1)], ("one_sample", "same", "one_sample")),
        ([("x", 100, 1)], [("x", 109, 1)], ("same", "same", "same")),
        ([("x", 100, 1)], [], ("only_a", None, None)),
    ],
)
def test_a_verdict_is_of_the_total_and_those_of_count_and_call_stand_beside_it(before, after, verdicts):
    (row,) = compared(distribution(before), distribution(after)).to_pylist()
    assert (row["verdict"], row["count_verdict"], row["call_verdict"]) == verdicts


def test_other_numbers_of_steps_are_told(tmp_path):
    runs = []
    for steps in (4, 5):
        ranges = [{"start": 100 * n, "end": 100 * n + 90, "name": f"step {n}", "depth": 0} for n in range(steps)]
        runs.append(Run(make_run(tmp_path / str(steps), {0: {"ranges": ranges}}).path))
    assert "run A has 4 steps and run B 5: totals are compared per step, and not subtracted" in compare(*runs).notes
    assert not [n for n in compare(runs[0], runs[0]).notes if "steps and run B" in n]


def test_ranges_of_two_runs_meet_whatever_is_counted_in_their_names(tmp_path):
    runs = []
    for first in (998_949, 1_000_060):
        names = [f"aten::to, seq = {first + n}, op_id = {first + 3 * n}" for n in range(5)]
        names += [f"step {first + n}" for n in range(5)] + [f"layers.{first % 7 + n}.mlp" for n in range(2)]
        ranges = [{"start": 100 * n, "end": 100 * n + 10, "name": name, "depth": 0} for n, name in enumerate(names)]
        runs.append(Run(make_run(tmp_path / str(first), {0: {"ranges": ranges}}).path))
    rows = compare(*runs, what="range").table.to_pylist()
    both = {r["name"]: (r["count_a"], r["count_b"]) for r in rows if r["verdict"] == "same"}
    assert both == {"aten::to": (5, 5), "step": (5, 5)}
    merged = compare(*runs, what="range", merge_numbers=True).table.to_pylist()
    assert {r["name"]: (r["count_a"], r["count_b"]) for r in merged} == {**both, "layers.#.mlp": (2, 2)}


@pytest.mark.slow
@pytest.mark.corpus
def test_the_operators_of_a_real_pair_meet(corpus, tmp_path):
    """Of 34,000 names with counters 150 things are left, and nearly all of the time is of things that both runs
    have."""
    runs = []
    for name in ("before", "after"):
        import_reports([str(corpus / "nsys" / f"mfu_{name}_2gpu_nsys2026.2.sqlite")], tmp_path / name, jobs=1)
        runs.append(Run(tmp_path / name))
    rows = compare(*runs, what="range", merge_numbers=True).table.to_pylist()
    alone = sum(abs(r["total_change_ns"]) for r in rows if r["verdict"].startswith("only"))
    assert len(rows) < 120
    assert alone < 0.01 * sum(r["total_a_ns"] + r["total_b_ns"] for r in rows)


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
        ranks = {
            r: {"kernels": [kernel(i * 1000, i * 1000 + length, name="gemm") for i in range(20)]} for r in range(2)
        }
        runs.append(Run(make_run(tmp_path / name, ranks).path))
    (row,) = [r for r in compare(*runs, what="kernel").table.to_pylist() if r["name"] == "gemm"]
    assert (row["count_a"], row["count_b"], row["total_change_ns"], row["verdict"]) == (40, 40, 2000, "slower")
    assert compare(runs[0], runs[0], what="kernel").table.column("verdict").to_pylist() == ["same"]


def test_other_numbers_of_ranks_are_told_where_all_are_asked(tmp_path):
    runs = [Run(make_run(tmp_path / str(n), {r: {"kernels": [kernel(0, 100)]} for r in range(n)}).path) for n in (1, 2)]
    told = "run A has 1 rank and run B 2, so counts and totals differ for this reason alone"
    assert told in compare(*runs).notes
    answer = compare(*runs, ranks=[0])
    assert answer.table.column("count_a").to_pylist() == answer.table.column("count_b").to_pylist() == [1]
    assert told not in answer.notes


def test_a_planted_slow_rank_shows_in_its_steps_and_compute(tmp_path):
    runs = []
    for name, faults in (("a", []), ("b", ["slow-rank:ranks=1"])):
        write_run("tiny", tmp_path / name / "in", faults=faults, ideal=True)
        import_reports([str(tmp_path / name / "in")], tmp_path / name / "run", jobs=1)
        runs.append(Run(tmp_path / name / "run"))
    answer = compare(*runs)
    whats = set(answer.table.column("what").to_pylist())
    assert {"kernel", "collective", "call", "step"} <= whats
    total = sum(r["total_change_ns"] for r in answer.table.to_pylist() if r["what"] == "kernel")
    assert total > 0


def step_row(a, b, count_a=10, count_b=10, p_value=0.001):
    return {"median_a_ns": a, "median_b_ns": b, "count_a": count_a, "count_b": count_b, "p_value": p_value}


@pytest.mark.parametrize(
    ("row", "begins"),
    [
        (
            step_row(1.19e9, 0.366e9),
            "B is 3.3 times as fast: a step takes 366 ms instead of 1.19 s (-69 %), not by chance.",
        ),
        (
            step_row(1e6, 2.5e6),
            "B is slower by a factor of 2.5: a step takes 2.50 ms instead of 1.00 ms (+150 %), not by chance.",
        ),
        (
            step_row(1e6, 0.96e6),
            "B is 4.0 % faster: a step takes 960 \u00b5s instead of 1.00 ms (-4 %), not by chance.",
        ),
        (step_row(1e6, 1.04e6), "B is 4.0 % slower: "),
        (
            step_row(1e6, 1.05e6, p_value=0.3),
            "B is as fast as A, as far as can be told: a step takes 1.05 ms instead of 1.00 ms (+5 %)",
        ),
        (
            step_row(1e6, 2e6, p_value=0.3),
            "Whether B is faster cannot be told: a step takes 2.00 ms instead of 1.00 ms (+100 %), which",
        ),
        (
            step_row(1e6, 2e6, 1, 1, 1.0),
            "B is slower by a factor of 2: a step takes 2.00 ms instead of 1.00 ms (+100 %), one sample each.",
        ),
        (step_row(1e6, 1.01e6, 1, 1, 1.0), "B is as fast as A: a step takes 1.01 ms and 1.00 ms; one sample each."),
        (step_row(1e6, None), "Whether B is faster is not known"),
        (None, "Whether B is faster is not known"),
    ],
)
def test_the_first_sentence_says_whether_it_helped(row, begins):
    assert change_in_words(row, (), 0.05).startswith(begins)


def test_the_sentence_calls_runs_by_their_names():
    names = ("the baseline", "the run")
    assert change_in_words(step_row(2e6, 1e6), (), 0.05, names).startswith(
        "The run is 2 times as fast as the baseline: a step"
    )
    assert change_in_words(step_row(1e6, 2e6), (), 0.05, names).startswith(
        "The run is slower by a factor of 2 than the baseline: "
    )
    assert change_in_words(None, (), 0.05, names) == "Whether the run is faster is not known: no step is in both runs."


def test_the_second_sentence_says_which_time_it_was():
    changes = {"compute": -550_000_000, "exposed_communication": 50_000_000, "idle": 900_000, "exposed_copy": -200_000}
    classes = [{"class": name, "change_ns": change} for name, change in changes.items()]
    told = change_in_words(step_row(1e9, 0.5e9), classes, 0.05)
    assert told.endswith(" Compute -550 ms, exposed communication +50.0 ms; all else at most 900 \u00b5s.")


def one_step(folder, compute_ns):
    """A run of ten steps of 1 ms, of which a kernel computes for some time and another communicates for 100 us."""
    starts = range(0, 10_000_000, 1_000_000)
    rows = {
        "ranges": [{"start": at, "end": at + 1_000_000, "name": f"step {n}"} for n, at in enumerate(starts)],
        "kernels": [],
    }
    for at in starts:
        rows["kernels"] += [
            kernel(at + 50_000, at + 50_000 + compute_ns, "gemm"),
            collective(at + 850_000, at + 950_000),
        ]
    return Run(make_run(folder, {0: rows}).path)


def test_the_classes_of_a_step_are_those_of_whole_steps(tmp_path):
    answer = compare(one_step(tmp_path / "a", 600_000), one_step(tmp_path / "b", 400_000), jobs=1)
    about = {row["class"]: (row["a_ns"], row["b_ns"], row["change_ns"]) for row in answer.extra["per_step"]}
    assert about["compute"] == (
        pytest.approx(600_000, rel=0.02),
        pytest.approx(400_000, rel=0.02),
        pytest.approx(-200_000, rel=0.02),
    )
    assert about["exposed_communication"][:2] == (pytest.approx(100_000, rel=0.02), pytest.approx(100_000, rel=0.02))
    assert [sum(times[side] for times in about.values()) for side in (0, 1)] == [pytest.approx(1_000_000, rel=1e-3)] * 2


def layers(folder, kernels, extra=0):
    """A layer of 100 us that launches these kernels twice, in a step; the last kernel is launched in the step alone."""
    rows = {"ranges": [], "api": [], "kernels": []}
    number = 0
    for at in (0, 1_000_000):
        rows["ranges"] += [{"start": at, "end": at + 900_000, "name": "outer", "depth": 0}]
        rows["ranges"] += [{"start": at + 10, "end": at + 500_000, "name": "layer", "depth": 1}]
        for place, (name, length) in enumerate((*kernels, ("shared", 7))):
            number += 1
            begin = at + 1000 * (place + 1)
            rows["api"] += [{"start": begin, "end": begin + 10, "name": "launch", "correlation": number}]
            rows["kernels"] += [kernel(begin + 600, begin + 600 + length, name, correlation=number)]
    return Run(make_run(folder, {0: rows}).path)


def test_what_replaced_what_stands_under_the_innermost_range_of_both(tmp_path):
    a = layers(tmp_path / "a", [("old sort", 100), ("old gemm", 300)])
    b = layers(tmp_path / "b", [("fused", 250)])
    found = compare(a, b, jobs=1)
    assert found.extra["replaced"] == [
        {
            "range": "layer",
            "kernels_a": 2.0,
            "time_a_ns": 400,
            "range_a_ns": 499_990,
            "kernels_b": 1.0,
            "time_b_ns": 250,
            "range_b_ns": 499_990,
            "names_a": ["old gemm", "old sort"],
            "names_b": ["fused"],
        }
    ]
    assert "In `layer` 2 kernels (old gemm and 1 more) become 1 (fused): 250 ns instead of 400 ns." in found.verdict
    assert compare(a, a, jobs=1).extra["replaced"] == []


def numbered(folder, kernels, ranges=("outer 1", "outer 2")):
    """Ranges with a layer each, which has these kernels; the host takes 500 ns for each of them."""
    rows = {"ranges": [], "api": [], "kernels": []}
    for number, name in enumerate(ranges):
        at = number * 1_000_000
        rows["ranges"] += [{"start": at, "end": at + 900_000, "name": name, "depth": 0}]
        rows["ranges"] += [{"start": at + 10, "end": at + 500 * len(kernels), "name": f"layer{number}", "depth": 1}]
        for place, (kernel_name, length) in enumerate(kernels):
            begin, correlation = at + 20 + 400 * place, 10 * number + place + 1
            rows["api"] += [{"start": begin, "end": begin + 10, "name": "launch", "correlation": correlation}]
            rows["kernels"] += [kernel(begin + 600, begin + 600 + length, kernel_name, correlation=correlation)]
    return Run(make_run(folder, {0: rows}).path)


def test_layers_that_differ_in_their_numbers_are_one_replacement(tmp_path):
    a, b = numbered(tmp_path / "a", [("sort", 100), ("old", 300)]), numbered(tmp_path / "b", [("fused", 250)])
    for merge in (False, True):
        found = compare(a, b, merge_numbers=merge, jobs=1)
        assert (
            "In `layer#` 2 kernels (old and 1 more) become 1 (fused): 250 ns instead of 400 ns; on the host the range"
            " takes 490 ns" in (found.verdict)
        )


def test_the_tree_has_what_one_run_alone_has_under_the_ranges_of_both(tmp_path):
    a, b = numbered(tmp_path / "a", [("sort", 100), ("old", 300)]), numbered(tmp_path / "b", [("fused", 250)])
    answer = compare(a, b, by_tree=True, jobs=1)
    shown = [
        (r["tree"], r["count_a"], r["time_a_ns"], r["count_b"], r["time_b_ns"], r["change_ns"])
        for r in answer.table.to_pylist()
    ]
    assert shown == [
        ("outer #", 4, 800, 2, 500, -300),
        ("  layer#", 4, 800, 2, 500, -300),
        ("    old", 2, 600, 0, 0, -600),
        ("    fused", 0, 0, 2, 500, 500),
        ("    sort", 2, 200, 0, 0, -200),
    ]
    assert answer.table["path"].to_pylist()[1:3] == ["outer #/layer#", "outer #/layer#/old"]
    with pytest.raises(UsageError, match="--by-tree shows kernels in ranges"):
        compare(a, b, what="kernel", by_tree=True)


def test_kernels_outside_of_common_ranges_and_of_one_side_alone_are_at_the_root(tmp_path):
    a, b = (
        numbered(tmp_path / "a", [("old", 300)], ["mine"]),
        numbered(tmp_path / "b", [("old", 300), ("more", 50)], ["its"]),
    )
    rows = compare(a, b, by_tree=True, jobs=1).table.to_pylist()
    assert [(r["tree"], r["count_b"]) for r in rows] == [("layer0", 1), ("  more", 1)]
    bare = [
        Run(make_run(tmp_path / n, {0: {"kernels": [kernel(0, 10, n), kernel(20, 30, "x")]}}).path)
        for n in ("one", "two")
    ]
    assert "In the run 1 kernel (one) becomes 1 (two): 10 ns instead of 10 ns." in compare(*bare, jobs=1).verdict
