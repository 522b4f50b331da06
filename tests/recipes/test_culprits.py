"""All questions about who costs the run time name the same rank first, or say why not; and a cause undone is one number."""

from __future__ import annotations

import pytest

import alltrace
from alltrace.synth import SCENARIOS, write_run

SAME = "would save most"
SMALL = {"ranks": 8, "hosts": 2, "steps": 8, "warmup_steps": 0, "layers": 6, "kernels_per_layer": 12, "optimizer_kernels": 10}


@pytest.mark.parametrize(
    ("layout", "fault", "ranks"),
    [
        ("healthy", "slow-rank:ranks=3:factor=1.3", {3}),
        ("tensor-data", "slow-rank:ranks=3,5:rotate_every=4:factor=1.4", {3, 5}),  # each in half of the steps
        ("pipeline", "imbalance:ranks=2", {2}),
        ("sharded", "data-stall:ranks=5", {5}),
    ],
)
def test_all_name_the_same_rank_first_and_the_same_loss(tmp_path, layout, fault, ranks):
    write_run(SCENARIOS[layout].override(**SMALL, faults=(fault,)), tmp_path / "reports")
    run = alltrace.open(tmp_path / "reports", cache_dir=tmp_path / "cache")
    diagnosed = run.recipe("diagnose")
    found = [row for row in diagnosed.to_pylist() if row["lost_ns"] and set(row["ranks"]) <= ranks]
    assert diagnosed.to_pylist()[0] in found
    named = {"diagnose": (set().union(*(row["ranks"] for row in found)), diagnosed.notes)}
    for name in ("stragglers", "whatif", "critical-path"):
        answer = run.recipe(name)
        named[name] = ({next(row["rank"] for row in answer.to_pylist() if row["rank"] is not None)}, answer.notes)
    answer = run.recipe("efficiency")
    culprit = answer.to_pylist()[0]["culprit"]
    # who waits for data computes as long as others do
    assert culprit is None if "data-stall" in fault else culprit in ranks
    assert any("culprit is the rank with the most useful time" in note for note in answer.notes)
    for first, notes in named.values():
        assert first <= ranks or any(SAME in note for note in notes)
    assert named["stragglers"][0] <= ranks
    assert named["whatif"][0] <= ranks
    if "data-stall" in fault:
        return
    # of a rank's work what diagnose says is lost is what whatif gives back, over the same steps
    judged = next(int(note.split()[0]) for note in diagnosed.notes if "judged; warm-up" in note)
    saved = run.recipe("whatif", rank=",".join(map(str, sorted(ranks))), per_step=True).to_pylist()[1:]
    assert sum(row["lost_ns"] for row in found if "compute" in row["classes"]) == pytest.approx(
        sum(row["saved_ns"] for row in saved[len(saved) - judged :]), rel=0.03
    )
