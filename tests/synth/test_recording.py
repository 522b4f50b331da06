import numpy as np
import pytest

from alltrace.synth import SCENARIOS
from alltrace.synth.recording import record
from alltrace.synth.simulate import simulate


def _recorded(*faults, **changes):
    run = simulate(SCENARIOS["healthy"].override(**{"steps": 4, "ranks": 4, "faults": faults, **changes}, ideal=True))
    return run, record(run)


def test_events_are_missing_without_a_word_and_alike_for_one_seed():
    run, recordings = _recorded(dropped_share=0.05)
    for whole, recording in zip(run.timelines, recordings, strict=True):
        assert recording.complaints == ()
        for name in ("kernels", "api", "ranges"):
            kept = len(recording.timeline.tables[name]) / len(whole.tables[name])
            assert kept == pytest.approx(0.95, abs=0.05)
    first, second = (set(r.timeline.kernels["correlation"].tolist()) for r in recordings[:2])
    assert first != second
    one, two = (_recorded("dropped-events:ranks=0", outlier_share=0.1, dropped_share=0.1)[1] for _ in range(2))
    for first, second in zip(one, two, strict=True):
        for name, rows in first.timeline.tables.items():
            assert rows["start"].tolist() == second.timeline.tables[name]["start"].tolist()


def test_some_ends_of_collectives_are_far_off():
    run, recordings = _recorded(outlier_share=0.2, outlier_ms=5.0, ranks=16, steps=8)
    errors = []
    for whole, recording in zip(run.timelines, recordings, strict=True):
        moved = recording.timeline.kernels["end"] - whole.kernels["end"]
        nccl = whole.kernels["stream"] != 7
        assert not moved[~nccl].any()
        errors.append(moved[nccl])
        assert (recording.timeline.kernels["end"] - recording.timeline.kernels["start"]).min() >= 500
    errors = np.concatenate(errors)
    assert (errors != 0).mean() == pytest.approx(0.2, abs=0.05)
    assert 4_000_000 < np.abs(errors).max() <= 5_000_000
