"""Which ranks send each other messages that nothing names: the two ends of one run at once and end together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from alltrace.align.disjoint_sets import DisjointSets
from alltrace.align.message_partners import CLEAR, EVIDENCE, FLOOR_NS, Lane, partners
from alltrace.align.schema import LEAST_MATCHING_SCORE, NEARLY_ALL
from alltrace.trace.arrays import Floats, Int64

Members = tuple[int, ...]
_Nearest = Callable[[int, int], Int64]

_LEAST = 3
_LEAST_SHARE = 0.7
"""Of the messages that fit."""


def message_pairs(
    lanes: Sequence[Lane], groups: Collection[Members] = ()
) -> Iterator[tuple[tuple[int, ...], float, list[list[tuple[int, Int64]]]]]:
    """The pairs of ranks that exchange messages, how sure that is from 0 to 1, and the places of their operations.

    These are in parts of which each is in order: those of one stream of each of the two. Messages connect what
    `groups`, by other operations, do not: pairs that are not between groups are not believed where others are.
    """
    rank_of = [lane.rank for lane in lanes]
    ranks = sorted(set(rank_of))
    if len(ranks) < 2:
        return
    of_rank = {r: _joined([lane for lane in lanes if lane.rank == r]) for r in ranks}
    start, end = {r: t.start for r, t in of_rank.items()}, {r: t.end for r, t in of_rank.items()}
    nearest = lru_cache(None)(lambda r, q: _nearest(start[r], end[r], start[q], end[q]))
    of_stride = [(stride, _pattern(ranks, mates, start, end, nearest)) for stride, mates in _strides(ranks)]
    patterns = [(p, stride) for stride, p in of_stride if p is not None]
    parts, without = [_parts(ranks, groups, p) for p, _ in patterns], _parts(ranks, groups)
    if min(parts, default=without) < without:
        patterns = [p for p, many in zip(patterns, parts, strict=True) if many < without]
    patterns.sort(key=lambda p: (p[0].cost, p[1]))
    if not patterns or patterns[0][0].share < _LEAST_SHARE:
        return
    best, stride = patterns[0]
    total = sum(len(e) for e in end.values())
    rival = min((p.cost for p, other in patterns if other != stride), default=np.inf)
    sure = 1.0 - float(np.exp((best.cost - rival) * total * EVIDENCE / CLEAR))
    if sure < LEAST_MATCHING_SCORE:
        return
    of_pairs: dict[tuple[int, int], list[list[tuple[int, Int64]]]] = {}
    paired = 0
    for low, high, rows, others in partners(lanes, _mates(best)):
        its = [(lanes[low].rank, lanes[low].place[rows]), (lanes[high].rank, lanes[high].place[np.sort(others)])]
        of_pairs.setdefault((min(r for r, _ in its), max(r for r, _ in its)), []).append(its)
        paired += 2 * len(rows)
    for pair, of_pair in sorted(of_pairs.items()):
        if sum(len(place) for part in of_pair for _, place in part) >= 2 * _LEAST:
            yield pair, min(sure, NEARLY_ALL) * paired / total, of_pair


def _mates(pattern: _Pattern) -> Iterator[tuple[int, int]]:
    """The pairs of ranks that exchange messages in a pattern."""
    for rank, mate in pattern.mate.items():
        others, many = np.unique(mate[mate > rank], return_counts=True)
        for other in others[many >= _LEAST].tolist():
            yield rank, other


def _parts(ranks: Sequence[int], groups: Collection[Members], pattern: _Pattern | None = None) -> int:
    """How many parts neither groups nor each rank and its most frequent mate in a pattern connect."""
    place = {rank: n for n, rank in enumerate(ranks)}
    mates = pattern.mate.items() if pattern is not None else ()
    known = [*groups, *((r, int(np.bincount(m[m >= 0]).argmax())) for r, m in mates if (m >= 0).any())]
    its = ([place[r] for r in group if r in place] for group in known)
    return len(np.unique(DisjointSets(len(place), (pair for its_places in its for pair in pairwise(its_places))).labels()))


class _Times(NamedTuple):
    """Operations of some streams, by their end."""

    place: Int64
    start: Floats
    end: Floats


def _joined(lanes: Sequence[Lane]) -> _Times:
    place, start, end = (np.concatenate([getattr(lane, name) for lane in lanes]) for name in ("place", "start", "end"))
    order = np.argsort(end, kind="stable")
    return _Times(place[order], start[order], end[order])


class _Pattern(NamedTuple):
    """Which rank each message goes to or comes from if ranks exchange them with certain others."""

    mate: dict[int, Int64]  # for each rank that of each of its messages, -1 if none fits
    share: float  # of messages that fit
    cost: float  # the negative logarithm of how likely they are


def _pattern(
    ranks: Sequence[int], mates: dict[int, list[int]], start: dict[int, Floats], end: dict[int, Floats], nearest: _Nearest
) -> _Pattern | None:
    """How messages fit if ranks exchange them with their mates: both ends stay alike, and alike each time."""
    best = {r: _best(r, mates[r], nearest, end) for r in ranks}
    mate: dict[int, Int64] = {}
    apart: list[Floats] = []
    stay: list[Floats] = []
    for r in ranks:
        own, other = best[r]
        fits = np.zeros(len(own), np.bool_)
        for q in mates[r]:
            mine = np.flatnonzero(own == q)
            back = (best[q][0][other[mine]] == r) & (best[q][1][other[mine]] == mine)
            fits[mine[back]] = True
            if r < q:
                its, theirs = mine[back], other[mine[back]]
                apart.append(np.abs(end[r][its] - end[q][theirs]))
                stay.append(np.minimum(end[r][its], end[q][theirs]) - np.maximum(start[r][its], start[q][theirs]))
        mate[r] = np.where(fits, own, -1)
    distances, stays = np.concatenate(apart or [np.zeros(0)]), np.concatenate(stay or [np.zeros(0)])
    if len(stays) < _LEAST:
        return None
    share = float(sum((m >= 0).sum() for m in mate.values()) / sum(len(m) for m in mate.values()))
    away = np.abs(stays - np.median(stays))
    scatter, variation = (float(np.median(v) + v.mean()) / 2.0 for v in (distances, away))
    cost = float(np.log(scatter + FLOOR_NS) + np.log(variation + FLOOR_NS)) / 2.0
    return _Pattern(mate, share, cost + CLEAR * (1.0 - share))


def _strides(ranks: Sequence[int]) -> Iterator[tuple[int, dict[int, list[int]]]]:
    """With whom each rank may exchange messages: at a stride of a grid before and after, also round from the last."""
    count = ranks[-1] + 1
    known = set(ranks)
    for stride in sorted(
        {t for t in range(1, count) if count % t == 0} | {1 << k for k in range(count.bit_length()) if 1 << k < count}
    ):
        for around in (0, count - stride) if count % stride == 0 and count > 2 * stride else (0,):
            steps = [d for d in (-stride, stride, -around, around) if d]
            yield stride, {r: [r + d for d in dict.fromkeys(steps) if r + d in known] for r in ranks}


def _nearest(start: Floats, end: Floats, starts: Floats, ends: Floats) -> Int64:
    """For each operation that of another rank that ends nearest to it and runs at once with it, -1 without one."""
    if not len(ends):
        return np.full(len(end), -1, np.int64)
    at = np.searchsorted(ends, end)
    best = np.full(len(end), -1, np.int64)
    distance = np.full(len(end), np.inf)
    for candidate in (at - 1, at, at + 1):
        inside = np.clip(candidate, 0, len(ends) - 1)
        apart = np.abs(ends[inside] - end)
        fits = (candidate == inside) & (start <= ends[inside]) & (starts[inside] <= end) & (apart < distance)
        best[fits], distance[fits] = inside[fits], apart[fits]
    return best


def _best(rank: int, mates: Sequence[int], nearest: _Nearest, end: dict[int, Floats]) -> tuple[Int64, Int64]:
    """For each operation of a rank the mate with the nearest end, and its operation; -1 without one."""
    mate, other = (np.full(len(end[rank]), -1, np.int64) for _ in range(2))
    distance = np.full(len(end[rank]), np.inf)
    for q in [m for m in mates if len(end[m])]:
        at = nearest(rank, q)
        apart = np.where(at >= 0, np.abs(end[q][at] - end[rank]), np.inf)
        closer = apart < distance
        mate[closer], other[closer], distance[closer] = q, at[closer], apart[closer]
    return mate, other
