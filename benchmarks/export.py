"""A run to a Paraver trace, in CPU seconds for a million rows and in memory, against nsys2prv on a smaller report of the same kind.

nsys2prv is run as a program: ALLTRACE_NSYS2PRV names it, and it calls nsys, which must be on PATH; without it ours alone is
measured.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.data import calls_report, sixteen_ranks, small_report
from benchmarks.measure import median, run_once

_ALLTRACE = (sys.executable, "-m", "alltrace.cli.main")


def run(runs: int) -> list[str]:
    """Rows of the table: what, against, ratio, figures."""
    with tempfile.TemporaryDirectory() as folder:
        small, ours, _ = _measure(small_report(), Path(folder), runs)
        rows, large, peak = _measure(calls_report(), Path(folder), runs)
        found = []
        theirs = _nsys2prv(Path(folder))
        if theirs is not None:
            cpu, memory = theirs[0] / small * 1e6, theirs[1]
            figures = f"{large:.2f} against {cpu:.0f} CPU s for a million rows; {rows:,} against {small:,} rows"
            found.append(f"| export to .prv | nsys2prv | {cpu / large:.0f} | {figures} |")
            found.append(
                f"| export to .prv, the same {small:,} rows | nsys2prv | {cpu / ours:.0f} | {ours:.2f} against {cpu:.0f} |"
            )
            found.append(f"| export to .prv, peak memory | nsys2prv | - | {peak:.0f} MB against {memory:.0f} MB |")
        found = found or [f"| export to .prv | - | - | {large:.2f} CPU s for a million rows, {peak:.0f} MB, {rows:,} rows |"]
        return [*found, _sixteen(Path(folder))]


def _sixteen(folder: Path) -> str:
    """All of a run, compressed, in one process; the alignment is made before."""
    from alltrace.api import OpenRun

    opened = OpenRun(sixteen_ranks())
    opened.aligned()
    rows = sum(sum(r.rows.values()) for r in opened.ranks)
    taken = run_once([*_ALLTRACE, "export", "paraver", str(opened.path), "-o", str(folder / "out.prv.gz")])
    size = (folder / "out.prv.gz").stat().st_size / 1e6
    figures = f"{taken.cpu_s:.0f} CPU s, {taken.wall_s:.0f} s, {taken.peak_mb:.0f} MB; {rows:,} rows, {size:.0f} MB of .prv.gz"
    return f"| export to .prv.gz, 16 ranks x 1 M events | - | - | {figures} |"


def _measure(report: Path, folder: Path, runs: int) -> tuple[int, float, float]:
    """Rows, CPU seconds for a million of them, and the peak in MB; the import is not counted."""
    store = folder / report.stem
    run_once([*_ALLTRACE, "import", str(report), "-o", str(store)])
    from alltrace.api import OpenRun

    opened = OpenRun(store)
    opened.aligned()
    rows = sum(sum(r.rows.values()) for r in opened.ranks)
    taken = [run_once([*_ALLTRACE, "export", "paraver", str(store), "-o", str(folder / "out.prv")]) for _ in range(runs)]
    return rows, median([t.cpu_s for t in taken]) / rows * 1e6, max(t.peak_mb for t in taken)


def _nsys2prv(folder: Path) -> tuple[float, float] | None:
    """CPU seconds and peak in MB of nsys2prv on the small report; None where there is none."""
    tool = os.environ.get("ALLTRACE_NSYS2PRV")
    if not tool or shutil.which("nsys") is None:
        return None
    shutil.copyfile(small_report(), folder / "r.sqlite")
    (folder / "r.nsys-rep").touch()
    command = [str(Path(tool).absolute()), "-t", "cuda_api_trace,nvtx_pushpop_trace", "r.nsys-rep", "theirs"]
    code = (
        "import resource,subprocess,sys;r=subprocess.run(sys.argv[1:],capture_output=True);"
        "u=resource.getrusage(resource.RUSAGE_CHILDREN);print(u.ru_utime+u.ru_stime,u.ru_maxrss/1024);sys.exit(r.returncode)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], cwd=folder, stdout=subprocess.PIPE, check=True)
    cpu, peak = (float(x) for x in done.stdout.split())
    return cpu, peak
