"""The report of a run of 1,024 ranks: its size, and what writing it takes once the run is imported."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from benchmarks.measure import ALLTRACE, run_once

_RANKS = 1024


def run(_runs: int) -> list[str]:
    """Rows of the table: what, against, ratio, figures. One run: the figures of such a run differ little."""
    from alltrace.synth import write_run

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_run("tiny", folder / "reports", ranks=_RANKS, hosts=_RANKS // 8, steps=6, ideal=True)
        imported = [*ALLTRACE, "import", str(folder / "reports"), "-o", str(folder / "run")]
        subprocess.run(imported, check=True, stderr=subprocess.DEVNULL)
        command = [*ALLTRACE, "report", str(folder / "run"), "-o", str(folder / "report.html")]
        first, again = run_once(command), run_once(command)
        size = (folder / "report.html").stat().st_size
    return [
        f"| report of {_RANKS:,} ranks | - | - | {size / 1e6:.1f} MB |",
        f"| the same, clocks not yet aligned | - | - | {first.cpu_s:.0f} CPU s, {first.peak_mb:.0f} MB |",
        f"| the same, clocks aligned | - | - | {again.cpu_s:.0f} CPU s, {again.peak_mb:.0f} MB |",
    ]
