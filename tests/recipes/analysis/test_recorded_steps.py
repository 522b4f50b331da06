"""Steps in flight records: programs of known steps, and a real record of PyTorch with gloo."""

from __future__ import annotations

import os
import random
import socket
import subprocess
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.capture.launching import find_torch
from tests.making import make_run

from alltrace.api import OpenRun
from alltrace.readers.flight_recorder.read import Entry, read_recording
from alltrace.recipes.analysis.recorded_steps import (
    CapturedSteps,
    _begins,
    _of_run,
    _repeated,
    captured_steps,
    recorded_steps,
    slowdown_by_recorder,
)
from alltrace.recipes.logs.flight_recorder import answer
from alltrace.run.manifest import write_manifest

MS = 1_000_000
UTC = 1_700_000_000_000_000_000
OPS = [("all_gather", "[[64]]"), ("all_gather", "[[64]]"), ("reduce_scatter", "[[64]]"), ("all_reduce", "[[1]]")]


def record(lengths, *, ops=OPS, rank=0, first=0, seed=1) -> list[Entry]:
    """A record of steps of these lengths, ms, with the collectives `ops` each; the record begins at the collective
    `first`."""
    draw, found, at = random.Random(seed), [], UTC
    for length in lengths:
        moments = sorted(draw.uniform(0.05, 0.6) for _ in ops[1:])
        for (op, sizes), moment in zip(ops, [0.0, *moments], strict=True):
            created = at + round(moment * length * MS)
            found.append(
                Entry(rank, "0", len(found), op, "completed", sizes=sizes, created_ns=created, number=len(found))
            )
        at += round(length * MS)
    return found[first:]


def begins(lengths):
    return UTC + np.concatenate(([0], np.cumsum([round(n * MS) for n in lengths])))


