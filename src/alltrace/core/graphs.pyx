"""Directed acyclic graphs: topological order, and longest paths forwards and backwards.

Nodes are 0 to n - 1 and arcs 0 to m - 1, in int32. Weights and times are int64, in ns.
"""

from libc.stdint cimport int32_t, int64_t


def topological_order(int32_t[::1] waiting, const int32_t[::1] first_leaving, const int32_t[::1] targets,
    int32_t[::1] out_order):
    """Write the nodes, each after the sources of its arcs (Kahn 1962); returns how many: fewer than n if there is a
    cycle.

    Args:
        waiting: The number of arcs into each node; overwritten.
        first_leaving: n + 1 positions, at which the arcs that leave each node begin in `targets`.
        targets: The node in which each arc ends, sorted by the node that it leaves.
        out_order: Space for n nodes.
    """
    cdef Py_ssize_t node, arc, done = 0, count = 0
    cdef int32_t target
    with nogil:
        for node in range(waiting.shape[0]):
            if waiting[node] == 0:
                out_order[count] = <int32_t>node
                count += 1
        while done < count:
            node = out_order[done]
            done += 1
            for arc in range(first_leaving[node], first_leaving[node + 1]):
                target = targets[arc]
                waiting[target] -= 1
                if waiting[target] == 0:
                    out_order[count] = target
                    count += 1
    return count


def longest_paths(
    const int32_t[::1] order,
    const int32_t[::1] first,
    const int32_t[::1] sources,
    const int64_t[::1] weights,
    int64_t[::1] times,
    int64_t[::1] out_via,
):
    """The time of each node: the maximum over the arcs into it of the source's time plus the weight.

    Args:
        order: The nodes, each after the sources of its arcs.
        first: n + 1 positions, at which the arcs into each node begin.
        sources: The node in which each arc begins, sorted by the node that it enters.
        weights: Weight of each arc.
        times: On entry, the times of the nodes without incoming arcs; the times of the others are written.
        out_via: The arc that determines each time, the first if several do; not written for nodes without incoming
            arcs.
    """
    cdef Py_ssize_t place, arc, best, low, high
    cdef int32_t node
    cdef int64_t latest, reached
    with nogil:
        for place in range(order.shape[0]):
            node = order[place]
            low = first[node]
            high = first[node + 1]
            if low == high:
                continue
            best = low
            latest = times[sources[low]] + weights[low]
            for arc in range(low + 1, high):
                reached = times[sources[arc]] + weights[arc]
                if reached > latest:
                    latest = reached
                    best = arc
            times[node] = latest
            out_via[node] = best


def latest_times(
    const int32_t[::1] order,
    const int32_t[::1] first,
    const int32_t[::1] sources,
    const int64_t[::1] weights,
    int64_t[::1] latest,
):
    """Lower each node's latest time to what its successors allow; arguments as for `longest_paths`."""
    cdef Py_ssize_t place, arc
    cdef int32_t node
    cdef int64_t allowed
    with nogil:
        for place in range(order.shape[0] - 1, -1, -1):
            node = order[place]
            for arc in range(first[node], first[node + 1]):
                allowed = latest[node] - weights[arc]
                if allowed < latest[sources[arc]]:
                    latest[sources[arc]] = allowed
