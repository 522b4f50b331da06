"""What the questions across ranks cost: `python -m benchmarks across`.

64 ranks with 100 k kernels each are simulated and imported once; then every verb runs in a separate process, the
alignment first. In addition, alignment, matching and waits of 32 ranks with 2,020 collectives each are timed inside a
process: `python -m benchmarks align` measures only these.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.data import made_run
from benchmarks.measure import ALLTRACE, forget, median, run_once

if TYPE_CHECKING:
    from pathlib import Path

VERBS = ("info", "collectives", "stragglers", "critical-path", "whatif", "steps", "efficiency", "diagnose")
"""In this order; `info` makes the alignment."""

_LARGE: dict[str, Any] = {"ranks": 64, "hosts": 8, "steps": 21, "layers": 40, "kernels_per_layer": 40}
_TALKING: dict[str, Any] = {
    "ranks": 32,
    "hosts": 4,
    "steps": 202,
    "layers": 10,
    "buckets": 10,
    "kernels_per_layer": 1,
    "optimizer_kernels": 1,
}
_ALIGN = """
import sys, time
from pathlib import Path
from alltrace.align import store
from alltrace.api import OpenRun

spent = dict.fromkeys(("_collect_all", "_steps", "_write"), 0.0)

def timed(name):
    work = getattr(store, name)
    def run(*given):
        began = time.process_time()
        try:
            return work(*given)
        finally:
            spent[name] += time.process_time() - began
    setattr(store, name, run)

for name in spent:
    timed(name)
OpenRun(Path(sys.argv[2])).aligned(jobs=1).members  # loads modules and compiled code
for name in spent:
    spent[name] = 0.0
run = OpenRun(Path(sys.argv[1]))
began = time.process_time()
members = run.aligned(jobs=1).members
total = time.process_time() - began
instances = len(set(members.column("instance").to_pylist()))
print(total, spent["_collect_all"], spent["_steps"], spent["_write"], members.num_rows, instances)
"""


def large_run() -> Path:
    """64 ranks on 8 hosts, tensor and data parallel, about 100 k kernels each, one slow; 6.3 M kernels, imported."""
    return made_run("across64", "tensor-data", ("slow-rank:ranks=13:factor=1.2",), **_LARGE)


def talking_run() -> Path:
    """32 ranks on 4 hosts with 2,020 collectives each, imported."""
    return made_run("across32", "healthy", **_TALKING)


def _first_run() -> Path:
    """A small run, which is aligned first so that what is loaded once is not measured."""
    return made_run("across4", "healthy", ranks=4, hosts=2, steps=8)


def run(runs: int) -> list[str]:
    """The rows of the table; each figure is from one run, for the alignment the median of several."""
    return [*alignment(runs), *_verbs()]


def alignment(runs: int) -> list[str]:
    """Operations of an imported run to waits, in a process that has aligned another run; medians of several.

    The members found are compared with the planted ones by number: each of the 2,020 instances has all 32 ranks.
    """
    first, place = _first_run(), talking_run()
    taken = []
    for _ in range(runs):
        forget(first, "align", "operations")
        forget(place, "align", "operations")
        done = subprocess.run(
            [sys.executable, "-c", _ALIGN, str(place), str(first)], stdout=subprocess.PIPE, check=True
        )
        *seconds, members, instances = (float(v) for v in done.stdout.split())
        if (members, instances) != (32 * 2_020, 2_020):
            raise SystemExit(
                f"{members:.0f} members of {instances:.0f} instances were matched; there are 64640 of 2020"
            )
        taken.append(seconds)
    total, read, steps, wrote = (median([t[i] for t in taken]) for i in range(4))
    rest = median([t[0] - t[1] - t[2] - t[3] for t in taken])
    what = "32 ranks x 2,020 collectives, all 64,640 members matched"
    return [
        f"| align, match, wait: {what} | - | - | {rest:.2f} CPU s |",
        (
            f"| the same with reading, steps and writing | - | - | {total:.2f} CPU s ({read:.2f}, {steps:.2f},"
            f" {wrote:.2f}) |"
        ),
    ]


def _verbs() -> list[str]:
    place = large_run()
    forget(place, "align", "operations", "findings")
    rows, total, peak = [], 0.0, 0.0
    for verb in VERBS:
        taken = run_once([*ALLTRACE, verb, str(place), "--jobs", "1", "--format", "json"])
        total, peak = total + taken.cpu_s, max(peak, taken.peak_mb)
        name = f"{verb}, alignment included" if verb == "info" else verb
        rows.append(f"| `{name}`, 64 ranks x 100 k kernels | - | - | {taken.cpu_s:.1f} CPU s, {taken.peak_mb:.0f} MB |")
    rows.append(f"| all of these | - | - | {total:.1f} CPU s, {peak:.0f} MB at most |")
    return rows
