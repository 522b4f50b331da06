"""How lateness behaves: planted in simulated runs, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

import alltrace
from alltrace.recipes.analysis.lateness import causing_together, over_steps, slow_together
from alltrace.synth import write_run

SMALL = {"ranks": 8, "hosts": 2, "steps": 8, "layers": 6, "kernels_per_layer": 6, "warmup_steps": 0}
IN_TURN = [f"slow-rank:ranks={1 + 4 * (step % 2)}:factor=1.4:steps={step}" for step in range(14)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("layout", "faults", "values", "culprits", "pattern"),
    [
        ("healthy", ["slow-host:hosts=1:factor=1.3"], {}, {4, 5, 6, 7}, "node"),
        ("pipeline", ["slow-rank:ranks=2,3:factor=1.4"], {}, {2, 3}, "stage"),
        ("healthy", ["slow-rank:ranks=3:factor=1.5:steps=4-5"], {"steps": 12}, {3}, "transient"),
        ("healthy", IN_TURN, {"steps": 14}, {1, 5}, "rotating"),
        ("tensor-data", ["slow-rank:ranks=3:factor=1.3"], {}, {3}, "recurring"),
    ],
)
def test_the_pattern_is_that_planted(tmp_path, layout, faults, values, culprits, pattern):
    write_run(layout, tmp_path / "reports", **{**SMALL, **values, "faults": tuple(faults)}, ideal=True)
    rows = alltrace.open(tmp_path / "reports", cache_dir=tmp_path / "cache").recipe("stragglers").to_pylist()
    late = [r for r in rows if r["caused_ns"]]
    assert late[0]["rank"] in culprits
    assert {r["pattern"] for r in late if r["rank"] in culprits} == {pattern}
    if pattern in ("node", "stage", "recurring"):
        assert pattern not in {r["pattern"] for r in late if r["rank"] not in culprits}


def test_half_in_three_steps_is_transient_and_most_steps_are_recurring():
    steps = np.arange(10)
    found = over_steps(np.array([0, 1, 2]), np.array([0] * 7 + [1] * 3), steps, np.array([9] * 7 + [5, 5, 5]))
    assert found == {0: "recurring", 1: "transient"}
    assert over_steps(np.array([0]), np.array([0]), np.array([-1]), np.array([7])) == {}


def test_a_group_is_slow_only_where_each_of_it_is_and_nobody_else():
    hosts = [[0, 1], [2, 3]]
    assert slow_together(hosts, {0: 0.01, 1: 0.0, 2: 0.2, 3: 0.15}) == {2, 3}
    assert slow_together(hosts, {0: 0.01, 1: 0.0, 2: 0.2, 3: 0.05}) == set()
    assert slow_together(hosts, {0: 0.1, 1: 0.0, 2: 0.2, 3: 0.15}) == set()
    assert slow_together(hosts, {0: 0.0, 1: 0.0, 2: 0.02, 3: 0.02}) == set()


def test_a_group_causes_waits_together_only_where_each_has_its_part():
    hosts = [[0, 1], [2, 3]]
    assert causing_together(hosts, {0: 5, 1: 5, 2: 60, 3: 30}) == {2, 3}
    assert causing_together(hosts, {0: 5, 1: 5, 2: 85, 3: 5}) == set()
    assert causing_together(hosts, {0: 0, 1: 0, 2: 0, 3: 0}) == set()
