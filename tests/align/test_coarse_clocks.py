"""Ranks that are connected one by one: which are together, under which number, and how their times relate."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.align.coarse_clocks import _connect, _to_root
from alltrace.align.disjoint_sets import DisjointSets
from alltrace.align.pairwise_clock_fit import ClockLine


def test_ranks_are_connected_as_a_forest_whose_trees_are_the_sets_of_connected_ranks():
    draw = np.random.default_rng(0)
    ranks = draw.permutation(40)[:25].tolist()
    component, parent = DisjointSets(40), {}
    for _ in range(40):
        first, second = draw.choice(ranks, 2).tolist()
        if component.of(first) != component.of(second):
            _connect(first, second, a_course(draw), component, parent)
        roots = {}
        for rank in ranks:
            node = rank
            while node in parent:
                node = parent[node][0]
            roots[rank] = node
        assert all((component.of(a) == component.of(b)) == (roots[a] == roots[b]) for a in ranks for b in ranks)
    assert len(parent) == len(ranks) - len(set(roots.values()))


def a_course(draw):
    return ClockLine(float(draw.normal(0, 1e8)), float(draw.normal(0, 1e-4)), float(draw.uniform(1e12, 2e12)), 500.0, 9, 0.9, 0.8)


@pytest.mark.parametrize("seed", range(10))
def test_relations_along_a_tree_are_what_applying_each_in_turn_gives(seed):
    draw = np.random.default_rng(seed)
    ranks = draw.permutation(60)[:30].tolist()
    parent = {rank: (ranks[int(draw.integers(0, place))], a_course(draw)) for place, rank in enumerate(ranks) if place}
    to_root = _to_root(parent)
    times = draw.uniform(1e12, 2e12, 5)
    assert set(to_root) == set(ranks[1:])
    for rank, whole in to_root.items():
        expected, node, depth = times, rank, 0
        while node in parent:
            node, line = parent[node]
            expected, depth = line.apply(expected), depth + 1
        assert whole.apply(times) == pytest.approx(expected, abs=1e-2, rel=0)
        assert whole.scale_ns == pytest.approx(500.0 * depth**0.5)
        assert whole.certainty == 0.8


def test_a_chain_is_gone_through_once(monkeypatch):
    chain = {rank: (rank - 1, ClockLine(1.0, 0.0, 0.0, 3.0, 1, 1.0, 1.0)) for rank in range(1, 2_001)}
    calls = []
    then = ClockLine.then
    monkeypatch.setattr(ClockLine, "then", lambda inner, outer: calls.append(1) or then(inner, outer))
    found = _to_root(dict(sorted(chain.items(), reverse=True)))
    assert found[2_000].offset_ns == 2_000
    assert len(calls) == 1_999
