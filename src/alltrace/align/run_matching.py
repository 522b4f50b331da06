"""Matches the operations of a run, fills them from NCCL's logs, and finds its clocks: at once, or in windows if they are many."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.align.all_collectives import TABLES_AT_ONCE, AllCollectives
from alltrace.align.clocks import place_ranks, solve
from alltrace.align.matching import match
from alltrace.align.members import evidence_of, meet
from alltrace.align.operations import MATCHED_COLUMNS
from alltrace.align.related_clocks import placing_of
from alltrace.align.scattered_matching import match_by_order
from alltrace.align.schema import LEAST_MATCHING_SCORE, NEARLY_ALL
from alltrace.align.spilled_operations import SpilledOperations
from alltrace.align.windowed_matching import match_in_windows
from alltrace.run.manifest import NAMES
from alltrace.run.names import Names
from alltrace.run.overlay import collectives_file
from alltrace.run.parquet import read_parquet, write_quickly
from alltrace.trace.names import intern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from alltrace.align.clocks import Solution
    from alltrace.align.schema import Group, Joined
    from alltrace.align.windowed_matching import WindowedMatching
    from alltrace.run.manifest import LogMatch
    from alltrace.run.store import Run

LEAST_AT_ONCE, LEAST_OF_A_RANK = 500_000, 100
"""Operations of all ranks, and of each on average, that are in memory at once; each takes about 1,100 bytes while it is matched."""
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
        log_matches: How NCCL's logs fit each rank.
    """

    solution: Solution
    groups: tuple[Group, ...]
    unmatched: dict[int, int]
    notes: tuple[str, ...]
    score: float | None
    reason: str | None
    log_matches: tuple[LogMatch, ...] = ()


def most_at_once(ranks: int) -> int:
    """How many operations of a run of this number of ranks are in memory at once."""
    return max(LEAST_AT_ONCE, LEAST_OF_A_RANK * ranks)


def hold(tables: Iterable[tuple[int, pa.Table]], draft: Path, ranks: int) -> AllCollectives | SpilledOperations:
    """The operations of all ranks, in memory or, if they are many, in a temporary file.

    Args:
        tables: The rank and its `collectives`, of each rank.
        draft: The folder of the alignment.
        ranks: The number of ranks.
    """
    most = most_at_once(ranks)
    blocks: list[AllCollectives] = []
    each = iter(tables)
    while some := _next_tables(each, most):
        blocks.append(AllCollectives.joined(some))
        if sum(block.whole.num_rows for block in blocks) > most:
            break
    else:
        return AllCollectives.joined((rank, block[rank]) for block in blocks for rank in block)
    spilled = SpilledOperations(draft / "operations.scratch", ranks, most)
    while blocks:
        for rank, table in blocks.pop(0).items():
            spilled.add(rank, table)
    for rank, table in each:
        spilled.add(rank, table)
    return spilled


def _next_tables(tables: Iterator[tuple[int, pa.Table]], most: int) -> list[tuple[int, pa.Table]]:
    """The next tables: not many more rows than `most`, and so few tables that they can be separate."""
    found: list[tuple[int, pa.Table]] = []
    rows = 0
    for rank, table in islice(tables, TABLES_AT_ONCE):
        found.append((rank, table))
        rows += table.num_rows
        if rows > most:
            break
    return found


def match_run(
    run: Run,
    parts: Path,
    draft: Path,
    operations: AllCollectives | SpilledOperations,
    names: Names,
    *,
    logged: bool,
    row_group_rows: int,
    progress: Callable[[int], None] | None = None,
) -> RunMatching:
    """Match the operations of a run and find its clocks; writes `members` and what logs change of `collectives` and `names`.

    Args:
        run: The run.
        parts: The folder with the operations of each rank.
        draft: The folder of the alignment, with a copy of them.
        operations: The operations, by `hold`.
        names: The names in them.
        logged: Whether NCCL's logs have calls to join with them.
        row_group_rows: The most rows in a row group of `members`.
        progress: Called with the number of ranks done.
    """
    joined = None
    if logged:
        joined, names = _joined(run, parts, draft, names)
    if isinstance(operations, SpilledOperations):
        found = _in_windows(run, draft, operations, names, joined, row_group_rows, progress)
    else:
        found = _at_once(run, draft, operations, names, joined, row_group_rows)
        if progress is not None:
            progress(len(run.ranks))
    if joined is None:
        return found
    from alltrace.align.log_join import finish

    groups, notes = finish(joined, draft, draft / _MEMBERS, found.groups)
    return found._replace(groups=groups, notes=(*found.notes, *notes), log_matches=tuple(joined.matches))


def _matched_columns(file: Path) -> pa.Table:
    return read_parquet(file, MATCHED_COLUMNS, ["evidence"])


