"""The ranks' graphs joined by their collectives: a whole run, ready to be replayed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.replay.graph import Arcs, Graph, make_graph, times
from alltrace.replay.rank_graph import HOST, TRANSFER, RankGraph
from alltrace.trace.arrays import Int64, integers, narrow
from alltrace.trace.distinct import distinct, folded, rows_by
from alltrace.trace.errors import UsageError

_NEVER = np.iinfo(np.int64).min
_CLOSE_NS = 20_000
_CLOSE_SHARE = 0.1
"""A member that waits for the last one and ends so little before it arrives did wait: clocks are not better. So did one
that ends before it by this share of the time that it was there, or by no more than the clocks of both may be off."""

_MOST_UNPLACED = 0.02
"""The share of a rank's matched operations that a graph may lack: what the edges of a recording cut off."""


_MUCH_IDLE, _FEW = 10, 0.25
"""Pauses that nothing explains are much if they take this many times as long as on the middle rank; few ranks are this
share."""


@dataclass(frozen=True)
class Replay:
    """A whole run as a graph: arrays by node, and of the weights, as in `RankGraph`, by arc in the graph's order.

    Node 0 is the run's first moment.
    """

    graph: Graph
    when: Int64  # of each node, ns on the aligned clock
    rank: NDArray[np.int32]  # -1 for node 0, and for the moments at which the last member of a collective arrives
    kind: NDArray[np.int8]  # class of each node
    step: Int64  # its training step, -1 if there is none
    fixed_ns: Int64  # this and the other three int32 where that holds them
    idle_ns: Int64
    host_ns: Int64
    work_ns: Int64
    instance: NDArray[np.int32]  # of an arc that is a collective's transfer, else -1
    parts: tuple[RankGraph, ...]  # the ranks' graphs
    base: Int64  # for each of these the number of its first node

    @property
    def weights(self) -> Int64:
        """The weights as recorded: int64 array of m, ns."""
        return self.fixed_ns.astype(np.int64) + self.idle_ns + self.host_ns + self.work_ns

    @cached_property
    def recorded(self) -> tuple[Int64, Int64]:
        """Times of the nodes and deciding arcs under the recorded weights, ns from the run's first moment."""
        return times(self.graph, self.weights)

    @property
    def recorded_ns(self) -> int:
        """How long the run took as it was recorded, from its first moment to the last end."""
        return int((self.when - self.when[0]).max()) if len(self.when) else 0

    @cached_property
    def unplaced(self) -> str | None:
        """What the graph lacks of the rank with the largest share of operations without recorded work, in words.

        None if every rank has the work of nearly all of its matched operations.
        """
        every = [(part.unplaced, part.unplaced + len(part.member_row), part.rank) for part in self.parts]
        number, of, rank = max(every, key=lambda e: e[0] / max(e[1], 1), default=(0, 0, 0))
        if number <= _MOST_UNPLACED * of:
            return None
        return f"rank {rank} has no record of the kernels or copies of {number:,} of {of:,} communication operations"

    @cached_property
    def names(self) -> tuple[Int64, tuple[Int64, ...]]:
        """The names of device work, ascending; and for each part the place of each of its names among them."""
        if not self.parts:
            return np.empty(0, np.int64), ()
        names = np.unique(np.concatenate([p.names for p in self.parts]))
        return names, tuple(np.searchsorted(names, p.names) for p in self.parts)

    @cached_property
    def by_step(self) -> tuple[Int64, Int64, Int64]:
        """The steps, ascending, -1 among them; the nodes sorted by step; and where those of each step begin."""
        steps, place = distinct(self.step)
        order = np.argsort(place, kind="stable")
        return steps, order, np.searchsorted(place[order], np.arange(len(steps)))

    @cached_property
    def steps_begin_ns(self) -> int:
        """When the first step's first work was, ns from the run's first moment; 0 without steps."""
        of_steps = self.when[self.step >= 0]
        return int(of_steps.min() - self.when[0]) if len(of_steps) else 0

    def nodes(self, rank: Int64, row: Int64) -> tuple[Int64, Int64]:
        """The nodes of the ends and arrivals of matched operations, rows of a rank's `collectives`; -1 for none."""
        arrivals, _, ends = _nodes(self.parts, self.base, rank, row)
        return ends, arrivals

    @cached_property
    def error(self) -> float:
        """How far the model is from the run, as a share of it: the larger of two differences.

        That between the recorded and the replayed time; and the time that goes when all pauses that nothing explains
        are left out. Such pauses of a few ranks, where others have hardly any, are what happened to these.
        """
        recorded = self.recorded_ns
        if not recorded:
            return 0.0
        replayed = int(self.recorded[0].max())
        # that ranks begin at different moments is not a fault of the model
        idle = np.where(self.graph.source == 0, 0, self.idle_ns)
        ranks = np.array([part.rank for part in self.parts])
        own_ns = np.bincount(self.rank[self.graph.target] + 1, idle, int(ranks.max(initial=0)) + 2)[ranks + 1]
        much = ranks[own_ns > _MUCH_IDLE * np.median(own_ns)]
        if 0 < len(much) <= _FEW * len(ranks):
            idle = np.where(np.isin(self.rank[self.graph.target], much), 0, idle)
        explained = int(times(self.graph, self.weights - idle)[0].max())
        return max(abs(replayed - recorded), abs(recorded - explained)) / recorded


