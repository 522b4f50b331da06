"""Runs many recipes at once: rank by rank, each of a rank's tables read once for all of them.

What ranks contribute is kept in memory as long as it is little, and else on disk, where the reduce looks at it part by
part. So memory holds one rank's tables, or what a question makes of all ranks' parts: its answer, and for replays the
graph of the run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from alltrace.recipes.base import Answer, Part, Question, RunFacts
from alltrace.recipes.execution.ask import answer_notes, in_its_time, resolve_options, wants_alignment
from alltrace.recipes.execution.availability import able_ranks, check_imported, notes_on_missing
from alltrace.recipes.execution.by_devices import chosen_members, in_processes, judged
from alltrace.recipes.execution.kept_findings import keep_findings, kept_findings
from alltrace.recipes.execution.kept_parts import RankParts
from alltrace.recipes.execution.part_store import PartStore
from alltrace.recipes.execution.shared_tables import SharedRun
from alltrace.run.manifest import RankRecord
from alltrace.run.rank import Rank
from alltrace.run.store import Run, SentRun
from alltrace.trace.errors import AlltraceError

_ROWS_WORTH_PROCESSES = 1_000_000


@dataclass(frozen=True)
class Reply:
    """What became of one question."""

    recipe: Question  # the recipe
    answer: Answer | None  # its answer, or None if it was skipped
    skipped: str | None  # why it was, or None


@dataclass(frozen=True)
class _Entry:
    """A question that at least one rank can answer; `prepared` are its options, prepared for the run."""

    number: int
    recipe: Question
    options: Mapping[str, Any]
    prepared: Mapping[str, Any]
    ranks: frozenset[int]


def ask_all(
    run: Run,
    questions: Sequence[tuple[Question, Mapping[str, Any]]],
    *,
    ranks: Sequence[int] | None = None,
    jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Reply]:
    """The answers to `questions`, in their order; see `each_reply`."""
    replies = dict(each_reply(run, questions, ranks=ranks, jobs=jobs, progress=progress))
    return [replies[number] for number in range(len(questions))]


def each_reply(
    run: Run,
    questions: Sequence[tuple[Question, Mapping[str, Any]]],
    *,
    ranks: Sequence[int] | None = None,
    jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
    aligning: Callable[[int], None] | None = None,
    stream: bool = False,
) -> Iterator[tuple[int, Reply]]:
    """The answers to `questions` one after the other, as number and reply; none is made before the last was taken.

    Arguments and errors as of `answer_of`. Each question comes once, in any order. A recipe that no rank can answer,
    that has invalid options, or that rejects the run is skipped, with the reason.
    """
    of_devices = next((other for question in questions if (other := judged(run, *question)) is not run), None)
    if of_devices is not None and of_devices.members is not None:
        members = of_devices.members
        apart = [judged(run, *question) is not run for question in questions]
        for other, numbers in ((of_devices, chosen_members(run, members, ranks)), (run, ranks)):
            mine = [n for n, of_them in enumerate(apart) if of_them == (other is of_devices)]
            some, streams = [questions[n] for n in mine], stream and other is run
            for n, reply in _each(
                other, some, ranks=numbers, jobs=jobs, progress=progress, aligning=aligning, stream=streams
            ):
                answer = reply.answer
                of_processes = (
                    in_processes(answer, run, members) if answer is not None and other is of_devices else answer
                )
                yield mine[n], replace(reply, answer=of_processes)
        return
    yield from _each(run, questions, ranks=ranks, jobs=jobs, progress=progress, aligning=aligning, stream=stream)


def _each(
    run: Run,
    questions: Sequence[tuple[Question, Mapping[str, Any]]],
    *,
    ranks: Sequence[int] | None,
    jobs: int | None,
    progress: Callable[[int], None] | None,
    aligning: Callable[[int], None] | None,
    stream: bool,
) -> Iterator[tuple[int, Reply]]:
    """The answers to questions that are asked of one run, of processes or of devices; see `each_reply`."""
    if not questions:
        return
    chosen = [run.rank(r).record for r in sorted(set(ranks))] if ranks is not None else list(run.ranks)
    resolved: list[tuple[int, Question, dict[str, Any]]] = []
    wanted = False
    for number, (recipe, values) in enumerate(questions):
        try:
            options = resolve_options(recipe, values)
            recipe.reads(options)
            aligning_for = wants_alignment(recipe, run, options)
            check_imported(run, recipe, options, aligned=aligning_for)
        except AlltraceError as error:
            yield number, Reply(recipe, None, str(error))
            continue
        wanted |= aligning_for
        resolved.append((number, recipe, options))
    if wanted:
        from alltrace.align.store import aligned

        notes = (*run.manifest.notes, *aligned(run, jobs=jobs, progress=aligning).notes)
        numbers = {r.rank for r in chosen}
        chosen = [r for r in run.ranks if r.rank in numbers]
    else:
        notes = run.manifest.notes
    runs = {r.session_time: in_its_time(r, run) for _, r, _ in resolved}
    open_questions: list[_Entry] = []
    for number, recipe, options in resolved:
        try:
            prepared = recipe.prepared(options, runs[recipe.session_time])
        except AlltraceError as error:
            yield number, Reply(recipe, None, str(error))
            continue
        able = able_ranks(recipe, run, chosen, options)
        if not able and chosen:
            yield number, Reply(recipe, None, "; ".join(notes_on_missing(recipe, run, chosen, options)))
            continue
        stored = kept_findings(run, recipe, options) if _keeps(run, recipe, chosen) else None
        if stored is not None:
            more = answer_notes(recipe, run, chosen, options, stored, aligned=True)
            yield number, Reply(recipe, stored._replace(notes=(*notes, *more)), None)
            continue
        open_questions.append(_Entry(number, recipe, options, prepared, frozenset(r.rank for r in able)))
    with PartStore() as parts:
        _map(run, open_questions, jobs, progress, parts)
        shared = {session: SharedRun(of) for session, of in runs.items()}
        # what several questions share in memory goes first, and is let go before tables of others are made
        for question in sorted(open_questions, key=lambda q: (not parts.has_objects(q.number), q.number)):
            if not parts.has_objects(question.number):
                for facts in shared.values():
                    facts.memo.clear()
            facts = shared[question.recipe.session_time]
            yield (
                question.number,
                _reduce(run, facts, question, parts.take(question.number), chosen, notes, stream=stream),
            )


def _reduce(
    run: Run,
    facts: RunFacts,
    question: _Entry,
    parts: Sequence[Part | str],
    chosen: Sequence[RankRecord],
    notes: Sequence[str],
    *,
    stream: bool,
) -> Reply:
    recipe = question.recipe
    failed = next((p for p in parts if isinstance(p, str)), None)
    if failed is not None:
        return Reply(recipe, None, failed)
    try:
        combine = recipe.streamed if stream else recipe.merge
        answer = combine([p for p in parts if isinstance(p, Part)], facts, question.prepared)
        if _keeps(run, recipe, chosen):
            keep_findings(run, recipe, question.options, answer)
    except AlltraceError as error:
        return Reply(recipe, None, str(error))
    aligned = wants_alignment(recipe, run, question.options)
    more = answer_notes(recipe, run, chosen, question.options, answer, aligned=aligned)
    return Reply(recipe, answer._replace(notes=(*notes, *more)), None)


def _keeps(run: Run, recipe: Question, chosen: Sequence[RankRecord]) -> bool:
    """Whether what a recipe says about the chosen ranks is kept."""
    return recipe.keeps and len(chosen) == len(run.ranks) and run.manifest.complete


def _map(
    run: Run, questions: Sequence[_Entry], jobs: int | None, progress: Callable[[int], None] | None, parts: PartStore
) -> None:
    """Keep for each question the parts of its ranks; a text if a rank's part could not be made."""
    from alltrace.engine.tasks import remote, run_tasks

    wanted = {number for q in questions for number in q.ranks}
    numbers = sorted(wanted)
    rows = sum(sum(r.rows.values()) for r in run.ranks if r.rank in wanted)
    few = rows < _ROWS_WORTH_PROCESSES and not remote()
    sent = SentRun(run)
    work = partial(_ask_rank, sent, questions)
    stored: Mapping[int, RankParts] = {}
    if any(q.recipe.kept_parts for q in questions):
        from alltrace.recipes.execution.kept_parts import rank_parts  # it loads what reads files

        stored = rank_parts(run, [run.rank(number).record for number in numbers])
    items = [(number, stored.get(number)) for number in numbers]
    for outcome in run_tasks(
        work, items, jobs=1 if jobs is None and few else jobs, progress=progress, needs=sent.needs
    ):
        parts.keep(numbers[outcome.index], outcome.get())
        # of NumPy's memory the next rank has as much need
        pa.default_memory_pool().release_unused()


