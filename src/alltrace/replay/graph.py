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
from alltrace.run.collecting import Growing
from alltrace.trace.arrays import Int64

Int32 = NDArray[np.int32]


class Arcs:
    """Arcs as they come, of which `room` are foreseen, with the parts of their weights, ns; nothing is stored twice."""

    def __init__(self, room: int = 0) -> None:
        self._ends, self._weights = Growing(3, room, np.int32), Growing(4, room)

    def add(
        self,
        source: Any,
        target: Any,
        *,
        fixed: Any = 0,
        idle: Any = 0,
        host: Any = 0,
        work: Any = 0,
        instance: Any = -1,
    ) -> None:
        """Add the arcs to each of `target`, an array or the one of a single arc."""
        target = np.atleast_1d(target)
        self._ends.add(target, source, instance)
        self._weights.add(np.broadcast_to(fixed, len(target)), idle, host, work)

    def columns(self) -> list[NDArray[Any]]:
        """Targets, sources, instances, and the parts of weights: fixed, idle, host and work."""
        return [*self._ends.columns(), *self._weights.columns()]


@dataclass(frozen=True)
class Graph:
    """n nodes, and m arcs sorted by target."""

    nodes: int  # how many
    source: Int32  # where each arc begins
    target: Int32  # where it ends, ascending
    first: Int32  # the first arc into each node, and m
    order: Int32  # the nodes, each after the sources of its arcs
    arcs: Int32  # the number of each arc among those that `make_graph` was given
    dropped: Int32  # the arcs left out because they would close a circle, numbers likewise


def make_graph(nodes: int, source: Any, target: Any, recorded: Int64 | None = None) -> Graph:
    """A graph of this many nodes and of arcs in any order, arrays of whole numbers.

    Where arcs close a circle, those against the `recorded` times of nodes are left out; without these it is a
    `ValueError`.
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
    """When each node is under the weights of the graph's arcs, ns, which may be negative, and the arc that decided.

    Nodes without arcs are at `begin`, by default 0, and no arc, -1, decides; of equal ones the first does.
    """
    if len(weights) != len(graph.source):
        raise ValueError(f"{len(weights)} weights for {len(graph.source)} arcs")
    when = np.zeros(graph.nodes, np.int64) if begin is None else np.array(begin, np.int64)
    via = np.full(graph.nodes, -1, np.int64)
    core.longest_paths(graph.order, graph.first, graph.source, np.ascontiguousarray(weights, np.int64), when, via)
    return when, via


def longest_path(graph: Graph, when: Int64, via: Int64) -> Int64:
    """The arcs that decide the time of the last node, the lowest of equals; `when` and `via` are from `times`."""
    if not graph.nodes:
        return np.empty(0, np.int64)
    node = int(when.argmax())
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
