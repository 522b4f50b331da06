"""Matches the operations of a run, fills them from NCCL's logs, and finds its clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from alltrace.align.clocks import Solution, solve
from alltrace.align.doubted_ranks import doubted_ranks
from alltrace.align.matching import Matching, match
from alltrace.align.operations import MATCHED_COLUMNS
from alltrace.align.placed_ranks import place_ranks
from alltrace.align.related_clocks import placing_of
from alltrace.align.schema import NEARLY_ALL, NOTHING_TO_ALIGN, Group, Joined
from alltrace.align.timelines import MOST_IN_MEMORY, Timelines
from alltrace.run.manifest import NAMES, LogMatch
from alltrace.run.names import Names
from alltrace.run.overlay import MEMBERS, collectives_file
from alltrace.run.parquet import quick_codec, read_parquet, write_quickly
from alltrace.run.store import Run
from alltrace.trace.names import intern

_NO_MEMBERS = "no collective was found on more than one rank, so clocks are aligned by UTC stamps, which are off by milliseconds"
_MEMBERS = "members.parquet"


class RunMatching(NamedTuple):
    """What is one instance across ranks; the members are in a file.

    Attributes:
        solution: The clocks.
        groups: The communicators.
        unmatched: For each rank the number of operations that found no partner.
        notes: What a reader must know, each one sentence.
        score: How sure it is which ranks communicate, from 0 to 1; None if there is no communication.
        reason: One sentence why the score is too low to rely on; None if it is not.
        rows: For each rank the rows of its `collectives`.
        rooted: Whether there are operations whose members do not all wait for the last to arrive, or not from their own arrival on.
        doubted: For each rank whose times are in doubt, and that is therefore not matched, the reason.
        log_matches: How NCCL's logs fit each rank.
    """

    solution: Solution
    groups: tuple[Group, ...]
    unmatched: dict[int, int]
    notes: tuple[str, ...]
    score: float | None
    reason: str | None
    rows: dict[int, int]
    rooted: bool
    doubted: dict[int, str]
    log_matches: tuple[LogMatch, ...] = ()


def match_run(
    run: Run,
    parts: Path,
    draft: Path,
    names: Names,
    *,
    logged: bool,
    row_group_rows: int,
    progress: Callable[[int], None] | None = None,
) -> RunMatching:
    """Match the operations of a run and find its clocks; writes `members` and what logs change of `collectives` and `names`.

    If logs have the communicators of nearly all operations, these are matched as the logs filled them. This counts if
    nearly all find a partner, or nearly as many as by the trace alone.

    Args:
        run: The run.
        parts: The folder with the operations of each rank.
        draft: The folder of the alignment, with a copy of them.
        names: The names in them.
        logged: Whether NCCL's logs have calls to join with them.
        row_group_rows: The most rows in a row group of `members`.
        progress: Called with the number of ranks done.
    """
    joined = None
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
        from alltrace.align.rank_parts import part_file

        if joined is None or not joined.complete:
            return matched(lambda rank: part_file(parts, rank))
        return _matched_with_logs(matched, parts, draft, joined)

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
    result = RunMatching(
        solution=solution,
        groups=matching.groups,
        unmatched=matching.unmatched,
        notes=(*matching.notes, *(f"rank {r}: {why}, so it is compared with no other rank" for r, why in sorted(doubted.items()))),
        score=matching.score,
        reason=matching.reason,
        rows=matching.timelines.rows,
        rooted=bool((kinds.directed | kinds.early | (kinds.tag != -1)).any()),
        doubted=doubted,
    )
    if joined is None:
        return result
    from alltrace.align.log_join import finish

    groups, notes = finish(joined, draft, draft / _MEMBERS, result.groups)
    return result._replace(groups=groups, notes=(*result.notes, *notes), log_matches=tuple(joined.matches))


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


def _matched_with_logs(matched: Callable[[Callable[[int], Path]], Matching], parts: Path, draft: Path, joined: Joined) -> Matching:
    """The operations matched as logs filled them, or as they are in the trace if far fewer find a partner with the logs."""
    from alltrace.align.rank_parts import part_file

    filled = matched(lambda rank: draft / collectives_file(rank))
    if filled.members < NEARLY_ALL * (filled.members + sum(filled.unmatched.values())):
        own = matched(lambda rank: part_file(parts, rank))
        if filled.members < NEARLY_ALL * own.members:
            return own
    groups = tuple(replace(g, found_by="logs") if g.name in joined.texts else g for g in filled.groups)
    return replace(filled, groups=groups)


def _joined(run: Run, parts: Path, draft: Path, names: Names) -> tuple[Joined, Names]:
    """What came of filling the operations from NCCL's logs, and the names in them."""
    from alltrace.align.log_join import join_ranks

    joined = join_ranks(run, parts, draft, names.texts)
    if joined.texts:
        more = intern(pa.array(sorted(joined.texts)))[1].select(["id", "value"])
        write_quickly(distinct_names(pa.concat_tables([read_parquet(draft / NAMES, ["id", "value"]), more])), draft / NAMES)
    return joined, Names(lambda: [*run.name_files(), draft / NAMES])


def distinct_names(names: pa.Table) -> pa.Table:
    """The rows of a table of names, each id once, by id."""
    names = names.filter(pc.is_valid(names.column("value")))
    return names.group_by("id").aggregate([("value", "min")]).rename_columns(["id", "value"]).sort_by("id")
