"""Kills imports and alignments at any moment, and goes on: `python -m tests.fuzz.kills --kills N --seed S`.

A process imports a simulated run of four ranks on two hosts and aligns it. It is killed up to three times, each time at
a moment that the seed decides, from its start to a little more than a whole import and alignment takes; then the same
command is let run to its end. The run directory must hold what an undisturbed one holds, file by file, and nothing
else.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from alltrace.run.manifest import MANIFEST, read_manifest
from alltrace.synth import write_run
from alltrace.trace.errors import AlltraceError

_WORK = """
import sys
from pathlib import Path
from alltrace.align.store import aligned
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
print("ready", flush=True)
import_reports([sys.argv[1]], Path(sys.argv[2]), jobs=int(sys.argv[3]))
aligned(Run(Path(sys.argv[2])))
"""
_AT_ONCE = 3
_LONGER = 1.1


class Outcome(NamedTuple):
    """What became of the kills.

    Attributes:
        importing: Kills while the import was not at its end.
        aligning: Kills after that, before the alignment was.
        late: Kills when all was done.
        failures: Differences of runs that were made after kills.
    """

    importing: int
    aligning: int
    late: int
    failures: list[str]


def contents(run: Path) -> dict[str, Any]:
    """Everything in a run, by file: rows of Parquet files, the bytes of others."""
    return {
        str(p.relative_to(run)): (
            pq.read_table(p, partitioning=None).to_pylist() if p.suffix == ".parquet" else p.read_bytes()
        )
        for p in sorted(run.rglob("*"))
        if p.is_file()
    }


def run_kills(kills: int, seed: int, progress: Callable[[int, int], None] = lambda _done, _failures: None) -> Outcome:
    """Kill and go on.

    Args:
        kills: How many kills.
        seed: Decides their moments.
        progress: Called after each repeat with the kills and the failures so far.
    """
    draw, failures, when = random.Random(seed), [], [0, 0, 0]
    with tempfile.TemporaryDirectory() as folder:
        reports, run, whole = (Path(folder) / name for name in ("reports", "run", "whole"))
        write_run("straggler", reports, ranks=4, hosts=2, steps=6, ideal=True)
        took = []
        for jobs in ("1", "2"):
            shutil.rmtree(whole, ignore_errors=True)
            child = _started(reports, whole, jobs)
            began = time.monotonic()
            child.communicate()
            took.append(time.monotonic() - began)
        expected, done = contents(whole), 0
        while done < kills:
            shutil.rmtree(run, ignore_errors=True)
            jobs = draw.choice((1, 2))
            for _ in range(min(draw.randint(1, _AT_ONCE), kills - done)):
                child = _started(reports, run, str(jobs))
                time.sleep(draw.uniform(0, _LONGER) * took[jobs - 1])
                child.send_signal(signal.SIGKILL)
                child.communicate()
                when[_state(run, child.returncode)] += 1
                done += 1
            last = _started(reports, run, str(jobs))
            last.communicate()
            found = contents(run)
            if last.returncode or found != expected:
                odd = [n for n in sorted({*found, *expected}) if found.get(n) != expected.get(n)]
                failures.append(f"after {done} kills: code {last.returncode}, other files: {', '.join(odd)}")
            progress(done, len(failures))
    return Outcome(*when, failures)


def _started(reports: Path, run: Path, jobs: str) -> subprocess.Popen[str]:
    """The process, which has loaded what it needs."""
    child = subprocess.Popen(
        [sys.executable, "-c", _WORK, str(reports), str(run), jobs], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child


def _state(run: Path, code: int | None) -> int:
    """How far the work was when it was killed: 0 in the import, 1 in the alignment, 2 at its end."""
    if code == 0:
        return 2
    try:
        return int((run / MANIFEST).is_file() and read_manifest(run).complete)
    except AlltraceError:
        return 0


def main() -> int:
    """Run what the command line says; 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="their moments (default: 1)")
    given = parser.parse_args()
    found = run_kills(
        given.kills, given.seed, lambda done, failures: print(f"{done} kills, {failures} failures", flush=True)
    )
    for failure in found.failures:
        print(failure)
    when = f"{found.importing} in the import, {found.aligning} in the alignment, {found.late} after it"
    print(f"{given.kills} kills, seed {given.seed}: {when}; {len(found.failures)} failures")
    return 1 if found.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
