"""Makes the alignment of a run, keeps it, and hands out what it holds on the aligned clock.

It is computed once and stored in `RUN/align`, or in the cache folder if the run is read-only (`alltrace.run.derived`).
One that was computed from other ranks or reports is computed again. The parts of each rank are stored next to it
(`alltrace.align.rank_parts`), so both cost only the missing parts.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from alltrace.align.aligned import Aligned
from alltrace.align.rank_parts import RankPart, part_file, read_part, remove_others, write_part
from alltrace.align.schema import NOTHING_TO_ALIGN, SOURCES, Alignment
from alltrace.align.steps import RankSteps
from alltrace.engine.tasks import default_jobs, remote, run_tasks
from alltrace.run.checksums import FILES, checksum, checksums
from alltrace.run.derived import derived, draft_of, place_of, remove
from alltrace.run.json_files import write_json
from alltrace.run.manifest import NAMES, plain, read_manifest, write_manifest
from alltrace.run.names import Names
from alltrace.run.overlay import (
    ALIGN,
    FACTS,
    MEMBERS,
    STEPS,
    Overlay,
    collectives_file,
    find_overlay,
    rank_signature,
    signature,
)
from alltrace.run.parquet import write_quickly
from alltrace.run.store import Run, SentRun
from alltrace.run.verify import OPERATIONS
from alltrace.trace.errors import AlltraceError, DamageError, InputError
from alltrace.trace.names import intern
from alltrace.trace.schema import TABLES

# what works an alignment out is loaded where it is used: most commands find one that is kept


_ROWS_WORTH_A_PROCESS = 4_000_000
_READ = {
    "kernels": ("start", "end", "process", "device", "stream", "correlation", "name", "kind"),
    "ranges": ("start", "end", "process", "thread", "depth", "name", "domain", "payload"),
    "api": ("start", "end", "process", "thread", "correlation"),
    "copies": ("start", "end", "process", "device", "stream", "correlation", "bytes", "kind", "collective"),
}
"""What both the operations and the steps of a rank are made from."""
_SHARED_ROWS = 1 << 11
"""Rows of a row group of what all ranks share: a rank decodes those groups of it that have rows of its own."""


def aligned(run: Run, *, jobs: int | None = None, progress: Callable[[int], None] | None = None) -> Aligned:
    """The alignment of `run`: the one that is kept, or a new one. A damaged file of the run is an `InputError`.

    A run of one rank, or one without evidence to align by, gets an alignment with only its steps and a note.
    """
    if run.alignment is not None:
        kept: Aligned = run.alignment
        return kept
    imported = Run(run.path)
    find, make = partial(_find, imported), partial(_make, imported, jobs, progress)
    overlay = derived(imported, ALIGN, signature(imported.manifest), find, make, what="the alignment")
    clocks = overlay.over(imported.manifest)
    if overlay.folder == run.path / ALIGN and clocks != read_manifest(run.path):
        with suppress(OSError):  # who opens the run lays the clocks over it anyway
            write_manifest(run.path, clocks)
    run.adopt(overlay)
    run.alignment = made = Aligned(run)
    return made


def has_alignment(run: Run) -> bool:
    """Whether an alignment of `run` is kept, so that `aligned` makes none."""
    imported = run.as_imported()
    return place_of(imported, ALIGN, signature(imported.manifest)).find(partial(_find, imported)) is not None


def _find(imported: Run, place: Path, _signature: str) -> Overlay | None:
    return find_overlay(imported.manifest, place)


def _nothing_to_match(run: Run) -> str | None:
    """Why no rank's operations are compared with another's; None if they are."""
    if not run.ranks:
        return "the run has no rank"
    if not any(r.rows.get(t) for r in run.ranks for t in SOURCES):
        return (
            NOTHING_TO_ALIGN
            if len(run.ranks) == 1
            else "no rank has kernels, NVTX ranges or MPI calls, so clocks are aligned by UTC stamps"
        )
    return None


def _make(run: Run, jobs: int | None, progress: Callable[[int], None] | None, place: Path, _signature: str) -> Overlay:
    in_run = place == run.path / ALIGN
    parts = place.parent / OPERATIONS if in_run else place.parent / f".{OPERATIONS}-{place.name}"
    with draft_of(place) as draft:
        (draft / "collectives").mkdir(parents=True)
        write_json(draft / FACTS, _fill(run, draft, parts, jobs, progress))
        (place / FACTS).unlink(missing_ok=True)  # what is removed only in part must not look whole
        remove(place)
    if not in_run:
        shutil.rmtree(parts, ignore_errors=True)  # a run that cannot be written gets no other ranks
    overlay = find_overlay(run.manifest, place)
    if overlay is None:
        raise InputError(place, found="the alignment was changed while it was written", advice="run it again")
    return overlay


def _fill(
    run: Run, draft: Path, parts: Path, jobs: int | None, progress: Callable[[int], None] | None
) -> dict[str, Any]:
    """Write the tables of the alignment into `draft`, and each rank's part into `parts`; returns its facts."""
    reason = _nothing_to_match(run)
    if reason is None:
        alignment, each = _matched(run, draft, parts, jobs, progress)
    else:
        each = []
        alignment = Alignment(
            signature(run.manifest), groups=(), clocks=(), stamp_errors_ns={}, unmatched={}, notes=(reason,)
        )
        write_quickly(MEMBERS.arrow_schema().empty_table(), draft / "members.parquet")
    # steps may be found by collectives, so they see the run as aligned as it is by now
    files = checksums(draft, FACTS)
    write_json(draft / FACTS, {**plain(alignment), FILES: files}, lasting=False)
    overlay = find_overlay(run.manifest, draft)
    if overlay is not None:
        run.adopt(overlay)
    steps, more = _steps(run, each)
    write_quickly(steps, draft / "steps.parquet", _SHARED_ROWS)
    files["steps.parquet"] = checksum(draft / "steps.parquet")
    return {**plain(replace(alignment, steps_notes=tuple(more))), FILES: files}


