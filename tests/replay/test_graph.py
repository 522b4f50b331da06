"""Graphs against longest paths found by trying them all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alltrace.replay import graph as g


def make(nodes, arcs, recorded=None):
    source, target = (np.array([a[i] for a in arcs], np.int64) for i in (0, 1))
    made = g.make_graph(nodes, source, target, recorded)
    return made, np.array([a[2] for a in arcs], np.int64)[made.arcs]


@st.composite
def dags(draw):
    nodes = draw(st.integers(1, 7))
    pairs = [(a, b) for a in range(nodes) for b in range(a + 1, nodes)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=10)) if pairs else []
    names = draw(st.permutations(range(nodes)))
    return nodes, [(names[a], names[b], draw(st.integers(-5, 50))) for a, b in chosen]


def longest_to(node, arcs):
    into = [a for a in arcs if a[1] == node]
    return max((longest_to(a[0], arcs) + a[2] for a in into), default=0)


@settings(deadline=None)
@given(dags())
def test_times_are_the_longest_paths(job):
    nodes, arcs = job
    graph, weights = make(nodes, arcs)
    when, via = g.times(graph, weights)
    slack = g.slack_ns(graph, weights, when)
    assert when.tolist() == [longest_to(n, arcs) for n in range(nodes)]
    path = g.longest_path(graph, when, via)
    start = int(graph.source[path[0]]) if len(path) else int(when.argmax())
    assert when[start] + weights[path].sum() == when.max()
    assert (graph.target[path[:-1]] == graph.source[path[1:]]).all()
    # a node with slack can be later by that much, and not by more
    for node in range(nodes):
        begin = np.zeros(nodes, np.int64)
        begin[node] = slack[node]
        if graph.first[node] == graph.first[node + 1]:
            assert g.times(graph, weights, begin)[0].max() == when.max()
            begin[node] += 1
            assert g.times(graph, weights, begin)[0].max() == when.max() + 1


def test_a_circle_is_opened_where_it_goes_against_time():
    arcs = [(0, 1, 5), (1, 2, 5), (2, 1, 5)]
    with pytest.raises(ValueError, match="circle"):
        make(3, arcs)
    graph, weights = make(3, arcs, np.array([0, 5, 10]))
    assert graph.dropped.tolist() == [2]
    assert g.times(graph, weights)[0].tolist() == [0, 5, 10]


def test_a_graph_without_nodes_has_no_time():
    graph, weights = make(0, [])
    assert g.longest_path(graph, *g.times(graph, weights)).tolist() == []


def test_weights_must_fit():
    graph, _ = make(2, [(0, 1, 3)])
    with pytest.raises(ValueError, match="2 weights for 1 arcs"):
        g.times(graph, np.array([1, 2]))


@pytest.mark.parametrize("room", [0, 3])
def test_arcs_come_with_what_is_alike_once(room):
    arcs = g.Arcs(room)
    assert [c.tolist() for c in arcs.columns()] == [[]] * 7
    arcs.add(0, [4, 5], fixed=7, host=[1, 2])
    arcs.add(3, 6, idle=9, work=8, instance=2)
    target, source, instance, *weights = (c.tolist() for c in arcs.columns())
    assert (target, source, instance) == ([4, 5, 6], [0, 0, 3], [-1, -1, 2])
    assert weights == [[7, 7, 0], [0, 0, 9], [1, 2, 0], [0, 0, 8]]
