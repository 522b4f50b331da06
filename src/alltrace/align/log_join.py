"""NCCL's logs joined with the operations of a trace: what a log says about an operation that the trace does not.

Each rank's operations are aligned with its calls (`alltrace.align.log_call_matching`). A call fills in what is null: size, count,
type, communicator, peer, root. Values from the trace stay. Operations without a call get their size from the
same instance on other ranks. A log that does not fit fills in nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from alltrace.align.log_call_matching import CallMatch, LoggedCalls, TracedOps, match_calls
from alltrace.align.logged_units import Units, units_of
from alltrace.align.nccl_names import POINT_TO_POINT
from alltrace.align.schema import Joined
from alltrace.run.manifest import LogMatch
from alltrace.run.run_logs import found_by, logged_calls
from alltrace.trace.arrays import coded, integers
from alltrace.trace.distinct import rows_by
from alltrace.trace.names import name_id
from alltrace.trace.number_text import number_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.align.schema import Group
    from alltrace.run.manifest import Rank
    from alltrace.run.store import Run
    from alltrace.trace.arrays import Int64

LEAST_SHARE = 0.8
"""A log of which less fits is of another run, or of another part of it."""

_PURE_CHANCE = 0.7
_SAME_GROUP = 0.9
_UNKNOWN = -(1 << 63)
_NUMBERS = ("bytes", "count", "root", "peer", "group_rank", "group_size")
_TEXTS = ("communicator", "datatype")


def join_ranks(run: Run, tables: Mapping[int, Any], texts: Callable[[Any], Any]) -> Joined:
    """Fill the operations of each rank from its own log.

    Args:
        run: The run; its folder has the logs.
        tables: Each rank's `collectives`.
        texts: The strings of an Arrow array of name ids.
    """
    how = found_by(run.path)
    joined = Joined(dict(tables))
    for record in run.ranks:
        before = joined.tables[record.rank]
        found = _join_rank(run, record, before, texts, how.get(record.rank, "none"), joined.texts)
        match, joined.tables[record.rank], joined.told[record.rank] = found
        joined.matches.append(match)
        if found[1] is not before:
            joined.changed.add(record.rank)
    return joined


def finish(joined: Joined, members: Any, groups: Sequence[Group]) -> None:
    """Name the communicators, and give operations without a call what their instance has on other ranks.

    Args:
        joined: What came of the logs; it gets `groups` and `notes`.
        members: The matched instances, a table of `MEMBERS`.
        groups: The communicators that were found.
    """
    joined.groups = tuple(groups)
    _name_groups(joined, members)
    _from_others(joined, members)
    joined.notes = _notes(joined.matches)


def _join_rank(
    run: Run, record: Rank, table: Any, texts: Callable[[Any], Any], how: str, new: set[str]
) -> tuple[LogMatch, Any, Int64]:
    """How the log of one rank fits, its table filled, and the name id of each row's communicator by the log, 0 without."""
    nothing = np.zeros(table.num_rows, np.int64)
    rows, issued = _in_order(table)
    calls = logged_calls(run.path, record.rank)
    if calls is None or not calls.num_rows:
        return LogMatch(record.rank, "none", 0, len(rows), reason="it has no log"), table, nothing
    match = LogMatch(record.rank, how, calls.num_rows, len(rows))
    if not len(rows):
        return match._replace(reason="its trace has no NCCL operation"), table, nothing
    ops = _decoded(table.column("op"), texts)
    by_call = _made_from_calls(table, rows)
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
        return match, table, nothing
    at = np.where(found.sure, found.call, -1)
    mine, size = integers(table.column("bytes"), -1)[rows], units.numbers["bytes"][np.maximum(found.call, 0)]
    both = (found.call >= 0) & (mine >= 0) & (size >= 0)
    disagreeing = int((both & (mine != size)).sum())
    if both.sum() and disagreeing > (1 - LEAST_SHARE) * both.sum():
        reason = f"{disagreeing} of {int(both.sum())} sizes in it differ from those in the trace"
        return match._replace(disagreeing=disagreeing, reason=reason), table, nothing
    filled, changed = _filled(table, rows, at, units, new)
    shared = np.where(at >= 0, units.communicator_id[np.maximum(at, 0)], 0)
    communicators = nothing.copy()
    communicators[rows] = shared
    return match._replace(filled=changed, disagreeing=disagreeing), filled, communicators


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


def _made_from_calls(table: Any, rows: Int64) -> bool:
    """Whether most rows are calls, of which several may have one kernel, and not kernels."""
    words = table.column("evidence").cast("string").to_pylist()
    calls = sum(1 for r in rows.tolist() if words[r] != "kernel")
    return calls * 2 > len(rows)


def _decoded(column: Any, texts: Callable[[Any], Any]) -> list[str | None]:
    ids, at = coded(column)
    words = [*texts(ids).to_pylist(), None]
    return [words[n] for n in at.tolist()]


