"""What alltrace flags in reports of healthy runs, nothing at best: `python -m benchmarks.healthy [--simulated N]`.

Imports each report of the folder that `ALLTRACE_DATA` names, alone, and simulated runs of all scenarios with different
seeds. Prints each report or run with rows that were set aside, by table and reason, or with a rank whose times are in
doubt.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from alltrace.api import OpenRun
from alltrace.run.discover import find_reports
from alltrace.run.importer import import_reports
from alltrace.synth import write_run
from alltrace.synth.scenarios import SCENARIOS
from alltrace.trace.errors import AlltraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

SIMULATED = 60
FORMATS = ("sqlite", "kineto")
TOO_LARGE = ("bench",)
"""Scenarios of a report as large as benchmarks need."""
RANKS = {"healthy": 4, "straggler": 4, "sharded": 4, "tiny": 2}
"""How many ranks, where nothing depends on their number; 16 for the others."""


def flagged(reports: Path, run: Path) -> tuple[Counter[tuple[str, str]], dict[int, str], int]:
    """The rows that an import sets aside, by table and reason, the doubted ranks with reasons, the number of rows."""
    import_reports([str(reports)], run, jobs=1)
    found: Counter[tuple[str, str]] = Counter()
    opened = OpenRun(run)
    for path in run.glob("ranks/*/suspects*.parquet"):
        rows = pq.ParquetFile(path).read(["table", "reason"])
        found.update(zip(rows.column("table").to_pylist(), rows.column("reason").to_pylist(), strict=True))
    doubts = {r.rank: r.doubt for r in opened.manifest.ranks if r.doubt is not None}
    if len(opened.manifest.ranks) > 1:
        doubts |= opened.aligned().doubted
    return found, doubts, sum(sum(r.rows.values()) for r in opened.manifest.ranks)


def real(data: Path) -> Iterator[tuple[str, Path]]:
    """The reports of real recordings."""
    for folder in ("nsys", "kineto"):
        for report in find_reports([str(data / folder)]):
            yield str(Path(report).relative_to(data)), Path(report)


def simulated(count: int, folder: Path) -> Iterator[tuple[str, Path]]:
    """Reports of simulated runs: all scenarios in turn, with other seeds and formats."""
    names = [name for name in SCENARIOS if name not in TOO_LARGE]
    for n in range(count):
        name, form = names[n % len(names)], FORMATS[n // len(names) % 2]
        reports = folder / f"{n}"
        write_run(name, reports, form, seed=n, steps=4, ranks=RANKS.get(name, 16))
        for truth in reports.glob("truth*"):
            truth.unlink()
        yield f"{name}, {form}, seed {n}", reports


def judged(inputs: Iterator[tuple[str, Path]], folder: Path) -> tuple[int, int, int]:
    """Print what is flagged; returns the number of inputs, of those with something flagged, and of all rows."""
    every = wrong = rows = 0
    for number, (name, reports) in enumerate(inputs):
        try:
            found, doubts, count = flagged(reports, folder / f"run{number}")
        except AlltraceError as error:
            print(f"{name}: not read: {error}", flush=True)
            continue
        every, rows, wrong = every + 1, rows + count, wrong + bool(found or doubts)
        texts = [f"{n:,} of {table} ({reason})" for (table, reason), n in sorted(found.items())]
        texts += [f"rank {rank} in doubt: {why}" for rank, why in sorted(doubts.items())]
        if texts:
            print(f"{name}: {', '.join(texts)}", flush=True)
    return every, wrong, rows


def main() -> int:
    """Judge the real reports, then the simulated runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--simulated", type=int, default=SIMULATED, help="how many simulated runs (default: %(default)s)"
    )
    count = parser.parse_args().simulated
    data = os.environ.get("ALLTRACE_DATA")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if data:
            every, wrong, rows = judged(real(Path(data)), folder / "real")
            print(f"{wrong} of {every} real reports have something flagged, of {rows:,} rows")
        every, wrong, rows = judged(simulated(count, folder / "reports"), folder / "simulated")
        print(f"{wrong} of {every} simulated runs have something flagged, of {rows:,} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
