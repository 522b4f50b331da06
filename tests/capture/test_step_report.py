"""The verdict inside the loop: a slow rank is named with its phase, noise is not, the phases add up, and nothing
waits."""

import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from array import array
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.capture.launching import find_torch

from alltrace.capture import step_exchange
from alltrace.capture import step_report as module
from alltrace.capture.control import read_control
from alltrace.capture.gpu_state import GpuSampler, GpuState, gpu_words
from alltrace.capture.step_report import step_report
from alltrace.capture.step_verdict import CPU_WAIT, OTHER, describe, judge, times_of, unpacked
from alltrace.capture.variables import REQUEST
from alltrace.core.steps import StepTimes
from alltrace.trace.errors import UsageError
from alltrace.trace.step_records import BY_DEVICE, read_ranks

SOURCE = str(Path(module.__file__).parents[2])
PHASES = {"data": 0.005, "forward": 0.030, "backward": 0.055, "optimizer": 0.010}
NAMES = [CPU_WAIT, OTHER, *PHASES, "wait"]
WAITS = frozenset({"wait"})


class Store:
    """A store in memory, like `torch.distributed.TCPStore`."""

    def __init__(self):
        self.values, self.counters, self.lock = {}, {}, threading.Lock()

    def set(self, key, value):
        self.values[key] = value

    def add(self, key, amount):
        with self.lock:
            self.counters[key] = self.counters.get(key, 0) + amount
            return self.counters[key]

    def check(self, keys):
        return all(key in self.values for key in keys)

    def multi_get(self, keys):
        return [self.values[key] for key in keys]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(step_exchange, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(step_exchange, "_LOOK_S", 0.001)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.fixture
def clock(monkeypatch):
    """The host's clock, which only this test moves; nothing waits for a processor."""
    now = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "StepTimes", lambda every: StepTimes(every, lambda: (round(1e9 * now.now), 0)))
    return now


def rows_of(*, ranks=64, slow=None, phase="forward", extra=0.005, noise=0.01, steps=50, seed=1):
    """What ranks send whose phases scatter, and that wait for the slowest of them."""
    chance = random.Random(seed)
    works = [
        [[0.0, 0.0, *(s * chance.gauss(1, noise) + (extra if rank == slow and p == phase else 0) for p,
            s in PHASES.items())]
         for _ in range(steps)]
        for rank in range(ranks)
    ]  # fmt: skip
    longest = [max(sum(work[n]) for work in works) for n in range(steps)]
    sent = []
    for work in works:
        steps_of = [[*step, end - sum(step)] for step, end in zip(work, longest, strict=True)]
        columns = [array("d", column) for column in zip(*steps_of, strict=True)]
        sent.append(times_of(columns, NAMES, WAITS, 200, 4, GpuState()))
    return sent


@pytest.mark.parametrize("phase", PHASES)
def test_a_rank_that_is_slower_by_a_twentieth_is_named_with_its_phase(phase):
    verdict = judge(rows_of(slow=17, phase=phase), sorted(NAMES), WAITS)
    ((rank, loss_s, its_phase, phase_s, errors),) = verdict.slow
    assert (rank, its_phase) == (17, phase)
    assert loss_s == pytest.approx(0.005, abs=0.001)
    assert phase_s == pytest.approx(0.005, abs=0.001)
    assert errors > 5


@pytest.mark.parametrize("seed", range(20))
def test_noise_names_nobody_and_what_would_be_seen_is_said(seed):
    rows = rows_of(ranks=16, noise=0.02, seed=seed)
    verdict = judge(rows, sorted(NAMES), WAITS)
    assert verdict.slow == ()
    assert 0.01 <= verdict.least_share < 0.05
    assert "no rank of 16 is slow" in describe(verdict, rows, sorted(NAMES), {}, WAITS)