def captured(lengths, low, high):
    """A run with the steps from `low` to `high`, each from shortly before its first collective on."""
    at = begins(lengths)
    return CapturedSteps(at[low:high] - MS, at[low + 1 : high + 1] - MS, int(at[low] - 2 * MS), int(at[high] - MS // 2))


@pytest.mark.parametrize("first", [0, 1, 3])
def test_without_a_run_the_repetition_tells_the_steps(first):
    lengths = [50 + n for n in range(20)]
    found = recorded_steps(record(lengths, first=first), 0)
    assert found.period == len(OPS)
    assert len(found.starts) == 19
    if first == 0:
        assert found.took_ns.tolist() == [round(n * MS) for n in lengths[:-1]]
    # from the same collective to the same collective, all steps are there once
    assert int(found.took_ns.sum()) == pytest.approx(sum(lengths[:-1]) * MS, rel=0.1)


def test_steps_that_save_are_left_out():
    entries = record([50] * 30)
    extra = Entry(0, "0", 999, "barrier", "completed", sizes="[[1]]", created_ns=entries[80].created_ns + 1)
    found = recorded_steps([*entries, extra], 0)
    assert found.period == len(OPS)
    assert len(found.starts) == 28
    assert set(found.took_ns.tolist()) == {50 * MS}


def test_what_does_not_repeat_has_no_steps():
    draw = random.Random(3)
    entries = [
        Entry(0, "0", n, draw.choice("abcd"), "completed", sizes=f"[[{draw.randrange(9)}]]", created_ns=UTC + n * MS)
        for n in range(200)
    ]
    assert recorded_steps(entries, 0) is None
    assert recorded_steps(record([50] * 1), 0) is None


@pytest.mark.parametrize("factor", [1.0, 1.25])
def test_steps_within_the_capture_are_compared_with_those_outside(factor):
    draw = random.Random(2)
    lengths = [100 * draw.uniform(0.98, 1.02) * (factor if 20 <= n < 30 else 1) for n in range(60)]
    found = recorded_steps(record(lengths), 0, captured(lengths, 20, 30))
    assert found.period == len(OPS)
    assert np.flatnonzero(found.captured).tolist() == list(range(20, 29))
    assert np.flatnonzero(found.outside).tolist() == [*range(19), *range(30, 59)]
    slowdown = slowdown_by_recorder([found])
    assert slowdown.ratio == pytest.approx(factor, rel=0.02)
    assert slowdown.certain == (factor > 1)
    assert slowdown.source == "the flight recorder"


def test_equal_collectives_are_counted_by_the_steps_of_the_run():
    """All collectives are alike, so the record repeats after each; the run knows that a step has four."""
    ops = [("all_reduce", "[[64]]")] * 4
    lengths = [100] * 20 + [130] * 10 + [100] * 20
    assert recorded_steps(record(lengths, ops=ops), 0).period == 1
    found = recorded_steps(record(lengths, ops=ops), 0, captured(lengths, 20, 30))
    assert found.period == 4
    assert slowdown_by_recorder([found]).ratio == pytest.approx(1.3)


def test_another_job_does_not_fit():
    lengths = [100] * 40
    late = captured(lengths, 10, 20)
    later = CapturedSteps(late.starts + 10**12, late.ends + 10**12, late.begin_ns + 10**12, late.end_ns + 10**12)
    assert recorded_steps(record(lengths), 0, later) is None


def test_the_view_says_what_it_found(tmp_path):
    lengths = [100] * 20 + [150] * 10 + [100] * 20
    recording = type(
        "Recording",
        (),
        {
            "entries": record(lengths),
            "path": "r",
            "version": "2",
            "ranks": (0,),
            "unread": 0,
            "damage": None,
            "goes_on": None,
        },
    )
    found = answer([recording], "steps", {0: captured(lengths, 20, 30)})
    values = {(row["captured"], row["duration_us"]) for row in found.table.to_pylist()}
    assert {(True, 150_000.0), (False, 100_000.0)} <= values
    assert any("took 150.0 ms each" in n and "100.0 ms: 50.0 % longer" in n for n in found.notes)
    none = answer([recording], "steps", {})
    assert none.table.num_rows == 0
    assert any("the run has no steps of rank 0" in n for n in none.notes)
    alone = answer([recording], "steps")
    assert {row["captured"] for row in alone.table.to_pylist()} == {None}


def test_times_of_a_run_are_those_of_the_day(tmp_path):
    """The inverse of a rank's clock, and its own time base."""
    run = make_run(tmp_path / "run", {0: {"ranges": [{"start": 5 * MS, "end": 9 * MS, "name": "step 1"}]}})
    steps = pa.table({"rank": [0], "start": [0], "end": [4 * MS]})
    assert captured_steps(run, steps) == {}  # no time of day
    manifest = run.manifest
    of_day = replace(manifest.with_ranks(r._replace(time_base_utc_ns=UTC) for r in manifest.ranks), zero_utc_ns=UTC)
    write_manifest(run.path, of_day)
    found = captured_steps(OpenRun(run.path), steps)[0]
    assert (found.starts.tolist(), found.ends.tolist()) == ([UTC + 5 * MS], [UTC + 9 * MS])
    assert (found.begin_ns, found.end_ns) == (UTC + 5 * MS, UTC + 9 * MS)


PROGRAM = """
import sys, time
import torch, torch.distributed as group
from torch._C._distributed_c10d import _dump_fr_trace
group.init_process_group("gloo")
rank = group.get_rank()
a, b = torch.ones(1000), torch.ones(10)
for n in range(40):
    time.sleep(0.03 if 15 <= n < 25 else 0.015)
    for t in (a, b, a):
        group.all_reduce(t)
    print(n, time.time_ns(), flush=True) if rank == 0 else None
if rank == 0:
    open(sys.argv[1], "wb").write(_dump_fr_trace(True, True, False))
group.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.skipif(find_torch() is None, reason="no PyTorch: set ALLTRACE_TORCH_PYTHON")
def test_a_record_of_pytorch(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment: dict[str, Any] = {
        **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_FR_BUFFER_SIZE": "2000",
    }  # fmt: skip
    command = [str(find_torch()), "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    done = subprocess.run(
        [*command, f"--master-port={port}", "train.py", "dump_0"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ends = [int(line.split()[1]) for line in done.stdout.splitlines()]
    entries = read_recording(str(tmp_path / "dump_0")).entries
    alone = recorded_steps(entries, 0)
    assert (alone.period, len(alone.starts)) == (3, 39)
    at = np.array(ends, np.int64)
    run = CapturedSteps(at[14:24], at[15:25], int(at[14]), int(at[24]) + MS)
    slowdown = slowdown_by_recorder([recorded_steps(entries, 0, run)])
    # by what the program printed; the machine may be busy with other things
    spans = np.diff(at)
    printed = float(np.median(spans[15:24]) / np.median(np.delete(spans, slice(14, 25))))
    assert slowdown.ratio == pytest.approx(printed, rel=0.25)
    assert slowdown.certain


def test_the_stretch_is_that_of_most_steps():
    like = np.array([7, *[0, 1, 2] * 10, 9])
    time = np.arange(32) * 10
    # the first of the run's steps begins before the record
    captured = CapturedSteps(np.array([-20, 5, 35, 65]), np.array([5, 35, 65, 95]), -20, 200)
    usual, first = _of_run(like, time, captured)
    assert (usual.tolist(), first) == ([0, 1, 2], 1)
    assert _begins(like, usual, first).tolist() == list(range(1, 28, 3))
    assert _begins(like, usual, 0).tolist() == list(range(1, 28, 3))
    assert _of_run(like, time, captured._replace(starts=captured.starts[1:3], ends=captured.ends[1:3])) is None
    assert _of_run(np.arange(32), time, captured) is None
    uneven = captured._replace(starts=np.array([5, 35, 65, 85]), ends=np.array([35, 65, 85, 115]))
    assert _of_run(like, time, uneven) is None
    usual, first = _repeated(np.tile([4, 5, 5], 6))
    assert (usual.tolist(), first) == ([4, 5, 5], 0)
    assert _repeated(np.arange(18)) is None
