"""Log files read in parallel, a file a task, in the given order. A file that cannot be read is left out and named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from alltrace.trace.errors import InputError
from alltrace.trace.number_text import counted

_Result = TypeVar("_Result")
_WORTH_A_PROCESS = 64 << 20
_NAMED = 8


@dataclass(frozen=True)
class FilesRead(Generic[_Result]):
    """What was read of some files: a result for each file that can be read, in order, and the errors of the others."""

    results: list[_Result]
    errors: list[InputError]

    def require_any(self) -> FilesRead[_Result]:
        """Itself; raises the first error if no file could be read."""
        if self.errors and not self.results:
            raise self.errors[0]
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each file that was left out."""
        rest = len(self.errors) - _NAMED
        more = (f"{counted(rest, 'more file')} left out, which cannot be read",) if rest > 0 else ()
        return (*(f"left out: {error}" for error in self.errors[:_NAMED]), *more)


def read_files(
    read: Callable[[str, Callable[[int], None]], _Result], paths: Sequence[Path], jobs: int | None = None
) -> FilesRead[_Result]:
    """`read(path, advance)`, a function of a module, of each file. Errors not of a file's content are raised."""
    from alltrace.engine.tasks import remote, run_tasks

    named = [str(p.absolute() if remote() else p) for p in paths]
    outcomes = sorted(run_tasks(read, named, jobs=jobs_for(paths, jobs)), key=lambda o: o.index)
    errors = [o.error for o in outcomes if isinstance(o.error, InputError)]
    return FilesRead([o.get() for o in outcomes if not isinstance(o.error, InputError)], errors)


def short_host(host: str) -> str:
    """A host's name without its domain, which logs often lack."""
    return host.partition(".")[0]


def jobs_for(paths: Sequence[Path], jobs: int | None) -> int | None:
    """One process for little text: starting another one takes longer than reading it."""
    small = sum(p.stat().st_size for p in paths if p.is_file()) < _WORTH_A_PROCESS
    return 1 if small and jobs is None else jobs