def _matched(
    run: Run, draft: Path, parts: Path, jobs: int | None, progress: Callable[[int], None] | None
) -> tuple[Alignment, list[RankSteps | AlltraceError | None]]:
    """The alignment, whose `collectives` and `members` are written, and each rank's steps."""
    from alltrace.align.run_matching import match_run
    from alltrace.run.run_logs import has_calls

    half = _half(progress)
    names, steps = _collect_all(run, draft, parts, jobs, half)
    logged = bool(run.manifest.logs) and has_calls(run.path)
    return match_run(run, parts, draft, names, logged=logged, row_group_rows=_SHARED_ROWS, progress=half), steps


def _half(progress: Callable[[int], None] | None) -> Callable[[int], None]:
    """What is called with the number of ranks collected and with those matched: a rank is done once it was both."""
    done = 0

    def advance(ranks: int) -> None:
        nonlocal done
        before, done = done, done + ranks
        if progress is not None and done // 2 > before // 2:
            progress(done // 2 - before // 2)

    return advance


def _collect_all(
    run: Run, draft: Path, folder: Path, jobs: int | None, progress: Callable[[int], None]
) -> tuple[Names, list[RankSteps | AlltraceError | None]]:
    """Copy the collectives of every rank into `draft`; the names in them, and each rank's steps."""
    from alltrace.align.run_matching import distinct_names

    remove_others(folder, run.manifest)
    parts = {
        r.rank: part
        for r in run.ranks
        if (part := read_part(folder, r.rank, rank_signature(run.manifest, r))) is not None
    }
    todo = [r for r in run.ranks if r.rank not in parts]
    progress(len(parts))
    rows = sum(r.rows.get(t, 0) for r in todo for t in SOURCES)
    if jobs is None:
        jobs = default_jobs() if rows >= _ROWS_WORTH_A_PROCESS or remote() else 1
    sent = SentRun(run)
    work = partial(_collected, sent, folder.absolute())
    for outcome in run_tasks(work, [r.rank for r in todo], jobs=jobs, progress=progress, needs=sent.needs):
        parts[todo[outcome.index].rank] = outcome.get()
    for rank in run.ranks:
        try:
            shutil.copyfile(part_file(folder, rank.rank), draft / collectives_file(rank.rank))
        except FileNotFoundError as error:
            raise InputError(
                folder,
                found=f"what was made of rank {rank.rank} is not there",
                advice="run it again; on a cluster all nodes must see this folder",
            ) from error
    own = [TABLES["names"].arrow_schema().empty_table(), *(parts[r.rank].names for r in run.ranks)]
    write_quickly(distinct_names(pa.concat_tables(own)), draft / NAMES)
    return Names(lambda: [*run.name_files(), draft / NAMES]), [parts[r.rank].steps for r in run.ranks]


def _collected(sent: SentRun, folder: Path, number: int, advance: Callable[[int], None]) -> RankPart:
    """Writes the part of one rank; returns what of it the alignment takes."""
    import pyarrow as pa

    from alltrace.align.evidence import collect
    from alltrace.align.steps import rank_steps

    rank = sent.run.rank(number).in_file_time()
    for name, wanted in _READ.items():
        rank.hold(name, wanted)
    table, names = interned(collect(rank))
    source, steps, failed = rank_signature(sent.run.manifest, rank.record), None, None
    try:
        steps = rank_steps(rank)
    except DamageError:
        raise
    except AlltraceError as error:
        source, failed = "", error
    write_part(folder, number, table, names, steps, source)
    pa.default_memory_pool().release_unused()  # what comes next takes NumPy's memory
    advance(1)
    return RankPart(names, failed or steps)


def interned(table: Any) -> tuple[Any, Any]:
    """A table of collectives, in which names may be text, as the canonical one; and those texts as a table of names."""
    declared = TABLES["collectives"]
    found = [TABLES["names"].arrow_schema().empty_table()]
    for column in declared.name_columns():
        at = table.column_names.index(column)
        values = table.column(at)
        if not pa.types.is_integer(values.type) and not pa.types.is_null(values.type):
            ids, names = intern(values)
            table = table.set_column(at, column, ids)
            found.append(names)
    return table.select(list(declared.column_names)).cast(declared.arrow_schema()), pa.concat_tables(found)


def _steps(run: Run, each: list[RankSteps | AlltraceError | None]) -> tuple[Any, tuple[str, ...]]:
    from alltrace.align.steps import find_steps

    try:
        steps, notes = find_steps(run, map(_found, each))
        if any(log.kind == "training" for log in run.manifest.logs):
            from alltrace.align.capture_slowdown import capture_slowdown
            from alltrace.align.printed_steps import with_printed_steps
            from alltrace.run.run_logs import printed_steps

            steps, notes = with_printed_steps(run, steps, notes)
            slowdown = capture_slowdown(steps, printed_steps(run.path))
            return steps, notes if slowdown is None else (*notes, slowdown.text)
        return steps, notes
    except DamageError:
        raise
    except AlltraceError as error:
        return STEPS.arrow_schema().empty_table(), (f"steps were not detected: {error}",)


def _found(steps: RankSteps | AlltraceError | None) -> RankSteps | None:
    if isinstance(steps, AlltraceError):
        raise steps
    return steps
