"""Programs as drawn: what holds of every execution, and of the truth about it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.programs.draw import KINDS, plant
from benchmarks.programs.losses import Truth, judged_ns, measure, truth_of, without_causes
from benchmarks.programs.machine import Timeline, execute
from benchmarks.programs.model import Communicator, Without
from benchmarks.programs.nsys_file import events_of
from benchmarks.programs.training import Lowered

SEEDS = (3, 4, 7, 10, 12, 21, 22)
SMALL = dict.fromkeys(KINDS, 10) | {
    "slow-communicator": 3,
    "low-bandwidth": 3,
    "recompilation": 7,
    "exposed-communication": 9,
}
"""For each kind a seed of a program of few ranks in which it costs a few per cent or more."""

GROWING = [k for k in KINDS if k not in ("exposed-communication", "serialized-communication")]


def executed(program, without=None):
    lowered = Lowered(program, without)
    return lowered, execute(lowered.code, lowered.members, record=True)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_kernels_of_a_stream_overlap_and_collectives_end_together(seed):
    program = plant(seed)
    _, timeline = executed(program)
    assert events_of(timeline.recorded) <= 5_000
    ends = defaultdict(list)
    for rank, recorded in enumerate(timeline.recorded):
        streams = defaultdict(list)
        for start, end, stream, *_ in (*recorded.kernels, *recorded.copies):
            assert start <= end
            streams[stream].append((start, end))
        for events in streams.values():
            events.sort()
            assert all(a[1] <= b[0] for a, b in pairwise(events))
        calls = sorted(c[:2] for c in recorded.calls)
        assert all(a[1] <= b[0] for a, b in pairwise(calls))
        begun = {c[4]: c[1] for c in recorded.calls}
        for start, _, _, _, correlation, *_ in recorded.kernels:
            assert start > begun[correlation]
        mine = defaultdict(list)
        for kernel in recorded.kernels:
            if kernel[6] >= 0:
                mine[kernel[6]].append(kernel[1])
        for communicator, times in mine.items():
            assert rank in program.communicators[communicator].ranks
            ends[communicator].append(sorted(times))
    for communicator, members in ends.items():
        assert len(members) == len(program.communicators[communicator].ranks)
        assert all(times == members[0] for times in members)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_ends_after_the_one_before_and_no_program_is_drawn_twice_differently(seed):
    program = plant(seed)
    assert plant(seed) == program
    for ends in executed(program)[1].ends:
        times = [ends[s] for s in range(program.steps)]
        assert times == sorted(times)
    assert len(program.judged) >= 2


@pytest.mark.sampled(20)
@pytest.mark.parametrize("kind", KINDS)
def test_removing_no_cause_gives_nothing_back_and_no_cause_more_than_all_time(kind):
    program = plant(SMALL[kind], kind)
    truth = truth_of(program)
    assert truth.judged_ns == measure(program) == measure(program, Without())
    assert 0.01 < truth.causes[0] < 0.6
    assert truth.together == truth.causes[0]
    assert all(-0.03 <= share < 1 for share in (*truth.natural.values(), *truth.kinds.values()))
    assert truth.kinds[kind] >= truth.causes[0]


def test_a_program_with_nothing_planted_has_nothing_to_remove():
    truth = truth_of(without_causes(plant(10, "sync")))
    assert truth.causes == ()
    assert truth.together == 0.0
    assert truth.kinds == truth.natural


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", GROWING)
def test_a_worse_cause_costs_more(kind):
    program = plant(SMALL[kind], kind)
    cause = program.causes[0]
    factor = kind in ("straggler", "slow-host", "imbalance", "missing-rank", "slow-communicator", "low-bandwidth")
    costs = []
    # past a point the work behind a wait fills the host, and wild variation has rare events only
    for part in {"sync": (0.1, 0.5), "jitter": (0.3, 1)}.get(kind, (1, 2)):
        amount = 1 + part * (cause.amount - 1) if factor else part * cause.amount
        worse = replace(program, causes=(replace(cause, amount=amount),))
        costs.append(measure(worse) - measure(worse, Without(frozenset([0]))))
    assert 0 < costs[0] < costs[1]


def test_a_straggler_costs_what_its_kernels_take_longer():
    program = plant(10, "straggler")
    cause = program.causes[0]
    lowered = Lowered(program)
    clean = Lowered(program, Without(frozenset([0])))
    own = [sum(op[3] for op in code[cause.ranks[0]] if op[0] == 0) for code in (lowered.code, clean.code)]
    assert own[0] / own[1] == pytest.approx(cause.amount, rel=0.01)
    lost = measure(program) - measure(program, Without(frozenset([0])))
    assert lost <= own[0] - own[1]


def test_two_equal_stragglers_give_back_nothing_alone():
    drawn = plant(10, "straggler")
    first = drawn.causes[0]
    second = replace(first, ranks=((first.ranks[0] + 1) % drawn.grid.ranks,))
    truth = truth_of(replace(drawn, causes=(first, second)))
    assert max(truth.causes) < 0.03
    assert truth.together > 0.08


def test_the_right_kinds_are_those_within_a_tenth_of_the_costliest():
    truth = Truth(1, (), 0.0, {}, {"straggler": 0.1, "sync": 0.095, "jitter": 0.05})
    assert truth.right(0.01) == {"straggler", "sync"}
    assert truth.right(0.2) == set()


def test_the_judged_time_is_that_of_steps_without_warm_up_and_checkpoint():
    program = replace(plant(10, "none"), steps=8, warmup=2, checkpoint=4)
    program = replace(program, view=replace(program.view, late=((0, 2.4),)))
    assert program.judged == (3, 6, 7)
    ends = [
        {step: 100 * step * step for step in range(8)},
        {step: 100 * step * step - 7 * (step == 3) for step in range(8)},
    ]
    assert judged_ns(program, Timeline(ends, None)) == 100 * (9 - 4 + 36 - 25 + 49 - 36)


def test_without_communication_an_operation_ends_when_the_last_has_begun():
    program = plant(9, "exposed-communication")
    _, timeline = executed(program, Without(natural=frozenset(["communication"])))
    starts, ends = defaultdict(list), set()
    for recorded in timeline.recorded:
        numbers = defaultdict(int)
        for kernel in sorted(k for k in recorded.kernels if k[6] >= 0):
            key = kernel[6], numbers[kernel[6]]
            numbers[kernel[6]] += 1
            starts[key].append(kernel[0])
            ends.add((key, kernel[1]))
    assert ends == {(key, max(times)) for key, times in starts.items()}


def test_transfers_take_what_the_bus_bandwidth_says():
    link = Communicator("dp", (0, 1, 2, 3), 28, 1, 50.0, 1_000)
    assert link.transfer_ns("AllReduce", 1_000_000) == 2 * 3 / 4 * 20_000 + 2_000
    assert link.transfer_ns("AllGather", 1_000_000) == 3 / 4 * 20_000 + 2_000
    assert link.transfer_ns("SendRecv", 1_000_000) == 20_000 + 2_000
