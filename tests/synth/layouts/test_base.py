import numpy as np
import pytest

from alltrace.synth import SCENARIOS
from alltrace.synth.kernels import FIRST_VARIED, KERNELS
from alltrace.synth.layouts import DataParallel
from alltrace.synth.program import Call, Compute, Copy, HostWork, Push
from alltrace.synth.simulate import simulate


def _step(step=0, **changes):
    scenario = SCENARIOS["tiny"].override(**changes, ideal=True)
    return DataParallel(scenario).step(0, step, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("choice", "name"),
    [("step", "step 7"), ("profiler", "ProfilerStep#7"), ("iteration", "iteration 7"), ("none", "data")],
)
def test_names_of_steps(choice, name):
    assert next(op.text for op in _step(7, step_names=choice) if isinstance(op, Push)) == name


def test_a_warm_up_step_and_a_checkpoint_take_longer():
    cold, warm = (_step(step, warmup_steps=1, warmup_factor=2.0) for step in (0, 1))
    sums = [sum(int(op.durations_ns.sum()) for op in ops if isinstance(op, Compute)) for ops in (cold, warm)]
    assert sums[0] == pytest.approx(2 * sums[1], rel=1e-3)
    assert [sum(isinstance(op, Call) for op in ops) for ops in (cold, warm)] == [4, 0]
    plain, saved = (_step(step, checkpoint_every=3) for step in (1, 2))
    assert len([op for op in saved if isinstance(op, Copy) and op.kind == 2]) == 1 + 8
    assert len([op for op in plain if isinstance(op, Copy) and op.kind == 2]) == 1
    assert [op.duration_ns for op in saved if isinstance(op, HostWork) and op.call == "write"] == [60_000_000]
    run = simulate(SCENARIOS["healthy"].override(steps=4, ranks=4, checkpoint_every=3, ideal=True))
    lengths = np.diff(run.steps, axis=2)[0, :, 0]
    # 200 MB at 25 GB/s, and 60 ms to write
    assert lengths[2] - lengths[1] == pytest.approx(68e6, rel=0.02)


def test_many_names_all_differ_and_their_lengths_are_spread():
    run = simulate(SCENARIOS["bench"].override(steps=1, layers=20, buckets=1, ideal=True))
    rows = run.timelines[0].kernels
    assert set(np.unique(rows["stream"]).tolist()) == {7, 37, 41}
    names = np.unique(rows["kernel"])
    assert len(names) == 220
    assert names.min() == FIRST_VARIED
    lengths = (rows["end"] - rows["start"]) / 1e3
    assert 1.6 < np.quantile(lengths, 0.02) < 3
    assert 40 < np.quantile(lengths, 0.99) < 200
    assert np.log(lengths).std() == pytest.approx(0.9, abs=0.25)
    names = [kernel.demangled for kernel in KERNELS]
    assert len(set(names)) == len(names) == 12 + 220
    assert len({kernel.mangled for kernel in KERNELS[FIRST_VARIED:]}) == 220
    assert np.mean([len(name) for name in names]) > 120
    assert len({kernel.short for kernel in KERNELS[FIRST_VARIED:]}) < 100
