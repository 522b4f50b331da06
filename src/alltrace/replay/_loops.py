"""The loops over graphs: plain Python for few nodes, compiled for many."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from alltrace.trace.jit import plain_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Int32 = NDArray[np.int32]
    Int64 = NDArray[np.int64]


def _order(waiting: Int32, leaving: Int32, target: Int32, order: Int32) -> int:
    """Nodes after the sources of their arcs (Kahn 1962); how many could be placed. `waiting` is used up."""
    count = 0
    for node in range(len(waiting)):
        if waiting[node] == 0:
            order[count] = node
            count += 1
    done = 0
    while done < count:
        node = order[done]
        done += 1
        for arc in range(leaving[node], leaving[node + 1]):
            to = target[arc]
            waiting[to] -= 1
            if waiting[to] == 0:
                order[count] = to
                count += 1
    return count


def _relax(order: Int32, first: Int32, source: Int32, weights: Int64, when: Int64, via: Int64) -> None:
    """The time of each node, and the arc that decided it."""
    for place in range(len(order)):
        node = order[place]
        low = first[node]
        high = first[node + 1]
        if low == high:
            continue
        best = low
        latest = when[source[low]] + weights[low]
        for arc in range(low + 1, high):
            reached = when[source[arc]] + weights[arc]
            if reached > latest:
                latest = reached
                best = arc
        when[node] = latest
        via[node] = best


def _relax_back(order: Int32, first: Int32, source: Int32, weights: Int64, late: Int64) -> None:
    """The latest time of each node that keeps all others."""
    for place in range(len(order) - 1, -1, -1):
        node = order[place]
        for arc in range(first[node], first[node + 1]):
            allowed = late[node] - weights[arc]
            late[source[arc]] = min(late[source[arc]], allowed)


_PLAIN: dict[str, Callable[..., Any]] = {"order": _order, "relax": _relax, "relax_back": _relax_back}


def kernel(name: str, nodes: int, few: int) -> Any:
    """The loop of that name, compiled where there are more than `few` nodes."""
    return _PLAIN[name] if nodes <= few else _compiled(name)


@lru_cache
def _compiled(name: str) -> Any:
    number, time, out = "Array(int32, 1, 'C', readonly=True)", "Array(int64, 1, 'C', readonly=True)", "int64[::1]"
    signatures = {
        "order": f"int64(int32[::1], {number}, {number}, int32[::1])",
        "relax": f"void({number}, {number}, {number}, {time}, {out}, {out})",
        "relax_back": f"void({number}, {number}, {number}, {time}, {out})",
    }
    plain: Callable[..., Any] = _PLAIN[name]
    return plain_kernel(signatures[name])(plain)
