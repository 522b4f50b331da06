"""The reports of `stats`, against `nsys stats` on the same file: from a run, and from the file (cold).

Of a run, the first answer is worked out (`--no-kept`); the same question asked again is answered from what was kept of the first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.data import large_report, ranges_report
from benchmarks.measure import ALLTRACE, median, run_once, side_by_side

_SETTLED_S = 2.5  # answers are kept of runs that did not change just now
_SUMS = ("cuda_gpu_kern_sum", "cuda_api_sum", "nvtx_sum")


def nsys() -> str | None:
    """The real nsys, by ALLTRACE_NSIGHT or PATH."""
    root = os.environ.get("ALLTRACE_NSIGHT")
    if root:
        return str(Path(root) / "nsys" / "target-linux-x64" / "nsys")
    return shutil.which("nsys")


def run(runs: int) -> list[str]:
    """Rows of the table: what, against, ratio, figures."""
    tool = nsys()
    if tool is None:
        return ["| stats | nsys stats | - | no nsys: set ALLTRACE_NSIGHT |"]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large, ranges = _copied(large_report(), folder), _copied(ranges_report(), folder)
        for source in (large, ranges):
            _alltrace("import", str(source), "-o", str(folder / source.stem))
        whole: dict[str, list[float]] = {}
        for report in _SUMS:
            rows += _compare(tool, report, large, folder, runs, cold=True, whole=whole)
        theirs = sum(whole.pop("nsys"))
        for name, walls in whole.items():
            figures = f"{sum(walls):.2f} s against {theirs:.2f} s"
            rows.append(f"| the three on large, {name} | nsys stats | {theirs / sum(walls):.1f} | {figures} |")
        rows += _compare(tool, "nvtx_sum", ranges, folder, runs, cold=True)
        rows += _compare(tool, "nvtx_pushpop_trace", ranges, folder, max(3, runs // 3), cold=False)
        rows += _compare(tool, "nvtx_gpu_proj_trace", large, folder, max(3, runs // 3), cold=False)
    return rows


def _copied(source: Path, folder: Path) -> Path:
    """A copy, because nsys writes beside what it reads."""
    copy = folder / source.name.replace("bench", source.parent.name)
    shutil.copy(source, copy)
    return copy


def _alltrace(*arguments: str) -> None:
    subprocess.run([*ALLTRACE, *arguments], check=True, stderr=subprocess.DEVNULL)


def _compare(
    tool: str,
    report: str,
    source: Path,
    folder: Path,
    runs: int,
    *,
    cold: bool,
    whole: dict[str, list[float]] | None = None,
) -> list[str]:
    """The rows of one report; the medians are added to `whole`."""
    ours = [*ALLTRACE, "stats", report]
    cache = folder / "cache"
    contenders = {
        "nsys": [tool, "stats", "-q", "-r", report, "--format", "csv", str(source)],
        "warm, first answer": [*ours, str(folder / source.stem), "--format", "csv", "--no-kept"],
    }
    again = "warm, asked again (answer kept)"
    if report in _SUMS:
        time.sleep(_SETTLED_S)
        contenders[again] = [*ours, str(folder / source.stem), "--format", "csv", "--cache-dir", str(folder / "answers")]
        run_once(contenders[again])  # this one is worked out, and kept
    if cold:
        contenders["cold"] = [*ours, str(source), "--format", "csv", "--cache-dir", str(cache)]
    taken = side_by_side(contenders, runs, {"cold": lambda: shutil.rmtree(cache, ignore_errors=True)})
    theirs = median([t.wall_s for t in taken["nsys"]])
    their_cpu = median([t.cpu_s for t in taken["nsys"]])
    rows = []
    for name, all_taken in taken.items():
        if whole is not None:
            whole.setdefault(name, []).append(median([t.wall_s for t in all_taken]))
        if name != "nsys":
            wall, cpu = median([t.wall_s for t in taken[name]]), median([t.cpu_s for t in taken[name]])
            figures = f"{wall:.2f} s against {theirs:.2f} s; CPU {cpu:.2f} s against {their_cpu:.2f} s"
            rows.append(f"| {report} on {source.stem.split('_')[0]}, {name} | nsys stats | {theirs / wall:.1f} | {figures} |")
    if report in _SUMS:
        wall = median([_loaded(report, folder / source.stem) for _ in range(runs)])
        what = f"{report} on {source.stem.split('_')[0]}, warm, worked out in a process that has loaded its code"
        rows.append(f"| {what} | nsys stats, whole process | {theirs / wall:.1f} | {wall:.3f} s against {theirs:.2f} s |")
    return rows


def _loaded(report: str, run: Path) -> float:
    """Seconds that an answer takes without the start of Python and its libraries."""
    command = [sys.executable, "-m", "benchmarks.own_answer", report, str(run)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split()[0])


def first_command() -> list[str]:
    """What the first command on a fresh installation costs over a warm one: Numba compiles."""
    source = large_report()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        ours = [*ALLTRACE, "breakdown", str(source), "--cache-dir", f"{folder}/cache"]
        first = run_once(ours, {"NUMBA_CACHE_DIR": f"{folder}/numba"})
        shutil.rmtree(f"{folder}/cache")
        warm = run_once(ours, {"NUMBA_CACHE_DIR": f"{folder}/numba"})
        more = first.cpu_s - warm.cpu_s
        rows.append(
            f"| first command ever, over a warm one | - | - | {more:.1f} CPU s more ({first.cpu_s:.1f} against {warm.cpu_s:.1f}) |"
        )
    return rows
