"""Questions to a history of 200 runs with 64 ranks each: commands, of the file alone and with the folders of the runs.

One run is simulated, imported and read. The others are its manifest with other reports, hosts and times, and what
history keeps of it with derived numbers: a question to a history opens no run, and one that has not changed is known by
its manifest.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import ALLTRACE, median, run_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.history.store import RunRows

_RUNS = 200
_RANKS = 64
_HOSTS = 8
_CLUSTER = 40  # of this many hosts, each run has eight
_HOUR_NS = 3_600_000_000_000


def run(runs: int) -> list[str]:
    """Rows of the table: what, against, ratio, figures."""
    from alltrace.synth import write_run

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_run(
            "tiny",
            folder / "reports",
            ranks=_RANKS,
            hosts=_HOSTS,
            steps=4,
            faults=("slow-host:hosts=0:factor=1.3",),
            ideal=True,
        )
        command = [*ALLTRACE, "import", str(folder / "reports"), "-o", str(folder / "first")]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        history = folder / "history.duckdb"
        _make(folder, history)
        asked = [*ALLTRACE, "history", "-o", str(history)]
        told = subprocess.run([*asked, str(folder / "runs")], check=True, capture_output=True, text=True).stderr
        if f"0 runs read, {_RUNS} unchanged" not in told:
            raise SystemExit(f"runs that did not change were read: {told[:500]}")
        rows = []
        for what, more in (("the file alone", ()), ("unchanged folders given", (str(folder / "runs"),))):
            for by in ("run", "host", "finding"):
                took = [run_once([*asked, *more, "--by", by]) for _ in range(runs)]
                figures = [median([getattr(t, name) for t in took]) for name in ("wall_s", "cpu_s", "peak_mb")]
                rows.append(
                    f"| history of {_RUNS} runs x {_RANKS} ranks, by {by}, {what} | - | - | "
                    f"{figures[0]:.2f} s, {figures[1]:.2f} CPU s, {figures[2]:.0f} MB |"
                )
        rows.append(f"| the file of that history | - | - | {history.stat().st_size / 1e6:.1f} MB |")
    return rows


def _make(folder: Path, history: Path) -> None:
    """The folders of all runs, and the history that has them."""
    from alltrace.history.run_rows import rows_of
    from alltrace.history.store import open_history
    from alltrace.history.update import kept_of
    from alltrace.run.manifest import Labels, read_manifest, write_manifest
    from alltrace.run.store import Run

    first = read_manifest(folder / "first")
    rows = rows_of(Run(folder / "first"))
    with open_history(history, write=True) as opened:
        for number in range(_RUNS):
            draw = random.Random(number)
            hosts = dict(zip(first.hosts, draw.sample([f"node{n:03}" for n in range(_CLUSTER)], _HOSTS), strict=True))
            place = folder / "runs" / f"run{number}"
            (place / "ranks").mkdir(parents=True)
            derived = replace(
                first,
                reports=tuple(r._replace(content_hash=f"{number}-{r.content_hash}") for r in first.reports),
                ranks=tuple(r._replace(host=hosts[r.host]) for r in first.ranks),
                clocks=tuple(c._replace(host=hosts[c.host]) for c in first.clocks),
                zero_utc_ns=(first.zero_utc_ns or 0) + number * _HOUR_NS,
                labels=Labels(f"job{number % 4}", f"rev{number}"),
            )
            write_manifest(place, derived)
            own = {**rows.run, "job": f"job{number % 4}", "start_utc_ns": derived.zero_utc_ns}
            opened.put(_derived(rows, own, hosts, draw), kept_of(place))


def _derived(rows: RunRows, own: Mapping[str, object], hosts: Mapping[str, str], draw: random.Random) -> RunRows:
    """The rows of the first run, on other hosts and a little slower or faster."""
    run = {**own, "step_ns": round(rows.run["step_ns"] * draw.gauss(1, 0.02))}
    on = [{**row, "host": hosts[row["host"]], "blame_percent": 100 * draw.random()} for row in rows.hosts]
    findings = [{**row, "hosts": [hosts[h] for h in row["hosts"]]} for row in rows.findings]
    return rows._replace(run=run, hosts=on, findings=findings)
