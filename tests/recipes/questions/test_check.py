from __future__ import annotations

import pytest
from tests.making import collective, copy, kernel, make_run

from alltrace.recipes.questions.check import judge, read_limits
from alltrace.run.store import Run
from alltrace.trace.errors import UsageError


def run_of(folder, compute_ns):
    ranks = {
        r: {
            "kernels": (
                [kernel(i * 1000, i * 1000 + compute_ns, name="gemm") for i in range(10)] + [collective(9_500, 9_900)]
            )
        }
        for r in range(2)
    }
    return Run(make_run(folder, ranks).path)


@pytest.fixture
def run(tmp_path):
    return run_of(tmp_path / "run", 400)


def judged(run, *limits, baseline=None):
    return judge(run, read_limits({"limits": list(limits)}, "budget.toml"), baseline).table.to_pylist()


def test_numbers_are_held_or_breached(run):
    rows = judged(run, "compute_ns >= 4000", "breakdown.compute_ns.max <= 3_999", "kernels.count.total == 22")
    assert [r["verdict"] for r in rows] == ["held", "breached", "held"]
    assert [(r["value"], r["bound"]) for r in rows] == [(4000, 4000), (4000, 3999), (22, 22)]


def test_without_a_statistic_every_row_must_hold(tmp_path):
    ranks = {r: {"kernels": [kernel(0, length), kernel(1000, 2000)]} for r, length in ((0, 100), (1, 500))}
    run = Run(make_run(tmp_path / "run", ranks).path)
    rows = judged(run, "compute_ns >= 1200", "compute_ns <= 1400", "compute_ns.median >= 1200")
    assert [(r["verdict"], r["value"]) for r in rows] == [("breached", 1100), ("breached", 1500), ("held", 1300)]


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        ("baseline", 4000),
        ("1.05 * baseline", 4200),
        ("baseline * 2", 8000),
        ("baseline + 10", 4010),
        ("2*baseline-1e3", 7000),
    ],
)
def test_bounds_from_a_baseline(run, bound, expected):
    (row,) = judged(run, f"compute_ns.median <= {bound}", baseline=run)
    assert (row["bound"], row["baseline"], row["verdict"]) == (expected, 4000, "held")


def test_a_slower_run_breaches_what_its_baseline_says(run, tmp_path):
    slower = run_of(tmp_path / "slower", 440)
    (row,) = judged(slower, "compute_ns.median <= 1.05 * baseline", baseline=run)
    assert (row["verdict"], row["value"], row["bound"]) == ("breached", 4400, 4200)
    (row,) = judged(slower, "compute_ns.median <= 1.1 * baseline", baseline=run)
    assert row["verdict"] == "held"


def test_where_chooses_rows(run):
    budget = {"limit": [{"name": "gemm", "check": "kernels.median_ns <= 400", "where": {"name": "gemm"}}]}
    (row,) = judge(run, read_limits(budget, "b")).table.to_pylist()
    assert (row["name"], row["verdict"], row["value"]) == ("gemm", "held", 400)
    budget["limit"][0]["where"] = {"name": "none"}
    (row,) = judge(run, read_limits(budget, "b")).table.to_pylist()
    assert (row["verdict"], row["why"]) == ("unknown", "the run has no median_ns")
    budget["limit"][0]["check"] = "kernels.name.count <= 0"
    assert judge(run, read_limits(budget, "b")).table.column("verdict").to_pylist() == ["held"]


def test_columns_that_an_answer_has_under_another_option_are_judged(tmp_path):
    calls = [{"start": at, "end": at + 5, "correlation": n} for n, at in enumerate((0, 100), 1)]
    kernels = [kernel(10, 40, correlation=1), kernel(120, 160, correlation=2, stream=8)]
    run = Run(make_run(tmp_path, {0: {"kernels": kernels, "api": calls}}).path)
    budget = {
        "limit": [
            {"check": "launches.starved_ns <= 60"},
            {"check": "launches.launches >= 2"},
            {"check": "launches.mean_length >= 1", "where": {"stream": 8}},
            {"check": "in-flight.in_flight_max == 1"},
        ]
    }
    rows = judge(run, read_limits(budget, "b")).table.to_pylist()
    assert [(row["verdict"], row["value"]) for row in rows] == [("held", 60), ("held", 2), ("held", 1), ("held", 1)]


