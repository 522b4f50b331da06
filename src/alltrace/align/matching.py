"""Matches operations across ranks: which are one instance of one communicator, and how sure that is.

If the profiler has communicator and sequence number, these decide. Otherwise time decides, not the ordinal, which one lost event
would shift: members of a synchronising operation end together, so once ranks are on one clock (`alltrace.align.coarse_clocks`),
operations with equal communicator and token (operation, size, type) and coinciding ends are one instance. Unknown communicators are
inferred first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alltrace.align.coarse_clocks import common_time, pair_keys, rank_clocks
from alltrace.align.communicator_inference import infer_communicators
from alltrace.align.instances import clusters, filled, pair
from alltrace.align.matching_score import connected, explained, reason_of
from alltrace.align.operations import flatten
from alltrace.align.schema import Group
from alltrace.align.timelines import HeldTimelines, with_inferred
from alltrace.run.overlay import MEMBERS
from alltrace.trace.distinct import distinct_rows, rows_by
from alltrace.trace.number_text import number_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.align.coarse_clocks import RankClock, Timing
    from alltrace.align.communicator_inference import Inferred
    from alltrace.align.operations import Operations
    from alltrace.align.timelines import Timelines

_TIGHTEST_NS, _LOOSEST_NS = 20_000.0, 200_000.0
_OTHERS_LOOSEST_NS = 5e6
_LEAST_SHARED_NS = 3_000.0
_MANY_UNMATCHED = 0.1
FEW = 10
"""Of so few operations a share says nothing."""
_FARTHEST_NS = 2_000_000_000
_SURE, _BY_TIME, _OTHER, _FILLED, _BY_ORDER = 1.0, 0.98, 0.8, 0.7, 0.5
GUESSED = 0.9
_DENSE = 0.9
"""The least share of pairs of members that send to each other if each sends to every other."""


@dataclass(frozen=True)
class Matching:
    """What is one instance across ranks.

    Attributes:
        groups: The communicators.
        members: A `pyarrow.Table` of `MEMBERS`.
        unmatched: For each rank the number of operations that found no partner.
        notes: What a reader must know, each one sentence.
        score: How sure it is which ranks communicate, from 0 to 1; None if there is no communication.
        reason: One sentence why the score is too low to rely on; None if it is not.
        explained: How well each operation is explained, whose mean is the score, by rank and end; those that do not count have NaN.
        places: For each of these its rank and the row of the rank's table: int64 arrays of equal length.
    """

    groups: tuple[Group, ...]
    members: Any
    unmatched: dict[int, int]
    notes: tuple[str, ...]
    score: float | None = None
    reason: str | None = None
    explained: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    places: tuple[NDArray[np.int64], NDArray[np.int64]] = (np.zeros(0, np.int64), np.zeros(0, np.int64))


class Known(NamedTuple):
    """What is known of the whole run where the operations of a window are matched.

    Attributes:
        clocks: The clock of each rank.
        scores: How sure each communicator is that was inferred; operations have its number in a column `inferred`.
    """

    clocks: Mapping[int, RankClock]
    scores: Sequence[float]


def match(
    tables: Mapping[int, Any],
    texts: Callable[[Any], Any],
    shifts_ns: Mapping[int, int] | None = None,
    hosts: Mapping[int, str] | None = None,
    known: Known | None = None,
) -> Matching:
    """Match the operations of all ranks.

    Args:
        tables: Each rank's `collectives`, in its own time.
        texts: The strings of an Arrow array of name ids.
        shifts_ns: What brings the times of a host's ranks roughly together (to a second), such as their UTC stamps; None if
            nothing does.
        hosts: The host of each rank; between hosts the shifts may be off by any time. None if all ranks are of one.
        known: What is known of the whole run, of which these operations are a window; then shifts and hosts are not needed, and
            the score does not count whether communicators connect all ranks.

    Returns:
        The matching. An instance has at least two members, of different ranks, each rank once.
    """
    operations = flatten(tables, texts, shifts_ns or {}) if tables else None
    unmatched = dict.fromkeys(sorted(tables), 0)
    if operations is None or not len(operations):
        return Matching((), MEMBERS.arrow_schema().empty_table(), unmatched, _notes(operations))
    whole = known is None
    inferred = operations.inferred
    if known is None:
        timelines = HeldTimelines(operations)
        clocks, found = clocks_and_communicators(timelines, shifts_ns, hosts)
        known = Known(clocks, found.scores)
        inferred = np.concatenate([found.of(rank) for rank in timelines.extents])
    told = np.ones(len(operations))
    guessed = inferred >= 0
    if guessed.any():
        told[guessed] = GUESSED * np.array(known.scores)[inferred[guessed]]
        operations = with_inferred(operations, inferred, len(known.scores))
    timing = common_time(operations, known.clocks)
    number = np.full(len(operations), -1, np.int64)
    confidence = np.zeros(len(operations))
    by_sequence(operations, number, confidence)
    by_time(operations, timing, number, confidence)
    by_pairs(operations, timing, number, confidence)
    by_order(operations, number, confidence)
    confidence *= told
    return result_of(operations, timing, number, confidence, unmatched, guessed, connecting=whole and bool(guessed.any()))


def clocks_and_communicators(
    timelines: Timelines, shifts_ns: Mapping[int, int] | None, hosts: Mapping[int, str] | None
) -> tuple[dict[int, RankClock], Inferred]:
    """The clock of each rank, and the communicators of operations that nothing names; arguments as of `match`."""
    clocks = rank_clocks(timelines, shifts_ns, hosts)
    found = infer_communicators(timelines, clocks)
    if found.scores:
        # with communicators, the clocks use all shared operations, and more precise clocks find more communicators
        again = rank_clocks(timelines.named(found.of, len(found.scores)), shifts_ns, hosts)
        if _components(again) <= _components(clocks):
            clocks, found = again, infer_communicators(timelines, again)
    return clocks, found


def _components(clocks: Mapping[int, RankClock]) -> int:
    return len({c.component for c in clocks.values()})


def by_sequence(operations: Operations, number: NDArray[np.int64], confidence: NDArray[np.float64]) -> None:
    """Number the instances that communicator and sequence number determine.

    Operations that were coalesced have one number: the k-th of each rank are an instance. If ranks have not as many of them,
    time decides.
    """
    told = np.flatnonzero((operations.sequence >= 0) & (operations.communicator >= 0) & (operations.paired == 0))
    if not len(told):
        return
    found = distinct_rows(operations.communicator[told], operations.op[told], operations.sequence[told])[1]
    order = np.lexsort((operations.rank[told], found))  # of equal ones those that end first come first
    again = (np.diff(found[order]) == 0) & (np.diff(operations.rank[told][order]) == 0)
    if again.any():
        heads = np.flatnonzero(np.concatenate(([True], ~again)))
        many = np.diff(np.append(heads, len(order)))
        most, least = np.zeros(int(found.max()) + 1, np.int64), np.full(int(found.max()) + 1, len(order))
        np.maximum.at(most, found[order[heads]], many)
        np.minimum.at(least, found[order[heads]], many)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order)) - np.repeat(heads, many)
        equal = (most == least)[found]
        told, found = told[equal], pair(found, place)[equal]
        found = np.unique(found, return_inverse=True)[1].reshape(-1)
    number[told] = found
    confidence[told] = _SURE


def by_time(operations: Operations, timing: Timing, number: NDArray[np.int64], confidence: NDArray[np.float64]) -> None:
    """Number the instances of known communicators by their ends."""
    rows = np.flatnonzero((number < 0) & (operations.communicator >= 0) & (operations.paired == 0))
    if not len(rows):
        return
    group = pair(operations.communicator[rows], timing.component[rows])
    token, rank = operations.token[rows], operations.rank[rows]
    start, end = timing.start[rows], timing.end[rows]
    synchronising = operations.synchronising[rows] | operations.exchanging[rows]
    ranks = np.array(sorted(timing.scale_ns))
    scale = np.array([timing.scale_ns[r] for r in ranks.tolist()])
    gap = np.clip(12 * scale[np.searchsorted(ranks, rank)], _TIGHTEST_NS, _LOOSEST_NS)
    gap = np.where(synchronising, gap, _spacing(group, token, rank, end) / 4)
    found = clusters(group, token, rank, end, gap)
    placed = filled(found, group, token, rank, start, end, 3 * float(np.median(scale)) + _LEAST_SHARED_NS)
    sure = np.array([timing.certainty[r] for r in ranks.tolist()])[np.searchsorted(ranks, rank)]
    number[rows] = found + int(number.max(initial=-1)) + 1
    confidence[rows] = np.where(placed, _FILLED, np.where(synchronising, _BY_TIME, _OTHER)) * (0.5 + 0.5 * sure)


def by_pairs(operations: Operations, timing: Timing, number: NDArray[np.int64], confidence: NDArray[np.float64]) -> None:
    """Number the pairs of send and receive between two ranks with kernels that end near each other."""
    key = pair_keys(operations)
    rows = np.flatnonzero((number < 0) & (key >= 0) & (operations.peer != operations.group_rank))
    if not len(rows):
        return
    group, token, rank = timing.component[rows], key[rows], operations.rank[rows]
    start, end = timing.start[rows], timing.end[rows]
    found = clusters(group, token, rank, end, _spacing(group, token, rank, end) / 4)
    placed = filled(found, group, token, rank, start, end, _TIGHTEST_NS / 2)
    number[rows] = found + int(number.max(initial=-1)) + 1
    confidence[rows] = np.where(placed, _FILLED, _OTHER)


def by_order(operations: Operations, number: NDArray[np.int64], confidence: NDArray[np.float64]) -> None:
    """Number in order the operations of a communicator in which time matched nothing, where its ranks' sequences are equal."""
    done = _sizes(number)[1] >= 2
    known = (operations.communicator >= 0) & (operations.paired == 0)
    matched = np.unique(operations.communicator[known & done])
    rows = np.flatnonzero(known & ~np.isin(operations.communicator, matched))
    rows = rows[np.lexsort((operations.end[rows], operations.rank[rows], operations.communicator[rows]))]
    following = int(number.max(initial=-1)) + 1
    for mine in split(rows, operations.communicator):
        sequences: dict[bytes, list[NDArray[np.int64]]] = {}
        for part in split(mine, operations.rank):
            sequences.setdefault(operations.token[part].tobytes(), []).append(part)
        for parts in sequences.values():
            ends = np.array([operations.shifted_end[p] for p in parts])
            if len(parts) < 2 or (np.ptp(ends, axis=0) > _FARTHEST_NS).any():
                continue
            length = len(parts[0])
            for part in parts:
                number[part] = following + np.arange(length)
                confidence[part] = _BY_ORDER
            following += length


