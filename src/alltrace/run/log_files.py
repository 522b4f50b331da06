"""Log files read in parallel, a file a task, in the given order."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_Result = TypeVar("_Result")
_WORTH_A_PROCESS = 64 << 20


def read_files(
    read: Callable[[str, Callable[[int], None]], _Result], paths: Sequence[Path], jobs: int | None = None
) -> list[_Result]:
    """`read(path, advance)` of each file.

    Args:
        read: A module-level function of a path and `advance(bytes)`.
        paths: The files.
        jobs: The most processes; None for one process for little text, else for the number of processors.

    Raises:
        InputError: A file cannot be read.
    """
    from alltrace.engine.tasks import remote, run_tasks

    named = [str(p.absolute() if remote() else p) for p in paths]
    outcomes = sorted(run_tasks(read, named, jobs=jobs_for(paths, jobs)), key=lambda o: o.index)
    return [outcome.get() for outcome in outcomes]


def short_host(host: str) -> str:
    """A host's name without its domain, which logs often lack."""
    return host.partition(".")[0]


def jobs_for(paths: Sequence[Path], jobs: int | None) -> int | None:
    """One process for little text: starting another one takes longer than reading it."""
    small = sum(p.stat().st_size for p in paths if p.is_file()) < _WORTH_A_PROCESS
    return 1 if small and jobs is None else jobs
