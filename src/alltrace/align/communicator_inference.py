"""Communicators that nothing names, inferred: strands of different ranks whose operations keep ending together are of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from alltrace.align.coarse_clocks import Strand, Timing, strands_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from alltrace.align.operations import Operations

_SAMPLE = 128
_LEAST_EVENTS = 3
_LEAST_SHARE = 0.6
_WIDEST_NS = 50_000.0
_TIMES_THE_FLOOR = 2.5
_FLOOR_NS = 400.0

_Edges = list[tuple[float, int, int]]


def inferred(operations: Operations, timing: Timing) -> tuple[NDArray[np.int64], int]:
    """The number of the inferred communicator of each operation, -1 where there is none, and how many there are.

    Two groups that synchronise in step end at nearly the same times, but a group's own members end together more sharply; so
    strands are joined in order of the scatter between them, and only while it is near the least that each has with any.

    Args:
        operations: The operations of all ranks.
        timing: Their times on one clock.
    """
    result = np.full(len(operations), -1, np.int64)
    chosen = operations.synchronising & (operations.communicator < 0)
    if not chosen.any():
        return result, 0
    strands = [s for mine in strands_of(operations, timing.end, chosen).values() for s in mine]
    component = [int(timing.component[s.rows[0]]) for s in strands]
    roles = _roles(strands, component)
    edges = [_edges(strands, role) for role in roles]
    found = [_joined(strands, role, near) for role, near in zip(roles, edges, strict=True)]
    group = []
    for role, near, groups in zip(roles, edges, found, strict=True):
        tiles = _tiles(strands, role, roles, found, edges)
        group += groups if tiles is None else _across(strands, role, near, groups, tiles)
    numbers: dict[tuple[int, ...], int] = {}
    for members in group:
        if len(members) > 1:
            # operations of other kinds of the same ranks and lanes are of the same communicator
            number = numbers.setdefault(tuple(sorted(strands[i].lane for i in members)), len(numbers))
            for i in members:
                result[strands[i].rows] = number
    return result, len(numbers)


def _roles(strands: list[Strand], component: list[int]) -> list[list[int]]:
    """The strands that could be of one communicator: of equal component and token, and of equal stream where streams tell."""
    same: dict[tuple[int, int], list[int]] = {}
    for i, strand in enumerate(strands):
        same.setdefault((component[i], strand.token), []).append(i)
    roles: dict[tuple[int, int, int], list[int]] = {}
    for (of, token), mine in same.items():
        tell = _same_streams([strands[i] for i in mine])
        for i in mine:
            roles.setdefault((of, token, strands[i].stream if tell else -1), []).append(i)
    return list(roles.values())


def _edges(strands: list[Strand], role: list[int]) -> _Edges:
    """The scatter between strands of a role, the least first."""
    pairs = ((i, j) for place, i in enumerate(role) for j in role[place + 1 :] if strands[i].rank != strands[j].rank)
    scattered = ((_scatter(strands[i], strands[j]), i, j) for i, j in pairs)
    edges = [(scatter, i, j) for scatter, i, j in scattered if scatter is not None]
    edges.sort()
    return edges


def _same_streams(strands: list[Strand]) -> bool:
    """Whether all ranks have the same streams, so that a stream's number means the same on each."""
    of: dict[int, set[int]] = {}
    for strand in strands:
        of.setdefault(strand.rank, set()).add(strand.stream)
    return len({frozenset(s) for s in of.values()}) == 1


