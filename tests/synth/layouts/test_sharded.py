import numpy as np
import pytest

from alltrace.synth import SCENARIOS
from alltrace.synth.layouts import FullySharded
from alltrace.synth.program import Collective
from alltrace.synth.simulate import simulate
from alltrace.synth.truth import _device_times


def test_gathers_run_under_the_kernels_of_the_layer_before():
    scenario = SCENARIOS["sharded"]
    ops = [op for op in FullySharded(scenario).step(3, 1, np.random.default_rng(0)) if isinstance(op, Collective)]
    names = [op.op for op in ops]
    assert (names.count("AllGather"), names.count("ReduceScatter")) == (24, 12)
    assert {op.size_bytes for op in ops} == {400_000_000 // (12 * 16)}
    run = simulate(SCENARIOS["sharded"].override(steps=3, ideal=True))
    times = _device_times(run.timelines[5])
    assert times["communication_ns"] > 20_000_000
    # the first of each pass is exposed, and the last reduction; so is what ranks wait for each other
    assert times["exposed_ns"] < 0.3 * times["communication_ns"]
    gather = next(one for one in run.collectives if one.op == "AllGather")
    took = min(gather.ends.values()) - max(gather.arrivals.values())
    assert took == pytest.approx(15_000 + 15 * (400_000_000 // 192) / 100, abs=2_100)
