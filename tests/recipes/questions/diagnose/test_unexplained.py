"""What is said of time that nothing explains, and of runs without a finding."""

from __future__ import annotations

import pytest
from tests.making import collective, kernel, make_run

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


def test_ranks_that_share_a_device_are_said_to(tmp_path):
    device = [{"device": 0, "ordinal": 0, "uuid": "MIG-5", "name": "NVIDIA A100 MIG 1g.5gb"}]
    processes = [{"process": n, "pid": 1 + n, "name": "train"} for n in range(2)]
    own = {"kernels": [kernel(0, MS), kernel(MS, 2 * MS, process=1)], "devices": device, "processes": processes}
    notes = " ".join(make_run(tmp_path, {0: own, 1: own}).recipe("diagnose").notes)
    assert "ranks 0-1 share a device" in notes
    assert "rank 0-1: its device is a slice (MIG)" in notes
