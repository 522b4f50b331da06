"""The parts of an export as tasks of processes or of a cluster."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from alltrace.engine.tasks import default_jobs, remote, run_tasks
from alltrace.export.selection import SentSelection

_Result = TypeVar("_Result")
_ROWS_WORTH_A_PROCESS = 1_000_000
_SEEN = "seen"


def results_of(
    work: Callable[[Any, Callable[[int], None]], _Result],
    items: Sequence[Any],
    sent: SentSelection,
    jobs: int | None,
    folder: Path | None = None,
) -> list[_Result]:
    """`work(item, advance)` of each item, in order."""
    # `work`: a module-level function, or an object, that is sent to each process once. `folder`: where the tasks
    # write; workers of a cluster must see it.
    needs = list(sent.needs)
    if folder is not None:
        (folder / _SEEN).touch()
        needs.append(folder / _SEEN)
    if jobs is None and not remote():
        chosen = sent.selection
        rows = sum(rank.rows.get(table, 0) for rank in chosen.ranks for table in chosen.tables)
        jobs = default_jobs() if rows >= _ROWS_WORTH_A_PROCESS else 1
    outcomes = sorted(run_tasks(work, items, jobs=jobs, needs=needs), key=lambda outcome: outcome.index)
    return [outcome.get() for outcome in outcomes]
