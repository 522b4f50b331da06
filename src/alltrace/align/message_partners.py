"""Which ranks send each other messages that nothing names, and which operations are the two ends of one message.

A stage of a pipeline sends to its neighbours in turn, often on one stream, and runs in step with other pipelines. What
shows the right partner is regularity: how far the two ends of a message are apart, and how long both are there
together, is alike each time, in one or a few modes, while a stranger is there by chance. So distances are learned from
messages that can have only one partner, others take the partners of which the distances are likeliest, and those stay
alone to whom another fits nearly as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from math import isqrt, log
from typing import NamedTuple

import numpy as np

from alltrace.align.constants import SHORTEST_NS, WRONG_SHARE
from alltrace.align.disjoint_sets import DisjointSets
from alltrace.align.schema import LEAST_MATCHING_SCORE, NEARLY_ALL
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import rows_by

Members = tuple[int, ...]
_Nearest = Callable[[int, int], Int64]

_LEAST = 3
_LEAST_SHARE = 1 / 2
"""Of the messages that fit."""
_ROUNDS = 8
FLOOR_NS = SHORTEST_NS / 2
"""What times that differ by less show is chance: the rest of an operation is longer than this."""
EVIDENCE = 1 / 2
"""The independent observations in one operation of a stream: of two that are compared, one."""
CLEAR = -log(WRONG_SHARE)
"""How much likelier (logarithm) is clear: others are right no more often than messages are matched wrongly."""


class Lane(NamedTuple):
    """The operations of one stream of a rank that no communicator is known of, by their start."""

    rank: int
    place: Int64  # in the rank's timeline
    op: Int64
    start: Floats  # on the common clock, ns; likewise `end`
    end: Floats
    exchanging: bool  # there are sends, receives or both among them
    messages: bool = True  # there is nothing else
    error_ns: float = 0.0  # how far the common clock may be off
    direction: Int64 | None = None  # 1 for a send, -1 for a receive, 0 for either or both; None for 0 everywhere


class _Edges(NamedTuple):
    """Pairs of operations that can be one message; arrays of n, times in ns."""

    one: Int64  # number over all lanes; likewise `other`, of a later lane
    other: Int64
    lanes: Int64
    apart: Floats  # of their ends
    together: Floats  # how long both are there
    room: Floats  # the usual distance of successive ends in these lanes: as far are ends apart by chance


def partners(lanes: Sequence[Lane], mates: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, Int64, Int64]]:
    """For each two streams of `mates` their places among `lanes`, and the operations that are partners."""
    of_rank: dict[int, list[int]] = {}
    for number, lane in enumerate(lanes):
        of_rank.setdefault(lane.rank, []).append(number)
    pairs = list(mates)
    numbers = {rank: n for n, rank in enumerate(of_rank)}
    sets = DisjointSets(len(numbers), ((numbers[one], numbers[other]) for one, other in pairs))
    # a part is such as one pipeline
    for part in rows_by(np.array([sets.of(numbers[one]) for one, _ in pairs], np.int64)).values():
        yield from _partners(lanes, of_rank, [pairs[n] for n in part.tolist()])


def _partners(
    lanes: Sequence[Lane], of_rank: dict[int, list[int]], mates: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int, Int64, Int64]]:
    own = sorted({n for pair in mates for rank in pair for n in of_rank[rank]})
    begins = dict(zip(own, np.cumsum([0, *(len(lanes[n].end) for n in own)]).tolist(), strict=False))
    count = begins[own[-1]] + len(lanes[own[-1]].end)
    of_lanes: list[tuple[int, int]] = []
    parts: list[_Edges] = []
    for one, other in mates:
        candidates: list[tuple[float, int, int, _Edges]] = []
        for low in of_rank[one]:
            for high in of_rank[other]:
                edges = _edges(lanes[low], lanes[high], len(of_lanes) + len(candidates))
                ones = len(lanes[low].end)
                nearest = _greedy(edges, -np.abs(edges.apart), ones, ones + len(lanes[high].end))
                fit = -float(np.maximum(_likelihood(edges, nearest)[nearest], 0.0).sum())  # the lower, the better
                candidates.append((fit, low, high, edges))
        taken: set[int] = set()
        for fit, low, high, edges in sorted(candidates, key=lambda c: c[:3]):
            if len(edges.one) and fit < 0.0 and not taken & {low, high}:
                taken |= {low, high}
                parts.append(
                    edges._replace(
                        one=edges.one + begins[low],
                        other=edges.other + begins[high],
                        lanes=np.full(len(edges.one), len(of_lanes)),
                    )
                )
                of_lanes.append((low, high))
    if not parts:
        return
    edges = _Edges(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    chosen = _chosen(edges, count)
    for number, (low, high) in enumerate(of_lanes):
        mine = chosen[edges.lanes[chosen] == number]
        if len(mine):
            yield low, high, edges.one[mine] - begins[low], edges.other[mine] - begins[high]


def _edges(low: Lane, high: Lane, number: int) -> _Edges:
    """The operations of two lanes that are there at once by clocks that may be off."""
    slack = low.error_ns + high.error_ns
    first = np.searchsorted(np.maximum.accumulate(high.end), low.start - slack)
    many = np.maximum(np.searchsorted(high.start, low.end + slack, "right") - first, 0)
    one = np.repeat(np.arange(len(low.end)), many)
    other = np.arange(len(one)) - np.repeat(np.cumsum(many) - many - first, many)
    if low.direction is not None and high.direction is not None:
        fits = low.direction[one] + high.direction[other] == 0
        one, other = one[fits], other[fits]
    apart = low.end[one] - high.end[other]
    together = np.minimum(low.end[one], high.end[other]) - np.maximum(low.start[one], high.start[other])
    room = max(np.ptp(lane.end) / len(lane.end) for lane in (low, high))
    return _Edges(one, other, np.full(len(one), number), apart, together, np.full(len(one), room))


def _greedy(edges: _Edges, score: Floats, shift: int, count: int) -> Int64:
    """The edges that are the best of both of their ends, then of what these leave, and so on."""
    left = np.argsort(-score, kind="stable")
    result = []
    while len(left):
        place, best = np.arange(len(left)), np.full(count, len(left))
        one, other = edges.one[left], edges.other[left] + shift
        np.minimum.at(best, one, place)
        np.minimum.at(best, other, place)
        both = (best[one] == place) & (best[other] == place)
        result.append(left[both])
        taken = np.zeros(count, np.bool_)
        taken[one[both]] = taken[other[both]] = True
        left = left[~taken[one] & ~taken[other]]
    return np.concatenate(result) if result else left


def _likelihood(edges: _Edges, chosen: Int64) -> Floats:
    """The logarithm of how much likelier the distances of each edge are by those of the chosen ones than by chance."""
    score = np.full(len(edges.one), -np.inf)
    of_chosen = rows_by(edges.lanes[chosen])
    is_chosen = np.zeros(len(edges.one), np.bool_)
    is_chosen[chosen] = True
    for number, rows in rows_by(edges.lanes).items():
        sample = chosen[of_chosen[number]] if number in of_chosen else chosen[:0]
        score[rows] = sum(
            _log_density(np.sort(values[sample]), values[rows], is_chosen[rows], float(edges.room[rows[0]]))
            for values in (edges.apart, edges.together)
        )
    return score


def _log_density(sample: Floats, at: Floats, own: Flags, wide: float) -> Floats:
    """The logarithm of the density of a sample, ascending, at some values, by the nearest distance, over chance.

    Values that are in the sample, as `own` says, count without themselves; `wide` is the width of what is possible, ns.
    """
    near = max(isqrt(len(sample)), 1)
    if len(sample) <= near + 1:
        return np.zeros(len(at))
    first = np.searchsorted(sample, at) - near - 1
    places = first[:, None] + np.arange(2 * (near + 1) + 1)
    inside = (places >= 0) & (places < len(sample))
    distance = np.where(inside, np.abs(sample[np.clip(places, 0, len(sample) - 1)] - at[:, None]), np.inf)
    nearest = np.sort(distance, axis=1)[np.arange(len(at)), near - 1 + own]
    density = near / (2.0 * (nearest + FLOOR_NS) * (len(sample) - own))
    return np.asarray(np.log(density * max(wide, FLOOR_NS)), np.float64)


def _chosen(edges: _Edges, count: int) -> Int64:
    choices = np.bincount(edges.one, minlength=count) + np.bincount(edges.other, minlength=count)
    alone = np.flatnonzero((choices[edges.one] == 1) & (choices[edges.other] == 1))
    lanes = int(edges.lanes.max()) + 1
    enough = np.bincount(edges.lanes[alone], minlength=lanes) >= np.bincount(edges.lanes, minlength=lanes) // _ROUNDS
    nearest = _greedy(edges, -np.abs(edges.apart), 0, count)
    sample = np.concatenate((alone[enough[edges.lanes[alone]]], nearest[~enough[edges.lanes[nearest]]]))
    score, chosen = np.zeros(len(edges.one)), sample
    for _ in range(_ROUNDS):
        score = _likelihood(edges, sample)
        chosen = _greedy(edges, score, 0, count)
        if len(chosen) == len(sample) and (np.sort(chosen) == np.sort(sample)).all():
            break
        sample = chosen
    gain, replaced = _exchanges(edges, score, chosen, count)
    doubtful = np.isin(chosen, replaced[:, gain > -CLEAR])
    return np.sort(chosen[~doubtful & (score[chosen] > 0.0)])


def _exchanges(edges: _Edges, score: Floats, chosen: Int64, count: int) -> tuple[Floats, Int64]:
    """For each edge that is not chosen what it would gain, and the chosen ones that it takes out (2, n), -1 for none.

    It brings in the edge between those that lose their partners, if there is one.
    """
    at = np.full(count, -1)  # the chosen edge of each operation
    at[edges.one[chosen]] = at[edges.other[chosen]] = chosen
    key = edges.one * count + edges.other
    order = np.argsort(key, kind="stable")
    out = np.flatnonzero((at[edges.one] >= 0) | (at[edges.other] >= 0))
    out = out[(at[edges.one[out]] != out) & np.isfinite(score[out])]
    first, second = at[edges.one[out]], at[edges.other[out]]

    def left_by(edge: Int64, operation: Int64) -> Int64:
        """The other operation of an edge, -1 without an edge."""
        return np.where(edge >= 0, edges.one[edge] + edges.other[edge] - operation, -1)

    lonely, mate = left_by(first, edges.one[out]), left_by(second, edges.other[out])
    both = (lonely >= 0) & (mate >= 0)
    wanted = np.where(both, np.minimum(lonely, mate) * count + np.maximum(lonely, mate), -1)
    place = np.minimum(np.searchsorted(key[order], wanted), len(order) - 1)
    back = np.where(both & (key[order[place]] == wanted), order[place], -1)
    # one that loses its partner where the other end had none takes the best of those without
    free = np.flatnonzero((at[edges.one] < 0) ^ (at[edges.other] < 0))
    best = np.full(count, -1)
    rising = free[np.argsort(score[free], kind="stable")]
    best[np.where(at[edges.one[rising]] < 0, edges.other[rising], edges.one[rising])] = rising
    widow = np.where(both, -1, np.maximum(lonely, mate))
    again = np.where(widow >= 0, best[widow], -1)
    again = np.where(
        (again >= 0) & (edges.one[again] != edges.one[out]) & (edges.other[again] != edges.other[out]), again, -1
    )
    back = np.where(both, back, again)

    def worth(edge: Int64) -> Floats:
        return np.where(edge >= 0, np.maximum(score[edge], 0.0), 0.0)

    return score[out] + worth(back) - worth(first) - worth(second), np.stack((first, second))


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
    start, end = (
        {r: np.concatenate([getattr(x, n) for x in lanes if x.rank == r]) for r in ranks} for n in ("start", "end")
    )
    for r in ranks:
        order = np.argsort(end[r], kind="stable")
        start[r], end[r] = start[r][order], end[r][order]
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
    return len(
        np.unique(DisjointSets(len(place), (pair for its_places in its for pair in pairwise(its_places))).labels())
    )


class _Pattern(NamedTuple):
    """Which rank each message goes to or comes from if ranks exchange them with certain others."""

    mate: dict[int, Int64]  # for each rank that of each of its messages, -1 if none fits
    share: float  # of messages that fit
    cost: float  # the negative logarithm of how likely they are


def _pattern(
    ranks: Sequence[int],
    mates: dict[int, list[int]],
    start: dict[int, Floats],
    end: dict[int, Floats],
    nearest: _Nearest,
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
    for q in mates:
        at = nearest(rank, q)
        apart = np.where(at >= 0, np.abs(end[q][at] - end[rank]), np.inf)
        closer = apart < distance
        mate[closer], other[closer], distance[closer] = q, at[closer], apart[closer]
    return mate, other
