"""Ends scatter as measured on real machines."""

import numpy as np
import pytest

from alltrace.synth.scatter import Delays, draw_delays, law_of

MEASURED = {
    ("AllGather", 0, 4): {0.5: 20_500, 0.75: 41_100, 0.9: 61_700, 0.95: 75_600},
    ("AllGather", 1, 4): {0.5: 6_700, 0.75: 17_100, 0.9: 21_600, 0.95: 22_300},
    ("ReduceScatter", 0, 4): {0.5: 6_200, 0.75: 19_100, 0.9: 36_600, 0.95: 50_300},
    ("ReduceScatter", 1, 4): {0.5: 18_400, 0.75: 22_800, 0.9: 25_700, 0.95: 27_600},
    ("AllReduce", 0, 4): {0.5: 1_300, 0.75: 2_400, 0.9: 4_000, 0.95: 5_300},
    ("AllReduce", 1, 4): {0.5: 3_200, 0.75: 7_700, 0.9: 208_700, 0.95: 209_600},
    ("AllToAll", 0, 2): {0.5: 22_200, 0.9: 25_500},
    ("AllToAll", 1, 2): {0.5: 9_800, 0.9: 16_700},
}
"""Spreads in ns of the ends of operations by share of the instances: (operation, machine, members)."""


@pytest.mark.parametrize("measured", MEASURED)
def test_spreads_are_those_that_were_measured(measured):
    operation, machine, members = measured
    spreads = []
    for seed in range(40):
        delays, _ = draw_delays(law_of(operation, machine), members, 150, np.random.default_rng(seed))
        assert delays.min() >= 0
        spreads.append(delays.max(axis=1) - delays.min(axis=1))
    for share, spread in MEASURED[measured].items():
        assert 0.9 * spread < np.quantile(np.concatenate(spreads), share) < 1.25 * spread, share


def test_members_are_late_in_modes_that_follow_from_the_seed():
    delays, _ = draw_delays(law_of("AllToAll", 0), 2, 2_000, np.random.default_rng(3))
    difference = delays[:, 0] - delays[:, 1]
    assert np.quantile(np.abs(difference), 0.05) > 10_000  # nearly always the mode decides
    machines = [draw_delays(law_of("AllToAll", 0), 2, 400, np.random.default_rng(seed))[0] for seed in range(20)]
    signs = {np.sign(d[:, 0] - d[:, 1]).mean().round(1) for d in machines}
    assert min(signs) < -0.9
    assert max(signs) > 0.9
    assert any(-0.5 < s < 0.5 for s in signs)  # in which of the two is late alternates
    first, second, other = (Delays(seed, 1.0).of(5, 7, "AllToAll", 100_000, 8, across=False) for seed in (4, 4, 5))
    assert first == second != other


def test_delays_grow_over_hosts_with_the_transfer_or_alone():
    def mean(factor, transfer_ns, across):
        delays = Delays(3, factor)
        return np.mean([delays.of(0, n, "AllGather", transfer_ns, 4, across=across) for n in range(50)])

    base = mean(1.0, 300_000, False)
    assert mean(1.0, 1_200_000, False) == pytest.approx(2 * base, rel=0.01)
    assert mean(1.0, 300_000, True) == pytest.approx(3 * base, rel=0.01)
    assert mean(10.0, 300_000, False) == pytest.approx(10 * base, rel=0.01)

    def spreads(transfer_ns, across):
        delays = Delays(1, 1.0)  # on the machine that was measured to have it
        drawn = [delays.of(0, n, "AllReduce", transfer_ns, 4, across=across) for n in range(200)]
        return np.ptp(np.array(drawn), axis=1)

    for transfer_ns in (20_000, 2_000_000):
        assert spreads(transfer_ns, across=False).max() == pytest.approx(210_000, rel=0.03)
    assert spreads(2_000_000, across=True).max() == pytest.approx(630_000, rel=0.03)
