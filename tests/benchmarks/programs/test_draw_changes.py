"""Programs whose cause changes in time, and healthy ones whose steps differ by data: what is drawn, and what it
does."""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from statistics import median

import pytest

from benchmarks.programs.draw import plant
from benchmarks.programs.draw_changes import CHANGES, HEALTHY, draw_change, onsets_of
from benchmarks.programs.machine import CALL, KERNEL, MARK
from benchmarks.programs.model import Cause, Without
from benchmarks.programs.training import Lowered

WITHOUT = Without(frozenset([0]))
ACTS = frozenset({3, 4, 5})


@functools.cache
def small(*causes, lengths=()):
    program = plant(10, "none")
    return replace(program, steps=6, warmup=1, layers=2, micro=1, checkpoint=None, causes=causes, lengths=lengths)


@functools.cache
def lowered_of(program, without):
    return Lowered(program, without)


def by_step(program, rank, without=None):
    """The kernels of each step of a rank as (kind, duration, work), and the time of its allocations."""
    lowered = lowered_of(program, without)
    kernels, allocations = defaultdict(list), defaultdict(int)
    step = 0
    for op in lowered.code[rank]:
        if op[0] == MARK:
            step = op[1] + 1
        elif op[0] == KERNEL:
            kernels[step].append((lowered.kernels[op[2]], op[3], op[6]))
        elif op[0] == CALL and op[1].startswith(("cudaMalloc", "cudaFree")):
            allocations[step] += op[2]
    return kernels, allocations


def test_a_throttled_device_runs_all_kernels_slower_and_those_that_memory_limits_less():
    cause = Cause("throttling", "", (1,), 1.8, ACTS, memory_amount=1.2)
    kernels, _ = by_step(small(cause), 1)
    usual, _ = by_step(small(), 1)
    factors = {True: set(), False: set()}
    for step in range(6):
        assert len(kernels[step]) == len(usual[step])
        for (kind, duration, _), (_, before, _) in zip(kernels[step], usual[step], strict=True):
            if step not in ACTS:
                assert duration == before
            elif before > 5_000:
                factors[kind.memory_bound].add(round(duration / before, 2))
    assert factors == {True: {1.2}, False: {1.8}}
    assert by_step(small(cause), 0) == by_step(small(), 0)
    assert by_step(small(cause), 1, WITHOUT) == by_step(small(), 1)


def test_a_device_that_stalls_has_one_long_kernel_in_each_of_some_steps():
    cause = Cause("device-stall", "", (2,), 1.0, frozenset({2, 5}), course=tuple(1e7 + 1e6 * s for s in range(6)))
    kernels, _ = by_step(small(cause), 2)
    usual, _ = by_step(small(), 2)
    for step in range(6):
        longer = [a[1] - b[1] for a, b in zip(kernels[step], usual[step], strict=True) if a != b]
        assert longer == ([10_000_000 + 1_000_000 * step] if step in cause.steps else [])
    assert by_step(small(cause), 1) == by_step(small(), 1)


@pytest.mark.parametrize("variant", ["sequences", "kernels", "allocations, gradually"])
def test_what_grows_in_a_regression(variant):
    unit = 1e6 if variant.startswith("allocations") else 0.1
    course = tuple((unit < 1) + unit * s for s in range(6))
    cause = Cause("regression", variant, (), 1.0, ACTS, course=course)
    for rank in range(2):
        kernels, allocations = by_step(small(cause), rank)
        usual, before = by_step(small(), rank)
        for step in (2, 3, 5):
            acts = step in ACTS
            count = len(kernels[step]) / len(usual[step])
            busy = sum(k[1] for k in kernels[step]) / sum(k[1] for k in usual[step])
            growth = 1 + acts * 0.1 * step
            assert count == pytest.approx(growth if variant == "kernels" else 1.0, abs=0.02)
            assert allocations[step] - before[step] == (1_000_000 * step if acts and unit > 1 else 0)
            works = {k[2] for k in kernels[step]}
            if variant == "sequences":
                assert sorted(works) == pytest.approx([1.0, growth, growth**2] if acts else [1.0])
                assert (busy == 1.0) if not acts else (1 + 0.85 * (growth - 1) < busy < growth**2)
            else:
                assert works == {1.0}
                assert 1 + 0.6 * (count - 1) - 0.01 < busy < 1 + 1.4 * (count - 1) + 0.01


@pytest.mark.parametrize("each", [False, True])
def test_sequences_change_the_work_and_not_the_optimizer(each):
    lengths = tuple(tuple(1 + 0.1 * s + place for s in range(6)) for place in range(2 if each else 1))
    program = small(lengths=lengths)
    for rank in range(program.grid.ranks):
        place = program.grid.place(rank)[2] % len(lengths)
        kernels, _ = by_step(program, rank)
        for step in range(1, 6):
            length = lengths[place][step]
            assert {k[2] for k in kernels[step]} >= {1.0, length}
            assert {k[2] for k in kernels[step]} <= {1.0, length, length * length}


def test_what_is_drawn():
    variants = defaultdict(set)
    steps, culprits = set(), set()
    for seed in range(25):
        for kind in CHANGES:
            program = draw_change(seed, kind)
            [cause] = program.causes
            first, last = onsets_of(cause)
            steps.add(program.steps)
            variants[kind].add(cause.variant.partition(",")[0])
            assert program.warmup < first <= last < program.steps
            assert max(cause.steps) < program.steps
            if kind == "device-stall":
                assert 1 <= len(cause.steps) <= max(1, 0.2 * program.steps)
                assert len(cause.ranks) == 1
                assert all(5e6 <= cause.amount_in(step) <= 60e6 for step in cause.steps)
                assert cause.steps <= set(program.judged)
                continue
            assert first <= program.steps - 3
            runs = 1 + sum(b - a > 1 for a, b in pairwise(sorted(cause.steps)))
            assert (runs > 1) == (cause.variant == "again and again")
            if kind == "throttling":
                assert 1.15 <= cause.amount <= 2
                assert 1 < cause.memory_amount < cause.amount
                assert 0 < len(cause.ranks) < program.grid.ranks
                culprits.add(min(3, len(cause.ranks)))
            else:
                assert cause.ranks == ()
                growths = [b - a for a, b in pairwise(cause.course[s] for s in sorted(cause.steps))]
                assert all(g > 0 for g in growths) if cause.variant.endswith("gradually") else not any(growths)
    assert variants == {
        "throttling": {"from a step on", "again and again"},
        "device-stall": {""},
        "regression": {"sequences", "kernels", "allocations"},
    }
    assert steps == {10, 30, 100}
    assert culprits >= {1, 2}


def test_a_healthy_program_has_no_cause_and_sequences_of_all_ranks_or_of_each():
    programs = [draw_change(seed, HEALTHY) for seed in range(20)]
    assert not any(p.causes for p in programs)
    assert {len(p.lengths) == 1 for p in programs} == {True, False}
    for program in programs:
        assert len(program.lengths) in (1, program.grid.dp)
        assert all(len(row) == program.steps and median(row) == pytest.approx(1, abs=0.3) for row in program.lengths)
        assert len({row[0] for row in program.lengths}) == len(program.lengths)


def test_a_program_of_a_seed_is_always_the_same():
    assert draw_change(3, "throttling") == draw_change(3, "throttling") != draw_change(4, "throttling")
    assert draw_change(3, "throttling", ideal=True).scatter == 0
