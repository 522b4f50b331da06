"""How far fitted clocks may be off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from alltrace.align.clocks import solve
from benchmarks.accuracy_clocks import Job, simulate

JOB = Job(hosts=3, per_host=4, tensor=2, steps=12, layers=2, span_s=20.0, drift_ppm=0.0, stamp_ms=0.0)


def errors_by_scatter(jitter_ns):
    simulated = simulate(replace(JOB, jitter_ns=jitter_ns, seed=8))
    return np.array([c.error_ns for c in solve(simulated.evidence, simulated.ranks).clocks[1:]])


def test_the_error_grows_with_the_scatter():
    ratio = errors_by_scatter(20_000.0) / errors_by_scatter(2_000.0)
    assert (ratio > 5).all()
    assert (ratio < 20).all()


def test_the_first_hosts_clock_has_no_error():
    simulated = simulate(replace(JOB, seed=8))
    assert solve(simulated.evidence, simulated.ranks).clocks[0].error_ns == 0


def test_intervals_hold_the_truth():
    held = []
    for seed in range(15):
        simulated = simulate(replace(JOB, seed=seed, outliers=0.0))
        solution = solve(simulated.evidence, simulated.ranks)
        held += [abs(c.offset_ns - simulated.offset_ns[4 * h]) <= c.error_ns for h, c in enumerate(solution.clocks) if h]
    assert 0.85 <= np.mean(held) <= 1.0
