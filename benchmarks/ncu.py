"""Every metric of real reports of Nsight Compute, against `ncu --import FILE --csv --page raw`, in CPU seconds.

Needs ALLTRACE_DATA (a folder with `ncu/*.ncu-rep`) and ALLTRACE_NSIGHT (a folder with `ncu/ncu`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.measure import median, run_once

_TIMES = 10
_READ = """
import sys, time
from pathlib import Path
from alltrace.readers.ncu.read import read_report
paths = [Path(p) for p in sys.argv[1:]]
read_report(paths[0])
start = time.process_time()
for path in paths: read_report(path)
print(time.process_time() - start)
"""
_VERB = "import sys; from alltrace.cli.main import main; sys.exit(main(sys.argv[1:]))"


def run(runs: int) -> list[str]:
    """Rows of the table: what, against, ratio, figures."""
    tool = Path(os.environ.get("ALLTRACE_NSIGHT", "")) / "ncu" / "ncu"
    folder = Path(os.environ.get("ALLTRACE_DATA", "")) / "ncu"
    reports = sorted(folder.glob("*.ncu-rep"))
    if not tool.is_file() or not reports:
        return [
            "| reports of Nsight Compute | `ncu --import` | - | not measured: set ALLTRACE_NSIGHT and ALLTRACE_DATA |"
        ]
    many = [str(r) for r in reports] * _TIMES
    theirs = []
    ours: dict[str, list[float]] = {"a command for all": [], "a command for one": []}
    for _ in range(runs):
        peers = [run_once([str(tool), "--import", str(r), "--csv", "--page", "raw"]).cpu_s for r in reports]
        theirs.append(sum(peers) / len(reports))
        raw = [sys.executable, "-c", _VERB, "ncu", "--raw", "--format", "csv"]
        ours["a command for all"].append(run_once([*raw, *many]).cpu_s / len(many))
        ours["a command for one"].append(run_once([*raw, str(reports[-1])]).cpu_s)
    peer = median(theirs)
    read = median([_read(many) / len(many) for _ in range(runs)])
    rows = [_row(f"{len(many)} reports read, in one process", read, peer)]
    return rows + [
        _row(f"`alltrace ncu --raw --format csv`, {what}", median(taken), peer) for what, taken in ours.items()
    ]


def _row(what: str, own: float, peer: float) -> str:
    return (
        f"| {what} | `ncu --import`, a command each | {peer / own:.1f} | {1 / own:.1f} against {1 / peer:.1f}"
        " reports/CPU s |"
    )


def _read(paths: list[str]) -> float:
    import subprocess

    done = subprocess.run([sys.executable, "-c", _READ, *paths], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)