def test_what_cannot_be_judged_is_unknown(run):
    (row,) = judged(run, "step_ns.median <= 1")
    assert row["verdict"] == "unknown"
    assert row["why"]


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ({}, "has no limit"),
        ({"limit": 3}, "expected a list"),
        ({"bounds": []}, "'bounds' is unknown"),
        ({"limits": ["overlap_percent"]}, "is not understood"),
        ({"limits": ["overlap_percent >= much"]}, "is not understood"),
        ({"limits": ["overlap_precent >= 80"]}, "overlap_percent"),
        ({"limits": ["overlap_percent.medium >= 80"]}, "median"),
        ({"limits": ["kernels.medain_ns >= 80"]}, "median_ns"),
        ({"limits": ["overlap_percent >= baseline"]}, "expected a statistic"),
        ({"limits": ["compute_ns >= 1", "compute_ns >= 1"]}, "two limits"),
        ({"limit": [{"check": "compute_ns >= 1", "wher": {}}]}, "where"),
        ({"limit": [{"check": "compute_ns >= 1", "where": {"nmae": 1}}]}, "nmae"),
        (
            {"limit": [{"check": "launches.full_ns <= 1", "where": {"starved_ns": 1}}]},
            "no answer of launches has full_ns and starved",
        ),
    ],
)
def test_a_budget_that_is_not_understood_is_told(budget, told):
    with pytest.raises(UsageError, match=told):
        read_limits(budget, "budget.toml")


@pytest.mark.parametrize("column", ["diagnose.evidence", "diagnose.ranks", "diagnose.where"])
def test_a_column_without_numbers_can_only_be_counted(run, column):
    numbers, count = judged(run, f"{column}.max <= 3", f"{column}.count >= 1")
    assert numbers["verdict"] == "unknown"
    assert "is not a number; only .count works with it" in numbers["why"]
    assert count["verdict"] == "held"


def test_a_baseline_with_no_row_counts_none(run, tmp_path):
    quiet = Run(make_run(tmp_path / "quiet", {r: {"copies": [copy(0, 10)]} for r in range(2)}).path)
    (held,) = judged(quiet, "kernels.name.count <= baseline", baseline=quiet)
    assert (held["verdict"], held["value"], held["baseline"]) == ("held", 0, 0)
    (breached,) = judged(run, "kernels.name.count <= baseline", baseline=quiet)
    assert (breached["verdict"], breached["value"], breached["bound"]) == ("breached", 2, 0)


@pytest.mark.parametrize("number", ["1_", "1__0", "_1", "1_.5", "2_ * baseline"])
def test_a_number_with_underscores_out_of_place_is_told(number):
    with pytest.raises(UsageError, match="is not understood"):
        read_limits({"limits": [f"compute_ns.max <= {number}"]}, "budget.toml")


def test_a_baseline_that_is_lacking_is_told(run):
    with pytest.raises(UsageError, match="--baseline"):
        judged(run, "compute_ns.median <= baseline")


def steps_of(folder, step_ns):
    """Twelve steps of a rank, each with a kernel."""
    starts = range(0, 12 * step_ns, step_ns)
    rows = {"ranges": [{"start": at, "end": at + step_ns, "name": f"step {n}"} for n, at in enumerate(starts)]}
    rows["kernels"] = [kernel(at + 10, at + step_ns - 10, "gemm") for at in starts]
    return Run(make_run(folder, {0: rows}).path)


def test_the_verdict_says_what_differs_from_the_baseline_and_rows_are_told_with_units(tmp_path):
    slow, fast = steps_of(tmp_path / "slow", 2_000_000), steps_of(tmp_path / "fast", 1_000_000)
    limits = read_limits({"limits": ["step_ns.median <= 1.05 * baseline", "overlap_percent >= 80"]}, "b")
    answer = judge(slow, limits, fast)
    assert answer.verdict.startswith(
        "The run is slower by a factor of 2 than the baseline: a step takes 2.00 ms instead of 1.00 ms (+100 %), not by"
        " chance."
    )
    assert answer.table["sentence"].to_pylist() == [
        "step_ns.median <= 1.05 * baseline: 2.000 ms, and the limit is 1.050 ms; the baseline has 1.000 ms",
        "overlap_percent >= 80: cannot be judged, for the run has no overlap_percent",
    ]
    assert answer.verdict.endswith(f"2 of 2 limits not held: {'; '.join(answer.table['sentence'].to_pylist())}.")
    assert judge(slow, read_limits({"limits": ["kernels.count.total >= 1"]}, "b")).verdict == "1 limit is held."
