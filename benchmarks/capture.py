"""The cost of capturing: the wrapper compared with the profiler, and the cost for a script that is not profiled."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import timeit
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import run_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measure import Taken

_LEAST_RUNS = 10

_NSYS = """#!/bin/sh
case "$1$2" in
  --version) echo "NVIDIA Nsight Systems version 2024.1.1.1" ; exit ;;
  profile--help) echo "--sample= --cpuctxsw=" ; exit ;;
esac
shift
while :; do
  case "$1" in --output=*) out="${1#--output=}" ;; --*) ;; *) break ;; esac
  shift
done
"$@"
printf 'NVIDIA Tegra Profiler Report [END]' > "$out"
"""


def run(runs: int) -> list[str]:
    """The rows of the table."""
    return [*_wrapper(max(runs, _LEAST_RUNS)), *_script()]


def _wrapper(runs: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        nsys = Path(folder) / "nsys"
        nsys.write_text(_NSYS)
        nsys.chmod(0o755)
        output = f"{folder}/reports"
        capture = [sys.executable, *"-m alltrace.cli.main capture exec --force --nsys".split(), str(nsys), "-o", output]
        # an installed package has its bytecode; the switches of the profiler are remembered
        installed = {
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": f"{folder}/bytecode",
            "ALLTRACE_CACHE_DIR": folder,
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "2",
        }
        contenders = {
            "alone": [str(nsys), "profile", f"--output={folder}/x", "true"],
            "a profiled rank": [*capture, "--", "true"],
            "a rank that is not chosen": [*capture, "--ranks", "1", "--", "true"],
        }
        for command in contenders.values():
            run_once(command, installed)
        taken: dict[str, list[Taken]] = {name: [] for name in contenders}
        for _ in range(runs):  # alternately, so that a machine that slows down slows all of them
            for name, command in contenders.items():
                taken[name].append(run_once(command, installed))
        alone = taken.pop("alone")
        return [
            f"| capture exec, {name} | a script in nsys's place | | best and median of {runs}:"
            f" {_more(alone, mine, 'cpu_s')} ms of CPU more, {_more(alone, mine, 'wall_s')} ms of wall time more; at"
            " most 150 |"
            for name, mine in taken.items()
        ]


def _more(alone: list[Taken], mine: list[Taken], field: str) -> str:
    """The difference in ms of the best and of the median to the profiler alone."""
    found = [
        1000 * (of([getattr(t, field) for t in mine]) - of([getattr(t, field) for t in alone]))
        for of in (min, statistics.median)
    ]
    return " and ".join(f"{ms:.0f}" for ms in found)


def _script() -> list[str]:
    from alltrace.instrument import annotate, steps

    window = steps()

    def annotated() -> None:
        with annotate("x"):
            pass

    times = 200_000
    found = (("annotate", annotated, 300), ("steps.step()", window.step, 1000))
    return [
        f"| {name}, not profiled | | | {_each(call, times):.0f} ns of CPU; at most {most} |"
        for name, call, most in found
    ]


def _each(call: Callable[[], None], times: int) -> float:
    """Nanoseconds of this process that a call takes: the best of ten rounds."""
    return min(timeit.repeat(call, number=times, repeat=10, timer=time.process_time)) / times * 1e9
