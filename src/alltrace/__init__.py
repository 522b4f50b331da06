"""alltrace: every rank, one trace.

Merges the profiler reports of a distributed GPU run into one time-aligned columnar trace and answers questions over all
ranks. Importing the package is light: the data libraries are imported when a run is opened.

    run = alltrace.open("reports/")
    run.recipe("breakdown").to_arrow()
    run.table("kernels", ranks=[0]).df()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.trace.errors import AlltraceError, InputError, StrictError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from alltrace.api import OpenRun, Result

__version__ = "0.2.0"
__all__ = [
    "AlltraceError", "InputError", "OpenRun", "Result", "StrictError", "UsageError", "__version__", "diff",
    "hang_verdict", "open"
]  # fmt: skip


# the library's one verb
def open(*inputs: str | PathLike[str], cache_dir: str | PathLike[str] | None = None) -> OpenRun:  # noqa: A001
    """Open a run directory; or reports, which are imported into the cache first (see `alltrace.api.open_run`)."""
    from alltrace.api import open_run

    return open_run(*inputs, cache_dir=cache_dir)


def hang_verdict(folder: str | PathLike[str], at_ns: int | None = None) -> Result:
    """Which rank a hanging or dead job waits for, and why, from its files (see `alltrace.api.hang_verdict`)."""
    from alltrace.api import hang_verdict as verdict

    return verdict(folder, at_ns)


def diff(
    run_a: OpenRun,
    run_b: OpenRun,
    *,
    what: str | None = None,
    ranks: Sequence[int] | str | None = None,
    steps: str | None = None,
    skip_warmup: bool = False,
    by_tree: bool = False,
) -> Result:
    """What differs between two runs that are open: whether B is faster, and by what (see `alltrace.api.diff`)."""
    from alltrace import api

    return api.diff(run_a, run_b, what=what, ranks=ranks, steps=steps, skip_warmup=skip_warmup, by_tree=by_tree)


def __getattr__(name: str) -> type[OpenRun | Result]:
    """Load the classes that need the data libraries on first access."""
    if name in ("OpenRun", "Result"):
        from alltrace import api

        loaded: type[OpenRun | Result] = api.OpenRun if name == "OpenRun" else api.Result
        return loaded
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
