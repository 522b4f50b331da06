"""Matches operations across ranks: which are one instance of one communicator, and how sure that is.

All members of a communicator call its operations in the same order, so order decides: where the profiler has
communicators, the n-th operation of one member is the n-th of every other (`alltrace.align.order_matching`). For this,
ranks are put on one clock (`alltrace.align.related_clocks`), and communicators that nothing names are inferred first
(`alltrace.align.communicators_by_order`). The operations of one member and of a reference are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.align.call_order import misordered, ranks_named
from alltrace.align.clock_sharing import FEW, PlacedRank
from alltrace.align.clocks import Solution, solve
from alltrace.align.communicators_by_order import Inferred, communicators_by_order
from alltrace.align.constants import WRONG_SHARE
from alltrace.align.matching_score import Explained, connected, lacking, reason_of
from alltrace.align.members import Evidence
from alltrace.align.nameless_member import with_names
from alltrace.align.order_matching import Member, matched
from alltrace.align.related_clocks import CERTAIN, Placing, RankClock, fitted_clocks, related_clocks
from alltrace.align.schema import LEAST_MATCHING_SCORE, NEARLY_ALL, Group
from alltrace.align.timelines import PART, AnyTimelines, Kinds, NamedTimelines, Timelines, message_keys
from alltrace.run.overlay import MEMBERS
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import distinct, distinct_rows, occurrences, rows_by
from alltrace.trace.number_text import counted

MOST_EVIDENCE = 500_000
"""The most members of instances that the clocks are fitted to."""
_ALWAYS = 16
"""Of each communicator so many instances are evidence whatever the number of all."""
_MANY_UNMATCHED = 0.1
_SURE, _BY_LAW, _BY_ORDER, _INFERRED = 1.0, 1 - WRONG_SHARE, 0.9, 0.9
"""How sure an instance is by sequence numbers, by order and the law, by order alone, and if it is inferred."""
_APART = 1 / 2
"""The same if only stamps relate the clocks of its members."""
_DENSE = 0.9
"""The least share of pairs of members that send to each other if each sends to every other."""
_MEMBERS_AT_ONCE = 64
_ROUNDS = 4


@dataclass
class Matching:
    """What is one instance across ranks."""

    timelines: AnyTimelines
    clocks: Mapping[int, RankClock]  # of each member
    instance: dict[int, Int64]  # of each operation of each member, as its timeline has them, -1 without a partner
    confidence: dict[int, Floats]  # how sure each operation is of its instance
    communicator: Int64  # of each instance, row of `groups`
    ordinal: Int64  # its number among those of its communicator
    groups: tuple[Group, ...]
    unmatched: dict[int, int]  # for each rank the number of operations without a partner
    notes: tuple[str, ...]
    score: float | None = None  # how sure it is which ranks communicate; None if there is no communication
    reason: str | None = None  # why the score is too low to rely on
    explained: float | None = None  # the score without regard to what nothing connects
    solution: Solution | None = None  # clocks that were fitted to this matching

    @cached_property
    def members(self) -> int:
        return sum(int((i >= 0).sum()) for i in self.instance.values())

    def tables(self) -> Iterator[pa.Table]:
        """The members of each rank: tables of `MEMBERS`, by instance."""
        of_rank: dict[int, list[int]] = {}
        for member in self.instance:
            of_rank.setdefault(self.timelines.rank_of(member), []).append(member)
        for rank, members in of_rank.items():
            parts = []
            for member in members:
                its, number = self.timelines.of(member), self.instance[member]
                rows = np.flatnonzero(number >= 0)
                sure = self.confidence[member][rows]
                parts.append((number[rows], its.row[rows], its.start[rows], its.end[rows], sure))
            instance, row, start, end, confidence = (np.concatenate(column) for column in zip(*parts, strict=True))
            order = np.lexsort((row, instance))
            instance = instance[order]
            yield pa.table(
                {
                    "instance": instance,
                    "communicator": self.communicator[instance],
                    "ordinal": self.ordinal[instance],
                    "rank": np.full(len(instance), rank, np.int32),
                    "row": row[order],
                    "start": start[order],
                    "end": end[order],
                    "confidence": confidence[order],
                },
                schema=MEMBERS.arrow_schema(),
            )

    def evidence(self, most: int = MOST_EVIDENCE) -> Evidence:
        """What clocks are made from: all instances, or the first and every second, fourth or so of each group."""
        chosen = np.ones(len(self.ordinal), np.bool_)
        size = np.zeros(len(self.ordinal), np.int64)
        for number in self.instance.values():
            size += np.bincount(number[number >= 0], minlength=len(size))
        every = 1
        while size[chosen].sum() > most and every < most:
            every *= 2
            chosen = (self.ordinal < _ALWAYS) | (self.ordinal % every == 0)
        kinds = self.timelines.kinds
        direction = np.where(kinds.exchanging, 2, kinds.paired).astype(np.int8)
        # of a message of MPI it is only known that none is received before
        sent = (kinds.tag != -1) & (kinds.paired > 0)
        meets, none = kinds.synchronising & ~kinds.early, np.zeros(0, np.int64)
        parts: list[tuple[NDArray[Any], ...]] = [(none, none, none, none, none, meets[:0], direction[:0])]
        for member, number in self.instance.items():
            its, rank = self.timelines.of(member), self.timelines.rank_of(member)
            rows = np.flatnonzero(number >= 0)
            rows = rows[chosen[number[rows]]]
            of, kind, start = number[rows], its.kind[rows], its.start[rows]
            end = np.where(sent[kind], start, its.end[rows])
            parts.append((of, self.communicator[of], np.full(len(of), rank), start, end, meets[kind], direction[kind]))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.lexsort((columns[2], columns[0]))
        if self.timelines.devices > 1:  # of the devices of a rank, one is evidence for its clock
            again = (np.diff(columns[0][order]) == 0) & (np.diff(columns[2][order]) == 0)
            order = order[np.concatenate(([True], ~again))[: len(order)]]
        return Evidence(*(column[order] for column in columns))


def match(recorded: Timelines, placing: Placing | None = None, ranks: Sequence[PlacedRank] = ()) -> Matching:
    """Match the operations of all ranks, starting from what stamps and hosts say; an instance has two members or more.

    Where nothing names operations that a member shares, the stamps of a host are taken for one clock; if that explains
    too few operations, and each report's own pattern enough, that pattern counts.
    """
    if not recorded.extents:
        none = np.zeros(0, np.int64)
        unmatched = dict.fromkeys(sorted(recorded.rows), 0)
        return Matching(recorded, {}, {}, {}, none, none, (), unmatched, _notes(recorded.calls_only, 0, 0, {}))
    placing = placing or Placing()
    kinds = recorded.kinds
    # named operations relate a member's clock though it has nameless ones too
    named = np.unique(np.stack((kinds.communicator, kinds.member))[:, kinds.communicator >= 0], axis=1)
    shared = named[1, np.bincount(named[0])[named[0]] > 1]
    nameless = np.isin(kinds.member, shared, invert=True) & kinds.nameless
    by_host = placing.by_host() if nameless.any() else placing
    operations = with_names(recorded, by_host)
    matching = _settled(operations, by_host, ranks)
    if by_host != placing and matching.score is not None and matching.score < LEAST_MATCHING_SCORE:
        by_report = _settled(operations, placing, ranks)
        matching = by_report if (by_report.explained or 0.0) >= LEAST_MATCHING_SCORE else matching
    clocks, solution = matching.clocks, matching.solution
    related = {solution.components[operations.rank_of(m)] if solution else clocks[m].component for m in clocks}
    inferred = len(matching.timelines.kinds.names) > operations.first_inferred
    if inferred and len(related) > 1 and (matching.explained or 0.0) < LEAST_MATCHING_SCORE:
        # what explains so little where clocks are not related is not who communicates in the program
        return _matched(operations, matching.clocks, Inferred(lambda m: np.full(len(operations.of(m).end), -1), [0.0]))
    if operations is recorded:
        return matching
    alone = ranks_named({recorded.rank_of(int(m)) for m in recorded.kinds.member[recorded.kinds.nameless]})
    note = f"{alone} names no communicators, and belongs to those of which one member is missing: times show which"
    return replace(matching, notes=(note, *matching.notes))


def _settled(operations: AnyTimelines, placing: Placing, ranks: Sequence[PlacedRank]) -> Matching:
    """The matching that starts from what stamps and hosts say.

    Operations that nothing names are matched again by the clocks that are fitted to them, until nothing changes;
    without `ranks` once.
    """
    clocks = related_clocks(operations, placing)
    inferred = communicators_by_order(operations, clocks)
    matching = _matched(operations, clocks, inferred)
    previous: tuple[Matching, Inferred] | None = None
    for _ in range(_ROUNDS if ranks and inferred.scores else 0):
        solution = solve(matching.evidence(), ranks)
        clocks = fitted_clocks(operations, matching.clocks, solution, ranks)
        if len({c.component for c in clocks.values()}) > len({c.component for c in matching.clocks.values()}):
            if previous is not None:
                matching, inferred = previous
            else:
                # no operation holds the clocks together, so those of ranks that meet may be too far off to show it
                inferred = communicators_by_order(operations, matching.clocks, parted=True)
                matching = _matched(operations, matching.clocks, inferred)
            break
        before, known = previous = replace(matching, solution=solution), inferred
        inferred = communicators_by_order(operations, clocks)
        matching = _matched(operations, clocks, inferred)
        alike = len(inferred.scores) == len(known.scores) and all(
            (inferred.of(m) == known.of(m)).all() for m in operations.extents
        )
        if alike and all((matching.instance[m] == i).all() for m, i in before.instance.items()):
            matching = replace(matching, solution=solution)
            break
    return _lawful(operations, matching, inferred, ranks)


def _lawful(operations: AnyTimelines, matching: Matching, inferred: Inferred, ranks: Sequence[PlacedRank]) -> Matching:
    """The matching without the inferred communicators of which members end before others have started.

    A few instances may be matched wrongly; where it is more, all of a communicator are a number of places off. Where
    all together explain less than half, pairs that exchange messages stay if they explain at least half of theirs.
    """
    if not ranks or not inferred.scores:
        return matching
    solution = matching.solution or solve(matching.evidence(), ranks)
    matching = replace(matching, solution=solution)
    clocks = fitted_clocks(operations, matching.clocks, solution, ranks)
    count = len(matching.ordinal)
    last, first, of = np.full(count, -np.inf), np.full(count, np.inf), np.full(count, -1)
    kinds = operations.kinds
    meets = kinds.nameless & (kinds.tag == -1) & ~kinds.early
    for member, number in matching.instance.items():
        its, clock = operations.of(member), clocks[member]
        rows = np.flatnonzero((number >= 0) & meets[its.kind])
        np.maximum.at(last, number[rows], clock.common(its.start[rows]))
        np.minimum.at(first, number[rows], clock.common(its.end[rows]))
        of[number[rows]] = inferred.of(member)[rows] % PART
    slack_ns = max(clock.scale_ns for clock in clocks.values())
    own = np.flatnonzero(of >= 0)
    broken = np.bincount(of[own], first[own] < last[own] - slack_ns, len(inferred.scores))
    wrong = np.flatnonzero(broken > np.maximum(WRONG_SHARE * np.bincount(of[own], minlength=len(broken)), FEW))
    if matching.explained is not None and matching.explained < LEAST_MATCHING_SCORE:
        # the scores count only pairs of members that communicators connect, which says nothing of a pair's own
        share = (matching.score or 0.0) / matching.explained if matching.explained else 1.0
        least = LEAST_MATCHING_SCORE * share
        pairs = [g for g in matching.groups if g.found_by == "structure" and g.messages and len(g.ranks) == 2]
        weak = [int(g.name.rpartition(" ")[2]) for g in pairs if g.score < least]
        wrong = np.union1d(wrong, weak).astype(np.int64)
    wrong = np.union1d(wrong, _doubtful(matching)).astype(np.int64)
    if not len(wrong):
        return matching

    def lawful(member: int) -> Int64:
        label = inferred.of(member)
        return np.where((label >= 0) & np.isin(label % PART, wrong), -1, label)

    return _matched(operations, matching.clocks, inferred._replace(of=lawful))


def _doubtful(matching: Matching) -> list[int]:
    """The inferred pairs of members whose clocks are doubtfully related, and of whose messages many fit no other.

    What stages of a pipeline do in step may relate their clocks, though it is at different times.
    """
    kinds = matching.timelines.kinds
    share: dict[int, float] = {}
    for member, number in matching.instance.items():
        instances = number[kinds.messages[matching.timelines.of(member).kind]]
        share[member] = float(np.mean(instances >= 0)) if len(instances) else 1.0
    doubtful = []
    for name in np.unique(kinds.communicator[kinds.messages & (kinds.communicator >= 0)]).tolist():
        members = np.unique(kinds.member[kinds.communicator == name]).tolist()
        certain = [matching.clocks[m].certainty for m in members]
        across = name >= matching.timelines.first_inferred and min(certain) < CERTAIN <= max(certain)
        if across and len(members) == 2 and min(share[m] for m in members) < NEARLY_ALL:
            doubtful.append(name - matching.timelines.first_inferred)
    return doubtful


def _matched(operations: AnyTimelines, clocks: Mapping[int, RankClock], inferred: Inferred) -> Matching:
    """The matching by clocks and communicators."""
    named, count = operations.first_inferred, len(inferred.scores)
    timelines = NamedTimelines(operations, inferred.of, count) if count else operations
    certainty = np.concatenate((np.ones(named), _INFERRED * np.array(inferred.scores), [1.0]))  # the last: of none
    return _result(timelines, clocks, _instances(timelines, clocks), certainty, named)


_Instances = tuple[dict[int, Int64], dict[int, Floats], Int64]


def _instances(timelines: AnyTimelines, clocks: Mapping[int, RankClock]) -> _Instances:
    """The instances of known communicators, and of messages between known members, by their order.

    Of each operation of each member its instance and how sure that is, and of each instance its communicator.
    """
    kinds = timelines.kinds
    messages = message_keys(kinds)
    own = kinds.peer == kinds.group_rank
    ordered = distinct_rows(kinds.communicator, kinds.part)[1]
    inferred = kinds.communicator >= timelines.first_inferred  # whose sends and receives are in order too
    key = np.where((kinds.communicator >= 0) & ((kinds.paired == 0) | inferred) & (messages < 0), ordered, -1)
    key = np.where((messages >= 0) & ~own, len(kinds) + messages, key)
    members_of: dict[int, list[int]] = {}  # of operations in one order on all of them
    communicator = dict(zip(key.tolist(), kinds.communicator.tolist(), strict=True))
    for sequence, member in distinct_rows(key, kinds.member)[0].T.tolist():
        if sequence >= 0:
            members_of.setdefault(sequence, []).append(member)

    @lru_cache(_MEMBERS_AT_ONCE)
    def rows_of(member: int) -> dict[int, Int64]:
        its = timelines.of(member)
        by_start = np.argsort(its.start, kind="stable")
        return {number: by_start[rows] for number, rows in rows_by(key[its.kind[by_start]]).items()}

    number = {m: np.full(len(timelines.of(m).row), -1, np.int64) for m in timelines.extents}
    confidence = {m: np.zeros(len(n)) for m, n in number.items()}
    of_instances: list[Int64] = []
    following = 0
    for sequence, members in sorted(members_of.items(), key=lambda s: (s[1], s[0])):
        if len(members) < 2:
            continue
        counts = [len(rows_of(m)[sequence]) for m in members]

        def operations(place: int, sequence: int = sequence, members: list[int] = members) -> Member:
            member = members[place]
            return _member(timelines, clocks[member], member, rows_of(member)[sequence])

        apart = len({clocks[m].component for m in members}) > 1
        most = 0
        for place, instance in enumerate(matched(counts, operations)):
            member = members[place]
            fits = instance >= 0
            rows = rows_of(member)[sequence][fits]
            number[member][rows] = following + instance[fits]
            confidence[member][rows] = _confidence(timelines, clocks[member], member, rows, _APART if apart else 1.0)
            most = max(most, int(instance.max(initial=-1)) + 1)
        of_instances.append(np.full(most, communicator[sequence]))
        following += most
    return number, confidence, np.concatenate([np.zeros(0, np.int64), *of_instances])


def _member(timelines: AnyTimelines, clock: RankClock, member: int, rows: Int64) -> Member:
    its, kinds = timelines.of(member), timelines.kinds
    kind = its.kind[rows]
    return Member(
        op=np.where(kinds.paired[kind] != 0, -1, kinds.op[kind]),
        size=kinds.size[kind],
        start=clock.common(its.start[rows]),
        end=clock.common(its.end[rows]),
        meets=kinds.synchronising[kind] | kinds.exchanging[kind],
        way=np.where(kinds.tag[kind] != -1, kinds.paired[kind], 0),
        number=its.sequence[rows],
        clock=clock.component,
        error_ns=clock.scale_ns,
    )


def _confidence(timelines: AnyTimelines, clock: RankClock, member: int, rows: Int64, related: float) -> Floats:
    its, kinds = timelines.of(member), timelines.kinds
    meets = (kinds.synchronising | kinds.exchanging)[its.kind[rows]]
    by_clock = related * (1.0 + clock.certainty) / 2
    return np.where(its.sequence[rows] >= 0, _SURE, by_clock * np.where(meets, _BY_LAW, _BY_ORDER))


def _result(
    timelines: AnyTimelines, clocks: Mapping[int, RankClock], instances: _Instances, certainty: Floats, named: int
) -> Matching:
    """The matching, with instances in the order of their first end, and how well it explains the operations.

    `certainty` is that of each communicator, and last 1 for operations without one; the first `named` were not
    inferred.
    """
    unmatched = dict.fromkeys(sorted(timelines.rows), 0)
    instance_of, confidence_of, communicator_of = instances
    count = len(communicator_of)
    size, first_end = np.zeros(count, np.int64), np.full(count, np.inf)
    best, second = np.zeros(count), np.zeros(count)
    for member, before in instance_of.items():
        rows = np.flatnonzero(before >= 0)
        of = before[rows]
        size[of] += 1
        first_end[of] = np.minimum(first_end[of], clocks[member].common(timelines.of(member).end[rows]))
        sure = confidence_of[member][rows]
        second[of] = np.maximum(second[of], np.minimum(best[of], sure))
        best[of] = np.maximum(best[of], sure)
    alive = np.flatnonzero(size >= 2)
    order = alive[np.argsort(first_end[alive], kind="stable")]
    renumbered = np.full(count + 1, -1, np.int64)
    renumbered[order] = np.arange(len(order))
    used, place = distinct(communicator_of[order])
    explained = Explained(timelines, clocks, size[order])
    number: dict[int, Int64] = {}
    confidence: dict[int, Floats] = {}
    alone: dict[int, Flags] = {}
    for member, before in instance_of.items():
        number[member] = its = renumbered[before]
        # a reference is no surer than its surest partner
        confidence[member] = np.where(its >= 0, np.minimum(confidence_of[member], np.append(second, 0.0)[before]), 0.0)
        group = timelines.kinds.communicator[timelines.of(member).kind]
        confidence[member] *= certainty[group]
        alone[member] = its < 0
        rank = timelines.rank_of(member)
        unmatched[rank] += int(alone[member].sum())
        explained.add(member, its, confidence[member])
    share, apart, tried = 1.0, 1, len(timelines.kinds.names) > named  # whether communicators were inferred
    if tried:  # members that no communicator connects may still belong together
        pairs = distinct_rows(timelines.kinds.communicator, timelines.kinds.member)[0]
        pairs = pairs[:, np.isin(pairs[0], used)]
        share, apart = connected(pairs[0], pairs[1], np.array(list(timelines.extents)))
    score = explained.score(share)
    groups = tuple(
        _group(timelines, explained, n, group, share, inferred=group >= named) for n, group in enumerate(used.tolist())
    )
    by_rank = {timelines.rank_of(m): c.certainty for m, c in clocks.items()}
    kinds = timelines.kinds
    guessed = len(np.unique(kinds.communicator[kinds.communicator >= named]))
    withheld, unsure = (
        int(kinds.count[kinds.nameless & tried & its].sum()) for its in (kinds.messages, ~kinds.messages)
    )
    notes = _notes(timelines.calls_only, guessed, withheld, lacking(timelines, clocks, alone), timelines.tested, unsure)
    notes = (*notes, *misordered(timelines, number, clocks))
    reason = reason_of(score, explained.unnamed, by_rank, apart)
    ordinal, whole = occurrences(place), explained.score(1.0)
    return Matching(
        timelines, clocks, number, confidence, place, ordinal, groups, unmatched, notes, score, reason, whole
    )


def _group(
    timelines: AnyTimelines, explained: Explained, place: int, group: int, share: float, *, inferred: bool
) -> Group:
    """A communicator of the run; `share` is that of the pairs of members that communicators connect."""
    kinds = timelines.kinds
    mine = np.flatnonzero(kinds.communicator == group)
    members = np.unique(kinds.member[mine]).tolist()
    ranks = tuple(dict.fromkeys(timelines.rank_of(m) for m in members))
    return Group(
        number=place,
        name=kinds.names[group],
        ranks=ranks,
        size=max(int(kinds.group_size[mine].max()), len(members)),
        found_by="structure" if inferred else "ids",
        score=explained.score_of(group, share),
        messages=bool(kinds.messages[mine].all()),
        all_to_all=_all_to_all(kinds, mine, explained.whole_share(group, len(members)), len(members)),
    )


def _all_to_all(kinds: Kinds, mine: Int64, whole: float, size: int) -> bool:
    """Whether each member of a communicator exchanges with every other most of the time.

    Either the operation's name states it, or it is a kernel that sends and receives and all members run it at once, or
    each member sends to every other. With two members, an exchange looks like that of two stages of a pipeline.
    """
    exchanges = kinds.all_to_all[mine].astype(np.float64)
    if size > 2:
        sends = mine[kinds.paired[mine] > 0]
        pairs = distinct_rows(kinds.member[sends], kinds.peer[sends])[0]
        dense = pairs.shape[1] >= _DENSE * size * (size - 1)
        exchanges = np.maximum(exchanges, np.where(kinds.exchanging[mine], whole, 0.0))
        exchanges = np.maximum(exchanges, (kinds.paired[mine] != 0) & dense)
    return bool(np.average(exchanges, weights=kinds.count[mine]) > 1 / 2)


def _notes(
    calls_only: int, inferred: int, withheld: int, alone: Mapping[int, float], tested: int = 0, unsure: int = 0
) -> tuple[str, ...]:
    """What a reader must know; `alone` is the share of operations without a partner while all were captured."""
    notes = []
    if calls_only:
        calls = counted(calls_only, "communication call has", "communication calls have")
        lacks = "no kernel, end, communicator or set-up in the reports"
        notes.append(f"{calls} {lacks}, so {'it is' if calls_only == 1 else 'they are'} not matched")
    if tested:
        operations = counted(tested, "MPI operation was", "MPI operations were")
        notes.append(
            f"{operations} completed by calls that test, such as MPI_Test; profilers record only the last of these, so"
            " how long ranks waited there is not known"
        )
    if inferred:
        notes.append(
            f"{counted(inferred, 'communicator is', 'communicators are')} inferred from times, because the reports do"
            f" not name {'it' if inferred == 1 else 'them'}; groups that work in lockstep can be mistaken for one"
        )
    if withheld:
        notes.append(
            f"{withheld} sends and receives are not matched, because their times fit several partners, or none"
        )
    if unsure:
        operations = counted(unsure, "collective operation is", "collective operations are")
        notes.append(
            f"{operations} not matched, because times do not show which ranks meet in {'it' if unsure == 1 else 'them'}"
        )
    without = [r for r, share in alone.items() if share > _MANY_UNMATCHED]
    if without:
        notes.append(
            f"{ranks_named(without)}: more than {100 * _MANY_UNMATCHED:.0f} % of the communication found no match on"
            " other ranks; possible causes are reports of another run, missing ranks, dropped events or a clock that"
            " was set"
        )
    return tuple(notes)
