"""Matches operations whose ends scatter too far for matching by time: by their order alone, with the law that members overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.align.coarse_clocks import common_time, pair_keys
from alltrace.align.communicators_by_order import communicators_by_order
from alltrace.align.matching import GUESSED, Matching, match, result_of, split
from alltrace.align.operations import flatten
from alltrace.align.order_matching import Member, matched
from alltrace.align.related_clocks import related_clocks
from alltrace.align.timelines import HeldTimelines, with_inferred

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from alltrace.align.coarse_clocks import Timing
    from alltrace.align.operations import Operations
    from alltrace.align.related_clocks import Placing

_SURE, _BY_LAW, _BY_ORDER = 1.0, 0.98, 0.9


def match_by_order(tables: Mapping[int, Any], texts: Callable[[Any], Any], placing: Placing) -> Matching:
    """Match the operations of all ranks by their order.

    Args:
        tables: Each rank's `collectives`, in its own time.
        texts: The strings of an Arrow array of name ids.
        placing: What stamps and hosts say of the ranks' clocks.
    """
    operations = flatten(tables, texts, placing.shifts_ns) if tables else None
    if operations is None or not len(operations):
        return match(tables, texts, placing.shifts_ns)
    timelines = HeldTimelines(operations)
    clocks = related_clocks(timelines, placing)
    inferred = communicators_by_order(timelines, clocks)
    if inferred.scores:
        # with communicators, the clocks use all shared operations, and more precise clocks distinguish more communicators
        clocks = related_clocks(timelines.named(inferred.of, len(inferred.scores)), placing)
        inferred = communicators_by_order(timelines, clocks)
    label = np.concatenate([inferred.of(rank) for rank in timelines.extents])
    sure = np.ones(len(operations))
    guessed = label >= 0
    if guessed.any():
        sure[guessed] = GUESSED * np.array(inferred.scores)[label[guessed]]
        operations = with_inferred(operations, label, len(inferred.scores))
    timing = common_time(operations, clocks)
    number = np.full(len(operations), -1, np.int64)
    confidence = np.zeros(len(operations))
    _by_order(operations, timing, number, confidence)
    unmatched = dict.fromkeys(sorted(tables), 0)
    return result_of(operations, timing, number, confidence * sure, unmatched, guessed, connecting=bool(guessed.any()))


def _by_order(operations: Operations, timing: Timing, number: NDArray[np.int64], confidence: NDArray[np.float64]) -> None:
    """Number the instances of known communicators, and of messages between known members, by their order."""
    messages = pair_keys(operations)
    alone = operations.peer == operations.group_rank
    for rows, group in (
        (np.flatnonzero((operations.communicator >= 0) & (operations.paired == 0)), operations.communicator),
        (np.flatnonzero((messages >= 0) & ~alone), messages),
    ):
        of_group = rows[np.lexsort((operations.start[rows], operations.rank[rows], group[rows]))]
        for mine in split(of_group, group):
            of_rank = split(mine, operations.rank)
            if len(of_rank) < 2:
                continue
            first = int(number.max(initial=-1)) + 1
            members = [_member(operations, timing, part) for part in of_rank]
            for part, member, instance in zip(of_rank, members, matched(members), strict=True):
                fits = instance >= 0
                number[part[fits]] = first + instance[fits]
                sure = np.where(member.number >= 0, _SURE, np.where(member.meets, _BY_LAW, _BY_ORDER))
                doubt = np.where(member.number >= 0, 1.0, 0.5 + 0.5 * timing.certainty[int(operations.rank[part[0]])])
                confidence[part[fits]] = (sure * doubt)[fits]


def _member(operations: Operations, timing: Timing, rows: NDArray[np.int64]) -> Member:
    """The operations of a communicator on one rank."""
    rank = int(operations.rank[rows[0]])
    message = operations.paired[rows] != 0
    return Member(
        op=np.where(message, -1, operations.op[rows]),
        size=operations.size[rows],
        start=timing.start[rows],
        end=timing.end[rows],
        meets=operations.synchronising[rows] | operations.exchanging[rows],
        number=operations.sequence[rows],
        clock=int(timing.component[rows[0]]),
        error_ns=timing.scale_ns[rank],
    )
