"""Communicators that nothing names, inferred from structure: which sets of ranks end operations together, again and again.

All members of a collective end it together, to within microseconds, and so do the two ends of a message. A stream may carry
operations of several communicators, and groups that work in step end nearly together, so no single operation determines its
members. Candidates are the sets that are seen to end together, and the regular ones: ranks at a constant stride, as grids of
tensor, data, pipeline, context and expert parallel groups have. Each operation has a likelihood ratio for each candidate: for a
mate with its nearest end d away, ``log(e + (1 - e) w / 2b exp(-|d| / b))``, with b the usual scatter of ends, w the width in which
ends of others fall, and e the share of ends that are recorded wrongly. Candidates are taken while they explain operations that no
other explains, and more of them than when the mates' clocks are wrong by some scatters, which is what chance explains.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from alltrace.align.operations import telling_streams
from alltrace.trace.distinct import distinct_rows, rows_by

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from alltrace.align.coarse_clocks import RankClock
    from alltrace.align.timelines import Timelines

    Floats = NDArray[np.float64]
    Members = tuple[int, ...]

_WRONG = 0.02
_AROUND_NS = 60_000.0
_LEAST_SCATTER_NS, _MOST_SCATTER_NS = 300.0, 8_000.0
_SAMPLE = 320
"""Operations of a rank that candidates are judged by."""
_WINDOWS = 8
_MOST_MATES = 12
_MOST_ANCHORS = 64
"""The most ranks that evaluate the regular candidates; with more ranks, a sample is used."""
_MOST_SEEN = 48
_MOST_CROSSED = 12
_MOST_TAKEN = 8
_SHIFTS = (-10.0, -6.0, 6.0, 10.0)
_LEAST_EXPLAINED = 3
_DIFFERENT = 1.63
_LEAST_CLEAR = 0.15
_LEAST_SPREAD = 0.1
_LEAST_TIMES, _SURE_TIMES = 1.25, 1.5
_PAIRS_SURE = 0.9
_NEAR_NS = 1_000.0
_ROUNDS = 8
_LEAST_RATIO = 2.0
_SURE_RATIO = 4.0
_MARGIN_NS = 1e12


@dataclass(frozen=True)
class Inferred:
    """Communicators found.

    Attributes:
        of: For each operation of a rank, as its timeline has them, the number of its communicator, -1 if none was found.
        scores: For each communicator how clearly it was distinguished from others, from 0 to 1.
    """

    of: Callable[[int], NDArray[np.int64]]
    scores: list[float]


class _Part(NamedTuple):
    """The operations of one rank in a pool, by their end: their times on one clock, ns, and their places in its timeline."""

    start: Floats
    end: Floats
    place: NDArray[np.int64]


@dataclass
class _Pool:
    """Operations that may be of one communicator: of one component and token, and stream if streams distinguish them.

    Attributes:
        of: The operations of a rank.
        counts: For each rank, by number, how many they are.
        extents: For each rank the first and the last end, ns.
        scatter: The usual distance of the ends of an instance, ns.
        width: The width in which ends of others fall, ns.
        pairs: Whether they are messages, which two ranks exchange.
        component: The component of the ranks.
        stream: The stream, -1 where streams do not say.
        taken: For each rank the sets that explain its operations.
        clear: For each set how clearly each sampled rank distinguished it from others.
    """

    of: Callable[[int], _Part]
    counts: dict[int, int]
    pairs: bool
    component: int
    stream: int
    extents: dict[int, tuple[float, float]] = field(default_factory=dict)
    scatter: float = 0.0
    width: float = 0.0
    taken: dict[int, list[Members]] = field(default_factory=dict)
    clear: dict[Members, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scatter = _scatter(self)
        gaps = []
        for rank in self.counts:
            end = self.of(rank).end
            self.extents[rank] = float(end[0]), float(end[-1])
            gaps.append(float(np.median(np.diff(end))) if len(end) > 1 else np.inf)
        self.width = float(np.clip(min(gaps) / 2, 4 * self.scatter, _AROUND_NS))

    def inside(self, rank: int, times: Floats) -> NDArray[np.bool_]:
        """Which times are while a rank was captured."""
        first, last = self.extents[rank]
        return (times >= first - self.width) & (times <= last + self.width)


def infer_communicators(timelines: Timelines, clocks: Mapping[int, RankClock]) -> Inferred:
    """The communicators of operations that nothing names.

    Args:
        timelines: The operations of all ranks.
        clocks: The clock of each rank.
    """
    numbers: dict[tuple[int, Members], int] = {}
    clear: list[list[float]] = []
    pools = _pools(timelines, clocks)
    for pool in pools:
        _take(pool)
    for pool in pools:
        _split_by_place(pool, [other for other in pools if other.component == pool.component])
    for pool in pools:
        for members in (m for sets in pool.taken.values() for m in sets):
            number = numbers.setdefault((pool.stream, members), len(numbers))
            if number == len(clear):
                clear.append([])
            clear[number] += pool.clear.get(members, [])

    def labels(rank: int) -> NDArray[np.int64]:
        found = np.full(len(timelines.of(rank).end), -1, np.int64)
        for pool in (p for p in pools if rank in p.taken):
            sets = pool.taken[rank]
            its = np.array([numbers[pool.stream, members] for members in sets])
            found[pool.of(rank).place] = its[_labels(pool, rank, sets)]
        return found

    return Inferred(labels, [float(np.mean(c)) if c else 0.0 for c in clear])


def _pools(timelines: Timelines, clocks: Mapping[int, RankClock]) -> list[_Pool]:
    """The pools of operations that synchronise or exchange and have no communicator."""
    kinds = timelines.kinds
    rows = np.flatnonzero((kinds.synchronising | kinds.exchanging) & (kinds.communicator < 0))
    if not len(rows):
        return []
    components = np.array([clocks[r].component for r in timelines.extents], np.int64)
    component = components[np.searchsorted(list(timelines.extents), kinds.rank[rows])]
    of, number = distinct_rows(component, kinds.token[rows], telling_streams(kinds, rows))
    pool_of = np.full(len(kinds), -1, np.int64)
    pool_of[rows] = number
    zero = min(clocks[r].common(first) for r, (first, _) in timelines.extents.items()) - _MARGIN_NS
    pools = []
    for pool, mine in rows_by(number).items():
        counts = np.bincount(kinds.rank[rows[mine]], timelines.counts[rows[mine]])
        ranks = np.flatnonzero(counts)
        if len(ranks) < 2:
            continue

        def part(rank: int, pool: int = pool) -> _Part:
            its = timelines.of(rank)
            place = np.flatnonzero(pool_of[its.kind] == pool)
            shift, speed = clocks[rank].shift_ns, 1.0 - clocks[rank].rate
            start, end = (((t[place] + shift) * speed - zero).astype(np.float64) for t in (its.start, its.end))
            return _Part(start, end, place)

        of_rank = dict(zip(ranks.tolist(), counts[ranks].astype(np.int64).tolist(), strict=True))
        kept = lru_cache(timelines.ranks_at_once)(part)
        exchanging = bool(kinds.exchanging[rows[mine[0]]])
        pools.append(_Pool(kept, of_rank, exchanging, int(of[0, pool]), int(of[2, pool])))
    return pools


def _scatter(pool: _Pool) -> float:
    """The usual distance between the ends of an instance: from each rank's end to that of the rank with the closest ends."""
    found = []
    ranks = list(pool.counts)
    for rank in _anchors(ranks)[:: max(1, min(len(ranks), _MOST_ANCHORS) // 16)]:
        own = pool.of(rank).end
        own = own[np.linspace(0, len(own) - 1, min(len(own), _SAMPLE // 2)).astype(np.int64)]
        distances = [np.abs(_distance(own, pool.of(r).end)) for r in _mates(tuple(ranks), rank, _MOST_ANCHORS)]
        sharp = [float((1.0 / (1.0 + np.square(d / _NEAR_NS))).sum()) for d in distances]
        # among many others, one is near by chance, more often with fewer operations
        found.append(_laplace(distances[int(np.argmax(sharp))]) * (1.0 + 2.0 / np.sqrt(len(own))))
    return float(np.clip(np.median(found), _LEAST_SCATTER_NS, _MOST_SCATTER_NS))


def _laplace(distance: Floats) -> float:
    """The scale of the distances that are near 0: their mean, without what is beyond four times that, corrected for the cut."""
    scale = _MOST_SCATTER_NS / 2
    for _ in range(_ROUNDS):
        near = distance[distance <= 4 * scale]
        if not len(near):
            break
        scale = max(float(near.mean()) / 0.925, 1.0)
    return scale


def _anchors(ranks: list[int]) -> list[int]:
    """At most this many of the ranks, evenly spaced."""
    at = np.unique(np.linspace(0, len(ranks) - 1, min(len(ranks), _MOST_ANCHORS)).astype(np.int64))
    return [ranks[i] for i in at.tolist()]


def _distance(own: Floats, other: Floats) -> Floats:
    """From each end to the nearest of another rank's, ns."""
    at = np.searchsorted(other, own)
    before, after = other[np.maximum(at - 1, 0)] - own, other[np.minimum(at, len(other) - 1)] - own
    return np.where(np.abs(before) < np.abs(after), before, after)


def _take(pool: _Pool) -> None:
    """Find the sets of ranks that explain the operations of each rank."""
    ranks = list(pool.counts)
    sample = _sampled(pool)
    families = _families(ranks, pairs=pool.pairs)
    seen = _seen(pool, sample)
    votes: Counter[Members] = Counter()
    asked: Counter[Members] = Counter()
    anchors = _anchors(ranks)
    for rank in anchors:
        candidates = list(dict.fromkeys(m for m in (*(s for f in families for s in f.get(rank, ())), *seen) if rank in m))
        for members in candidates:
            asked[members] += 1
        for members, clear in _explaining(pool, rank, sample[rank], candidates):
            votes[members] += 1
            pool.clear.setdefault(members, []).append(clear)
    good = {m for m, n in votes.items() if 2 * n >= asked[m]}
    if len(anchors) < len(ranks):  # the result for the sampled groups holds for all of their kind
        for family in families:
            its = {m for sets in family.values() for m in sets}
            if 2 * len(its & good) >= len([m for m in its if asked[m]]) > 0:
                for members in its - set(asked):
                    good.add(members)
                    pool.clear[members] = [float(np.mean([c for m in its & good for c in pool.clear.get(m, [0.0])]))]
    for members in sorted(good, key=lambda m: (-len(m), m)):
        for rank in members:
            pool.taken.setdefault(rank, []).append(members)


def _sampled(pool: _Pool) -> dict[int, NDArray[np.int64]]:
    """The places of some operations of each rank: all of some spans of time that are the same for all ranks."""
    most = max(pool.counts, key=lambda r: pool.counts[r])
    if pool.counts[most] <= _SAMPLE:
        return {r: np.arange(n) for r, n in pool.counts.items()}
    each = _SAMPLE // _WINDOWS
    longest = pool.of(most).end
    begins = np.linspace(0, len(longest) - each - 1, _WINDOWS).astype(np.int64)
    spans = [(longest[b], longest[b + each]) for b in begins.tolist()]
    found = {}
    for rank in pool.counts:
        places = [np.searchsorted(pool.of(rank).end, span).tolist() for span in spans]
        found[rank] = np.concatenate([np.arange(low, high) for low, high in places])
    return found


def _families(ranks: list[int], *, pairs: bool) -> list[dict[int, list[Members]]]:
    """Regular partitions of the ranks: groups of equal size at a constant stride, and for messages pairs at each stride."""
    there = set(ranks)
    count = max(ranks) + 1
    found = []
    strides = [t for t in range(1, count) if count % t == 0]
    for stride in strides:
        for size in [s for s in range(2, count // stride + 1) if count % (stride * s) == 0]:
            family: dict[int, list[Members]] = {}
            for first in range(count):
                if first // stride % size == 0:
                    members = tuple(r for r in range(first, first + size * stride, stride) if r in there)
                    for r in members if len(members) > 1 else ():
                        family.setdefault(r, []).append(members)
            found.append(family)
        if pairs:
            couples: dict[int, list[Members]] = {}
            for r in ranks:
                if r + stride in there:
                    couples.setdefault(r, []).append((r, r + stride))
                    couples.setdefault(r + stride, []).append((r, r + stride))
            found.append(couples)
    return [f for f in found if f]


def _seen(pool: _Pool, sample: dict[int, NDArray[np.int64]]) -> list[Members]:
    """Sets of ranks that often end together, and what these sets have in common."""
    rank = np.repeat(np.array(list(sample), np.int64), [len(e) for e in sample.values()])
    end = np.concatenate([pool.of(r).end[at] for r, at in sample.items()])
    order = np.argsort(end, kind="stable")
    rank, end = rank[order], end[order]
    bursts = np.split(rank, np.flatnonzero(np.diff(end) > 3 * pool.scatter) + 1)
    count = Counter(tuple(sorted(b)) for b in (set(b.tolist()) for b in bursts) if len(b) > 1)
    often = [m for m, n in count.most_common(_MOST_SEEN) if n >= _LEAST_EXPLAINED]
    crossed = {tuple(sorted(set(a) & set(b))) for i, a in enumerate(often[:_MOST_CROSSED]) for b in often[:i]}
    return [*often, *sorted(m for m in crossed if len(m) > 1 and m not in often)]


def _explaining(pool: _Pool, rank: int, at: NDArray[np.int64], candidates: list[Members]) -> list[tuple[Members, float]]:
    """The candidates that explain a rank's operations, and how clearly each is distinguished from the others."""
    own = pool.of(rank).end[at]
    if not len(own) or not candidates:
        return []
    mates = {m: _mates(m, rank) for m in candidates}
    distances = {j: _distance(own, pool.of(j).end) for j in {j for js in mates.values() for j in js}}
    there = {j: pool.inside(j, own) for j in distances}
    likely = {j: np.where(there[j], _ratio(d, pool), 0.0) for j, d in distances.items()}
    by_chance = [{j: np.where(there[j], _ratio(d + s * pool.scatter, pool), 0.0) for j, d in distances.items()} for s in _SHIFTS]
    ratio = {m: _summed(likely, mates[m], m) for m in candidates}
    taken: list[Members] = []
    explained, owner = np.full(len(own), _LEAST_RATIO), np.full(len(own), -1)
    rest = dict(ratio)
    while rest and len(taken) < _MOST_TAKEN:
        gains = {m: float(np.maximum(r - explained, 0.0).sum()) for m, r in rest.items()}
        best = max(gains, key=lambda m: (gains[m], -len(m)))
        if gains[best] <= 0.0:
            break
        more = rest.pop(best) > explained
        # what is as likely as half of what is found: ends of one instance scatter too
        least = np.maximum(explained, 0.5 * float(np.median(ratio[best][more])))
        usual = 0
        # mates that explain an operation already do so by no chance
        sure = {j: np.isin(owner, [i for i, m in enumerate(taken) if j in m]) for j in mates[best]}
        for wrong in by_chance:
            mixed = {j: np.where(sure[j], likely[j], wrong[j]) for j in mates[best]}
            usual = max(usual, int((_summed(mixed, mates[best], best) > least).sum()))
        if more.sum() - usual >= max(_LEAST_EXPLAINED - 0.5, 3 * np.sqrt(usual)):
            owner[more] = len(taken)
            explained = np.maximum(explained, ratio[best])
            taken.append(best)
    taken = _distinct(pool, rank, at, taken, ratio)
    stack = np.stack([ratio[m] for m in taken]) if taken else np.zeros((0, len(own)))
    found = []
    for place, members in enumerate(taken):
        mine = (stack.argmax(axis=0) == place) & (stack[place] > _LEAST_RATIO)
        if mine.sum() < _LEAST_EXPLAINED:
            continue
        # sets that hold all its members, or of which it holds all, are not rivals where they were not taken
        rivals = [ratio[m] for m in candidates if m != members and (m in taken or not set(m) <= set(members))]
        second = np.maximum.reduce(rivals)[mine] if rivals else np.zeros(int(mine.sum()))
        margin = stack[place][mine] - np.maximum(second, 0.0)
        clear = float(np.clip(margin / _SURE_RATIO, 0.0, 1.0).mean())
        if clear >= _LEAST_CLEAR:
            found.append((members, clear))
    return found


def _distinct(pool: _Pool, rank: int, at: NDArray[np.int64], taken: list[Members], ratio: dict[Members, Floats]) -> list[Members]:
    """The sets that were taken, but of a set and a part of it one alone where their operations do not differ.

    A set that is not a communicator can appear if groups of one communicator that work in step end together by chance, and a part
    of one if an end was recorded late. Then the operations take as long after the last arrival as those of the communicator do.
    """
    left = list(taken)
    for whole in sorted(taken, key=len, reverse=True):
        for part in [m for m in taken if m != whole and set(m) < set(whole)]:
            if whole not in left or part not in left:
                continue
            stack = np.stack([ratio[m] for m in left])
            best = np.where(stack.max(axis=0) > _LEAST_RATIO, stack.argmax(axis=0), -1)
            of_whole, of_part = at[best == left.index(whole)], at[best == left.index(part)]
            if not _differ(*(_transfer(pool, rank, rows, part) for rows in (of_whole, of_part))):
                left.remove(whole if len(of_whole) <= len(of_part) else part)
    return left


def _transfer(pool: _Pool, rank: int, at: NDArray[np.int64], members: Members) -> Floats:
    """How long some operations of a rank last after the last of the members has arrived, ns."""
    own = pool.of(rank)
    end, last = own.end[at], own.start[at]
    for mate in _mates(members, rank):
        starts, ends, _ = pool.of(mate)
        near = np.searchsorted(ends, end)
        before, after = np.maximum(near - 1, 0), np.minimum(near, len(ends) - 1)
        place = np.where(np.abs(ends[before] - end) < np.abs(ends[after] - end), before, after)
        last = np.maximum(last, starts[place])
    return end - last


def _differ(first: Floats, second: Floats) -> bool:
    """Whether two samples are of different distributions: the test of Kolmogorov and Smirnov, at one in a hundred."""
    if not (len(first) and len(second)):
        return True
    every = np.concatenate((first, second))
    below = [np.searchsorted(np.sort(s), every, "right") / len(s) for s in (first, second)]
    distance = float(np.abs(below[0] - below[1]).max())
    return distance * float(np.sqrt(len(first) * len(second) / len(every))) > _DIFFERENT


def _split_by_place(pool: _Pool, others: list[_Pool]) -> None:
    """Cut sets by their ranks' places in smaller groups that cover them, where equal places end more sharply together.

    Where tensor parallel groups cover the ranks, the data parallel groups of their first, second, ... members start together, right
    after a tensor parallel operation, and end nearly together: no single operation distinguishes them, but the distances of all do.
    """
    smaller = {m for other in others for sets in other.taken.values() for m in sets}
    for whole in sorted({m for sets in pool.taken.values() for m in sets if len(m) >= 4}):
        shapes: dict[Members, list[Members]] = {}
        for group in sorted(m for m in smaller if not set(m) >= set(whole)):
            shapes.setdefault(tuple(r - group[0] for r in group), []).append(group)
        for tiles in shapes.values():
            inside = [[r for r in m if r in whole] for m in tiles]
            size = max(map(len, inside))
            if size < 2 or any(0 < len(i) < size for i in inside) or sorted(r for i in inside for r in i) != list(whole):
                continue
            place = {r: m.index(r) for m in tiles for r in m}
            sure = _sharper(pool, whole, place)
            if pool.pairs and size * 2 == len(whole):  # two groups that send each other messages do so member by member
                sure = max(sure or 0.0, _PAIRS_SURE)
            if sure is not None:
                parts = [tuple(r for r in whole if place[r] == p) for p in sorted({place[r] for r in whole})]
                for part in (p for p in parts if len(p) > 1):
                    pool.clear[part] = [float(np.mean(pool.clear.get(whole, [0.0]))) * sure]
                    for r in part:
                        pool.taken[r] = [m for m in pool.taken[r] if m != whole]
                        pool.taken[r] += [part] if part not in pool.taken[r] else []
                break


def _sharper(pool: _Pool, whole: Members, place: dict[int, int]) -> float | None:
    """How sure it is that ranks of equal place end more sharply together than others of a set, from 0 to 1; None if it is not."""
    same: list[float] = []
    apart: list[float] = []
    for rank in _mates((-1, *whole), -1):
        own = pool.of(rank).end[_labels(pool, rank, pool.taken[rank]) == pool.taken[rank].index(whole)]
        for mate in _mates(whole, rank):
            distance = _distance(own, pool.of(mate).end)
            near = distance[np.abs(distance) <= 8 * pool.scatter]
            if len(near) >= _LEAST_EXPLAINED:  # the clocks may be off by as much, but not by another amount each time
                (same if place[rank] == place[mate] else apart).append(float(np.abs(near - np.median(near)).mean()))
    if len(same) < 2 or len(apart) < 2:
        return None
    ratio = float(np.mean(apart)) / max(float(np.mean(same)), 1.0)
    return min((ratio - 1.0) / (_SURE_TIMES - 1.0), 1.0) if ratio > _LEAST_TIMES else None


def _mates(members: Members, rank: int, most: int = _MOST_MATES) -> list[int]:
    """The other members, or a sample of them."""
    others = [m for m in members if m != rank]
    if len(others) <= most:
        return others
    return [others[i] for i in np.linspace(0, len(others) - 1, most).astype(np.int64).tolist()]


def _ratio(distance: Floats, pool: _Pool) -> Floats:
    """The log-likelihood ratio of each distance for a mate against any other rank."""
    b = pool.scatter
    return np.log(_WRONG + (1.0 - _WRONG) * pool.width / b * np.exp(-np.abs(distance) / b))


def _summed(of: dict[int, Floats], mates: list[int], members: Members) -> Floats:
    """The sum over a set's mates, as if all had been sampled."""
    total: Floats = np.sum([of[j] for j in mates], axis=0) * ((len(members) - 1) / len(mates))
    return total


def _labels(pool: _Pool, rank: int, sets: list[Members]) -> NDArray[np.int64]:
    """For each operation of a rank which of its sets it is of; what none explains is of the one with most."""
    own = pool.of(rank).end
    if len(sets) == 1:
        return np.zeros(len(own), np.int64)
    ratio = []
    for members in sets:
        mates = _mates(members, rank)
        likely = {}
        for j in mates:
            likely[j] = np.where(pool.inside(j, own), _ratio(_distance(own, pool.of(j).end), pool), 0.0)
        ratio.append(_summed(likely, mates, members))
    stack = np.stack(ratio)
    best = stack.argmax(axis=0)
    told = stack.max(axis=0) > 0.0
    for whole, members in enumerate(sets):
        for part, fewer in enumerate(sets):
            mine = np.flatnonzero(told & (best == whole))
            its = np.flatnonzero(told & (best == part))
            if set(fewer) < set(members) and len(mine) and len(its):
                surest = mine[np.argsort(-stack[whole][mine], kind="stable")[: (len(mine) + 1) // 2]]
                off = _unusual(*(_transfer(pool, rank, rows, members) for rows in (mine, surest)))
                fits = _unusual(*(_transfer(pool, rank, rows, fewer) for rows in (mine, its)))
                best[mine[fits + 1.0 < off]] = part
    usual = int(np.bincount(best[told], minlength=1).argmax()) if told.any() else 0
    return np.where(told, best, usual)


def _unusual(transfer: Floats, usual: Floats) -> Floats:
    """How many spreads each transfer time is off the usual ones."""
    own, logs = (np.log(np.maximum(t, 1_000.0)) for t in (transfer, usual))
    middle = np.median(logs)
    spread = 1.4826 * float(np.median(np.abs(logs - middle))) + _LEAST_SPREAD
    found: Floats = np.abs(own - middle) / spread
    return found