def _scatter(one: Strand, other: Strand) -> float | None:
    """The robust standard deviation between the ends of two strands, or None where too few are near, ns."""
    first, second = one.ends.time, other.ends.time
    if len(first) < len(second):
        first, second = second, first
    mine = second[slice(*np.searchsorted(second, (first[0] - _WIDEST_NS, first[-1] + _WIDEST_NS)).tolist())]
    if len(mine) < _LEAST_EVENTS:
        return None
    mine = mine[np.linspace(0, len(mine) - 1, min(len(mine), _SAMPLE)).astype(np.int64)]
    at = np.searchsorted(first, mine)
    before, after = first[np.maximum(at - 1, 0)] - mine, first[np.minimum(at, len(first) - 1)] - mine
    rest = np.where(np.abs(before) < np.abs(after), before, after)
    rest = rest[np.abs(rest) <= 2 * _WIDEST_NS]
    if len(rest) < max(_LEAST_EVENTS, _LEAST_SHARE * len(mine)):
        return None
    rest = np.abs(rest - np.median(rest))
    spread = 1.4826 * float(np.median(rest)) + _FLOOR_NS / 4
    # the deviation of what is no outlier is sharper than the median's
    scatter = float(np.sqrt(np.mean(rest[rest <= 4 * spread] ** 2))) + _FLOOR_NS
    return scatter if scatter <= _WIDEST_NS else None


def _joined(strands: list[Strand], role: list[int], edges: _Edges) -> list[list[int]]:
    """Groups of a role's strands, joined by their edges in order; no group has two strands of a rank."""
    floor = dict.fromkeys(role, np.inf)
    for scatter, i, j in edges:
        floor[i], floor[j] = min(floor[i], scatter), min(floor[j], scatter)
    group = {i: i for i in role}
    members = {i: [i] for i in role}
    for scatter, i, j in edges:
        a, b = group[i], group[j]
        if a == b or scatter > _TIMES_THE_FLOOR * max(floor[i], floor[j]):
            continue
        if {strands[k].rank for k in members[a]} & {strands[k].rank for k in members[b]}:
            continue
        for k in members[b]:
            group[k] = a
        members[a] += members.pop(b)
    return list(members.values())


def _tiles(
    strands: list[Strand], role: list[int], roles: list[list[int]], found: list[list[list[int]]], edges: list[_Edges]
) -> dict[int, int] | None:
    """Each rank's place in its group, from another role whose groups of equal size cover the ranks of this one; or None."""
    ranks = {strands[i].rank for i in role}
    for other, groups, near in zip(roles, found, edges, strict=True):
        sizes = {len(g) for g in groups}
        if other is role or len(groups) < 2 or len(sizes) > 1 or min(sizes) < 2 or not ranks <= {strands[i].rank for i in other}:
            continue
        of = {i: g for g, members in enumerate(groups) for i in members}
        within = max((s for s, i, j in near if of[i] == of[j]), default=np.inf)
        if all(of[i] == of[j] or s > _TIMES_THE_FLOOR * within for s, i, j in near):
            return {strands[i].rank: p for g in groups for p, i in enumerate(sorted(g, key=lambda i: strands[i].rank))}
    return None


def _across(
    strands: list[Strand], role: list[int], edges: _Edges, groups: list[list[int]], place: dict[int, int]
) -> list[list[int]]:
    """The groups of a role, cut by the places of its ranks in the groups of another, unless all places end alike.

    Where tensor parallel groups cover the ranks, the data parallel groups of their first, second, ... members start together, right
    after a tensor parallel operation, and so end almost together: few pairs of ranks tell them apart, but all pairs do. In doubt
    they are kept apart, which splits an instance but joins none that are different.
    """
    same = [e for e in edges if place[strands[e[1]].rank] == place[strands[e[2]].rank]]
    other = [e for e in edges if place[strands[e[1]].rank] != place[strands[e[2]].rank]]
    if not same or not other or not _less([e[0] for e in same], [e[0] for e in other]):
        return groups
    return _joined(strands, role, same)


def _less(first: list[float], second: list[float]) -> bool:
    """Whether the first are, or could well be, smaller on average: Welch's t above 1."""
    a, b = np.array(first), np.array(second)
    error = sum(float(v.var(ddof=1)) / len(v) for v in (a, b) if len(v) > 1) ** 0.5
    return bool(b.mean() - a.mean() > error)
