"""How long each rank's device work takes in each step, by name, and what its peers take for the same.

The one place where a rank is put at its peers' pace: what-if questions, blame and losses rest on it. Peers are compared
step by step, so that a rank that is slow in some steps, or ever slower, is at its peers' pace in each of them. Ranks
that run the same kernels, and as many, are compared by the mean of each; a rank that runs other kernels than anybody by
all of its time of each.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from alltrace.replay.join import Replay
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import run_starts

_ALIKE = 0.02
"""Ranks are alike if their numbers of kernels of each name differ by at most this share of all."""


@dataclass(frozen=True)
class Pace:
    """The device work of ranks, steps and names that there is, by rank and key; arrays of n."""

    ranks: Int64  # ascending
    names: Int64  # of device work, as in `Work.name`, ascending
    alike: Int64  # for each rank the number of its class: ranks with the same kernels
    first: Int64  # for each rank its first row, and n
    key: Int64  # the place of the step among the run's, times the number of names, plus the place of the name
    spent_ns: Floats  # its summed time
    count: Floats  # how many pieces it is
    cells: tuple[NDArray[np.int32], ...]  # for each part of the replay the row of each of its cells

    @cached_property
    def _row(self) -> Int64:
        """The place of the rank of each."""
        return np.repeat(np.arange(len(self.ranks)), np.diff(self.first))

    @cached_property
    def of_peers(self) -> Floats:
        """What the peers take over what the rank takes, each against all others: float array of n; 1 without a peer."""
        return over_peers(self.alike, self._row, self.key, self.spent_ns, self.count)

    def of_unchanged(self, ranks: Collection[int]) -> Floats:
        """What the other ranks take over what `ranks` take, as `of_peers`, where several may be slow; 1 for others.

        Where every rank is among them, each is compared with all others.
        """
        chosen = np.isin(self.ranks, np.array(sorted(ranks), np.int64))
        mine = chosen[self._row]
        if chosen.sum() < 2 or chosen.all():
            return np.where(mine, self.of_peers, 1.0)
        # a class of which no rank is left is compared as a rank is that has no class
        left = np.bincount(self.alike, ~chosen, int(self.alike.max()) + 1) > 0
        known = left[self.alike][self._row]
        mean = self.spent_ns / self.count
        typical = np.where(
            known,
            _median_of(self.alike[self._row], self.key, mean, ~mine),
            _median_of(np.zeros_like(self.key), self.key, self.spent_ns, ~mine),
        )
        return np.where(mine, _over(typical, np.where(known, mean, self.spent_ns)), 1.0)


def pace_of(replay: Replay) -> Pace:
    """The device work of a run's ranks."""
    ranks = np.array(sorted(p.rank for p in replay.parts), np.int64)
    names, places = replay.names
    steps = replay.by_step[0]
    rows: dict[int, Floats] = {}
    keys: dict[int, Int64] = {}
    cells: list[NDArray[np.int32]] = []
    for part, base, place in zip(replay.parts, replay.base.tolist(), places, strict=True):
        step = np.searchsorted(steps, replay.step[base + part.cell_node])
        own, at = np.unique(step * max(len(names), 1) + place[part.cell_name], return_inverse=True)
        keys[part.rank] = own.astype(np.int64)
        rows[part.rank] = np.stack([np.bincount(at, values, len(own)) for values in (part.cell_ns, part.cell_count)])
        cells.append(at.astype(np.int32))
    size = [len(keys[rank]) for rank in ranks.tolist()]
    first = np.concatenate(([0], np.cumsum(size))).astype(np.int64)
    for number, part in enumerate(replay.parts):
        cells[number] += int(first[np.searchsorted(ranks, part.rank)])
    key = np.concatenate([np.empty(0, np.int64), *(keys[rank] for rank in ranks.tolist())])
    spent, count = np.concatenate([np.empty((2, 0)), *(rows[rank] for rank in ranks.tolist())], axis=1)
    of_name = np.zeros((len(ranks), len(names)))
    np.add.at(of_name, (np.repeat(np.arange(len(ranks)), size), key % max(len(names), 1)), count)
    return Pace(ranks, names, alike_ranks(of_name), first, key, spent, count, tuple(cells))


