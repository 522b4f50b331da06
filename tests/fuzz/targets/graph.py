"""Replay: times of nodes over random graphs with weights anywhere in int64, against plain Python."""

from __future__ import annotations

from random import Random

import numpy as np

from alltrace.replay.graph import Graph, longest_path, make_graph, slack_ns, times
from tests.fuzz.fields import Fields

_MOST_NODES = 3_500  # smaller graphs and larger ones
_MOST_ARCS = 4_000
_BOUND = 1 << 50  # of weights, so that no sum over a path leaves int64


def corpus() -> list[bytes]:
    """Graphs without and with circles: small, a long chain, one that is wide, none."""
    draw = Random(1)
    found = [bytes(4)]
    for nodes, arcs in ((1, 0), (2, 1), (5, 9), (20, 60), (100, 50)):
        ends = [sorted(draw.sample(range(nodes), 2)) for _ in range(arcs)]
        found.append(_packed(nodes, ends, draw))
        found.append(_packed(nodes, [(draw.randrange(nodes), draw.randrange(nodes)) for _ in range(arcs)], draw))
    found.append(_packed(3_200, [(n, n + 1) for n in range(3_199)], draw))
    return found


def _packed(nodes: int, ends: list[tuple[int, int]], draw: Random) -> bytes:
    head = nodes.to_bytes(2, "little") + len(ends).to_bytes(2, "little")
    numbers = [n for end in ends for n in end]
    weights = [draw.choice((0, 1, 1_000, 10**9, -5)) for _ in ends]
    return head + np.array(numbers, "<u2").tobytes() + np.array(weights, "<i8").tobytes()


def run(data: bytes) -> None:
    """The times of the graph in `data`."""
    fields = Fields(data)
    nodes, arcs = fields.number(_MOST_NODES), fields.number(_MOST_ARCS)
    arcs = min(arcs, fields.left() // 12 + 1) if nodes else 0
    ends = np.array([fields.number(max(nodes, 1)) for _ in range(2 * arcs)], np.int64).reshape(arcs, 2)
    weights = fields.int64(arcs)
    recorded = fields.small(nodes)
    graph = make_graph(nodes, ends[:, 0], ends[:, 1], recorded)
    kept = weights[graph.arcs] % _BOUND
    when, via = times(graph, kept)
    assert sorted(graph.order.tolist()) == list(range(nodes))
    assert len(graph.arcs) + len(graph.dropped) == arcs
    assert (when, via) == (when, via) if not nodes else _is_right(graph, kept, when.tolist(), via.tolist())
    slack = slack_ns(graph, kept, when)
    assert (slack >= 0).all()
    path = longest_path(graph, when, via)
    if nodes:
        assert int(kept[path].sum()) == int(when.max())
    with np.errstate(over="ignore"):
        times(graph, weights[graph.arcs])  # of any size: sums wrap


def _is_right(graph: Graph, weights: np.ndarray, when: list[int], via: list[int]) -> bool:
    best: dict[int, tuple[int, int]] = {}
    sources, targets = graph.source.tolist(), graph.target.tolist()
    for arc, (source, target, weight) in enumerate(zip(sources, targets, weights.tolist(), strict=True)):
        reached = when[source] + weight
        if target not in best or reached > best[target][0]:
            best[target] = reached, arc
    return [best.get(n, (0, -1)) for n in range(graph.nodes)] == list(zip(when, via, strict=True))
