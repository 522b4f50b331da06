import numpy as np
import pytest
from tests.synth.faults.planting import LAYOUTS, STEPS, lost_ns, run

from alltrace.synth.faults import Imbalance, SlowRank
from alltrace.synth.program import Compute, Pop

_RNG = np.random.default_rng(0)


def _busy(line):
    mine = line.kernels["stream"] == 7
    return int((line.kernels["end"] - line.kernels["start"])[mine].sum())


def test_a_slow_rank_only_stretches_its_own_kernels():
    ops = [Compute(np.array([0, 1]), np.array([1000, 400])), Pop()]
    fault = SlowRank(ranks=(3,), factor=1.5)
    assert not fault.hits(2, 0)
    slow = fault.edit(3, 0, ops, _RNG)
    assert slow[0].durations_ns.tolist() == [1500, 600]
    assert slow[1] == Pop()
    assert ops[0].durations_ns.tolist() == [1000, 400]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_slow_rank_in_every_layout(name):
    slow, well = run(name, "slow-rank:ranks=5:factor=1.3"), run(name)
    ratios = [_busy(one) / _busy(other) for one, other in zip(slow.timelines, well.timelines, strict=True)]
    assert ratios[5] == pytest.approx(1.3, rel=0.001)
    assert ratios[:5] == pytest.approx([1.0] * 5)
    lost = lost_ns(name, "slow-rank:ranks=5:factor=1.3")
    # a pipeline hides some of it in its bubbles, and other layouts what no longer waits for data
    assert 0.6 < lost / (0.3 * _busy(well.timelines[5])) <= 1.05


def test_slow_ranks_for_some_steps_and_slow_hosts():
    assert lost_ns("healthy", "slow-rank:ranks=5:steps=1-2:factor=2") == pytest.approx(
        lost_ns("healthy", "slow-rank:ranks=5:factor=2") * 2 / STEPS, rel=0.05
    )
    ops = [Compute(np.array([0]), np.array([1000]))]
    fault = SlowRank(ranks=(3, 7), factor=2.0, rotate_every=2)
    slow = {rank: [step for step in range(8) if fault.edit(rank, step, ops, _RNG) is not ops] for rank in (3, 7)}
    assert slow == {3: [0, 1, 4, 5], 7: [2, 3, 6, 7]}
    assert fault.truth()["rotate_every"] == 2
    slow, well = run("healthy", "slow-host:hosts=1:factor=1.25"), run("healthy")
    ratios = [_busy(one) / _busy(other) for one, other in zip(slow.timelines, well.timelines, strict=True)]
    assert ratios == pytest.approx([1.0] * 8 + [1.25] * 8, rel=0.001)
    assert slow.faults[0].ranks == tuple(range(8, 16))
    assert lost_ns("healthy", "slow-host:hosts=1:factor=1.25") == pytest.approx(
        0.25 * _busy(well.timelines[9]), rel=0.1
    )


def test_imbalance_is_more_kernels_of_all_layers_or_of_experts():
    uneven, well = run("healthy", "imbalance:ranks=6:extra=0.5"), run("healthy")
    counts = [
        len(one.kernels) - len(other.kernels) for one, other in zip(uneven.timelines, well.timelines, strict=True)
    ]
    assert counts == [0] * 6 + [STEPS * 180] + [0] * 9
    means = [_busy(r.timelines[6]) / (r.timelines[6].kernels["stream"] == 7).sum() for r in (uneven, well)]
    assert means[0] == pytest.approx(means[1], rel=0.1)
    assert lost_ns("healthy", "imbalance:ranks=6:extra=0.5") == pytest.approx(
        _busy(uneven.timelines[6]) - _busy(well.timelines[6]), rel=0.1
    )
    ops = [Compute(np.arange(4), np.arange(4), part=part) for part in ("layer", "expert", "optimizer")]
    edited = Imbalance(ranks=(0,), extra=0.25).edit(0, 0, ops, _RNG)
    assert [len(op.kernels) for op in edited] == [4, 5, 4]
    assert lost_ns("experts", "imbalance:ranks=6") > 3_000_000 * STEPS
