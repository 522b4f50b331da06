"""What the peers take for the same: durations of kernels, host and transfers, as others have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alltrace.replay.join import Replay
from alltrace.replay.pace import Pace, over_peers, pace_of
from alltrace.replay.rank_graph import HOST
from alltrace.trace.arrays import Flags, Floats, Int64, coded, integers, narrow
from alltrace.trace.distinct import distinct_rows, rows_by, run_starts

_NEAR = 0.005
"""Waits at places that differ by this share of a step's launches may be the same: events are dropped."""

_ARCS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class Peers:
    """What the peers take, for a `Replay`; arrays by arc."""

    pace: Pace  # the device work of each rank in each step, and its peers' time for it
    host_ns: Int64  # the host time of the peers
    transfer_ns: Int64  # of a transfer the median of equal ones, else 0
    needless: Flags  # whether it makes a host wait for a device where most of its peers' hosts do not


def peers_of(replay: Replay, members: Any) -> Peers:
    """The peers' durations; `members` are those of `Aligned`."""
    pace = pace_of(replay)
    host, needless = _host(replay, pace.ranks, pace.alike), _needless(replay, pace.ranks, pace.alike)
    return Peers(pace, narrow(host), narrow(_transfers(replay, members)), needless)


def host_time_ns(replay: Replay, ranks: Int64, steps: Int64) -> Floats:
    """The host's own time of each rank and step, of shape (ranks, steps), ns: from each wait to its last launch."""
    graph = replay.graph
    own = np.flatnonzero((replay.rank[graph.target] >= 0) & (replay.host_ns > 0))
    spent = np.zeros((len(ranks), len(steps)))
    anchor, target = graph.source[own], graph.target[own]
    order = np.lexsort((replay.host_ns[own], replay.step[target], anchor))
    anchor, target, host = anchor[order], target[order], replay.host_ns[own][order].astype(np.int64)
    step = replay.step[target]
    last = np.ones(len(order), np.bool_)
    last[:-1] = (anchor[1:] != anchor[:-1]) | (step[1:] != step[:-1])
    # launches of two steps by one wait: the later step has what goes beyond the earlier
    at = np.flatnonzero(last)
    again = np.concatenate(([False], anchor[at][1:] == anchor[at][:-1]))
    time = host[at] - np.where(again, np.concatenate(([0], host[at][:-1])), 0)
    np.add.at(
        spent, (np.searchsorted(ranks, replay.rank[target[at]]), np.searchsorted(steps, step[at])), np.maximum(time, 0)
    )
    return spent


