"""Runs the benchmarks and prints a Markdown table. `python -m benchmarks [--runs N] [--record] [SUITE...]`.

`--record` also writes the rows of each suite into `docs/benchmarks.md`; `--stale` marks those that are older than their
code.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from benchmarks import (
    across,
    capture,
    checks,
    export,
    history,
    importing,
    kineto,
    logs,
    memory,
    ncu,
    questions,
    recipes,
    reporting,
)
from benchmarks.recorded_rows import HEAD, PAGE, changed_on, machine, marked, suites_of, with_rows

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
    parser.add_argument(
        "--record", action="store_true", help="write the rows of each suite into docs/benchmarks.md too"
    )
    parser.add_argument(
        "--stale", action="store_true", help="mark the rows there that are older than their code, and run nothing"
    )
    args = parser.parse_args()
    if args.stale:
        page = PAGE.read_text(encoding="utf-8")
        text, old = marked(page, {suite: changed_on(suite) for suite in suites_of(page)})
        PAGE.write_text(text, encoding="utf-8")
        print(f"older than their code: {', '.join(old) or 'none'}")
        return
    for name in args.suites:
        if name not in SUITES:
            parser.error(f"unknown suite {name!r}; expected one of {', '.join(SUITES)}")
    if args.runs < 1:
        parser.error(f"--runs must be at least 1; {args.runs} was given")
    where = machine()
    print(f"{where}\n\n" + "\n".join(HEAD))
    for name in args.suites or [s for s in SUITES if s not in ("align", "sum")]:  # which others have
        rows = []
        for row in SUITES[name](args.runs):
            rows.append(row)
            print(row, flush=True)
        if args.record:
            page = PAGE.read_text(encoding="utf-8")
            PAGE.write_text(with_rows(page, name, where, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
