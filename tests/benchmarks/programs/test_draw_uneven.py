"""Programs with uneven work or a late rank: what is drawn, and that an execution without the cause gains what
arithmetic says."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from random import Random

import pytest
from tests.benchmarks.programs.small_programs import (
    EVERY,
    JUDGED,
    LAYER_NS,
    LAYERS,
    WARMUP,
    even_program,
    imbalance,
    weight,
)

from benchmarks.programs.draw_uneven import LATE, TWIN, UNEVEN, draw_uneven, with_barrier
from benchmarks.programs.host_work import LATE_RANGES
from benchmarks.programs.losses import measure
from benchmarks.programs.machine import KERNEL
from benchmarks.programs.model import Cause, Without
from benchmarks.programs.training import Lowered


def gained_ns(program, *causes):
    """What is gained in a judged step without the causes, on devices that are equally fast."""
    planted = replace(program, causes=causes)
    which = (frozenset(), frozenset(range(len(causes))))
    with_them, without = (measure(planted, Without(indices, frozenset(["noise"]))) for indices in which)
    return (with_them - without) / len(program.judged)


@pytest.mark.parametrize("halves", [1, 2])
@pytest.mark.parametrize("how", ["grids", "kernels", "both"])
def test_a_hot_expert_costs_its_additional_tokens(how, halves):
    program = even_program("experts", halves=halves)
    of_experts = weight("mlp") * LAYER_NS * LAYERS // 2  # every second layer has experts
    assert gained_ns(program, imbalance(f"hot expert, {how}", (2,), 4.0)) == pytest.approx(3 * of_experts, rel=0.01)


def test_tokens_of_a_hot_expert_are_larger_grids_or_more_kernels_of_experts_alone():
    counts, works = {}, {}
    for how in ("grids", "kernels"):
        lowered = Lowered(even_program("experts", causes=(imbalance(f"hot expert, {how}", (2,), 3.0),)))
        for rank in (1, 2):
            kernels = [op for op in lowered.code[rank] if op[0] == KERNEL]
            counts[how, rank], works[how, rank] = len(kernels), {op[6] for op in kernels}
    assert works == {("grids", 1): {1.0}, ("grids", 2): {1.0, 3.0}, ("kernels", 1): {1.0}, ("kernels", 2): {1.0}}
    assert counts["grids", 2] == counts["grids", 1] == counts["kernels", 1]
    # six kernels of experts a layer, forward and backward together
    assert counts["kernels", 2] - counts["kernels", 1] == 2 * 6 * (LAYERS // 2) * (JUDGED + WARMUP)


@pytest.mark.parametrize("variant", ["longer sequences", "longer sequences, rotating"])
def test_longer_sequences_cost_their_length_and_its_square_in_attention(variant):
    longer = 1.3
    ranks = (1,) if variant == "longer sequences" else (0, 1, 2, 3)
    linear = (weight() - weight("attention")) * LAYERS + 0.04 + 0.06  # the embedding, and the loss
    costs = (longer - 1) * linear + (longer**2 - 1) * weight("attention") * LAYERS
    assert gained_ns(even_program(), imbalance(variant, ranks, longer)) == pytest.approx(costs * LAYER_NS, rel=0.01)


def test_sequences_that_rotate_are_longer_on_one_rank_in_each_step():
    program = even_program(causes=(imbalance("longer sequences, rotating", (0, 1, 2, 3), 1.5),))
    longest = []
    for rank in range(4):
        lowered = Lowered(program)
        works = [op[6] for op in lowered.code[rank] if op[0] == KERNEL]
        size = len(works) // (JUDGED + WARMUP)
        longest.append([max(works[step * size : (step + 1) * size]) > 1 for step in range(JUDGED + WARMUP)])
    assert [[rank for rank in range(4) if longest[rank][step]] for step in range(5)] == [[0], [1], [2], [3], [0]]


def test_a_stage_with_more_layers_costs_these_where_one_stage_works_at_a_time():
    program = even_program("pipeline", norm=False)
    costs = (weight() + 0.15) * LAYER_NS  # the optimizer has more to do as well
    assert gained_ns(program, imbalance("more layers", (0, 1), 1.0)) == pytest.approx(costs, rel=0.01)
    assert gained_ns(program, imbalance("more layers", (0, 1), 2.0)) == pytest.approx(2 * costs, rel=0.01)


@pytest.mark.parametrize(
    ("part", "of"), [("attention", ["attention"]), ("unfused attention", ["attention"]), ("gemm", ["gemm", "mlp"])]
)
def test_other_kernels_cost_what_they_take_longer(part, of):
    program = even_program()
    cause = imbalance(f"other kernel, {part}", (3,), 1.5)
    of_pointwise = {"gemm": 0.05 + 0.10}.get(part, 0.0)  # what memory limits stays
    costs = 0.5 * (weight(*of) - of_pointwise) * LAYER_NS * LAYERS
    assert gained_ns(program, cause) == pytest.approx(costs, rel=0.01)
    lowered = Lowered(replace(program, causes=(cause,)))
    used = [{lowered.kernels[op[2]].name for op in code if op[0] == KERNEL} for code in lowered.code]
    assert used[0] == used[1] == used[2] != used[3]
    assert len(used[3] - used[0]) == {"attention": 2, "unfused attention": 3, "gemm": 1}[part]


@pytest.mark.parametrize("waits", ["stream", "device"])
@pytest.mark.parametrize("what", ["logging: log_metrics", "checkpoint: ", "device: evaluate"])
def test_a_late_rank_costs_its_own_work_before_the_barrier(what, waits):
    program = replace(with_barrier(Random(1), even_program()), barrier=waits, barrier_every=1)
    late_ns = 6_000_000
    steps = frozenset([2, 4])
    copied = 0.1 * late_ns if what.startswith("checkpoint") else 0.0
    gained = gained_ns(program, Cause(LATE, what, (0,), late_ns, steps))
    assert gained == pytest.approx((late_ns + copied) * len(steps) / JUDGED, rel=0.03)


def test_work_before_a_barrier_that_the_device_hides_costs_less():
    program = replace(with_barrier(Random(1), even_program()), barrier="stream", barrier_every=1)
    assert gained_ns(program, Cause(LATE, "evaluation: ", (1,), 2_000_000, EVERY)) < 1_000_000


def test_a_barrier_is_met_by_all_ranks_in_the_steps_that_have_one():
    program = replace(with_barrier(Random(1), even_program()), barrier_every=2)
    lowered = Lowered(program)
    index = len(program.communicators) - 1
    assert [number for communicator, number in lowered.operations if communicator == index] == [0, 1]
    timeline = lowered.execute(record=True)
    for recorded in timeline.recorded:
        ends = [kernel[1] for kernel in recorded.kernels if kernel[6] == index]
        waits = [begin <= end <= until for end in ends for begin, until, *_ in recorded.waits]
        assert sum(waits) >= len(ends) == 2


def test_what_a_late_host_does_is_recorded_as_a_range_and_as_calls_of_the_system():
    program = with_barrier(Random(1), even_program())
    program = replace(program, barrier_every=1, view=replace(program.view, osrt=True))
    cause = Cause(LATE, "checkpoint: save_checkpoint", (2,), 5e6, frozenset([3]))
    ranks = Lowered(replace(program, causes=(cause,))).execute(record=True).recorded
    for rank, recorded in enumerate(ranks):
        assert [text for _, _, text, *_ in recorded.ranges if text == "save_checkpoint"] == ["save_checkpoint"] * (
            rank == 2
        )
        assert [end - begin for begin, end, name, _ in recorded.osrt if name == "write"] == [4_000_000] * (rank == 2)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("kind", [*UNEVEN, LATE])
def test_what_is_drawn(kind):
    variants = defaultdict(int)
    for seed in range(3):
        program = draw_uneven(seed, kind)
        [cause] = program.causes
        grid = program.grid
        variants[cause.variant.partition(":" if kind == LATE else ",")[0]] += 1
        assert 4 <= grid.ranks <= 16
        assert program.view.devices < grid.ranks
        assert 8 <= program.steps <= 12
        assert program.scatter == 1
        assert cause.kind == (LATE if kind == LATE else "imbalance")
        if kind == LATE:
            assert cause.steps == {s for s in range(program.steps) if program.meets_after(s)}
            assert len(cause.ranks) == 1
            assert cause.variant.partition(": ")[2] in ("", *LATE_RANGES[cause.variant.partition(":")[0]])
        elif kind == "uneven-stage":
            assert len({grid.place(r)[3] for r in cause.ranks}) == 1
            assert len(cause.ranks) == grid.ranks // grid.pp
            assert cause.amount in (1, 2)
        elif kind == "uneven-expert":
            assert len({grid.place(r)[2] % grid.ep for r in cause.ranks}) == 1
            assert len(program.tokens) == grid.ranks
        elif kind == "uneven-kernel":
            assert program.view.phases
            assert len(cause.ranks) == 1
        elif not cause.variant.endswith("rotating"):
            assert len({grid.place(r)[2] for r in cause.ranks}) == 1
    what = {"uneven-expert": "hot expert", "uneven-sequence": "longer sequences", "uneven-stage": "more layers"}
    assert set(variants) <= {what.get(kind, "other kernel")} | (set(LATE_RANGES) if kind == LATE else set())


def test_a_healthy_program_has_no_cause_and_a_program_of_a_seed_is_always_the_same():
    healthy = [draw_uneven(seed, TWIN) for seed in range(12)]
    assert not any(program.causes for program in healthy)
    assert {bool(program.barrier) for program in healthy} == {True, False}
    assert draw_uneven(3, "uneven-stage") == draw_uneven(3, "uneven-stage") != draw_uneven(4, "uneven-stage")
    assert draw_uneven(3, "uneven-stage", ideal=True).scatter == 0
