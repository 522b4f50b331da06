import numpy as np
import pytest
from tests.history_rows import put

from alltrace.history.questions import COLUMNS, QUESTIONS, ask_history, slower_jobs
from alltrace.history.spread import LEAST_VALUES, SPREADS, usual
from alltrace.history.store import open_history
from alltrace.trace.errors import UsageError

MS = 1_000_000


@pytest.fixture
def history():
    with open_history(None) as opened:
        yield opened


def rows(history, by, **chosen):
    return ask_history(history, by, **chosen).table.to_pylist()


def test_each_run_is_judged_by_those_before_it(history):
    for number, step in enumerate((100, 102, 99, 101, 100, 130, 100, 60)):
        put(history, number, step_ns=step * MS)
    put(history, 20, job="other", step_ns=500 * MS)
    found = rows(history, "run")
    assert [r["verdict"] for r in found] == [None] * 5 + ["slower", "usual", "faster", None]
    assert [r["number"] for r in found] == [*range(1, 9), 1]
    assert found[0]["change_percent"] is None
    assert found[5]["change_percent"] == pytest.approx(30)
    assert [r["run"] for r in found][:2] == ["run0", "run1"]
    assert found[1]["start_utc"] == "2026-03-01 13:30"


def test_runs_on_other_numbers_of_ranks_or_hosts_are_not_compared(history):
    for number in range(6):
        put(history, number, step_ns=100 * MS)
    for number, facts in enumerate(({"ranks": 8}, {"host_count": 4}, {"job": "other"}), 6):
        put(history, number, step_ns=300 * MS, **facts)
    assert slower_jobs(history) == []
    answer = ask_history(history, "run")
    assert [(r["number"], r["verdict"], r["change_percent"]) for r in answer.table.to_pylist()][6:] == [
        (1, None, None)
    ] * 3
    assert "runs of a job on other numbers of ranks or hosts are not compared with each other" in answer.notes
    put(history, 9, step_ns=110 * MS)
    put(history, 10, step_ns=130 * MS)
    (slower,) = slower_jobs(history)
    assert (slower["run"], slower["since_utc"], slower["slower_runs"]) == ("run10", "2026-03-01 21:30", 2)


