"""The steps of simulated runs against those that were simulated."""

from __future__ import annotations

import numpy as np
import pytest
from tests.making import kernel, make_run

import alltrace
from alltrace.align.steps import find_steps
from alltrace.synth import write_run

STEPS = 7
SMALL = {"ranks": 8, "hosts": 2, "steps": STEPS, "kernels_per_layer": 6, "layers": 5, "warmup_steps": 1, "checkpoint_every": 4}


def found(folder, layout, **values):
    """The rows of all ranks, and the truth."""
    truth = write_run(layout, folder / "reports", **{**SMALL, **values})
    return alltrace.open(folder / "reports", cache_dir=folder / "cache").recipe("steps").to_pylist(), truth


@pytest.mark.parametrize(
    ("layout", "named"),
    [("tensor-data", "step"), ("pipeline", "step"), ("experts", "step"), ("pipeline", "none"), ("sharded", "none")],
)
def test_every_rank_has_the_steps_that_were_simulated_and_their_kinds(tmp_path, layout, named):
    extra = {"expert_parallel": 4} if layout == "experts" else {}
    rows, truth = found(tmp_path, layout, step_names=named, **extra)
    assert {r["source"] for r in rows} == {"range" if named == "step" else "kernels"}
    for rank in range(8):
        own = [r for r in rows if r["rank"] == rank]
        assert [r["step"] for r in own] == list(range(STEPS))
        assert [r["kind"] for r in own] == ["warm-up", "step", "step", "checkpoint", "step", "step", "step"]
        # every other step is as long as it was, but for the one after the warm-up, which a pipeline enters unevenly
        true = np.diff(np.array(truth.steps_ns[rank]), axis=1).ravel()
        taken = np.array([r["duration_ns"] for r in own])
        assert taken[[4, 5]] == pytest.approx(true[[4, 5]], rel=0.02)


def test_ranks_whose_clocks_nothing_connects_still_have_the_same_first_step(tmp_path):
    rows, _ = found(tmp_path, "pipeline", nvtx=False, offset_ms=500.0)
    assert {r["step"] for r in rows} == set(range(STEPS))
    assert all(sum(r["step"] == n for r in rows) == 8 for n in range(STEPS))


def test_steps_that_differ_without_order_are_no_warm_up(tmp_path):
    rows, _ = found(tmp_path, "tensor-data", warmup_steps=0, checkpoint_every=0, jitter=0.3)
    assert {r["kind"] for r in rows} == {"step"}


def _named(number):
    return {"start": 1000 * number, "end": 1000 * number + 900, "name": f"step {number}"}


def _repeated(numbers):
    return [{"start": 1000 * n, "end": 1000 * n + 900, "name": "train_step"} for n in numbers]


@pytest.mark.parametrize(
    ("own", "others", "wanted"),
    [
        (range(100, 106), range(100, 106), list(range(100, 106))),
        (range(100, 104), range(98, 106), list(range(98, 106))),
        ((100, 101, 105, 106), (100, 101, 105), [100, 101, 105]),
        (range(2), range(-1, 2), [0, 1, 2]),
    ],
)
def test_ranks_without_numbers_have_those_of_the_others(tmp_path, own, others, wanted):
    ranks = {0: {"ranges": [_named(n) for n in own]}, 1: {"ranges": _repeated(others)}}
    steps = find_steps(make_run(tmp_path, ranks))[0].to_pylist()
    assert [s["step"] for s in steps if s["rank"] == 1] == wanted
    assert [s["step"] for s in steps if s["rank"] == 0] == [n - min(0, *others) for n in own]


def _launch(start, correlation, process=0):
    return {"start": start, "end": start + 5, "correlation": correlation, "process": process, "kind": "runtime"}


@pytest.mark.parametrize("at", [0, 3400], ids=["before", "behind"])
def test_a_process_beside_does_not_launch_the_work_of_another(tmp_path, at):
    """Each process counts its correlations from 1."""
    rows = {
        "processes": [{"process": n, "pid": 10 + n, "name": "train"} for n in range(2)],
        "ranges": [_named(n) for n in (1, 2, 3)],
        "kernels": [kernel(1100 * n, 1100 * n + 50, correlation=n) for n in (1, 2)],
        "api": [_launch(at + n, n, process=1) for n in (1, 2)] + [_launch(1050 * n, n) for n in (1, 2)],
    }
    steps = find_steps(make_run(tmp_path, {0: rows}))[0].to_pylist()
    assert [(s["device_start"], s["device_end"]) for s in steps] == [(1100, 1150), (2200, 2250), (None, None)]


def test_work_and_a_call_without_correlation_do_not_belong_together(tmp_path):
    rows = {
        "ranges": [_named(n) for n in (1, 2, 3)],
        "kernels": [kernel(1100 * n, 1100 * n + 50, correlation=None) for n in (1, 2)],
        "api": [_launch(100, None), _launch(2050, 2)],
    }
    steps = find_steps(make_run(tmp_path, {0: rows}))[0].to_pylist()
    assert [(s["device_start"], s["device_end"]) for s in steps] == [(1100, 1150), (2200, 2250), (None, None)]
