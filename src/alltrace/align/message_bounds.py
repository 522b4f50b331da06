"""What sends and receives say about two clocks: no message is received before it was sent (Hu et al., dPRO, 2022).

For a message from A to B, by true time, the send ends no later than the receive, so with clocks ahead by a and b the
difference ``b - a`` is at most (receive's end by B) - (send's end by A). Messages both ways bound it from both sides;
the middle is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alltrace.align.constants import WRONG_SHARE
from alltrace.trace.arrays import Floats, Int64


@dataclass(frozen=True)
class Bound:
    """How far `other` is ahead of `one`: the middle of the bounds, half their distance, the deciding messages."""

    one: int
    other: int
    ahead_ns: float
    half_width_ns: float
    messages: int


def bounds_between(instance: Int64, node: Int64, direction: NDArray[np.int8], end: Floats) -> list[Bound]:
    """The bounds between all pairs of nodes with messages both ways, the tightest first.

    Arrays of operations by instance, of which each is one send (direction 1) and one receive (-1); ends are by the
    node's clock, ns.
    """
    pairs = np.flatnonzero((instance[1:] == instance[:-1]) & (direction[1:] == -direction[:-1]) & (node[1:] != node[:-1]))
    send = np.where(direction[pairs] == 1, pairs, pairs + 1)
    receive = np.where(direction[pairs] == 1, pairs + 1, pairs)
    slack = end[receive] - end[send]
    source, target = node[send], node[receive]
    most: dict[tuple[int, int], tuple[float, int]] = {}
    order = np.lexsort((target, source))
    source, target, slack = source[order], target[order], slack[order]
    cuts = np.flatnonzero((source[1:] != source[:-1]) | (target[1:] != target[:-1])) + 1
    for first, last in zip([0, *cuts], [*cuts, len(slack)], strict=True):
        if first < last:
            limit = float(np.quantile(slack[first:last], WRONG_SHARE, method="lower"))
            most[int(source[first]), int(target[first])] = limit, int(last - first)
    found = []
    for (a, b), (upper, there) in most.items():
        if a < b and (b, a) in most:
            lower, back = -most[b, a][0], most[b, a][1]
            found.append(Bound(a, b, (upper + lower) / 2, abs(upper - lower) / 2, there + back))
    return sorted(found, key=lambda f: (f.half_width_ns, f.one, f.other))
