"""Matches the operations of a run, fills them from NCCL's logs, and finds its clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from alltrace.align.call_order import recorded_apart
from alltrace.align.clocks import solve
from alltrace.align.doubted_ranks import doubted_ranks
from alltrace.align.log_join import finish, join_ranks
from alltrace.align.matching import Matching, match
from alltrace.align.placed_ranks import place_ranks
from alltrace.align.rank_parts import part_file
from alltrace.align.related_clocks import placing_of
from alltrace.align.schema import NEARLY_ALL, NOTHING_TO_ALIGN, Alignment, Joined
from alltrace.align.timelines import MATCHED_COLUMNS, MOST_IN_MEMORY, Timelines
from alltrace.run.manifest import NAMES
from alltrace.run.names import Names
from alltrace.run.overlay import MEMBERS, collectives_file, signature
from alltrace.run.parquet import quick_codec, read_parquet, write_quickly
from alltrace.run.store import Run
from alltrace.trace.names import intern

_NO_MEMBERS = "no collective was found on more than one rank, so clocks are aligned by UTC stamps, which are off by milliseconds"
_MEMBERS = "members.parquet"


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
    joined = Joined()
    if logged:
        joined, names = _joined(run, parts, draft, names)
    ranks = place_ranks(run.manifest)
    placing = placing_of(ranks)
    doubted = {r.rank: r.doubt for r in run.ranks if r.doubt is not None}
    if 2 * len(doubted) > len(ranks):
        doubted = {}  # what most reports have is no reason to leave one out

    def matched(file_of: Callable[[int], Path]) -> Matching:
        def table_of(rank: int) -> pa.Table:
            return read_parquet(file_of(rank), MATCHED_COLUMNS, ["evidence"])

        timelines = Timelines([r.rank for r in run.ranks if r.rank not in doubted], table_of, names.texts, MOST_IN_MEMORY)
        return match(timelines, placing, ranks)

    def matched_best() -> Matching:
        filled = matched(lambda rank: draft / collectives_file(rank)) if joined.complete else None
        if filled is None or filled.members < NEARLY_ALL * (filled.members + sum(filled.unmatched.values())):
            own = matched(lambda rank: part_file(parts, rank))
            if filled is None or filled.members < NEARLY_ALL * own.members:
                return own
        return _named_by_logs(filled, joined)

    matching = matched_best()
    if (more := doubted_ranks(matching, ranks, doubted)) != doubted:
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


def _write(writer: pq.ParquetWriter, tables: Iterable[pa.Table], row_group_rows: int) -> None:
    """Write tables in row groups of a number of rows."""
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


def _named_by_logs(matching: Matching, joined: Joined) -> Matching:
    groups = (replace(g, found_by="logs") if g.name in joined.texts else g for g in matching.groups)
    return replace(matching, groups=tuple(groups))


def _joined(run: Run, parts: Path, draft: Path, names: Names) -> tuple[Joined, Names]:
    """What came of filling the operations from NCCL's logs, and the names in them."""
    joined = join_ranks(run, parts, draft, names.texts)
    if joined.texts:
        more = intern(pa.array(sorted(joined.texts)))[1].select(["id", "value"])
        write_quickly(distinct_names(pa.concat_tables([read_parquet(draft / NAMES, ["id", "value"]), more])), draft / NAMES)
    return joined, Names(lambda: [*run.name_files(), draft / NAMES])


def distinct_names(names: pa.Table) -> pa.Table:
    """The rows of a table of names, each id once, by id."""
    names = names.filter(pc.is_valid(names.column("value")))
    return names.group_by("id").aggregate([("value", "min")]).rename_columns(["id", "value"]).sort_by("id")
