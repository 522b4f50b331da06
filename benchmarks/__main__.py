"""Runs the benchmarks and prints a Markdown table. `python -m benchmarks [--runs N] [SUITE...]`."""

from __future__ import annotations

import argparse
import os
import platform
from typing import TYPE_CHECKING

from benchmarks import across, capture, checks, export, history, importing, kineto, logs, memory, ncu, questions, recipes, reporting

if TYPE_CHECKING:
    from collections.abc import Callable

SUITES: dict[str, Callable[[int], list[str]]] = {
    "across": across.run,
    "align": across.alignment,
    "capture": capture.run,
    "checks": checks.run,
    "import": importing.run,
    "export": export.run,
    "history": history.run,
    "kineto": kineto.run,
    "memory": memory.run,
    "stats": questions.run,
    "recipes": recipes.run,
    "sum": recipes.warm_sum,
    "logs": logs.run,
    "ncu": ncu.run,
    "report": reporting.run,
    "first": questions.first_command,
}


def main() -> None:
    """Run the suites that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; default: all")
    parser.add_argument("--runs", type=int, default=5, help="runs of each command; the medians are printed")
    args = parser.parse_args()
    for name in args.suites:
        if name not in SUITES:
            parser.error(f"unknown suite {name!r}; expected one of {', '.join(SUITES)}")
    if args.runs < 1:
        parser.error(f"--runs must be at least 1; {args.runs} was given")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print("| what | against | ratio | figures |\n|---|---|---|---|")
    for name in args.suites or [s for s in SUITES if s not in ("align", "sum")]:  # which others have
        for row in SUITES[name](args.runs):
            print(row, flush=True)


if __name__ == "__main__":
    main()
