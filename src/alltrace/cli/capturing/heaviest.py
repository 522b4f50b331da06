"""`--top N RUN`: the filter for ncu from the kernels that took longest in a run."""

import re

from alltrace.trace.errors import UsageError


def checked_top(top: list[str] | None) -> tuple[int, str] | None:
    """The two values of `--top`. Raises `UsageError`: the first is not a number."""
    if top is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,2}", top[0]):
        raise UsageError(
            f"--top is {top[0]!r}; expected how many kernels, from 1 to 999, and a run, such as --top 5 run"
        )
    return int(top[0]), top[1]


def heaviest(most: int, run: str) -> str:
    """The filter that matches the compute kernels with the largest totals over all ranks of a run."""
    from alltrace.capture.profilers.ncu import filter_of
    from alltrace.cli.command import open_named

    answer = open_named(run).recipe("kernels", kind="compute", names="short").to_pylist()
    return filter_of((str(row["name"]) for row in answer if row["name"]), most)
