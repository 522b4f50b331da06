"""How far fitted clocks may be off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from alltrace.align.clock_errors import errors_over_time
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


def test_over_a_time_an_interval_holds_offset_and_rate_together():
    """A bound at one end or both: of a sum of independent normal errors, and of two sums that are independent as well."""
    alone, none, one_side, both_sides = errors_over_time(
        np.array([300.0, 300.0, 300.0, 300.0]), np.array([0.0, 0.0, 0.0, 400.0]), np.array([0.0, 0.0, 400.0, 400.0])
    )
    assert alone == none == pytest.approx(300.0)
    assert one_side == pytest.approx(500.0, rel=0.05)
    assert 1.02 * 500.0 < both_sides < 1.16 * 500.0
    equal = errors_over_time(np.array([300.0]), np.array([300.0]), np.array([300.0]))[0]
    assert equal == pytest.approx(300.0 * np.sqrt(2) * 2.24 / 1.96, rel=0.03)
