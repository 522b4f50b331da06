"""Communicating ranks and the resulting clocks in jobs on grids of ranks, compared with the truth, with and without
names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.align.collectives import Made, quality
from tests.align.grids import Grid, execute
from tests.align.tables import match_tables, timelines_of

from alltrace.align.clocks import solve
from alltrace.align.communicators_by_order import communicators_by_order
from alltrace.align.matching import _lawful, match
from alltrace.align.related_clocks import Placing, related_clocks
from alltrace.align.schema import LEAST_MATCHING_SCORE

MINUTES_S = 300.0

GRIDS = {
    "data": Grid(data=8),
    "tensor and data on one stream": Grid(tensor=2, data=4, streams="one"),
    "wide tensor and data on one stream": Grid(tensor=4, data=4, hosts=4, streams="one"),
    "data and stages on one stream": Grid(tensor=1, data=4, stages=2, micro=4, streams="one"),
    "tensor, data and stages": Grid(tensor=2, data=2, stages=2, micro=4, noise=0.05),
    "steps apart by seconds": Grid(tensor=1, data=4, hosts=4, layer_ns=3e8),
}


def aligned(executed):
    made = executed.made
    found = match_tables(made.tables, made.texts, made.shifts_ns, {p.rank: p.host for p in executed.placed})
    return found, executed.clock_error_ns(solve(found.evidence(), executed.placed))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_members_and_clocks_are_found_however_far_apart_the_stamps_are(grid, named):
    executed = execute(Grid(**{**vars(grid), "offset_s": MINUTES_S, "seed": 3}))
    executed = executed if named else executed.anonymous()
    found, error_ns = aligned(executed)
    precision, recall = quality(found, executed.made)
    assert precision >= (1.0 if named else 0.93)
    assert recall >= (1.0 if named else 0.97)
    assert error_ns < 3_000
    assert found.reason is None
    assert found.score >= LEAST_MATCHING_SCORE
    assert {g.found_by for g in found.groups} == {"ids" if named else "structure"}
    assert executed.groups <= {g.ranks for g in found.groups}


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    tensor=st.sampled_from([1, 2]),
    data=st.sampled_from([2, 3, 4]),
    hosts=st.sampled_from([1, 2]),
    streams=st.sampled_from(["one", "each"]),
    offset_s=st.sampled_from([0.0, 1e-3, 1.0, 20.0, 900.0]),
    drift_ppm=st.floats(0, 50),
    edge=st.sampled_from([0.0, 0.15]),
    late_ns=st.floats(100, 1_500),
    seed=st.integers(0, 1000),
)
def test_random_jobs_without_names_are_right_or_say_that_they_are_not_sure(**facts):
    executed = execute(Grid(steps=12, **facts)).anonymous()
    found, error_ns = aligned(executed)
    precision, _ = quality(found, executed.made)
    assert found.reason is not None or (precision >= 0.9 and error_ns < 5_000)


def test_a_shift_by_a_whole_step_is_no_answer_where_steps_are_alike():
    executed = execute(
        Grid(tensor=4, data=4, hosts=4, noise=0.002, steps=20, streams="one", offset_s=MINUTES_S, seed=1)
    ).anonymous()
    assert aligned(executed)[1] < 3_000


def test_ranks_that_are_captured_at_other_times_have_no_partner_and_are_no_doubt():
    executed = execute(Grid(data=4, hosts=2, steps=20, edge=0.3, offset_s=60.0, seed=4)).anonymous()
    found, error_ns = aligned(executed)
    assert quality(found, executed.made)[0] == 1.0
    assert error_ns < 3_000
    assert found.score > 0.6
    assert sum(found.unmatched.values()) > 0


def test_two_jobs_in_one_folder_are_not_one():
    one, other = (execute(Grid(tensor=1, data=4, hosts=1, steps=20, seed=s)).anonymous().made for s in (1, 2))
    tables = {**one.tables, **{r + 4: t for r, t in other.tables.items()}}
    truth = {**one.truth, **{r + 4: t + 10**6 for r, t in other.truth.items()}}
    made = Made(tables, truth, {**one.shifts_ns, **{r + 4: s for r, s in other.shifts_ns.items()}}, one.names)
    found = match_tables(made.tables, made.texts, made.shifts_ns, {r: f"node{r // 4}" for r in range(8)})
    assert quality(found, made) == (1.0, pytest.approx(1.0, abs=0.02))
    assert {g.ranks for g in found.groups} == {(0, 1, 2, 3), (4, 5, 6, 7)}
    assert found.score < LEAST_MATCHING_SCORE
    assert "the clocks of " in found.reason


def test_noise_alone_is_no_communicator():
    draw = np.random.default_rng(5)
    executed = execute(Grid(tensor=1, data=4, hosts=1, steps=20, seed=1)).anonymous()
    made = executed.made
    for rank, table in made.tables.items():
        times = np.sort(draw.uniform(0, executed.span_ns, table.num_rows)).astype(np.int64) - made.shifts_ns[rank]
        made.tables[rank] = table.set_column(0, "start", pa.array(times - 50_000)).set_column(1, "end", pa.array(times))
    found = match_tables(made.tables, made.texts, made.shifts_ns)
    assert found.members.num_rows <= 8
    assert found.score < 0.1
    assert found.reason is not None


def test_an_empty_rank_and_a_rank_captured_twice_do_no_harm():
    executed = execute(Grid(tensor=1, data=3, hosts=1, steps=20, seed=1)).anonymous()
    made = executed.made
    made.tables[3], made.truth[3], made.shifts_ns[3] = made.tables[0].slice(0, 0), made.truth[0][:0], 0
    found = match_tables(made.tables, made.texts, made.shifts_ns)
    assert quality(found, made) == (1.0, 1.0)
    assert found.unmatched[3] == 0
    made.tables[3], made.truth[3], made.shifts_ns[3] = made.tables[0], made.truth[0], made.shifts_ns[0]
    found = match_tables(made.tables, made.texts, made.shifts_ns)
    assert quality(found, made) == (1.0, 1.0)


def test_ranks_that_never_meet_have_no_score():
    executed = execute(Grid(tensor=1, data=3, hosts=1, steps=3, seed=1))
    found = match_tables(
        {r: t.slice(0, 0) for r, t in executed.made.tables.items()}, executed.made.texts, executed.made.shifts_ns
    )
    assert (found.score, found.reason, found.groups) == (None, None, ())


def _matched_without_names():
    executed = execute(Grid(tensor=2, data=2, hosts=2, seed=4)).anonymous()
    job, ranks = executed.made, executed.placed
    timelines = timelines_of(job.tables, job.texts)
    placing = Placing(job.shifts_ns, {}, {p.rank: p.host for p in ranks})
    inferred = communicators_by_order(timelines, related_clocks(timelines, placing))
    return timelines, match(timelines, placing, ranks), inferred, ranks


def test_inferred_communicators_are_withheld_where_members_end_before_others_start():
    timelines, matching, inferred, placed = _matched_without_names()
    assert _lawful(timelines, matching, inferred, placed).members == matching.members
    assert _lawful(timelines, matching, inferred, ()) is matching
    solution = solve(matching.evidence(), placed)
    wrong = replace(matching, solution=replace(solution, ahead_ns={**solution.ahead_ns, 3: 10**9}))
    lawful = _lawful(timelines, wrong, inferred, placed)
    assert 3 not in {r for g in lawful.groups for r in g.ranks}
    assert {0, 1, 2} == {r for g in lawful.groups for r in g.ranks}
    assert lawful.unmatched[3] == timelines.rows[3]
    assert any("not matched, because times do not show" in note for note in lawful.notes)


def test_of_a_matching_that_explains_little_pairs_that_explain_little_are_withheld():
    timelines, matching, inferred, placed = _matched_without_names()
    *others, last = matching.groups
    weak = replace(last, score=0.49, messages=True)

    def left(explained=0.49, connected=1.0, **more):
        of_little = replace(
            matching,
            explained=explained,
            score=round(connected * explained, 3),
            groups=(*others, replace(weak, **more)),
        )
        return {g.name for g in _lawful(timelines, of_little, inferred, placed).groups}

    assert left() == left(connected=0.2, score=0.09) == {g.name for g in others}
    every = {g.name for g in matching.groups}
    assert left(connected=0.2, score=0.11) == every  # it explains most of its own
    assert left(explained=0.5) == left(score=0.5) == left(messages=False) == left(ranks=(0, 1, 2)) == every