def join(
    parts: Sequence[RankGraph], members: Any, steps: Any = None, sharing: Sequence[Collection[int]] = ()
) -> Replay:
    """The graph of a run from its ranks' graphs, the table of the members of all instances, sorted by these, and steps.

    Of `members` it takes `instance`, `rank`, `row`, `synchronising`, `awaited_rank`, `last_rank` and `error_ns`.
    `sharing`: ranks with one host, such as the devices that one thread launches to: where it waits for one, all wait.
    """
    sizes = [len(p.when) for p in parts]
    base = np.cumsum([1, *sizes])[:-1]
    begin = min((int(p.when[0]) for p in parts), default=0)
    instance, arrival, wait, end, off_ns = _members(parts, base, members)
    when = np.concatenate(([begin], *(p.when for p in parts))).astype(np.int64)
    instances, place = np.unique(instance, return_inverse=True)
    last = folded(np.maximum, place, when[arrival], len(instances), _NEVER)
    joint = len(when) + np.arange(len(instances))
    when = np.concatenate((when, last))
    of_others = _waits_of_others(parts, base, sharing)
    room = sum(len(p.source) + 1 for p in parts) + 3 * len(arrival) + len(of_others[0])
    if room > np.iinfo(np.int32).max:
        raise UsageError(
            f"replaying this run takes {room} dependencies, more than {np.iinfo(np.int32).max}; choose fewer ranks"
            " with --ranks"
        )
    arcs = Arcs(room)
    arcs.add(of_others[0], of_others[1], fixed=of_others[2])
    for part, low in zip(parts, base.tolist(), strict=True):
        source, target = part.source + low, part.target + low
        arcs.add(source, target, fixed=part.fixed_ns, idle=part.idle_ns, host=part.host_ns, work=part.work_ns)
        after = _begins_after(part, parts, base, steps)
        pause = int(part.when[0] - when[after])
        arcs.add(after, low, idle=0 if after else pause, fixed=pause if after else 0)
    arcs.add(arrival, joint[place])
    # one kernel may be several operations: it ends after the last of them
    early = folded(np.maximum, end, last[place], len(when), _NEVER)[end] - when[end]
    close = (off_ns >= 0) & (
        early <= np.maximum(np.maximum(_CLOSE_NS, off_ns), _CLOSE_SHARE * (when[end] - when[arrival]))
    )
    # who asks for the end only when all have arrived does not wait for them
    waiting = np.flatnonzero((close | (when[end] >= last[place])) & (when[wait] <= last[place]))
    # of one call that completes several, what follows the last of those that it waited for is the transfer of each
    begun = when[wait]
    latest = folded(np.maximum, end[waiting], last[place[waiting]], len(when), _NEVER)
    spent = np.maximum(when[end] - np.maximum(begun, latest[end]), 0)
    arcs.add(joint[place[waiting]], end[waiting], work=spent[waiting], instance=instance[waiting])
    alone = np.setdiff1d(np.arange(len(end)), waiting)
    arcs.add(wait[alone], end[alone], work=spent[alone], instance=instance[alone])
    later = waiting[wait[waiting] != arrival[waiting]]
    arcs.add(wait[later], end[later])
    columns = arcs.columns()
    del arcs  # each column is released as it is sorted
    graph = make_graph(len(when), columns[1], columns[0], when)
    rank = np.repeat(np.array([-1, *(p.rank for p in parts), -1], np.int32), [1, *sizes, len(instances)])
    kind = np.concatenate(([HOST], *(p.kind for p in parts), np.full(len(instances), TRANSFER))).astype(np.int8)
    step = np.concatenate(([-1], *_steps(parts, steps), np.full(len(instances), -1))).astype(np.int64)
    number, fixed, idle, host, work = (narrow(columns.pop(2)[graph.arcs]) for _ in range(5))
    return Replay(graph, when, rank, kind, step, fixed, idle, host, work, number, tuple(parts), base)


def _members(parts: Sequence[RankGraph], base: Int64, members: Any) -> tuple[Int64, Int64, Int64, Int64, Int64]:
    """Instance, nodes of arrival, of its wait and of its end, and the clocks' error; for the members with nodes.

    The last is -1 for members that do not wait for the last to arrive, and 0 if it is not known.
    """
    columns = [members.column(c).to_numpy().astype(np.int64) for c in ("instance", "rank", "row")]
    awaited, last = (members.column(c).to_numpy() for c in ("awaited_rank", "last_rank"))
    waits = members.column("synchronising").to_numpy().astype(bool) | (awaited == last)
    off_ns = np.where(waits, integers(members.column("error_ns"), 0), -1)
    nodes = _nodes(parts, base, *columns[1:])
    there = nodes[0] >= 0
    arrival, wait, end = nodes[:, there]
    return columns[0][there], arrival, wait, end, off_ns[there]


