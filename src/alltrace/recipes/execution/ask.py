"""Runs a recipe on a run: maps it over the ranks that have its tables, in processes if that is faster, and reduces."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.base import Answer, Option, Part, Question, RunFacts, alignment_of
from alltrace.recipes.execution.availability import (
    able_ranks,
    check_imported,
    note_on_empty,
    notes_on_damage,
    notes_on_missing,
)
from alltrace.recipes.execution.by_devices import chosen_members, in_processes, judged
from alltrace.recipes.execution.kept_parts import PlacedParts, RankParts
from alltrace.recipes.execution.part_store import PartFiles
from alltrace.recipes.execution.window import RankWindow, Selection, Window, select, window_of
from alltrace.recipes.registry import find
from alltrace.recipes.row_stream import StreamedRank
from alltrace.run.manifest import RankRecord
from alltrace.run.rank import Rank
from alltrace.run.store import Run, SentRun
from alltrace.trace.errors import UsageError

_Item: TypeAlias = tuple[int, RankWindow | None, RankParts | None]
"""What a task is sent of a rank: its number, the rows that count, and the parts that are kept."""

_ROWS_AT_ONCE = 1 << 19
"""Rows of ranks asked together: less memory than a large rank takes, and tasks enough for many processes."""


class Asked(NamedTuple):
    """A question that fits its recipe, made by `checked`."""

    recipe: Question  # the recipe
    options: Mapping[str, Any]  # all its options
    ranks: tuple[int, ...] | None  # the ranks to ask; None for all
    selection: Selection  # the steps to count; empty for the whole run


def ask(
    run: Run,
    recipe: Question | str,
    options: Mapping[str, Any] | None = None,
    *,
    ranks: Sequence[int] | None = None,
    steps: str | None = None,
    skip_warmup: bool = False,
    jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
    stream: bool = False,
) -> Answer:
    """The answer of `recipe` for `run`.

    `ranks`: in any order; None for all. `steps`: such as `10:50` for 10 to 49 (`execution.window.select`). `jobs`: the
    most processes; None lets the number of rows decide. `stream`: whether rows may come as the `stream` of a table.
    Raises `UsageError`: the recipe, option, rank or step does not exist, or a required option is missing. Raises
    `InputError`: a file of the run is damaged, or a required table was not imported.
    """
    question = checked(recipe, options, ranks=ranks, steps=steps, skip_warmup=skip_warmup)
    return answer_of(run, question, jobs=jobs, progress=progress, stream=stream)


def checked(
    recipe: Question | str,
    options: Mapping[str, Any] | None = None,
    *,
    ranks: Sequence[int] | None = None,
    steps: str | None = None,
    skip_warmup: bool = False,
) -> Asked:
    """The question after all checks that need no run; arguments as of `ask`. Raises `UsageError` or `InputError`."""
    question = find(recipe) if isinstance(recipe, str) else recipe
    selection = select(steps, skip_warmup=skip_warmup)
    if selection and not question.windowed:
        raise UsageError(f"{question.name} describes the whole run; leave out {selection}")
    resolved = resolve_options(question, options or {})
    question.reads(resolved)  # raises for filters that cannot be understood
    return Asked(question, resolved, None if ranks is None else tuple(ranks), selection)


def answer_of(
    run: Run,
    question: Asked,
    *,
    jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
    aligning: Callable[[int], None] | None = None,
    stream: bool = False,
) -> Answer:
    """The answer to a checked question; the run is aligned first if it needs that.

    `aligning`: called with the number of ranks aligned, if that was not done before. Errors as of `ask`.
    """
    of_devices = judged(run, question.recipe, question.options)
    if of_devices.members is not None and of_devices is not run:
        members = of_devices.members
        chosen_devices = chosen_members(run, members, question.ranks)
        if chosen_devices is not None:
            question = question._replace(ranks=chosen_devices)
        return in_processes(
            answer_of(of_devices, question, jobs=jobs, progress=progress, aligning=aligning), run, members
        )
    recipe, options, ranks, selection = question
    chosen = [run.rank(r).record for r in sorted(set(ranks))] if ranks is not None else list(run.ranks)
    notes = run.manifest.notes
    window = None
    facts: RunFacts = run
    wanted = wants_alignment(recipe, run, options) or bool(selection)
    check_imported(run, recipe, options, aligned=wanted)
    if not wanted:
        facts = run = in_its_time(recipe, run.as_imported())
    else:
        from alltrace.align.store import aligned

        notes = (*notes, *aligned(run, jobs=jobs, progress=aligning).notes)
        facts = run = in_its_time(recipe, run)
        numbers = {r.rank for r in chosen}
        chosen = [r for r in run.ranks if r.rank in numbers]
        if selection:
            window = window_of(selection, alignment_of(run).steps, [r.rank for r in chosen])
            from alltrace.recipes.execution.window_alignment import WindowedRun  # it loads what cuts tables

            facts = WindowedRun(run, window)
            notes = (*notes, *window.notes)
    stored = kept_answer(run, question)
    if stored is not None:
        return stored
    able = able_ranks(recipe, run, chosen, options)
    reached = [r for r in able if window is None or r.rank in window.ranks]
    prepared = recipe.prepared(options, facts)
    answer = recipe.stream(_streamed(run, reached, window), facts, prepared) if stream and not _remote() else None
    if answer is None:
        with PartFiles() as files:
            answer = recipe.merge(_map(run, recipe, prepared, reached, window, jobs, progress, files), facts, prepared)
    if _is_kept(run, question):
        from alltrace.recipes.execution.kept_findings import keep_findings

        keep_findings(run, recipe, options, answer)
    chart = answer.chart or recipe.answer_chart(options)
    return answer._replace(
        notes=(*notes, *answer_notes(recipe, run, chosen, options, answer, aligned=wanted)), chart=chart
    )


def kept_answer(run: Run, question: Asked) -> Answer | None:
    """The answer to a question, if it is stored with an aligned run; None if it must be computed."""
    of_devices = judged(run, question.recipe, question.options)
    if of_devices.members is not None and of_devices is not run:
        stored = kept_answer(of_devices, question)
        return None if stored is None else in_processes(stored, run, of_devices.members)
    if run.alignment is None or not _is_kept(run, question):
        return None
    from alltrace.recipes.execution.kept_findings import kept_findings  # it loads what reads files

    recipe, options = question.recipe, question.options
    answer = kept_findings(run, recipe, options)
    if answer is None:
        return None
    notes_on_it = answer_notes(recipe, run, run.ranks, options, answer, aligned=True)
    notes = (*run.manifest.notes, *run.alignment.notes, *notes_on_it)
    return answer._replace(notes=notes, chart=recipe.answer_chart(options))


def _is_kept(run: Run, question: Asked) -> bool:
    return question.recipe.keeps and question.ranks is None and not question.selection and run.manifest.complete


def in_its_time(recipe: Question, run: Run) -> Run:
    """The run with the times that `recipe` reports: from the run's first event, or from the session's start."""
    if not recipe.session_time:
        return run
    in_session = run.in_session_time()
    if run.alignment is not None:
        from alltrace.align.aligned import Aligned

        in_session.alignment = Aligned(in_session)
    return in_session


def answer_notes(
    recipe: Question,
    run: Run,
    chosen: Sequence[RankRecord],
    options: Mapping[str, Any],
    answer: Answer,
    *,
    aligned: bool,
) -> tuple[str, ...]:
    """The notes of an answer, in addition to those of the whole run: damage, missing tables, its own notes.

    Without data, a recipe's own notes would suggest that all is well. So they count only if some rank was able to
    answer; an answer without rows and notes then gets a default note.
    """
    damage = notes_on_damage(run, chosen, recipe.reads(options), aligned=aligned, as_recorded=recipe.session_time)
    missing = [*damage, *notes_on_missing(recipe, run, chosen, options)]
    if not able_ranks(recipe, run, chosen, options):
        return tuple(missing)
    if run.manifest.meeting and "kind" in recipe.reads(options).get("kernels", ()):
        from alltrace.run.meeting_kernels import meeting_notes  # few runs have such kernels

        missing += meeting_notes(run.manifest.meeting, run.texts)
    silent = not answer.notes and all(table.is_empty for table in answer.all_tables().values())
    return (*missing, *answer.notes, *([note_on_empty(recipe)] if silent else []))


def wants_alignment(recipe: Question, run: Run, options: Mapping[str, Any]) -> bool:
    """Whether the run is aligned before `recipe` runs with all its `options`."""
    clock = recipe.clock_for(options)
    if clock != "one":
        return clock == "aligned"
    return run.samples_for_others if recipe.host_samples else len(run.hosts) > 1


def resolve_options(recipe: Question, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `recipe`, with defaults. Raises `UsageError`: one is wrong. Raises `InputError`: a file is."""
    options = {o.name: o for o in recipe.options}
    for name in values:
        if name not in options:
            raise UsageError.unknown(f"option of {recipe.name}", name, options)
    whole = {name: values.get(name, option.default) for name, option in options.items()}
    missing = [option for name, option in options.items() if option.required and whole[name] is None]
    if missing:
        wanted = "; ".join(f"{option.flag}: {option.help}" for option in missing)
        raise UsageError(f"{recipe.name} needs {wanted}")
    return {name: value if value is None else _typed(recipe, options[name], value) for name, value in whole.items()}


