"""The same reports through nsys2prv, which is run as a program: counts and times by name and the set of communications are equal.

ALLTRACE_NSYS2PRV names its executable; it calls nsys itself.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tests.paraver_checks import labels_of, well_formed

import alltrace
from alltrace.export.paraver.writer import export_paraver
from alltrace.export.selection import select
from alltrace.readers.paraver.labels import CALL, KERNEL, MEMORY_OP
from alltrace.readers.paraver.parsing import read_lines
from alltrace.run.importer import import_reports

NCCL = 63000007
COMPARED = {CALL: "call", KERNEL: "kernel", NCCL: "kernel", MEMORY_OP: "copy"}
WAIT = 55003  # a communication that nsys2prv has none of
REPORTS = (
    "cuda_graphs_nsys2024.6",
    "fuser_nvtx_nsys2025.1",
    "gpu_metrics_nsys2022.4",
    "llm_nvtx_nsys2025",
    "a100x4_ddp_baseline_nsys2022.4",
)

pytestmark = [pytest.mark.oracle, pytest.mark.corpus, pytest.mark.slow]


@pytest.fixture
def nsys2prv():
    tool = os.environ.get("ALLTRACE_NSYS2PRV")
    if not tool or not Path(tool).is_file():
        pytest.skip("no nsys2prv: set ALLTRACE_NSYS2PRV")
    return str(Path(tool).absolute())


def contents(prv):
    """For each kind and name how many there are and their total ns; and the communications, from the first one's time."""
    values = labels_of(prv.with_suffix(".pcf"))
    counts, totals, communications = Counter(), Counter(), Counter()
    events = []
    for lines in read_lines(prv)[1]:
        for number, (at, end) in enumerate(zip(lines.offsets[:-1].tolist(), lines.offsets[1:].tolist(), strict=True)):
            fields = lines.values[at:end].tolist()
            if fields[:1] == [2]:
                for kind, value in zip(fields[6::2], fields[7::2], strict=True):
                    if kind in COMPARED:
                        events.append((*fields[2:5], kind, fields[5], value != 0, lines.first + number, value))
            elif fields[:1] == [3] and fields[14] != WAIT:
                communications[fields[5], fields[11], fields[13], fields[14]] += 1
    open_ = {}
    for *thread, kind, time, begins, _, value in sorted(events):
        stack = open_.setdefault((*thread, kind), [])
        if begins:
            stack.append((time, value))
            continue
        start, value = stack.pop()
        name = COMPARED[kind], values[kind][value]
        counts[name] += 1
        totals[name] += time - start
    first = min((c[0] for c in communications), default=0)
    return counts, totals, Counter({(s - first, r - first, *rest): n for (s, r, *rest), n in communications.items()})


@pytest.mark.parametrize("name", REPORTS)
def test_counts_times_and_communications_are_equal(corpus, nsys, nsys2prv, tmp_path, name):
    copy = tmp_path / "r.sqlite"
    shutil.copyfile(corpus / "nsys" / f"{name}.sqlite", copy)
    with sqlite3.connect(copy) as database:  # without a host's name nsys2prv ends with an IndexError
        if not database.execute("SELECT 1 FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'").fetchone():
            database.execute(
                "INSERT INTO TARGET_INFO_SYSTEM_ENV (globalVid, devStateName, name, nameEnum, value) "
                "VALUES (0, 'x', 'Hostname', 0, 'h')"
            )
    database.close()
    (tmp_path / "r.nsys-rep").touch()
    environment = {**os.environ, "PATH": f"{nsys.parent}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    command = [nsys2prv, "-t", "cuda_api_trace,graphs" if "graphs" in name else "cuda_api_trace", "r.nsys-rep", "theirs"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    import_reports([str(copy)], tmp_path / "run", jobs=1)
    run = alltrace.open(tmp_path / "run")
    export_paraver(select(run), tmp_path / "ours.prv", ids="nsys2prv")
    well_formed(tmp_path / "ours.prv")
    ours, theirs = contents(tmp_path / "ours.prv"), contents(tmp_path / "theirs.prv")
    assert sum(ours[0].values()) > 50
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == other
