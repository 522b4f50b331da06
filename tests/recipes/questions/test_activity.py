from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.making import collective, copy, kernel, make_run

CLASSES = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
HAND_MADE = {
    # compute 0-40 and 60-70, communication 30-60 (20 of it exposed), copies 65-90 (20 exposed), nothing 90-100
    0: {"kernels": [kernel(0, 40), kernel(60, 70), collective(30, 60), kernel(100, 110)], "copies": [copy(65, 90)]},
    1: {"kernels": [collective(200, 260)], "copies": [copy(240, 280, "memset")]},
}


def test_bins_are_the_same_on_all_ranks_and_hold_exact_times(tmp_path):
    rows = make_run(tmp_path, HAND_MADE).recipe("activity", bins=5).to_pylist()
    assert [(r["rank"], r["start_ns"], r["end_ns"]) for r in rows[:6]] == [
        (0, 0, 64), (0, 64, 128), (0, 128, 192), (0, 192, 256), (0, 256, 280), (1, 0, 64),
    ]  # fmt: skip
    assert [[r[c] for c in CLASSES] for r in rows[:3]] == [[44, 20, 0, 0], [16, 0, 20, 28], [0, 0, 0, 64]]
    assert [[r[c] for c in CLASSES] for r in rows[8:]] == [[0, 56, 0, 8], [0, 4, 20, 0]]
    assert rows[0]["communication_ns"] == 30
    assert (rows[0]["compute_percent"], rows[0]["communication_percent"]) == pytest.approx(
        (100 * 44 / 64, 100 * 30 / 64)
    )
    assert rows[1]["idle_percent"] == pytest.approx(100 * 28 / 64)
    assert rows[1]["busy_percent"] == pytest.approx(100 * 36 / 64)
    assert rows[9]["exposed_percent"] == pytest.approx(100)


def test_the_times_of_a_ranks_devices_are_added(tmp_path):
    run = make_run(tmp_path, {0: {"kernels": [kernel(0, 10), kernel(5, 16, device=1)]}})
    (row,) = run.recipe("activity", bins=1).to_pylist()
    assert (row["devices"], row["compute_ns"], row["idle_ns"], row["busy_percent"]) == (
        2,
        21,
        11,
        pytest.approx(2100 / 32),
    )


def test_work_on_both_sides_of_zero_has_its_bins(tmp_path):
    run = make_run(tmp_path, {0: {"kernels": [kernel(-8, -2), kernel(3, 8)]}})
    rows = run.recipe("activity", bins=4).to_pylist()
    assert [(r["start_ns"], r["end_ns"], r["compute_ns"]) for r in rows] == [
        (0, 4, 4),
        (4, 8, 2),
        (8, 12, 1),
        (12, 16, 4),
    ]


def test_work_without_length_cannot_be_divided(tmp_path):
    answer = make_run(tmp_path, {0: {"kernels": [kernel(5, 5)]}}).recipe("activity")
    assert answer.to_pylist() == []
    assert "no device work takes any time, so the answer is empty" in answer.notes


def test_work_without_length_where_all_other_work_ends_has_no_bin_of_its_own(tmp_path):
    run = make_run(tmp_path, {0: {"kernels": [kernel(0, 1024), kernel(1024, 1024, device=1)]}})
    rows = run.recipe("activity", bins=4).to_pylist()
    assert [(r["start_ns"], r["end_ns"], r["devices"], r["compute_ns"]) for r in rows] == [
        (0, 256, 2, 256), (256, 512, 2, 256), (512, 768, 2, 256), (768, 1024, 2, 256),
    ]  # fmt: skip


spans = st.tuples(st.integers(-300, 300), st.integers(0, 200))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    ranks=st.lists(
        st.tuples(st.lists(spans, min_size=1, max_size=6), st.lists(spans, max_size=6)), min_size=1, max_size=3
    ),
    bins=st.integers(1, 40),
)
def test_the_bins_sum_to_the_breakdown_of_the_runs_span(ranks, bins, tmp_path_factory):
    made = {
        r: {"kernels": [*(kernel(s, s + n) for s, n in compute), *(collective(s, s + n) for s, n in talk)]}
        for r, (compute, talk) in enumerate(ranks)
    }
    run = make_run(tmp_path_factory.mktemp("run"), made)
    whole = {r["rank"]: [r[c] for c in CLASSES] for r in run.recipe("breakdown", span="run").to_pylist()}
    rows = run.recipe("activity", bins=bins).to_pylist()
    # powers of two lie apart by two; work on both sides of zero always has two bins
    assert len(rows) <= len(ranks) * max(bins, 2)
    for rank, times in whole.items():
        own = [r for r in rows if r["rank"] == rank]
        assert [sum(r[c] for r in own) for c in CLASSES] == times
        assert all(sum(r[c] for c in CLASSES) == r["end_ns"] - r["start_ns"] for r in own)


def test_a_rank_waits_as_far_as_the_clocks_can_tell(tmp_path):
    """Two ranks with four collectives; rank 1 comes 5 us late to the second and fourth."""
    us = 1000

    def rows(late):
        starts = [(30 + 100 * i + late * (i % 2), 50 + 100 * i) for i in range(4)]
        return {"kernels": [kernel(0, 10 * us), *(collective(s * us, e * us) for s, e in starts)]}

    run = make_run(tmp_path, {0: rows(0), 1: rows(5), 2: {"kernels": [kernel(0, 350 * us)]}})
    found = run.recipe("activity", bins=400).to_pylist()
    waited = {rank: sum(r["waiting_ns"] for r in found if r["rank"] == rank) for rank in (0, 1)}
    stragglers = {r["rank"]: r["waited_ns"] for r in run.recipe("stragglers").to_pylist()}
    assert waited == {0: 10 * us, 1: 0} == {r: stragglers[r] for r in (0, 1)}
    (second,) = [r for r in found if r["rank"] == 0 and r["start_ns"] <= 132 * us < r["end_ns"]]
    assert (second["waiting_ns"], second["waiting_percent"]) == (1024, 100.0)
    assert {r["waiting_percent"] for r in found if r["rank"] == 2} == {None}, "it takes part in nothing"
    (few,) = {
        tuple(r[c] for c in ("waiting_ns", "waiting_percent"))
        for r in run.recipe("activity", bins=400, ranks=[2]).to_pylist()
    }
    assert few == (None, None)
