"""Communicators that nothing names, from structure: who does the same in the same order, and who waits for whom.

Ranks of a job do the same on their streams, so the n-th operation of a stream has a counterpart on the streams of
others, even where these are of another communicator. Such streams form a class. Which of its ranks meet is one of few
partitions: groups of equal size at a constant stride, as grids of tensor, data, pipeline, context and expert parallel
groups have. A partition is judged by what holds for members of one instance and not for others:

* no member ends before the last has started;
* ends differ by their scatter alone, and not by what groups are ahead of each other;
* the transfer, from the last start to the first end, is alike each time: a group that lacks a member seems to transfer
  while it waits for that one, and in a group with a stranger the transfer is cut short.

A stream may carry operations of several communicators. These return at the same places of each step, so the places of a
period are judged one by one. Messages are judged in pairs (`alltrace.align.message_partners`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, pairwise
from typing import NamedTuple

import numpy as np

from alltrace.align.constants import BY_MODES, WRONG_SHARE
from alltrace.align.disjoint_sets import DisjointSets
from alltrace.align.message_partners import CLEAR, EVIDENCE, FLOOR_NS, Lane, Members, message_pairs
from alltrace.align.order_matching import Member, positions
from alltrace.align.related_clocks import RankClock
from alltrace.align.schema import LEAST_MATCHING_SCORE, NEARLY_ALL
from alltrace.align.timelines import PART, AnyTimelines
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import distinct, distinct_rows, rows_by, run_starts

_Partition = frozenset[Members]

_ALIKE = 0.7
"""The least share of operations with a counterpart for streams of one class."""
_SAMPLE, _MOST_ROWS = 1 << 20, 1 << 12
"""Ends, and operations of each stream, that a class is judged by: the time to find a period grows with their square."""
_TAIL = 64
"""The last operations by which the streams are chosen that a late capture is compared with."""
_BY_GRID = 0.6
"""How sure a communicator is that times do not show and others of the run suggest."""


class Inferred(NamedTuple):
    """Communicators that were inferred, with their scores from 0 to 1."""

    of: Callable[[int], Int64]  # each operation's communicator, -1 for none, plus `PART` times its part
    scores: list[float]


class _Class(NamedTuple):
    """Streams of different ranks with the same operations: arrays of n operations x m streams, NaN without one."""

    lanes: list[Lane]
    places: list[Int64]  # for each stream the row of each of its operations, -1 without a counterpart
    op: Int64  # the number of each operation
    start: Floats
    end: Floats
    slack: Floats  # how far the common clock may be off for each stream, ns
    clear: bool = True  # each rank has but one stream that does the same at the same time


class _Verdict(NamedTuple):
    """Which ranks meet in the operations of a class."""

    place: Int64  # of each operation: which of those whose communicators are the same
    groups: list[list[Members]]  # for each place and stream the members of its group; empty if nothing is inferred
    scores: list[float]  # for each place how clearly the groups were distinguished
    varies: Sequence[float] = ()  # for each place how much more transfers vary than ends scatter

    def withheld(self, most: float) -> _Verdict:
        """The same without groups of which transfers vary more."""
        none: Members = ()
        return self._replace(
            groups=[[none] * len(g) if v > most else g for g, v in zip(self.groups, self.varies, strict=True)]
        )


def _partitions_of(verdict: _Verdict) -> set[_Partition]:
    return {frozenset(g for g in groups if g) for groups in verdict.groups}


def communicators_by_order(
    timelines: AnyTimelines, clocks: Mapping[int, RankClock], *, parted: bool = False
) -> Inferred:
    """The communicators; if `parted`, ranks may have waited for some whose clocks are not related to theirs.

    Then those are left out of which transfers vary clearly more than of others, as they do where some ranks are not
    seen.
    """
    parted = parted or len({c.component for c in clocks.values()}) > 1
    numbers: dict[tuple[int, Members], int] = {}
    scores: defaultdict[int, list[float]] = defaultdict(list)
    labels: dict[int, list[tuple[Int64, Int64]]] = {}

    def number_of(kind: int, members: Members, score: float) -> int:
        number = numbers.setdefault((kind, members), len(numbers))
        scores[number].append(score)
        return number

    rest: list[Lane] = []
    steadiest = np.inf
    known: dict[_Partition, set[int]] = {}  # with the operations that they explain
    kinds = timelines.kinds
    exchanges = set(kinds.op[kinds.all_to_all | kinds.exchanging].tolist())
    for kind, alike in enumerate(_classes(timelines, clocks)):
        # members of a class of sends or receives all send, or all receive
        one_way = any(lane.direction is not None and lane.direction.any() for lane in alike.lanes)
        verdict = _judged(alike, known, exchanges) if len(alike.lanes) > 1 and not one_way else None
        if verdict is not None and len(own := _partitions_of(verdict)) > 1:
            # one stream has several, which may lie across each other
            verdict = _judged(alike, {**{p: set() for p in own}, **known}, exchanges)
        exchanging = all(lane.messages for lane in alike.lanes)
        if verdict is None or (exchanging and (not alike.clear or _in_pairs(verdict, known, len(timelines.extents)))):
            rest += [lane for lane in alike.lanes if lane.exchanging]
            continue
        steadiest = min(steadiest, *verdict.varies)
        if parted:
            verdict = verdict.withheld(CLEAR * steadiest)
        for number, groups in enumerate(verdict.groups):
            ops = known.setdefault(frozenset(g for g in groups if g), set())
            ops.update(alike.op[verdict.place == number].tolist())
        for column, (lane, row) in enumerate(zip(alike.lanes, alike.places, strict=True)):
            of_place = np.array(
                [
                    number_of(kind, groups[column], score) if groups[column] else -1
                    for groups, score in zip(verdict.groups, verdict.scores, strict=True)
                ]
            )
            label = np.where(row >= 0, of_place[verdict.place[row]], -1)
            labels.setdefault(lane.rank, []).append((lane.place, np.where(row >= 0, label, _between(label, row))))
    component = np.array([clocks[lane.rank].component for lane in rest], np.int64)
    of_components = [[rest[n] for n in its.tolist()] for its in rows_by(component).values()]  # others do not compare
    meeting = {g for partition in known for g in partition}
    for members, score, parts in chain.from_iterable(message_pairs(its, meeting) for its in of_components):
        number = number_of(-1, members, score)
        for part, places in enumerate(parts):
            for rank, place in places:
                labels.setdefault(rank, []).append((place, np.full(len(place), number + part * PART)))

    rooted = (kinds.communicator < 0) & ~kinds.synchronising & ~kinds.exchanging & (kinds.paired == 0)

    def of(rank: int) -> Int64:
        its = timelines.of(rank)
        label = np.full(len(its.end), -1, np.int64)
        for place, of_lane in labels.get(rank, ()):
            label[place] = of_lane
            lane = np.flatnonzero(kinds.stream[its.kind] == kinds.stream[its.kind[place[0]]])
            lane = lane[np.argsort(its.start[lane], kind="stable")]
            # what some leave before others arrive is of the communicator that its stream has before and after it
            row = np.where(rooted[its.kind[lane]], -1, np.arange(len(lane)))
            label[lane] = np.where(row < 0, _between(label[lane], row), label[lane])
        return label

    return Inferred(of, [float(np.mean(s)) for s in scores.values()])


def _in_pairs(verdict: _Verdict, known: Iterable[_Partition], count: int) -> bool:
    """Whether kernels that send and receive meet in pairs that must be found one by one, as those of a pipeline.

    Such a kernel exchanges with one member before and another after it. Members of a smaller known group only run in
    step.
    """
    found = _partitions_of(verdict)
    if len(found) > 1 or not all(map(all, verdict.groups)):
        return True
    pairs = [set(its) for partition in found for its in partition if len(its) == 2]
    smaller = [set(group) for partition in known for group in partition if len(group) < count]
    return any(group.issuperset(pair) for pair in pairs for group in smaller)


def _between(label: Int64, row: Int64) -> Int64:
    """For operations that the reference lacks, the communicator of those before and after, -1 if these differ.

    The last are followed by the first, as in steps that repeat.
    """
    known = np.flatnonzero(row >= 0)
    if not len(known):
        return label
    after = np.searchsorted(known, np.arange(len(row))) % len(known)
    before = np.searchsorted(known, np.arange(len(row)), "right") - 1
    earlier, later = label[known[before]], label[known[after]]
    return np.where(earlier == later, earlier, -1)


def _lanes(timelines: AnyTimelines, clocks: Mapping[int, RankClock]) -> Iterator[Lane]:
    """The streams with operations that nothing names."""
    kinds = timelines.kinds
    message, nameless = kinds.messages, kinds.nameless
    for rank in np.unique(kinds.member[nameless]).tolist():
        its = timelines.of(rank)
        rows = np.flatnonzero(nameless[its.kind])
        clock = clocks[rank]
        start, end = clock.common(its.start[rows]), clock.common(its.end[rows])
        order = np.argsort(start, kind="stable")
        stream = kinds.stream[its.kind[rows]]
        for one in np.unique(stream).tolist():
            mine = order[stream[order] == one]
            kind = its.kind[rows[mine]]
            yield Lane(
                rank,
                rows[mine],
                kinds.op[kind],
                start[mine],
                end[mine],
                bool(message[kind].any()),
                bool(message[kind].all()),
                clock.scale_ns,
                kinds.paired[kind],
            )


def _classes(timelines: AnyTimelines, clocks: Mapping[int, RankClock]) -> Iterator[_Class]:
    """Streams that do the same, those with most operations first, messages last; each stream is in one class."""
    lanes = list(_lanes(timelines, clocks))
    error = {rank: clock.scale_ns for rank, clock in clocks.items()}
    component = {rank: clock.component for rank, clock in clocks.items()}
    left = sorted(lanes, key=lambda lane: (lane.messages, -len(lane.op), lane.rank, float(lane.start[0])))
    doubtful: set[int] = set()  # the lanes of which others of their rank fit as well, in whatever class they come
    while left:
        first = left[0]
        chosen: dict[int, tuple[float, Lane, Int64]] = {}
        reference = _member(first, component[first.rank])
        ops = set(first.op.tolist())
        for lane in left[1:]:
            if lane.rank == first.rank or set(lane.op.tolist()) != ops or component[lane.rank] != component[first.rank]:
                continue
            if 2 * len(lane.op) < len(first.op):
                break
            place = positions(reference, _member(lane, component[lane.rank]))
            paired = place >= 0
            within = (lane.end >= first.end[0]) & (lane.end <= first.end[-1])
            own = (first.end >= lane.end[0]) & (first.end <= lane.end[-1])
            if paired.sum() < _ALIKE * max(within.sum(), own.sum(), 1):
                continue
            late = lane.end[paired] - first.end[place[paired]]
            apart = _apart(late, error[lane.rank] + error[first.rank])
            if lane.rank in chosen:
                low, high = sorted((apart + FLOOR_NS, chosen[lane.rank][0] + FLOOR_NS))
                if math.log(high / low) < CLEAR:
                    doubtful |= {id(lane), id(chosen[lane.rank][1])}
            if lane.rank not in chosen or apart < chosen[lane.rank][0]:
                chosen[lane.rank] = apart, lane, place
        # what a capture that begins late has follows from a stream that it meets, not from one that is elsewhere
        whole = [(lane, place) for _, lane, place in chosen.values() if len(lane.op) == len(first.op)]
        for apart, lane, place in [c for c in chosen.values() if len(c[1].op) < len(first.op)]:
            size = min(len(lane.op), _TAIL)
            tails = [np.median(np.abs(other.end[-size:] - lane.end[-size:])) for other, _ in whole]
            for other, place_of in (whole[n] for n in np.argsort(tails)[:2].tolist()):
                at = positions(_member(other, component[other.rank]), _member(lane, component[lane.rank]))
                late = lane.end[at >= 0] - other.end[at[at >= 0]]
                if len(late) < len(lane.op) * _ALIKE:
                    continue
                nearer = _apart(late, error[lane.rank] + error[other.rank])
                if math.log((apart + FLOOR_NS) / (nearer + FLOOR_NS)) > CLEAR:
                    apart, place = nearer, np.where(at >= 0, place_of[at], -1)
                    chosen[lane.rank] = apart, lane, place
        alike = sorted([(0.0, first, np.arange(len(first.op))), *chosen.values()], key=lambda c: c[1].rank)
        taken = {id(c[1]) for c in alike}
        left = [lane for lane in left if id(lane) not in taken]
        shape = len(first.op), len(alike)
        start, end = np.full(shape, np.nan), np.full(shape, np.nan)
        for column, (_, lane, place) in enumerate(alike):
            fits = place >= 0
            start[place[fits], column], end[place[fits], column] = lane.start[fits], lane.end[fits]
        yield _Class(
            [c[1] for c in alike],
            [c[2] for c in alike],
            first.op,
            start,
            end,
            np.array([error[c[1].rank] for c in alike]),
            not taken & doubtful,
        )


def _apart(late: Floats, slack: float) -> float:
    """How far apart the ends of two streams are, with clocks that may be `slack` off, ns."""
    usual = float(np.nanmedian(late))
    return max(abs(usual) - slack, 0.0) + float(np.nanmedian(np.abs(late - usual)))


def _member(lane: Lane, clock: int) -> Member:
    none = np.full(len(lane.op), -1, np.int64)
    meets, no_way = np.zeros(len(lane.op), np.bool_), np.zeros(len(lane.op), np.int64)
    return Member(lane.op, none, lane.start, lane.end, meets, no_way, none, clock, 0.0, together=False)


def _partitions(ranks: Sequence[int], known: Collection[_Partition], *, joined: bool = False) -> list[Int64]:
    """Each rank's group in partitions into groups of equal size at a constant stride, and in those across known ones.

    If `joined`, also in those that join such groups at a stride and known ones, as tensor-parallel ranks of a pipeline.
    """
    at, count = np.array(ranks), max(ranks) + 1
    partitions: dict[bytes, Int64] = {}
    # the last rank of an odd count may lack a report
    for base, total in ((at, count + count % 2), (at, count), (np.arange(len(ranks)), len(ranks))):
        divisors = sorted({math.gcd(t, total) for t in range(total)})
        for stride, whole in combinations(divisors, 2):
            if whole % stride == 0:
                label = distinct(base // whole * stride + base % stride)[1]
                if (np.bincount(label) > 1).any():
                    partitions.setdefault(label.tobytes(), label)
    at_strides = list(partitions.values())
    for partition in known:
        group_of = {r: n for n, group in enumerate(partition) for r in group}
        if joined and group_of.keys() >= set(ranks):
            own = np.array([group_of[r] for r in ranks])
            for other in at_strides:
                label = distinct(DisjointSets(len(ranks), chain(_successive(own), _successive(other))).labels())[1]
                partitions.setdefault(label.tobytes(), label)
        if len(set(map(len, partition))) > 1:
            continue  # one lacks a rank, so places in it are no places in the grid
        position = {r: n for group in partition for n, r in enumerate(group)}
        label = np.array([position.get(r, -1) for r in ranks])
        if (label >= 0).all() and (np.bincount(label) > 1).any():
            label = distinct(label)[1]
            partitions.setdefault(label.tobytes(), label)
    return list(partitions.values())


def _successive(label: Int64) -> Iterator[tuple[int, int]]:
    """Pairs of places that chain those of each group."""
    return (pair for rows in rows_by(label).values() for pair in pairwise(rows.tolist()))


class _Judged(NamedTuple):
    """What shows of a partition: arrays of n operations x m streams, NaN for a group without two, and of n."""

    label: Int64  # the group of each stream
    stay: Floats  # from the last start in a stream's group to its own end, ns
    unlawful: Floats  # the share of groups in which one ends before another has started

    def take(self, rows: Int64 | slice) -> _Judged:
        return _Judged(self.label, self.stay[rows], self.unlawful[rows])

    @property
    def free(self) -> float:
        """The streams of groups of several, less one for each group."""
        return float(np.maximum(np.bincount(self.label) - 1, 0).sum())

    @property
    def apart(self) -> int:
        """How clearly a group transfers so much longer than another that it must wait for a rank of another group."""
        middle = _median(self.stay)
        middle = np.maximum(middle[np.isfinite(middle)], FLOOR_NS)
        return round(math.log(middle.max() / middle.min()) / CLEAR) if len(middle) else 0

    @property
    def varies(self) -> float:
        """How much more the transfers of a group usually vary than its ends scatter."""
        apart, transfer = _group_stays(self.stay, self.label)
        ratio = _median(np.abs(transfer - _median(transfer))) / np.maximum(_median(apart), FLOOR_NS)
        return float(np.nanmedian(ratio)) if np.isfinite(ratio).any() else 0.0

    @property
    def groups(self) -> Int64:
        """How many streams each group of several has."""
        many = np.bincount(self.label)
        return many[many > 1]


def _evaluated(start: Floats, end: Floats, slack: Floats, label: Int64) -> _Judged:
    order, heads, many = _by_group(label)
    there = np.isfinite(end[:, order])
    several = np.add.reduceat(there, heads, axis=1, dtype=np.int64) > 1
    last = np.maximum.reduceat(np.where(there, start[:, order], -np.inf), heads, axis=1)
    first = np.minimum.reduceat(np.where(there, end[:, order], np.inf), heads, axis=1)
    broken = several & (first - last < -slack.max())  # clocks are as far off as those that scatter most
    unlawful = np.divide(broken.sum(axis=1), several.sum(axis=1), out=np.zeros(len(end)), where=several.any(axis=1))
    stay = np.full(end.shape, np.nan)
    shared = there & np.repeat(several, many, axis=1)
    stay[:, order] = np.where(shared, end[:, order] - np.where(shared, np.repeat(last, many, axis=1), 0.0), np.nan)
    return _Judged(label, stay, unlawful)


def _by_group(label: Int64) -> tuple[Int64, Int64, Int64]:
    """The streams by their group, where each group begins, and how many it has."""
    order = np.argsort(label, kind="stable")
    heads = run_starts(label[order])
    return order, heads, np.diff(np.append(heads, len(order)))


def _group_stays(stay: Floats, label: Int64) -> tuple[Floats, Floats]:
    """How far the stays of a group are from their mean, for one more than are free, and it; NaN without two."""
    order, heads, many = _by_group(label)
    own = stay[:, order]
    there = np.isfinite(own)
    counts = np.add.reduceat(there, heads, axis=1, dtype=np.int64)
    several = counts > 1
    own = np.where(there, own, 0.0)
    mean = np.divide(np.add.reduceat(own, heads, axis=1), counts, out=np.full(counts.shape, np.nan), where=several)
    away = np.where(there, np.abs(own - np.repeat(np.nan_to_num(mean), many, axis=1)), 0.0)
    apart = np.divide(
        np.add.reduceat(away, heads, axis=1), counts - 1, out=np.full(counts.shape, np.nan), where=several
    )
    return apart, mean


def _judged(alike: _Class, known: Mapping[_Partition, set[int]], exchanges: set[int]) -> _Verdict | None:
    """Who meets in the operations of a class; None if no partition explains them.

    `known` are partitions that explain other streams, with the numbers of their operations. Communicators of
    `exchanges` lie within others, as those of experts, and make no grid with them.
    """
    most = min(max(_SAMPLE // alike.end.shape[1], 64), _MOST_ROWS)
    ranks = [lane.rank for lane in alike.lanes]
    joined = not all(lane.messages for lane in alike.lanes)
    labels = _partitions(ranks, known, joined=joined)
    evidence = [_evaluated(alike.start[:most], alike.end[:most], alike.slack, label) for label in labels]
    refinements = _refinements(labels)
    place = np.zeros(len(alike.op), np.int64)
    of_places: list[list[_Judged]] = []
    costs: list[Floats] = []
    for rows in rows_by(alike.op).values():
        of_op = [one.take(rows[rows < most]) for one in evidence]
        period, shared = _cycle(of_op, int((rows < most).sum()))
        parts = [[one.take(slice(begin, None, period)) for one in of_op] for begin in range(period)]
        its = [_costs(judged) for judged in parts]
        counts = np.bincount(np.arange(len(rows)) % period, minlength=period)
        many = np.asarray(counts * len(ranks) * EVIDENCE, np.float64)
        shared = shared and _chosen(np.array(its) * many[:, None], many, refinements)[2] <= 0.0
        place[rows] = len(of_places) + (0 if shared else np.arange(len(rows)) % period)
        of_places += [of_op] if shared else parts
        costs += [np.mean(its, axis=0)] if shared else its
    of_labels = [_groups(ranks, one.label) for one in evidence]
    ops = set(alike.op.tolist())
    other = [partition for partition, its in known.items() if not ops & its]  # each communicator has one stream
    across = [partition for partition, its in known.items() if not its or its - exchanges]
    unnested = [partition for partition, its in known.items() if its - exchanges]
    distance = np.array(
        [_distance(frozenset(g for g in its if g), other, across, len(ranks), unnested) for its in of_labels]
    )
    group_counts = np.array([one.label.max() + 1 for one in evidence])
    observations = np.asarray(np.bincount(place, minlength=len(of_places)) * len(ranks) * EVIDENCE, np.float64)
    apart = np.array([[one.apart for one in its] for its in of_places])
    pairs = np.array([not joined and (one.groups == 2).all() for one in evidence])
    few = _few(np.array(costs), observations, distance, group_counts, apart, pairs, refinements)
    none: tuple[list[Members], float, float] = [()] * len(ranks), 0.0, np.inf
    of_place = [
        none if at is None or score < LEAST_MATCHING_SCORE else (of_labels[at], score, shown[at].varies)
        for shown, (at, score) in zip(of_places, few, strict=True)
    ]
    groups, scores, varies = map(list, zip(*of_place, strict=True))
    return _Verdict(place, groups, scores, varies) if any(map(any, groups)) else None


def _groups(ranks: Sequence[int], label: Int64) -> list[Members]:
    members = {g: tuple(ranks[i] for i in rows.tolist()) for g, rows in rows_by(label).items()}
    return [members[g] if len(members[g]) > 1 else () for g in label.tolist()]


def _distance(
    partition: _Partition,
    other: Collection[_Partition],
    known: Collection[_Partition],
    count: int,
    unnested: Collection[_Partition] = (),
) -> int:
    """0 if a partition explains other operations, 1 if it makes a grid with one that explains any, else 2.

    It is 4 if its groups contain whole groups of an `unnested` one: ranks that meet in one communicator rarely meet in
    another but that of all.
    """
    if partition in other:
        return 0
    if len(partition) > 1 and any(set(b) < set(a) for one in unnested for b in one for a in partition):
        return 4
    size = max(map(len, partition), default=0)
    for one in known:
        across = all(len(set(a).intersection(b)) <= 1 for a in partition for b in one)
        if across and size * max(map(len, one), default=0) == count:
            return 1
    return 2


def _refinements(labels: Sequence[Int64]) -> Flags:
    """Of each two partitions whether the second's groups are parts of the first's, of which there are several."""
    return np.array(
        [
            [
                label.max() > whole.max() > 0 and distinct_rows(label, whole)[0].shape[1] == label.max() + 1
                for label in labels
            ]
            for whole in labels
        ]
    )


def _cycle(evidence: Sequence[_Judged], count: int) -> tuple[int, bool]:
    """After how many operations those alike return, and whether all have the same communicators, and only sizes return.

    It is the least description length of the partitions that explain them best.

    Sizes of transfers return too, so a period only counts for communicators where its places are explained by different
    ones.
    """
    if count < 8:
        return 1, True
    parts = []
    for one in evidence:
        apart, stay = _group_stays(one.stay, one.label)
        there = np.isfinite(stay)
        stay, apart = np.where(there, stay, 0.0), np.where(there, apart, 0.0)
        sums = [
            there.sum(axis=1, dtype=np.float64),
            stay.sum(axis=1),
            np.square(stay).sum(axis=1),
            apart.sum(axis=1),
            one.unlawful,
        ]
        parts.append((sums, one.free, one.groups))
    weight = EVIDENCE * len(evidence[0].label)
    best, most, size_period, least = 1, 0.0, 1, np.inf
    for period in range(1, count // 4 + 1):
        place = np.arange(count) % period
        many = np.bincount(place, minlength=period)
        costs = []
        for sums, free, groups in parts:
            there, total, square, away, unlawful = (np.bincount(place, values, period) for values in sums)
            known = np.maximum(there, 1.0)
            variation = np.sqrt(np.maximum(square / known - np.square(total / known), 0.0))
            cost = _likelihood(away / known, variation, free, groups) + CLEAR * unlawful / many
            costs.append(np.where(there > 0, cost, np.inf) * many)
        table = np.array(costs)
        shared = table[table.sum(axis=1).argmin()]
        together, split = float(shared.sum()), float(np.minimum(shared, table.min(axis=0) + BY_MODES * many).sum())
        gain = (together - split) * weight - period * np.log(len(evidence) + 1.0)
        if gain > most:
            best, most = period, gain
        description = together * weight + 2.0 * period * np.log(count)
        if description < least:
            size_period, least = period, description
    return (best, False) if most > 0.0 else (size_period, True)


def _median(values: Floats) -> Floats:
    """The median of each column, NaN of one without any."""
    if not len(values):
        return np.full(values.shape[1], np.nan)
    many = np.isfinite(values).sum(axis=0)
    ordered = np.sort(values, axis=0)  # NaN last
    middle = np.stack((np.maximum(many - 1, 0) // 2, many // 2 * (many > 0)))
    low, high = np.take_along_axis(ordered, middle, axis=0)
    return np.asarray((low + high) / 2.0, np.float64)


def _likelihood(apart: Floats, variation: Floats, free: float, groups: Int64) -> Floats:
    """The negative logarithm of how likely stays are, for each stream: within groups, and of their means.

    The mean of m streams varies by the root of m less than a stream.
    """
    means = len(groups) * np.log(variation + FLOOR_NS) + np.log(groups).sum() / 2.0
    return np.asarray((free * np.log(apart + FLOOR_NS) + means) / (free + len(groups)), np.float64)


def _costs(evidence: Sequence[_Judged]) -> Floats:
    """How badly each partition explains some operations.

    Streams of one instance stay alike, and its transfer is alike each time. A group without one that it waits for seems
    to stay for as long as it waits, and in a group with a stranger the stay is cut short.
    """
    costs = np.full(len(evidence), np.inf)
    if not len(evidence[0].stay):  # it is not in the sample
        return costs
    # where a stream lacks an operation, partitions of which others then have no partner would have less to explain
    shown = np.array([np.isfinite(one.stay).sum(axis=1) for one in evidence])
    whole = np.flatnonzero((shown == shown.max(axis=1, keepdims=True)).all(axis=0))
    if 2 * len(whole) >= shown.shape[1]:
        evidence = [one.take(whole) for one in evidence]
    for place, one in enumerate(evidence):
        unlawful = float(one.unlawful.mean())
        apart, stay = _group_stays(one.stay - _median(one.stay), one.label)  # without what clocks are off
        there = np.isfinite(stay)
        if not there.any() or unlawful > WRONG_SHARE:
            continue
        transfer = _group_stays(one.stay, one.label)[1]
        usual = np.nanmedian(one.stay)
        # the transfer is alike for all groups, or each has its own, as where a link is slow
        alike, own = (
            float(_likelihood(_spread(apart[there]), _spread(np.abs(transfer - middle)[there]), one.free, one.groups))
            for middle in (usual, _median(transfer))
        )
        parameters = len(one.groups) * math.log(len(transfer)) / (2.0 * EVIDENCE * np.isfinite(one.stay).sum())
        costs[place] = min(alike, own + parameters) + CLEAR * unlawful
    return costs


def _spread(values: Floats) -> Floats:
    """Half-way between median and mean."""
    return np.asarray((np.median(values) + values.mean()) / 2.0, np.float64)


def _chosen(costs: Floats, many: Floats, refinements: Flags) -> tuple[list[int], Floats, float]:
    """Few partitions that explain all places well, the costs with what modes may explain, and what the others gain.

    `costs` are places x partitions, all for `many` observations in each place. Another partition explains more than
    it takes to say which it is, and which places it explains; what it gains is less the length of both. The parts of
    the groups of one gain nothing: ends scatter in modes that some members share.
    """
    possible = np.isfinite(costs)
    naming = math.log(costs.shape[1] + 1.0)
    bounded = np.where(possible, costs, 2.0 * float(np.abs(costs[possible]).sum()) + naming)
    chosen = [int(bounded.sum(axis=0).argmin())]
    bounded[:, np.arange(bounded.shape[1]) != chosen[0]] += BY_MODES * many[:, None]
    explained, gain = bounded[:, chosen[0]], 0.0
    while len(chosen) < bounded.shape[1]:
        less = np.maximum(explained[:, None] - bounded, 0.0)
        less[:, refinements[chosen].any(axis=0)] = 0.0
        best = int(less.sum(axis=0).argmax())
        more = float(less[:, best].sum())
        placing = math.log(math.comb(len(costs), int(np.count_nonzero(less[:, best]))))
        if more <= max(naming, placing):
            break
        chosen.append(best)
        explained, gain = np.minimum(explained, bounded[:, best]), gain + more - naming - placing
    return chosen, bounded, gain


def _few(
    costs: Floats, many: Floats, distance: Int64, group_counts: Int64, apart: Int64, pairs: Flags, refinements: Flags
) -> list[tuple[int | None, float]]:
    """For each place the partition that explains it, and how sure that is from 0 to 1: few that explain all well.

    `costs` and `apart` are places x partitions, for `many` independent observations in each place. Of partitions that
    explain a place equally, one whose groups transfer alike counts, then the nearest to those of other operations, then
    the one with fewest groups. Where one of those is of `pairs` that exchange messages, no larger group is sure.
    """
    weighed = costs * many[:, None]
    possible = np.isfinite(costs).any(axis=1)
    if not possible.any():
        return [(None, 0.0)] * len(costs)
    chosen, bounded, _ = _chosen(weighed[possible], many[possible], refinements)
    of_place = np.array(chosen)[bounded[:, chosen].argmin(axis=1)]
    sure: dict[int, float] = {}
    for one in np.unique(of_place).tolist():
        its = of_place == one
        more = weighed[possible][its] - weighed[possible][its, one][:, None]
        modes = BY_MODES * many[possible][its][:, None]
        worse = (more - np.clip(more, -modes, modes)).sum(axis=0)
        surely = 1.0 - np.exp(-np.maximum(worse, 0.0) / CLEAR)
        surely[one] = 0.0
        equal = np.flatnonzero(surely < LEAST_MATCHING_SCORE)
        if len(equal) > 1:
            differ = apart[possible][its].max(axis=0)
            best = int(equal[np.lexsort((group_counts[equal], distance[equal], differ[equal]))[0]])
            of_place[its] = best
            # where times speak against it more than modes explain, neither is sure
            clear = worse[best] <= 0.0 and (pairs[best] or not pairs[equal].any())
            sure[best] = max(_BY_GRID if clear else 0.0, sure.get(best, 0.0))
        else:
            sure[one] = float(np.delete(surely, one).min(initial=1.0))
    result: list[tuple[int | None, float]] = [(None, 0.0)] * len(costs)
    for place, one in zip(np.flatnonzero(possible).tolist(), of_place.tolist(), strict=True):
        if np.isfinite(costs[place, one]):
            result[place] = one, float(np.clip(sure[one], 0.0, NEARLY_ALL))
    return result