def alike_ranks(count: Floats) -> Int64:
    """Classes of ranks with the same kernels, of nearly the same number; `count` is (ranks, names)."""
    classes, heads = np.empty(len(count), np.int64), np.empty(len(count), np.int64)
    total, number = count.sum(axis=1), 0
    for row in range(len(count)):
        others = heads[:number]
        most = _ALIKE * np.maximum(total[row], total[others])
        near = np.flatnonzero(np.abs(total[row] - total[others]) <= most)  # ranks that the sums do not distinguish
        near = near[np.abs(count[row] - count[others[near]]).sum(axis=1) <= most[near]]
        if len(near):
            classes[row] = near[0]
        else:
            classes[row], heads[number] = number, row
            number += 1
    return classes


def work_factors(replay: Replay, pace: Pace, factors: Floats) -> Floats:
    """For each node the factor of its device work, from a factor for each row of `pace`; 1 without device work."""
    of_nodes = np.ones(len(replay.rank))
    for part, base, rows in zip(replay.parts, replay.base.tolist(), pace.cells, strict=True):
        own = factors[rows]
        if (own == 1).all():
            continue
        old, new = (np.bincount(part.cell_node, ns, len(part.when)) for ns in (part.cell_ns, part.cell_ns * own))
        some = np.flatnonzero(old > 0)
        of_nodes[base + some] = new[some] / old[some]
    return of_nodes


def over_peers(alike: Int64, row: Int64, key: Int64, spent_ns: Floats, count: Floats | float = 1.0) -> Floats:
    """What the peers take for the same key over what each row's rank takes; 1 without a peer.

    Ranks that are `alike` are compared by the mean of each of `count` pieces, one alone in its class with all others by
    all of its time.
    """
    alone = (np.bincount(alike) < 2)[alike][row]
    typical = _median_of_others(alike[row], key, spent_ns / count)
    if alone.any():
        typical = np.where(alone, _median_of_others(np.zeros_like(key), key, spent_ns), typical)
    return _over(typical, np.where(alone, spent_ns, spent_ns / count))


def _over(typical: Floats, own: Floats) -> Floats:
    """`typical` over `own`; 1 if one of them is not there."""
    return np.divide(typical, own, out=np.ones(len(own)), where=np.isfinite(typical) & (own > 0))


def _groups(group: Int64, key: Int64, values: Floats) -> tuple[Int64, Int64, Int64, Int64]:
    """The order by group, key and value; and in it of each its place in its group, and the group's begin and size."""
    order = np.lexsort((values, key, group))
    at = run_starts(group[order], key[order])
    size = np.diff(np.append(at, len(order)))
    begin, size = np.repeat(at, size), np.repeat(size, size)
    return order, np.arange(len(order)) - begin, begin, size


def _median_of_others(group: Int64, key: Int64, values: Floats) -> Floats:
    """Of each value the median of the others of its group and key; NaN for one alone.

    Of two, the faster shows what is possible; the slower is no target.
    """
    order, place, begin, size = _groups(group, key, values)
    ordered = values[order]
    medians = np.full(len(values), np.nan)
    several = np.flatnonzero(size > 1)
    low, high = (size[several] - 2) // 2, (size[several] - 1) // 2
    low, high = (begin[several] + p + (p >= place[several]) for p in (low, high))
    middle = (ordered[low] + ordered[high]) / 2
    medians[order[several]] = np.where(size[several] == 2, np.minimum(middle, ordered[several]), middle)
    return medians


def _median_of(group: Int64, key: Int64, values: Floats, of: Flags) -> Floats:
    """For each value the median of the values in `of` with its group and key, NaN without; else at most the value."""
    there = np.flatnonzero(of)
    order, place, begin, size = _groups(group[there], key[there], values[there])
    ordered, heads = values[there][order], np.flatnonzero(place == 0)
    middle = (ordered[begin + (size - 1) // 2] + ordered[begin + size // 2])[heads] / 2
    # the medians by group and key, to be looked up
    keys, wide = (group * (int(key.max(initial=0)) + 1) + key, np.full(len(values), np.nan))
    known = keys[there][order][heads]
    at = np.minimum(np.searchsorted(known, keys), max(len(known) - 1, 0))
    hit = np.flatnonzero(known[at] == keys) if len(known) else np.empty(0, np.int64)
    wide[hit] = np.where(size[heads][at[hit]] == 1, np.minimum(middle[at[hit]], values[hit]), middle[at[hit]])
    return wide
