"""The same reports through nsys2prv, which is run as a program: counts and times by name, the set of communications,
the labels of types and values, and local memory are equal.

ALLTRACE_NSYS2PRV names its executable; it calls nsys itself.
"""

import os
import shutil
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.paraver_checks import labels_of, well_formed

import alltrace
from alltrace.export.paraver.writer import export_paraver
from alltrace.export.selection import select
from alltrace.readers.paraver.labels import CALL, KERNEL, MEMORY_OP, read_pcf
from alltrace.readers.paraver.parsing import read_lines
from alltrace.run.importer import import_reports

NCCL = 63000007
LOCAL_MEMORY = 9109
METRICS = range(9400, 9500)  # numbered as the device has them, which a run does not keep
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
    """For each kind and name how many there are and their total ns; and the communications, from the first one's
    time."""
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


def types_of(prv):
    """Each type of a .pcf that has labels: its own, and the set of those of its values; without that of 0."""
    events = [e for e in read_pcf(prv.with_suffix(".pcf")) if not e.types.keys() & set(METRICS)]
    return {n: (label, {v for k, v in e.values.items() if k}) for e in events for n, label in e.types.items()}


def metrics_of(prv):
    """The labels of metrics."""
    return {label for e in read_pcf(prv.with_suffix(".pcf")) for n, label in e.types.items() if n in METRICS}


def local_memory(prv):
    """How often each amount of local memory is told."""
    found = Counter()
    for lines in read_lines(prv)[1]:
        at = np.flatnonzero(lines.values == LOCAL_MEMORY)
        found.update(lines.values[at + 1].tolist())
    return +Counter({n: count for n, count in found.items() if n})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", REPORTS)
def test_counts_times_and_communications_are_equal(corpus, nsys, nsys2prv, tmp_path, name):
    copy = tmp_path / "r.sqlite"
    shutil.copyfile(corpus / "nsys" / f"{name}.sqlite", copy)
    with closing(sqlite3.connect(copy)) as database, database:  # without a host's name nsys2prv ends with an IndexError
        if not database.execute("SELECT 1 FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'").fetchone():
            database.execute(
                "INSERT INTO TARGET_INFO_SYSTEM_ENV (globalVid, devStateName, name, nameEnum, value) "
                "VALUES (0, 'x', 'Hostname', 0, 'h')"
            )
    database.close()
    (tmp_path / "r.nsys-rep").touch()
    environment = {**os.environ, "PATH": f"{nsys.parent}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    more = [
        kind
        for kind, word in (("graphs", "graphs"), ("gpu_metrics", "gpu_metrics"), ("nvtx_pushpop_trace", "ddp"))
        if word in name
    ]
    command = [nsys2prv, "-t", ",".join(["cuda_api_trace", *more]), "r.nsys-rep", "theirs"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    import_reports([str(copy)], tmp_path / "run", jobs=1)
    run = alltrace.open(tmp_path / "run")
    ours, theirs = tmp_path / "ours.prv", tmp_path / "theirs.prv"
    export_paraver(select(run), ours, ids="nsys2prv", details=True)
    well_formed(ours)
    types, wanted = types_of(ours), types_of(theirs)
    shown = {n: (label, values) for n, (label, values) in wanted.items() if values or n in types}
    # what nsys2prv labels by kind of work has a table of values of ours that holds other kinds too
    assert {n: (types[n][0], values & types[n][1]) for n, (_, values) in shown.items()} == shown
    assert all(
        types[n][1] == values
        for n, (label, values) in shown.items()
        if label.startswith(("NVTX pushpop", "NCCL reg", "CUDA G"))
    )
    assert "gpu_metrics" not in more or metrics_of(ours) == metrics_of(theirs)
    assert local_memory(ours) == local_memory(theirs)
    ours, theirs = contents(ours), contents(theirs)
    assert sum(ours[0].values()) > 50
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == other
