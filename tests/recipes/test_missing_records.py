"""Time with possibly lost records is not idle in any answer."""

from __future__ import annotations

import pytest
from tests.making import collective, kernel, make_run

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.diagnose.capture import advice_on_missing
from alltrace.trace.errors import InputError

ROWS = {
    "kernels": [kernel(0, 40), kernel(60, 70), collective(30, 50), kernel(100, 110), kernel(200, 240)],
    "copies": [{"start": 110, "end": 120, "kind": "HtoD", "bytes": 8, "stream": 30}],
}
# nothing runs 50-60, 70-100 and 120-200
LOST = {0: [(70, 90), (150, 160)]}


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path, {0: ROWS}, unrecorded=LOST)


def rows(run, name, **options):
    return ask(run, name, options).table.to_pylist()


def test_breakdown_leaves_it_out_of_the_span(run):
    (row,) = rows(run, "breakdown")
    assert (row["span_ns"], row["compute_ns"], row["exposed_communication_ns"], row["exposed_copy_ns"]) == (
        210,
        100,
        10,
        10,
    )
    assert row["idle_ns"] == 10 + 10 + 70
    assert row["idle_percent"] == pytest.approx(100 * 90 / 210)


def test_breakdown_says_how_much_of_the_time_it_divides(tmp_path, run):
    assert (
        "rank 0: 87.5 % of the time is counted; the rest was not recorded, or lacks records"
        in ask(run, "breakdown").notes
    )
    two = make_run(tmp_path / "two", {0: ROWS, 1: ROWS}, unrecorded={0: [(0, 120)], 1: [(0, 180)]})
    assert any(n.startswith("ranks 0-1: 25.0 % to 50.0 % of the time is counted") for n in ask(two, "breakdown").notes)
    assert not any("is divided" in n for n in ask(make_run(tmp_path / "whole", {0: ROWS}), "breakdown").notes)


def test_breakdown_of_the_run_leaves_out_what_lies_before_a_rank_begins(tmp_path):
    run = make_run(tmp_path, {0: ROWS, 1: {"kernels": [kernel(100, 240)]}}, unrecorded={1: [(0, 90)]})
    assert [(r["span_ns"], r["idle_ns"]) for r in rows(run, "breakdown", span="run")] == [(240, 120), (150, 10)]


def test_idle_and_gaps_leave_it_out(run):
    (row,) = rows(run, "idle")
    assert (row["span_ns"], row["idle_ns"]) == (210, 90)
    # of a gap with such a time it is not known how long it was
    assert [(r["start_ns"], r["duration_ns"]) for r in rows(run, "gaps", min_ns=0)] == [(50, 10)]


def test_activity_has_no_idle_time_in_its_bins(run):
    found = rows(run, "activity", bins=16)
    unknown = [r["start_ns"] for r in found if r["idle_ns"] is None]
    assert unknown == [r["start_ns"] for r in found if any(s < r["end_ns"] and r["start_ns"] < e for s, e in LOST[0])]
    assert [r["start_ns"] for r in found if r["idle_percent"] is None] == unknown
    assert all(r["compute_ns"] is not None for r in found)


def test_the_efficiency_of_devices_is_not_told(run):
    device = next(r for r in rows(run, "efficiency") if r["side"] == "device")
    assert device["useful_ns"] == 100
    assert device["parallel_efficiency"] is device["orchestration_efficiency"] is device["load_balance"] is None


@pytest.mark.parametrize("name", ["whatif", "critical-path"])
def test_a_replay_is_refused(run, name):
    with pytest.raises(InputError, match="rank 0 has no record of what 1 of 10 launches ran"):
        ask(run, name)


def test_a_replay_with_next_to_nothing_missing_is_answered(tmp_path):
    assert rows(make_run(tmp_path, {0: ROWS}, unrecorded={0: [(70, 72)]}), "critical-path")


def test_info_says_what_and_when(run):
    (row,) = ask(run, "info").extra["missing_records"]
    assert row == {
        "rank": 0, "what": "kernels", "number": 1, "of": 10, "place": "places", "start_ns": 70, "end_ns": 150,
        "unrecorded_ns": 30,
    }  # fmt: skip


def test_diagnose_judges_the_longest_part_of_a_run_without_steps(tmp_path):
    apart = [kernel(n * 1000, n * 1000 + 400) for n in range(20)]
    run = make_run(tmp_path / "a", {0: {"kernels": apart}}, unrecorded={0: [(2_400, 3_000)]})
    answer = ask(run, "diagnose")
    fault = next(r for r in answer.table.to_pylist() if "launches without" in r["where"])
    assert (fault["kind"], fault["ranks"], fault["evidence"]["lost_records"], fault["lost_ns"]) == (
        "capture-fault",
        [0],
        1.0,
        0,
    )
    assert "rank 0: a part of the run is left out, in which work may have run without a record" in answer.notes
    losses = [r["lost_ns"] for r in answer.table.to_pylist() if r["lost_ns"]]
    assert sum(losses) <= 16_400 - 17 * 400


def test_diagnose_judges_nothing_where_losses_are_everywhere(tmp_path):
    apart = [kernel(n * 1000, n * 1000 + 400) for n in range(20)]
    run = make_run(tmp_path, {0: {"kernels": apart}}, unrecorded={0: [(400, 19_000)]})
    answer = ask(run, "diagnose")
    assert {r["kind"] for r in answer.table.to_pylist()} == {"capture-fault"}
    assert "no step has complete records, so no loss was judged" in answer.notes


def test_advice_names_the_causes_that_are_known():
    assert "pytorch#192021" in advice_on_missing("kernels", "start", kineto=True)
    assert "pytorch" not in advice_on_missing("kernels", "start", kineto=False)
    assert "--cuda-graph-trace=node" in advice_on_missing("graphs", "places", kineto=False)
    assert "buffers" in advice_on_missing("kernels", "end", kineto=False)