def split(rows: NDArray[np.int64], values: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Runs of rows of equal value."""
    if not len(rows):
        return []
    return np.split(rows, np.flatnonzero(np.diff(values[rows])) + 1)


def _spacing(
    group: NDArray[np.int64], token: NDArray[np.int64], rank: NDArray[np.int64], end: NDArray[np.float64]
) -> NDArray[np.float64]:
    """For each operation how close operations of its kind follow each other on a rank: the lowest twentieth, ns."""
    order = np.lexsort((end, rank, token, group))
    g, t, r, e = group[order], token[order], rank[order], end[order]
    kinds = np.cumsum(np.concatenate(([True], (g[1:] != g[:-1]) | (t[1:] != t[:-1])))) - 1
    same = (kinds[1:] == kinds[:-1]) & (r[1:] == r[:-1])
    apart = np.where(same, e[1:] - e[:-1], np.inf)
    kind = kinds[1:]
    sort = np.lexsort((apart, kind))
    many = np.bincount(kind[same], minlength=int(kinds[-1]) + 1)
    first = np.searchsorted(kind[sort], np.arange(len(many)))
    at = np.minimum(first + many // 20, max(len(sort) - 1, 0))
    low = np.where(many > 0, apart[sort][at] if len(sort) else np.inf, np.inf)
    result = np.empty(len(end))
    result[order] = np.minimum(low, 4 * _OTHERS_LOOSEST_NS)[kinds]
    return result


def _mutual(instance: NDArray[np.int64], confidence: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each member's confidence, at most that of the most certain other member: a reference operation is no more certain."""
    if not len(instance):
        return confidence
    order = np.lexsort((-confidence, instance))
    head = np.flatnonzero(np.concatenate(([True], instance[order][1:] != instance[order][:-1])))
    result: NDArray[np.float64] = confidence.copy()
    result[order[head]] = confidence[order[head + 1]]
    return result


def _sizes(number: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The members of each instance, and for each operation the number of members of its instance, 0 without one."""
    count = np.bincount(number + 1, minlength=1)
    count[0] = 0
    return count[1:], count[number + 1]


def result_of(
    operations: Operations,
    timing: Timing,
    number: NDArray[np.int64],
    confidence: NDArray[np.float64],
    unmatched: dict[int, int],
    guessed: NDArray[np.bool_],
    *,
    connecting: bool,
) -> Matching:
    """The members table, communicators and what is left over; `connecting`: the score counts if communicators connect all ranks."""
    import pyarrow as pa

    count, of = _sizes(number)
    matched = of >= 2
    rows = np.flatnonzero(matched)
    first_end = np.full(len(count), np.inf)
    np.minimum.at(first_end, number[rows], timing.end[rows])
    alive = np.flatnonzero(np.isfinite(first_end))
    order = alive[np.argsort(first_end[alive], kind="stable")]
    renumbered = np.full(len(count), -1, np.int64)
    renumbered[order] = np.arange(len(order))
    instance = renumbered[number[rows]]
    used = np.unique(operations.communicator[rows])
    communicator = np.searchsorted(used, operations.communicator[rows])
    # the place among the instances of a communicator
    heads = np.zeros(len(order), np.int64)
    heads[instance] = communicator
    by_group = np.argsort(heads, kind="stable")
    begins = np.searchsorted(heads[by_group], np.arange(len(used)))
    ordinal = np.empty(len(order), np.int64)
    ordinal[by_group] = np.arange(len(order)) - begins[heads[by_group]]
    sure = _mutual(instance, confidence[rows])
    sort = np.lexsort((operations.rank[rows], instance))
    members = pa.table(
        {
            "instance": instance[sort],
            "communicator": communicator[sort],
            "ordinal": ordinal[instance[sort]],
            "rank": operations.rank[rows][sort].astype(np.int32),
            "row": operations.row[rows][sort],
            "start": operations.start[rows][sort],
            "end": operations.end[rows][sort],
            "confidence": sure[sort],
        },
        schema=MEMBERS.arrow_schema(),
    )
    for rank, many in zip(*np.unique(operations.rank[~matched], return_counts=True), strict=True):
        unmatched[int(rank)] = int(many)
    value, counts = explained(operations, timing, number, confidence)
    apart = 1
    if connecting:  # unconnected ranks may still belong together
        share, apart = connected(operations.communicator[rows], operations.rank[rows], np.unique(operations.rank))
        value *= share
    score = round(float(value[counts].mean()), 3) if counts.any() else None
    unnamed = float((operations.communicator[counts] < 0).mean()) if counts.any() else 0.0
    reason = reason_of(score, unnamed, timing.certainty, apart)
    value = np.where(counts, value, np.nan)
    groups = _groups(operations, used, guessed, value, of)
    inferred_groups = len(np.unique(operations.communicator[guessed]))
    notes = _notes(operations, timing, ~matched, inferred_groups)
    return Matching(groups, members, unmatched, notes, score, reason, value, (operations.rank, operations.row))


def _groups(
    operations: Operations,
    used: NDArray[np.int64],
    guessed: NDArray[np.bool_],
    value: NDArray[np.float64],
    of: NDArray[np.int64],
) -> tuple[Group, ...]:
    """The communicators; `value` is how well each operation is explained, NaN if that does not count, `of` its members."""
    groups = []
    order = np.argsort(operations.communicator, kind="stable")
    bounds = [np.searchsorted(operations.communicator[order], used, side).tolist() for side in ("left", "right")]
    for place, (communicator, low, high) in enumerate(zip(used.tolist(), *bounds, strict=True)):
        mine = order[low:high]
        ranks = tuple(np.unique(operations.rank[mine]).tolist())
        size = max(int(operations.group_size[mine].max()), len(ranks))
        told = value[mine][~np.isnan(value[mine])]
        score = round(float(told.mean()), 3) if len(told) else 1.0
        found_by = "structure" if guessed[mine].any() else "ids"
        messages = bool(((operations.paired[mine] != 0) | operations.exchanging[mine]).all())
        dense = _all_to_all(operations, mine, of[mine], len(ranks))
        groups.append(Group(place, operations.names[communicator], ranks, size, found_by, score, messages, dense))
    return tuple(groups)


def _all_to_all(operations: Operations, mine: NDArray[np.int64], of: NDArray[np.int64], size: int) -> bool:
    """Whether each member of a communicator exchanges with every other most of the time.

    Either the operation's name states it, or it is a kernel that sends and receives and all members run it at once, or each member
    sends to every other. With two members, an exchange looks like that of two stages of a pipeline.
    """
    exchanges = operations.all_to_all[mine]
    if size > 2:
        sends = mine[operations.paired[mine] > 0]
        pairs = distinct_rows(operations.rank[sends], operations.peer[sends])[0]
        dense = pairs.shape[1] >= _DENSE * size * (size - 1)
        exchanges = exchanges | (operations.exchanging[mine] & (of == size)) | ((operations.paired[mine] != 0) & dense)
    return bool(exchanges.mean() > 1 / 2)


def _lacking(operations: Operations, timing: Timing, alone: NDArray[np.bool_]) -> dict[int, float]:
    """For each rank the share of its operations without a partner, while every rank of its component was captured."""
    ranks, low = np.unique(operations.rank, return_index=True)
    if len(ranks) < 2:
        return {}
    found = {}
    high = np.append(low[1:], len(operations.rank))
    first, last = np.minimum.reduceat(timing.end, low), np.maximum.reduceat(timing.end, low)
    for its in rows_by(timing.component[low]).values():
        begin, stop = (first[its].max(), last[its].min()) if len(its) > 1 else (-np.inf, np.inf)
        for i in its.tolist():
            part = slice(int(low[i]), int(high[i]))
            mine = (timing.end[part] >= begin) & (timing.end[part] <= stop)
            if mine.sum() > FEW:
                found[int(ranks[i])] = float(alone[part][mine].mean())
    return found


def _notes(
    operations: Operations | None, timing: Timing | None = None, alone: NDArray[np.bool_] | None = None, guessed: int = 0
) -> tuple[str, ...]:
    if operations is None:
        return ()
    return notes_of(operations.calls_only, guessed, {} if alone is None or timing is None else _lacking(operations, timing, alone))


def notes_of(calls_only: int, guessed: int, alone: Mapping[int, float]) -> tuple[str, ...]:
    """What a reader of matches must know.

    Args:
        calls_only: The number of operations known by their call alone.
        guessed: The number of communicators that were inferred.
        alone: For ranks with more than a few operations while all ranks were captured, the share of these without a partner.
    """
    notes = []
    if calls_only:
        notes.append(f"{calls_only} communication calls have no kernel in the reports, so they are not matched")
    if guessed:
        notes.append(
            f"{guessed} communicators are inferred from times, because the reports do not name them; groups that work in lockstep "
            "can be mistaken for one"
        )
    lacking = [r for r, share in alone.items() if share > _MANY_UNMATCHED]
    if lacking:
        notes.append(
            f"{_ranks_named(lacking)}: more than {_MANY_UNMATCHED:.0%} of the communication found no match on other ranks; "
            "possible causes are reports of another run, missing ranks, dropped events or a clock that was set"
        )
    return tuple(notes)


def _ranks_named(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {number_ranges(ranks)}"
