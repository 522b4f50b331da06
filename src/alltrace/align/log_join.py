"""NCCL's logs joined with the operations of a trace: what a log says about an operation that the trace does not.

Each rank's operations are aligned with its calls (`alltrace.align.log_call_matching`). A call fills in what is null:
size, count, type, communicator, peer, root. Values from the trace stay. Operations without a call get their size from
the same instance on other ranks. A log that does not fit fills in nothing. The operations of one rank are in memory at
a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.align.call_order import ranks_named
from alltrace.align.log_call_matching import CallMatch, LoggedCalls, TracedOps, match_calls
from alltrace.align.logged_units import NUMBERS, Units, units_of
from alltrace.align.matching import Matching
from alltrace.align.nccl_names import POINT_TO_POINT
from alltrace.align.rank_parts import part_file
from alltrace.align.schema import Group, Joined
from alltrace.run.manifest import LogMatch
from alltrace.run.manifest import RankRecord as Rank
from alltrace.run.overlay import collectives_file
from alltrace.run.parquet import read_parquet, write_quickly
from alltrace.run.run_logs import found_by, logged_calls
from alltrace.run.store import Run
from alltrace.trace.arrays import Flags, Int64, coded, integers, is_one_of
from alltrace.trace.distinct import distinct_rows
from alltrace.trace.names import name_id
from alltrace.trace.number_text import number_ranges
from alltrace.trace.schema import TABLES

LEAST_SHARE = 0.8
"""A log of which less fits is of another run, or of another part of it."""

_PURE_CHANCE = 0.7
_SAME_GROUP = 0.9
_UNKNOWN = -(1 << 63)
_SHARED = ("bytes", "count", "datatype", "communicator", "group_size")
"""What all members of an instance have in common."""
_GUESSED = "inferred "
"""How the name of a communicator begins that the trace does not name."""


def join_ranks(run: Run, parts: Path, draft: Path, texts: Callable[[Any], Any]) -> Joined:
    """Fill the operations of each rank from its own log; writes the `collectives` of ranks that change."""
    how = found_by(run.path)
    joined = Joined()
    for record in run.ranks:
        before = _whole(part_file(parts, record.rank))
        match, table, named = _join_rank(run, record, before, texts, how.get(record.rank, "none"), joined.texts)
        joined.matches.append(match)
        joined.named += named
        if table is not before:
            write_quickly(table, draft / collectives_file(record.rank))
    return joined


def finish(joined: Joined, draft: Path, matching: Matching) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """Name the communicators as in the logs, and give operations without a call what their instance has on other ranks.

    The `collectives` in the folder `draft` are changed. Returns the communicators and what a reader must know.
    """
    guessed = {g.number for g in matching.groups if g.name.startswith(_GUESSED)}
    names, shared = _Names(), _Shared(len(matching.ordinal))
    for rank, own in _by_rank(matching):
        table = read_parquet(draft / collectives_file(rank), (*_SHARED, "op"))
        shared.add(rank, own, table)
        if guessed:
            names.add(own, table, guessed)
    named = names.over(matching.groups, {name_id(t): t for t in joined.texts})
    place = {m.rank: at for at, m in enumerate(joined.matches)}
    for rank, own in _by_rank(matching) if shared.lacking else ():
        if rank in shared.lacking:
            file = draft / collectives_file(rank)
            table, given = shared.filled(own, _whole(file))
            if given:
                write_quickly(table, file)
                joined.matches[place[rank]] = joined.matches[place[rank]]._replace(from_others=given)
    return named, _notes(joined.matches)


def _whole(file: Path) -> Any:
    return read_parquet(file, TABLES["collectives"].column_names, ["evidence"])


def _join_rank(
    run: Run, record: Rank, table: Any, texts: Callable[[Any], Any], how: str, new: set[str]
) -> tuple[LogMatch, Any, int]:
    """How the log of one rank fits, its table filled, and of how many operations the log names the communicator."""
    rows, issued = _in_order(table)
    calls = logged_calls(run.path, record.rank)
    if calls is None or not calls.num_rows:
        return LogMatch(record.rank, "none", 0, len(rows), reason="it has no log"), table, 0
    match = LogMatch(record.rank, how, calls.num_rows, len(rows))
    if not len(rows):
        return match._replace(reason="its trace has no NCCL operation"), table, 0
    ids, of = coded(table.column("op"))
    words = [*texts(ids).to_pylist(), None]
    ops = [words[n] for n in of.tolist()]
    # calls, of which several may have one kernel, or kernels
    by_call = bool(2 * (~is_one_of(table.column("evidence"), ("kernel",)))[rows].sum() > len(rows))
    units = units_of(calls, by_call=by_call)
    found = _matched(record, table, rows, issued, ops, units, by_call=by_call)
    others = units_of(calls, by_call=not by_call)
    if len(others.op) != len(units.op):  # calls that were launched together may have a kernel each, or one
        again = _matched(record, table, rows, issued, ops, others, by_call=not by_call)
        if (again.call >= 0).sum() > (found.call >= 0).sum():
            units, found = others, again
    matched = int((found.call >= 0).sum())
    match = match._replace(covered=found.covered, matched=matched, reason=_doubt(found, how))
    if match.reason is not None:
        return match, table, 0
    at = np.where(found.sure, found.call, -1)
    mine, size = integers(table.column("bytes"), -1)[rows], units.numbers["bytes"][np.maximum(found.call, 0)]
    both = (found.call >= 0) & (mine >= 0) & (size >= 0)
    disagreeing = int((both & (mine != size)).sum())
    if both.sum() and disagreeing > (1 - LEAST_SHARE) * both.sum():
        reason = f"{disagreeing} of {int(both.sum())} sizes in it differ from those in the trace"
        return match._replace(disagreeing=disagreeing, reason=reason), table, 0
    filled, changed = _filled(table, rows, at, units, new)
    named = int(np.count_nonzero(units.communicator_id[at[at >= 0]]))
    return match._replace(filled=changed, disagreeing=disagreeing), filled, named


def _in_order(table: Any) -> tuple[Int64, Int64]:
    """The rows of NCCL's operations in the order of issue, and when each was issued, as precisely as possible.

    A stream runs its work in order, so an operation without a recorded call was issued after the previous one on its
    stream.
    """
    rows = np.flatnonzero(pc.not_equal(table.column("evidence").cast("string"), "mpi").fill_null(True).to_numpy())
    start = pc.coalesce(table.column("start"), table.column("api_start")).to_numpy()[rows]
    called = table.column("api_start").is_valid().to_numpy()[rows]
    issued = np.where(called, integers(table.column("api_start"))[rows], start)
    if called.any() and not called.all():
        lane = integers(table.column("stream"), -1)[rows]
        order = np.lexsort((start, lane))
        first = np.concatenate(([True], lane[order][1:] != lane[order][:-1]))
        place = np.arange(len(order))
        last = np.maximum.accumulate(np.where(called[order], place, -1))
        begin = np.maximum.accumulate(np.where(first, place, 0))
        known = ~called[order] & (last >= begin)
        issued[order[known]] = issued[order[last[known]]]
    by_issue = np.lexsort((start, issued))
    return rows[by_issue], issued[by_issue]


def _matched(
    record: Rank, table: Any, rows: Int64, issued: Int64, ops: list[str | None], units: Units, *, by_call: bool
) -> CallMatch:
    numbers: dict[str | None, int] = {op: n for n, op in enumerate(sorted({*units.ops, *(o for o in ops if o)}), 1)}
    alike = _exchanges(numbers) if not by_call else {}

    def number(op: str | None) -> int:
        return alike.get(op, numbers.get(op, 0))

    def column(name: str) -> Int64:
        return integers(table.column(name), -1)[rows]

    start, end = column("start"), column("end")
    base = record.time_base_utc_ns
    streams, lane = np.unique(column("stream"), return_inverse=True)
    trace = TracedOps(
        op=np.array([number(ops[r]) for r in rows.tolist()], np.int64),
        duration_ns=np.where((start >= 0) & (end > start), end - start, 0),
        lane=np.where(streams[lane.reshape(-1)] >= 0, lane.reshape(-1), -1).astype(np.int64),
        bytes=column("bytes"),
        utc_ns=None if base is None else issued + base,
    )
    log = LoggedCalls(
        op=np.array([number(o) for o in units.ops], np.int64)[units.op],
        kind=units.kind,
        group=units.group,
        bytes=units.numbers["bytes"],
        utc_ns=units.time_ns,
    )
    return match_calls(trace, log)


def _exchanges(numbers: Mapping[str | None, int]) -> dict[str | None, int]:
    """Sends, receives and operations composed of them have kernels with one name."""
    same = [o for o in (*POINT_TO_POINT, "AllToAll", "Gather", "Scatter") if o in numbers]
    return dict.fromkeys(same, min(numbers[o] for o in same)) if same else {}


def _doubt(found: CallMatch, how: str) -> str | None:
    if found.reason is not None:
        return found.reason
    if found.share < LEAST_SHARE:
        return f"only {100 * found.share:.0f} % of the operations within it have a call in it"
    if how == "rank" and not found.timed:
        return (
            "it is from another process than the report, and its lines have no times to show whether it is from"
            " this run"
        )
    if found.chance > _PURE_CHANCE and not found.timed and how != "process":
        return "its operations are all alike, so any log would fit"
    return None


def _filled(table: Any, rows: Int64, at: Int64, units: Units, new: set[str]) -> tuple[Any, int]:
    """The table with nulls filled from its calls, and how many rows were filled."""
    count = table.num_rows
    call = np.full(count, -1, np.int64)
    call[rows] = at
    here = np.maximum(call, 0)
    changed = np.zeros(count, np.bool_)
    fills: dict[str, tuple[Int64, Flags]] = {
        name: (units.numbers[name][here], (call >= 0) & (units.numbers[name][here] >= 0)) for name in NUMBERS
    }
    fills["communicator"] = units.communicator_id[here], (call >= 0) & (units.communicator_id[here] != 0)
    fills["datatype"] = units.datatype_id[here], (call >= 0) & (units.datatype_id[here] != 0)
    for name, (values, known) in fills.items():
        empty = table.column(name).is_null().to_numpy()
        if name in ("group_rank", "group_size"):  # they belong to the communicator given there
            empty &= table.column("communicator").is_null().to_numpy() | (call >= 0)
        table = _put(table, name, values, empty & known)
        changed |= empty & known
    one_sided = (call >= 0) & (units.single_id[here] != 0) & (integers(table.column("op")) == name_id("SendRecv"))
    table = _put(table, "op", units.single_id[here], one_sided)
    changed |= one_sided
    new.update(units.texts)
    return _marked(table, changed), int(changed.sum())


def _put(table: Any, name: str, values: Int64, where: Flags) -> Any:
    """The table with other values of a column in some rows."""
    if not where.any():
        return table
    column = table.column(name)
    mixed = np.where(where, values, integers(column.cast("int64")))
    array = pa.array(mixed, pa.int64(), mask=column.is_null().to_numpy() & ~where).cast(column.type)
    return table.set_column(table.column_names.index(name), name, array)


def _marked(table: Any, changed: Flags) -> Any:
    """The table, with rows marked once if a log added values to them."""
    words = table.column("evidence").cast("string").to_pylist()
    marked = [
        f"{w}+log" if c and w and not w.endswith("+log") else w for w, c in zip(words, changed.tolist(), strict=True)
    ]
    column = pa.array(marked, pa.string()).dictionary_encode().cast(table.schema.field("evidence").type)
    return table.set_column(table.column_names.index("evidence"), "evidence", column)


class _Members(NamedTuple):
    """Members of one rank, by instance: arrays of equal length."""

    instance: Int64
    row: Int64
    communicator: Int64


def _by_rank(matching: Matching) -> Iterator[tuple[int, _Members]]:
    for table in matching.tables():
        if table.num_rows:
            yield (
                table.column("rank")[0].as_py(),
                _Members(*(table.column(name).to_numpy() for name in _Members._fields)),
            )


class _Names:
    """The names that logs have for inferred communicators: a vote of each member, and the sizes of those named."""

    def __init__(self) -> None:
        self._votes: dict[int, Counter[int]] = {}
        self._sizes: dict[int, int] = {}

    def add(self, members: _Members, table: Any, guessed: Collection[int]) -> None:
        """Count the members of a rank; communicators of those of a `guessed` one are from the log."""
        communicator = integers(table.column("communicator"))
        named = communicator[members.row]
        voting = np.isin(members.communicator, list(guessed)) & (named != 0)
        (groups, names), at = distinct_rows(members.communicator[voting], named[voting])
        for group, name, votes in zip(groups.tolist(), names.tolist(), np.bincount(at).tolist(), strict=True):
            self._votes.setdefault(group, Counter())[name] += votes
        size = integers(table.column("group_size"))
        for name in set(names.tolist()):
            self._sizes[name] = max(self._sizes.get(name, 0), int(size[communicator == name].max()))

    def over(self, groups: Sequence[Group], known: Mapping[int, str]) -> tuple[Group, ...]:
        """The communicators, those that were inferred named as the logs name them, where the logs agree."""
        renamed: list[Group] = []
        taken = {g.name for g in groups}
        for group in groups:
            votes = self._votes.get(group.number, Counter())
            best = votes.most_common(1)
            name = known.get(best[0][0]) if best and best[0][1] >= _SAME_GROUP * votes.total() else None
            if name is None or name in taken:
                renamed.append(group)
                continue
            taken.add(name)
            renamed.append(replace(group, name=name, size=max(group.size, self._sizes[best[0][0]]), found_by="logs"))
        return tuple(renamed)


class _Shared:
    """What the members of each instance have that know its size, for ranks that lack it."""

    def __init__(self, instances: int) -> None:
        self._low, self._high = np.full(instances, np.iinfo(np.int64).max), np.full(instances, -1)
        self._values = {name: np.full(instances, _UNKNOWN) for name in _SHARED}
        self.lacking: set[int] = set()

    def add(self, rank: int, members: _Members, table: Any) -> None:
        """Take what the members of a rank know; of several ranks the last one counts."""
        size = integers(table.column("bytes"), _UNKNOWN)[members.row]
        known = size != _UNKNOWN
        at = members.instance[known]
        np.minimum.at(self._low, at, size[known])
        np.maximum.at(self._high, at, size[known])
        for name, values in self._values.items():
            values[at] = integers(table.column(name).cast("int64"), _UNKNOWN)[members.row[known]]
        if not known.all():
            self.lacking.add(rank)

    def filled(self, members: _Members, table: Any) -> tuple[Any, int]:
        """A rank's table with what rows without a size lack, if all other members have one size; and how many rows."""
        apart = [name_id(o) for o in (*POINT_TO_POINT, "AllToAll", "Gather", "Scatter")]
        lacking = table.column("bytes").is_null().to_numpy() & ~np.isin(integers(table.column("op")), apart)
        wanted = lacking[members.row] & (self._low[members.instance] == self._high[members.instance])
        rows, instance = members.row[wanted], members.instance[wanted]
        if not len(rows):
            return table, 0
        given = np.zeros(table.num_rows, np.bool_)
        given[rows] = True
        for name, values in self._values.items():
            own = np.full(table.num_rows, _UNKNOWN)
            own[rows] = values[instance]
            table = _put(table, name, own, table.column(name).is_null().to_numpy() & (own != _UNKNOWN))
        return _marked(table, given), len(rows)


