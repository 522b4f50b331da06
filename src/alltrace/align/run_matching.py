"""Matches the operations of a run, fills them from NCCL's logs, and finds its clocks and doubted ranks.

Members of a communicator leave its operations together, in one order. So the ends of a rank, less the median end of all
members, are constant but for a drift. Where all ranks of a host step, the host's clock was set, which the fit of the
clocks considers (`alltrace.align.clock_jumps`); a single file that steps was recorded wrongly, or its times have
another unit. Such a rank is neither matched nor compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from alltrace.align.call_order import recorded_apart
from alltrace.align.clock_jumps import step_of
from alltrace.align.clock_sharing import PlacedRank, place_ranks
from alltrace.align.clocks import solve
from alltrace.align.log_join import finish, join_ranks
from alltrace.align.matching import Matching, match
from alltrace.align.rank_parts import part_file
from alltrace.align.related_clocks import placing_of
from alltrace.align.schema import NEARLY_ALL, NOTHING_TO_ALIGN, Alignment, Joined
from alltrace.align.timelines import MATCHED_COLUMNS, MOST_IN_MEMORY, Timelines
from alltrace.run.manifest import NAMES, RankRecord
from alltrace.run.names import Names
from alltrace.run.overlay import MEMBERS, collectives_file, signature
from alltrace.run.parquet import quick_codec, read_parquet, write_quickly
from alltrace.run.store import Run
from alltrace.trace.arrays import Floats, Int64
from alltrace.trace.names import intern

_NO_MEMBERS = (
    "no collective was found on more than one rank, so clocks are aligned by UTC stamps, which are off by milliseconds"
)
_MEMBERS = "members.parquet"
_LEAST_STEP_NS = 1_000_000
_LEAST_RATE = 0.01
"""Clocks do not differ by more than this; times do if they have another unit."""
_BINS = 8
_FEWEST = 32


def match_run(
    run: Run,
    parts: Path,
    draft: Path,
    names: Names,
    *,
    logged: bool,
    row_group_rows: int,
    progress: Callable[[int], None] | None = None,
) -> Alignment:
    """Match a run's operations and find its clocks; writes `members` and what logs change of `collectives` and `names`.

    `parts` is the folder with the operations of each rank, of which `draft` has a copy, with `names`. If NCCL's logs,
    where there are some, have the communicators of nearly all operations, these are matched as the logs filled them.
    This counts if nearly all find a partner, or nearly as many as by the trace alone.
    """
    joined = join_ranks(run, parts, draft, names.texts) if logged else Joined()
    if joined.texts:
        more = intern(pa.array(sorted(joined.texts)))[1].select(["id", "value"])
        known = read_parquet(draft / NAMES, ["id", "value"])
        write_quickly(distinct_names(pa.concat_tables([known, more])), draft / NAMES)
        names = Names(lambda: [*run.name_files(), draft / NAMES])
    ranks = place_ranks(run.manifest)
    placing = placing_of(ranks)
    doubted = _recorded_doubts(run.ranks)

    def matched(file_of: Callable[[int], Path]) -> Matching:
        def table_of(rank: int) -> pa.Table:
            return read_parquet(file_of(rank), MATCHED_COLUMNS, ["evidence"])

        timelines = Timelines(
            [r.rank for r in run.ranks if r.rank not in doubted], table_of, names.texts, MOST_IN_MEMORY
        )
        return match(timelines, placing, ranks)

    def matched_best() -> Matching:
        filled = matched(lambda rank: draft / collectives_file(rank)) if joined.complete else None
        if filled is None or filled.members < NEARLY_ALL * (filled.members + sum(filled.unmatched.values())):
            own = matched(lambda rank: part_file(parts, rank))
            if filled is None or filled.members < NEARLY_ALL * own.members:
                return own
        groups = (replace(g, found_by="logs") if g.name in joined.texts else g for g in filled.groups)
        return replace(filled, groups=tuple(groups))

    matching = matched_best()
    if (more := _doubted_ranks(matching, ranks, doubted)) != doubted:
        doubted = more
        matching = matched_best()
    solution = matching.solution or solve(matching.evidence(), ranks)
    with pq.ParquetWriter(draft / _MEMBERS, MEMBERS.arrow_schema(), compression=quick_codec()) as writer:
        _write(writer, matching.tables(), row_group_rows)
    if progress is not None:
        progress(len(run.ranks))
    if not matching.members:
        reason = _NO_MEMBERS if len(ranks) > 1 else NOTHING_TO_ALIGN
        solution = replace(solution, clocks=(), stamp_errors_ns={}, notes=(reason,))
    kinds = matching.timelines.kinds
    groups, notes = finish(joined, draft, matching) if logged else (matching.groups, ())
    apart = recorded_apart(matching.timelines, matching.clocks, {p.rank: p.host for p in ranks})
    left_out = (f"rank {r}: {why}, so it is compared with no other rank" for r, why in sorted(doubted.items()))
    return Alignment(
        signature=signature(run.manifest),
        groups=groups,
        clocks=solution.clocks,
        stamp_errors_ns=solution.stamp_errors_ns,
        unmatched=matching.unmatched,
        notes=(*matching.notes, *apart, *left_out, *notes, *solution.notes),
        components=solution.components,
        errors_ns=solution.errors_ns,
        shared=solution.shared,
        rooted=bool((kinds.directed | kinds.early | (kinds.tag != -1)).any()),
        rows=matching.timelines.rows,
        log_matches=tuple(joined.matches),
        matching_score=matching.score,
        matching_reason=matching.reason,
        doubted=doubted,
    )


def _recorded_doubts(ranks: Sequence[RankRecord]) -> dict[int, str]:
    """The ranks that their reports show to be in doubt; what most reports have is no reason to leave one out."""
    doubts = {r.rank: r.doubt for r in ranks if r.doubt is not None}
    return doubts if len(doubts) <= len(ranks) - len(doubts) else {}


def _write(writer: pq.ParquetWriter, tables: Iterable[pa.Table], row_group_rows: int) -> None:
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(t.num_rows for t in waiting) >= row_group_rows:
            whole = pa.concat_tables(waiting)
            full = whole.num_rows // row_group_rows * row_group_rows
            writer.write_table(whole.slice(0, full), row_group_rows)
            waiting = [whole.slice(full)]
    rest = pa.concat_tables(waiting) if waiting else MEMBERS.arrow_schema().empty_table()
    if rest.num_rows:
        writer.write_table(rest, row_group_rows)


def distinct_names(names: pa.Table) -> pa.Table:
    """The rows of a table of names, each id once, by id."""
    names = names.filter(pc.is_valid(names.column("value")))
    return names.group_by("id").aggregate([("value", "min")]).rename_columns(["id", "value"]).sort_by("id")


def _doubted_ranks(matching: Matching, ranks: Sequence[PlacedRank], known: Mapping[int, str]) -> dict[int, str]:
    """The reason for each rank whose times are in doubt, such as "its clock steps by 5 ms"; if most are, those known.

    Ranks whose times are `known` to be in doubt are in no operation.
    """
    found: dict[int, str] = {}
    communicators = list(_communicators(matching))
    while 2 * (len(known) + len(found)) < len(ranks):
        worst = _most_off(
            [
                (np.delete(who, drop := np.flatnonzero(np.isin(who, list(found)))), np.delete(ends, drop, axis=0))
                for who, ends in communicators
            ]
        )
        if worst is None:
            of_host: dict[str, set[int]] = {}
            for placed in ranks:
                of_host.setdefault(placed.host, set()).add(placed.rank)
            stepped = set().union(*(its for its in of_host.values() if len(its) > 1 and its <= found.keys()))
            return {**known, **{rank: why for rank, why in found.items() if rank not in stepped}}
        found[worst[0]] = worst[1]
    return dict(known)


def _communicators(matching: Matching) -> Iterator[tuple[Int64, Floats]]:
    """Of each named communicator the ranks with as many operations as most, and their ends (ranks, operations).

    The times of a rank are from its middle one on, because reports have zeros of their own. One of which the operations
    are matched a number of places apart is left out: its reports do not begin at the same operation.
    """
    timelines = matching.timelines
    kinds = timelines.kinds
    for group in range(timelines.first_inferred):
        its = (kinds.communicator == group) & (kinds.paired == 0) & kinds.synchronising & ~kinds.early
        members = np.unique(kinds.member[its]).tolist()
        rows = [np.flatnonzero(its[timelines.of(m).kind]) for m in members]
        if len(members) < 2:
            continue
        counts = np.array([len(r) for r in rows])
        usual = int(np.bincount(counts).argmax())
        chosen = np.flatnonzero(counts == usual).tolist()
        if usual < _FEWEST or len(chosen) < 2:
            continue
        ends = np.stack([timelines.of(members[n]).end[rows[n]] for n in chosen]).astype(np.float64)
        instance = np.stack([matching.instance[members[n]][rows[n]] for n in chosen])
        matched = instance >= 0
        first = np.full(int(instance.max(initial=0)) + 1, -1)
        place = np.broadcast_to(np.arange(usual), instance.shape)
        first[instance[matched]] = place[matched]
        apart = np.abs(first[instance[matched]] - place[matched])
        if not len(apart) or 2 * np.bincount(apart)[1:].max(initial=0) <= len(apart):
            ends -= np.median(ends, axis=1, keepdims=True)
            yield np.array([timelines.rank_of(members[n]) for n in chosen], np.int64), ends


def _most_off(communicators: Sequence[tuple[Int64, Floats]]) -> tuple[int, str] | None:
    """The rank that is off in most of its communicators, and why; None if no rank is, or not one alone."""
    off: dict[int, list[tuple[float, str]]] = {}
    every: dict[int, int] = {}
    for who, ends in communicators:
        if len(who) < 2:
            continue
        typical = np.median(ends, axis=0)
        for number, own in zip([int(n) for n in who], ends, strict=True):
            every[number] = every.get(number, 0) + 1
            others = typical if len(who) > 2 else ends.sum(axis=0) - own
            reason = _reason(others, own - others)
            if reason is not None:
                off.setdefault(number, []).append(reason)
    if not off:
        return None
    shares = {rank: len(its) / every[rank] for rank, its in off.items()}
    (apart, why), worst = max((max(off[rank]), rank) for rank in off if shares[rank] == max(shares.values()))
    if sum(2 * max(off[rank])[0] > apart for rank in off if shares[rank] == shares[worst]) > 1:
        return None  # of two it is not known which
    return worst, why


def _reason(others: Floats, late: Floats) -> tuple[float, str] | None:
    """How far off ends are that are late against the others', ns, and why they are in doubt, if they are."""
    levels = np.array([np.median(part) for part in np.array_split(late, _BINS)])
    apart, took = float(np.ptp(levels)), float(others[-1] - others[0])
    if apart < _LEAST_STEP_NS or took <= 0:
        return None
    step = step_of(others, late)
    if step is not None and abs(step[1]) >= _LEAST_STEP_NS:
        when = (step[0] - float(others[0])) / 1e9
        return (
            apart,
            f"its clock steps by {step[1] / 1e6:,.1f} ms against the others', {when:.3f} s after its first operation",
        )
    rate = 1 + float(late[-1] - late[0]) / took
    if abs(rate - 1) < _LEAST_RATE:
        return None
    return apart, f"its clock runs {rate:.2f} times as fast as the others'"
