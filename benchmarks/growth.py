"""How work grows with ranks: `python -m benchmarks.growth [--clocks] [--ranks 128 256 512] [--scenarios NAME...]`.

Runs with few events per rank are simulated and imported once. Each stage then runs as a separate command with one
process, from its beginning: the import, the alignment, the page's levels of detail, and questions; these once more with
each rank's part stored, and `diagnose` with stored findings. The power is that with which CPU time grows from the
fewest to the most ranks; the start of Python is in it. `--clocks` measures the fit of clocks alone, in this process:
jobs of `benchmarks.accuracy_clocks` with 8 steps, with and without monotonic stamps. `tools/make_growth_chart.py` draws
the table in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from alltrace.align.clocks import solve
from benchmarks.accuracy_clocks import Job, errors_ns, simulate
from benchmarks.data import made_run
from benchmarks.measure import ALLTRACE, Taken, forget, median, run_once
from benchmarks.processes import exponent

if TYPE_CHECKING:
    from pathlib import Path

SCENARIOS = ("healthy", "pipeline", "sharded", "experts")
STAGES = {
    "import": (None, ()),
    "alignment": ("info", ("align", "operations")),
    "levels of detail": (None, ("tiles",)),
    "diagnose": ("diagnose", ("findings",)),
    "diagnose, parts kept": ("diagnose", ("findings/diagnose.arrow",)),
    "diagnose, kept": ("diagnose", ()),
    "whatif": ("whatif", ("findings",)),
    "whatif, parts kept": ("whatif", ()),
    "critical-path, parts kept": ("critical-path", ()),
    "stragglers, parts kept": ("stragglers", ()),
}
"""The verb of each stage, and what of the run is removed before it; in this order."""

_TILES = """
import sys
from pathlib import Path
from alltrace.align.store import aligned
from alltrace.run.store import Run
from alltrace.tiles.build import pyramid
run = Run(Path(sys.argv[1]))
aligned(run)
pyramid(run, jobs=1)
"""
_RANKS_OF_A_HOST = 8


def small_ranks(scenario: str, ranks: int, steps: int) -> Path:
    """A run of `scenario` with about a thousand events per rank, with separate files for each rank."""
    name, hosts = f"growth-{scenario}-{ranks}-{steps}", max(ranks // _RANKS_OF_A_HOST, 1)
    return made_run(name, scenario, ranks=ranks, hosts=hosts, steps=steps, layers=4, kernels_per_layer=4)


def measured(run: Path, stage: str, runs: int) -> Taken:
    """What a stage takes, with one process: medians of several runs, and the largest peak."""
    verb, made = STAGES[stage]
    again = run.with_name("again")
    command = [*ALLTRACE, verb or "", str(run), "--jobs", "1"]
    if stage == "import":
        command = [*ALLTRACE, "import", str(run.with_name("reports")), "-o", str(again), "--jobs", "1"]
    elif verb is None:
        command = [sys.executable, "-c", _TILES, str(run)]
    taken = []
    for _ in range(runs):
        forget(run, *made)
        taken.append(run_once(command))
        forget(again, "")
    return Taken(median([t.wall_s for t in taken]), median([t.cpu_s for t in taken]), max(t.peak_mb for t in taken))


def row(scenario: str, stage: str, ranks: list[int], taken: list[Taken]) -> str:
    """A row of the table."""
    cells = [f"{t.cpu_s:.1f} CPU s, {t.peak_mb:.0f} MB" for t in taken]
    power = exponent((ranks[0], ranks[-1]), (taken[0].cpu_s, taken[-1].cpu_s))
    return f"| `{scenario}` | {stage} | {' | '.join(cells)} | {power:.2f} |"


def clocks(ranks: list[int]) -> list[str]:
    """The rows of the fit of clocks: CPU seconds, and the largest error against the truth."""
    rows = []
    for monotonic in (False, True):
        taken, cells = [], []
        for count in ranks:
            job = simulate(Job(hosts=count // _RANKS_OF_A_HOST, steps=8, layers=2, monotonic=monotonic))
            began = time.process_time()
            solution = solve(job.evidence, job.ranks)
            taken.append(time.process_time() - began)
            cells.append(f"{taken[-1]:.2f} CPU s, {errors_ns(job, solution).max() / 1e3:.1f} us")
        power = exponent((ranks[0], ranks[-1]), (taken[0], taken[-1]))
        rows.append(
            f"| clocks | {'with' if monotonic else 'without'} monotonic stamps | {' | '.join(cells)} | {power:.2f} |"
        )
    return rows


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[128, 256, 512], help="numbers of ranks, two at least")
    parser.add_argument(
        "--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), help="what is simulated; default: all"
    )
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES), help="stages; default: all")
    parser.add_argument("--steps", type=int, default=6, help="training steps of each run")
    parser.add_argument("--runs", type=int, default=1, help="runs of each")
    parser.add_argument("--clocks", action="store_true", help="the fit of clocks alone")
    args = parser.parse_args()
    if len(set(args.ranks)) < 2:
        parser.error("--ranks needs two numbers at least")
    ranks = sorted(set(args.ranks))
    print("| scenario | stage | " + " | ".join(f"{n} ranks" for n in ranks) + " | power |")
    print("|---|---|" + "---|" * (len(ranks) + 1))
    if args.clocks:
        print("\n".join(clocks(ranks)))
        return
    for scenario in args.scenarios:
        folders = [small_ranks(scenario, n, args.steps) for n in ranks]
        for stage in args.stages:
            print(row(scenario, stage, ranks, [measured(folder, stage, args.runs) for folder in folders]), flush=True)


if __name__ == "__main__":
    main()
