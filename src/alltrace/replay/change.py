"""What would be different: the run replayed with some durations at their peers' median, or scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from alltrace.replay.graph import times
from alltrace.replay.peers import work_factors
from alltrace.trace.distinct import distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from alltrace.replay.join import Replay
    from alltrace.replay.peers import Peers

    Int64 = NDArray[np.int64]
    Floats = NDArray[np.float64]


NEVER = -(1 << 60)
"""The weight of an arc that is not there: nothing waits for it."""


@dataclass(frozen=True)
class Change:
    """What is changed.

    Attributes:
        ranks: The ranks whose device work and host change; None for none.
        names: The names of device work that change, on `ranks` or on all ranks; None for all names.
        instances: The collectives whose transfers change, as a boolean array by instance; None for none.
        scale: The factor; None for the peers' median.
    """

    ranks: frozenset[int] | None = None
    names: frozenset[int] | None = None
    instances: NDArray[np.bool_] | None = None
    scale: float | None = None


def changed_weights(replay: Replay, peers: Peers, change: Change) -> Int64:
    """The weights of the graph's arcs under a change: int64 array of m, ns."""
    target = replay.graph.target
    dropped = np.zeros(len(target), np.bool_)
    transfer = replay.instance >= 0
    work, host = replay.work_ns.astype(np.float64), replay.host_ns.astype(np.float64)
    if change.ranks is not None or change.names is not None:
        chosen = np.ones(len(peers.names), np.bool_)
        if change.names is not None:
            chosen = np.isin(peers.names, np.array(sorted(change.names), np.int64))
        untouched = np.ones(len(peers.names))

        def factor(rank: int) -> Floats:
            if change.ranks is not None and rank not in change.ranks:
                return untouched
            own = peers.name_factor[int(np.searchsorted(peers.ranks, rank))]
            return np.where(chosen, own if change.scale is None else change.scale, 1.0)

        work = np.where(transfer, work, work * work_factors(replay, factor, peers.names)[target])
        if change.ranks is not None and change.names is None:
            touched = np.isin(replay.rank[target], np.array(sorted(change.ranks), np.int64))
            host = np.where(touched, peers.host_ns if change.scale is None else host * change.scale, host)
            if change.scale is None:
                dropped = touched & peers.needless
    if change.instances is not None:
        touched = transfer & change.instances[np.maximum(replay.instance, 0)]
        work = np.where(touched, peers.transfer_ns if change.scale is None else work * change.scale, work)
    weights = replay.fixed_ns + replay.idle_ns + np.rint(work).astype(np.int64) + np.rint(host).astype(np.int64)
    return np.where(dropped, NEVER, weights)


def step_ends_ns(replay: Replay, when: Int64) -> dict[int, int]:
    """When each training step's last work ended, ns from the run's first moment; by step."""
    steps, place = distinct(replay.step)
    last = np.zeros(len(steps), np.int64)
    np.maximum.at(last, place, when)
    return {int(s): int(e) for s, e in zip(steps, last, strict=True) if s >= 0}


def replayed(replay: Replay, weights: Int64) -> tuple[int, dict[int, int]]:
    """How long the run takes under `weights`, and the time of each step: from the last end of the one before to its own, ns."""
    when, _ = times(replay.graph, weights)
    ends = step_ends_ns(replay, when)
    found = {}
    # the first step begins when it was recorded to, so that what comes before its first work counts under any weights
    of_steps = replay.when[replay.step >= 0]
    before = int(of_steps.min() - replay.when[0]) if len(of_steps) else 0
    for step in sorted(ends):
        found[step] = max(ends[step] - before, 0)
        before = max(before, ends[step])
    return int(when.max()) if len(when) else 0, found
