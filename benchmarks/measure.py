"""Runs commands as processes and says what they took: wall time, CPU time with children, peak memory."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def _installed() -> list[str]:
    command = Path(sys.executable).with_name("alltrace")
    return [str(command)] if command.is_file() else [sys.executable, "-m", "alltrace.cli.main"]


ALLTRACE = _installed()
"""The command line as users start it: the installed script, if it is next to this Python."""


@dataclass(frozen=True)
class Taken:
    """What one run took."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def run_once(command: Sequence[str], environment: dict[str, str] | None = None) -> Taken:
    """Run `command`, its output thrown away, and measure it; stops the benchmark when it fails."""
    code = (
        "import resource,subprocess,sys,time;t=time.perf_counter();"
        "r=subprocess.run(sys.argv[1:],stdout=subprocess.DEVNULL,stderr=subprocess.PIPE);w=time.perf_counter()-t;"
        "u=resource.getrusage(resource.RUSAGE_CHILDREN);"
        "sys.stderr.buffer.write(r.stderr if r.returncode else b'');"
        "print(w,u.ru_utime+u.ru_stime,u.ru_maxrss/1024);sys.exit(r.returncode)"
    )
    env = {**os.environ, **(environment or {})}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled once, not at every start
    done = subprocess.run([sys.executable, "-c", code, *command], stdout=subprocess.PIPE, env=env, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    wall, cpu, peak = (float(x) for x in done.stdout.split())
    return Taken(wall, cpu, peak)


def run_in_sequence(commands: Sequence[Sequence[str]], environment: dict[str, str] | None = None) -> Taken:
    """Run `commands` one after another and measure them as one: the sums of their times, the largest of their peaks."""
    taken = [run_once(command, environment) for command in commands]
    return Taken(sum(t.wall_s for t in taken), sum(t.cpu_s for t in taken), max(t.peak_mb for t in taken))


def side_by_side(
    contenders: Mapping[str, Sequence[str]], runs: int, before: Mapping[str, Callable[[], None]] | None = None
) -> dict[str, list[Taken]]:
    """Run each contender `runs` times, alternately, so that a machine that slows down slows all of them."""
    taken: dict[str, list[Taken]] = {name: [] for name in contenders}
    for _ in range(runs):
        for name, command in contenders.items():
            if before and name in before:
                before[name]()
            taken[name].append(run_once(command))
    return taken


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def folder_bytes(folder: Path) -> int:
    """The bytes of all files below `folder`."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def wall(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def cpu_of_this_process() -> float:
    """CPU seconds used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def forget(run: Path, *made: str) -> None:
    """Remove data derived from a run on demand, by its folders and files in the run."""
    for name in made:
        if (run / name).is_file():
            (run / name).unlink()
        shutil.rmtree(run / name, ignore_errors=True)