def _ask_rank(
    sent: SentRun, questions: Sequence[_Entry], item: tuple[int, RankParts | None], advance: Callable[[int], None]
) -> dict[int, Part | str]:
    number, stored = item
    own = [q for q in questions if number in q.ranks]
    rank = shared_rank(sent.run, number, [(q.recipe, q.prepared) for q in own], stored)
    of_hosts = rank
    if sent.run.manifest.works_on_host(rank.record):
        of_hosts = shared_rank(
            sent.run, number, [(q.recipe, q.prepared) for q in own if q.recipe.of_hosts], stored, of_hosts=True
        )
    in_session = rank.view(later_ns=sent.run.origin_ns)
    if rank.record.rows.get("suspects"):  # reports with NVIDIA's names have the rows that others leave out
        in_session = sent.run.in_session_time().rank(number)
    last = {t: i for i, q in enumerate(own) for t in q.recipe.reads(q.prepared)}
    parts: dict[int, Part | str] = {}
    for position, question in enumerate(own):
        try:
            tables = in_session if question.recipe.session_time else of_hosts if question.recipe.of_hosts else rank
            parts[question.number] = Part(number, question.recipe.map(tables, question.prepared))
        except AlltraceError as error:
            parts[question.number] = str(error)
        for read in (rank, of_hosts):
            read.release([t for t, i in last.items() if i == position])
    advance(1)
    return parts


def shared_rank(
    run: Run,
    rank: int,
    questions: Sequence[tuple[Question, Mapping[str, Any]]],
    stored_parts: RankParts | None = None,
    *,
    of_hosts: bool = False,
) -> Rank:
    """The tables of one rank, each read once for all questions; `of_hosts`: host work counts if no device worked."""
    reads, stored = _reads_of(questions), run.rank(rank)
    stored = stored.with_host_work() if of_hosts else stored
    if stored_parts is None:
        return stored.view(wanted=reads)
    from alltrace.recipes.execution.kept_parts import PlacedParts  # it loads what reads files

    parted = [(r, o) for r, o in questions if r.kept_parts]
    return stored.view(wanted=reads, kept=PlacedParts(stored_parts, stored, _reads_of(parted)))


def _reads_of(questions: Sequence[tuple[Question, Mapping[str, Any]]]) -> dict[str, list[str]]:
    wanted: dict[str, set[str]] = {}
    for recipe, options in questions:
        for table, columns in recipe.reads(options).items():
            wanted.setdefault(table, set()).update(columns)
    return {table: sorted(columns) for table, columns in wanted.items()}