def _filled(run: Run, draft: Path) -> Iterator[tuple[int, pa.Table]]:
    """The operations of each rank as logs filled them."""
    return ((r.rank, _matched_columns(draft / collectives_file(r.rank))) for r in run.ranks)


def _in_windows(
    run: Run,
    draft: Path,
    operations: SpilledOperations,
    names: Names,
    joined: Joined | None,
    row_group_rows: int,
    progress: Callable[[int], None] | None,
) -> RunMatching:
    """Match the operations in windows, and remove their files.

    If the logs are complete, the operations are matched as the logs filled them, with the logs' communicators. This counts if
    nearly all find a partner, or nearly as many as by the trace alone.
    """
    most = most_at_once(len(run.ranks))

    def matched(held: SpilledOperations, members: Path) -> WindowedMatching:
        ranks = place_ranks(run.manifest)
        found = match_in_windows(held, names.texts, ranks, members, row_group_rows=row_group_rows, most=most, progress=progress)
        held.remove()
        return found

    filled = None
    if joined is not None and joined.complete:
        spilled = SpilledOperations(draft / "filled.scratch", len(run.ranks), most)
        for rank, table in _filled(run, draft):
            spilled.add(rank, table)
        filled = matched(spilled, draft / _MEMBERS)
        if filled.members >= NEARLY_ALL * (filled.members + sum(filled.unmatched.values())):
            operations.remove()
            return _of_windows(filled, joined)
    own = draft / "own.parquet"
    found = matched(operations, own)
    if filled is not None and filled.members >= NEARLY_ALL * found.members:
        own.unlink()
        return _of_windows(filled, joined)
    own.replace(draft / _MEMBERS)
    return _of_windows(found, None)


def _of_windows(found: WindowedMatching, joined: Joined | None) -> RunMatching:
    """What windows found; `joined` is what filled the operations."""
    return RunMatching(
        found.solution if found.members else _without_members(found.solution),
        found.groups if joined is None else _named_by_logs(found.groups, joined),
        found.unmatched,
        found.notes,
        found.score,
        found.reason,
    )


def _named_by_logs(groups: Iterable[Group], joined: Joined) -> tuple[Group, ...]:
    return tuple(replace(g, found_by="logs") if g.name in joined.texts else g for g in groups)


def _at_once(
    run: Run, draft: Path, tables: AllCollectives, names: Names, joined: Joined | None, row_group_rows: int
) -> RunMatching:
    """Match the operations; as the logs filled them, if the logs are complete and nearly as many find a partner."""
    ranks = place_ranks(run.manifest)
    shifts = {p.rank: p.shift_ns for p in ranks}
    hosts = {p.rank: p.host for p in ranks}
    matching = match(tables, names.texts, shifts, hosts)
    evidence = evidence_of(matching.members, tables, names.texts)
    solution = solve(evidence, ranks)
    found = {p.rank: p.shift_ns - solution.ahead_ns[p.rank] for p in ranks}
    if found != shifts and (any(matching.unmatched.values()) or not meet(evidence, found)):
        again = match(tables, names.texts, found, hosts)
        if not again.members.equals(matching.members):
            matching = again
            solution = solve(evidence_of(matching.members, tables, names.texts), ranks)
    if matching.score is not None and (matching.score < LEAST_MATCHING_SCORE or _of_mpi(tables)):
        # ends that scatter widely fit many operations, as those of MPI do; their order and who overlaps still tell
        again = match_by_order(tables, names.texts, placing_of(ranks))
        if again.reason is None and (again.score or 0.0) > matching.score:
            matching = again
            solution = solve(evidence_of(matching.members, tables, names.texts), ranks)
    if joined is not None and joined.complete:  # logs have the communicators, which are otherwise inferred
        filled = AllCollectives.joined(_filled(run, draft))
        again = match(filled, names.texts, found, hosts)
        if again.members.num_rows >= NEARLY_ALL * matching.members.num_rows:
            matching = replace(again, groups=_named_by_logs(again.groups, joined))
            solution = solve(evidence_of(matching.members, filled, names.texts), ranks)
    by_rank = np.argsort(matching.members.column("rank").to_numpy(), kind="stable")  # questions about a rank read little else
    write_quickly(matching.members.take(by_rank), draft / _MEMBERS, row_group_rows)
    return RunMatching(
        solution=solution if matching.members.num_rows else _without_members(solution),
        groups=tuple(matching.groups),
        unmatched=dict(matching.unmatched),
        notes=tuple(matching.notes),
        score=matching.score,
        reason=matching.reason,
    )


def _of_mpi(tables: AllCollectives) -> bool:
    """Whether all operations are calls of MPI."""
    return bool(pc.all(pc.equal(tables.whole.column("evidence").cast(pa.string()), "mpi")).as_py())


def _without_members(solution: Solution) -> Solution:
    return replace(solution, clocks=(), stamp_errors_ns={}, notes=(_NO_MEMBERS,))


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
