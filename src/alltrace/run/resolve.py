"""From what a user names to a run directory."""

from collections.abc import Sequence
from pathlib import Path

from alltrace.run.import_progress import Watcher
from alltrace.run.manifest import is_run
from alltrace.trace.errors import UsageError
from alltrace.trace.kernel_rules import KernelRules


def given_run(inputs: Sequence[str]) -> Path | None:
    """The run directory that `inputs` are, where they are one and nothing else."""
    if len(inputs) != 1 or not is_run(Path(inputs[0])):
        return None
    return Path(inputs[0])


def resolve(
    inputs: Sequence[str],
    *,
    cache_dir: Path | None = None,
    jobs: int | None = None,
    strict: bool = False,
    rules: KernelRules | None = None,
    watcher: Watcher | None = None,
    rank_from: str | None = None,
) -> Path:
    """The run directory that `inputs` name: itself, or one in the cache made from reports, folders, patterns and URLs.

    `rank_from`: a regular expression with a group `rank` that finds the rank of a report in its path. Raises
    `InputError`: an input does not exist, no report can be read, or the cache cannot be used. Raises `StrictError`:
    with `strict`, a report cannot be read. Raises `UsageError`: there is no input, or a run directory among others.
    """
    if not inputs:
        raise UsageError("no run was given; expected a run directory or reports")
    run = given_run(inputs)
    if run is not None:
        return run
    from alltrace.run.cache import imported_once  # it loads the readers

    return imported_once(
        inputs, cache_dir=cache_dir, jobs=jobs, strict=strict, rules=rules, watcher=watcher, rank_from=rank_from
    )
