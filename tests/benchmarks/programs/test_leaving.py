"""Members leave operations late, and none of a synchronising one before the last has started."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
from tests.together import together

from benchmarks.programs.draw import plant
from benchmarks.programs.layouts import LAYOUTS, Setting, draw_for_matching
from benchmarks.programs.leaving import ROOTED, Scatter
from benchmarks.programs.machine import COLLECTIVE, HOST, LAUNCH_LATENCY_NS, execute
from benchmarks.programs.training import Lowered


@together("layout", LAYOUTS)
def test_no_member_of_a_synchronising_operation_ends_before_the_last_has_started(layout):
    program = draw_for_matching(7, Setting(layout, "ids", 3.0), 8)
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
    program = replace(plant(10, "none"), scatter=0.0)
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
    program = replace(plant(10, "straggler"), scatter=1.0)
    index = next(i for i, c in enumerate(program.communicators) if len(c.ranks) > 1)
    first, second = (
        Scatter(Lowered(p), 1.0).delays_ns(index, 2, 100_000) for p in (program, replace(program, causes=()))
    )
    assert first == second
    assert len(set(first.values())) > 1