def test_the_times_of_a_row_survive_the_way_and_damage_is_noticed():
    row = rows_of(ranks=1)[0]._replace(gpu=GpuState(1100, 1980, 4, 79))
    packed = row.packed()
    assert len(packed) < 300
    back = unpacked(packed)
    assert back[:8] == row[:8]
    assert back.slowest_s == pytest.approx(row.slowest_s)
    assert sum(back.slowest_s) == pytest.approx(sum(row.slowest_s))
    assert unpacked(packed[:-1]) is None
    assert unpacked(b"") is None
    assert unpacked(packed[:-4] + b"\0\0\xc0\x7f") is None  # not a number


def train(clock, report, steps, work, extra=0.0):
    """The same number of steps, with the time in phases and in none."""
    with report:
        for n in range(steps):
            time.sleep(0.05 if n % 10 == 0 else 0)  # for the exchange
            for name, seconds in work.items():
                with report.phase(name):
                    clock.now += seconds
            clock.now += extra
            report.step()


def test_ranks_compare_by_a_store_and_the_line_says_all(clock, monkeypatch, tmp_path):
    monkeypatch.setenv("ALLTRACE_ARMED", str(tmp_path))
    store, lines, reports = Store(), [], []
    for rank in (1, 2, 3, 0):
        report = step_report(10, store=store, rank=rank, world=4, at=200, say=lines.append, capture=1)
        report._exchange._prefix = "job"  # as in processes of their own
        reports.append(report)
        train(
            clock,
            report,
            20,
            {"data": 0.01, "forward": 0.05 if rank == 2 else 0.03, "wait": 0.0 if rank == 2 else 0.02},
            0.001,
        )
    first, second = lines
    assert re.match(
        r"steps 200 to 209: 61\.0 ms a step; rank 2 is slow since step 200 \(\d\d:\d\d:\d\d\): 20\.0 ms \(32\.8 % of a"
        r" step\) "
        r"more than the median rank, most in forward \(20\.0 ms\), 99 standard errors; slowest step 200: 61\.0 ms on"
        r" rank 2: "
        r"forward 50\.0, data 10\.0, other 1\.0, ",
        first,
    ), first
    assert "rank 2 is slow since step 200 (" in second
    assert reports[-1].last.slow[0].rank == 2
    assert read_control(str(tmp_path / REQUEST)) == {
        "id": 1,
        "steps": 10,
        "ranks": None,
        "lead_s": 3.0,
    }  # and no second one


def test_missed_exchanges_and_a_store_that_hangs_end_the_comparison(clock):
    store, lines = Store(), []
    report = step_report(10, store=store, rank=0, world=2, say=lines.append)
    with report:
        for n in range(60):
            clock.now += 0.1
            report.step()
            if n % 10 == 9:
                time.sleep(0.3)
    assert lines == [
        "rank 1 sent nothing of steps 10 and later; ranks are no longer compared, and the training goes on"
    ]

    class Hanging(Store):
        def set(self, key, value):
            time.sleep(60)

    lines = []
    report = step_report(10, store=Hanging(), rank=0, world=2, say=lines.append)
    began = time.monotonic()
    for _ in range(100):
        report.step()
        time.sleep(0.01)
    assert time.monotonic() - began < 10
    assert lines == ["the store does not answer; ranks are no longer compared, and the training goes on"]


def test_a_store_that_fails_and_none_at_all(clock, monkeypatch):
    class Failing(Store):
        def add(self, key, amount):
            raise RuntimeError("reset by peer")

    lines = []
    with step_report(10, store=Failing(), rank=0, world=2, say=lines.append) as report:
        for n in range(40):
            report.step()
            time.sleep(0.05 if n % 10 == 9 else 0)
    assert lines == [
        "the store of the job failed (reset by peer); ranks are no longer compared, and the training goes on"
    ]
    train(clock, step_report(10, rank=0, world=1, say=lines.append), 20, {})
    assert len(lines) == 1


