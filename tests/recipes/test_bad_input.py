"""Input that lacks what the questions across ranks need: an answer with its limits said, or a plain refusal."""

from __future__ import annotations

import pytest
from tests.align.planted import arrival, rows_of
from tests.making import COMMUNICATION_KERNEL, COMPUTE_KERNEL, kernel, make_run

from alltrace.trace.errors import AlltraceError

VERBS = ("collectives", "stragglers", "critical-path", "whatif", "steps", "efficiency", "diagnose")
HOSTS = {0: "a", 1: "a", 2: "b", 3: "b"}
STEPS = 12
MS = 1_000_000


def rank_rows(rank, *, steps=STEPS, ahead=0, members=4, communicator="c0", group_rank=None, collectives=True):
    """A rank that computes, then meets the others, in every step; by a clock that is `ahead`."""
    own = rank if group_rank is None else group_rank
    met = rows_of(own, steps, ahead, size=8 << 20, members=members, communicator=communicator)
    work, calls, ranges = [], [], []
    for step in range(steps):
        at = arrival(own, step) + ahead
        end = met[step]["end"]
        begin = step * 10 * MS + 9 * MS + ahead
        work.append(kernel(begin + 50_000, at, COMPUTE_KERNEL, correlation=2 * step + 1))
        work.append(kernel(at, end, COMMUNICATION_KERNEL, stream=20, correlation=2 * step + 2))
        met[step]["correlation"] = 2 * step + 2
        calls.append({"start": begin, "end": begin + 5_000, "name": "cudaLaunchKernel", "correlation": 2 * step + 1})
        calls.append(
            {"start": begin + 6_000, "end": begin + 9_000, "name": "cudaLaunchKernel", "correlation": 2 * step + 2}
        )
        ranges.append({"start": begin - 1_000, "end": begin + 9 * MS, "name": f"step {step}", "depth": 0})
    rows = {"kernels": work, "api": calls, "ranges": ranges}
    return rows | ({"collectives": met} if collectives else {})


def answers(folder, ranks, **options):
    """What each verb says: its rows and notes, or its refusal."""
    run = make_run(folder / "run", ranks, hosts={r: HOSTS[r] for r in ranks}, **options)
    found = {}
    for verb in VERBS:
        try:
            answer = run.recipe(verb)
            found[verb] = (answer.to_pylist(), " | ".join(answer.notes))
        except AlltraceError as error:
            found[verb] = ([], str(error))
    return found


def waits_stated(found):
    return sum(r["waited_ns"] for r in found["stragglers"][0])


def faults(found):
    return {r["where"] for r in found["diagnose"][0] if r["kind"] == "capture-fault"}


def test_a_good_run_states_its_waits_and_names_who_causes_them(tmp_path):
    found = answers(tmp_path, {r: rank_rows(r) for r in range(4)})
    assert found["stragglers"][0][0]["rank"] == 2
    assert waits_stated(found) == pytest.approx(STEPS * (2 * MS * 3 - 80_000), rel=0.01)
    # the hosts launch by the clock, so that without the straggler little time is given back
    assert [r["ranks"] for r in found["diagnose"][0] if r["kind"] == "straggler"] == [[2]]
    assert len(found["steps"][0]) == 4 * STEPS


def test_no_collectives_at_all(tmp_path):
    plain = {r: rank_rows(r, collectives=False) for r in range(4)}
    for rows in plain.values():
        rows["kernels"] = [k for k in rows["kernels"] if k["kind"] == "compute"]
    found = answers(tmp_path, plain)
    assert found["collectives"][0] == []
    assert waits_stated(found) == 0
    for verb in ("stragglers", "critical-path", "whatif"):
        assert "no collective is matched across ranks" in found[verb][1]
    assert "could not be judged" in found["diagnose"][1]
    assert not {r["kind"] for r in found["diagnose"][0]} & {"slow-communicator", "exposed-communication"}


def test_one_rank(tmp_path):
    found = answers(tmp_path, {0: rank_rows(0)})
    assert [(r["incomplete"] == r["instances"], r["wait_ns"]) for r in found["collectives"][0]] == [(True, None)]
    assert waits_stated(found) == 0
    assert "only one rank" in found["diagnose"][1]
    assert not {r["kind"] for r in found["diagnose"][0]} & {"straggler", "slow-host", "imbalance", "slow-communicator"}
    assert len(found["steps"][0]) == STEPS


def test_one_shared_collective_gives_no_wait_between_hosts(tmp_path):
    ranks = {}
    for r in range(4):
        rows = rank_rows(r, ahead=0 if r < 2 else 40 * MS)
        rows["collectives"] = rows["collectives"][:1]
        rows["kernels"] = [k for k in rows["kernels"] if k["kind"] == "compute" or k["correlation"] == 2]
        ranks[r] = rows
    found = answers(tmp_path, ranks)
    # rank 2 is late, and rank 3 shares its clock
    assert {r["rank"]: r["waited_ns"] for r in found["stragglers"][0]} == {
        0: 0,
        1: 0,
        2: 0,
        3: pytest.approx(2 * MS, rel=0.05),
    }
    assert "may be off" in found["stragglers"][1] or "connected" in found["stragglers"][1]
    assert "not known well enough" in found["diagnose"][1]
    assert "replay" not in {r["evidence"]["basis"] for r in found["diagnose"][0]}


