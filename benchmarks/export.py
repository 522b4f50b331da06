"""A run to a Paraver trace, in CPU seconds for a million rows and in memory, against nsys2prv in the same hour.

nsys2prv is run once, on a report of 1.0 M rows, which takes it about a minute of CPU; ours on that report and on one of
4.3 M rows, before it and after it, as other programs may slow the machine down meanwhile. nsys2prv is run as a program:
ALLTRACE_NSYS2PRV names it, and it calls nsys, which must be on PATH; without it ours alone is measured.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.data import calls_report, middle_report, sixteen_ranks
from benchmarks.measure import ALLTRACE, Taken, median, run_once, side_by_side


@dataclass(frozen=True)
class _Export:
    """A run that is exported: its rows, and the command."""

    rows: int
    command: tuple[str, ...]
    path: Path


def run(runs: int) -> list[str]:
    """Rows of the table: what, against, ratio, figures."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        same, large = _prepared(middle_report(), place), _prepared(calls_report(), place)
        run_once(same.command)  # machine code is made and kept
        contenders = {"same": same.command, "large": large.command}
        taken = side_by_side(contenders, runs)
        theirs = _nsys2prv(place)
        if theirs is not None:
            again = side_by_side(contenders, runs)
            taken = {name: [*taken[name], *again[name]] for name in contenders}
        same_s, large_s = (
            median([t.cpu_s for t in taken[n]]) / e.rows * 1e6 for n, e in (("same", same), ("large", large))
        )
        peak = max(t.peak_mb for ts in taken.values() for t in ts)
        lines = f"{large.rows:,} rows, {_lines(large.path):,} lines"
        if theirs is None:
            return [
                f"| export to .prv | - | - | {large_s:.2f} CPU s for a million rows, {peak:.0f} MB; {lines} |",
                _sixteen(place),
            ]
        their_s = theirs.cpu_s / same.rows * 1e6
        million = f"against {their_s:.1f} CPU s for a million rows"
        their_lines = f"{same.rows:,} rows, {_lines(place / 'theirs.prv'):,} lines"
        return [
            (
                f"| export to .prv | nsys2prv | {their_s / large_s:.0f} | {large_s:.2f} {million}; {lines}, against"
                f" {their_lines} |"
            ),
            (
                f"| export to .prv of the same report | nsys2prv | {their_s / same_s:.0f} | {same_s:.2f} {million}; "
                f"{same.rows:,} rows, {_lines(same.path):,} lines, against {their_lines} |"
            ),
            f"| export to .prv, peak memory | nsys2prv | - | {peak:.0f} MB against {theirs.peak_mb:.0f} MB |",
            _sixteen(place),
        ]


def _prepared(report: Path, folder: Path) -> _Export:
    """A report, imported and aligned, which is not measured."""
    from alltrace.api import OpenRun

    store = folder / report.parent.name
    run_once([*ALLTRACE, "import", str(report), "-o", str(store)])
    opened = OpenRun(store)
    opened.aligned()
    path = folder / f"{store.name}.prv"
    return _Export(
        sum(sum(r.rows.values()) for r in opened.ranks),
        (*ALLTRACE, "export", "paraver", str(store), "-o", str(path)),
        path,
    )


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def _sixteen(folder: Path) -> str:
    """All of a run, compressed, in one process; the alignment is made before."""
    from alltrace.api import OpenRun

    opened = OpenRun(sixteen_ranks())
    opened.aligned()
    rows = sum(sum(r.rows.values()) for r in opened.ranks)
    taken = run_once([*ALLTRACE, "export", "paraver", str(opened.path), "-o", str(folder / "out.prv.gz")])
    size = (folder / "out.prv.gz").stat().st_size / 1e6
    figures = (
        f"{taken.cpu_s:.0f} CPU s, {taken.wall_s:.0f} s, {taken.peak_mb:.0f} MB; {rows:,} rows, {size:.0f} MB of"
        " .prv.gz"
    )
    return f"| export to .prv.gz, 16 ranks x 1 M events | - | - | {figures} |"


def _nsys2prv(folder: Path) -> Taken | None:
    """What nsys2prv took for the report of 1.0 M rows; None if there is none."""
    tool = os.environ.get("ALLTRACE_NSYS2PRV")
    if not tool or shutil.which("nsys") is None:
        return None
    shutil.copyfile(middle_report(), folder / "r.sqlite")
    (folder / "r.nsys-rep").touch()
    command = [str(Path(tool).absolute()), "-t", "cuda_api_trace,nvtx_pushpop_trace", "r.nsys-rep", "theirs"]
    code = (
        "import resource,subprocess,sys,time;t=time.perf_counter();r=subprocess.run(sys.argv[1:],capture_output=True);"
        "w=time.perf_counter()-t;u=resource.getrusage(resource.RUSAGE_CHILDREN);"
        "print(w,u.ru_utime+u.ru_stime,u.ru_maxrss/1024);sys.exit(r.returncode)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], cwd=folder, stdout=subprocess.PIPE, check=True)
    return Taken(*(float(x) for x in done.stdout.split()))
