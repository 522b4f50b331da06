"""An SQLite export to a run directory, against pandas and ConnectorX writing the same tables to Parquet."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.data import large_report
from benchmarks.measure import ALLTRACE, folder_bytes, median, side_by_side

_PEERS = ("pandas", "connectorx")


def run(runs: int) -> list[str]:
    """Rows of the table: what, against, ratio, figures."""
    source = large_report()
    with tempfile.TemporaryDirectory() as folder:
        return [*_compare(source, Path(folder), runs), *_compare_loaded(source, Path(folder), runs)]


def _compare(source: Path, folder: Path, runs: int) -> list[str]:
    output = folder / "run"
    peers = {name: _peer(name, source, folder) for name in _PEERS}

    def clear() -> None:
        shutil.rmtree(output, ignore_errors=True)

    taken = side_by_side(
        {"alltrace": [*ALLTRACE, "import", str(source), "-o", str(output), "--jobs", "1"], **peers},
        runs,
        {"alltrace": clear},
    )
    ours, own_cpu = median([t.wall_s for t in taken["alltrace"]]), median([t.cpu_s for t in taken["alltrace"]])
    rows = []
    for name in peers:
        theirs, cpu = median([t.wall_s for t in taken[name]]), median([t.cpu_s for t in taken[name]])
        figures = f"{ours:.2f} s against {theirs:.2f} s; CPU {own_cpu:.2f} s against {cpu:.2f} s"
        rows.append(f"| import, whole process from its start | {name} | {theirs / ours:.1f} | {figures} |")
    peak = max(t.peak_mb for t in taken["alltrace"])
    share = folder_bytes(output) / source.stat().st_size
    rows.append(f"| import, peak memory | - | - | {peak:.0f} MB for a file of {source.stat().st_size / 1e6:.0f} MB |")
    rows.append(f"| run directory | the SQLite file | {1 / share:.1f} | {100 * share:.1f} % of it |")
    return rows


def _compare_loaded(source: Path, folder: Path, runs: int) -> list[str]:
    """The same in processes that have loaded their code, each timed by itself: without the start of Python and of libraries."""
    commands = {
        "alltrace": [sys.executable, "-m", "benchmarks.own_import", str(source), str(folder / "loaded")],
        **{name: [*_peer(name, source, folder), "--timed"] for name in _PEERS},
    }
    taken: dict[str, list[list[float]]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            taken[name].append([float(s) for s in subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split()])
    wall, cpu = ({name: median([t[i] for t in times]) for name, times in taken.items()} for i in (0, 1))
    return [
        f"| import, in a process that has loaded its code | {name} | {wall[name] / wall['alltrace']:.1f} "
        f"| {wall['alltrace']:.2f} s against {wall[name]:.2f} s; CPU {cpu['alltrace']:.2f} s against {cpu[name]:.2f} s |"
        for name in _PEERS
    ]


def _peer(name: str, source: Path, folder: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.peer_import", name, str(source), str(folder / name)]
