"""The report inside the training: a rank that is 5 % slower is named with its phase, noise is not, and it costs next to nothing."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.capture.launching import find_torch
from tests.thorough import cases

from alltrace.capture import step_report as module
from alltrace.capture.control import read_control
from alltrace.capture.step_report import describe, judge, step_report
from alltrace.capture.variables import REQUEST
from alltrace.trace.errors import UsageError

PHASES = {"data": 0.005, "forward": 0.030, "backward": 0.055, "optimiser": 0.010}


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(module, "perf_counter", found)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return found


def trained(clock, *, ranks=64, slow=None, factor=1.05, phase="forward", noise=0.01, steps=50, seed=1, waits=True, **options):
    """What the first rank says of ranks that wait for the slowest of them in each step; the last one sends for all."""
    chance = random.Random(seed)
    works = [
        [
            {p: s * (factor if rank == slow and p == phase else 1) * chance.gauss(1, noise) for p, s in PHASES.items()}
            for _ in range(steps)
        ]
        for rank in range(ranks)
    ]
    longest = [max(sum(works[rank][n].values()) for rank in range(ranks)) for n in range(steps)]
    rows, said = [], []

    def gather(mine):
        rows.append(list(mine))
        return rows[1:] + rows[:1] if len(rows) == ranks else None

    order = [*range(1, ranks), 0]
    rows_of = []
    for rank in order:
        with step_report(every=options.get("every", steps), gather=gather, rank=rank, say=said.append, at=200) as report:
            for n in range(steps):
                for name, took in works[rank][n].items():
                    with report.phase(name):
                        clock.now += took
                if waits:
                    with report.phase("wait"):
                        clock.now += longest[n] - sum(works[rank][n].values()) + 0.002
                else:
                    clock.now += longest[n] - sum(works[rank][n].values()) + 0.002
                report.step()
        rows_of.append(report)
    return said, rows


def test_a_rank_that_is_slower_by_a_twentieth_is_named_with_its_phase(clock):
    # rows come as 1, 2, ..., 63, 0 and the last one turns them, so rank n stands at n
    said, rows = trained(clock, slow=17, factor=1 + 0.05 / 0.3)  # 5 % of the step
    rows = rows[-1:] + rows[:-1]
    verdict = judge(rows, sorted([*PHASES, "wait"]), ["wait"], 50)
    assert [(f.rank, f.phase) for f in verdict.slow] == [(17, "forward")]
    assert verdict.slow[0].own_s / verdict.slow[0].others_s == pytest.approx(1.05, abs=0.005)
    assert len(said) == 1
    assert said[0].startswith("steps 200 to 249: rank ")


@pytest.mark.parametrize("seed", range(20))
def test_noise_names_nobody_and_what_would_be_seen_is_said(clock, seed):
    _, rows = trained(clock, ranks=16, noise=0.02, seed=seed)
    verdict = judge(rows[-1:] + rows[:-1], sorted([*PHASES, "wait"]), ["wait"], 50)
    assert verdict.slow == ()
    assert 0.01 <= verdict.least_share < 0.05
    assert "no rank of 16 is slow" in describe(verdict, 16)
    assert f"less than {verdict.least_share:.1%} more would not be seen" in describe(verdict, 16)


def test_without_phases_of_waiting_the_report_says_that_it_cannot_tell(clock):
    said, rows = trained(clock, ranks=8, slow=3, factor=1.5, waits=False)
    verdict = judge(rows[-1:] + rows[:-1], sorted(PHASES), [], 50)
    assert verdict.slow == ()  # all take as long as rank 3
    said = []
    with step_report(10, gather=lambda mine: [list(mine)] * 4, rank=0, say=said.append) as report:
        for _ in range(10):
            clock.now += 0.1
            report.step()
    (line,) = said
    assert "whole steps do not show which rank waits for which; put report.phase('wait')" in line


def test_ranks_with_other_phases_cannot_be_compared(clock):
    said = []
    with step_report(10, gather=lambda mine: [list(mine), [*mine, 0.1]], rank=0, say=said.append) as report:
        for _ in range(10):
            clock.now += 0.1
            report.step()
    assert said == ["steps 0 to 9: ranks have other phases, so they cannot be compared"]


def test_one_rank_alone_and_ranks_but_the_first_say_nothing(clock):
    said = []
    for rank, rows in ((0, 1), (1, 4)):
        with step_report(10, gather=lambda mine, rows=rows: [list(mine)] * rows, rank=rank, say=said.append) as report:
            for _ in range(20):
                clock.now += 0.1
                report.step()
    with step_report(10, say=said.append) as report:  # nothing to gather by
        for _ in range(10):
            report.step()
    assert said == []


def test_a_slow_rank_has_steps_recorded_in_a_job_that_was_armed(clock, tmp_path, monkeypatch):
    monkeypatch.setenv("ALLTRACE_ARMED", str(tmp_path))

    def gather(mine):
        return [[1.2 * mine[0], *mine[1:]], *[list(mine)] * 7]

    with step_report(10, gather=gather, rank=0, say=lambda _: None, capture=2) as report:
        for n in range(40):
            clock.now += 0.1
            report.step()
            if n == 9:
                assert read_control(str(tmp_path / REQUEST)) == {"id": 1, "steps": 10, "ranks": None, "lead_s": 3.0}
    assert read_control(str(tmp_path / REQUEST))["id"] == 2  # and no third one


def test_what_cannot_be(clock):
    with pytest.raises(UsageError, match="compares too few steps; expected 10 or more"):
        step_report(3)
    report = step_report(10)
    for n in range(16):
        report.phase(f"layer {n}")
    with pytest.raises(UsageError, match="'step 17' is one too many"):
        report.phase("step 17")


def test_a_phase_may_come_often_in_a_step_or_not_at_all(clock):
    seen = []
    with step_report(10, gather=lambda mine: seen.append(list(mine))) as report:
        for n in range(10):
            for _ in range(3):
                with report.phase("micro"):
                    clock.now += 0.01
            if n == 0:
                with report.phase("rare"):
                    clock.now += 1.0
            report.step()
    ((own, error, micro, rare),) = seen
    assert (own, micro, rare) == pytest.approx((0.03, 0.03, 0.0), abs=1e-6)
    assert error == pytest.approx(0, abs=1e-6)


def test_events_of_a_device_are_read_when_ranks_compare(clock, monkeypatch):
    """A stand-in for PyTorch with a GPU: events are stamps of its stream, which may be read after it was synchronised alone."""

    class Event:
        stream = 0.0
        synchronised = 0.0

        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = Event.stream

        def elapsed_time(self, other):
            assert other.at <= Event.synchronised
            return (other.at - self.at) * 1000

    def synchronize():
        Event.synchronised = Event.stream

    cuda = SimpleNamespace(Event=Event, is_available=lambda: True, is_initialized=lambda: True, synchronize=synchronize)
    torch = SimpleNamespace(cuda=cuda, distributed=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", torch)
    seen = []
    with step_report(10, gather=lambda mine: seen.append(list(mine))) as report:
        for _ in range(20):
            with report.phase("forward"):
                Event.stream += 0.03
            with report.phase("wait"):
                Event.stream += 0.02
            report.step()
    assert seen == [pytest.approx([0.03, 0.0, 0.03, 0.02], abs=1e-6)] * 2


TRAINING = """
import json, os, socket, sys, time
from alltrace.instrument import step_report
rank, place, began = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
def gather(mine):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(place)
        s.sendall(json.dumps([rank, list(mine)]).encode() + b"\\n")
        return json.loads(s.makefile().readline())
