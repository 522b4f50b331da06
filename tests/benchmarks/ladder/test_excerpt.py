"""A few steps of a trace."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

from alltrace.trace.errors import UsageError
from benchmarks.ladder.excerpt import excerpt
from benchmarks.ladder.measuring import ROOT


def event(cat, name, ts, dur, **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


TRACE = {
    "traceName": "/somebody/trace.json",
    "deviceProperties": [],
    "traceEvents": [
        {"ph": "M", "name": "process_name"},
        *(event("user_annotation", f"ProfilerStep#{n}", n * 100, 90) for n in (3, 4, 5)),
        *(event("cuda_runtime", "cudaLaunchKernel", n * 100 + 10, 5, correlation=n) for n in (3, 4, 5)),
        *(event("kernel", "add", n * 100 + 120, 50, correlation=n) for n in (3, 4, 5)),
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 410, "id": 4},
    ],
}


def test_it_has_the_steps_and_the_work_they_launched_and_no_path():
    found = excerpt(TRACE, 4, 6)
    assert set(found) == {"deviceProperties", "traceEvents"}
    assert [(e["name"], e.get("ts")) for e in found["traceEvents"]] == [
        ("process_name", None),
        ("ProfilerStep#4", 400),
        ("ProfilerStep#5", 500),
        ("cudaLaunchKernel", 410),
        ("cudaLaunchKernel", 510),
        ("add", 520),
        ("add", 620),
    ]


@pytest.mark.parametrize(("first", "end"), [(2, 4), (5, 7), (4, 4)])
def test_steps_that_are_not_there_are_refused(first, end):
    with pytest.raises(UsageError, match="ProfilerStep#3, ProfilerStep#4, ProfilerStep#5; name some of these"):
        excerpt(TRACE, first, end)


@pytest.mark.parametrize(("steps", "code"), [("4:5", 0), ("4", 2), ("8:9", 2)])
def test_the_command_writes_it_or_says_why_not(tmp_path, steps, code):
    trace, target = tmp_path / "trace.json.gz", tmp_path / "excerpt.json.gz"
    trace.write_bytes(gzip.compress(json.dumps(TRACE).encode()))
    command = [sys.executable, "-m", "benchmarks.ladder.excerpt", str(trace), str(target), "--steps", steps]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)
    assert (done.returncode, target.exists()) == (code, not code)
    assert "Traceback" not in done.stderr
    if not code:
        assert json.loads(gzip.decompress(target.read_bytes())) == excerpt(TRACE, 4, 5)
