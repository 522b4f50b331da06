"""How sure it is which ranks communicate: of each communicator and of the whole run, from 0 to 1."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from alltrace.align.disjoint_sets import DisjointSets
from alltrace.align.related_clocks import RankClock
from alltrace.align.schema import LEAST_MATCHING_SCORE
from alltrace.align.timelines import AnyTimelines, message_keys
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import distinct_rows, rows_by

FEW = 10
"""Of so few operations a share says nothing."""
_DOUBTFUL = 0.75


class Explained:
    """How well operations are explained, from 0 to 1, over those that could have a partner.

    An operation is explained by its confidence, times the share of its communicator's members that were captured at the
    time and are in its instance, of `size` members. One that ends while no other member was captured has no partner to
    be found.
    """

    def __init__(self, timelines: AnyTimelines, clocks: Mapping[int, RankClock], size: Int64) -> None:
        self._timelines, self._clocks, self._size = timelines, clocks, size
        self._several = len({c.component for c in clocks.values()}) > 1
        self._sum: defaultdict[int, float] = defaultdict(float)
        self._many: Counter[int] = Counter()
        self._whole: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self._all: Counter[int] = Counter()
        kinds = timelines.kinds
        pairs = distinct_rows(kinds.communicator, kinds.member)[0]
        every = list(timelines.extents)
        extents = {m: tuple(clocks[m].common(t) for t in its) for m, its in timelines.extents.items()}
        self._captured: dict[tuple[int, int], tuple[Floats, Floats]] = {}
        for group, places in rows_by(pairs[0]).items():
            members = pairs[1][places].tolist() if group >= 0 else every
            of_component = defaultdict(list)
            for member in members:
                of_component[clocks[member].component].append(extents[member])
            for component, its in of_component.items():
                first, last = np.sort(np.array(its), axis=0).T
                self._captured[group, component] = first, last

    def add(self, member: int, instance: Int64, confidence: Floats) -> None:
        """Judge the operations of a member; of each its instance, -1 without one, and how sure it is of it."""
        its, kinds, clock = self._timelines.of(member), self._timelines.kinds, self._clocks[member]
        group, end = kinds.communicator[its.kind], clock.common(its.end)
        most = np.where(message_keys(kinds) >= 0, 2, np.iinfo(np.int64).max)  # a message has two members
        seen = (
            np.where(instance >= 0, self._size[instance], 0) if len(self._size) else np.zeros(len(instance), np.int64)
        )
        for number, rows in rows_by(group).items():
            first, last = self._captured[number, clock.component]
            expected = np.searchsorted(first, end[rows], "right") - np.searchsorted(last, end[rows], "left")
            counts = expected >= 2
            expected = np.minimum(expected, most[its.kind[rows]])
            if number < 0 and self._several:
                counts = np.ones(len(rows), np.bool_)
            share = np.minimum(seen[rows] / np.maximum(expected, 1), 1.0)
            value = np.where(seen[rows] >= 2, confidence[rows] * np.where(counts, share, 1.0), 0.0)
            self._sum[number] += float(value[counts].sum())
            self._many[number] += int(counts.sum())
            self._all[number] += len(rows)
            sizes, many = np.unique(seen[rows], return_counts=True)
            self._whole[number].update(dict(zip(sizes.tolist(), many.tolist(), strict=True)))

    def score(self, connecting: float) -> float | None:
        """The mean over all, where communicators connect this share of the pairs of members; None if none counts."""
        many = self._many.total()
        return round(connecting * sum(self._sum.values()) / many, 3) if many else None

    def score_of(self, group: int, connecting: float) -> float:
        """The same of one communicator, 1 if none counts."""
        return round(connecting * self._sum[group] / self._many[group], 3) if self._many[group] else 1.0

    def whole_share(self, group: int, size: int) -> float:
        """The share of a communicator's operations whose instance has this many members."""
        return self._whole[group][size] / max(self._all[group], 1)

    @property
    def unnamed(self) -> float:
        """The share of the operations that count whose communicator is unknown."""
        return self._many[-1] / max(self._many.total(), 1)


def connected(communicator: Int64, member: Int64, every: Int64) -> tuple[float, int]:
    """The share of pairs of members that chains of communicators connect, and how many parts none connects."""
    place = {int(r): n for n, r in enumerate(every.tolist())}
    first: dict[int, int] = {}
    rows = zip(communicator.tolist(), (place[number] for number in member.tolist()), strict=True)
    parts = DisjointSets(len(place), ((first.setdefault(group, at), at) for group, at in rows))
    sizes = np.unique(parts.labels(), return_counts=True)[1]
    return float((sizes * (sizes - 1)).sum() / (len(place) * (len(place) - 1))) if len(place) > 1 else 1.0, len(sizes)


def lacking(timelines: AnyTimelines, clocks: Mapping[int, RankClock], alone: Mapping[int, Flags]) -> dict[int, float]:
    """For each rank the share of its operations that are `alone`, while every rank of its component was captured."""
    if len(timelines.extents) < 2:
        return {}
    of_component: defaultdict[int, list[int]] = defaultdict(list)
    for member in timelines.extents:
        of_component[clocks[member].component].append(member)
    without: Counter[int] = Counter()
    inside: Counter[int] = Counter()
    for members in of_component.values():
        begins, stops = zip(*([clocks[m].common(t) for t in timelines.extents[m]] for m in members), strict=True)
        begin, stop = (max(begins), min(stops)) if len(members) > 1 else (-np.inf, np.inf)
        for member in members:
            end = clocks[member].common(timelines.of(member).end)
            mine = (end >= begin) & (end <= stop)
            rank = timelines.rank_of(member)
            inside[rank] += int(mine.sum())
            without[rank] += int((mine & alone[member]).sum())
    return {rank: without[rank] / many for rank, many in sorted(inside.items()) if many > FEW}


def reason_of(score: float | None, unnamed: float, certainty: Mapping[int, float], apart: int) -> str | None:
    """Why a score is too low to rely on, None if it is not; nothing connects the clocks of `apart` parts of the run."""
    if score is None or score >= LEAST_MATCHING_SCORE:
        return None
    why = [f"{100 * (1 - score):.0f} % of the communication is not explained"]
    if unnamed:
        why.append(f"for {100 * unnamed:.0f} % the communicator is known neither from the reports nor from the times")
    doubtful = sum(c < _DOUBTFUL for c in certainty.values())
    if apart > 1:
        why.append(f"the clocks of {apart} groups of ranks could not be related: no communicator connects them")
    elif doubtful:
        why.append(
            f"the clocks of {doubtful} of {len(certainty)} ranks are related to the others' with little certainty"
        )
    return "; ".join(why)
