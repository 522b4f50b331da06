"""Matches the operations of all ranks in windows of time, where they do not fit into memory at once.

Clocks come first, and communicators that nothing names, both from times and kinds (`alltrace.align.timelines`). With them,
operations are read in the order of time, as many as fit. Those that are there are matched as if they were the run
(`alltrace.align.matching`). Instances that end well before the first operation that was not read are final; the other operations
stay for the next window. In the end, the clocks are fitted to all final instances, or to a part of them that is spread over the
run and fits into memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from alltrace.align.all_collectives import AllCollectives
from alltrace.align.clocks import solve
from alltrace.align.matching import FEW, Known, clocks_and_communicators, match, notes_of
from alltrace.align.matching_score import connected, reason_of
from alltrace.align.members import Evidence, evidence_of
from alltrace.align.operations import INFERRED, operation_times
from alltrace.align.schema import Group
from alltrace.align.spilled_batches import SpilledBatches
from alltrace.run.overlay import MEMBERS
from alltrace.run.parquet import quick_codec
from alltrace.trace.arrays import integers
from alltrace.trace.distinct import rows_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from alltrace.align.clocks import PlacedRank, Solution
    from alltrace.align.coarse_clocks import RankClock
    from alltrace.align.matching import Matching
    from alltrace.align.spilled_operations import SpilledOperations

    Numbers = NDArray[np.int64]

_STAYS = 1 / 8
"""The last part of a window, in which instances may lack members that were not read yet."""
_LEAST_NEW = 1 / 4
_ALWAYS = 16
"""The first instances of a communicator, which are always used for the clocks."""
_EVIDENCE = tuple(f.name for f in fields(Evidence))
_PARTS = 64
"""Parts of the ranks whose members are sorted at once."""


class WindowedMatching(NamedTuple):
    """What is one instance across ranks, found in windows; the members are in a file.

    Attributes:
        solution: The clocks.
        groups: The communicators.
        members: The number of members.
        unmatched: For each rank the number of operations that found no partner.
        notes: What a reader must know, each one sentence.
        score: How sure it is which ranks communicate, from 0 to 1; None if there is no communication.
        reason: One sentence why the score is too low to rely on; None if it is not.
    """

    solution: Solution
    groups: tuple[Group, ...]
    members: int
    unmatched: dict[int, int]
    notes: tuple[str, ...]
    score: float | None
    reason: str | None


def match_in_windows(
    operations: SpilledOperations,
    texts: Callable[[Any], Any],
    ranks: Sequence[PlacedRank],
    members: Path,
    *,
    row_group_rows: int,
    most: int,
    progress: Callable[[int], None] | None = None,
) -> WindowedMatching:
    """Match the operations of all ranks.

    Args:
        operations: The operations.
        texts: The strings of an Arrow array of name ids.
        ranks: All ranks of the run, by number.
        members: The Parquet file to write, of `MEMBERS`, sorted by rank and instance; meanwhile another file is next to it.
        row_group_rows: The most rows in one of its row groups.
        most: How many operations are to be in memory at once, and how many ends of instances the clocks are fitted to.
        progress: Called with the number of ranks done: all of them, by the share of the operations.
    """
    known = Known({}, ())
    timelines = operations.timelines(texts)
    if timelines is not None:
        shifts, hosts = {p.rank: p.shift_ns for p in ranks}, {p.rank: p.host for p in ranks}
        clocks, communicators = clocks_and_communicators(timelines, shifts, hosts)
        known = Known(clocks, communicators.scores)
        if communicators.scores:
            operations.add_inferred(timelines, communicators.of)
    found = _MembersFile(members.with_suffix(".scratch"), [p.rank for p in ranks])
    sweep = _Sweep(operations, texts, ranks, known, found, most)
    told = 0
    for share in sweep.run():
        if progress is not None and int(share * len(ranks)) > told:
            progress(int(share * len(ranks)) - told)
            told = int(share * len(ranks))
    found.write(members, row_group_rows)
    return sweep.found()


@dataclass
class _Communicator:
    """A communicator in all windows that had it."""

    number: int
    name: str
    found_by: str
    messages: bool
    ranks: set[int] = field(default_factory=set)
    matched: set[int] = field(default_factory=set)
    size: int = 0
    instances: int = 0
    members: int = 0
    score: float = 0.0
    """Summed over the members, as `all_to_all` is."""
    all_to_all: int = 0

    def add(self, group: Group, members: int) -> None:
        """Count what one window has of it."""
        self.ranks.update(group.ranks)
        self.size = max(self.size, group.size, len(self.ranks))
        self.messages &= group.messages
        self.members += members
        self.score += group.score * members
        self.all_to_all += group.all_to_all * members

    def group(self, connecting: float) -> Group:
        """It as a communicator of the run, in which communicators connect this share of the pairs of ranks."""
        score = round(connecting * self.score / max(self.members, 1), 3)
        dense = 2 * self.all_to_all > self.members
        return Group(self.number, self.name, tuple(sorted(self.ranks)), self.size, self.found_by, score, self.messages, dense)


class _Sweep:
    """Goes through the operations once, in the order of time."""

    def __init__(
        self,
        operations: SpilledOperations,
        texts: Callable[[Any], Any],
        ranks: Sequence[PlacedRank],
        known: Known,
        members: _MembersFile,
        most: int,
    ) -> None:
        self._operations, self._texts, self._ranks, self._most = operations, texts, ranks, most
        self._members = members
        self._known, self._clocks = known, known.clocks
        self._captured = _all_captured(operations.extents, known.clocks)
        self._instances = 0
        self._communicators: dict[str, _Communicator] = {}
        self._evidence = _SpreadEvidence(most)
        self._matched: Counter[int] = Counter()
        self._alone: Counter[int] = Counter()
        self._inside: Counter[int] = Counter()
        self._alone_inside: Counter[int] = Counter()
        self._score, self._counted, self._unnamed = 0.0, 0, 0

    def run(self) -> Iterator[float]:
        """Match all operations; yields the share of them that was read."""
        numbers, starts, rows = self._operations.in_order(self._clocks)
        waiting: list[pa.Table] = []
        at = 0
        while at < len(numbers):
            room = max(self._most - sum(t.num_rows for t in waiting), int(self._most * _LEAST_NEW))
            following = at + max(int(np.searchsorted(np.cumsum(rows[at:]), room, side="right")), 1)
            waiting.append(self._operations.read(numbers[at:following].tolist()))
            at = following
            window = AllCollectives.sorted(pa.concat_tables(waiting))
            waiting.clear()
            pa.default_memory_pool().release_unused()  # NumPy does not use what Arrow holds back
            waiting.append(self._taken(window, float(starts[at]) if at < len(numbers) else np.inf))
            yield float(rows[:at].sum() / rows.sum())

    def found(self) -> WindowedMatching:
        """What was found."""
        unmatched = {rank: self._alone[rank] for rank in sorted(self._operations.rows)}
        share = {r: self._alone_inside[r] / n for r, n in sorted(self._inside.items()) if n > FEW}
        communicators = list(self._communicators.values())
        guessed = sum(c.found_by == "structure" for c in communicators)
        connecting, apart = 1.0, 1
        if self._known.scores:  # unconnected ranks may still belong together
            number, rank = np.array([(c.number, r) for c in communicators for r in c.matched], np.int64).reshape(-1, 2).T
            connecting, apart = connected(number, rank, np.array(list(self._clocks), np.int64))
        score = round(connecting * self._score / self._counted, 3) if self._counted else None
        certainty = {r: c.certainty for r, c in self._clocks.items()}
        return WindowedMatching(
            solution=solve(self._evidence.whole(), self._ranks),
            groups=tuple(c.group(connecting) for c in communicators),
            members=sum(self._matched.values()),
            unmatched=unmatched,
            notes=notes_of(self._operations.calls_only, guessed, share),
            score=score,
            reason=reason_of(score, self._unnamed / max(self._counted, 1), certainty, apart),
        )

    def _taken(self, window: AllCollectives, unread_from: float) -> pa.Table:
        """Match a window, after which operations start at `unread_from`; returns the operations that stay for the next one."""
        ranks, of = np.array(list(window), np.int64), window.whole.column("rank").to_numpy()
        shift, rate, *_ = np.array([self._clocks[r] for r in ranks.tolist()])[np.searchsorted(ranks, of)].T
        end = (operation_times(window.whole).end + shift) * (1.0 - rate)
        first = float(end.min())
        final_to = unread_from if unread_from == np.inf else unread_from - _STAYS * max(unread_from - first, 0.0)
        matching = match(window, self._texts, known=self._known)
        table = matching.members
        instance, rank, row = (table.column(c).to_numpy() for c in ("instance", "rank", "row"))
        begins = np.searchsorted(of, ranks)
        at = begins[np.searchsorted(ranks, rank)] + row
        final = np.zeros(0, np.bool_)
        if len(instance):
            heads = np.flatnonzero(np.concatenate(([True], instance[1:] != instance[:-1])))
            first_end = np.minimum.reduceat(end[at], heads)
            final = (first_end < final_to)[np.cumsum(np.concatenate(([0], np.diff(instance) != 0)))]
            self._keep(window, matching, np.flatnonzero(final), at, end)
        matched = np.zeros(len(end), np.bool_)
        matched[at[final]] = True
        leaving = matched | (end < final_to)
        judged, its_row = matching.places
        self._judge(matching, window, begins[np.searchsorted(ranks, judged)] + its_row, leaving)
        opens, shuts = np.array([self._captured[self._clocks[r].component] for r in ranks.tolist()])[np.searchsorted(ranks, of)].T
        inside = leaving & (end >= opens) & (end <= shuts)
        for counts, which in (
            (self._matched, matched),
            (self._alone, leaving & ~matched),
            (self._inside, inside),
            (self._alone_inside, inside & ~matched),
        ):
            numbers, many = np.unique(of[which], return_counts=True)
            counts.update(dict(zip(numbers.tolist(), many.tolist(), strict=True)))
        return window.whole.filter(pa.array(~leaving))

    def _judge(self, matching: Matching, window: AllCollectives, at: Numbers, leaving: NDArray[np.bool_]) -> None:
        """Add what the score says of the operations that leave; `at` is the place of each in the window."""
        counts = ~np.isnan(matching.explained) & leaving[at]
        self._score += float(matching.explained[counts].sum())
        self._counted += int(counts.sum())
        columns = [window.whole.column(n) for n in ("communicator", INFERRED) if n in window.whole.column_names]
        unnamed = np.all([integers(column, -1) == -1 for column in columns], axis=0)
        self._unnamed += int(unnamed[at[counts]].sum())

    def _keep(self, window: AllCollectives, matching: Matching, rows: Numbers, at: Numbers, end: NDArray[np.float64]) -> None:
        """Take the final members, which are some rows of the table; `at` is the place of each row in the window."""
        if not len(rows):
            return
        table = matching.members.take(pa.array(rows))
        at = at[rows]
        instance, local, rank = (table.column(c).to_numpy() for c in ("instance", "communicator", "rank"))
        heads = np.flatnonzero(np.concatenate(([True], instance[1:] != instance[:-1])))
        of = np.cumsum(np.concatenate(([0], np.diff(instance) != 0)))
        order = np.argsort(np.minimum.reduceat(end[at], heads), kind="stable")
        numbers = np.empty(len(heads), np.int64)
        numbers[order] = self._instances + np.arange(len(heads))
        self._instances += len(heads)
        ordinals, communicators = np.empty(len(heads), np.int64), np.empty(len(heads), np.int64)
        members = np.bincount(local, minlength=len(matching.groups))
        of_group = rows_by(local[heads][order])
        for group in matching.groups:
            if group.number not in of_group:
                continue
            mine = order[of_group[group.number]]
            known = self._communicators.get(group.name)
            if known is None:
                known = _Communicator(len(self._communicators), group.name, group.found_by, group.messages)
                self._communicators[group.name] = known
            known.add(group, int(members[group.number]))
            known.matched.update(rank[local == group.number].tolist())
            ordinals[mine] = known.instances + np.arange(len(mine))
            known.instances += len(mine)
            communicators[mine] = known.number
        evidence = evidence_of(table, window, self._texts)
        self._evidence.add(replace(evidence, instance=numbers[of], communicator=communicators[of]), ordinals[of])
        columns: dict[str, Any] = {name: table.column(name) for name in table.column_names}
        columns |= {"instance": numbers[of], "communicator": communicators[of], "ordinal": ordinals[of]}
        columns["row"] = window.whole.column("row").to_numpy()[at]
        self._members.add(pa.table(columns, schema=MEMBERS.arrow_schema()))


def _all_captured(extents: Mapping[int, tuple[int, int]], clocks: Mapping[int, RankClock]) -> dict[int, tuple[float, float]]:
    """For each component when all of its ranks were captured, ns of the common time; of one rank alone, always."""
    found: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for rank, (first, last) in extents.items():
        found[clocks[rank].component].append((clocks[rank].common(first), clocks[rank].common(last)))
    return {c: (max(e[0] for e in its), min(e[1] for e in its)) for c, its in found.items()}


class _SpreadEvidence:
    """Instances for the clocks: of each communicator the first, and every second, fourth or so of all, so that they fit."""

    def __init__(self, most: int) -> None:
        self._most, self._every = most, 1
        none = np.zeros(0, np.int64)
        self._parts = [(Evidence(none, none, none, none, none, np.zeros(0, np.bool_), np.zeros(0, np.int8)), none)]

    def add(self, evidence: Evidence, ordinal: Numbers) -> None:
        """Add instances; `ordinal` is the place of each row's instance within its communicator."""
        self._parts.append(self._thinned(evidence, ordinal))
        while sum(len(o) for _, o in self._parts) > self._most and self._every < self._most:
            self._every *= 2
            self._parts = [self._thinned(*part) for part in self._parts]

    def whole(self) -> Evidence:
        """All of it, by instance."""
        joined = [np.concatenate([getattr(e, name) for e, _ in self._parts]) for name in _EVIDENCE]
        order = np.argsort(joined[0], kind="stable")
        return Evidence(*(column[order] for column in joined))

    def _thinned(self, evidence: Evidence, ordinal: Numbers) -> tuple[Evidence, Numbers]:
        chosen = (ordinal < _ALWAYS) | (ordinal % self._every == 0)
        return Evidence(*(getattr(evidence, name)[chosen] for name in _EVIDENCE)), ordinal[chosen]


class _MembersFile:
    """The members of instances, which come in the order of time, in a temporary file from which parts of the ranks are read."""

    def __init__(self, file: Path, ranks: Sequence[int]) -> None:
        self._spilled = SpilledBatches(file, MEMBERS.arrow_schema())
        self._ranks = np.array(ranks, np.int64)
        self._batches: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, members: pa.Table) -> None:
        """Add members."""
        part = np.searchsorted(self._ranks, members.column("rank").to_numpy()) * _PARTS // len(self._ranks)
        for number in np.unique(part).tolist():
            self._batches[number].append(self._spilled.add(members.filter(pa.array(part == number))))

    def write(self, file: Path, row_group_rows: int) -> None:
        """Write them as a Parquet file, sorted by rank and instance, and remove the temporary file."""
        with pq.ParquetWriter(file, self._spilled.schema, compression=quick_codec()) as writer:
            for _, numbers in sorted(self._batches.items()):
                found = self._spilled.read(numbers)
                order = np.lexsort((found.column("instance").to_numpy(), found.column("rank").to_numpy()))
                writer.write_table(found.take(pa.array(order)), row_group_rows)
        self._spilled.remove()
