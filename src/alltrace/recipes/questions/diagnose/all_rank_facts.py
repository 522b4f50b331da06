"""The facts of all ranks side by side: what detectors read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.recipes.analysis.network_state import NetworkState, networks_of
from alltrace.recipes.analysis.unsized_operations import why_unsized
from alltrace.recipes.questions.diagnose.finding import Loss
from alltrace.recipes.questions.diagnose.gaps import CLASSES, HOST_CLASSES
from alltrace.recipes.questions.diagnose.host_time import Contribution
from alltrace.recipes.questions.diagnose.lone_operations import LoneOperations
from alltrace.recipes.questions.diagnose.rank_facts import RankFacts
from alltrace.recipes.questions.diagnose.recovered_time import MOST_ERROR, Altered, RecoveredTime, narrowed
from alltrace.replay.join import Replay
from alltrace.replay.peers import Peers
from alltrace.replay.rank_graph import RankGraph
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import distinct, rows_by, run_starts, values_by
from alltrace.trace.intervals import Merged, containing, difference, intersection, merge, overlap_ns, union
from alltrace.trace.number_text import numbered

CULPRIT_SHARE = 0.5  # a rank is a culprit when it loses at least this share of what the worst rank loses
_WORTH_A_REPLAY = 0.002  # below this share of the judged time only the ceiling is computed

_ENOUGH_SHARED, _FEWEST_SHARED = 0.25, 2
"""Only steps of every rank are judged, if they are this share of the steps of half of the ranks, and at least this
many."""

_IN_PART = 0.25

_FEW_ALONE = 0.1
"""The share of a rank's messages that may be matched with nothing: from there on losses have been seen to differ by a
fifth."""

_ALIKE = 0.8
"""If every rank itself loses this share of the ceiling, the ceiling holds independent of who waits for whom."""


@dataclass(frozen=True)
class Members:
    """The members of matched instances, in judged steps; arrays of n values, sorted by instance and rank."""

    instance: Int64
    communicator: Int64
    rank: Int64
    step: Int64
    stream: Int64
    size: Int64
    row: Int64  # the row of the rank's `collectives`
    op: NDArray[Any]  # the operation, as text. start, end: Aligned ns
    start: Int64
    end: Int64
    last_arrival: Int64  # of the instance
    transfer: Int64  # from the last arrival to the instance's end
    waited: Int64  # time in which the rank's device waits for communication during the rank's own operation
    # the part of that after the last arrival; 0 if the clocks may be off by more, or it is not known by how much
    moved: Int64
    fact: Flags  # whether the rank's wait for the last arrival is at least what the clocks may be off
    keeps_host: Flags  # whether it is a call of MPI, in which the host that makes it waits
    certain: Flags  # whether the instance's transfer is at least what every member's clock may be off

    @cached_property
    def firsts(self) -> NDArray[np.intp]:
        return run_starts(self.instance)


class AllRankFacts:
    """The facts of all ranks, on the steps that all of those with steps have, or half of them if all have few.

    The late rank of a step is unknown if a rank lacks the step.

    If some ranks have steps, the others, with reports that end too early, are not judged: a whole run does not compare
    with a step.

    `alignment`: The run's alignment (`alltrace.align.aligned.Aligned`). `roles`: The role of each rank in a program of
    several groups of ranks; ranks are compared with those of their role.
    """

    def __init__(
        self,
        given: Mapping[int, Contribution],
        hosts: Mapping[int, str],
        alignment: Any,
        texts: Callable[[Any], Any],
        join: Callable[[Sequence[RankGraph]], Replay],
        peers: Callable[[Replay], Peers],
        roles: Mapping[int, str | None] | None = None,
    ) -> None:
        self.roles: dict[int, str | None] = dict(roles or {})
        self._given = dict(sorted(given.items()))
        facts: dict[int, RankFacts] = {rank: g.facts for rank, g in self._given.items()}
        self.whole_run: bool = all(f.whole_run for f in facts.values())
        """Whether the ranks' runs had to count as one step."""
        self.stepless = tuple(r for r, f in facts.items() if f.whole_run and not self.whole_run)
        self.facts: dict[int, RankFacts] = {r: _unjudged(f) if r in self.stepless else f for r, f in facts.items()}
        self.hosts: dict[int, str] = dict(hosts)
        self.alignment = alignment
        self.ranks: Int64 = np.array(list(self.facts), np.int64)
        self._texts, self._join, self._peers = texts, join, peers
        known = np.concatenate([f.steps for f in self.facts.values()] or [np.empty(0, np.int64)])
        steps, counts = np.unique(known, return_counts=True)
        having = len(self.facts) - len(self.stepless)
        shared, every = steps[counts >= max(having / 2, 1)], steps[counts >= max(having, 1)]
        # a report that begins late begins when it did, however soon a replay reaches its first step
        every = every[1:] if len(every) and every[0] > shared[0] else every
        enough = max(_ENOUGH_SHARED * len(shared), min(_FEWEST_SHARED, len(shared)))
        self.steps: Int64 = every if len(every) >= enough else shared
        self.partly: tuple[int, ...] = tuple(shared[~np.isin(shared, self.steps)].tolist())
        """Steps that are left out because some ranks lack them."""

    def of_each_role(self) -> "list[AllRankFacts]":
        """The facts of the ranks of each role, on the same steps: roles have different work by design."""
        groups = self._rows_of_roles()
        return [self] if len(groups) < 2 else [self._among(self.ranks[rows].tolist()) for rows in groups]

    @cached_property
    def undisturbed(self) -> "AllRankFacts":
        """The same ranks and steps without what other processes took from the kernels."""
        if all(f.work.slices is None for f in self.facts.values()):
            return self
        return self.with_facts({r: f.undisturbed() for r, f in self.facts.items()})

    def with_facts(self, facts: Mapping[int, RankFacts]) -> "AllRankFacts":
        other = self._among(self.ranks.tolist())
        other.facts = dict(facts)
        return other

    def _among(self, ranks: Sequence[int]) -> "AllRankFacts":
        given = {r: self._given[r] for r in ranks}
        subset = AllRankFacts(given, self.hosts, self.alignment, self._texts, self._join, self._peers, self.roles)
        subset.facts = {r: self.facts[r] for r in ranks}
        subset.steps, subset.partly, subset.whole_run = self.steps, self.partly, self.whole_run
        subset.stepless = tuple(r for r in self.stepless if r in given)
        return subset

    @cached_property
    def lone(self) -> list[LoneOperations | None]:
        """Of each rank, in the order of `ranks`, its unmatched operations."""
        return [g.lone for g in self._given.values()]

    def named(self, rows: Int64, word: str = "rank") -> str:
        """Some ranks in a sentence; `rows`: their places in `ranks`."""
        return numbered(word, self.ranks[rows].tolist())

    def name(self, ident: int) -> str:
        return self._texts(pa.array([ident], pa.int64()))[0].as_py() or ""

    def name_of_most(self, parts: Iterable[tuple[Int64, NDArray[Any]]]) -> str:
        """The text of the name with the largest sum, of parts that are names and amounts of them; empty without any."""
        none = np.empty(0, np.int64), np.empty(0)
        names, amounts = (np.concatenate(values) for values in zip(none, *parts, strict=True))
        known, at = distinct(names)
        return self.name(int(known[np.bincount(at, amounts).argmax()])) if len(known) else ""

    @cached_property
    def times(self) -> Floats:
        """(ranks, steps, classes), ns; NaN if a rank lacks a step."""
        return self._of_steps(lambda facts: facts.times, len(CLASSES))

    def _of_steps(self, values: Callable[[RankFacts], Int64], *shape: int) -> Floats:
        """(ranks, steps, *shape) of what the facts of a rank have of each of its steps; NaN if it lacks a step."""
        of_steps = np.full((len(self.ranks), len(self.steps), *shape), np.nan)
        for row, facts in enumerate(self.facts.values()):
            mine, at = self.judged(facts)
            of_steps[row, at] = values(facts)[mine]
        return of_steps

    def judged(self, facts: RankFacts) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which of a rank's steps are judged, and their places among `steps`."""
        _, mine, at = np.intersect1d(facts.steps, self.steps, return_indices=True)
        return mine, at

    def facts_of(self, rows: Flags) -> list[RankFacts]:
        """The facts of some ranks; `rows`: bool array in the order of `ranks`."""
        return [facts for facts, wanted in zip(self.facts.values(), rows.tolist(), strict=True) if wanted]

    def of(self, name: str) -> Floats:
        """(ranks, steps) of one class, ns; 0 if a rank lacks a step."""
        return np.nan_to_num(self.times[:, :, CLASSES.index(name)])

    def of_host(self, name: str) -> Floats:
        """(ranks, steps) of one of `HOST_CLASSES` but the last, ns, even if no device waits; 0 for lacking steps."""
        return np.nan_to_num(self._of_steps(lambda facts: facts.host_ns[:, HOST_CLASSES.index(name)]))

    @cached_property
    def own(self) -> Floats:
        """(ranks, steps): a rank's own time, without waits for communication, ns."""
        own_ns: Floats = np.nan_to_num(self.times.sum(axis=2)) - self.of("communication")
        return own_ns

    @cached_property
    def _reached(self) -> Floats:
        """(2, steps): when the last rank begins and ends each judged step, ns."""
        reached: Floats = np.nanmax(self._of_steps(lambda facts: facts.regions, 2), axis=0)
        return reached.T

    @cached_property
    def lengths(self) -> Floats:
        """(steps): the length of each judged step, from the last rank's begin to the last rank's end, ns.

        A rank that is late at the end of a step makes the others wait in their next one.
        """
        begin, end = self._reached
        lengths: Floats = end - begin
        return lengths

    @cached_property
    def span_ns(self) -> int:
        """The judged time: the lengths of the judged steps, summed."""
        return int(self.lengths.sum())

    def loss(
        self,
        classes: Sequence[str],
        lost: Floats,
        change: Callable[[RecoveredTime], Altered | None] | None = None,
        ceiling_ns: int | None = None,
        shared: Sequence[str] = (),
    ) -> Loss:
        """What the job gets back without a cause.

        `classes`: The `CLASSES` of time in the loss, which bound it. `lost`: What each rank loses in each step, (ranks,
        steps), ns; ranks and steps without a loss have 0. `change`: The weights of the replay without the cause, or
        another order; None if a replay cannot determine it. `ceiling_ns`: The ceiling of the loss; None for the longest
        own time of each step minus that without `lost`.
        """
        rows, every = np.asarray((lost > 0).any(axis=1)), tuple(dict.fromkeys((*classes, *shared)))
        bounds, parts = self.bounds_ns(every, rows), lost.sum(axis=0)
        own, bound = int(self.bounds_ns(classes, rows).sum()), int(bounds.sum())
        steps = (bounds, parts / parts.sum()) if parts.sum() > 0 else None
        if ceiling_ns is None:
            ceiling_ns = int(np.maximum(self.own.max(axis=0) - (self.own - lost).max(axis=0), 0).sum())
        if self.doubt is not None:
            sure = self._sure_ns(lost)
            alone = int(sure.sum())
            alike = "communication" not in classes and alone >= _ALIKE * ceiling_ns and (alone > 0 or not rows.any())
            # where ranks pass messages on, the delays of one after the other add up
            alike &= not self._messages.any() or not alone
            return Loss(ceiling_ns, "ceiling", every, own, bound, None if alike else self.doubt, alone, steps=steps)
        if change is None or self.recovery is None:
            return Loss(ceiling_ns, "ceiling", every, own, bound, steps=steps)
        recovery = self.recovery
        without = cache(lambda: narrowed(change(recovery)))
        changed = without() if ceiling_ns >= _WORTH_A_REPLAY * self.span_ns else None
        if changed is None:
            return Loss(ceiling_ns, "ceiling", every, own, bound, without=without, steps=steps)
        return Loss(self.recovery.saved_ns(changed), "replay", every, own, bound, without=without, steps=steps)

    def _sure_ns(self, lost: Floats) -> Floats:
        """(steps): what is lost whoever waits for whom: what each rank loses by itself, or waits for those that do, ns.

        No rank leaves an operation before the last one has begun it. So if all ranks but some wait for communication,
        and these do not, all wait for these.
        """
        common: Floats = np.where(np.isnan(self.times[:, :, 0]), np.inf, lost).min(axis=0)
        most = lost.max(axis=0)
        losing = lost >= CULPRIT_SHARE * most
        if self.clocks_unknown or self.alignment.run.manifest.missing_ranks:
            return common
        begins, ends = (moments.astype(np.int64) for moments in self._reached)
        for chosen in np.unique(losing, axis=1).T:
            if not chosen.all():
                waits = [merge(*f.waits.T.copy()) for f in self.facts.values()]
                own = union([w for w, mine in zip(waits, chosen.tolist(), strict=True) if mine])
                others = reduce(intersection, [w for w, mine in zip(waits, chosen.tolist(), strict=True) if not mine])
                awaited = np.minimum(most, overlap_ns(begins, ends, difference(others, own)))
                so = (losing == chosen[:, None]).all(axis=0)
                common = np.where(so, np.maximum(common, awaited), common)
        return common

    def bounds_ns(self, classes: Sequence[str], rows: Flags) -> Floats:
        """(steps): the most that the job can get back of the time of some classes on some ranks, ns.

        For each step at most these ranks' total time in the classes, as one may wait for the other; and at most what
        the step takes beyond the rank with the most own time outside of them.

        `classes`: Some of `CLASSES`. `rows`: The ranks, bool array in the order of `ranks`.
        """
        taken = sum((self.of(name) * rows[:, None] for name in classes), np.zeros(self.times.shape[:2]))
        waited = self.of("communication") * rows[:, None] if "communication" in classes else 0.0
        rest = (self.own - (taken - waited)).max(axis=0)
        bounds: Floats = np.clip(np.minimum(taken.sum(axis=0), self.lengths - rest), 0, None)
        return bounds

    def less_compute(self, lost: Floats) -> Callable[[RecoveredTime], Int64]:
        """A change that makes kernels take `lost` (ranks, steps) less in each step, ns."""
        compute = self.of("compute")
        share = np.divide(lost, compute, out=np.zeros_like(compute), where=compute > 0)
        return partial(RecoveredTime.less_work, ranks=self.ranks, steps=self.numbers, share=share)

    @property
    def judges_hosts(self) -> bool:
        """Whether it is the work of hosts that is judged, since nothing ran on a device."""
        return all(facts.of_host for facts in self.facts.values())

    @property
    def numbers(self) -> list[int] | None:
        """The numbers of the judged steps; None if the ranks' runs had to count as one."""
        return None if self.whole_run else self.steps.tolist()

    def waiting_ns(self, lost: Floats) -> int:
        """The ceiling of what all wait for: each step's median of `lost` (ranks, steps) of those that lose, ns."""
        there = np.where(lost > 0, lost, np.nan)
        rows = ~np.isnan(there).all(axis=0)
        return int(np.nansum(np.nanmedian(there[:, rows], axis=0))) if rows.any() else 0

    def carries_on(self, rank: Int64, row: Int64, ahead: Int64) -> Flags:
        """Which collectives may need what one before them brought (`RecoveredTime.carries_on`); all without a graph."""
        every: Flags = np.ones(len(rank), np.bool_)
        return every if self._recovery is None else self._recovery.carries_on(rank, row, ahead)

    @cached_property
    def doubt(self) -> str | None:
        """Why it is not known who waits for whom, so that losses cannot be computed; None if it is."""
        lossy = [r for r, f in self.facts.items() if f.left_out]
        if lossy and self.whole_run:
            return f"rank {lossy[0]} has no record of some of its work, and no steps show which time is complete"
        if len(self.ranks) < 2 or self.alignment is None:
            return None
        if (reason := self.alignment.matching_reason or self._unmatched_messages) is not None:
            why = f"it is unknown which ranks wait for which: {reason}"
            unnamed = any(lone is not None and lone.unnamed for lone in self.lone)
            return f"{why}; {why_unsized(self.alignment.run.manifest)[1]}" if unnamed else why
        if self.clocks_unknown:
            return "it is unknown which ranks wait for which: the clocks of some communicating ranks are not connected"
        if self._recovery is not None and self._recovery.replay.unplaced is not None:
            return f"it is unknown which ranks wait for which: {self._recovery.replay.unplaced}"
        return None

    @cached_property
    def _messages(self) -> Int64:
        """(ranks, 2): the sends and receives of each rank in the judged steps, and those of them without a partner."""
        counted = np.zeros((len(self.ranks), 2), np.int64)
        for row, (facts, lone) in enumerate(zip(self.facts.values(), self.lone, strict=True)):
            messages, alone = (None, None) if lone is None else (lone.messages, lone.alone)
            if messages is not None and alone is not None and len(facts.steps) == len(messages):
                judged = np.isin(facts.steps, self.steps)
                counted[row] = messages[judged].sum(), alone[judged].sum()
        return counted

    @property
    def _unmatched_messages(self) -> str | None:
        """How many messages have no partner on the rank with the largest share; None if small, or ranks are missing.

        A replay leaves them when they were, so that nothing behind them comes earlier.
        """
        counts = zip(self.ranks.tolist(), *self._messages.T.tolist(), strict=True)
        shares = [(alone / messages, rank) for rank, messages, alone in counts if messages]
        share, rank = max(shares, default=(0.0, 0))
        if share <= _FEW_ALONE or self.alignment.run.manifest.missing_ranks:
            return None
        return f"{100 * share:.1f} % of the sends and receives of rank {rank} found no partner"

    @cached_property
    def _recovery(self) -> RecoveredTime | None:
        if self.alignment is None or any(g.graph is None for g in self._given.values()):
            return None
        replay, steps = self._join([g.graph for g in self._given.values()]), None if self.whole_run else self.steps
        return RecoveredTime(replay, self._given, self.alignment.members, steps, self._peers)

    @property
    def recovery(self) -> RecoveredTime | None:
        """The run as it can be replayed; None if it cannot, is too far off, or who waits for whom is in doubt."""
        if self.doubt is not None or self._recovery is None or self._recovery.error > MOST_ERROR:
            return None
        return self._recovery

    def parts_with(self, name: str, ranks: Sequence[int]) -> int | None:
        """In how many of the `PARTS` of a run without steps a class takes a quarter of its mean or more on some ranks.

        `ranks`: The ranks; all for none. None for a run with steps.
        """
        facts = [f for rank, f in self.facts.items() if rank in ranks or not len(ranks)]
        if not self.whole_run or name not in CLASSES or any(f.parts is None or not len(f.parts) for f in facts):
            return None
        taken = np.sum([f.parts[:, CLASSES.index(name)] for f in facts if f.parts is not None], axis=0)
        return int((taken >= max(_IN_PART * float(taken.mean()), 1.0)).sum())

    def covered_share(self, ranks: Sequence[int]) -> float:
        """The share of what some ranks did in the judged steps that reports show: without lacking steps and graphs.

        `ranks`: The ranks; all if there is none of them.
        """
        named = np.isin(self.ranks, np.array(ranks, np.int64))
        rows = np.flatnonzero(named if named.any() else ~named)
        there = float((~np.isnan(self.times[rows, :, 0])).mean())
        whole = float(np.nansum(self.times[rows]))
        facts = list(self.facts.values())
        hidden = sum(facts[row].graph_ns for row in rows.tolist())
        return there * (1 - min(hidden / whole, 1.0)) if whole else there

    @cached_property
    def networks(self) -> dict[str, NetworkState]:
        """What the network adapters of each host did, of hosts with a report that samples them."""
        return networks_of({rank: given.machine.network for rank, given in self._given.items()}, self.hosts)

    @cached_property
    def clocks_unknown(self) -> bool:
        """Whether some matched operation is between ranks with an unknown clock error."""
        return self.alignment is not None and self.alignment.members.column("error_ns").null_count > 0

    @property
    def replay_error(self) -> float | None:
        """How far the replay of the unchanged run is from it, as a share of it; None if it is not replayed."""
        return self._recovery.error if self.doubt is None and self._recovery is not None else None

    def culprits(self, lost: Floats, share: float = CULPRIT_SHARE) -> Flags:
        """Which ranks lose at least `share` of what the worst loses over all steps."""
        total = np.maximum(lost, 0).sum(axis=1)
        most = total.max(initial=0)
        blamed: Flags = (total >= share * most) & (total > 0)
        return blamed

    def excess(self, values: Floats) -> Floats:
        """(ranks, steps): how much more than the lower quartile of the role's ranks, as more than half may be high."""
        there = np.where(np.isnan(self.times[:, :, 0]), np.nan, values)
        beyond: Floats = np.zeros_like(there)
        for rows in self._rows_of_roles():
            own = there[rows]
            known = ~np.isnan(own).all(axis=0)
            low = np.nanpercentile(own[:, known], 25, axis=0, method="lower")
            beyond[np.array(rows)[:, None], np.flatnonzero(known)] = np.nan_to_num(own[:, known] - low)
        return beyond

    def _rows_of_roles(self) -> list[list[int]]:
        return list(values_by((self.roles.get(rank), row) for row, rank in enumerate(self.ranks.tolist())).values())

    def hosts_of(self, ranks: Sequence[int]) -> tuple[str, ...]:
        chosen = set(ranks)
        by_host = values_by((host, rank) for rank, host in self.hosts.items())
        return tuple(host for host, members in by_host.items() if chosen.issuperset(members))

    def meet_across_hosts(self, ranks: Sequence[int]) -> bool:
        """Whether a communicator of some of these ranks has ranks on several hosts."""
        groups = () if self.alignment is None else self.alignment.groups
        return any(
            set(ranks) & set(g.ranks) and len({self.hosts[r] for r in g.ranks if r in self.hosts}) > 1 for g in groups
        )

    @cached_property
    def members(self) -> Members | None:
        """The members of matched instances; None without any."""
        if self.alignment is None:
            return None
        table = self.alignment.members
        if not table.num_rows:
            return None

        def column(name: str) -> Int64:
            return np.asarray(pc.fill_null(table.column(name), 0).to_numpy(), np.int64)

        rank, start, end, last, until = (column(c) for c in ("rank", "wait_start_ns", "end", "awaited_ns", "until_ns"))
        step = np.full(len(rank), -1)
        waited, moved = np.zeros(len(rank), np.int64), np.zeros(len(rank), np.int64)
        rows = rows_by(rank)
        for number, facts in self.facts.items():
            mine = rows.get(number)
            if mine is None or not len(self.steps) or not len(facts.steps):
                continue
            # an operation counts for the step that its end is in, which is where it is waited for
            at = containing(Merged(*facts.regions.T.copy()), end[mine] - 1)
            place = np.minimum(np.searchsorted(self.steps, facts.steps[at]), len(self.steps) - 1)
            inside = (at >= 0) & (self.steps[place] == facts.steps[at])
            step[mine] = np.where(inside, place, -1)
            sets = merge(*facts.waits.T.copy())
            waited[mine] = overlap_ns(start[mine], until[mine], sets)
            moved[mine] = overlap_ns(np.clip(last[mine], start[mine], until[mine]), until[mine], sets)
        # what is less may be an error of the clocks
        error = np.asarray(pc.fill_null(table.column("error_ns"), -1).to_numpy(), np.int64)
        moved[(error < 0) | (moved < error)] = 0
        transfer = column("transfer_ns")
        doubtful = (error < 0) | (transfer < error)
        certain = ~np.isin(column("instance"), np.unique(column("instance")[doubtful]))
        ops = table.column("op").combine_chunks()
        words = [*ops.dictionary.to_pylist(), ""]
        op = np.array(words, object)[ops.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)]
        mpi = pc.fill_null(pc.equal(table.column("evidence").cast("string"), "mpi"), False)
        members = Members(
            column("instance"), column("communicator"), rank, step, column("stream"), column("bytes"), column("row"),
            op, start, end, last, transfer, waited, moved, np.asarray(table.column("fact").to_numpy(), np.bool_),
            np.asarray(mpi.to_numpy(), np.bool_), certain,
        )  # fmt: skip
        return Members(*(getattr(members, field.name)[step >= 0] for field in fields(Members)))

    def spread(self, amounts: Int64) -> Floats:
        """(ranks, steps): the sum of the `amounts` of the rows of `members`."""
        sums = np.zeros((len(self.ranks), len(self.steps)))
        if self.members is not None:
            np.add.at(sums, (np.searchsorted(self.ranks, self.members.rank), self.members.step), amounts)
        return sums


def _unjudged(facts: RankFacts) -> RankFacts:
    return replace(
        facts,
        steps=facts.steps[:0],
        regions=facts.regions[:0],
        times=facts.times[:0],
        host_ns=facts.host_ns[:0],
        paused_behind_ns=0,
        kernels=0,
    )
