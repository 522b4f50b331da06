"""Diagnoses of simulated runs against the faults planted in them."""

from __future__ import annotations

import pytest

from alltrace.api import OpenRun
from alltrace.recipes.questions.diagnose.finding import EVIDENCE
from alltrace.recipes.terms import KIND_MEANINGS
from alltrace.run.importer import import_reports
from alltrace.synth import SCENARIOS, write_run


def diagnose(folder, layout, *faults, **values):
    """The answer and the truth of a small run."""
    scenario = SCENARIOS[layout].override(
        **{"ranks": 8, "hosts": 2, "steps": 6, "warmup_steps": 0, **values}, faults=faults, ideal=True
    )
    truth = write_run(scenario, folder / "reports", ideal=True)
    import_reports([str(folder / "reports")], folder / "run", jobs=1)
    return OpenRun(folder / "run").recipe("diagnose"), truth


PER_STEP = ("exposed-communication", "serialized-communication")
"""What is lost in every step alike."""


@pytest.mark.sampled(19)
@pytest.mark.parametrize(
    ("layout", "fault", "basis", "share"),
    [
        ("tensor-data", "slow-rank:ranks=3:factor=1.3", "replay", 0.02),
        ("sharded", "slow-host:hosts=1:factor=1.3", "replay", 0.03),
        ("pipeline", "imbalance:ranks=2", "replay", 0.03),
        ("experts", "slow-communicator:factor=4", "replay", 0.03),
        ("sharded", "exposed-communication", "replay", 0.1),
        ("tensor-data", "exposed-communication", "replay", 0.02),
        ("pipeline", "exposed-communication", "replay", 0.02),
        ("sharded", "serialized-communication", "replay", 0.02),
        ("tensor-data", "serialized-communication", "replay", 0.03),
        ("pipeline", "serialized-communication", "replay", 0.02),
        ("tensor-data", "launch-bound", "replay", 0.1),
        ("sharded", "sync:host_ns=100000", "replay", 0.35),
        ("tensor-data", "host-pause", "replay", 0.03),
        ("sharded", "data-stall:ranks=5", "replay", 0.05),
        ("tensor-data", "idle-gap", "ceiling", 0.1),
        ("tensor-data", "allocation", "replay", 0.03),
        ("tensor-data", "pageable-copy", "replay", 0.15),
        ("tensor-data", "sync-copy", "replay", 0.05),
        ("tensor-data", "low-bandwidth:ranks=6", "replay", 0.03),
    ],
)
def test_the_first_finding_names_the_fault_its_culprits_and_its_loss(tmp_path, layout, fault, basis, share):
    values = {"expert_parallel": 4} if layout == "experts" else {}
    if (layout, fault) == (
        "tensor-data",
        "serialized-communication",
    ):  # smaller gradients are through before anything queues
        values = {"gradient_bytes": 1 << 30}
    answer, truth = diagnose(tmp_path, layout, fault, **values)
    # what the program is made of and needs at once is not a fault, and may cost more than one
    rows = [row for row in answer.to_pylist() if not row["needed_at_once"]]
    planted, first = truth.faults[0], rows[0]
    assert first["kind"] == planted["finding"]
    if first["kind"] == "slow-host":
        assert first["hosts"] == planted["hosts"]
    assert first["ranks"] == list(planted["ranks"])
    # of the judged steps; the truth is of all
    steps = 6 if first["kind"] in PER_STEP else first["lost_ns"] / first["lost_ns_per_step"]
    assert first["lost_ns_per_step"] * steps == pytest.approx(planted["lost_ns"], rel=share)
    assert first["lost_ns_per_step"] <= first["lost_ns"]
    assert first["evidence"]["basis"] == basis
    if fault == "idle-gap":  # pauses that nothing explains are what a replay does not understand
        assert any("more than 5 %, so losses are upper bounds" in note for note in answer.notes)
    if basis == "replay":
        assert first["evidence"]["replay_error"] < 0.001


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("fault", "where"),
    [
        ("missing-rank:ranks=3", "missing ranks"),
        ("cut-short:ranks=3", "cut short"),
        ("late-start:ranks=3", "late start"),
        ("dropped-events:ranks=3", "dropped events"),
        ("no-nvtx", "no ranges"),
        ("graphs", "graphs hide kernels"),
    ],
)
def test_faults_of_the_capture_cost_nothing_and_come_behind_graver_findings(tmp_path, fault, where):
    answer, truth = diagnose(tmp_path, "tensor-data", fault)
    rows = answer.to_pylist()
    at = next(n for n, row in enumerate(rows) if row["where"] == where)
    first = rows[at]
    assert (first["kind"], first["lost_ns"]) == ("capture-fault", 0)
    severity = ["high", "medium", "low"].index
    assert all(severity(row["severity"]) <= severity(first["severity"]) for row in rows[:at])
    same = [row["lost_ns"] for row in rows if row["severity"] == first["severity"] and row["lost_ns"] is not None]
    assert same == sorted(same, reverse=True)
    assert first["ranks"] == list(truth.faults[0]["ranks"])


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize("layout", ["healthy", "tensor-data", "pipeline", "experts", "sharded"])
def test_a_healthy_run_has_no_grave_finding(tmp_path, layout):
    answer, _ = diagnose(tmp_path, layout, **({"expert_parallel": 4} if layout == "experts" else {}))
    assert "high" not in [row["severity"] for row in answer.to_pylist()]


def test_rows_are_ranked_and_of_known_kinds(tmp_path):
    answer, truth = diagnose(tmp_path, "sharded", "slow-rank:ranks=3:factor=1.3", "data-stall")
    rows = answer.to_pylist()
    assert {row["kind"] for row in rows[:2]} == {fault["finding"] for fault in truth.faults}
    exposed = [row["lost_ns"] for row in rows if row["kind"] == "exposed-communication"]
    assert len(exposed) == 2
    # the costlier part of exposed communication has the place of both
    lost = [sum(exposed) if row["lost_ns"] == exposed[0] else row["lost_ns"] for row in rows]
    assert lost == sorted(lost, reverse=True)
    assert exposed == sorted(exposed, reverse=True)
    assert all(row["kind"] in KIND_MEANINGS and row["severity"] in ("high", "medium", "low") for row in rows)
    assert all(set(row["evidence"]) == {"basis", *EVIDENCE} for row in rows)
    assert any("5 steps are judged" in note or "6 steps are judged" in note for note in answer.notes)


def test_one_rank_says_what_cannot_be_judged(tmp_path):
    answer, _ = diagnose(tmp_path, "healthy", "sync:host_ns=200000", ranks=1, hosts=1)
    assert answer.to_pylist()[0]["kind"] == "sync"
    assert any("only one rank" in note for note in answer.notes)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("layout", ["healthy", "tensor-data", "pipeline", "experts", "sharded"])
def test_no_healthy_run_shares_its_devices(tmp_path, layout):
    values = {"expert_parallel": 4} if layout == "experts" else {}
    answer, _ = diagnose(tmp_path, layout, ranks=4, hosts=1, **values)
    assert "shared-device" not in {row["kind"] for row in answer.to_pylist()}
