"""The reports of `stats`, against `nsys stats` on the same file: of a run (warm), and with the import (cold)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.data import large_report, ranges_report
from benchmarks.measure import ALLTRACE, Taken, median, run_in_sequence, run_once, side_by_side

_PACKAGE = Path(__file__).resolve().parents[1] / "src" / "alltrace"
_SUMS = ("cuda_gpu_kern_sum", "cuda_api_sum", "nvtx_sum")
_TOGETHER = (*_SUMS, "cuda_gpu_trace")


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
        rows += _together(tool, large, folder, runs)
        rows += _compare(tool, "nvtx_sum", ranges, folder, runs, cold=True)
        rows += _compare(tool, "nvtx_pushpop_trace", ranges, folder, max(3, runs // 3), cold=False)
        rows += _compare(tool, "nvtx_gpu_proj_trace", large, folder, max(3, runs // 3), cold=False)
    return rows


def _copied(source: Path, folder: Path) -> Path:
    """A copy, because nsys writes next to its input."""
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
        "warm": [*ours, str(folder / source.stem), "--format", "csv"],
    }
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
            figures = (
                f"{wall:.2f} s against {theirs:.2f} s; CPU {cpu:.2f} s against {their_cpu:.2f} s, {their_cpu / cpu:.1f}"
                " times"
            )
            rows.append(
                f"| {report} on {source.stem.split('_')[0]}, {name} | nsys stats | {theirs / wall:.1f} | {figures} |"
            )
    return rows


def _together(tool: str, source: Path, folder: Path, runs: int) -> list[str]:
    """Several reports of a new file: one command of theirs, ours for each, of which the first imports."""
    cache = folder / "cache"
    theirs = [tool, "stats", "-q", "-r", ",".join(_TOGETHER), "--format", "csv", str(source)]
    ours = [[*ALLTRACE, "stats", r, str(source), "--format", "csv", "--cache-dir", str(cache)] for r in _TOGETHER]
    taken: tuple[list[Taken], list[Taken]] = ([], [])
    for _ in range(runs):
        taken[0].append(run_once(theirs))
        shutil.rmtree(cache, ignore_errors=True)
        taken[1].append(run_in_sequence(ours))
    (their_wall, their_cpu), (wall, cpu) = (
        (median([t.wall_s for t in ts]), median([t.cpu_s for t in ts])) for ts in taken
    )
    figures = f"{wall:.2f} s against {their_wall:.2f} s; CPU {cpu:.2f} s against {their_cpu:.2f} s"
    what = f"{', '.join(_TOGETHER)} on {source.stem.split('_')[0]}, together, cold"
    return [f"| {what} | nsys stats | {their_wall / wall:.1f} | {figures} |"]


def first_command(runs: int) -> list[str]:
    """The first command after an install, against the second: nothing is compiled or written but by the installer."""
    source = large_report()
    taken: tuple[list[Taken], list[Taken]] = ([], [])
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            installed = Path(folder, "installed")
            shutil.copytree(_PACKAGE, installed / "alltrace", ignore=shutil.ignore_patterns("__pycache__"))
            subprocess.run([sys.executable, "-m", "compileall", "-q", str(installed)], check=True)  # as pip does
            for times in taken:
                cache = Path(folder, "cache")
                shutil.rmtree(cache, ignore_errors=True)
                command = [*ALLTRACE, "breakdown", str(source), "--cache-dir", str(cache)]
                times.append(run_once(command, {"PYTHONPATH": str(installed)}))
    (first, first_cpu), (warm, warm_cpu) = (
        (median([t.wall_s for t in ts]), median([t.cpu_s for t in ts])) for ts in taken
    )
    figures = f"{first:.2f} s against {warm:.2f} s; CPU {first_cpu:.2f} s against {warm_cpu:.2f} s"
    return [
        f"| `breakdown` of a new export, first command after an install | a warm one | {first / warm:.2f} | {figures} |"
    ]
