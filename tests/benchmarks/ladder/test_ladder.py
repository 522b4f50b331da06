"""The ladder's command: what it refuses, how it fails and is interrupted, and all of it once with a real PyTorch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.benchmarks.ladder.test_switches import running
from tests.capture.launching import find_torch

from benchmarks.ladder.causes import CAUSES, Settings
from benchmarks.ladder.measuring import ROOT, Bench, Times, TrainingError

PROBE = """#!/bin/sh
if [ "$1" = -c ]; then echo '["9.9", null]'; exit; fi
"""
"""A program that says that it is a Python with PyTorch and without a GPU."""


@pytest.fixture
def double(tmp_path):
    """Makes a program that stands in for a Python with PyTorch; `training` is what it does as a training."""

    def make(training, probe=PROBE):
        path = tmp_path / "python"
        path.write_text(f"{probe}{training}\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.mark.parametrize("shared", [True, False])
def test_the_second_process_runs_as_long_as_the_training_and_only_where_it_is_asked_for(double, tmp_path, shared):
    pid, seen = tmp_path / "pid", tmp_path / "seen"
    neighbour = f'[ "$2" = benchmarks.ladder.neighbour ] && {{ echo $$ > {pid}; echo ready; exec sleep 600; }}'
    training = f"read line; [ -e {pid} ] && kill -0 $(cat {pid}) && touch {seen}\necho '{{\"step_ns\": 1000}}'"
    with Bench(double(f"{neighbour}\n{training}"), "cpu", warmup=1, steps=1) as bench:
        assert bench.step_ns(Settings(neighbour=shared)) == 1000
    assert (pid.exists(), seen.exists()) == (shared, shared)
    assert not shared or not running(int(pid.read_text()))


def test_a_second_process_that_cannot_use_the_device_is_said(double):
    bench = Bench(double("exit 1"), "cpu", warmup=1, steps=1)
    with pytest.raises(TrainingError, match="the process that shares the device ended before it had begun"):
        bench.step_ns(Settings(neighbour=True))


@pytest.mark.parametrize("words", ["", "warning: 3", "[]", '{"step": 3}'])
def test_a_training_that_says_no_time_is_said(double, words):
    with pytest.raises(TrainingError, match="ended without the time of a step"):
        Bench(double(f"echo '{words}'"), "cpu", warmup=1, steps=1).step_ns(Settings())


def test_one_process_is_asked_for_all_trainings_and_another_after_an_error(double, tmp_path):
    started = tmp_path / "started"
    answers = "while read line; do case $line in *'\"sleep_ms\": 9'*) exit 3 ;; esac; echo '{\"step_ns\": 1000}'; done"
    with Bench(double(f"echo $$ >> {started}\n{answers}"), "cpu", warmup=1, steps=1) as bench:
        assert [bench.step_ns(Settings(sleep_ms=n)) for n in (1, 2)] == [1000, 1000]
        assert len(started.read_text().split()) == 1
        with pytest.raises(TrainingError, match="the training without a profiler ended with 3"):
            bench.step_ns(Settings(sleep_ms=9))
        assert bench.step_ns(Settings()) == 1000
    pids = started.read_text().split()
    assert len(pids) == 2
    assert not any(running(int(pid)) for pid in pids)


def test_both_sides_are_timed_in_turn(monkeypatch):
    asked = []
    monkeypatch.setattr(Bench, "step_ns", lambda _self, settings: asked.append(settings) or float(len(asked)))
    times = Bench("python", "cpu", 1, 1).time(CAUSES[0], 2)
    assert asked == [CAUSES[0].slow, CAUSES[0].fast] * 2
    assert times == Times((1.0, 3.0), (2.0, 4.0))


def ladder(*arguments, **options):
    command = [sys.executable, "-m", "benchmarks.ladder", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False, **options)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "sinc-each-step"], "unknown cause 'sinc-each-step'; did you mean sync-each-step?"),
        (["--python", "nowhere/python"], "--python: nowhere/python cannot be started: No such file or directory"),
        (["--device", "cuda"], "can use no GPU; use --device cpu"),
        (["--steps", "0"], "--steps: must be at least 1; 0 was given"),
    ],
)
def test_what_cannot_be_measured_is_refused(double, arguments, words):
    done = ladder("--python", double("exit 1"), *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_is_no_python_is_refused(double):
    done = ladder("--python", double("", probe="#!/bin/sh\necho hello\n"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "did not say which PyTorch it has; name a Python" in done.stderr


def test_a_python_without_pytorch_is_refused(double):
    done = ladder(
        "--python", double("", probe="#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1")
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot import torch (ModuleNotFoundError: No module named 'torch'); name one that can" in done.stderr


def test_a_training_that_fails_is_named_and_the_next_one_is_measured(double, tmp_path):
    fails_asleep = (
        'while read line; do case $line in *\'"sleep_ms": 50\'*) echo "Error: no sleep" >&2; exit 7 ;; esac\n'
        "echo '{\"step_ns\": 1000}'; done"
    )
    table = tmp_path / "table.md"
    arguments = ("--only", "host-sleep", "--only", "garbage", "--only", "tf32", "--output", str(table))
    done = ladder("--python", double(fails_asleep), *arguments)
    assert (done.returncode, done.stdout) == (3, "")
    left_out = table.read_text(encoding="utf-8").partition("Not measured:\n\n")[2].splitlines()
    assert left_out[0] == "* host-sleep: the training without a profiler ended with 7: Error: no sleep"
    assert left_out[1].startswith("* garbage: ")  # the double makes no trace
    assert "there is no such file or folder" in left_out[1]
    assert left_out[2] == "* tf32: needs a GPU"


def test_an_interruption_ends_the_training_and_leaves_what_was_measured(double, tmp_path):
    started = tmp_path / "pid"
    command = [sys.executable, "-m", "benchmarks.ladder", "--python", double(f"echo $$ > {started}\nexec sleep 600")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    for _ in range(600):
        if started.exists() and started.read_text().strip():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert f"* {CAUSES[0].name}: interrupted" in output
    assert output.count("interrupted") == len(CAUSES)
    assert not running(int(started.read_text()))


def test_a_table_that_cannot_be_written_is_said(double, tmp_path):
    done = ladder("--python", double("exit 1"), "--only", "tf32", "--output", str(tmp_path / "none" / "table.md"))
    assert done.returncode == 2
    assert f"error: {tmp_path / 'none' / 'table.md'}: No such file or directory; name a folder or file" in done.stderr


@pytest.mark.slow
def test_causes_are_timed_recorded_and_asked_about_on_the_cpu(tmp_path):
    python = find_torch()
    if python is None:
        pytest.skip("no PyTorch: set ALLTRACE_TORCH_PYTHON")
    arguments = [*"--only host-sleep --only shared-gpu --steps 3 --rounds 1 --keep".split(), str(tmp_path)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = ladder("--python", python, *arguments, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [
        [c.strip() for c in line.strip("|").split("|")] for line in done.stdout.splitlines() if line.startswith("| ")
    ][1:]
    assert [(row[0], row[1], row[5], row[-1]) for row in rows] == [
        ("host-sleep", "sleep_ms: 50 to 0", "torch", "needs a GPU"),
        ("shared-gpu", "neighbour: True to False", "torch", "needs a GPU"),
    ]
    for column in (2, 6):  # each step sleeps for 50 ms, whether it is recorded or not
        assert float(rows[0][column].removesuffix(" ms")) >= 50
    traces = [p.relative_to(tmp_path) for p in Path(tmp_path).rglob("*.pt.trace.json.gz")]
    assert sorted(str(p.parent) for p in traces) == ["host-sleep/torch", "shared-gpu/torch"]
