"""What the job would get back: the run replayed once, then with less of what a finding names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.recipes.diagnose.gaps import HOST_CLASSES
from alltrace.recipes.diagnose.host_time import BLOCKING
from alltrace.replay.change import NEVER, replayed
from alltrace.replay.join import join
from alltrace.replay.rank_graph import COMPUTE, COPY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.recipes.diagnose.host_time import Contribution, HostTime
    from alltrace.replay.rank_graph import RankGraph

    Int64 = NDArray[np.int64]
    Float = NDArray[np.float64]

MOST_ERROR = 0.05
"""A replay that is further from the unchanged run answers nothing."""


@dataclass(frozen=True)
class Gain:
    """What the job gets back, ns, and whether a `replay` or a `ceiling` tells it."""

    lost_ns: int
    basis: str = "ceiling"


class Regain:
    """A run that can be replayed with less of something.

    Args:
        given: What each rank gives, with its graph.
        alignment: The run's alignment (`alltrace.align.aligned.Aligned`).
        steps: The judged steps; None to judge the whole run as one.
    """

    def __init__(self, given: Mapping[int, Contribution], alignment: Any, steps: Int64 | None) -> None:
        graphs: list[RankGraph] = [g.graph for g in given.values()]
        self._hosts: list[HostTime] = [g.host for g in given.values() if g.host is not None]
        self._steps = steps
        self._members = alignment.members
        self.replay = join(graphs, alignment.members, alignment.steps)
        # where each rank's arcs are in the joint graph: after those of each rank comes one to its first moment
        count = np.array([len(g.source) + 1 for g in graphs])
        self._first_arc = np.concatenate(([0], np.cumsum(count)))[:-1]
        self._place = np.full(int(max(self.replay.graph.arcs.max(initial=-1), self.replay.graph.dropped.max(initial=-1))) + 1, -1)
        self._place[self.replay.graph.arcs] = np.arange(len(self.replay.graph.arcs))
        self._before = replayed(self.replay, self.replay.weights)

    @property
    def error(self) -> float:
        """How far the replay of the unchanged run is from it, as a share of it."""
        return self.replay.error

    def saved_ns(self, weights: Int64) -> int:
        """How much shorter the judged steps are under `weights`, ns; 0 where they are not."""
        whole, steps = replayed(self.replay, weights)
        before_whole, before_steps = self._before
        if self._steps is None:
            return max(before_whole - whole, 0)
        return max(sum(before_steps[s] - steps[s] for s in self._steps.tolist() if s in before_steps), 0)

    def less_work(self, kind: int, ranks: Int64, steps: Sequence[int] | None, share: Float) -> Int64:
        """The weights with less device work.

        Args:
            kind: Class of the work, `COMPUTE` or `COPY`.
            ranks: The ranks, ascending.
            steps: The steps, ascending; None where the whole run is one.
            share: Float array (ranks, steps): the part of the work that is left out.
        """
        replay = self.replay
        node = np.flatnonzero((replay.kind == kind) & np.isin(replay.rank, ranks))
        row = np.searchsorted(ranks, replay.rank[node])
        factor = np.ones(len(replay.kind))
        if steps is None:
            factor[node] -= share[row, 0]
        else:
            numbers = np.asarray(steps, np.int64)
            column = np.minimum(np.searchsorted(numbers, replay.step[node]), max(len(numbers) - 1, 0))
            known = numbers[column] == replay.step[node]
            factor[node] -= np.where(known, share[row, column], 0.0)
        transfer = replay.instance >= 0
        work = np.where(transfer, replay.work_ns, np.rint(replay.work_ns * factor[replay.graph.target]))
        weights: Int64 = replay.fixed_ns + replay.idle_ns + replay.host_ns + work.astype(np.int64)
        return weights

    def less_compute(self, ranks: Int64, steps: Sequence[int] | None, share: Float) -> Int64:
        """`less_work` of kernels."""
        return self.less_work(COMPUTE, ranks, steps, share)

    def less_copies(self, shares: Mapping[int, float]) -> Int64:
        """The weights with shorter copies on some ranks, by the part that is left out."""
        ranks = np.array(sorted(shares), np.int64)
        return self.less_work(COPY, ranks, None, np.array([[shares[r]] for r in ranks.tolist()]))

    def less_transfer(self, shares: Mapping[int, float]) -> Int64:
        """The weights with shorter transfers of some communicators, by the part that is left out."""
        replay = self.replay
        instance, group = (self._members.column(c).to_numpy().astype(np.int64) for c in ("instance", "communicator"))
        factor = np.ones(int(instance.max(initial=-1)) + 1)
        for number, share in shares.items():
            factor[instance[group == number]] = 1 - share
        transfer = replay.instance >= 0
        work = replay.work_ns.copy()
        work[transfer] = np.rint(work[transfer] * factor[replay.instance[transfer]]).astype(np.int64)
        weights: Int64 = replay.fixed_ns + replay.idle_ns + replay.host_ns + work
        return weights

    def no_idle(self) -> Int64:
        """The weights without pauses that nothing explains; ranks begin when they did."""
        replay = self.replay
        return replay.weights - np.where(replay.graph.source == 0, 0, replay.idle_ns)

    def no_host(self, name: str) -> Int64 | None:
        """The weights without what one of `HOST_CLASSES` takes of the host, and without its waits; None where that is no change.

        Of the waits of class `sync` the last of a rank's step stays: a program reads its loss.
        """
        column = HOST_CLASSES.index(name)
        weights = self.replay.weights.copy()
        changed = False
        away = np.zeros(len(self.replay.kind), np.bool_)
        for host, part, first, base in zip(
            self._hosts, self.replay.parts, self._first_arc.tolist(), self.replay.base.tolist(), strict=True
        ):
            gone = host.wait_arc[host.wait_class == column] if name in BLOCKING else np.empty(0, np.int64)
            if name == "sync":
                gone = gone[~self._last_of_step(part, base, gone)]
            taken = host.times[:, column].copy()
            if name == "launch":
                taken -= np.where(host.after_class >= 0, host.after, 0)
            elif len(gone):
                left_out = np.isin(part.source[host.arc], part.target[gone])
                taken += np.where(left_out, host.after, 0)
            self._reduce(weights, first + host.arc, taken)
            place = self._place[first + gone]
            weights[place[place >= 0]] = NEVER
            changed |= bool(taken.any() or len(gone))
            # these copies go to a stream of their own, where nothing waits for them
            away[base : base + len(part.when)] = host.copy_class == column
        weights -= np.where(away[self.replay.graph.target], self.replay.work_ns, 0)
        return weights if changed else None

    def _reduce(self, weights: Int64, arcs: Int64, taken: Int64) -> None:
        place = self._place[arcs]
        there = place >= 0
        weights[place[there]] -= taken[there]

    def _last_of_step(self, part: RankGraph, base: int, arcs: Int64) -> NDArray[np.bool_]:
        """Which arcs lead to the last of their step's waits."""
        node = part.target[arcs]
        step = self.replay.step[base + node]
        found: NDArray[np.bool_] = np.zeros(len(arcs), np.bool_)
        if len(arcs):
            numbers, at = np.unique(step, return_inverse=True)
            latest = np.full(len(numbers), -1)
            np.maximum.at(latest, at, node)  # the host's moments are numbered by time
            found = node == latest[at]
        return found
