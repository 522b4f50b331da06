"""Memory of each question: `python -m benchmarks.rank_memory [--millions 1 5] [--recipes diagnose launches ...]`.

The rank has as many million kernels, three times as many calls and a third as many ranges. Each question is a process
with the recipe's defaults, on a run that was aligned before; those that refuse the run are left out. The table is
sorted by memory.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import TYPE_CHECKING

from alltrace.recipes.registry import groups
from benchmarks.data import made_run
from benchmarks.measure import ALLTRACE, Taken, forget, run_once

if TYPE_CHECKING:
    from pathlib import Path

_STEPS_OF_A_MILLION = 5
_OTHER_INPUTS = ("logs", "ncu")


def rank_of(millions: int) -> Path:
    """A run of one rank with so many million kernels."""
    return made_run(f"rank-{millions}", "bench", steps=_STEPS_OF_A_MILLION * millions, gpu_metrics_hz=0)


def measured(run: Path, recipe: str) -> Taken | None:
    """What a question takes; None if it cannot be asked of the run."""
    forget(run, "findings")
    command = [*ALLTRACE, "recipe", recipe, str(run), "--jobs", "1", "--format", "csv"]
    try:
        return run_once(command)
    except SystemExit:
        return None


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rank_memory", description=__doc__)
    parser.add_argument("--millions", type=int, nargs="+", default=[1, 5], help="kernels of the rank, in millions")
    parser.add_argument(
        "--recipes", nargs="+", default=[n for g, names in groups().items() if g not in _OTHER_INPUTS for n in names]
    )
    args = parser.parse_args()
    sizes = sorted(set(args.millions))
    runs = [rank_of(millions) for millions in sizes]
    for run in runs:
        run_once([*ALLTRACE, "info", str(run)])
    rows = []
    for recipe in args.recipes:
        taken = [t for run in runs if (t := measured(run, recipe)) is not None]
        if len(taken) == len(runs):
            cells = [f"{t.cpu_s:.1f} CPU s, {t.peak_mb:,.0f} MB" for t in taken]
            more = [
                (b.peak_mb - a.peak_mb) / (n - m)
                for (a, b), (m, n) in zip(pairwise(taken), pairwise(sizes), strict=True)
            ]
            rows.append(
                (taken[-1].peak_mb, f"| `{recipe}` | {' | '.join([*cells, *(f'{m:,.0f} MB' for m in more)])} |")
            )
    between = "".join(f" from {m} to {n} M, for each million |" for m, n in pairwise(sizes))
    print("| question |" + "".join(f" {m} M kernels |" for m in sizes) + between)
    print("|---|" + "---|" * (2 * len(sizes) - 1))
    print("\n".join(row for _, row in sorted(rows, reverse=True)))


if __name__ == "__main__":
    main()
