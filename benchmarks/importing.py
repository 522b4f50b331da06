"""An SQLite export to a run directory, against pandas, ConnectorX and ADBC writing the same tables to Parquet."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.data import large_report
from benchmarks.measure import ALLTRACE, folder_bytes, median, side_by_side

_PEERS = ("pandas", "connectorx", "adbc")


def run(runs: int) -> list[str]:
    """Rows of the table: what, against, ratio, figures."""
    source = large_report()
    with tempfile.TemporaryDirectory() as folder:
        return _compare(source, Path(folder), runs)


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
        figures = (
            f"{ours:.2f} s against {theirs:.2f} s; CPU {own_cpu:.2f} s against {cpu:.2f} s, {cpu / own_cpu:.1f} times"
        )
        rows.append(f"| import, whole process from its start | {name} | {theirs / ours:.1f} | {figures} |")
    peak = max(t.peak_mb for t in taken["alltrace"])
    share = folder_bytes(output) / source.stat().st_size
    rows.append(f"| import, peak memory | - | - | {peak:.0f} MB for a file of {source.stat().st_size / 1e6:.0f} MB |")
    rows.append(f"| run directory | the SQLite file | {1 / share:.1f} | {100 * share:.1f} % of it |")
    return rows


def _peer(name: str, source: Path, folder: Path) -> list[str]:
    """A peer's command, by the Python of ALLTRACE_PEERS_PYTHON, if set: PyArrow loads pandas where it finds it."""
    python = os.environ.get("ALLTRACE_PEERS_PYTHON", sys.executable)
    return [python, "-m", "benchmarks.peer_import", name, str(source), str(folder / name)]
