"""Ends scatter as measured on real machines, and no member ends before the last has started."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.programs.draw import draw
from benchmarks.programs.layouts import LAYOUTS, Setting, draw_for_matching
from benchmarks.programs.machine import COLLECTIVE, HOST, LAUNCH_LATENCY_NS, execute
from benchmarks.programs.scatter import ROOTED, Scatter, draw_delays, law_of
from benchmarks.programs.training import Lowered

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
        delays = draw_delays(law_of(operation, machine), members, 150, np.random.default_rng(seed))
        assert delays.min() >= 0
        spreads.append(delays.max(axis=1) - delays.min(axis=1))
    for share, spread in MEASURED[measured].items():
        assert 0.9 * spread < np.quantile(np.concatenate(spreads), share) < 1.25 * spread, share


def test_members_are_late_in_modes_of_their_own():
    delays = draw_delays(law_of("AllToAll", 0), 2, 2_000, np.random.default_rng(3))
    difference = delays[:, 0] - delays[:, 1]
    assert np.quantile(np.abs(difference), 0.05) > 10_000  # nearly always the mode decides
    machines = [draw_delays(law_of("AllToAll", 0), 2, 400, np.random.default_rng(seed)) for seed in range(20)]
    signs = {np.sign(d[:, 0] - d[:, 1]).mean().round(1) for d in machines}
    assert min(signs) < -0.9
    assert max(signs) > 0.9
    assert any(-0.5 < s < 0.5 for s in signs)  # in which of the two is late alternates


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_member_of_a_synchronising_operation_ends_before_the_last_has_started(layout):
    program = draw_for_matching(7, Setting(layout, "ids", 3.0), 16)
    lowered = Lowered(program)
    instances = defaultdict(list)
    for recorded in lowered.execute(record=True).recorded:
        for start, end, *_, communicator, _, number in recorded.kernels:
            if communicator >= 0:
                instances[communicator, number].append((start, end))
    spreads = []
    for key, members in instances.items():
        assert len(members) == lowered.members[key[0]]
        if lowered.operations[key].name not in ROOTED:
            assert min(end for _, end in members) >= max(start for start, _ in members)
            spreads.append(max(end for _, end in members) - min(end for _, end in members))
    assert np.median(spreads) > 1_000


def test_what_depends_on_a_late_end_moves_too():
    program = replace(draw(10, "none"), scatter=0.0)
    ideal, late = (Lowered(replace(program, scatter=scatter)).execute().ends for scatter in (0.0, 10.0))
    last = program.steps - 1
    assert max(rank[last] for rank in late) > max(rank[last] for rank in ideal)


class Rooted:
    def __init__(self, root, sends):
        self.found = root, sends

    def root(self, _, __):
        return self.found

    def delays_ns(self, _, __, ___):
        return {}


def collective(transfer_ns):
    return (COLLECTIVE, 20, 0, transfer_ns, 1_000, 5_000, 0, 0)


def ends(root, sends, pauses):
    code = [[(HOST, pause), collective(30_000)] for pause in pauses]
    recorded = execute(code, [len(pauses)], Rooted(root, sends), record=True).recorded
    return [r.kernels[0][1] - 6_000 - LAUNCH_LATENCY_NS for r in recorded]


def test_the_root_of_a_broadcast_waits_for_nobody_and_a_leaf_for_the_root():
    assert ends(0, True, [0, 500_000, 100_000]) == [30_000, 530_000, 130_000]
    assert ends(0, True, [500_000, 0, 900_000]) == [530_000, 530_000, 930_000]


def test_the_root_of_a_reduction_waits_for_all_and_the_others_for_nobody():
    assert ends(1, False, [0, 200_000, 700_000]) == [30_000, 730_000, 730_000]


def test_the_same_program_scatters_in_the_same_way_with_and_without_a_cause():
    program = replace(draw(10, "straggler"), scatter=1.0)
    index = next(i for i, c in enumerate(program.communicators) if len(c.ranks) > 1)
    first, second = (Scatter(Lowered(p), 1.0).delays_ns(index, 2, 100_000) for p in (program, replace(program, causes=())))
    assert first == second
    assert len(set(first.values())) > 1
