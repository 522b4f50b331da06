"""Launches that another process interrupts, and what only resembles them: runs made by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.recipes.questions.diagnose.time_sliced import KERNELS, NAMES, OTHERS_NS, US, Device, run_of, undisturbed_ns

from alltrace.recipes.questions.diagnose.time_slices import Launches, _usual, time_slices

ALONE = {0: Device(others_ns=0)}


def shared(run):
    return [row for row in run.recipe("diagnose").to_pylist() if row["kind"] == "shared-device"]


def test_kernels_that_all_exceed_their_usual_time_by_one_slice_are_interrupted(tmp_path):
    run = run_of(tmp_path, {0: Device()})
    (found,) = shared(run)
    kernels = run.table("kernels").arrow().read_all()
    took = np.asarray(kernels.column("end")) - np.asarray(kernels.column("start"))
    assert found["lost_ns"] == pytest.approx(took.sum() - undisturbed_ns(), rel=0.02)
    assert found["evidence"]["interrupted_launches"] == np.count_nonzero(took > OTHERS_NS)
    names = np.asarray(kernels.column("name"))
    assert found["evidence"]["interrupted_kernels"] == len(np.unique(names[took > OTHERS_NS]))
    assert found["evidence"]["slice_ns"] == OTHERS_NS
    assert (found["ranks"], found["severity"]) == ([0], "high")
    assert found["where"] in NAMES


def test_a_device_of_its_own_is_not_shared(tmp_path):
    assert shared(run_of(tmp_path, ALONE)) == []


class Uneven(Device):
    def __init__(self, spread, seed=3):
        super().__init__()
        self.spread, self.draw = spread, random.Random(seed)

    def end(self, start, took):
        self.others_ns = int(OTHERS_NS * self.draw.uniform(1 - self.spread, 1 + self.spread))
        return super().end(start, took)


@pytest.mark.parametrize("spread", [0.03, 0.4, 0.8])
def test_slices_of_any_length_are_found(tmp_path, spread):
    run = run_of(tmp_path, {0: Uneven(spread)})
    (found,) = shared(run)
    assert found["evidence"]["slice_ns"] == pytest.approx(OTHERS_NS, rel=0.02 if spread < 0.1 else 0.3)
    kernels = run.table("kernels").arrow().read_all()
    took = np.asarray(kernels.column("end")) - np.asarray(kernels.column("start"))
    assert found["lost_ns"] == pytest.approx(took.sum() - undisturbed_ns(), rel=0.15)


@pytest.mark.parametrize("factor", [2.5, 8.0])
def test_steps_whose_kernels_all_take_longer_in_proportion_are_of_other_data(tmp_path, factor):
    draw = random.Random(5)
    longer = {step: factor if draw.random() < 0.4 else 1.0 for step in range(10)}
    assert shared(run_of(tmp_path, ALONE, lambda step, place, usual: int(usual * longer[step]))) == []


def test_a_kernel_that_is_longer_than_a_slice_loses_the_share_that_others_lose(tmp_path):
    def with_a_long_one(_step, place, usual):
        return 6_000 * US if place == 5 else usual

    run = run_of(tmp_path, {0: Device(1_730 * US)}, with_a_long_one, steps=20)
    (found,) = shared(run)
    kernels = run.table("kernels").arrow().read_all()
    whole = int((np.asarray(kernels.column("end")) - np.asarray(kernels.column("start"))).sum())
    real = whole - undisturbed_ns(20) - 20 * (6_000 - KERNELS[5][1]) * US
    assert found["lost_ns"] == pytest.approx(real, rel=0.15)


@pytest.mark.parametrize("alike", [False, True])
def test_shapes_that_differ_under_one_launch_configuration_are_none(tmp_path, alike):
    """Each kernel by its own time, or two kernels that belong together by the same one."""

    def shapes(step, place, usual):
        if alike:
            return usual + OTHERS_NS * (place % len(NAMES) < 2 and place > 12)
        return usual * (10 if (place + step) % 5 == 0 else 1)

    assert shared(run_of(tmp_path, ALONE, shapes)) == []


def test_a_clock_that_is_low_at_times_stretches_kernels_in_proportion(tmp_path):
    assert shared(run_of(tmp_path, ALONE, lambda step, _place, usual: usual * (6 if step % 3 == 0 else 1))) == []


def test_kernels_that_vary_at_random_are_none(tmp_path):
    draw = random.Random(5)
    assert (
        shared(run_of(tmp_path, ALONE, lambda _s, _p, usual: int(usual * draw.lognormvariate(0, 1.5)), steps=30)) == []
    )


def test_kernels_that_all_take_as_long_may_have_two_shapes_alike(tmp_path):
    """Nothing then tells an excess that is equal from one that is in proportion."""
    assert shared(run_of(tmp_path, ALONE, lambda step, _p, _u: (200 + 2_500 * (step % 3 == 0)) * US)) == []


def test_the_first_launch_of_each_kernel_may_be_long(tmp_path):
    assert (
        shared(
            run_of(tmp_path, ALONE, lambda step, place, usual: usual + OTHERS_NS * (step == 0 and place < len(NAMES)))
        )
        == []
    )


@pytest.mark.parametrize(("steps", "found"), [(3, 1), (2, 0)])
def test_interruptions_in_few_steps_are_none(tmp_path, steps, found):
    def interrupted(step, place, usual):
        return usual + OTHERS_NS * (4 <= step < 4 + steps and place % 3 > 0)

    assert len(shared(run_of(tmp_path, ALONE, interrupted))) == found


def slices_of(usual_us, interrupted, *, counts=None, beside=False):
    """The slices of works with 40 launches each in ten steps, or as many as `counts` has, one launch after the other.

    `interrupted` has by work the numbers of its launches that take a slice longer. With `beside`, a kernel that
    communicates runs at the same time as each.
    """
    rows = [
        (n // 4, work, usual * US + OTHERS_NS * (n in interrupted.get(work, ())))
        for n in range(40)
        for work, usual in enumerate(usual_us)
        if n < (counts or {}).get(work, 40)
    ]
    step, work, took = np.array(rows).T
    starts = np.arange(len(rows)) * 50_000 * US
    sums = np.zeros((10, len(usual_us)), np.int64)
    np.add.at(sums, (step, work), took)
    ends = starts + took
    if beside:
        starts, ends = np.concatenate((starts, starts + 10 * US)), np.concatenate((ends, starts + 20 * US))
    return time_slices(starts, ends, Launches(np.arange(len(rows)), step, work), np.arange(len(usual_us)), sums)


USUAL_US = (60, 120, 240, 300, 480)
SOME = (3, 9, 15, 21, 27, 33)


def test_what_was_seen_is_counted():
    found = slices_of(USUAL_US, dict.fromkeys(range(5), SOME))
    assert found is not None
    assert (found.slice_ns, found.launches, found.kernels) == (OTHERS_NS, 30, 5)
    assert found.beyond_ns.sum() == 30 * OTHERS_NS
    assert found.beyond_ns.sum(axis=1).tolist() == [
        5 * OTHERS_NS * sum(n // 4 == step for n in SOME) for step in range(10)
    ]


def test_launches_beside_other_kernels_of_the_rank_are_no_evidence():
    assert slices_of(USUAL_US, dict.fromkeys(range(5), SOME), beside=True) is None


def test_eleven_interrupted_launches_are_too_few():
    few = {0: (4, 20, 33), 1: (4, 20, 33), 2: (4, 20, 33), 3: (4, 20)}
    assert slices_of(USUAL_US, few) is None
    assert slices_of(USUAL_US, {**few, 4: (4, 33)}) is not None


def test_three_kernels_are_too_few_and_one_with_a_single_interruption_does_not_count():
    three = dict.fromkeys(range(3), SOME)
    assert slices_of(USUAL_US, three) is None
    assert slices_of(USUAL_US, {**three, 3: (9,)}) is None
    assert slices_of(USUAL_US, {**three, 3: (9, 21)}) is not None


def test_the_usual_time_of_a_kernel_with_seven_launches_is_not_known():
    four = {**dict.fromkeys(range(3), SOME), 3: (2, 5)}
    assert slices_of(USUAL_US, four, counts={3: 7}) is None
    assert slices_of(USUAL_US, four, counts={3: 8}) is not None


def test_a_kernel_that_is_interrupted_in_every_launch_loses_the_share_that_others_lose():
    found = slices_of((*USUAL_US, 6_000), dict.fromkeys(range(5), range(3, 40, 4)))
    assert found is not None
    share = 5 * OTHERS_NS / (4 * sum(USUAL_US) * US + 5 * OTHERS_NS)
    assert found.beyond_ns[:, 5] == pytest.approx([share * 4 * 6_000 * US] * 10)
    assert found.launches == 50


def test_the_usual_time_of_a_kernel_is_that_of_its_lowest_tenth():
    assert _usual(np.arange(111, 100, -1), np.zeros(11, np.int64), 1).tolist() == [102]