def _matched(
    record: Rank, table: Any, rows: Int64, issued: Int64, ops: list[str | None], units: Units, *, by_call: bool
) -> CallMatch:
    numbers = {op: n for n, op in enumerate(sorted({*units.ops, *(o for o in ops if o)}))}
    alike = _exchanges(numbers) if not by_call else {}

    def number(op: str | None) -> int:
        return alike.get(op or "", numbers.get(op or "", -2))

    def column(name: str) -> Int64:
        return integers(table.column(name), -1)[rows]

    start, end = column("start"), column("end")
    base = record.time_base_utc_ns
    streams, lane = np.unique(column("stream"), return_inverse=True)
    trace = TracedOps(
        op=np.array([number(ops[r]) for r in rows.tolist()], np.int64) + 2,
        duration_ns=np.where((start >= 0) & (end > start), end - start, 0),
        lane=np.where(streams[lane.reshape(-1)] >= 0, lane.reshape(-1), -1).astype(np.int64),
        bytes=column("bytes"),
        utc_ns=None if base is None else issued + base,
    )
    log = LoggedCalls(
        op=np.array([number(o) for o in units.ops], np.int64)[units.op] + 2,
        kind=units.kind,
        group=units.group,
        bytes=units.numbers["bytes"],
        utc_ns=units.time_ns,
    )
    return match_calls(trace, log)


def _exchanges(numbers: Mapping[str, int]) -> dict[str, int]:
    """Sends, receives and operations composed of them have kernels with one name."""
    same = [o for o in (*POINT_TO_POINT, "AllToAll", "Gather", "Scatter") if o in numbers]
    return dict.fromkeys(same, min(numbers[o] for o in same)) if same else {}


def _doubt(found: CallMatch, how: str) -> str | None:
    """Why a match is not used."""
    if found.reason is not None:
        return found.reason
    if found.share < LEAST_SHARE:
        return f"only {found.share:.0%} of the operations within it have a call in it"
    if how == "rank" and not found.timed:
        return "it is from another process than the report, and its lines have no times to show whether it is from this run"
    if found.chance > _PURE_CHANCE and not found.timed and how != "process":
        return "its operations are all alike, so any log would fit"
    return None


def _filled(table: Any, rows: Int64, at: Int64, units: Units, new: set[str]) -> tuple[Any, int]:
    """The table with nulls filled from its calls, and how many rows were filled."""
    import pyarrow as pa

    count = table.num_rows
    call = np.full(count, -1, np.int64)
    call[rows] = at
    here = np.maximum(call, 0)
    changed = np.zeros(count, np.bool_)
    fills: dict[str, tuple[Int64, NDArray[np.bool_]]] = {
        name: (units.numbers[name][here], (call >= 0) & (units.numbers[name][here] >= 0)) for name in _NUMBERS
    }
    fills["communicator"] = units.communicator_id[here], (call >= 0) & (units.communicator_id[here] != 0)
    fills["datatype"] = units.datatype_id[here], (call >= 0) & (units.datatype_id[here] != 0)
    for name, (values, known) in fills.items():
        column = table.column(name)
        kind = column.type
        empty = column.is_null().to_numpy()
        if name in ("group_rank", "group_size"):  # they belong to the communicator given there
            empty &= table.column("communicator").is_null().to_numpy() | (call >= 0)
        put = empty & known
        if not put.any():
            continue
        mixed = np.where(put, values, integers(column))
        table = table.set_column(table.column_names.index(name), name, pa.array(mixed, pa.int64(), mask=empty & ~put).cast(kind))
        changed |= put
    single = (call >= 0) & (units.single_id[here] != 0)
    exchange = table.column("op").to_numpy() == name_id("SendRecv")
    told = single & exchange
    if told.any():
        ops = np.where(told, units.single_id[here], integers(table.column("op")))
        valid = table.column("op").is_valid().to_numpy() | told
        table = table.set_column(table.column_names.index("op"), "op", pa.array(ops, pa.int64(), mask=~valid))
        changed |= told
    new.update(units.texts)
    return _marked(table, changed), int(changed.sum())


def _marked(table: Any, changed: NDArray[np.bool_]) -> Any:
    """The table, with rows marked once if a log added values to them."""
    import pyarrow as pa

    words = table.column("evidence").cast("string").to_pylist()
    marked = [f"{w}+log" if c and w and not w.endswith("+log") else w for w, c in zip(words, changed.tolist(), strict=True)]
    column = pa.array(marked, pa.string()).dictionary_encode().cast(table.schema.field("evidence").type)
    return table.set_column(table.column_names.index("evidence"), "evidence", column)


