"""What an answer must say of its data: what was not imported is an error, what the reports lack is a note.

A run made by `alltrace import --only TABLES` lacks tables that its reports may have: a recipe that reads one is
refused. A table that the reports lack is different: ranks without the recipe's tables are left out, and the answer has
a note. The answer also has a note if tables are damaged, or lack values in a column that the rows need to be complete.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from alltrace.recipes.base import Question
from alltrace.run.manifest import Manifest, RankRecord
from alltrace.run.store import Run
from alltrace.trace.errors import InputError
from alltrace.trace.number_text import number_ranges
from alltrace.trace.schema import EVENT_TABLES

EVENTS = {
    "kernels": "GPU kernels", "copies": "GPU copies", "api": "CUDA calls", "syncs": "CUDA synchronizations",
    "graphs": "CUDA graph launches", "ranges": "NVTX ranges", "frames": "Python calls", "marks": "NVTX marks",
    "collectives": "communication operations", "mpi": "MPI calls", "ucx": "UCX operations", "osrt": "OS runtime calls",
    "file_accesses": "file accesses", "syscalls": "system calls", "openacc": "OpenACC constructs",
    "openmp": "OpenMP events", "gpu_metrics": "GPU metrics", "nic_metrics": "network adapter metrics",
    "switch_metrics": "network switch metrics", "generic_metrics": "metrics of other samplers",
    "memory": "GPU memory allocations",
    "allocations": "blocks of PyTorch's allocator (a trace recorded with profile_memory has them)",
    "kernel_counters": "counters of kernels (a trace of CUPTI's range profiler has them)",
    "page_faults": "unified-memory page faults", "overheads": "profiler overheads",
    "suspects": "rows that cannot be true", "sched": "thread scheduling events", "samples": "CPU samples",
}  # fmt: skip
"""What the rows of each event table are."""


def not_imported(manifest: Manifest, recipe: Question, options: Mapping[str, Any], *, aligned: bool) -> list[str]:
    """The event tables that an answer needs, also through the alignment, and that the import left out on request."""
    read = recipe.reads(options)
    if manifest.tables is None or not read:
        return []
    from alltrace.align.schema import SOURCES

    wanted = {*read, *(SOURCES if aligned else ())}
    return [t for t in EVENT_TABLES if t in wanted and t not in manifest.tables]


def check_imported(run: Run, recipe: Question, options: Mapping[str, Any], *, aligned: bool) -> None:
    """See that all tables were imported that an answer is made from. Raises `InputError`: some were not."""
    missing = not_imported(run.manifest, recipe, options, aligned=aligned)
    if missing:
        raise InputError(
            run.path,
            found=f"{_listed(missing, 'and')} {'was' if len(missing) == 1 else 'were'} not imported",
            expected=f"all tables that {recipe.name} needs",
            advice="import the reports again without --only, or name these tables too",
        )


def able_ranks(
    recipe: Question, run: Run, chosen: Sequence[RankRecord], options: Mapping[str, Any]
) -> list[RankRecord]:
    """The chosen ranks that have the tables of `recipe`."""
    groups = recipe.needs(options)
    return [r for r in chosen if all(_has(recipe, run, r, group) for group in groups)]


def notes_on_missing(recipe: Question, run: Run, chosen: Sequence[RankRecord], options: Mapping[str, Any]) -> list[str]:
    """Which of the chosen ranks lack a table that `recipe` needs, and what follows from that."""
    if not chosen:
        return ["no rank was selected, so the answer is empty"]
    none_able = not able_ranks(recipe, run, chosen, options)
    notes = []
    on_host = [r.rank for r in chosen if recipe.of_hosts and run.manifest.works_on_host(r)]
    if on_host:
        who = f"{'rank' if len(on_host) == 1 else 'ranks'} {number_ranges(on_host)}"
        notes.append(f"{who}: nothing ran on a device, so the work of the main thread is judged in place of a device's")
    for group in recipe.needs(options):
        lacking = [r.rank for r in chosen if not _has(recipe, run, r, group)]
        one = "it is left out" if len(lacking) == 1 else "they are left out"
        notes += _notes(group, lacking, len(chosen), "the answer is empty" if none_able else one)
    for table, consequence in recipe.without(options).items() if not none_able else ():
        lacking = [r.rank for r in chosen if not _has(recipe, run, r, (table,))]
        notes += _notes((table,), lacking, len(chosen), consequence)
    return notes


_TELLING = {
    "name": "their names are unknown",
    "device": "it is unknown on which GPU they ran",
    "thread": "it is unknown on which thread they ran",
    "correlation": "calls and the GPU work that they launched cannot be joined",
    "bytes": "sizes are not known",
    "value": "they cannot be shown",
}
"""Columns that the rows of a table have in every sound report, and what is missing if none has a value."""

_OPTIONAL = {
    ("syncs", "device"), ("copies", "value"), ("memory", "name"), ("mpi", "bytes"), ("ucx", "bytes"),
    ("openacc", "bytes"), ("openacc", "name"),
}  # fmt: skip
_MOST_NOTES = 20


def _is_about_suspects(texts: Iterable[str]) -> bool:
    from alltrace.run.plausibility import SUSPECT_TEXTS

    return any(text.startswith(SUSPECT_TEXTS) for text in texts)


_ON_SUSPECTS = (
    "rows that cannot be true are left out, or have another end, another device or no size; the table `suspects` has"
    " them"
)
_ON_SUSPECTS_AS_RECORDED = (
    "rows that cannot be true are in this answer as they were recorded; the table `suspects` has them"
)


def notes_on_damage(
    run: Run,
    chosen: Sequence[RankRecord],
    read: Mapping[str, Sequence[str]],
    *,
    aligned: bool,
    as_recorded: bool = False,
) -> list[str]:
    """What the reports of the chosen ranks warn of, as far as it touches the tables that an answer is made from.

    A rank that is left out for lack of a table is warned of too: that may be why it has none. `as_recorded`: whether
    the answer has the rows that cannot be true. Empty if no table is read, as in `info`, which reports all warnings.
    """
    from alltrace.run.manifest import warnings_of

    tables = set(read)
    if not tables:
        return []
    if aligned:
        from alltrace.align.schema import SOURCES

        tables.update(SOURCES)
    texts = [
        (str(w.warning), w.ranks) for w in warnings_of(run.manifest, chosen) if tables.intersection(w.warning.tables)
    ]
    lacking: dict[str, list[int]] = {}
    for rank in chosen:
        for table, columns in rank.lacking.items():
            for column in columns:
                if column == "device" and run.manifest.works_on_host(rank):
                    continue
                if column in read.get(table, ()) and column in _TELLING and (table, column) not in _OPTIONAL:
                    lacking.setdefault(f"no row of `{table}` has a `{column}`, so {_TELLING[column]}", []).append(
                        rank.rank
                    )
    texts += [(text, tuple(ranks)) for text, ranks in lacking.items()]
    notes = [f"{'rank' if len(ranks) == 1 else 'ranks'} {number_ranges(ranks)}: {text}" for text, ranks in texts]
    if any(rank.rows.get("suspects") for rank in chosen) and _is_about_suspects(text for text, _ in texts):
        notes.append(_ON_SUSPECTS_AS_RECORDED if as_recorded else _ON_SUSPECTS)
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [
            f"{len(notes) - _MOST_NOTES} more warnings concern the data used; `alltrace info` lists them"
        ]
    return notes


def note_on_empty(recipe: Question) -> str:
    """The note for an answer without rows if its recipe has no note."""
    return f"nothing in {_listed(list(recipe.tables), 'or')} matches what {recipe.name} lists, so the answer is empty"


def _has(recipe: Question, run: Run, rank: RankRecord, group: Sequence[str]) -> bool:
    if recipe.of_hosts and "kernels" in group and run.manifest.works_on_host(rank):
        return True
    return any(run.has(rank, t) or (recipe.host_samples and t == "gpu_metrics" and run.is_sampled(rank)) for t in group)


def _notes(group: Sequence[str], lacking: Sequence[int], chosen: int, consequence: str) -> list[str]:
    if not lacking:
        return []

    if len(lacking) == chosen:
        who, whose = "no rank has", "the"
    elif len(lacking) == 1:
        who, whose = f"rank {lacking[0]} has no", "its"
    else:
        who, whose = f"ranks {number_ranges(lacking)} have no", "their"
    events = _joined([f"no {EVENTS[t]}" for t in group], "and")
    return [f"{who} {_listed(group, 'or')}: {whose} reports hold {events}, so {consequence}"]


def _listed(tables: Sequence[str], word: str) -> str:
    return _joined([f"`{t}`" for t in tables], word)


def _joined(words: Sequence[str], word: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {word} {words[-1]}"
