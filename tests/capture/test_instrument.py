import json
import os
import subprocess
import sys
import types
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import pytest

from alltrace.capture import cuda_profiler, instrument
from alltrace.capture import steps as steps_module
from alltrace.instrument import annotate, profiled, steps, torch_profile, trace_func
from alltrace.trace.errors import UsageError


@pytest.fixture
def calls(monkeypatch):
    """What is called where the process is profiled."""
    found = []
    monkeypatch.setenv("ALLTRACE_CAPTURE", "nsys")
    monkeypatch.delenv("ALLTRACE_STEPS", raising=False)
    monkeypatch.setattr(cuda_profiler, "synchronise", lambda: found.append("synchronise"))
    monkeypatch.setattr(cuda_profiler, "switch", lambda what: found.append(what) or True)
    monkeypatch.setattr(instrument, "makers", [])
    return found


WINDOW = ["synchronise", "Start", "synchronise", "Stop"]


def train(window, most):
    recorded = []
    with window:
        for n in range(most):
            if window.recording:
                recorded.append(n)
            window.step()
    return recorded


def test_the_window_is_recorded_from_its_first_step_up_to_its_end(calls):
    assert train(steps(3, 5), 10) == [3, 4]
    assert calls == WINDOW


def test_the_window_may_begin_at_once(calls):
    assert train(steps(0, 2), 10) == [0, 1]
    assert calls == WINDOW