def test_communicators_that_never_connect(tmp_path):
    ranks = {
        r: rank_rows(r, ahead=0 if r < 2 else 40 * MS, members=2, group_rank=r % 2, communicator=f"c{r // 2}")
        for r in range(4)
    }
    found = answers(tmp_path, ranks)
    assert "clocks not connected" in faults(found)
    assert {r["ranks"] for r in found["collectives"][0]} == {"0-1", "2-3"}
    assert all(r["ranks"] in ([2, 3], [0, 1]) for r in found["diagnose"][0] if r["where"] == "clocks not connected")


def test_a_clock_that_steps_in_the_middle_is_said(tmp_path):
    ranks = {}
    for r in range(4):
        whole = rank_rows(r, steps=40)
        if r >= 2:
            later = rank_rows(r, steps=40, ahead=30 * MS)
            for table, rows in whole.items():
                half = len(rows) // 2
                whole[table] = rows[:half] + later[table][half:]
        ranks[r] = whole
    found = answers(tmp_path, ranks)
    for verb in ("stragglers", "diagnose"):
        assert "clock" in found[verb][1]
    # 30 ms in each of 20 steps would be 600 ms and more
    assert waits_stated(found) < 40 * 7 * MS


def test_a_rank_whose_events_end_early(tmp_path):
    found = answers(tmp_path, {r: rank_rows(r, steps=STEPS if r != 1 else STEPS // 2) for r in range(4)})
    assert "cut short" in faults(found)
    (short,) = (r for r in found["diagnose"][0] if r["where"] == "cut short")
    assert (short["ranks"], short["evidence"]["first_missing_step"]) == ([1], STEPS // 2)
    assert found["stragglers"][0][0]["rank"] == 2


def test_two_runs_in_one_folder_are_not_matched_with_each_other(tmp_path):
    ranks = {
        r: rank_rows(r, members=2, group_rank=r % 2, communicator="c0", ahead=0 if r < 2 else 3_600_000 * MS)
        for r in range(4)
    }
    for r in (2, 3):  # another run an hour later, whose communicator is another
        for row in ranks[r]["collectives"]:
            row["communicator"] = "d7"
    found = answers(tmp_path, ranks)
    assert {r["ranks"] for r in found["collectives"][0]} == {"0-1", "2-3"}
    assert "clocks not connected" in faults(found)


def test_durations_of_zero_are_no_evidence(tmp_path):
    ranks = {r: rank_rows(r) for r in range(4)}
    for rows in ranks.values():
        for table in ("kernels", "collectives"):
            for row in rows[table]:
                row["end"] = row["start"]
    found = answers(tmp_path, ranks)
    assert waits_stated(found) == 0
    assert found["diagnose"][0] == []
    assert "nothing could be judged" in found["diagnose"][1]


@pytest.mark.slow
def test_times_before_the_session_began_are_times_as_any(tmp_path):
    usual = answers(tmp_path / "usual", {r: rank_rows(r) for r in range(4)})
    found = answers(tmp_path / "before", {r: rank_rows(r, ahead=-500 * MS) for r in range(4)})
    for verb in ("stragglers", "diagnose", "steps"):  # which all count from the run's first event
        assert found[verb][0] == usual[verb][0]


def test_waits_below_the_error_of_the_clocks_are_nowhere_stated(tmp_path):
    """Ends that scatter by a millisecond leave a residual that the waits of 2 ms do not reach three times."""
    import random

    draw = random.Random(7)
    ranks = {r: rank_rows(r, steps=40) for r in range(4)}
    for rows in ranks.values():
        for k, row in zip((k for k in rows["kernels"] if k["kind"] != "compute"), rows["collectives"], strict=True):
            late = int(abs(draw.gauss(0, 2.5 * MS)))
            k["end"] = row["end"] = row["end"] + late
    run = make_run(tmp_path / "run", ranks, hosts=HOSTS)
    members = run.aligned().members.to_pylist()
    across = [m for m in members if m["wait_ns"] and (m["rank"] < 2) != (m["last_rank"] < 2)]
    assert across
    assert all(m["wait_ns"] < m["error_ns"] for m in across)
    rows = run.recipe("stragglers")
    between = sum(m["wait_ns"] for m in across)
    assert sum(r["waited_ns"] for r in rows.to_pylist()) == sum(m["wait_ns"] for m in members if m["fact"])
    assert between > 0
    assert any("shorter than what the clocks may be off" in n for n in rows.notes)
    listed = run.recipe("collectives", instances=True).to_pylist()
    assert not any(r["certain"] for r in listed)
    assert not {r["kind"] for r in run.recipe("diagnose").to_pylist()} & {"slow-communicator", "exposed-communication"}
