"""The graph of a replay: times of nodes under given weights, and the longest path.

A max-plus system as in Daydream (ATC'20), dPRO (MLSys'22) and the what-if analysis of ByteDance (OSDI'25): the time of
a node is the maximum over its arcs of the time of the source plus the weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.core import graphs as core
from alltrace.trace.arrays import Int64

Int32 = NDArray[np.int32]


@dataclass(frozen=True)
class Graph:
    """Nodes, and arcs sorted by target.

    Attributes:
        nodes: The number n of nodes.
        source: int32 array of m: where each arc begins.
        target: int32 array of m, ascending: where it ends.
        first: int32 array of n + 1: the first arc into each node.
        order: int32 array of n: the nodes, each after the sources of its arcs.
        arcs: int32 array of m: the number of each arc among those that `make_graph` was given.
        dropped: int32 array: the arcs left out because they would close a circle, numbers likewise.
    """

    nodes: int
    source: Int32
    target: Int32
    first: Int32
    order: Int32
    arcs: Int32
    dropped: Int32


def make_graph(nodes: int, source: Any, target: Any, recorded: Int64 | None = None) -> Graph:
    """A graph of arcs in any order.

    Args:
        nodes: The number n of nodes.
        source: Whole numbers, array of m.
        target: Likewise.
        recorded: int64 array of n, ns: when each node was; where arcs close a circle, those against time are left out.

    Raises:
        ValueError: Arcs close a circle, and no recorded times decide which of them to leave out.
    """
    source, target = np.ascontiguousarray(source, np.int32), np.ascontiguousarray(target, np.int32)
    arcs = np.argsort(target, kind="stable").astype(np.int32)
    dropped = np.empty(0, np.int32)
    first, order = _ordered(nodes, source[arcs], target[arcs])
    if len(order) < nodes:
        if recorded is None:
            raise ValueError("the arcs close a circle")
        # only among the nodes that no order reached; what has equal times keeps the order of its numbers
        reached = np.zeros(nodes, np.bool_)
        reached[order] = True
        s, t = source[arcs], target[arcs]
        forward = (recorded[s] < recorded[t]) | ((recorded[s] == recorded[t]) & (s < t))
        against = ~reached[s] & ~reached[t] & ~forward
        dropped, arcs = arcs[against], arcs[~against]
        first, order = _ordered(nodes, source[arcs], target[arcs])
    return Graph(nodes, source[arcs], target[arcs], first, order, arcs, dropped)


def _ordered(nodes: int, source: Int32, target: Int32) -> tuple[Int32, Int32]:
    first = _reached(target, nodes)
    leaving = _reached(source, nodes)
    by_source = np.argsort(source, kind="stable")
    order = np.empty(nodes, np.int32)
    count = core.topological_order(np.diff(first), leaving, target[by_source], order)
    return first, order[:count]


def _reached(ends: Int32, nodes: int) -> Int32:
    """How many of some ends of arcs are of nodes before each node, and of all."""
    counts = np.zeros(nodes + 1, np.int32)
    np.cumsum(np.bincount(ends, minlength=nodes), out=counts[1:])
    return counts


def times(graph: Graph, weights: Int64, begin: Int64 | None = None) -> tuple[Int64, Int64]:
    """When each node is under `weights`.

    Args:
        graph: The graph.
        weights: int64 array of m by the graph's order of arcs, ns; may be negative.
        begin: int64 array of n, ns: the time of the nodes without arcs; None for 0.

    Returns:
        int64 array of n times, ns; and of n arcs that decided, of equal ones the first; -1 for a node without arcs.
    """
    if len(weights) != len(graph.source):
        raise ValueError(f"{len(weights)} weights for {len(graph.source)} arcs")
    when = np.zeros(graph.nodes, np.int64) if begin is None else np.array(begin, np.int64)
    via = np.full(graph.nodes, -1, np.int64)
    core.longest_paths(graph.order, graph.first, graph.source, np.ascontiguousarray(weights, np.int64), when, via)
    return when, via


def longest_path(graph: Graph, when: Int64, via: Int64, end: int | None = None) -> Int64:
    """The arcs that decide the time of `end`, from first to last: int64 array.

    Args:
        graph: The graph.
        when: Times as `times` returns them.
        via: The deciding arcs, likewise.
        end: The node; None for the last of all, of equal ones the lowest.
    """
    if not graph.nodes:
        return np.empty(0, np.int64)
    node = int(when.argmax()) if end is None else end
    arcs = []
    while (arc := int(via[node])) >= 0:
        arcs.append(arc)
        node = int(graph.source[arc])
    return np.array(arcs[::-1], np.int64)


def slack_ns(graph: Graph, weights: Int64, when: Int64) -> Int64:
    """How much later each node could be without the last one being later: int64 array of n, ns."""
    late = np.full(graph.nodes, when.max() if len(when) else 0, np.int64)
    core.latest_times(graph.order, graph.first, graph.source, np.ascontiguousarray(weights, np.int64), late)
    return late - when
