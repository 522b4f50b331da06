"""Members of a communicator that call its operations in another order than others: an error of the program that ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from alltrace.align.timelines import AnyTimelines
from alltrace.trace.arrays import Int64
from alltrace.trace.distinct import distinct_rows, rows_by

_MOST_CALLS = 8
"""Longer sequences are not compared: they may be of other parts of the run."""


class _Calls(NamedTuple):
    """The calls of a communicator by one member, in their order."""

    member: int
    op: Int64
    instance: Int64  # -1 without one


def misordered(timelines: AnyTimelines, instance: Mapping[int, Int64]) -> list[str]:
    """A sentence for each communicator whose members call operations without a partner in different orders, with both orders."""
    kinds = timelines.kinds
    named = (kinds.communicator >= 0) & (kinds.communicator < timelines.first_inferred) & (kinds.paired == 0) & ~kinds.exchanging
    lacking = [m for m, number in instance.items() if (number < 0).any()]
    pairs = distinct_rows(kinds.communicator[named], kinds.member[named])[0]
    pairs = pairs[:, np.isin(pairs[1], lacking)]
    sentences = []
    for group, places in rows_by(pairs[0]).items():
        calls = []
        for member in pairs[1][places].tolist():
            its = timelines.of(member)
            own = np.flatnonzero(named[its.kind] & (kinds.communicator[its.kind] == group))
            own = own[np.argsort(its.start[own], kind="stable")]
            calls.append(_Calls(member, kinds.op[its.kind[own]], instance[member][own]))
        for other in calls[1:]:
            orders = _orders(calls[0], other)
            if orders is not None:
                one, another = (", ".join(kinds.ops[op] for op in order) for order in orders)
                sentences.append(
                    f"rank {timelines.rank_of(calls[0].member)} calls {one} of communicator {kinds.names[group]} where rank "
                    f"{timelines.rank_of(other.member)} calls {another}: all must call them in one order, or the program hangs "
                    "or mixes its data"
                )
                break
    return sentences


def _orders(one: _Calls, other: _Calls) -> tuple[list[int], list[int]] | None:
    """The first operations between two common instances that both members have, in different orders."""
    common = np.intersect1d(one.instance, other.instance)
    common = common[common >= 0]
    for mine, theirs in zip(_between(one, common), _between(other, common), strict=True):
        if mine != theirs and sorted(mine) == sorted(theirs) and len(mine) <= _MOST_CALLS:
            return mine, theirs
    return None


def _between(calls: _Calls, common: Int64) -> list[list[int]]:
    """The operations before, between and after those of common instances."""
    shared = np.isin(calls.instance, common)
    at = np.flatnonzero(shared)
    return [op[~known].tolist() for op, known in zip(np.split(calls.op, at), np.split(shared, at), strict=True)]
