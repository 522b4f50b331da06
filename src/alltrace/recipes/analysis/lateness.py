"""Why a rank is late: what it did from one operation of a communicator to the next, against its peers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alltrace.recipes.analysis.change_in_time import throttled
from alltrace.recipes.analysis.device_intervals import device_activity
from alltrace.recipes.analysis.range_sums import stems_of
from alltrace.recipes.analysis.variation import by_step, variation
from alltrace.replay.join import Replay
from alltrace.replay.peers import Peers
from alltrace.run.clock import ClockMap
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Floats, Int64, integers, is_one_of
from alltrace.trace.distinct import run_starts
from alltrace.trace.intervals import Merged, difference, exclusive, intersection, merge, overlap_ns, union

# How lateness behaves: in which steps it comes back, and whether it follows a node or a stage of a pipeline.

_RECURRING = 0.7
_TRANSIENT_STEPS = 3
_ENOUGH_STEPS = 8
_OF_ONE_GROUP = 0.75
_SLOW_SHARE = 0.03  # ranks are slow as a group when the worst takes this share of its work beyond its peers

_MESSAGES = ("Send", "Recv", "SendRecv")


def over_steps(ranks: Int64, last: Int64, steps: Int64, waits_ns: Int64) -> dict[int, str]:
    """How the waits (`waits_ns` of n members, whose `last` rank came in one of `steps`, -1 for none) spread over steps.

    For each rank that causes any: `recurring` if it causes the most in at least 70 % of the steps with waits,
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
    if any(len(n) > 2 for n in neighbours.values()):
        return []
    chains: list[list[int]] = []
    seen: set[int] = set()
    for start in sorted(neighbours, key=lambda r: (len(neighbours[r]), r)):  # ends of chains come first
        chain: list[int] = []
        at: int | None = start
        while at is not None and at not in seen:
            chain.append(at)
            seen.add(at)
            at = min(neighbours[at] - seen, default=None)
        chains += [chain] if chain else []
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


# When a rank is slower than others: always, from a step on, or sometimes.

ALWAYS, SINCE, SOMETIMES = "always", "from a step on", "sometimes"

_LEAST = 0.01  # a rank is slower if it takes this share of a step longer


@dataclass(frozen=True)
class Slower:
    when: str  # `ALWAYS`, `SINCE` or `SOMETIMES`
    steps: Flags  # in which steps, (steps)
    slowdown: float  # how many times as long it takes in them as the fastest quarter of the ranks
    excess_ns: int  # what it takes longer in them, summed


def slower_steps(own_ns: Floats) -> dict[int, Slower]:
    """The ranks, by place, that take longer by themselves than others; `own_ns`: (ranks, steps), NaN if unknown."""
    has_time = ~np.isnan(own_ns)
    every = has_time[has_time.any(axis=1)].all(axis=0)
    own_ns = np.where(every | ~every.any(), own_ns, np.nan)
    values = by_step(own_ns)
    when = {change.row: (SINCE if change.lasts else SOMETIMES, change.slow) for change in throttled(values, _LEAST)}
    left = own_ns.copy()
    left[list(when)] = np.nan
    steady = variation(left, _LEAST)
    for row in range(len(own_ns)):
        if steady.persistent[row]:
            when[row] = ALWAYS, ~np.isnan(own_ns[row])
        elif steady.sometimes[row] or steady.slow[row].any():
            when[row] = SOMETIMES, steady.slow[row] | (steady.sometimes[row] & (steady.values[row] > 1 + steady.least))
    slower = {}
    for row, (how, steps) in when.items():
        excess = own_ns[row, steps] * (1 - 1 / values[row, steps])
        slower[row] = Slower(how, steps, float(np.median(values[row, steps])), int(np.nansum(excess)))
    return slower


CAUSES = ("compute", "communication", "copy", "host")
"""What a rank does before it arrives: kernels run; none, but other communication; neither, but copies; its device is
idle.

Kernels without a rule in which ranks meet are communication here.
"""

_ROUNDING_NS = 4
"""Of an operation: its time and its peers' are differences of times in whole ns, on clocks of different rates."""


@dataclass(frozen=True)
class Lateness:
    """What a rank did before each of its matched operations; arrays of k operations."""

    row: Int64  # rows of its `collectives`
    # int64 array (k, 4): time in each of `CAUSES` since the rank arrived at the communicator's previous operation, or
    # since the rank's first event
    before_ns: Int64
    compute: Merged  # when compute kernels ran while one of the operations did

    def placed(self, clock: ClockMap) -> "Lateness":
        """What a rank in the time of its files did, on the run's clock."""
        compute = Merged(*(clock.apply(times) for times in self.compute))
        return Lateness(self.row, clock.lengths(self.before_ns), compute)


