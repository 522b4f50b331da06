"""What would be different: the run replayed with some durations at their peers' median, or scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.replay.graph import times
from alltrace.replay.join import Replay
from alltrace.replay.pace import Pace, work_factors
from alltrace.replay.peers import Peers
from alltrace.trace.arrays import Flags, Floats, Int64

NEVER = -(1 << 60)
"""The weight of an arc that is not there: nothing waits for it."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is changed."""

    ranks: frozenset[int] | None = None  # whose device work and host change; None for none
    names: frozenset[int] | None = None  # of device work that changes, on `ranks` or on all; None for all names
    kinds: frozenset[int] | None = None  # of device work (`COMPUTE`, ...), and not the host; None for all, and the host
    instances: Flags | None = None  # by instance: the collectives whose transfers change; None for none
    scale: float | None = None  # the factor; None for the peers' median


def changed_weights(replay: Replay, peers: Peers, change: Change) -> Int64:
    """The weights of the graph's arcs under a change: int64 array of m, ns."""
    weights = replay.weights
    transfer = replay.instance >= 0
    if change.ranks is not None or change.names is not None:
        factors = _factors(peers.pace, change)
        of_ranks = np.ones(len(transfer), np.bool_)
        if change.ranks is not None:
            of_ranks = np.isin(replay.rank, np.array(sorted(change.ranks), np.int64))[replay.graph.target]
        changed = of_ranks & ~transfer
        if change.kinds is not None:
            changed &= np.isin(replay.kind, np.array(sorted(change.kinds), np.int8))[replay.graph.target]
        arcs = np.flatnonzero(changed)
        before = replay.work_ns[arcs]
        weights[arcs] += (
            _rounded(before * work_factors(replay, peers.pace, factors)[replay.graph.target[arcs]]) - before
        )
        if change.ranks is not None and change.names is None and change.kinds is None:
            arcs = np.flatnonzero(of_ranks)
            before = replay.host_ns[arcs]
            weights[arcs] += (peers.host_ns[arcs] if change.scale is None else _rounded(before * change.scale)) - before
            if change.scale is None:
                weights[arcs[peers.needless[arcs]]] = NEVER
    if change.instances is not None:
        arcs = np.flatnonzero(transfer)
        arcs = arcs[change.instances[replay.instance[arcs]] & (weights[arcs] != NEVER)]
        before = replay.work_ns[arcs]
        weights[arcs] += (peers.transfer_ns[arcs] if change.scale is None else _rounded(before * change.scale)) - before
    return weights


def _factors(pace: Pace, change: Change) -> Floats:
    """The factor of each row of `pace`."""
    ranks = pace.ranks.tolist() if change.ranks is None else change.ranks
    if change.scale is None:
        factors = pace.of_unchanged(ranks)
    else:
        rows = np.isin(pace.ranks, np.array(sorted(ranks), np.int64))
        factors = np.where(np.repeat(rows, np.diff(pace.first)), change.scale, 1.0)
    if change.names is not None:
        place = np.flatnonzero(np.isin(pace.names, np.array(sorted(change.names), np.int64)))
        factors = np.where(np.isin(pace.key % max(len(pace.names), 1), place), factors, 1.0)
    return factors


def _rounded(values: NDArray[np.floating[Any]]) -> Int64:
    whole: Int64 = np.rint(values).astype(np.int64)
    return whole


def replayed(replay: Replay, weights: Int64) -> tuple[int, dict[int, int]]:
    """How long the run takes under `weights`, and the time of each step: from the last one's end to its own, ns."""
    when, _ = times(replay.graph, weights)
    steps, order, begin = replay.by_step
    last = np.maximum(np.maximum.reduceat(when[order], begin), 0) if len(order) else np.zeros(len(steps), np.int64)
    step_ns = {}
    # the first step begins when it was recorded to, so that what comes before its first work counts under any weights
    before = replay.steps_begin_ns
    for step, end in zip(steps.tolist(), last.tolist(), strict=True):  # ascending, and first what is of no step
        if step >= 0:
            step_ns[step] = max(end - before, 0)
            before = max(before, end)
    return int(when.max()) if len(when) else 0, step_ns