def test_what_cannot_be_compared_or_asked_for(clock):
    for work, other, words in (
        ({"forward": 0.1}, {"forward": 0.1, "evaluation": 0.1}, "ranks have other phases, so they cannot be compared"),
        ({}, {}, "whole steps do not show which rank waits for which; put report.phase('wait')"),
    ):
        store, lines = Store(), []
        for rank, its in ((1, other), (0, work)):
            report = step_report(10, store=store, rank=rank, world=2, say=lines.append)
            report._exchange._prefix = "job"
            train(clock, report, 10, its, 0.01)
        (line,) = lines
        assert words in line
    with pytest.raises(UsageError, match="compares too few steps; expected 10 or more"):
        step_report(3)
    report = step_report(10)
    with pytest.raises(UsageError, match="itself measures 'other'"):
        report.phase("other")
    for n in range(16):
        report.phase(f"layer {n}")
    with pytest.raises(UsageError, match="'step 17' is one too many"):
        report.phase("step 17")


def test_phases_add_up_and_the_record_has_each_step(clock, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "local"))
    report = step_report(10, rank=3, world=8, at=7, record=tmp_path / "shared")
    with report:
        for batch in report.data([1, 2, 3]):
            with report.phase("forward"):
                clock.now += 0.02
                with report.phase("wait"):  # it interrupts the phase around it
                    clock.now += 0.01 * batch
                clock.now += 0.03
            clock.now += 0.004
            report.step()
        (page,) = (tmp_path / "local").rglob("*.steps")
        (now,) = read_ranks(page)
        assert (now.rank, now.step, now.phase, now.recorded) == (3, 10, "other", 3)
    assert not page.exists()
    (file,) = (tmp_path / "shared").iterdir()
    assert file.stat().st_blocks * 512 < 100_000  # a ring that is not used costs nothing
    (rank,) = read_ranks(file)
    assert (rank.rank, rank.world, rank.phases, rank.waits) == (3, 8, ("data", "forward", "wait"), {"wait"})
    assert [(s.step, s.total_us, s.phases_us[1:3], s.last) for s in rank.steps] == [
        (7, 64_000, (50_000, 10_000), 2), (8, 74_000, (50_000, 20_000), 2), (9, 84_000, (50_000, 30_000), 2),
    ]  # fmt: skip


class Event:
    """A stand-in for an event of a GPU that lags behind the host."""

    stream = done = 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = Event.stream

    def query(self):
        return self.at <= Event.done

    def elapsed_time(self, other):
        assert other.query()
        return (other.at - self.at) * 1000


def test_events_of_a_device_are_read_a_step_later_and_never_waited_for(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "local"))
    cuda = SimpleNamespace(Event=Event, is_available=lambda: True, is_initialized=lambda: True)
    torch = SimpleNamespace(cuda=cuda, distributed=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", torch)
    with step_report(10, rank=0, world=2, record=tmp_path / "shared") as report:
        for n in range(100):
            with report.phase("forward"):
                Event.stream += 0.03
            Event.stream += 0.01
            Event.done = (
                Event.stream - 0.05 if n < 20 or n > 90 else 0.5
            )  # the GPU stands, and 64 steps can wait for it
            report.step()
    (rank,) = read_ranks(next((tmp_path / "shared").iterdir()))
    assert {(s.total_us, s.phases_us[0], s.flags & BY_DEVICE) for s in rank.steps} == {(40_000, 30_000, BY_DEVICE)}
    assert [s.step for s in rank.steps] != list(range(len(rank.steps)))
    assert sum(s.flags != BY_DEVICE for s in rank.steps) == 1  # the step after those that are lost


class Hooks:
    """A stand-in for a module, an optimiser or a tensor: it keeps hooks."""

    def __init__(self):
        self.hooks = {}
        self.requires_grad = True

    def __getattr__(self, name):
        if not name.startswith("register_"):
            raise AttributeError(name)

        def register(hook):
            self.hooks[name] = hook
            return SimpleNamespace(remove=lambda: self.hooks.pop(name))

        return register


def test_hooks_measure_the_phases_of_a_training(clock, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "local"))
    model, optimizer, loss = Hooks(), Hooks(), Hooks()
    report = step_report(10, rank=0, world=2, record=tmp_path / "shared")
    with report.phases(model, optimizer):
        for gradient in (True, False):
            loss.requires_grad = gradient
            assert model.hooks["register_forward_pre_hook"](model, ()) is None  # else PyTorch takes it for the input
            clock.now += 0.02
            model.hooks["register_forward_hook"](model, (), {"logits": 1, "loss": [loss]})
            clock.now += 0.001  # the loss function
            if gradient:
                assert loss.hooks["register_hook"](None) is None
                clock.now += 0.04
                optimizer.hooks["register_step_pre_hook"](optimizer)
                clock.now += 0.01
                optimizer.hooks["register_step_post_hook"](optimizer)
            report.step()
    assert model.hooks == optimizer.hooks == {}
    (rank,) = read_ranks(next((tmp_path / "shared").iterdir()))
    assert rank.phases == ("forward", "backward", "optimizer")
    assert rank.waits == {"wait", "backward"} & set(rank.phases)
    assert [s.phases_us[:3] for s in rank.steps] == [(21_000, 40_000, 10_000), (20_000, 0, 0)]


