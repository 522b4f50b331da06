"""Order and longest paths against naive recursions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.core import graphs

int32 = np.int32


@st.composite
def arcs_of_some_nodes(draw):
    nodes = draw(st.integers(1, 8))
    node = st.integers(0, nodes - 1)
    return nodes, draw(st.lists(st.tuples(node, node, st.integers(-20, 50)), max_size=16))


def without_circles(job):
    """The same nodes with arcs from lower to higher numbers, which are then permuted."""
    nodes, arcs = job
    name = np.random.default_rng(nodes * 31 + len(arcs)).permutation(nodes).tolist()
    return nodes, [(name[min(a, b)], name[max(a, b)], w) for a, b, w in arcs if a != b]


def places(ends, nodes):
    return np.array([sum(e < n for e in ends) for n in range(nodes + 1)], int32)


def order_of(nodes, arcs):
    by_source = sorted(arcs, key=lambda a: a[0])
    waiting = np.array([sum(t == n for _, t, _ in arcs) for n in range(nodes)], int32)
    order = np.empty(nodes, int32)
    first_leaving, targets = places([a[0] for a in arcs], nodes), np.array([a[1] for a in by_source], int32)
    return order[: graphs.topological_order(waiting, first_leaving, targets, order)]


@given(arcs_of_some_nodes())
def test_the_order_has_every_node_that_no_circle_leads_to(job):
    nodes, arcs = job
    order = order_of(nodes, arcs).tolist()
    place = {n: i for i, n in enumerate(order)}
    assert len(place) == len(order)
    for source, target, _ in arcs:
        assert target not in place or place[source] < place[target]
    # naively: take away nodes without arcs from what is left, until none is left to take
    left = set(range(nodes))
    while taken := {n for n in left if not any(s in left and t == n for s, t, _ in arcs)}:
        left -= taken
    assert set(order) == set(range(nodes)) - left


def given_to_the_loops(nodes, arcs):
    by_target = sorted(arcs, key=lambda a: a[1])
    source, target, weights = (np.array([a[i] for a in by_target], np.int64) for i in range(3))
    return by_target, (order_of(nodes, arcs), places(target.tolist(), nodes), source.astype(int32), weights)


@given(arcs_of_some_nodes(), st.data())
def test_times_are_the_longest_paths_and_latest_times_the_shortest_ways_back(job, data):
    nodes, arcs = without_circles(job)
    begin = data.draw(st.lists(st.integers(-100, 100), min_size=nodes, max_size=nodes))
    by_target, loops = given_to_the_loops(nodes, arcs)

    def longest(node):
        into = [(longest(s) + w, -i) for i, (s, t, w) in enumerate(by_target) if t == node]
        return max(into)[0] if into else begin[node]

    def deciding(node):
        into = [(longest(s) + w, -i) for i, (s, t, w) in enumerate(by_target) if t == node]
        return -max(into)[1] if into else -1

    times, via = np.array(begin), np.full(nodes, -1, np.int64)
    graphs.longest_paths(*loops, times, via)
    assert times.tolist() == [longest(n) for n in range(nodes)]
    assert via.tolist() == [deciding(n) for n in range(nodes)]

    def latest(node):
        return min([begin[node], *(latest(t) - w for s, t, w in arcs if s == node)])

    found = np.array(begin)
    graphs.latest_times(*loops, found)
    assert found.tolist() == [latest(n) for n in range(nodes)]


def test_what_the_arrays_do_not_have_is_refused():
    one, two, time = np.array([0], int32), np.array([0, 1], int32), np.zeros(1, np.int64)
    for order, first, source in [
        ([-1], two, one),
        ([1], two, one),
        ([0], [0, 2], one),
        ([0], two, [5]),
        ([0], two, [-1]),
    ]:
        arrays = [np.array(v, int32) for v in (order, first, source)]
        with pytest.raises(IndexError):
            graphs.longest_paths(*arrays, time, time.copy(), time.copy())
        with pytest.raises(IndexError):
            graphs.latest_times(*arrays, time, time.copy())
    with pytest.raises(IndexError):
        graphs.topological_order(one.copy(), two, np.array([3], int32), one.copy())
