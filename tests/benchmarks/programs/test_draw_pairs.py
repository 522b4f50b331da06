"""Programs with two causes that hide each other: what is drawn, and that the gains are what arithmetic says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.benchmarks.programs.small_programs import EVERY, LAYER_NS, LAYERS, even_program, imbalance, weight

from benchmarks.programs.draw_pairs import PAIRS, Gains, draw_pair, gains_of, hides
from benchmarks.programs.losses import leaves_a_trace
from benchmarks.programs.model import Cause


def test_of_two_slow_ranks_each_alone_gains_what_it_is_slower_than_the_other():
    slower = 1.2
    # a step's kernels, with the embedding, the loss, the optimizer and the norm of the gradients
    step_ns = (LAYERS * (weight() + 0.15 + 0.05) + 0.04 + 0.06) * LAYER_NS
    program = even_program(norm=True)
    first, second = imbalance("other kernel, attention", (0,), 1.5), Cause("straggler", "", (2,), slower, EVERY)
    costs_ns = 0.5 * weight("attention") * LAYERS * LAYER_NS, (slower - 1) * step_ns
    gains = gains_of(replace(program, causes=(first, second)))
    in_step = [share * gains.judged_ns / len(program.judged) for share in (*gains.alone, gains.together)]
    assert costs_ns[1] > costs_ns[0]
    hundredth = step_ns / 100  # devices are not equally fast
    assert in_step == pytest.approx([0.0, costs_ns[1] - costs_ns[0], costs_ns[1]], abs=hundredth)
    by_itself = [share * gains.judged_ns / len(program.judged) for share in gains.by_itself]
    assert by_itself == pytest.approx(costs_ns, abs=hundredth)
    assert gains.hidden * gains.judged_ns / len(program.judged) == pytest.approx(costs_ns[0], abs=hundredth)
    assert hides(gains)


@pytest.mark.parametrize(
    ("alone", "together", "hidden"),
    [
        ((0.0, 0.059), 0.111, True),
        ((0.0, 0.0), 0.1, True),
        ((0.05, 0.06), 0.11, False),  # they add up
        ((0.0, 0.1), 0.1, False),  # the first one costs nothing by itself
        ((0.0, 0.09), 0.1, False),  # or too little
        ((0.05, 0.06), 0.113, False),  # hardly anything is hidden
        ((0.05, 0.06), 0.117, True),
    ],
)
def test_causes_hide_each_other_if_removing_both_gains_more_than_removing_each(alone, together, hidden):
    assert hides(Gains(1_000, alone, together)) == hidden


@pytest.mark.parametrize(("batch_steps", "traced"), [(0.5, False), (1.5, True)])
def test_a_loader_that_is_faster_than_the_steps_leaves_no_trace(batch_steps, traced):
    program = even_program(loss_item_every=1, loader_workers=2)
    step_ns = gains_of(replace(program, causes=(Cause("straggler", "", (2,), 1.0, EVERY),) * 2)).judged_ns / len(
        program.judged
    )
    loader = Cause("data-stall", "slow workers", (1,), batch_steps * step_ns, EVERY)
    assert leaves_a_trace(replace(program, causes=(loader,)), 0) == traced


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [8, 9])
def test_what_is_drawn(seed):
    program, gains = draw_pair(seed)
    kinds = [{"imbalance": "uneven"}.get(cause.kind, cause.kind) for cause in program.causes]
    assert tuple(kinds) in {tuple(k.partition("-")[0] if k.startswith("uneven") else k for k in pair) for pair in PAIRS}
    assert hides(gains)
    processes = [{rank // program.view.devices for rank in cause.ranks} for cause in program.causes]
    assert not processes[0] & processes[1]
    assert 4 <= program.grid.ranks <= 16
    assert gains == gains_of(program)
    assert draw_pair(seed) == (program, gains)