def test_what_nvml_says_is_the_evidence(monkeypatch):
    class NVMLError(Exception):
        pass

    events = [SimpleNamespace(eventData=79)]

    def wait(_events, _ms):
        if not events:
            raise NVMLError
        return events.pop()

    nvml = SimpleNamespace(
        NVMLError=NVMLError, NVML_CLOCK_SM=1, nvmlEventTypeXidCriticalError=8, nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid, nvmlEventSetCreate=object,
        nvmlDeviceRegisterEvents=lambda *_: None, nvmlDeviceGetClockInfo=lambda *_: 1100,
        nvmlDeviceGetMaxClockInfo=lambda *_: 1980, nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 0x24,
        nvmlEventSetWait_v2=wait,
    )  # fmt: skip
    cuda = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, current_device=lambda: 0,
        get_device_properties=lambda _: SimpleNamespace(uuid="8e0c"),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    sampler = GpuSampler()
    state = sampler.sample()
    assert state == GpuState(1100, 1980, 0x24, 79)
    nvml.nvmlDeviceGetClockInfo = lambda *_: 1
    assert sampler.sample() == state  # once in 10 s
    assert (
        gpu_words(state)
        == "its GPU has Xid 79, its GPU runs at 1,100 of 1,980 MHz, held back by its power cap and heat"
    )
    assert gpu_words(GpuState(1980, 1980, 1)) == ""


def test_importing_it_is_light():
    code = (
        "import sys, alltrace.instrument; print([m for m in ('numpy', 'pyarrow', 'duckdb', 'torch') if m in"
        " sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


GLOO = """
import os, sys, time
import torch, torch.distributed as group
from alltrace.instrument import step_report
group.init_process_group("gloo")
rank = group.get_rank()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters())
one = torch.ones(1)
with step_report(10, record=sys.argv[1]).phases(model, optimizer) as report:
    for batch in report.data([torch.ones(2, 4)] * 10):
        loss = model(batch).sum()
        time.sleep(0.05 if rank != 1 else 0.12)
        loss.backward()
        optimizer.step()
        with report.phase("wait"): group.all_reduce(one)
        report.step()
    time.sleep(1)
group.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.skipif(find_torch() is None, reason="no PyTorch: set ALLTRACE_TORCH_PYTHON")
def test_the_store_of_the_job_carries_it(tmp_path):
    (tmp_path / "train.py").write_text(GLOO)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(tmp_path),
    }  # fmt: skip
    command = [str(find_torch()), "-m", "torch.distributed.run", "--nproc-per-node=3", "--master-addr=127.0.0.1"]
    command += [f"--master-port={port}", "train.py", str(tmp_path / "record")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("alltrace:")]
    assert "steps 0 to 9: " in line
    assert "rank 1 is slow since step 0 (" in line
    assert "most in forward (" in line
    ranks = read_ranks(next((tmp_path / "record").iterdir()))
    assert [rank.rank for rank in ranks] == [0, 1, 2]  # one file for the host
    assert {rank.recorded for rank in ranks} == {10}
    assert ranks[0].phases == ("forward", "backward", "optimizer", "data", "wait")
