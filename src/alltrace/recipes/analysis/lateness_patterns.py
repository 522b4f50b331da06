"""How lateness behaves: in which steps it comes back, and whether it follows a node or a stage of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from alltrace.replay.join import Replay
from alltrace.replay.peers import Peers
from alltrace.trace.arrays import Int64, is_one_of

_RECURRING = 0.7
_TRANSIENT_STEPS = 3
_ENOUGH_STEPS = 8
_OF_ONE_GROUP = 0.75
_SLOW_SHARE = 0.03
"""Ranks are slow as a group when the worst takes this share of its work beyond its peers."""

_MESSAGES = ("Send", "Recv", "SendRecv")


def over_steps(ranks: Int64, last: Int64, steps: Int64, waits_ns: Int64) -> dict[int, str]:
    """How the waits that each rank causes are spread over steps.

    `ranks`: int64 array of the ranks, ascending. `last`: int64 array of n members of operations: the rank that arrived
    last. `steps`: int64 array of n: the step, -1 for none. `waits_ns`: int64 array of n: the waits that count. Returns
    for each rank that causes any: `recurring` if it causes the most in at least 70 % of the steps with waits,
    `transient` if three steps hold half of what it causes, else `rotating`.
    """
    numbers = np.unique(steps[steps >= 0])
    patterns: dict[int, str] = {}
    if not len(numbers):
        return patterns
    table = np.zeros((len(ranks), len(numbers)))
    own = steps >= 0
    np.add.at(table, (np.searchsorted(ranks, last[own]), np.searchsorted(numbers, steps[own])), waits_ns[own])
    waited = table.sum(axis=0) > 0
    top = table.argmax(axis=0)
    for at, rank in enumerate(ranks.tolist()):
        sums = np.sort(table[at])[::-1]
        if not sums.sum():
            continue
        if (top[waited] == at).mean() >= _RECURRING:
            patterns[rank] = "recurring"
        elif len(numbers) >= _ENOUGH_STEPS and sums[:_TRANSIENT_STEPS].sum() >= sums.sum() / 2:
            patterns[rank] = "transient"
        else:
            patterns[rank] = "rotating"
    return patterns


def causing_together(groups: Iterable[Sequence[int]], caused_ns: Mapping[int, int]) -> set[int]:
    """The ranks of a group that cause three quarters of all waits, each a fair part; empty without such a group."""
    total = sum(caused_ns.values())
    for ranks in groups:
        share = sum(caused_ns.get(r, 0) for r in ranks) / total if total else 0.0
        if len(ranks) > 1 and share >= _OF_ONE_GROUP:
            least = min(caused_ns.get(r, 0) for r in ranks) / total
            if least >= share / len(ranks) / 2:
                return set(ranks)
    return set()


def slow_together(groups: Iterable[Sequence[int]], excess: Mapping[int, float]) -> set[int]:
    """The ranks of a group of which each is slow and no other rank is, by `own_excess`; empty without one."""
    most = max(excess.values(), default=0.0)
    if most < _SLOW_SHARE:
        return set()
    for ranks in groups:
        if len(ranks) < 2 or min(excess.get(r, 0.0) for r in ranks) < most / 2:
            continue
        members = set(ranks)
        others = [e for r, e in excess.items() if r not in members]
        if others and max(others) <= most / 4:
            return members
    return set()


def own_excess(replay: Replay, peers: Peers) -> dict[int, float]:
    """For each rank the share of its device work that goes beyond what its peers take for the same; 0 at least."""
    factors = peers.pace.of_peers
    shares = {}
    for part, rows in zip(replay.parts, peers.pace.cells, strict=True):
        factor = factors[rows]
        total = float(part.cell_ns.sum())
        shares[part.rank] = max(float((part.cell_ns * (1 - factor)).sum()) / total, 0.0) if total else 0.0
    return shares


def stages(members: Any) -> list[list[int]]:
    """The ranks of each stage of a pipeline, in order, by who sends to whom; empty if the messages make no chains.

    `members`: `Aligned.members`. Two ranks that exchange messages are neighbours; ranks at the same place of chains of
    equal length are of one stage. A ring is cut before its lowest rank.
    """
    neighbours = _neighbours(members)
    chains: list[list[int]] = []
    left = set(neighbours)
    if not left or any(len(n) > 2 for n in neighbours.values()):
        return []
    while left:
        group, todo = set(), [min(left)]
        while todo:
            rank = todo.pop()
            if rank not in group:
                group.add(rank)
                todo += neighbours[rank]
        left -= group
        ends = sorted(r for r in group if len(neighbours[r]) == 1)
        at: int | None = ends[0] if ends else min(group)
        chain: dict[int, None] = {}
        while at is not None:
            chain[at] = None
            at = min((n for n in neighbours[at] if n not in chain), default=None)
        chains.append(list(chain))
    if len({len(c) for c in chains}) != 1:
        return []
    return [sorted(c[place] for c in chains) for place in range(len(chains[0]))]


def _neighbours(members: Any) -> dict[int, set[int]]:
    neighbours: dict[int, set[int]] = {}
    if not members.num_rows:
        return neighbours
    own = is_one_of(members.column("op"), _MESSAGES)
    instance, rank = (members.column(c).to_numpy()[own] for c in ("instance", "rank"))
    pair = np.flatnonzero(instance[1:] == instance[:-1])
    pairs = np.unique(np.stack([rank[pair], rank[pair + 1]]), axis=1).T if len(pair) else np.empty((0, 2), np.int64)
    for one, other in pairs.tolist():
        if one != other:
            neighbours.setdefault(one, set()).add(other)
            neighbours.setdefault(other, set()).add(one)
    return neighbours