def _typed(recipe: Question, option: Option, value: Any) -> Any:
    value = option.checked(value, f"{option.flag} of {recipe.name}")
    if option.reads == "nccl-tests":
        from alltrace.run.log_files import read_tests_table

        return read_tests_table(str(value))
    return value


def _map(
    run: Run,
    recipe: Question,
    options: Mapping[str, Any],
    ranks: Sequence[RankRecord],
    window: Window | None,
    jobs: int | None,
    progress: Callable[[int], None] | None,
    files: PartFiles,
) -> list[Part]:
    windows = window.ranks if window is not None else {}
    sent = SentRun(run)
    work = partial(_ask_ranks, sent, recipe, options)
    stored: Mapping[int, RankParts] = {}
    if recipe.kept_parts and window is None:
        from alltrace.recipes.execution.kept_parts import rank_parts  # it loads what reads files

        stored = rank_parts(run, ranks)
    items = [(r.rank, windows.get(r.rank), stored.get(r.rank)) for r in ranks]
    # to read what is kept takes no longer than to get it from another process
    elsewhere = [r for r in ranks if r.rank not in stored or not stored[r.rank].names.issuperset(recipe.kept_parts)]
    for_others = {r.rank for r in elsewhere} if _worth_processes(recipe, elsewhere, jobs) else set()
    here, there = ([i for i in items if (i[0] in for_others) == other] for other in (False, True))
    parts: list[Part] = []
    for batch in _batches(recipe, options, run, here):
        # memory has space for one batch anyway
        parts += (files.stored(part) if len(ranks) > 1 else part for part in work(batch, progress or _no_progress))
    if for_others:
        from alltrace.engine.tasks import run_tasks  # it loads what processes need

        batches = list(_batches(recipe, options, run, there))
        for outcome in run_tasks(work, batches, jobs=jobs, progress=progress, needs=sent.needs):
            parts += map(files.stored, outcome.get())
    return sorted(parts, key=lambda part: part.rank)


