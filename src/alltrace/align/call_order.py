"""What cannot be matched: calls in another order than others', which is an error of the program, and windows apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from alltrace.align.related_clocks import RankClock
from alltrace.align.timelines import AnyTimelines
from alltrace.trace.arrays import Int64
from alltrace.trace.distinct import distinct_rows, rows_by
from alltrace.trace.number_text import number_ranges

_MOST_CALLS = 8
"""Longer sequences are not compared: they may be of other parts of the run."""


def ranks_named(ranks: Collection[int]) -> str:
    """Ranks in a sentence."""
    return f"rank{'s' * (len(ranks) > 1)} {number_ranges(sorted(ranks))}"


class _Calls(NamedTuple):
    member: int
    op: Int64
    instance: Int64  # -1 without one

    def lacking(self) -> int:
        return int((self.instance < 0).sum())


def misordered(timelines: AnyTimelines, instance: Mapping[int, Int64], clocks: Mapping[int, RankClock]) -> list[str]:
    """A sentence for each communicator whose members call operations in different orders, with both orders."""
    kinds = timelines.kinds
    named = (
        (kinds.communicator >= 0)
        & (kinds.communicator < timelines.first_inferred)
        & (kinds.paired == 0)
        & ~kinds.exchanging
    )
    lacking = {m for m, number in instance.items() if (number < 0).any()}
    pairs = distinct_rows(kinds.communicator[named], kinds.member[named])[0]
    sentences = []
    for group, places in rows_by(pairs[0]).items():
        calls = []
        for member in pairs[1][places].tolist() if lacking.intersection(pairs[1][places].tolist()) else ():
            its = timelines.of(member)
            own = np.flatnonzero(named[its.kind] & (kinds.communicator[its.kind] == group))
            own = own[np.argsort(its.start[own], kind="stable")]
            calls.append(_Calls(member, kinds.op[its.kind[own]], instance[member][own]))
        calls.sort(key=_Calls.lacking)  # the first is as most are
        for other in calls[1:]:
            shifted = (
                clocks[calls[0].member].component == clocks[other.member].component and other.lacking() >= _MOST_CALLS
            )
            orders = _orders(calls[0], other, shifted=shifted)
            if orders is not None:
                one, another = (", ".join(kinds.ops[op] for op in order) for order in orders)
                sentences.append(
                    f"rank {timelines.rank_of(calls[0].member)} calls {one} of communicator {kinds.names[group]} where"
                    f" rank {timelines.rank_of(other.member)} calls {another}: all must call them in one order, or the"
                    " program hangs or mixes its data"
                )
                break
    return sentences


def _orders(one: _Calls, other: _Calls, *, shifted: bool) -> tuple[list[int], list[int]] | None:
    """The first calls of shifted sequences, or the first between common instances in different orders."""
    if shifted:
        mine, theirs = one.op.tolist(), other.op.tolist()
        if _shifted(mine, theirs) or _shifted(theirs, mine):
            return mine[:_MOST_CALLS], theirs[:_MOST_CALLS]
    common = np.intersect1d(one.instance, other.instance)
    common = common[common >= 0]
    for mine, theirs in zip(_between(one, common), _between(other, common), strict=True):
        if mine != theirs and sorted(mine) == sorted(theirs) and len(mine) <= _MOST_CALLS:
            return mine, theirs
    return None


def _shifted(early: list[int], late: list[int]) -> bool:
    """Whether one begins some calls later in the same sequence, though by one clock these calls are no partners."""
    for shift in range(1, _MOST_CALLS):
        many = min(len(early) - shift, len(late))
        if (
            many >= _MOST_CALLS
            and len(set(late[:many])) > 1
            and early[shift : shift + many] == late[:many] != early[:many]
        ):
            return True
    return False


def recorded_apart(timelines: AnyTimelines, clocks: Mapping[int, RankClock], host_of: Mapping[int, str]) -> list[str]:
    """A sentence for each host with ranks whose operations are all over before those of others begin."""
    of_host: dict[str, list[tuple[float, float, int]]] = {}
    for member, extent in timelines.extents.items():
        rank = timelines.rank_of(member)
        begin, end = map(clocks[member].common, extent)
        of_host.setdefault(host_of[rank], []).append((begin, end, rank))
    sentences = []
    for host, spans in of_host.items():
        spans.sort()
        reached = np.maximum.accumulate([end for _, end, _ in spans])
        for place, ((begin, _, _), over) in enumerate(zip(spans[1:], reached, strict=False), 1):
            if begin > over:
                before, after = (ranks_named({rank for _, _, rank in part}) for part in (spans[:place], spans[place:]))
                sentences.append(
                    f"on {host} the communication of {before} ends {(begin - over) / 1e9:,.3f} s before that of"
                    f" {after}: their windows do not overlap, so nothing is matched between them"
                )
                break
    return sentences


def _between(calls: _Calls, common: Int64) -> list[list[int]]:
    """The operations before, between and after those of common instances."""
    shared = np.isin(calls.instance, common)
    at = np.flatnonzero(shared)
    return [op[~known].tolist() for op, known in zip(np.split(calls.op, at), np.split(shared, at), strict=True)]
