"""All questions about who costs the run time name the same rank first, or say why not; and a cause undone is one
number."""

from __future__ import annotations

import pytest

import alltrace
from alltrace.synth import SCENARIOS, write_run

SAME = "would save the most"
SMALL = {
    "ranks": 8,
    "hosts": 2,
    "steps": 8,
    "warmup_steps": 0,
    "layers": 6,
    "kernels_per_layer": 12,
    "optimizer_kernels": 10,
}


@pytest.mark.slow
@pytest.mark.sampled(4)
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
    write_run(SCENARIOS[layout].override(**SMALL, faults=(fault,), ideal=True), tmp_path / "reports", ideal=True)
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
    judged = next(int(note.split()[0]) for note in diagnosed.notes if " judged" in note and note[0].isdigit())
    saved = run.recipe("whatif", rank=",".join(map(str, sorted(ranks))), per_step=True).to_pylist()[1:]
    assert sum(row["lost_ns"] for row in found if "compute" in row["classes"]) == pytest.approx(
        sum(row["saved_ns"] for row in saved[len(saved) - judged :]), rel=0.03
    )


REASONS = (
    SAME,
    "it is unknown which ranks wait for which",
    "no collective is matched across ranks",
    "waits between them may be clock errors",
    "culprit is the rank with the most useful time",
)
"""Notes that say why an answer names another rank than others do."""

REAL = (
    "h100x2_nccl_sendrecv_nsys2026.2",
    "h100x2_torchrun_nsys2026.2",
    "mfu_after_2gpu_nsys2026.2",
    "mfu_before_2gpu_nsys2026.2",
    "mpi_p2p_collectives_nsys2023.1",
    "v100x4_mpi_openacc_one_report_nsys2022.3",
)


_PATH_OF_OTHERS = ("mfu_after_2gpu_nsys2026.2",)


def first_culprits(run, name):
    """The ranks that an answer blames first, and its notes; no ranks where it blames none, or all alike."""
    answer = run.recipe(name)
    rows = answer.to_pylist()
    if name == "diagnose":
        ranks = next((row["ranks"] for row in rows if row["lost_ns"]), [])
        return set(ranks) if len(ranks) < len(run.ranks) else set(), answer.notes
    if name == "efficiency":
        return {rows[0]["culprit"]} - {None}, answer.notes
    amount = {"stragglers": "caused_ns", "whatif": "saved_ns", "critical-path": "time_ns"}[name]
    most = max(rows, key=lambda row: (row["rank"] is not None, row[amount] or 0))
    return {most["rank"]} if most["rank"] is not None and most[amount] else set(), answer.notes


@pytest.mark.sampled(6)
@pytest.mark.corpus
@pytest.mark.parametrize("report", REAL)
def test_of_a_real_run_all_name_one_first_culprit_or_say_why_not(request, corpus, tmp_path, report):
    if report in _PATH_OF_OTHERS:
        why = "one rank is late, most of the critical path is the usual work of another, and no note says so"
        request.applymarker(pytest.mark.xfail(strict=True, reason=why))
    run = alltrace.open(corpus / "nsys" / f"{report}.sqlite", cache_dir=tmp_path / "cache")
    assert len(run.ranks) > 1
    named = {n: first_culprits(run, n) for n in ("diagnose", "stragglers", "whatif", "critical-path", "efficiency")}
    blamed = {n: ranks for n, (ranks, _) in named.items() if ranks}
    if blamed and not set.intersection(*blamed.values()):
        reference = next(iter(blamed.values()))
        for name, ranks in blamed.items():
            assert ranks & reference or any(reason in note for note in named[name][1] for reason in REASONS), (
                name,
                blamed,
            )


@pytest.mark.slow
@pytest.mark.corpus
def test_every_real_report_of_several_ranks_is_looked_at(corpus, tmp_path):
    """A report that is added to the data is to be added to `REAL` too."""
    several = {
        path.stem
        for path in sorted((corpus / "nsys").glob("*.sqlite"))
        if len(alltrace.open(path, cache_dir=tmp_path / "cache").ranks) > 1
    }
    assert several <= set(REAL)