def _notes(matches: Sequence[LogMatch]) -> tuple[str, ...]:
    """The match rate of all ranks together, and of those that do not fit."""
    good = [m for m in matches if m.reason is None]
    notes = []
    if good:
        matched, covered = sum(m.matched for m in good), sum(m.covered for m in good)
        outside = sum(m.operations - m.covered for m in good)
        notes.append(
            f"NCCL's logs: {matched:,} of {covered:,} operations within them have their call "
            f"({100 * matched / max(covered, 1):.1f} %) on {len(good)} of {len(matches)} ranks; "
            f"{sum(m.filled for m in good):,} were completed from it"
            + (f"; {outside:,} operations are outside the logs" if outside else "")
        )
        numbered = [m.rank for m in good if m.found_by == "rank"]
        if numbered:
            notes.append(
                f"the logs of ranks {number_ranges(numbered)} were assigned by rank number and the times of the lines"
            )
    disagreeing = sum(m.disagreeing for m in matches)
    if disagreeing:
        notes.append(
            f"{disagreeing:,} operations have another size in NCCL's logs than in the trace; the trace's size is kept"
        )
    given = sum(m.from_others for m in matches)
    if given:
        notes.append(f"{given:,} operations without a call got their size from the same operation on other ranks")
    reasons: dict[str, list[int]] = {}
    for m in matches:
        if m.reason is not None:
            reasons.setdefault(m.reason, []).append(m.rank)
    for reason, ranks in sorted(reasons.items()):
        notes.append(f"NCCL's logs were not joined with {ranks_named(ranks)}: {reason}")
    return tuple(notes)