spent = 0.0
def cost(call, *a):
    global spent
    t = time.perf_counter(); found = call(*a); spent += time.perf_counter() - t
    return found
with step_report(50, gather=gather, rank=rank) as report:
    time.sleep(max(0, began - time.time()))
    for n in range(50):
        for name, share in (("data", 0.01), ("forward", 0.05), ("backward", 0.04)):
            p = cost(report.phase, name); cost(p.__enter__)
            time.sleep(share * (1.25 if rank == 11 and name == "forward" else 1))
            cost(p.__exit__, None, None, None)
        with report.phase("wait"): time.sleep(max(0, began + (n + 1) * 0.13 - time.time()))
        if n < 49: cost(report.step)
    report.step()
print(spent / 49)
"""


@pytest.mark.slow
def test_processes_name_the_slow_one_within_50_steps(tmp_path):
    ranks, rows, waiting = cases(16, 64), {}, []
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "s"))
    server.listen(ranks)
    server.settimeout(120)

    def serve():
        for _ in range(ranks):
            one, _ = server.accept()
            rank, row = json.loads(one.makefile().readline())
            rows[rank] = row
            waiting.append(one)
        told = json.dumps([rows[n] for n in range(ranks)]).encode() + b"\n"
        for one in waiting:
            one.sendall(told)
            one.close()

    thread = threading.Thread(target=serve)
    thread.start()
    (tmp_path / "train.py").write_text(TRAINING)
    environment = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[2])}
    began = str(time.time() + 2 + ranks / 5)
    started = [
        subprocess.Popen(
            [sys.executable, "train.py", str(rank), str(tmp_path / "s"), began],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    ended = [one.communicate(timeout=120) for one in started]
    thread.join()
    server.close()
    (said,) = [err for _, err in ended if err]
    assert said.startswith("alltrace: steps 0 to 49: rank 11 takes ")
    assert ", most in forward (" in said
    sys.stdout.write(f"us a step: {sorted(float(out) * 1e6 for out, _ in ended)[ranks // 2]:.0f}\n")  # shown by -s


GLOO = """
import os, sys, time
import torch, torch.distributed as group
from alltrace.instrument import step_report
group.init_process_group("gloo")
rank = group.get_rank()
one = torch.ones(1)
with step_report(10) as report:
    for n in range(10):
        with report.phase("forward"): time.sleep(0.05 if rank != 1 else 0.08)
        with report.phase("wait"): group.all_reduce(one)
        report.step()
group.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.skipif(find_torch() is None, reason="no PyTorch: set ALLTRACE_TORCH_PYTHON")
def test_the_process_group_of_the_job_carries_it(tmp_path):
    (tmp_path / "train.py").write_text(GLOO)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(module.__file__).parents[2]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    run = [
        str(find_torch()),
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=3",
        "--master-addr=127.0.0.1",
        f"--master-port={port}",
    ]
    done = subprocess.run(
        [*run, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("alltrace:")]
    assert "steps 0 to 9: rank 1 takes " in line
    assert "most in forward" in line
