"""Replays with even durations, against a run that was made without variation."""

from __future__ import annotations

import random

import pytest
from tests.making import collective, kernel, make_run

US = 1000
TOOK = (300, 200, 400)
"""Time of the kernel before each all-reduce of a step, us."""


def run_of(folder, ranks, steps, duration):
    """Steps of kernels and all-reduces in turn; `duration(rank, step, place)` stretches a kernel. And the mean step,
    us."""
    tables = {r: {"kernels": [], "api": [], "ranges": []} for r in range(ranks)}
    begin = at = steps * US
    for step in range(steps):
        for place, took in enumerate(TOOK):
            arrivals = {r: at + int(took * US * duration(r, step, place)) for r in tables}
            end = max(arrivals.values()) + 20 * US
            for rank, made in tables.items():
                for n, row in enumerate((kernel(at, arrivals[rank], f"gemm{place}"), collective(arrivals[rank], end))):
                    number = len(made["api"]) + 1
                    host = step * US + 20 * place + 10 * n
                    made["kernels"].append({**row, "correlation": number})
                    made["api"].append(
                        {"start": host, "end": host + 9, "name": "cudaLaunchKernel", "correlation": number}
                    )
            at = end
        for made in tables.values():
            made["ranges"].append({"start": step * US, "end": step * US + 900, "name": f"step {step}"})
    return make_run(folder, tables), (at - begin) / steps / US


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slow", [1.0, 1.2])
def test_variation_within_steps_costs_what_the_run_without_it_is_shorter(tmp_path, slow):
    draw = random.Random(4)
    noise = {(r, s, p): draw.uniform(0.8, 1.2) for r in range(8) for s in range(24) for p in range(3)}
    run, with_noise = run_of(tmp_path / "with", 8, 24, lambda r, s, p: noise[r, s, p] * (slow if r == 3 else 1))
    _, without = run_of(tmp_path / "without", 8, 24, lambda r, _s, _p: slow if r == 3 else 1)
    found = {row["kind"]: row for row in run.recipe("diagnose").to_pylist()}
    assert found["jitter"]["lost_ns_per_step"] / US == pytest.approx(with_noise - without, rel=0.2)
    assert found["jitter"]["evidence"]["basis"] == "replay"
    assert ("straggler" in found) == (slow > 1)


def test_durations_that_are_skewed_keep_their_mean(tmp_path):
    draw = random.Random(7)
    noise = {
        (r, s, p): draw.lognormvariate(-0.5, 1.0) for r in range(8) for s in range(24) for p in range(3)
    }  # of the mean 1
    run, with_noise = run_of(tmp_path / "with", 8, 24, lambda r, s, p: noise[r, s, p])
    _, without = run_of(tmp_path / "without", 8, 24, lambda _r, _s, _p: 1.0)
    (found,) = [row for row in run.recipe("diagnose").to_pylist() if row["kind"] == "jitter"]
    assert found["lost_ns_per_step"] / US == pytest.approx(with_noise - without, rel=0.13)
