"""The critical path of a run: who and what it goes through, and what of it goes beyond what the peers take.

The path is the longest of the graph (Böhme et al., Scalable critical-path based performance analysis, IPDPS 2012):
backwards from the last end, through a rank's own work to what it waited for, and at a collective to the rank that
arrived last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alltrace.replay.graph import longest_path, slack_ns
from alltrace.replay.join import Replay
from alltrace.replay.pace import work_factors
from alltrace.replay.peers import Peers
from alltrace.replay.rank_graph import COMPUTE, COPY, OTHER, TRANSFER
from alltrace.trace.arrays import Floats, Int64
from alltrace.trace.distinct import rows_by

CLASSES = ("compute", "transfer", "communication", "copy", "host", "gap", "idle")
"""What the path goes through: kernels; matched collectives after the last arrival; communication that no other rank's
matches; copies; the host; launch latency and pauses of devices; time that nothing explains."""

_OF_WORK = {COMPUTE: 0, TRANSFER: 1, OTHER: 2, COPY: 3}
_HOST, _GAP, _IDLE = 4, 5, 6


@dataclass(frozen=True)
class Pieces:
    """The critical path in pieces without gap or overlap, by time; arrays of k."""

    start: Int64  # ns from the run's first moment
    duration: Int64  # ns; they sum to the makespan
    rank: Int64
    kind: Int64  # number among `CLASSES`
    arc: Int64  # of the graph, that the piece is of

    @property
    def makespan_ns(self) -> int:
        """The length of the path."""
        return int(self.duration.sum())


def critical_path(replay: Replay) -> Pieces:
    """The critical path of the run as it was recorded."""
    when, via = replay.recorded
    path = longest_path(replay.graph, when, via)
    target, source = replay.graph.target[path], replay.graph.source[path]
    rank = np.where(replay.rank[target] >= 0, replay.rank[target], replay.rank[source])
    work_kind = np.array([_OF_WORK.get(k, _GAP) for k in range(max(_OF_WORK) + 2)])[np.minimum(replay.kind[target], 4)]
    work_kind = np.where(replay.instance[path] >= 0, 1, work_kind)
    # within an arc: first the host, then what passes until the device begins, then its work
    parts = (replay.host_ns, replay.fixed_ns, replay.idle_ns, replay.work_ns)
    length = np.stack([p[path] for p in parts], axis=1, dtype=np.int64)
    kind = np.stack([np.full(len(path), k) for k in (_HOST, _GAP, _IDLE)] + [work_kind], axis=1)
    # a pause below zero (work that overlaps the work before it) shortens the work
    length[:, 3] += np.minimum(length[:, 1], 0)
    length[:, 1] = np.maximum(length[:, 1], 0)
    duration, kind = length.ravel(), kind.ravel()
    rank, arc = np.repeat(rank, 4), np.repeat(path, 4)
    lasting = duration != 0
    duration, kind, rank, arc = duration[lasting], kind[lasting], rank[lasting], arc[lasting]
    begin = int(when[source[0]]) if len(path) else 0
    start = begin + np.concatenate(([0], np.cumsum(duration)))[:-1] if len(duration) else duration
    return Pieces(start, duration, rank, kind, arc)


def rank_slack_ns(replay: Replay) -> dict[int, int]:
    """How much longer each rank could take, at its tightest place, without the run taking longer."""
    slack = slack_ns(replay.graph, replay.weights, replay.recorded[0])
    # an end of a collective is the whole group's; a rank's own are the ends of its work and its arrivals
    waits = np.zeros(replay.graph.nodes, np.bool_)
    waits[replay.graph.target[replay.instance >= 0]] = True
    own = np.flatnonzero((replay.rank >= 0) & ~waits)
    tightest: dict[int, int] = {}
    for part, base in zip(replay.parts, replay.base.tolist(), strict=True):
        mine = own[slice(*np.searchsorted(own, (base, base + len(part.when))))]
        mine = mine[np.isin(replay.kind[mine], (COMPUTE, COPY, TRANSFER, OTHER))]
        if len(mine):
            tightest[part.rank] = int(slack[mine].min())
    return tightest


def excess_ns(replay: Replay, peers: Peers) -> Floats:
    """What each arc of the graph takes beyond what its peers take: float array of m, ns; below 0 if it was faster."""
    by_work = work_factors(replay, peers.pace, peers.pace.of_peers)[replay.graph.target]
    own = replay.work_ns * (1 - by_work) + replay.host_ns - peers.host_ns
    excess: Floats = np.where(replay.instance >= 0, replay.work_ns - peers.transfer_ns, own)
    return excess


def blame_ns(replay: Replay, peers: Peers) -> tuple[dict[int, float], float]:
    """What of the critical path goes beyond what the peers take: by rank for device work and host, and of transfers.

    Negative where the path goes through work that was faster than the peers'.
    """
    path = longest_path(replay.graph, *replay.recorded)
    excess, transfer = excess_ns(replay, peers)[path], replay.instance[path] >= 0
    by_rank = {p.rank: 0.0 for p in replay.parts}
    for rank, rows in rows_by(np.where(transfer, -1, replay.rank[replay.graph.target[path]])).items():
        if rank >= 0:
            by_rank[rank] = float(excess[rows].sum())
    return by_rank, float(excess[transfer].sum())
