"""Devices and jobs that change in time: values made by hand, and runs in which one thing changes at a known step."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
from tests.recipes.questions.diagnose.test_compute import run_of

from alltrace.recipes.analysis.change_in_time import later_part, throttled
from alltrace.recipes.analysis.variation import by_step
from alltrace.recipes.questions.diagnose.gaps import CLASSES
from alltrace.recipes.questions.diagnose.regression import find
from alltrace.recipes.questions.diagnose.stalls import stalls


def values(slow, *, ranks=4, steps=12, factor=1.3, noise=0.01, seed=1):
    """Ratios around 1; `slow(rank, step)` says which are `factor`."""
    draw = np.random.default_rng(seed)
    given = 1 + noise * draw.standard_normal((ranks, steps))
    return given * np.array([[factor if slow(r, s) else 1.0 for s in range(steps)] for r in range(ranks)])


@pytest.mark.parametrize("first", [1, 2, 6, 10])
def test_a_rank_that_is_slower_from_a_step_on(first):
    (found,) = throttled(values(lambda r, s: r == 2 and s >= first), 0.005)
    assert (found.row, found.lasts, int(found.slow.argmax())) == (2, True, first)
    assert found.slow[first:].all()
    assert found.factor == pytest.approx(1.3, rel=0.05)


def test_a_rank_that_is_slower_again_and_again():
    slow = {3, 4, 9, 10, 16}
    (found,) = throttled(values(lambda r, s: r == 0 and s in slow, steps=20), 0.005)
    assert (found.row, found.lasts, set(np.flatnonzero(found.slow).tolist())) == (0, False, slow)


@pytest.mark.parametrize(
    "given",
    [
        values(lambda *_: False, noise=0.05),
        values(lambda r, _: r == 1),  # always slow
        values(lambda r, s: r == 1 and s == 11),  # once
        values(lambda r, s: r == 1 and s >= 6, factor=1.004, noise=0.001),  # less than is reported
        values(lambda r, s: r == 1 and s >= 2, steps=4),  # too few steps
        values(lambda r, s: (r + s) % 3 == 0, factor=1.0, noise=0.3),
    ],
    ids=["noise", "always", "once", "little", "few", "much noise"],
)
def test_what_is_no_change(given):
    assert throttled(given, 0.005) == []


def test_noise_is_no_change_whatever_is_drawn():
    changes = [
        throttled(values(lambda *_: False, ranks=16, steps=30, noise=0.03, seed=seed), 0.005) for seed in range(40)
    ]
    assert sum(map(len, changes)) == 0


def test_a_rank_that_changes_does_not_change_the_others():
    given = np.array([[1.0, 1.0, 1.0], [1.0, 1.3, 1.3]])
    assert by_step(given * np.array([1.0, 2.0, 3.0])) == pytest.approx(given)
    assert np.isnan(by_step(np.full((2, 1), np.nan))).all()


def test_growth_in_half_of_the_steps_behind_a_slow_first_one_is_a_change():
    late = later_part(np.array([1.36, 0.916, 0.918, 0.917, 0.915, 0.916, 1.08, 1.26, 1.44, 1.63]), 0.03)
    assert late.tolist() == [False] * 6 + [True] * 4


def test_later_steps_that_are_longer():
    late = later_part(np.array([1.0, 1.01, 0.99, 1.0, 1.2, 1.21, 1.19]), 0.03)
    assert late.tolist() == [False] * 4 + [True] * 3
    assert later_part(np.array([1.2, 1.21, 1.19, 1.0, 1.01, 0.99, 1.0]), 0.03) is None
    assert later_part(np.linspace(1.0, 1.5, 20), 0.03).sum() == 12


def test_a_single_long_step_hides_no_later_part():
    late = later_part(np.array([1.4, 1.0, 1.01, 0.99, 1.0, 1.01, 1.2, 1.21, 1.19]), 0.03)
    assert late.tolist() == [False] * 6 + [True] * 3
    assert later_part(np.array([1.4, 1.0, 1.01, 0.99, 1.0, 1.01, 1.0, 1.01, 0.99]), 0.03) is None


def test_steps_that_are_as_long_before_as_later_are_no_change():
    """The second of three early steps is longer than all later ones; in the other case the first is a start-up."""
    assert later_part(np.array([0.64, 1.25, 0.67, 0.99, 1.0, 1.07, 1.03, 1.03, 0.95]), 0.03) is None
    late = later_part(np.array([0.99, 0.67, 0.67, 0.67, *[1.0] * 12]), 0.03)
    assert late.tolist() == [False] * 4 + [True] * 12


def test_steps_that_grow_steadily():
    noise = np.random.default_rng(3).normal(0, 0.01, 12)
    late = later_part(1 + noise + 0.05 * np.maximum(np.arange(12) - 3, 0), 0.03)
    assert late[:4].tolist() == [False] * 4
    assert late[6:].all()
    grown = [later_part(1 + np.random.default_rng(seed).normal(0, 0.15, 12), 0.03) for seed in range(200)]
    assert sum(late is not None for late in grown) <= 1


def noisy(seed, deviation=0.01):
    draw = random.Random(seed)
    return lambda: max(draw.gauss(1, deviation), 0.5)


def findings(run):
    return [r for r in run.recipe("diagnose").to_pylist() if r["kind"] != "exposed-communication"]


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_device_that_throttles(tmp_path, ranks):
    noise = noisy(ranks)
    run = run_of(tmp_path, ranks, 14, lambda r, s, _: (1.3 if r == 1 and s >= 7 else 1) * noise())
    first = findings(run)[0]
    assert (first["kind"], first["ranks"], first["severity"]) == ("throttling", [1], "high")
    assert (first["evidence"]["since_step"], first["evidence"]["steps_affected"]) == (7, 7)
    assert first["evidence"]["slowdown"] == pytest.approx(1.3, abs=0.02)
    # 30 % of 1.05 ms in half of the steps, of steps of 1.1 and 1.415 ms
    assert first["lost_share"] == pytest.approx(0.315 * 7 / (7 * 1.1 + 7 * 1.415), abs=0.01)
    assert first["shown_steps"] == list(range(14))
    assert min(first["step_times_ns"][7:]) > 1.15 * max(first["step_times_ns"][:7])
    assert run.diagnosis().cards[0].step_times.marked == 7
    assert "30 % slower than before in 7 of 14 steps, the first of them step 7" in run.diagnosis().verdict.replace(
        "29 %", "30 %"
    )


def test_long_runs_show_the_longest_step_of_each_group(tmp_path):
    noise = noisy(4)
    run = run_of(
        tmp_path,
        2,
        130,
        lambda r, s, _: (3 if (r, s) in ((1, 64), (1, 100)) else 1.3 if r == 1 and s >= 65 else 1) * noise(),
    )
    first = next(r for r in findings(run) if r["kind"] == "throttling")
    assert first["shown_steps"] == list(range(0, 130, 3))
    longest = first["step_times_ns"].index(max(first["step_times_ns"]))
    assert first["shown_steps"][longest] in (63, 99)


def test_ranks_that_throttle_together_are_one_finding(tmp_path):
    noise = noisy(3)
    run = run_of(tmp_path, 8, 12, lambda r, s, _: (1.3 if r < 4 and s >= 6 else 1) * noise())
    first = findings(run)[0]
    assert (first["kind"], first["ranks"], first["hosts"]) == ("throttling", [0, 1, 2, 3], ["host0"])


def test_single_kernels_that_stall(tmp_path):
    noise = noisy(5)
    run = run_of(tmp_path, 4, 14, lambda r, s, place: 60 if (r, s, place) in ((1, 4, 2), (1, 9, 2)) else noise())
    rows = findings(run)
    assert [(r["kind"], r["ranks"]) for r in rows] == [("device-stall", [1])]
    assert rows[0]["evidence"]["since_step"] == 4
    assert rows[0]["evidence"]["steps_affected"] == 2
    assert rows[0]["lost_share"] == pytest.approx(2 * 5.9 / (14 * 1.1 + 2 * 5.9), abs=0.01)
    assert "vectorized_elementwise_kernel" in rows[0]["where"]


def test_kernels_that_are_long_on_every_rank_now_and_then_are_not_stalls(tmp_path):
    noise = noisy(6)
    run = run_of(tmp_path, 4, 12, lambda r, s, place: 60 if (r + s) % 4 == 0 and place == 2 else noise())
    assert "device-stall" not in {r["kind"] for r in findings(run)}


@pytest.mark.parametrize(("usual_ms", "stalls_in"), [([2, 3.5, 5, 7, 12], []), ([4.8, 4.9, 5, 5.1, 5.2], [2])])
def test_kernels_that_vary_by_large_factors_do_not_stall(usual_ms, stalls_in):
    longest = np.tile(np.array(usual_ms) * 1e6, (4, 2)).astype(np.int64)
    longest[2, 7] = 60_000_000
    works = np.zeros((1, 8), np.int64)
    facts = {r: SimpleNamespace(work=SimpleNamespace(works=works, longest_ns=longest[r][:, None])) for r in range(4)}
    assert list(stalls(SimpleNamespace(facts=facts))) == stalls_in


def test_all_ranks_that_become_slower(tmp_path):
    noise = noisy(7)
    run = run_of(tmp_path, 4, 14, lambda _r, s, _: (1.2 if s >= 8 else 1) * noise())
    first = findings(run)[0]
    assert (first["kind"], first["ranks"]) == ("regression", [0, 1, 2, 3])
    assert (first["evidence"]["since_step"], first["evidence"]["slowdown"]) == (8, pytest.approx(1.2, abs=0.02))
    assert first["lost_share"] == pytest.approx(0.21 * 6 / (14 * 1.1 + 6 * 0.21), abs=0.01)


def job_of(**times_of_classes):
    """Four ranks that take these times in each step, as far as a regression asks."""
    times = np.zeros((4, 10, len(CLASSES)))
    for name, values in times_of_classes.items():
        times[:, :, CLASSES.index(name.replace("_", "-"))] = values
    work = SimpleNamespace(sums_ns=np.ones((10, 1)), names=np.ones(1, int))
    return SimpleNamespace(
        whole_run=False,
        steps=np.arange(10),
        ranks=np.arange(4),
        times=times,
        of=lambda name: times[:, :, CLASSES.index(name)],
        facts={r: SimpleNamespace(steps=np.arange(10), work=work) for r in range(4)},
        name_of_most=lambda _sums: "gemm",
        less_compute=lambda lost: lost,
        judged=lambda facts: (facts.steps, facts.steps),
        loss=lambda _classes, lost, *_, **__: lost,
    )


def test_kernels_become_longer_soon_after_a_start_up_that_keeps_the_host():
    (found,) = find(job_of(compute=[34.0, 30.0, *[50.0] * 8], host_pause=[18.0, *[0.0] * 9]))
    assert (found.kind, found.evidence["since_step"]) == ("regression", 2)
    assert (found.loss == [0.0, 0.0, *[20.0] * 8]).all()


@pytest.mark.parametrize("later", [40.0, 50.0])
def test_steps_that_take_no_longer_are_no_regression_though_their_kernels_do(later):
    assert find(job_of(compute=[30.0] * 5 + [later] * 5, host_pause=[20.0] * 5 + [0.0] * 5)) == []


@pytest.mark.parametrize(("grows", "kinds"), [("allocation", ["regression"]), ("compilation", [])])
def test_code_that_is_compiled_in_later_steps_is_no_growth(grows, kinds):
    regressions = find(job_of(compute=50.0, **{grows: [0.0] * 5 + [10.0] * 5}))
    assert [one.kind for one in regressions] == kinds


def test_steps_that_differ_by_their_data_are_none_of_these(tmp_path):
    draw = random.Random(8)
    length = {s: draw.uniform(0.7, 1.4) for s in range(20)}
    own = {(r, s): draw.uniform(0.8, 1.3) for r in range(4) for s in range(20)}
    for name, duration in (("alike", lambda _r, s, _: length[s]), ("apart", lambda r, s, _: own[r, s])):
        kinds = {r["kind"] for r in findings(run_of(tmp_path / name, 4, 20, duration))}
        assert not kinds & {"throttling", "device-stall", "regression"}


@pytest.mark.parametrize(("steps", "severity"), [(4, "high"), (3, "medium")])
def test_what_was_seen_in_two_steps_is_not_high(tmp_path, steps, severity):
    """The first step is taken for warming up."""
    run = run_of(tmp_path, 4, steps, lambda r, s, _: (1.5 if r == 1 else 1) * (4 if s == 0 else 1))
    first = findings(run)[0]
    assert (first["kind"], first["ranks"], first["severity"]) == ("straggler", [1], severity)
    notes = run.recipe("diagnose").notes
    assert ("of fewer than 3 judged steps nothing is `high`" in notes) == (severity == "medium")
    assert any(note.startswith(f"{steps - 1} steps are judged; left out: warm-up (step 0, ") for note in notes)
