"""What the job would get back: the run replayed once, then with less of what a finding names."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from alltrace.recipes.questions.diagnose.gaps import HOST_CLASSES
from alltrace.recipes.questions.diagnose.host_time import Contribution, HostTime
from alltrace.replay.change import NEVER, Change, changed_weights, replayed
from alltrace.replay.graph import Graph, make_graph
from alltrace.replay.join import Replay
from alltrace.replay.peers import Peers
from alltrace.replay.rank_graph import COMPUTE, COPY, TRANSFER, RankGraph
from alltrace.trace.arrays import Flags, Floats, Int64, coded, narrow
from alltrace.trace.distinct import distinct_rows, run_starts, sorted_groups

MOST_ERROR = 0.05  # a replay that is further from the unchanged run answers nothing
_MOST_OPERATIONS = 1 << 32  # more than a step has, so that a step and a number of an operation are one number
_AT_THE_END = 0.1  # a wait is at the end of a step if at most this share of the step's kernels is launched after it

_ALIKE = 2.0
"""Ranks with as many operations are alike if they differ by up to this many times what the one does that differs least:
stages of a pipeline can have as many operations at other places."""

_OTHERWISE = 0.1
"""A rank with more work than its peers and less between some operations, by this share of their work, does other things
there."""


@dataclass(frozen=True)
class OtherOrder:
    """A run with changed dependencies between its work."""

    graph: Graph  # the graph: the nodes of the run's, other arcs
    weights: Int64  # int64 array, the weights of its arcs, ns
    # the weights of the run's own graph that the order is compared with; None for the recorded ones
    against: Int64 | None = None
    arcs: Int64 | None = None  # the arc of the run's graph that each of its arcs is; None if it has the same arcs


Altered: TypeAlias = Int64 | OtherOrder
"""Other weights of the run's graph, or another graph."""


def narrowed(changed: Altered | None) -> Altered | None:
    """The same with int32 where that holds all values: each finding keeps what it changes."""
    if isinstance(changed, OtherOrder):
        against, arcs = (None if own is None else narrow(own) for own in (changed.against, changed.arcs))
        return replace(changed, weights=narrow(changed.weights), against=against, arcs=arcs)
    return None if changed is None else narrow(changed)