def lateness(rank: Rank) -> Lateness:
    """What a rank did before each of its matched operations."""
    members = rank.shared("members")
    activity = device_activity(rank)
    compute, copies = (union([getattr(a, name) for a in activity]) for name in ("compute", "copies"))
    talk = union([part for a in activity for part in (a.communication, a.meeting)])
    if members is None or not members.num_rows:
        nothing = np.empty(0, np.int64)
        return Lateness(nothing, nothing.reshape(0, 4), merge(nothing, nothing))
    columns = (members.column(c) for c in ("row", "start", "end", "communicator"))
    row, start, end, group = (column.to_numpy().astype(np.int64) for column in columns)
    end = np.maximum(start, end)
    order = np.lexsort((end, start, group))
    row, start, end, group = row[order], start[order], end[order], group[order]
    first = min(int(start.min()), *(a.start_ns for a in activity)) if activity else int(start.min())
    again = np.concatenate(([False], group[1:] == group[:-1]))
    # from arrival to arrival: from the end on, ranks that had worked while they waited would seem to have less to do
    before = np.where(again, np.concatenate(([first], start[:-1])), first)
    before = np.minimum(before, start)
    spent = [overlap_ns(before, start, part) for part in exclusive([compute, talk, copies])]
    unknown = difference(rank.unrecorded(), union([compute, talk, copies]))
    host = start - before - sum(spent) - overlap_ns(before, start, unknown)
    if not activity and not rank.has("mpi"):
        host = np.zeros_like(host)  # what the devices did is not known
    return Lateness(row, np.stack([*spent, host], axis=1), intersection(compute, merge(start, end)))


@dataclass(frozen=True)
class Cause:
    name: str | None  # one of `CAUSES`, `mixed` if none has four fifths of the excess, or None if there is no excess
    share: float  # the share of the excess that the greatest class has
    # time beyond the peers' median in each of `CAUSES`, summed over the operations at which the rank was last
    excess_ns: tuple[int, ...]


def causes(instance: Int64, rank: Int64, last: Int64, before_ns: Int64) -> dict[int, Cause]:
    """The cause of each rank's lateness; `last`: the last rank of each member's instance, -1 if no wait counts."""
    if not len(instance):
        return {}
    firsts = run_starts(instance)
    size = np.diff(np.append(firsts, len(instance)))
    number = np.repeat(np.arange(len(firsts)), size)
    own = rank == last[firsts][number]
    others = size - np.bincount(number, own, len(firsts)).astype(np.int64)
    row = np.full(len(firsts), len(rank))
    np.minimum.at(row, number[own], np.flatnonzero(own))
    judged = np.flatnonzero((last[firsts] >= 0) & (others > 0) & (others < size))
    # the others' values of each instance in order, so that their median is at the middle
    peers = np.flatnonzero(~own)
    begin = (np.cumsum(others) - others)[judged]
    late_ns = before_ns[row[judged]].astype(np.float64)
    for column, values in enumerate(before_ns[peers].T):
        ordered = values[np.lexsort((values, number[peers]))]
        low, high = ordered[begin + (others[judged] - 1) // 2], ordered[begin + others[judged] // 2]
        late_ns[:, column] -= (low + high) / 2
    ranks, place = np.unique(last[firsts][judged], return_inverse=True)
    excess = np.stack([np.bincount(place, column, len(ranks)) for column in late_ns.T], axis=1)
    rounding_ns = _ROUNDING_NS * np.bincount(place, minlength=len(ranks))
    by_rank = {}
    for late, values, least in zip(ranks.tolist(), excess, rounding_ns.tolist(), strict=True):
        above = np.where(values > least, values, 0)
        whole = float(above.sum())
        share = float(above.max() / whole) if whole else 0.0
        name = None if not whole else CAUSES[int(above.argmax())] if share >= 0.8 else "mixed"
        by_rank[late] = Cause(name, share, tuple(int(v) for v in values))
    return by_rank


def host_range(rank: Any, begin: Int64, end: Int64) -> str | None:
    """The innermost range with half of the host's time while the rank's device was idle; None if there is none."""
    ranges = rank.table("ranges", ("start", "end", "name", "depth"))
    if not ranges.num_rows or not len(begin):
        return None
    busy = union([part for a in device_activity(rank) for part in (a.compute, a.communication, a.meeting, a.copies)])
    idle = difference(merge(begin, end), union([busy, rank.unrecorded()]))
    start, finish = (ranges.column(c).fill_null(0).to_numpy().astype(np.int64) for c in ("start", "end"))
    depth = ranges.column("depth").fill_null(0).to_numpy().astype(np.int64)
    idle_ns = overlap_ns(start, np.maximum(finish, start), idle)
    code, names = stems_of(rank, integers(ranges.column("name"), -1))
    named = np.array([name is not None for name in names], np.bool_)
    some = np.flatnonzero((idle_ns > 0) & named[code])
    if not len(some) or not idle.total_ns:
        return None
    keys, at = np.unique(np.stack([depth[some], code[some]]), axis=1, return_inverse=True)
    time = np.bincount(at.reshape(-1), idle_ns[some])
    enough = np.flatnonzero(time >= 0.5 * idle.total_ns)
    if not len(enough):
        return None
    best = enough[np.lexsort((time[enough], keys[0, enough]))[-1]]
    return names[int(keys[1, best])]