def test_gpu_hours_equal_runs_and_runs_without_steps(history):
    hour = 3600 * 1000 * MS
    put(
        history, 0, span_ns=hour, findings=[{"kind": "sync", "lost_ns": hour // 2}, {"kind": "jitter", "lost_ns": None}]
    )
    put(history, 1, span_ns=hour, job="b", ranks=8, findings=[{"kind": "sync", "lost_ns": hour // 2}])
    assert rows(history, "kind") == [
        {"kind": "sync", "lost_gpu_hours": 6.0, "lost_percent": 50.0, "runs": 2, "jobs": ["b", "train"]},
        {"kind": "jitter", "lost_gpu_hours": None, "lost_percent": None, "runs": 1, "jobs": ["train"]},
    ]
    for number in range(5):
        put(history, number)
    put(history, 5, step_ns=100_900_000)
    put(history, 6, step_ns=101_100_000)
    assert [r["verdict"] for r in rows(history, "run")][5:] == ["usual", "slower"]
    for number in range(7):
        put(history, number, step_ns=None if number == 2 else 100 * MS)
    assert [r["verdict"] for r in rows(history, "run")] == [None] * 6 + ["usual"]


def test_the_host_that_is_slow_in_every_job_comes_first(history):
    for number in range(6):
        slow = {"host": "bad", "slow": True, "kind": "slow-host", "lost_percent": 10.0 + number, "blame_percent": 90.0}
        once = {
            "host": "once",
            "slow": number == 2,
            "kind": "sync" if number == 2 else None,
            "lost_percent": 1.0 if number == 2 else None,
        }
        put(history, number, job="ab"[number % 2], hosts=[{"host": "good"}, once, slow])
    put(history, 7, job="b", hosts=[{"host": "rare", "slow": True, "kind": "sync", "lost_percent": 1.0}])
    put(history, 9, hosts=[{"host": "bad", "slow": None}])  # alone, it cannot be slower than others
    found = rows(history, "host")
    assert [(r["host"], r["runs"], r["slow_runs"], r["jobs"], r["slow_jobs"]) for r in found] == [
        ("bad", 6, 6, 2, 2),
        ("rare", 1, 1, 1, 1),
        ("once", 6, 1, 2, 1),
        ("good", 6, 0, 2, 0),
    ]
    assert (
        found[0] | {"kind": "slow-host", "lost_percent": 12.5, "blame_percent": 90.0, "slow_percent": 100.0} == found[0]
    )
    assert (found[0]["first_slow_utc"], found[0]["last_slow_utc"]) == ("2026-03-01 12:30", "2026-03-01 17:30")
    assert found[0]["last_slow_run"] == "run5"
    assert found[3]["kind"] is found[3]["lost_percent"] is found[3]["last_slow_utc"] is None
    assert [(r["runs"], r["jobs"]) for r in rows(history, "host", job="a")] == [(3, 1)] * 3


def test_findings_that_come_back_come_first(history):
    for number in range(4):
        findings = [{"kind": "sync", "lost_percent": float(number), "where": "x", "hosts": ["a"] if number else []}]
        findings += [{"kind": "sync", "place": 1, "lost_percent": 1.0, "where": "y"}]
        findings += [{"kind": "data-stall", "place": 2, "lost_percent": None, "where": "load"}] if number == 3 else []
        put(history, number, findings=findings)
    put(history, 5)
    sync, stall = rows(history, "finding")
    assert (sync["kind"], sync["runs"], sync["runs_percent"], sync["hosts"]) == ("sync", 4, 80.0, ["a"])
    assert (sync["lost_percent"], sync["most_lost_percent"]) == (2.5, 4.0)  # of runs, in which both findings add up
    assert (sync["first_utc"], sync["last_utc"]) == ("2026-03-01 12:30", "2026-03-01 15:30")
    assert [r["top_finding"] for r in rows(history, "run")] == ["sync"] * 4 + [None]
    assert (stall["kind"], stall["runs"], stall["lost_percent"], stall["where"]) == ("data-stall", 1, None, "load")


def test_runs_are_chosen_by_job_and_tag(history):
    put(history, 1, tags=["nightly"])
    put(history, 2, job="other", tags=["nightly", "x"])
    put(history, 3)
    assert [r["run"] for r in rows(history, "run", tag="nightly")] == ["run1", "run2"]
    assert [r["run"] for r in rows(history, "run", tag="nightly", job="other")] == ["run2"]
    for wrong in ({"job": "trai"}, {"tag": "night"}, {"job": "train", "tag": "x"}):
        with pytest.raises(UsageError, match=r"unknown|no run of the job"):
            rows(history, "run", **wrong)


@pytest.mark.parametrize("by", QUESTIONS)
def test_a_history_without_runs_says_so(history, by):
    answer = ask_history(history, by)
    assert (answer.table.num_rows, answer.notes) == (0, ("the history has no run",))
    assert answer.table.column_names == [c.name for c in COLUMNS[by]]


def test_what_a_reader_must_know_is_noted(history):
    put(history, 1)
    put(history, 2, job=None, start_utc_ns=None, code="2")
    said = " / ".join(ask_history(history).notes)
    for part in (
        "runs of 2 jobs, each compared within the job",
        "1 run without a job name",
        "1 run does not contain its start time",
        "no run has 5 earlier runs",
        "2 versions of alltrace read these runs",
    ):
        assert part in said
    assert "no run is on several hosts" in ask_history(history, "host").notes[-2]
    assert rows(history, "run")[-1]["start_utc"] is None


def test_bounds_are_scaled_median_distances():
    values = [100, 103, 99, 102, 98, 101, 97]  # median 100, distances 0 3 1 2 2 1 3, their median 2
    found = usual(values, 0.0)
    margin = 4 * 1.4826 * 1.140 * 2
    assert SPREADS == 4
    assert found == pytest.approx((100, 100 - margin, 100 + margin))
    assert usual(values, 50.0) == (100, 50, 150)
    values = [100, 103, 99, 102, 98, 101, 97]
    plain, odd = usual(values, 0.0), usual([*values[:-1], 5000], 0.0)
    assert plain is not None
    assert odd is not None
    assert odd.high < 1.05 * plain.high
    assert usual([1.0] * (LEAST_VALUES - 1), 1.0) is None
    assert usual([1.0] * LEAST_VALUES, 1.0) == (1.0, 0.0, 2.0)


@pytest.mark.parametrize(("count", "most"), [(5, 0.05), (10, 0.012), (20, 0.004)])
def test_normal_values_seldom_breach(count, most):
    """The shares that the documentation states."""
    draw = np.random.default_rng(count).normal(100, 1, (4000, count + 1))
    breaches = [v[-1] > found.high for v in draw if (found := usual(v[:-1].tolist(), 0.0)) is not None]
    assert len(breaches) == 4000
    assert 0 < np.mean(breaches) < most