@pytest.mark.parametrize(
    ("window", "written"),
    [((3, 5), ["r_rank0_memory_steps3-4.pickle"]), (None, ["r_rank0_memory.pickle"]), ((30, 50), [])],
)
def test_what_the_allocator_did_in_the_recorded_steps_is_written(calls, monkeypatch, tmp_path, window, written):
    history = []

    def record(enabled="all", max_entries=None):
        history.append((enabled, max_entries))

    memory = types.SimpleNamespace(
        _record_memory_history=record, _dump_snapshot=lambda path: Path(path).write_text("snapshot")
    )
    cuda = types.SimpleNamespace(memory=memory, is_available=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    monkeypatch.setenv("ALLTRACE_MEMORY_SNAPSHOT", str(tmp_path / "r_rank0_memory"))
    train(steps(*window) if window else steps(), 10)
    assert [p.name for p in tmp_path.iterdir()] == written
    assert history == ([("all", 200_000), (None, None)] if written else [])


def test_without_a_gpu_there_is_no_snapshot_and_that_is_said(calls, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("ALLTRACE_MEMORY_SNAPSHOT", str(tmp_path / "r"))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    train(steps(3, 5), 10)
    assert capsys.readouterr().err.count("--memory-snapshot needs PyTorch with a GPU") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_training_that_ends_early_still_ends_the_window(calls):
    assert train(steps(3, 50), 5) == [3, 4]
    assert calls == WINDOW
    with pytest.raises(RuntimeError), steps(0, 5):
        raise RuntimeError
    assert calls == WINDOW * 2


def test_a_training_that_ends_before_the_window_records_nothing(calls):
    assert train(steps(30, 50), 5) == []
    assert calls == []


def test_steps_are_counted_over_a_resumed_training(calls):
    assert train(steps(73, 75, at=70), 10) == [3, 4]
    assert train(steps(3, 75, at=70), 10) == [0, 1, 2, 3, 4]
    assert calls == WINDOW * 2
    assert train(steps(3, 5, at=70), 10) == []


def test_the_command_line_says_which_steps(calls, monkeypatch):
    monkeypatch.setenv("ALLTRACE_STEPS", "1:2")
    assert train(steps(), 5) == [1]
    assert train(steps(3, 5), 5) == [1]
    monkeypatch.setenv("ALLTRACE_STEPS", "x")
    assert train(steps(), 5) == []


def test_nothing_happens_where_the_process_is_not_profiled(calls, monkeypatch):
    monkeypatch.delenv("ALLTRACE_CAPTURE")
    for name in instrument._UNDER_NSYS:
        monkeypatch.delenv(name, raising=False)
    assert not profiled()
    assert train(steps(1, 3), 5) == []
    assert calls == []
    assert annotate("a") is annotate("b")

    def plain():
        return 7

    assert annotate("a")(plain) is plain
    assert trace_func(plain)() == 7


@pytest.mark.parametrize(("first", "end"), [(1, None), (None, 1), (5, 5), (5, 4)])
def test_windows_that_cannot_be(first, end):
    with pytest.raises(UsageError):
        steps(first, end)


class Recorded:
    def __init__(self, name, found):
        self.name, self.found = name, found

    def __enter__(self):
        self.found.append(f"+{self.name}")

    def __exit__(self, *_):
        self.found.append(f"-{self.name}")


def test_ranges_nest_and_decorate(calls, monkeypatch):
    monkeypatch.setattr(instrument, "makers", [lambda name: Recorded(name, calls)])

    @trace_func(name="inner")
    def inner():
        """Its text."""
        return 1

    @annotate("outer")
    def outer():
        with annotate("block"):
            return inner()

    assert outer() == 1
    assert inner.__doc__ == "Its text."
    assert calls == ["+outer", "+block", "+inner", "-inner", "-block", "-outer"]
    calls.clear()
    assert train(steps(1, 2), 3) == [1]
    around = [
        "+step 0",
        "-step 0",
        "synchronise",
        "Start",
        "+steps",
        "+step 1",
        "-step 1",
        "synchronise",
        "-steps",
        "Stop",
    ]
    assert calls == [*around, "+step 2", "-step 2", "+step 3", "-step 3"]


def test_a_range_lies_around_each_step_also_without_a_window(calls, monkeypatch):
    monkeypatch.setattr(instrument, "makers", [lambda name: Recorded(name, calls)])
    assert train(steps(at=7), 2) == []
    assert calls == ["+step 7", "-step 7", "+step 8", "-step 8", "+step 9", "-step 9"]
    calls.clear()
    with pytest.raises(RuntimeError), steps():
        raise RuntimeError
    assert calls == ["+step 0", "-step 0"]


def test_the_capture_says_how_long_the_steps_before_it_took(calls, monkeypatch):
    monkeypatch.setattr(instrument, "makers", [lambda name: Recorded(name, calls)])
    monkeypatch.setenv("ALLTRACE_STEPS", "20:22")
    clock = iter(range(0, 10**12, 104_000_000))
    monkeypatch.setattr(steps_module, "perf_counter_ns", lambda: next(clock))
    train(steps(), 25)
    own = [c for c in calls if "before the window" in c]
    # of the 20 steps before, the first 3 warm up, and the others have 16 times between their ends
    assert own == [f"{sign}alltrace: 16 steps before the window took 104000000 ns each, within 0 ns" for sign in "+-"]
    assert calls.index("Start") < calls.index(own[0]) < calls.index("Stop")


def test_a_process_that_is_not_profiled_takes_no_times(calls, monkeypatch):
    monkeypatch.delenv("ALLTRACE_CAPTURE")
    monkeypatch.setattr(steps_module, "perf_counter_ns", lambda: 1 / 0)
    train(steps(5, 9), 20)


@pytest.mark.parametrize(
    ("by", "said"), [("cuda", "no CUDA runtime was found"), ("nvtx", "pip install nvtx"), ("", "")]
)
def test_a_window_that_nothing_can_open_is_named(calls, monkeypatch, capsys, by, said):
    monkeypatch.setattr(cuda_profiler, "switch", lambda what: False)
    monkeypatch.setenv("ALLTRACE_STEPS_BY", by)
    assert train(steps(1, 2), 3) == [1]
    assert said in capsys.readouterr().err


def test_torch_profile_refuses_to_run_under_another_profiler(calls):
    with pytest.raises(UsageError, match="both need CUPTI"):
        torch_profile("traces")


def test_without_a_folder_it_records_only_where_capture_exec_says_so(monkeypatch):
    monkeypatch.delenv("ALLTRACE_TRACES", raising=False)
    with torch_profile() as profile:
        profile.step()
    profile.start()
    profile.stop()
    assert isinstance(profile, instrument._NoProfile)


class Scheduled:
    """A stand-in for torch.profiler: calls the handler at the end of each cycle of the schedule."""

    def __init__(self, on_trace_ready, schedule=None, **options):
        self.schedule, self.ready, self.options, self.steps, self.exports = schedule, on_trace_ready, options, 0, []

    def step(self):
        self.steps += 1
        wait, warmup, active, repeat = (self.schedule[n] for n in ("wait", "warmup", "active", "repeat"))
        cycle, at = divmod(self.steps, wait + warmup + active)
        if not at and (not repeat or cycle <= repeat):
            self.ready(self)

    def start(self):
        self.steps = -1

    def stop(self):
        self.ready(self)

    def export_chrome_trace(self, path):
        self.exports.append(path)
        Path(path).write_text(json.dumps(self.steps))


@pytest.fixture
def torch_stub(monkeypatch):
    profiler = types.SimpleNamespace(
        profile=Scheduled, schedule=lambda **given: given, record_function=lambda name: None
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(profiler=profiler))
    monkeypatch.setattr(instrument, "makers", [])
    for name in ("ALLTRACE_CAPTURE", "ALLTRACE_STEPS", "ALLTRACE_TRACES", "ALLTRACE_JOB", *instrument._UNDER_NSYS):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "77"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return profiler


def test_one_trace_a_rank_and_cycle_named_by_rank_and_world_size(torch_stub, tmp_path):
    profile = torch_profile(str(tmp_path / "traces"), wait=1, warmup=1, active=2, repeat=3, record_shapes=True)
    for _ in range(20):
        profile.step()
    names = [f"77_rank3-of-8_cycle{n}.pt.trace.json.gz" for n in range(3)]
    assert [Path(p).name for p in profile.exports] == names
    assert [json.loads((tmp_path / "traces" / n).read_text()) for n in names] == [4, 8, 12]
    assert profile.options == {"record_shapes": True}
    assert instrument.makers == [torch_stub.record_function]


@pytest.mark.parametrize("own", [False, True])
def test_steps_alone_are_traced_by_torch_unless_the_script_has_a_profile_of_its_own(
    torch_stub, monkeypatch, tmp_path, own
):
    monkeypatch.setenv("ALLTRACE_TRACES", str(tmp_path))
    monkeypatch.setenv("ALLTRACE_STEPS", "2:4")
    monkeypatch.setattr(instrument, "_taken", [])
    monkeypatch.setattr(cuda_profiler, "synchronise", lambda: None)
    torch_stub.record_function = lambda name: nullcontext()
    if own:
        torch_profile()
    assert train(steps(), 9) == [2, 3]
    traces = [p.name for p in tmp_path.iterdir()]
    assert traces == ([] if own else ["77_rank3-of-8_steps2-3.pt.trace.json.gz"])


@pytest.mark.parametrize(("steps", "schedule"), [("70:75", (69, 1, 5)), ("1:2", (0, 1, 1)), ("0:2", (0, 0, 2))])
def test_the_command_line_says_which_steps_are_traced(torch_stub, monkeypatch, tmp_path, steps, schedule):
    monkeypatch.setenv("ALLTRACE_TRACES", str(tmp_path))
    monkeypatch.setenv("ALLTRACE_STEPS", steps)
    monkeypatch.setenv("ALLTRACE_JOB", "a/b")
    profile = torch_profile(wait=3, repeat=9)
    assert profile.schedule == dict(zip(("wait", "warmup", "active", "repeat"), (*schedule, 1), strict=True))
    for _ in range(100):
        profile.step()
    assert [Path(p).name for p in profile.exports] == ["a-b_rank3-of-8_cycle0.pt.trace.json.gz"]


def test_workers_that_are_started_again_keep_the_traces_of_before(torch_stub, monkeypatch, tmp_path):
    monkeypatch.setenv("ALLTRACE_JOB", "j")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    profile = torch_profile(str(tmp_path), wait=0, warmup=0, active=1)
    profile.step()
    profile.step()
    assert Path(profile.exports[0]).name == "j-restart1_rank3-of-8_cycle0.pt.trace.json.gz"


@pytest.mark.parametrize("cuda", ["13.2", None])
def test_ranges_by_pytorch_have_any_name_and_none_are_made_where_it_has_no_cuda(monkeypatch, cuda):
    opened = []

    @contextmanager
    def nvtx_range(text, *arguments):  # as torch.cuda.nvtx has it
        opened.append(text.format(*arguments))
        yield

    nvtx = types.SimpleNamespace(range=nvtx_range)
    version = types.SimpleNamespace(cuda=cuda)
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(version=version))
    monkeypatch.setitem(sys.modules, "torch.cuda", types.SimpleNamespace(nvtx=nvtx))
    make = instrument._nvtx()
    monkeypatch.setattr(instrument, "makers", [make] if make else [])
    with annotate("loss {x} {"):
        pass
    assert opened == (["loss {x} {"] if cuda else [])


def test_it_is_light_to_import():
    script = (
        "import sys, alltrace.instrument; print(sorted({'numpy', 'pyarrow', 'torch', 'nvtx', 'asyncio'} &"
        " set(sys.modules)))"
    )
    bare = {k: v for k, v in os.environ.items() if k not in (instrument.MARK, *instrument._UNDER_NSYS)}
    bare["PYTHONPATH"] = str(Path(instrument.__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", script], env=bare, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.oracle
def test_the_real_nsys_records_just_the_window(capture, nsys, tmp_path):
    pytest.importorskip("nvtx")
    program = """
from alltrace.instrument import annotate, steps
with steps() as window:
    for n in range(10):
        with annotate(f"step {n}"):
            pass
        window.step()
"""
    options = ["--nsys", nsys, "--trace", "nvtx", "--job", "j", "--steps", "3:5", "--steps-by", "nvtx", "--verbose"]
    done = capture("exec", *options, "--", sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    (report,) = (tmp_path / "reports").iterdir()
    target = tmp_path / "x.sqlite"
    subprocess.run(
        [nsys, "export", "-t", "sqlite", "-q", "true", "-o", target, report], check=True, capture_output=True
    )
    import sqlite3

    with closing(sqlite3.connect(target)) as db, db:
        names = {
            t for (t,) in db.execute("SELECT coalesce(text, value) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId")
        }
    db.close()
    assert {n for n in names if n and n.startswith("step ")} == {"step 3", "step 4"}


@pytest.mark.oracle
def test_torch_profile_refuses_under_the_real_nsys_however_it_was_started(nsys, tmp_path):
    program = "from alltrace.instrument import torch_profile\ntorch_profile('traces')"
    bare = {k: v for k, v in os.environ.items() if k != instrument.MARK}
    bare["PYTHONPATH"] = str(Path(instrument.__file__).parents[2])
    command = [
        nsys,
        *"profile -t none -s none --cpuctxsw=none -o".split(),
        tmp_path / "x",
        sys.executable,
        "-c",
        program,
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=bare, cwd=tmp_path, check=False, timeout=120)
    assert "torch_profile cannot run under nsys or ncu: both need CUPTI" in done.stdout + done.stderr
    assert not (tmp_path / "traces").exists()
