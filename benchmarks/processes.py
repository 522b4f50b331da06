"""What processes gain across ranks: `python -m benchmarks.processes [--ranks 64 256 1024] [--dask]`.

Runs of equal ranks, 20 k events each, are simulated and imported once. Every verb then runs as a separate command: with
one process, with two, with the default number and, with `--dask`, on a Dask cluster of two workers. The alignment comes
first, each time from its beginning; no verb finds kept parts of ranks. At the end are the exponents with which CPU time
grows with the ranks.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from math import log
from typing import TYPE_CHECKING, Any

from benchmarks.data import made_run
from benchmarks.measure import ALLTRACE, Taken, forget, median, run_once

if TYPE_CHECKING:
    from pathlib import Path

VERBS = ("info", "collectives", "stragglers", "critical-path", "whatif", "efficiency", "diagnose")
"""In this order; `info` makes the alignment."""

_RANKS_OF_A_HOST = 8
_MANY = 1_024
"""The number of ranks from which a command runs once."""


def equal_ranks(ranks: int) -> Path:
    """A data parallel run with 25 steps: 9,300 kernels and 9,450 calls on each rank, with files for each rank."""
    return made_run(f"processes{ranks}", "healthy", ranks=ranks, hosts=max(ranks // _RANKS_OF_A_HOST, 1), steps=25)


def ways(dask: str | None) -> dict[str, tuple[str, ...]]:
    """The ways to run a verb, with their options."""
    found = {"one": ("--jobs", "1"), "two": ("--jobs", "2"), "chosen": ()}
    return found if dask is None else {**found, "dask": ("--dask", dask)}


def measured(run: Path, verb: str, options: dict[str, tuple[str, ...]], runs: int) -> dict[str, Taken]:
    """The time of a verb in each way, measured alternately; the medians of several runs."""
    taken: dict[str, list[Taken]] = {name: [] for name in options}
    for _ in range(runs):
        for name, given in options.items():
            forget(run, *(("align", "operations") if verb == "info" else ("findings",)))
            taken[name].append(run_once([*ALLTRACE, verb, str(run), *given, "--format", "json"]))
    return {
        name: Taken(median([t.wall_s for t in of]), median([t.cpu_s for t in of]), max(t.peak_mb for t in of))
        for name, of in taken.items()
    }


def row(ranks: int, verb: str, taken: dict[str, Taken]) -> str:
    """A row of the table: how many times faster than one process each way is, and how many times the CPU time."""
    one = taken["one"]
    cells = [f"{one.wall_s:.1f} s, {one.cpu_s:.1f} CPU s, {one.peak_mb:.0f} MB"]
    for name in list(taken)[1:]:
        way = taken[name]
        # the workers of a cluster are not processes of the command
        cpu = "" if name == "dask" else f", {way.cpu_s / one.cpu_s:.2f} of its CPU time"
        cells.append(f"{one.wall_s / way.wall_s:.2f} times as fast{cpu}")
    return f"| {ranks} | `{verb}` | {' | '.join(cells)} |"


def exponent(ranks: tuple[int, int], cpu_s: tuple[float, float]) -> float:
    """The power of the number of ranks that CPU time grows with between two runs."""
    return log(cpu_s[1] / cpu_s[0]) / log(ranks[1] / ranks[0])


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, _MANY], help="numbers of ranks")
    parser.add_argument("--verbs", nargs="+", choices=VERBS, default=list(VERBS), help="verbs; default: all")
    parser.add_argument("--runs", type=int, default=3, help=f"runs of each; with {_MANY} ranks and more one")
    parser.add_argument("--dask", action="store_true", help="on a Dask cluster of two workers too")
    args = parser.parse_args()
    with ExitStack() as stack:
        address = None
        if args.dask:
            from distributed import LocalCluster

            start: Any = LocalCluster
            made = start(
                2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1", memory_limit=0
            )
            address = stack.enter_context(made).scheduler_address
        options = ways(address)
        print("| ranks | verb | one process | " + " | ".join(list(options)[1:]) + " |")
        print("|---|---|" + "---|" * len(options))
        cpu_s: dict[str, list[float]] = {verb: [] for verb in args.verbs}
        for ranks in sorted(args.ranks):
            run = equal_ranks(ranks)
            for verb in args.verbs:
                taken = measured(run, verb, options, 1 if ranks >= _MANY else args.runs)
                cpu_s[verb].append(taken["two"].cpu_s)
                print(row(ranks, verb, taken), flush=True)
        several = sorted(args.ranks)[-2:]
        if len(several) == 2:
            print(f"\nCPU time of two processes from {several[0]} to {several[1]} ranks grows with the power:")
            for verb, of in cpu_s.items():
                print(f"* `{verb}`: {exponent((several[0], several[1]), (of[-2], of[-1])):.2f}")


if __name__ == "__main__":
    main()