def _name_groups(joined: Joined, members: Any) -> None:
    """Name communicators that were inferred as the logs name them, where the logs agree."""
    ranks, rows, groups = (members.column(c).to_numpy() for c in ("rank", "row", "communicator"))
    votes: dict[int, Counter[int]] = {}
    of_rank = rows_by(ranks)
    for rank, its in joined.told.items():
        mine = of_rank.get(rank, np.empty(0, np.intp))
        named = its[rows[mine]]
        pairs, many = np.unique(np.stack((groups[mine][named != 0], named[named != 0])), axis=1, return_counts=True)
        for (group, name), n in zip(pairs.T.tolist(), many.tolist(), strict=True):
            votes.setdefault(group, Counter())[name] += n
    known = {name_id(t): t for t in joined.texts}
    renamed: list[Group] = []
    taken = {g.name for g in joined.groups}
    for group in joined.groups:
        best = votes.get(group.number, Counter()).most_common(1)
        name = known.get(best[0][0]) if best and best[0][1] >= _SAME_GROUP * votes[group.number].total() else None
        if name is None or name in taken or not group.name.startswith("inferred "):
            renamed.append(group)
            continue
        taken.add(name)
        sizes = [_size_of(joined.tables[r], best[0][0]) for r in group.ranks]
        renamed.append(replace(group, name=name, size=max(group.size, *sizes), found_by="logs"))
    joined.groups = tuple(renamed)


def _size_of(table: Any, communicator: int) -> int:
    sizes = table.filter(pc.equal(table.column("communicator"), communicator)).column("group_size")
    return pc.max(sizes).as_py() or 0


def _from_others(joined: Joined, members: Any) -> None:
    """Give operations without a size that of their instance, if all other members have the same size."""
    import pyarrow as pa

    if not members.num_rows:
        return
    ranks, rows, instance = (members.column(c).to_numpy() for c in ("rank", "row", "instance"))
    names = ("bytes", "count", "datatype", "communicator", "group_size")
    values = {n: np.full(len(ranks), -1, np.int64) for n in names}
    paired = np.zeros(len(ranks), np.bool_)
    apart = [name_id(o) for o in (*POINT_TO_POINT, "AllToAll", "Gather", "Scatter")]
    for rank, mine in rows_by(ranks).items():
        table = joined.tables[rank].take(pa.array(rows[mine]))
        for name in names:
            values[name][mine] = integers(table.column(name).cast("int64"), _UNKNOWN)
        paired[mine] = np.isin(integers(table.column("op")), apart)
    count = int(instance.max()) + 1
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    known = values["bytes"] != _UNKNOWN
    np.minimum.at(low, instance[known], values["bytes"][known])
    np.maximum.at(high, instance[known], values["bytes"][known])
    source = np.full(count, -1, np.int64)
    source[instance[known]] = np.flatnonzero(known)
    lacking = ~known & ~paired & (low[instance] == high[instance]) & (source[instance] >= 0)
    gaps = np.flatnonzero(lacking)
    of_rank = rows_by(ranks[gaps])
    for at, match in enumerate(joined.matches):
        if match.rank not in of_rank:
            continue
        mine = gaps[of_rank[match.rank]]
        table = joined.tables[match.rank]
        given = np.zeros(table.num_rows, np.bool_)
        given[rows[mine]] = True
        for name in names:
            column = table.column(name)
            new = integers(column.cast("int64"), _UNKNOWN).copy()
            theirs = values[name][source[instance[mine]]]
            new[rows[mine]] = np.where(new[rows[mine]] == _UNKNOWN, theirs, new[rows[mine]])
            array = pa.array(new, pa.int64(), mask=new == _UNKNOWN).cast(column.type)
            table = table.set_column(table.column_names.index(name), name, array)
        joined.tables[match.rank] = _marked(table, given)
        joined.changed.add(match.rank)
        joined.matches[at] = match._replace(from_others=len(mine))


def _notes(matches: Sequence[LogMatch]) -> tuple[str, ...]:
    """The match rate of all ranks together, and of those that do not fit."""
    good = [m for m in matches if m.reason is None]
    notes = []
    if good:
        matched, covered = sum(m.matched for m in good), sum(m.covered for m in good)
        outside = sum(m.operations - m.covered for m in good)
        notes.append(
            f"NCCL's logs: {matched:,} of {covered:,} operations within them have their call ({matched / max(covered, 1):.1%}) "
            f"on {len(good)} of {len(matches)} ranks; {sum(m.filled for m in good):,} were completed from it"
            + (f"; {outside:,} operations are outside the logs" if outside else "")
        )
        numbered = [m.rank for m in good if m.found_by == "rank"]
        if numbered:
            notes.append(f"the logs of ranks {number_ranges(numbered)} were assigned by rank number and the times of the lines")
    disagreeing = sum(m.disagreeing for m in matches)
    if disagreeing:
        notes.append(f"{disagreeing:,} operations have another size in NCCL's logs than in the trace; the trace's size is kept")
    given = sum(m.from_others for m in matches)
    if given:
        notes.append(f"{given:,} operations without a call got their size from the same operation on other ranks")
    reasons: dict[str, list[int]] = {}
    for m in matches:
        if m.reason is not None:
            reasons.setdefault(m.reason, []).append(m.rank)
    for reason, ranks in sorted(reasons.items()):
        which = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {number_ranges(ranks)}"
        notes.append(f"NCCL's logs were not joined with {which}: {reason}")
    return tuple(notes)
