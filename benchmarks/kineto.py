"""A trace of the PyTorch profiler to a run, next to `orjson.loads` and `json.loads`; its summaries, and `diagnose`.

`ALLTRACE_KINETO` names another trace than the simulated one.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from benchmarks.data import kineto_trace
from benchmarks.measure import ALLTRACE, median, run_once, side_by_side

_TIMES = 4
_RECIPES = (
    "breakdown",
    "overlap",
    "kernels",
    "idle",
    "launches",
    "launches --by stream",
    "memory-bandwidth",
    "kernel-sequences",
    "operators",
)


def run(runs: int) -> list[str]:
    """Rows of the table: what, against, ratio, figures; CPU seconds and peak memory per million events."""
    given = os.environ.get("ALLTRACE_KINETO")
    source = Path(given) if given else kineto_trace()
    with tempfile.TemporaryDirectory() as folder:
        rows = _compare(source, Path(folder), runs)
        return rows if given else [*rows, *_larger(source, Path(folder))]


def _compare(source: Path, folder: Path, runs: int) -> list[str]:
    output = folder / "run"
    opened = "gzip" if source.name.endswith(".gz") else "builtins"
    load = "import sys,{0},{1};d={0}.loads({1}.open(sys.argv[1],'rb').read())"
    peers = {n: [sys.executable, "-c", load.format(n, opened), str(source)] for n in ("orjson", "json") if find_spec(n)}

    def clear() -> None:
        shutil.rmtree(output, ignore_errors=True)

    contenders = {"alltrace": [*ALLTRACE, "import", str(source), "-o", str(output), "--jobs", "1"], **peers}
    taken = side_by_side(contenders, runs, {"alltrace": clear})
    asked = side_by_side({name: [*ALLTRACE, "recipe", *name.split(), str(output)] for name in _RECIPES}, 1)
    millions = _events(output) / 1e6
    rows = []
    cpu = {name: median([t.cpu_s for t in found]) / millions for name, found in taken.items()}
    peak = {name: max(t.peak_mb for t in found) / millions for name, found in taken.items()}
    for name in peers:
        ours = f"{cpu['alltrace']:.2f} s CPU and {peak['alltrace']:.0f} MB per million events"
        what = f"Kineto to a run directory, {millions:.2f} M rows"
        ratio = cpu[name] / cpu["alltrace"]
        rows.append(
            f"| {what} | {name}.loads alone | {ratio:.1f} | {ours} against {cpu[name]:.2f} s and {peak[name]:.0f} MB |"
        )
    total = sum(t[0].cpu_s for t in asked.values())
    slowest = max(asked, key=lambda n: asked[n][0].cpu_s)
    rows.append(
        f"| {len(asked)} summaries of it, each a process | - | - | {total / millions:.2f} s CPU per million events,"
        f" {slowest} the most with {asked[slowest][0].cpu_s:.2f} s and {max(t[0].peak_mb for t in asked.values()):.0f}"
        " MB |"
    )
    return [*rows, _diagnosed(output)]


def _diagnosed(run: Path) -> str:
    taken, millions = run_once([*ALLTRACE, "diagnose", str(run)]), _events(run) / 1e6
    figures = f"{taken.cpu_s / millions:.2f} s CPU per million events, {taken.peak_mb:.0f} MB in all"
    return f"| `diagnose` of a run of Kineto, {millions:.2f} M rows | - | - | {figures} |"


def _larger(source: Path, folder: Path) -> tuple[str, str]:
    """The rows of a trace with the same events several times, which is as many times as large."""
    content = source.read_bytes()
    mark = b'"traceEvents": ['
    begin, end = content.index(mark) + len(mark), content.rindex(b'\n], "traceName"')
    path = folder / "larger.json"
    with path.open("wb") as file:
        file.write(content[:begin])
        for n in range(_TIMES):
            file.write(b"," if n else b"")
            file.write(memoryview(content)[begin:end])
        file.write(content[end:])
    output = folder / "larger"
    taken = run_once([*ALLTRACE, "import", str(path), "-o", str(output), "--jobs", "1"])
    millions = _events(output) / 1e6
    size = path.stat().st_size / 1e9
    imported = (
        f"| Kineto to a run directory, {millions:.2f} M rows, a file of {size:.2f} GB | - | - | "
        f"{taken.cpu_s / millions:.2f} s CPU per million events, {taken.peak_mb:.0f} MB in all |"
    )
    return imported, _diagnosed(output)


def _events(run: Path) -> int:
    """The rows of the run's one rank, without collectives that have a kernel."""
    from alltrace.run.manifest import read_manifest

    (rank,) = read_manifest(run).ranks
    return sum(n for table, n in rank.rows.items() if table != "collectives")
