"""From reports to an answer: `python -m benchmarks.answer [--ranks 1024] [--steps 25] [--jobs N]`.

A healthy job is simulated, every rank of it, as reports of Nsight Systems. Then come the stages that somebody waits
for, each as a command of its own and from its beginning: the import, the alignment, `diagnose`, and the levels of
detail that the page shows. The table has wall time, CPU time and the peak of the largest process, and their sum. 25
steps are 20 k events a rank, 126 are 100 k, 6 are 5 k.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.data import FOLDER
from benchmarks.measure import ALLTRACE, Taken, folder_bytes, run_once

if TYPE_CHECKING:
    from pathlib import Path

_RANKS_OF_A_HOST = 8
_SIMULATE = """
import sys
from alltrace.synth import write_run
folder, ranks, hosts, steps = sys.argv[1:]
write_run("healthy", folder, ranks=int(ranks), hosts=int(hosts), steps=int(steps), ideal=True)
"""
_LEVELS = """
import sys
from pathlib import Path
from alltrace.align.store import aligned
from alltrace.run.store import Run
from alltrace.tiles.build import pyramid
run = Run(Path(sys.argv[1]))
aligned(run)
pyramid(run, jobs=int(sys.argv[2]) if sys.argv[2] else None)
"""


def simulated_reports(ranks: int, steps: int) -> Path:
    """The folder of the reports, simulated if it is not there."""
    reports = FOLDER / f"answer-{ranks}-{steps}" / "reports"
    if not (reports / "truth.json").is_file():  # in a process of its own, because it takes gigabytes
        hosts = max(ranks // _RANKS_OF_A_HOST, 1)
        subprocess.run([sys.executable, "-c", _SIMULATE, str(reports), str(ranks), str(hosts), str(steps)], check=True)
    return reports


def stages(reports: Path, run: Path, jobs: str) -> dict[str, list[str]]:
    """The command of each stage, in order."""
    with_jobs = ["--jobs", jobs] if jobs else []
    return {
        "import": [*ALLTRACE, "import", str(reports), "-o", str(run), *with_jobs],
        "alignment": [*ALLTRACE, "info", str(run), *with_jobs],
        "`diagnose`": [*ALLTRACE, "diagnose", str(run), *with_jobs],
        "levels of detail": [sys.executable, "-c", _LEVELS, str(run), jobs],
    }


def row(name: str, taken: Taken) -> str:
    """A row of the table."""
    return f"| {name} | {taken.wall_s:.1f} s | {taken.cpu_s:.1f} s | {taken.peak_mb:.0f} MB |"


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answer", description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024, help="ranks of the job")
    parser.add_argument("--steps", type=int, default=25, help="steps of the job; 25 make 20 k events a rank")
    parser.add_argument("--jobs", default="", help="processes; default: as many as the command chooses")
    parser.add_argument("--remove", action="store_true", help="remove the reports and the run afterwards")
    args = parser.parse_args()
    reports = simulated_reports(args.ranks, args.steps)
    run = reports.with_name("run")
    shutil.rmtree(run, ignore_errors=True)
    print(
        f"| {args.ranks} ranks, {args.steps} steps | wall time | CPU time | peak of a process |\n|---|---|---|---|",
        flush=True,
    )
    taken = []
    for name, command in stages(reports, run, args.jobs).items():
        taken.append(run_once(command))
        print(row(name, taken[-1]), flush=True)
    total = Taken(sum(t.wall_s for t in taken), sum(t.cpu_s for t in taken), max(t.peak_mb for t in taken))
    print(row("all", total))
    size = folder_bytes(reports) / 1e6, folder_bytes(run) / 1e6
    print(
        f"\nReports {size[0]:.0f} MB, run {size[1]:.0f} MB, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"
        " at the end."
    )
    if args.remove:
        shutil.rmtree(reports.parent)


if __name__ == "__main__":
    main()
