"""Who would have to change: waits traced back, through ranks late because of others, to the work that took too long.

The rank that arrives last at a collective need not be slow. It may have waited for a slow rank before, as the mates of
that rank in a ring or in a pipeline do. So a wait is followed backwards along what decided when the last one arrived,
to its root causes (Böhme et al., Identifying the root causes of wait states in large-scale parallel applications, ICPP
2010). What the work and the hosts on this chain take beyond what their peers take for the same is to blame, until it
makes up for the wait.
"""

from __future__ import annotations

import numpy as np

from alltrace.replay.join import Replay
from alltrace.replay.path import excess_ns
from alltrace.replay.peers import Peers
from alltrace.trace.arrays import Floats, Int64

_LEAST_SHARE = 0.1
"""Where less of a wait than this is explained, the rank that arrived last is to blame itself."""

_ENOUGH = 0.99
"""A wait is explained if this share of it is."""

NOBODY = -1
"""Marks slow transfers, which belong to no rank."""


def root_causes(replay: Replay, peers: Peers, node: Int64, wait_ns: Int64, since: Int64) -> tuple[Int64, Int64, Floats]:
    """Which ranks are to blame for waits: the number of a wait, a rank or `NOBODY`, and its share; these sum to 1.

    Of each wait `node` is that at which the last rank arrived, -1 if there is none, and `wait_ns` the longest there.
    Waits are followed back to the moment `since`, ns on the aligned clock: when those who wait had last met. One that
    nothing explains is missing.
    """
    via, source = replay.recorded[1], replay.graph.source
    excess = excess_ns(replay, peers)
    blamed = np.where(replay.instance >= 0, NOBODY, replay.rank[replay.graph.target])
    at = np.flatnonzero(node >= 0)
    here, explained = node[at].astype(np.int64), np.zeros(len(at))
    shares: list[tuple[Int64, Int64, Floats]] = []
    while len(at):
        arc = via[here]
        on = (arc >= 0) & (replay.when[here] > since[at]) & (explained < _ENOUGH * wait_ns[at])
        at, here, explained, arc = at[on], here[on], explained[on], arc[on]
        shares.append((at, blamed[arc], excess[arc]))
        explained = explained + excess[arc]
        here = source[arc].astype(np.int64)
    waits, ranks = (np.concatenate([f[n] for f in shares] or [np.empty(0, np.int64)]) for n in (0, 1))
    amounts = np.concatenate([f[2] for f in shares] or [np.empty(0)])
    width = int(replay.rank.max(initial=0)) + 2
    keys, place = np.unique(waits * width + ranks - NOBODY, return_inverse=True)
    sums = np.maximum(np.bincount(place, amounts, len(keys)), 0)
    wait, rank = keys // width, keys % width + NOBODY
    whole = np.bincount(wait, sums, len(node))
    enough = (whole[wait] >= _LEAST_SHARE * wait_ns[wait]) & (sums > 0)
    return wait[enough], rank[enough], sums[enough] / whole[wait[enough]]