def _nodes(parts: Sequence[RankGraph], base: Int64, rank: Int64, row: Int64) -> Int64:
    """The nodes of arrival, of its wait and of its end of each row of a rank's `collectives`: (3, k), -1 for none."""
    nodes, of_rank = np.full((3, len(rank)), -1), rows_by(rank)
    for part, low in zip(parts, base.tolist(), strict=True):
        own = of_rank.get(part.rank)
        if own is None or not len(part.member_row):
            continue
        order = np.argsort(part.member_row, kind="stable")
        at = order[np.minimum(np.searchsorted(part.member_row[order], row[own]), len(order) - 1)]
        known = part.member_row[at] == row[own]
        at = at[known]
        nodes[:, own[known]] = low + np.stack((part.member_arrival[at], part.member_wait[at], part.member_end[at]))
    return nodes


def _waits_of_others(
    parts: Sequence[RankGraph], base: Int64, sharing: Sequence[Collection[int]]
) -> tuple[Int64, Int64, Int64]:
    """What a host waited for on another device: that device's work, the end of the wait here, and the ns between them.

    A wait for what is not in the graph ends when it did.
    """
    numbers = {part.rank: n for n, part in enumerate(parts)}
    group_of = {n: group for group in sharing for rank in group if (n := numbers.get(rank)) is not None}
    arcs: list[tuple[Int64, Int64, Int64]] = [(np.empty(0, np.int64),) * 3]
    for n, part in enumerate(parts):
        nodes = part.elsewhere
        if not len(nodes):
            continue
        known = np.zeros(len(nodes), np.bool_)
        for rank in group_of.get(n, ()):
            other = numbers.get(rank, n)
            if other == n:
                continue
            its = parts[other]
            waits = np.flatnonzero((its.kind[its.target] == HOST) & (its.kind[its.source] != HOST))
            waits = waits[np.argsort(its.when[its.target[waits]], kind="stable")]
            ends = its.when[its.target[waits]]
            first, last = (np.searchsorted(ends, part.when[nodes], side) for side in ("left", "right"))
            of_node = np.repeat(np.arange(len(nodes)), last - first)
            arc = waits[np.arange(len(of_node)) - np.repeat(np.cumsum(last - first) - last, last - first)]
            known[of_node] = True
            arcs.append((its.source[arc] + base[other], nodes[of_node] + base[n], its.fixed_ns[arc]))
        rest = nodes[~known]
        arcs.append((np.full(len(rest), base[n]), rest + base[n], part.when[rest] - part.when[0]))
    source, target, fixed = (np.concatenate([f[k] for f in arcs]).astype(np.int64) for k in range(3))
    return source, target, fixed


def _begins_after(part: RankGraph, parts: Sequence[RankGraph], base: Int64, steps: Any) -> int:
    """The node that a rank begins after: 0, the run's first moment; others' last work if it has none of the first step.

    It was there before its report, so it begins sooner where the others get there sooner.
    """
    if steps is None or not steps.num_rows:
        return 0
    numbers = steps.column("step").to_numpy()
    ends = steps.column("device_end").fill_null(_NEVER).to_numpy()[numbers == numbers.min()]
    if part.when[0] <= ends.max():
        return 0
    node, reached = 0, _NEVER
    for other, low in zip(parts, base.tolist(), strict=True):
        work = np.flatnonzero((other.track >= 0) & (other.when < part.when[0]))
        if len(work) and other.when[work].max() > reached:
            at = int(work[other.when[work].argmax()])
            node, reached = low + at, int(other.when[at])
    return node


def _steps(parts: Sequence[RankGraph], steps: Any) -> list[Int64]:
    """For each rank the step in which its host reached each node's work; by device steps, in which it ended."""
    of_nodes = [np.full(len(part.when), -1, np.int64) for part in parts]
    if steps is None or not steps.num_rows:
        return of_nodes
    by_rank = rows_by(steps.column("rank").to_numpy())
    starts, ends, numbers = (steps.column(c).to_numpy().astype(np.int64) for c in ("start", "end", "step"))
    of_device = (steps.column("device_start").fill_null(_NEVER).to_numpy() == starts) & (ends > starts)
    for part, step in zip(parts, of_nodes, strict=True):
        own = by_rank.get(part.rank)
        if own is None:
            continue
        own = own[np.argsort(starts[own], kind="stable")]
        came = part.when - 1 if of_device[own].all() else part.launched
        at = np.searchsorted(starts[own], came, "right") - 1
        inside = (at >= 0) & (came < ends[own[np.maximum(at, 0)]])
        step[inside] = numbers[own[at[inside]]]
    return of_nodes
