"""The communicators of a member that alone has no names, as where its report begins after its graphs were captured.

All others name theirs, and each that the member belongs to lacks it. Where these have, in its time, as many operations
as it has, each there at the time of one of its own, they are the same. A rank without a report may be what they lack.
"""

from __future__ import annotations

import numpy as np

from alltrace.align.clock_sharing import FEW
from alltrace.align.related_clocks import Placing, related_clocks
from alltrace.align.schema import NEARLY_ALL
from alltrace.align.timelines import AnyTimelines, Kinds, NamedTimelines, Timelines
from alltrace.trace.arrays import nearest
from alltrace.trace.distinct import rows_by


def with_names(operations: Timelines, placing: Placing) -> AnyTimelines:
    """The operations, with communicators for those of a member that alone has none, if it is sure which they are."""
    kinds = operations.kinds
    nameless = np.unique(kinds.member[kinds.nameless]).tolist()
    lacking = _lacking_one(kinds, nameless[0], len(operations.extents)) if len(nameless) == 1 else {}
    if not lacking or max(operations.rows) >= len(operations.rows):
        return operations
    member, clocks = nameless[0], related_clocks(operations, placing)
    clock, its = clocks[member], operations.of(member)
    parts = []
    for group, members in lacking.items():
        other = min(members, key=lambda m: (clocks[m].component != clock.component, clocks[m].scale_ns))
        if clocks[other].component != clock.component:
            return operations  # it may be the member's, too
        theirs = operations.of(other)
        rows = np.flatnonzero(kinds.communicator[theirs.kind] == group)
        times = (clocks[other].common(t[rows]) for t in (theirs.start, theirs.end))
        parts.append((*times, kinds.op[theirs.kind[rows]], np.full(len(rows), group)))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    start, end, op, groups = (column[np.argsort(columns[1], kind="stable")] for column in columns)
    own = np.flatnonzero(kinds.nameless[its.kind])
    own_start, own_end = clock.common(its.start[own]), clock.common(its.end[own])
    at = nearest(end, own_end)
    same = (nearest(own_end, end)[at] == np.arange(len(own))) & (op[at] == kinds.op[its.kind[own]])
    slack_ns = 2.0 * max(c.scale_ns for c in clocks.values())
    same &= np.maximum(start[at], own_start) <= np.minimum(end[at], own_end) + slack_ns
    # few may be there at the time of others by chance
    if same.sum() <= FEW or same.sum() < NEARLY_ALL * max(len(own), int(np.ptp(at)) + 1):
        return operations
    label = np.full(len(its.end), -1)
    label[own[same]] = groups[at[same]]
    return NamedTimelines(operations, lambda m: label if m == member else np.full(len(operations.of(m).end), -1))


def _lacking_one(kinds: Kinds, member: int, count: int) -> dict[int, list[int]]:
    """The communicators, with their members, that lack one and may belong to a member.

    Where their size is not recorded, others that call as many operations have one more, or they have all other members
    of the run, of which there are `count`; that tells nothing of a member that names some.
    """
    alike: dict[bytes, list[tuple[int, int, list[int]]]] = {}
    for group, rows in rows_by(np.where(kinds.synchronising, kinds.communicator, -1)).items():
        members = np.unique(kinds.member[rows]).tolist()
        mine = rows[kinds.member[rows] == members[0]]
        calls = np.bincount(kinds.op[mine], kinds.count[mine])
        if group >= 0:
            alike.setdefault(calls.tobytes(), []).append((group, int(kinds.group_size[rows].max()), members))
    lacking: dict[int, list[int]] = {}
    some = ((kinds.member == member) & (kinds.communicator >= 0)).any()
    for its in alike.values():
        most = 0 if some else max(count if len(members) + 1 == count else len(members) for _, _, members in its)
        lacking |= {
            group: members
            for group, size, members in its
            if member not in members and len(members) + 1 == (size if size > 0 else most)
        }
    return lacking
