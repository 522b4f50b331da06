"""Devices that processes share, in runs of several ranks made by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.recipes.questions.diagnose.time_sliced import OTHERS_NS, US, Device, run_of

from alltrace.recipes.questions.diagnose.cards import told
from alltrace.recipes.questions.diagnose.sharing import notes
from alltrace.run import manifest

OF_COMPUTE = ("straggler", "slow-host", "imbalance", "jitter", "shared-device")


def found_in(run):
    """Kind and ranks of what costs compute time, in the order found."""
    return [(row["kind"], row["ranks"]) for row in run.recipe("diagnose").to_pylist() if row["kind"] in OF_COMPUTE]


def device(number):
    """The one device of a rank."""
    return {"devices": [{"device": 0, "ordinal": 0, "uuid": f"GPU-{number}", "name": "H200"}]}


def alone():
    return Device(others_ns=0)


def test_a_rank_with_an_interrupted_device_is_no_straggler(tmp_path):
    run = run_of(tmp_path, {rank: Device() if rank == 2 else alone() for rank in range(4)})
    assert found_in(run) == [("shared-device", [2])]
    (row,) = (r for r in run.recipe("diagnose").to_pylist() if r["kind"] == "shared-device")
    # the others wait for it: the job gets back what it lost
    assert row["lost_ns"] == pytest.approx(row["evidence"]["interrupted_launches"] * OTHERS_NS, rel=0.05)
    assert row["evidence"]["basis"] == "replay"


def test_a_slow_device_that_is_also_interrupted_is_both(tmp_path):
    class Slow(Device):
        def end(self, start, took):
            return super().end(start, took * 13 // 10)

    run = run_of(tmp_path, {rank: Slow() if rank == 1 else alone() for rank in range(4)})
    assert found_in(run) == [("shared-device", [1]), ("straggler", [1])]


def test_all_devices_of_a_run_can_be_shared(tmp_path):
    devices = {rank: Device((1_700 + 90 * rank) * US) for rank in range(4)}
    assert found_in(run_of(tmp_path, devices, steps=20))[0] == ("shared-device", [0, 1, 2, 3])


def test_ranks_that_share_a_device_with_each_other_are_told_so(tmp_path):
    devices = {0: Device(), 1: Device(1_700 * US), 2: Device(1_800 * US), 3: alone()}
    run = run_of(tmp_path, devices, tables={0: device(0), 1: device(0), 2: device(2), 3: device(3)})
    rows = [r for r in run.recipe("diagnose").to_pylist() if r["kind"] == "shared-device"]
    advice = {tuple(r["ranks"]): r["advice"] for r in rows}
    assert set(advice) == {(0, 1), (2,)}
    assert "Several ranks compute on one device" in advice[0, 1]
    assert "Another process" in advice[2,]
    assert "nvidia-smi" in advice[2,]


def test_the_card_says_what_was_measured(tmp_path):
    answer = run_of(tmp_path, {0: Device()}).recipe("diagnose")
    found = told(answer.answer, {0: "host0"})
    assert found.verdict.startswith("Kernels of rank 0 are interrupted by time slices of another process on its device")
    (card,) = (c for c in found.cards if c.kind == "shared-device")
    launches = answer.to_pylist()[0]["evidence"]["interrupted_launches"]
    assert f"{launches:.0f} launches of" in card.evidence
    assert (
        "different kernels took 2.50 ms, or a multiple of that, longer than the same launch usually does"
        in card.evidence
    )
    assert card.proof.recipe == "kernels"


def test_a_run_without_steps_can_be_shared(tmp_path):
    run = run_of(tmp_path, {0: Device()}, tables={0: {"ranges": []}})
    answer = run.recipe("diagnose")
    assert any("no steps were found" in note for note in answer.notes)
    (row,) = (r for r in answer.to_pylist() if r["kind"] == "shared-device")
    assert row["lost_ns"] == pytest.approx(row["evidence"]["interrupted_launches"] * OTHERS_NS, rel=0.05)


def test_who_shares_a_device_is_noted():
    def rank(number, *devices, pids=(1,)):
        return SimpleNamespace(rank=number, pids=pids, devices=devices, host="a")

    def device(uuid=None, name=None):
        return manifest.Device(0, 0, uuid, None, name, "a")

    slices = [
        rank(0, device("GPU-1", "H200")),
        rank(1, device("MIG-2", "H200")),
        rank(2, device("GPU-3", "A100 MIG 1g.5gb")),
        rank(3, device(None, None)),
    ]
    assert notes(SimpleNamespace(ranks=slices)) == [
        "rank 1-2: its device is a slice (MIG), which shares the link to the host with others"
    ]
    several = notes(
        SimpleNamespace(ranks=[rank(0, device("GPU-1", "H200"), pids=(1, 2)), rank(1, device("GPU-2"), pids=(3,))])
    )
    assert [note.partition(":")[0] for note in several] == ["rank 0"]
