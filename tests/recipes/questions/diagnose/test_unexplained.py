"""What is said of time that nothing explains, and of runs without a finding."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tests.making import collective, kernel, make_run

from alltrace.recipes.questions.diagnose import unexplained
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts
from alltrace.recipes.questions.diagnose.finding import Finding, Loss
from alltrace.recipes.questions.diagnose.gaps import CLASSES
from alltrace.recipes.questions.diagnose.ranking import ranked

MS = 1_000_000


def launches(kernels, before=50_000):
    """A call for each kernel, all of them before the first."""
    return [
        {
            "start": -before - 1000 * n,
            "end": -before - 1000 * n + 500,
            "name": "cudaLaunchKernel",
            "correlation": k["correlation"],
            "kind": "runtime",
        }
        for n, k in enumerate(reversed(kernels))
    ][::-1]


def answered(folder, kernels, **tables):
    return make_run(folder, {0: {"kernels": kernels, **tables}}).recipe("diagnose")


@pytest.mark.parametrize(("gap", "told"), [(0, True), (3_000, True), (2 * MS, False)])
def test_nothing_is_said_to_be_found_only_where_compute_fills_the_time(tmp_path, gap, told):
    kernels = [kernel(n * (MS + gap), n * (MS + gap) + MS, correlation=n) for n in range(10)]
    notes = " ".join(answered(tmp_path, kernels, api=launches(kernels)).notes)
    assert ("nothing that costs much time was found" in notes) == told


def test_idle_time_without_a_call_is_unexplained_and_large(tmp_path):
    kernels = [kernel(3 * n * MS, (3 * n + 1) * MS) for n in range(10)]
    answer = answered(tmp_path, kernels)
    first = answer.to_pylist()[0]
    assert (first["kind"], first["severity"]) == ("unexplained", "high")
    assert first["lost_share"] == pytest.approx(18 / 28)
    assert any("no CUDA calls in the report" in note for note in answer.notes)
    assert not {"launch-bound", "sync", "host-pause", "data-stall"} & {row["kind"] for row in answer.to_pylist()}


def test_a_small_part_of_compute_is_never_without_a_finding(tmp_path):
    """Communication that nobody else is seen in takes most of the time; no other finding can be made of it."""
    kernels = [
        k
        for n in range(10)
        for k in (
            kernel(4 * n * MS, (4 * n + 1) * MS, correlation=2 * n),
            collective((4 * n + 1) * MS, (4 * n + 4) * MS, correlation=2 * n + 1),
        )
    ]
    answer = answered(tmp_path, kernels, api=launches(kernels))
    row = next(r for r in answer.to_pylist() if r["kind"] == "unexplained")
    assert (row["where"], row["lost_ns"], row["lost_share"]) == ("communication", None, None)
    assert row["loss_note"]
    assert row["evidence"]["compute_share"] == pytest.approx(10 / 40, abs=1e-4)
    assert "communication runs that compute waits for" in row["advice"]


def in_doubt(waited_ns, profiler="rocprofv3", doubt="it is unknown"):
    """Two ranks with two steps of 1,000 ns each, of which devices wait for communication."""
    times = np.zeros((2, 2, len(CLASSES)))
    times[:, :, CLASSES.index("communication")] = waited_ns
    times[:, :, CLASSES.index("compute")] = 1_000 - waited_ns
    manifest = SimpleNamespace(reports=[SimpleNamespace(profiler=profiler)])
    all_ranks = AllRankFacts.__new__(AllRankFacts)
    all_ranks.ranks, all_ranks.steps, all_ranks.hosts = np.arange(2), np.arange(2), {0: "a", 1: "b"}
    all_ranks.alignment = SimpleNamespace(run=SimpleNamespace(manifest=manifest))
    all_ranks.facts = dict.fromkeys(range(2))
    all_ranks.__dict__ |= {
        "times": times,
        "lengths": np.full(2, 1_000.0),
        "span_ns": 2_000,
        "doubt": doubt,
        "_recovery": None,
    }
    all_ranks.__dict__["clocks_unknown"] = True
    all_ranks.__dict__ |= {"own": 1_000.0 - times[:, :, CLASSES.index("communication")], "lone": [None, None]}
    return all_ranks


def stall(lost_ns):
    return ranked(
        [Finding("data-stall", Loss(lost_ns, "ceiling", ("data",), lost_ns, lost_ns), (0, 1), "data", "")], 2_000
    )


@pytest.mark.parametrize(
    ("waited", "stalled", "first"),
    [
        (200, 50, "unexplained"),
        (200, 60, None),  # 3 % of the time is no small finding
        (40, 50, None),  # which explains most of what is waited for
        (4, 0, None),
    ],
)
def test_a_small_finding_is_not_first_where_it_is_unknown_who_waits_for_whom(waited, stalled, first):
    all_ranks = in_doubt(waited)
    found = unexplained.unjudged(all_ranks, stall(stalled))
    assert [f.kind for f in found] == ([first] if first else [])
    if found:
        assert (found[0].where, found[0].ranks) == ("communication", (0, 1))
        assert (found[0].loss.estimate_ns, found[0].loss.unknown, found[0].loss.least_ns) == (
            2 * waited,
            "it is unknown",
            2 * waited,
        )
        assert found[0].evidence == {"stalled_ns_per_step": waited}
        claims = ranked([*found, stall(stalled)[0].finding], 2_000)
        assert [c.finding.kind for c in claims] == ["unexplained", "data-stall"]
        assert claims[0].lost_ns is None


def test_what_is_judged_is_not_unexplained_and_the_record_that_is_missing_is_named():
    assert unexplained.unjudged(in_doubt(200, doubt=None), stall(50)) == []
    (amd,), (pytorch,) = (
        unexplained.unjudged(in_doubt(200, name), ()) for name in ("rocprofv3", "PyTorch profiler 2.1")
    )
    said = (
        "Record which ranks communicate, which tells for whom devices wait: import the job's NCCL logs with --nccl-log"
        " for it"
    )
    assert (amd.advice, pytorch.advice) == (f"{said}.", f"{said}, or traces of a newer PyTorch.")


def test_ranks_that_share_a_device_are_said_to(tmp_path):
    device = [{"device": 0, "ordinal": 0, "uuid": "MIG-5", "name": "NVIDIA A100 MIG 1g.5gb"}]
    processes = [{"process": n, "pid": 1 + n, "name": "train"} for n in range(2)]
    own = {"kernels": [kernel(0, MS), kernel(MS, 2 * MS, process=1)], "devices": device, "processes": processes}
    notes = " ".join(make_run(tmp_path, {0: own, 1: own}).recipe("diagnose").notes)
    assert "ranks 0-1 share a device" in notes
    assert "rank 0-1: its device is a slice (MIG)" in notes


def test_what_is_unexplained_says_how_much_of_the_time_it_takes():
    (found,) = unexplained.find(in_doubt(800), ())
    assert found.advice.startswith(
        "Devices compute for 20 % of the time only, and no finding explains the rest; for 80 %"
    )
    assert found.evidence == {"compute_share": 0.2, "stalled_ns_per_step": 800}
