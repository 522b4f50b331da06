"""Questions to training logs."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.readers.training_log.read import read_training
from alltrace.recipes.logs.training import answer, change_points, slow_steps, trend
from alltrace.trace.spans import Span


def log(tmp_path, times, name="a.log"):
    path = tmp_path / name
    path.write_text(
        "".join(
            f" iteration {k}/ 999 | elapsed time per iteration (ms): {1e3 * t:.4f} |\n" for k, t in enumerate(times)
        )
    )
    return read_training(str(path))


def test_mean_over_a_range_of_steps(tmp_path):
    run = log(tmp_path, [100.0] * 45 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] + [50.0] * 9)
    row = answer([run], "summary", Span(45, 51)).table.to_pylist()[0]
    assert (row["metric"], row["steps"], row["mean"], row["median"], row["min"], row["max"]) == (
        "step_time_s",
        6,
        3.5,
        3.5,
        1.0,
        6.0,
    )
    assert row["p95"] == pytest.approx(5.75)


def test_percentiles_and_trend(tmp_path):
    """101 steps that take 10, 10.1, ... 20 s."""
    (row,) = answer([log(tmp_path, [10 + 0.1 * k for k in range(101)])], "summary").table.to_pylist()
    assert [row[p] for p in ("p5", "median", "p95", "p99")] == pytest.approx([10.5, 15.0, 19.5, 19.9])
    assert (row["unit"], row["trend_percent"]) == ("s", pytest.approx(100 * 10 / 15))


def test_values_of_each_step(tmp_path):
    line = (
        " iteration {0}/ 9 | elapsed time per iteration (ms): 1000.0 | global batch size: {1} | loss scale: {2} | grad"
        " norm: {3} | tokens_per_sec_per_gpu: {4} | samples/sec: {5} |\n"
    )
    path = tmp_path / "a.log"
    path.write_text(line.format(1, 256, 4096.0, 1.25, 900, 17.5) + line.format(2, 512, 2048.0, 0.75, 800, 35.0))
    rows = answer([read_training(str(path))], "steps").table.to_pylist()
    names = ("step", "global_batch", "loss_scale", "grad_norm", "tokens_per_s_per_gpu", "samples_per_s")
    assert [tuple(r[n] for n in names) for r in rows] == [
        (1, 256, 4096, 1.25, 900, 17.5),
        (2, 512, 2048, 0.75, 800, 35),
    ]


def test_change_points_and_slow_steps(tmp_path):
    rng = np.random.default_rng(0)
    times = np.concatenate([1 + 0.01 * rng.standard_normal(60), 1.3 + 0.01 * rng.standard_normal(60)])
    times[20] = times[90] = 4.0
    assert change_points(times) == [60]
    assert slow_steps(times, [60]) == [20, 90]
    extra = answer([log(tmp_path, times)], "steps").extra
    assert [(p["step"], round(p["ratio"], 1)) for p in extra["change_points"]] == [(60, 1.3)]
    assert [s["step"] for s in extra["slow_steps"]] == [20, 90]


def test_noise_has_no_change_point_and_no_trend():
    for seed in range(20):
        times = 1 + 0.02 * np.random.default_rng(seed).standard_normal(200)
        assert change_points(times) == []
        assert abs(trend(np.arange(200.0), times)) < 1e-4


def test_trend_is_the_slope():
    steps = np.arange(0.0, 3000.0)
    assert trend(steps, 2 + 0.5 * steps) == pytest.approx(0.5)


def test_runs_side_by_side(tmp_path):
    rows = answer([log(tmp_path, [1.0] * 5), log(tmp_path, [1.5] * 5, "b.log")], "summary").table.to_pylist()
    assert [(r["run"], r["mean"], r["ratio"]) for r in rows] == [("a.log", 1.0, 1.0), ("b.log", 1.5, 1.5)]


def test_a_loss_that_is_no_finite_number_is_said(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(
        "".join(f"iter {k}: loss {'nan' if k in (3, 4) else 2.5}, time 100.00ms, mfu 10.00%\n" for k in range(6))
    )
    its = answer([read_training(str(path))], "steps")
    assert [(r["loss"], r["step_time_s"]) for r in its.table.to_pylist()][2:5] == [(2.5, 0.1), (None, 0.1), (None, 0.1)]
    assert "a.log: loss is nan or infinite in 2 steps, first in step 3" in its.notes
    assert not any("infinite" in note for note in answer([read_training(str(path))], "steps", Span(0, 2)).notes)