def _host(replay: Replay, ranks: Int64, alike: Int64) -> Int64:
    """For each arc the host time of the peers.

    Arcs of ranks that are alike correspond if they are at the same place: in the same step, after as many waits of the
    host in it, and leading to the segment of the same place among those placed by that wait. There the time from launch
    to launch takes the peers' median. Where steps have other numbers of places, the host's whole time of the step
    decides.
    """
    of_peers = replay.host_ns.astype(np.float64)
    steps = np.unique(replay.step)
    spent = host_time_ns(replay, ranks, steps)
    (rows, columns), factors = np.nonzero(spent), np.ones_like(spent)
    factors[rows, columns] = over_peers(alike, rows, columns, spent[rows, columns])
    graph = replay.graph
    own = np.flatnonzero((replay.rank[graph.target] >= 0) & (replay.host_ns > 0))
    row = np.searchsorted(ranks, replay.rank[graph.target[own]])
    step = np.searchsorted(steps, replay.step[graph.target[own]])
    of_peers[own] *= factors[row, step]
    order = np.argsort(step, kind="stable")
    begins = run_starts(step[order])
    for some in np.split(order, begins[np.diff(begins // _ARCS_AT_ONCE, prepend=0) > 0]) if len(own) else ():
        _by_place(replay, own[some], row[some], step[some], alike, of_peers)
    return np.rint(of_peers).astype(np.int64)


def _by_place(replay: Replay, own: Int64, row: Int64, step: Int64, alike: Int64, of_peers: Floats) -> None:
    """Set the times of the arcs `own`, all of some steps, that have corresponding ones.

    What corresponds is the time from one launch to the next: a host that pauses once is late at all launches after
    that, and a pause that each rank makes at another place is in the time to one launch of each.
    """
    graph = replay.graph
    host = replay.host_ns[own].astype(np.int64)
    # the earliest and the latest launch represent every segment
    order = np.lexsort((host, graph.source[own], graph.target[own]))
    pair = np.stack([graph.target[own], graph.source[own]])[:, order]
    new = np.concatenate(([True], (pair[:, 1:] != pair[:, :-1]).any(axis=0)))
    first, last = order[new], order[np.concatenate((new[1:], [True]))]
    segment = np.empty(len(own), np.int64)
    segment[order] = np.cumsum(new) - 1
    count = len(first)
    point = np.concatenate((first, last))
    # places of these: by anchor in the step, and by launch from the anchor
    edge = np.repeat((0, 1), count)
    by = np.lexsort(
        (edge, graph.target[own[point]], host[point], replay.when[graph.source[own[point]]], step[point], row[point])
    )
    point = point[by]
    anchor, at_row, at_step = graph.source[own[point]], row[point], step[point]
    new_step = np.concatenate(([True], (at_row[1:] != at_row[:-1]) | (at_step[1:] != at_step[:-1])))
    new_anchor = new_step | np.concatenate(([True], anchor[1:] != anchor[:-1]))
    index = np.arange(len(by))
    begins = np.maximum.accumulate(np.where(new_anchor, index, 0))
    anchors = np.cumsum(new_anchor) - 1
    which = anchors - np.maximum.accumulate(np.where(new_step, anchors, 0))
    size = np.bincount(anchors)[anchors]
    like = np.stack([alike[at_row], at_step, which, size, index - begins])
    values = np.where(new_anchor, host[point], np.diff(host[point], prepend=0)).astype(np.float64)
    typical = _typical(like, values)
    # a step of which some places have no like is compared as a whole
    in_step = np.cumsum(new_step) - 1
    known = (np.bincount(in_step, ~np.isfinite(typical)) == 0)[in_step]
    reached = np.cumsum(np.where(known, typical, 0.0))
    moved = np.empty(2 * count)
    moved[by] = np.where(known, reached - np.concatenate(([0.0], reached))[begins], host[point])
    has = np.empty(2 * count, np.bool_)
    has[by] = known
    some = has[segment]
    at = segment[some]
    before, length = host[first][at], (host[last] - host[first])[at]
    share = np.divide(host[some] - before, length, out=np.zeros(len(at)), where=length > 0)
    of_peers[own[some]] = np.maximum(moved[at] + share * (moved[count + at] - moved[at]), 0)


def _typical(like: Int64, values: Floats) -> Floats:
    """For each value the median of the values with the same column of `like`, the lower of two; NaN for one alone."""
    order = np.lexsort((values, *like))
    begin, ordered = run_starts(*like[:, order]), values[order]
    size = np.diff(np.append(begin, len(order)))
    low, high = ordered[begin + (size - 1) // 2], ordered[begin + size // 2]
    middle = np.where(size < 2, np.nan, np.where(size == 2, low, (low + high) / 2))
    medians = np.empty(len(values))
    medians[order] = np.repeat(middle, size)
    return medians


def _needless(replay: Replay, ranks: Int64, alike: Int64) -> Flags:
    """Which arcs make a host wait for a device where most of its peers' hosts do not wait.

    Waits correspond where the ranks have launched as many kernels in the step.
    """
    graph = replay.graph
    needless = np.zeros(len(graph.source), np.bool_)
    waits = np.flatnonzero(
        (replay.kind[graph.target] == HOST) & (replay.kind[graph.source] != HOST) & (replay.rank[graph.source] >= 0)
    )
    if not len(waits):
        return needless
    node = np.unique(graph.target[waits]).astype(np.int64)
    place, length = _launched_before(replay, node)
    steps = np.unique(replay.step[node])
    row = np.searchsorted(ranks, replay.rank[node])
    group = alike[row] * len(steps) + np.searchsorted(steps, replay.step[node])
    near = np.maximum(np.rint(_NEAR * length).astype(np.int64), 2)
    span = int(place.max()) + 2 * int(near.max()) + 2
    members = np.bincount(alike)[alike[row]]

    def within(key: Int64) -> Int64:
        center = key * span + place
        keys = distinct_rows(center, row)[0][0]  # waits of one rank at one place count once
        count: Int64 = np.searchsorted(keys, center + near, "right") - np.searchsorted(keys, center - near, "left")
        return count

    others = within(group) - within(group * len(ranks) + row)
    lonely = (members > 1) & (others < (members - 1) / 2) & (replay.step[node] >= 0)
    needless[waits] = lonely[np.searchsorted(node, graph.target[waits])]
    return needless


def _launched_before(replay: Replay, nodes: Int64) -> tuple[Int64, Int64]:
    """For each node of a host how much device work it had launched in the step before it, and in the whole step."""
    before, whole = np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64)
    for part, base in zip(replay.parts, replay.base.tolist(), strict=True):
        low, high = np.searchsorted(nodes, (base, base + len(part.when)))
        if low == high:
            continue
        count = np.bincount(part.cell_node, part.cell_count, len(part.when)).astype(np.int64)
        order = np.flatnonzero(part.kind != HOST)
        order = order[np.argsort(part.launched[order], kind="stable")]
        done = np.concatenate(([0], np.cumsum(count[order])))
        step = replay.step[base : base + len(part.when)]
        at = done[np.searchsorted(part.launched[order], part.when[nodes[low:high] - base], "left")]
        launches = rows_by(step[order])
        for number, mine in rows_by(step[nodes[low:high] - base]).items():
            own = launches.get(number)
            start, end = (int(done[own[0]]), int(done[own[-1] + 1])) if own is not None else (0, 0)
            before[low + mine] = np.clip(at[mine] - start, 0, end - start)
            whole[low + mine] = end - start
    return before, whole


def _transfers(replay: Replay, members: Any) -> Int64:
    """The median transfer time of all instances of one operation, size and number of members."""
    medians = np.zeros(len(replay.instance), np.int64)
    arcs = np.flatnonzero(replay.instance >= 0)
    for rows in rows_by(likes(members)[replay.instance[arcs]]).values():
        medians[arcs[rows]] = int(np.median(replay.work_ns[arcs[rows]]))
    return medians


def likes(members: Any) -> Int64:
    """For each instance the number of its kind: operation, size and number of members; by the instance's number."""
    instance = members.column("instance").to_numpy()
    op = coded(members.column("op"))[1]
    size = integers(members.column("bytes"), -1)
    first = np.unique(instance, return_index=True)[1]
    codes = np.full(int(instance.max(initial=-1)) + 1, -1, np.int64)
    codes[instance[first]] = distinct_rows(op[first], size[first], members.column("members").to_numpy()[first])[1]
    return codes
