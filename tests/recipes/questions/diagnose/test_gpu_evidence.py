"""Findings with what the GPUs' clocks say of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from alltrace.api import OpenRun
from alltrace.recipes.analysis.gpu_state import COLLECT, GpuState
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.diagnose.finding import Finding
from alltrace.recipes.questions.diagnose.gpu_evidence import with_gpu_evidence
from alltrace.run.importer import import_reports
from alltrace.synth import write_run

PEER, SLOW, FAST = GpuState(1980.0), GpuState(1215.0, reasons=4), GpuState(1980.0)
SENTENCE = "Rank 3's GPU ran at 1,215 MHz (power cap), its peers at 1,980."


def finding(kind, ranks=(3,)):
    return Finding(kind, 0, ranks, "gemm", "Look.", {"slowdown": 1.6})


@pytest.mark.parametrize(
    ("kind", "state", "advice"),
    [
        ("straggler", SLOW, f"Look. {SENTENCE}"),
        ("slow-host", SLOW, f"Look. {SENTENCE}"),
        ("jitter", SLOW, f"Look. {SENTENCE}"),
        ("straggler", FAST, "Look. Rank 3's GPU ran at 1,980 MHz, its peers at 1,980."),
        ("straggler", None, f"Look. {COLLECT}"),
        ("low-bandwidth", SLOW, f"Look. {SENTENCE}"),
        ("slow-communicator", FAST, "Look."),
        ("low-bandwidth", None, "Look."),
        ("launch-bound", SLOW, "Look."),
    ],
)
def test_what_is_stated_follows_from_the_kind(kind, state, advice):
    (said,) = with_gpu_evidence([finding(kind)], {1: PEER, 2: PEER, 3: state})
    assert said.advice == advice
    stated = state is not None and advice != "Look."
    assert said.evidence == {"slowdown": 1.6} | (
        {"sm_clock_mhz": state.sm_clock_mhz, "peers_sm_clock_mhz": 1980.0} if stated else {}
    )


def test_a_finding_of_no_rank_stays():
    assert with_gpu_evidence([finding("straggler", ())], {1: PEER}) == [finding("straggler", ())]


@pytest.fixture
def job(tmp_path):
    """A job with one slow rank, and its facts."""
    truth = write_run("straggler", tmp_path / "reports", ranks=4, hosts=1, steps=6)
    manifest = import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    return tmp_path, manifest, truth


def test_a_slow_rank_is_told_its_clock_in_the_judged_steps(job):
    folder, manifest, _ = job
    (before,) = [r for r in ask(OpenRun(folder / "run"), "diagnose").table.to_pylist() if r["kind"] == "straggler"]
    (culprit,) = before["ranks"]
    assert before["advice"].endswith(COLLECT)
    lines = ["timestamp, uuid, clocks.sm, power.draw, temperature.gpu, clocks_event_reasons.active"]
    for rank in manifest.ranks:
        slow = rank.rank == culprit
        first, last = (rank.time_base_utc_ns + t for t in (rank.start_ns, rank.end_ns))
        for time in range(first // 10**6, last // 10**6, 2):
            at = datetime.fromtimestamp(time / 1000, UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
            lines.append(
                f"{at}, GPU-{rank.devices[0].uuid}, {1215 if slow else 1980}, {400 if slow else 640}, 70, {0x4 if slow else 0:#x}"
            )
            # before and behind the job the clock is another
        at = datetime.fromtimestamp(last // 10**6 / 1000 + 5, UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        lines += [f"{at}, GPU-{rank.devices[0].uuid}, 345, 70, 30, 0x0"] * 5000
    (folder / "gpu.csv").write_text("\n".join(lines) + "\n")
    import_reports([str(folder / "reports")], folder / "run", jobs=1, gpu_logs=[str(folder / "gpu.csv")], gpu_log_offset_ns=0)
    for steps in (None, "3:5"):
        (after,) = [r for r in ask(OpenRun(folder / "run"), "diagnose", steps=steps).table.to_pylist() if r["kind"] == "straggler"]
        clocks = f"Rank {culprit}'s GPU ran at 1,215 MHz (power cap), its peers at 1,980."
        assert after["advice"].endswith(f"{clocks} It drew 400 W at 70 °C, its peers 640 W at 70 °C.")
        assert (after["evidence"]["sm_clock_mhz"], after["evidence"]["peers_power_w"]) == (1215, 640)
    assert (after["kind"], after["ranks"]) == (before["kind"], before["ranks"])