def _batches(recipe: Question, options: Mapping[str, Any], run: Run, items: Sequence[_Item]) -> Iterator[list[_Item]]:
    """The ranks that are asked together, if the recipe can: as many as have few rows."""
    reads, records = recipe.reads(options), {record.rank: record for record in run.ranks}
    batch: list[_Item] = []
    rows = 0
    for item in items:
        own_rows = sum(records[item[0]].rows.get(table, 0) for table in reads)
        if batch and (recipe.map_ranks is None or rows + own_rows > _ROWS_AT_ONCE):
            yield batch
            batch, rows = [], 0
        batch.append(item)
        rows += own_rows
    if batch:
        yield batch


def _worth_processes(recipe: Question, ranks: Sequence[RankRecord], jobs: int | None) -> bool:
    if jobs is not None:
        return jobs > 1 and len(ranks) > 1
    if _remote():
        return bool(ranks)
    if len(ranks) <= 1:
        return False
    return sum(r.rows.get(t, 0) for r in ranks for t in recipe.tables) >= recipe.worth_processes


def _remote() -> bool:
    """Whether ranks run on other machines."""
    # check the engine only if it is loaded, since loading it is slow
    tasks = sys.modules.get("alltrace.engine.tasks")
    return tasks is not None and bool(tasks.remote())


def _streamed(run: Run, ranks: Sequence[RankRecord], window: Window | None) -> list[StreamedRank]:
    windows = window.ranks if window is not None else {}

    def narrowed(tables: Rank) -> Rank:
        return tables if window is None else tables.view(windows[tables.rank])

    return [StreamedRank(run.rank(record.rank), narrowed) for record in ranks]


def rank_for(recipe: Question, run: Run, rank: int) -> Rank:
    """A rank's tables as a question judges them."""
    return run.rank(rank).with_host_work() if recipe.of_hosts else run.rank(rank)


def _ask_ranks(
    sent: SentRun, recipe: Question, options: Mapping[str, Any], batch: Sequence[_Item], advance: Callable[[int], None]
) -> list[Part]:
    """The parts of some ranks; the recipe goes by name if it has one in the registry, so that little is pickled."""
    ranks = [_tables(sent, recipe, options, item) for item in batch]
    rows = recipe.map_ranks(ranks, options) if len(ranks) > 1 and recipe.map_ranks is not None else None
    if rows is not None:
        advance(len(ranks))
        return parted(rows, [rank.rank for rank in ranks])
    parts = []
    for rank in ranks:
        parts.append(Part(rank.rank, recipe.map(rank, options)))
        advance(1)
    return parts


def _tables(sent: SentRun, recipe: Question, options: Mapping[str, Any], item: _Item) -> Rank:
    number, window, stored_parts = item
    stored = rank_for(recipe, sent.run, number)
    tables = stored if window is None else stored.view(window)
    if not recipe.kept_parts:
        return tables
    wanted = recipe.reads(options)
    return tables.view(wanted=wanted, kept=_placed(stored_parts, stored, wanted))


def parted(rows: pa.Table, ranks: Sequence[int]) -> list[Part]:
    """The part of each rank; `rows` are those of all, in any order."""
    rows = rows.take(pc.sort_indices(rows.column("rank")))
    ends = np.searchsorted(rows.column("rank").to_numpy(), ranks, "right").tolist()
    return [
        Part(rank, rows.slice(start, end - start)) for rank, start, end in zip(ranks, (0, *ends), ends, strict=False)
    ]


def _placed(parts: RankParts | None, rank: Rank, wanted: Mapping[str, Sequence[str]]) -> PlacedParts | None:
    if parts is None:
        return None
    from alltrace.recipes.execution.kept_parts import PlacedParts  # it loads what reads files

    return PlacedParts(parts, rank, wanted)


def _no_progress(_done: int) -> None:
    pass