class RecoveredTime:
    """A run that can be replayed with less of something.

    `members`: The members of all instances (`Aligned.members`). `steps`: The judged steps; None to judge the whole run
    as one.
    """

    def __init__(
        self,
        replay: Replay,
        given: Mapping[int, Contribution],
        members: Any,
        steps: Int64 | None,
        peers: Callable[[Replay], Peers],
    ) -> None:
        self._hosts: list[HostTime] = [g.host for g in given.values() if g.host is not None]
        self._of_hosts = all(g.facts is not None and g.facts.of_host for g in given.values())
        self._steps = steps
        self._members = members
        self._find_peers = peers
        self.replay = replay
        # where each rank's arcs are in the joint graph: after the arcs of each rank there is one to its first moment
        count = np.array([len(part.source) + 1 for part in replay.parts])
        self._first_arc = np.concatenate(([0], np.cumsum(count)))[:-1]
        last = max(arcs.max(initial=-1) for arcs in (self.replay.graph.arcs, self.replay.graph.dropped))
        self._place = np.full(int(last) + 1, -1, np.int32)
        self._place[self.replay.graph.arcs] = np.arange(len(self.replay.graph.arcs))
        self._before = replayed(self.replay, self.replay.weights)

    @cached_property
    def _of_ranks(self) -> list[tuple[HostTime, RankGraph, int, int]]:
        """Of each rank the host's time, the graph, and the first of its arcs and of its nodes in the joint graph."""
        firsts, bases = self._first_arc.tolist(), self.replay.base.tolist()
        return list(zip(self._hosts, self.replay.parts, firsts, bases, strict=True))

    @cached_property
    def peers(self) -> Peers:
        return self._find_peers(self.replay)

    @property
    def error(self) -> float:
        """How far the replay of the unchanged run is from it, as a share of it."""
        return self.replay.error

    def saved_ns(self, changed: Altered) -> int:
        """How much shorter the judged steps are under other weights or in another order, ns; 0 if they are not."""
        if isinstance(changed, OtherOrder):
            whole, steps = replayed(replace(self.replay, graph=changed.graph), changed.weights)
            against = changed.against
        else:
            whole, steps = replayed(self.replay, changed)
            against = None
        before_whole, before_steps = self._before if against is None else replayed(self.replay, against)
        if self._steps is None:
            return max(before_whole - whole, 0)
        return max(sum(before_steps[s] - steps[s] for s in self._steps.tolist() if s in before_steps), 0)

    def without_both(self, first: Altered, second: Altered) -> Altered | None:
        """The run changed in two ways, against one without what either is compared without.

        None if both change what waits for what.
        """
        orders = [c for c in (first, second) if isinstance(c, OtherOrder)]
        ordered = [order for order in orders if order.arcs is not None]
        if len(ordered) > 1:
            return None
        every = [c for c in (first, second) if not isinstance(c, OtherOrder)]
        every += [order.weights for order in orders if order.arcs is None]
        compared = [order.against for order in orders if order.against is not None]
        against: Int64 | None = np.minimum.reduce(compared) if compared else None
        weights: Int64 = np.minimum.reduce([*every, *compared])
        if ordered:
            (order,) = ordered
            return OtherOrder(order.graph, np.minimum(order.weights, weights[order.arcs]), against, order.arcs)
        return weights if against is None else OtherOrder(self.replay.graph, weights, against)

    def at_peers_pace(self, ranks: Iterable[int]) -> Int64:
        """The weights with the kernels of some ranks at the pace of the others, as in `whatif --rank`; hosts stay."""
        change = Change(ranks=frozenset(ranks), kinds=frozenset([COMPUTE]))
        return changed_weights(self.replay, self.peers, change)

    def less_work(self, ranks: Int64, steps: Sequence[int] | None, share: Floats, kind: int = COMPUTE) -> Int64:
        """The weights with less device work.

        `ranks`: The ranks, ascending. `steps`: The steps, ascending; None if the whole run is one. `share`: array
        (ranks, steps): the part of the work that is left out. `kind`: Class of the work, `COMPUTE` or `COPY`.
        """
        replay = self.replay
        node = np.flatnonzero((replay.kind == kind) & np.isin(replay.rank, ranks))
        row = np.searchsorted(ranks, replay.rank[node])
        factor = np.ones(len(replay.kind))
        if steps is None:
            factor[node] -= share[row, 0]
        else:
            numbers = np.asarray(steps, np.int64)
            column = np.minimum(np.searchsorted(numbers, replay.step[node]), max(len(numbers) - 1, 0))
            known = numbers[column] == replay.step[node]
            factor[node] -= np.where(known, share[row, column], 0.0)
        return self.with_factors(factor)

    def with_factors(self, factor: Floats) -> Int64:
        """The weights with device work that takes as long as before times the `factor` of its node; transfers stay."""
        replay = self.replay
        transfer = replay.instance >= 0
        return self._with_work(np.where(transfer, replay.work_ns, replay.work_ns * factor[replay.graph.target]))

    def _with_work(self, work_ns: Floats) -> Int64:
        weights: Int64 = self.replay.weights - self.replay.work_ns + np.rint(work_ns).astype(np.int64)
        return weights

    def less_of_longest(self, ranks: Int64, steps: Sequence[int] | None, lost_ns: Floats) -> Int64:
        """The weights with kernels that take less, the longest of each rank and step first.

        `ranks`: The ranks, ascending. `steps`: The steps, ascending; None if the whole run is one. `lost_ns`: What a
        rank's kernels take less in a step, (ranks, steps).
        """
        replay = self.replay
        nodes = np.flatnonzero((replay.kind == COMPUTE) & (self._works_ns > 0))
        left_ns = self._works_ns[nodes].astype(np.float64)
        for row, column in np.argwhere(lost_ns >= 1).tolist():
            own = replay.rank[nodes] == ranks[row]
            if steps is not None:  # what begins a step can be one piece with what ended the step before
                own &= (replay.step[nodes] == steps[column]) | (replay.step[nodes] == steps[column] - 1)
            chosen = np.flatnonzero(own)
            chosen = chosen[np.argsort(-left_ns[chosen], kind="stable")]
            longest_first = left_ns[chosen]
            before = np.cumsum(longest_first) - longest_first
            left_ns[chosen] -= np.clip(lost_ns[row, column] - before, 0, longest_first)
        factor = np.ones(len(replay.kind))
        factor[nodes] = left_ns / self._works_ns[nodes]
        return self.with_factors(factor)

    def with_peers_work(self, ranks: Sequence[int], peers: Sequence[int]) -> Int64 | None:
        """The weights with the kernels of some ranks between operations as long as those of their peers, if shorter.

        Ranks with the same operations in a step do the same between them, whatever their kernels are called and however
        many they are. None if the ranks, or all peers, have other numbers of operations in half of the steps, or do
        other things between them (stages of a pipeline): what a rank has more between some, it has less between others.
        """
        replay, factor = self.replay, np.ones(len(self.replay.kind))
        kernels: dict[int, tuple[Int64, Int64, Int64]] = {}
        counts: dict[int, dict[int, int]] = {}
        for part, base in zip(replay.parts, replay.base.tolist(), strict=True):
            if part.rank in ranks or part.rank in peers:
                counts[part.rank], kernels[part.rank] = self._between_operations(part, base)
        if not all(rank in kernels for rank in ranks):
            return None
        every = set(counts[ranks[0]])
        alike = {rank: {s for s in every if counts[rank].get(s) == counts[ranks[0]][s]} for rank in kernels}
        peers = [rank for rank in peers if rank in kernels and 2 * len(alike[rank]) >= len(every)]
        steps = set.intersection(*(alike[rank] for rank in (*ranks, *peers)))
        if not peers or not steps or 2 * len(steps) < len(every):
            return None
        places = np.unique(np.concatenate([place for _, place, _ in kernels.values()]))
        totals = {
            rank: np.bincount(np.searchsorted(places, place), took, len(places))
            for rank, (_, place, took) in kernels.items()
        }
        step = places // _MOST_OPERATIONS - 1
        alike_in = np.isin(step, list(steps))
        for rank in ranks:
            apart = {peer: float(np.abs(totals[peer] - totals[rank])[alike_in].sum()) for peer in peers}
            usual = np.median([totals[peer] for peer in peers if apart[peer] <= _ALIKE * min(apart.values())], axis=0)
            more = np.maximum(totals[rank] - usual, 0)
            left, less = np.ones(len(places)), np.zeros(2)
            for number in sorted(steps):
                own = step == number
                # where operations come a little earlier on one rank than on another, what one place has more the next
                # has less
                whole = max(float((totals[rank] - usual)[own].sum()), 0.0) / max(float(more[own].sum()), 1.0)
                if whole > 0:
                    less += np.maximum(usual - totals[rank], 0)[own].sum(), usual[own].sum()
                left[own] -= min(whole, 1.0) * more[own] / np.maximum(totals[rank][own], 1)
            if less[0] > _OTHERWISE * less[1]:
                return None
            node, place, _ = kernels[rank]
            factor[node] = left[np.searchsorted(places, place)]
        return self.with_factors(factor)

    def _between_operations(self, part: RankGraph, base: int) -> tuple[dict[int, int], tuple[Int64, Int64, Int64]]:
        """How many operations each step of a rank has; and its kernels' node, place between operations, and time."""
        replay, works_ns = self.replay, self._works_ns
        own = np.arange(base, base + len(part.when))
        nodes = own[(replay.kind[own] == COMPUTE) & (works_ns[own] > 0)]
        arrivals = np.unique(part.member_arrival) + base
        moments = np.lexsort((replay.when[arrivals], replay.step[arrivals]))
        steps, when = replay.step[arrivals][moments], replay.when[arrivals][moments]
        number = np.zeros(len(nodes), np.int64)
        counts: dict[int, int] = {}
        for step in np.unique(replay.step[nodes]).tolist():
            mine, there = replay.step[nodes] == step, when[steps == step]
            number[mine] = np.searchsorted(there, replay.when[nodes[mine]])
            counts[step] = len(there)
        return counts, (nodes, (replay.step[nodes] + 1) * _MOST_OPERATIONS + number, works_ns[nodes])

    @cached_property
    def _works_ns(self) -> Int64:
        """The device work of each node: arcs from the work before, from the launch and from its waits have it."""
        works_ns = np.zeros(len(self.replay.kind), np.int64)
        np.maximum.at(works_ns, self.replay.graph.target, np.where(self.replay.instance < 0, self.replay.work_ns, 0))
        return works_ns

    def less_copies(self, shares: Mapping[int, float]) -> Int64:
        """The weights with shorter copies on some ranks, by the part that is left out."""
        ranks = np.array(sorted(shares), np.int64)
        return self.less_work(ranks, None, np.array([shares[r] for r in ranks.tolist()]).reshape(-1, 1), COPY)

    def less_transfer(self, shares: Mapping[int, float]) -> Int64:
        """The weights with shorter transfers of some communicators, by the part that is left out."""
        replay = self.replay
        instance, group = (self._members.column(c).to_numpy().astype(np.int64) for c in ("instance", "communicator"))
        factor = np.ones(int(instance.max(initial=-1)) + 2)  # the last one is of arcs that are no transfers
        for number, share in shares.items():
            factor[instance[group == number]] = 1 - share
        return self._with_work(replay.work_ns * factor[replay.instance])

    def free_transfers(self, instances: Int64, weights: Int64 | None = None) -> OtherOrder:
        """The run with transfers of some instances that take no time.

        Where hosts communicate, what a rank takes longer than the first one to leave an operation is no transfer: its
        process goes on late. But of what several take longer, as much as each usually does is transfer: it is in a ring
        with a slow link. `weights`: The weights to use, ns; None for the recorded ones.
        """
        replay = self.replay
        before = replay.weights if weights is None else weights
        free = np.flatnonzero((replay.instance >= 0) & np.isin(replay.instance, instances) & (replay.work_ns > 0))
        late_ns = np.zeros(len(free), np.int64)
        if self._of_hosts and len(free):
            free = free[np.lexsort((replay.work_ns[free], replay.instance[free]))]
            took_ns, first = replay.work_ns[free].astype(np.int64), run_starts(replay.instance[free])
            size = np.diff(np.append(first, len(free)))
            least_ns, all_but_one_ns = (np.repeat(took_ns[at], size) for at in (first, first + np.maximum(size - 2, 0)))
            usual_ns = self._usual(took_ns - least_ns, replay.instance[free], replay.rank[replay.graph.target[free]])
            late_ns = np.maximum(took_ns - np.minimum(all_but_one_ns, least_ns + usual_ns), 0)
        after = before.copy()
        after[free] = np.minimum(before[free], late_ns)
        return OtherOrder(replay.graph, after, weights)

    def _usual(self, values: Int64, instance: NDArray[np.integer[Any]], rank: NDArray[np.integer[Any]]) -> Int64:
        """The median of the values of each rank in all instances of the same operation and communicator."""
        members = self._members
        number, communicator = (members.column(c).to_numpy().astype(np.int64) for c in ("instance", "communicator"))
        kind = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
        kind[number] = distinct_rows(communicator, coded(members.column("op"))[1])[1]
        keys, key = distinct_rows(kind[instance], rank.astype(np.int64))
        ordered, begins, counts = sorted_groups(values, key, keys.shape[1])
        medians: Int64 = ordered[begins + (counts - 1) // 2][key]
        return medians

    def carries_on(self, rank: Int64, row: Int64, ahead: Int64) -> Flags:
        """Which collectives carry what was computed after one before them had ended, and so may need what that brought.

        So the norm of gradients needs the gradients. Also true if not known what they carry.

        `row`: Its row of the rank's `collectives`.
        """
        replay, graph = self.replay, self.replay.graph
        _, arrivals = replay.nodes(rank, row)
        ends, begins = replay.nodes(rank, ahead)
        none = np.zeros(graph.nodes, np.int64)
        launched = np.concatenate(([0], *(part.launched for part in replay.parts), none))[: graph.nodes]
        source = np.full(graph.nodes, -1)
        arcs = np.flatnonzero(self._works[graph.source] & (replay.kind[graph.target] == TRANSFER))
        arcs = arcs[np.argsort(replay.when[graph.source[arcs]], kind="stable")]
        source[graph.target[arcs]] = graph.source[arcs]
        work = source[arrivals]
        later = (launched[work] > launched[begins]) & (replay.when[work] > replay.when[ends])
        needs: Flags = (arrivals < 0) | (ends < 0) | (work < 0) | later
        return needs

    def no_waits(self, rank: Int64, row: Int64, ends_step: Flags, weights: Int64 | None = None) -> OtherOrder:
        """The run with nothing of another stream waiting for some collectives, but for the work that they came after.

        `row`: Its row of the rank's `collectives`. `weights`: The weights to use, ns; None for the recorded ones.
        """
        graph, replay = self.replay.graph, self.replay
        ends, arrivals = self.replay.nodes(rank, row)
        ends, arrivals, stays = ends[ends >= 0], arrivals[ends >= 0], ends_step[ends >= 0]
        after = self._works[graph.source]
        after &= np.isin(graph.target, arrivals)
        order = np.flatnonzero(after)[np.argsort(replay.when[graph.source[after]], kind="stable")]
        instead = np.full(graph.nodes, -1)
        instead[graph.target[order]] = graph.source[order]
        source = graph.source.copy()
        elsewhere = self._track[graph.source] != self._track[graph.target]
        arrives = (replay.kind[graph.target] == TRANSFER) & (replay.instance < 0) & (self._track[graph.target] >= 0)
        for chosen, waits in ((~stays, self._works[graph.target]), (np.ones(len(ends), np.bool_), arrives)):
            link = np.arange(graph.nodes)
            link[ends[chosen]] = instead[arrivals[chosen]]
            source[waits & elsewhere] = link[source[waits & elsewhere]]
        return self._rewired(source, weights)

    def no_queue(
        self, rank: Int64, row: Int64, ahead: Int64, own: Int64, needed: Flags, weights: Int64 | None = None
    ) -> OtherOrder:
        """The run with some collectives waiting for another one of their stream than the one ahead of them.

        What computes after a collective that nothing but other collectives needs waits for the one ahead of that
        instead, which an order to wait for the whole stream hides.

        `row`: Its row of the rank's `collectives`. `own`: The row of the one that it waits for all the same, -1 for
        none. `weights`: The weights to use, ns; None for the recorded ones.
        """
        graph = self.replay.graph
        ends, arrivals = self.replay.nodes(rank, row)
        ahead_ends, own_ends = (self.replay.nodes(rank, r)[0] for r in (ahead, own))
        known = (ends >= 0) & (ahead_ends >= 0)
        source = graph.source.copy()
        # each arrival has one arc from the end ahead of it
        instead = np.full(graph.nodes, -2)
        instead[arrivals[known]] = np.where(own_ends >= 0, own_ends, -1)[known]
        before = np.full(graph.nodes, -2)
        before[arrivals[known]] = ahead_ends[known]
        queued = before[graph.target] == source
        source[queued] = instead[graph.target[queued]]
        # of several in a row that nothing needs the first one's predecessor is waited for
        needless = known & ~needed
        link = np.arange(graph.nodes)
        link[ends[needless]] = ahead_ends[needless]
        for _ in range(len(link)):
            further = link[link]
            if (further == link).all():
                break
            link = further
        waits = self._works[graph.target]
        source[waits] = link[source[waits]]
        return self._rewired(source, weights)

    def _rewired(self, source: NDArray[np.int32], weights: Int64 | None = None) -> OtherOrder:
        """The run with other sources of its arcs, -1 for none; an arc that alone leads to its target stays."""
        against, weights = weights, self.replay.weights if weights is None else weights
        graph = self.replay.graph
        others = np.bincount(graph.target[source >= 0], minlength=graph.nodes)
        source = np.where((source < 0) & (others[graph.target] == 0), graph.source, source)
        kept = source >= 0
        other = make_graph(graph.nodes, source[kept], graph.target[kept], self.replay.when)
        return OtherOrder(other, weights[kept][other.arcs], against, np.flatnonzero(kept)[other.arcs])

    @cached_property
    def keep_host(self) -> Flags:
        """Which nodes are copies of calls that keep a host: from and to pageable memory, and synchronous ones."""
        keeping = np.zeros(len(self.replay.kind), np.bool_)
        for host, part, _, base in self._of_ranks:
            keeping[base : base + len(part.when)] = host.copy_class >= 0
        return keeping

    @cached_property
    def _works(self) -> Flags:
        return np.isin(self.replay.kind, (COMPUTE, COPY))

    @cached_property
    def _track(self) -> Int64:
        """The stream of each node, numbers that are different for different ranks; -1 for what is on none."""
        streams = np.full(len(self.replay.kind), -1)
        least = 0
        for part, base in zip(self.replay.parts, self.replay.base.tolist(), strict=True):
            streams[base : base + len(part.track)] = np.where(part.track >= 0, part.track + least, -1)
            least += len(part.tracks)
        return streams

    def no_idle(self) -> Int64:
        """The weights without pauses that nothing explains; ranks begin when they did."""
        replay = self.replay
        return replay.weights - np.where(replay.graph.source == 0, 0, replay.idle_ns)

    def no_host(self, name: str) -> Int64 | None:
        """The weights without what one of `HOST_CLASSES` takes of the host, and its waits; None without a change.

        Of the waits of class `sync` the last of a rank's step stays where it is at the step's end: a program reads its
        loss.
        """
        column = HOST_CLASSES.index(name)
        weights = self.replay.weights.copy()
        changed = False
        away = np.zeros(len(self.replay.kind), np.bool_)
        for host, part, first, base in self._of_ranks:
            gone = self._waits_of(name, host, part, base)
            taken = host.times[:, column].astype(np.int64)
            if name == "launch":
                taken -= np.where(host.after_class >= 0, host.after, 0)
            elif len(gone):
                left_out = np.isin(part.source[host.arc], part.target[gone])
                taken += np.where(left_out, host.after, 0)
            self._reduce(weights, first + host.arc, taken)
            place = self._place[first + gone]
            weights[place[place >= 0]] = NEVER
            changed |= bool(taken.any() or len(gone))
            # these copies go to a separate stream, where nothing waits for them
            away[base : base + len(part.when)] = host.copy_class == column
        weights -= np.where(away[self.replay.graph.target], self.replay.work_ns, 0)
        return weights if changed else None

    def shorter_after(self, name: str, less_ns: Mapping[int, float]) -> Int64:
        """The weights with less time of some hosts from the end of a wait to the next launch, where that is longest.

        `name`: The class of the call that waits, one of `BLOCKING`. `less_ns`: What is left out over the judged steps,
        by rank.
        """
        weights, column = self.replay.weights.copy(), HOST_CLASSES.index(name)
        for host, part, first, base in self._of_ranks:
            after = np.where(host.after_class == column, host.after, 0)
            # a wait has an arc to each piece of work that is launched next
            own = np.flatnonzero(self._judged(base + part.target[host.arc]) & (after > 0))
            waits, at = np.unique(part.source[host.arc[own]], return_inverse=True)
            each = np.zeros(len(waits), np.int64)
            np.maximum.at(each, at, after[own])
            longest = np.sort(each)[::-1]
            # the longest are as long as each other then
            beyond = np.append(np.cumsum(longest) - longest * np.arange(1, len(longest) + 1), np.inf)
            count = int(np.searchsorted(beyond, less_ns.get(part.rank, 0.0), "right"))
            left = (longest[:count].sum() - less_ns.get(part.rank, 0.0)) / count if 0 < count <= len(longest) else 0.0
            self._reduce(weights, first + host.arc, np.rint(np.maximum(after - max(left, 0.0), 0)).astype(np.int64))
        return weights

    def _judged(self, nodes: NDArray[Any]) -> Flags:
        judged: Flags = np.ones(len(nodes), np.bool_)
        return judged if self._steps is None else np.isin(self.replay.step[nodes], self._steps)

    def waits(self, name: str) -> int:
        """How many of the host's waits of one of `HOST_CLASSES` `no_host` leaves out, over ranks and judged steps."""
        nodes = ((base, part.target[self._waits_of(name, host, part, base)]) for host, part, _, base in self._of_ranks)
        return sum(int(self._judged(base + np.unique(targets)).sum()) for base, targets in nodes)

    def _waits_of(self, name: str, host: HostTime, part: RankGraph, base: int) -> Int64:
        arcs: Int64 = host.wait_arc[host.wait_class == HOST_CLASSES.index(name)]
        return arcs[~self._last_of_step(part, base, arcs)] if name == "sync" else arcs

    def _reduce(self, weights: Int64, arcs: Int64, taken: Int64) -> None:
        place = self._place[arcs]
        there = place >= 0
        weights[place[there]] -= taken[there]

    def _last_of_step(self, part: RankGraph, base: int, arcs: Int64) -> Flags:
        """Which arcs lead to the last of their step's waits, if little of the step's work is launched after it."""
        node = part.target[arcs]
        step = self.replay.step[base + node]
        is_last: Flags = np.zeros(len(arcs), np.bool_)
        if len(arcs):
            numbers, at = np.unique(step, return_inverse=True)
            latest = np.full(len(numbers), -1)
            np.maximum.at(latest, at, node)  # the host's moments are numbered by time
            work = np.flatnonzero(part.track >= 0)
            place = np.minimum(np.searchsorted(numbers, self.replay.step[base + work]), len(numbers) - 1)
            work, place = (v[numbers[place] == self.replay.step[base + work]] for v in (work, place))
            kernels = np.bincount(part.cell_node, part.cell_count, minlength=len(part.when))[work]
            whole = np.bincount(place, kernels, minlength=len(numbers))
            later = part.launched[work] >= part.when[latest[place]]
            behind = np.bincount(place, kernels * later, minlength=len(numbers))
            is_last = (node == latest[at]) & (behind <= _AT_THE_END * whole)[at]
        return is_last
