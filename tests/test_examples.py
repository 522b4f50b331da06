"""The examples run: with PyTorch on CPUs where it is installed; callbacks are called as their frameworks do, jobs are
rendered."""

import gzip
import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from alltrace.capture import cuda_profiler, instrument
from alltrace.capture.scripts.registry import render
from alltrace.capture.scripts.settings import Job, read_job
from tests.capture.launching import find_torch

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
TARGETS = {"megatron.toml": "slurm", "nemo.toml": "slurm-pyxis", "nccl-tests.toml": "k8s-mpijob"}


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_names_every_example():
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"({p.name})" in page for p in EXAMPLES.iterdir() if p.suffix in (".py", ".toml"))


@pytest.mark.parametrize("name", sorted(p.name for p in EXAMPLES.glob("*.toml")))
def test_a_job_is_rendered_for_its_target(name):
    assert render(TARGETS[name], Job(read_job(EXAMPLES / name)))


def test_megatron_and_nemo_get_the_window_and_the_ranks():
    text = " ".join(render("slurm", Job(read_job(EXAMPLES / "megatron.toml"))).split())
    assert "--profile --profile-step-start 70 --profile-step-end 75 --profile-ranks 0 8 16 24" in text
    text = " ".join(render("slurm-pyxis", Job(read_job(EXAMPLES / "nemo.toml"))).split())
    assert "model.nsys_profile.start_step=70 model.nsys_profile.end_step=74 'model.nsys_profile.ranks=[0,8]'" in text


@pytest.fixture
def calls(monkeypatch):
    """What is called where the process is profiled."""
    found = []
    monkeypatch.setenv("ALLTRACE_CAPTURE", "nsys")
    monkeypatch.setenv("ALLTRACE_STEPS", "3:5")
    monkeypatch.delenv("ALLTRACE_TRACES", raising=False)
    monkeypatch.setattr(cuda_profiler, "synchronise", lambda: None)
    monkeypatch.setattr(cuda_profiler, "switch", lambda what: found.append(what) or True)
    monkeypatch.setattr(instrument, "makers", [])
    return found


@pytest.mark.parametrize(("first", "last", "recorded"), [(0, 10, [3, 4]), (4, 10, [4]), (0, 4, [3]), (6, 10, [])])
def test_the_callback_of_transformers(calls, monkeypatch, first, last, recorded):
    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(TrainerCallback=object))
    callback = load("huggingface_trainer").AlltraceCallback()
    state = types.SimpleNamespace(global_step=first)
    found = []
    callback.on_train_begin(None, state, None)
    for step in range(first, last):
        callback.on_step_begin(None, state, None)
        if callback._window.recording:
            found.append(step)
        callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)
    assert found == recorded
    assert calls == (["Start", "Stop"] if recorded else [])


@pytest.mark.parametrize("fails", [False, True])
def test_the_callback_of_lightning(calls, monkeypatch, fails):
    pytorch = types.SimpleNamespace(Callback=object)
    monkeypatch.setitem(sys.modules, "lightning", types.SimpleNamespace(pytorch=pytorch))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", pytorch)
    ranges = []
    monkeypatch.setattr(instrument, "makers", [lambda name: _Range(name, ranges)])
    callback = load("lightning_callback").AlltraceCallback()
    trainer = types.SimpleNamespace(fit_loop=types.SimpleNamespace(total_batch_idx=-1))
    callback.on_train_start(trainer, None)
    for batch in range(4):
        callback.on_train_batch_start(trainer, None, None, batch)
        callback.on_before_backward(trainer, None, None)
        if fails and batch == 3:
            callback.on_exception(trainer, None, RuntimeError())
            break
        callback.on_after_backward(trainer, None)
        callback.on_train_batch_end(trainer, None, None, None, batch)
    else:
        callback.on_train_end(trainer, None)
    assert calls == ["Start", "Stop"]
    assert ranges[:4] == ["+step", "+backward", "-backward", "-step"]
    assert sorted(r[1:] for r in ranges if r[0] == "+") == sorted(r[1:] for r in ranges if r[0] == "-")


class _Range:
    def __init__(self, name, found):
        self.name, self.found = name, found

    def __enter__(self):
        self.found.append(f"+{self.name}")

    def __exit__(self, *_):
        self.found.append(f"-{self.name}")


def launched(command, tmp_path):
    """The run of `command(folder)`, and its folder; again where threads of PyTorch's Gloo ended in the wrong order.

    They do now and then on a busy machine, with a profiler and without, once the training is over.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    for attempt in range(5):
        folder = tmp_path / f"try{attempt}"
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            command(folder), capture_output=True, text=True, env=environment, timeout=300, check=False
        )
        if "terminate called without an active exception" not in done.stderr:
            break
    return done, folder


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ranks"), [("plain_pytorch", 1), ("ddp", 2), ("fsdp", 2)])
def test_an_example_trains_and_every_rank_traces_just_the_window(name, ranks, tmp_path):
    python = find_torch()
    if python is None:
        pytest.skip("no PyTorch: set ALLTRACE_TORCH_PYTHON")
    script = [python, str(EXAMPLES / f"{name}.py"), "--steps", "6"]
    wrapper = [sys.executable, *"-m alltrace.cli.main capture exec --profiler torch --steps 3:5 --job j".split()]
    launcher = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "--no-python"]
    started = launcher if ranks > 1 else []
    done, folder = launched(lambda out: [*started, *wrapper, "-o", str(out), "--", *script], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    traces = sorted(folder.iterdir())
    assert [p.name for p in traces] == [f"j_rank{r}-of-{ranks}_cycle0.pt.trace.json.gz" for r in range(ranks)]
    for path in traces:
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        names = [e.get("name") for e in events if e.get("cat") == "user_annotation"]
        assert [names.count(n) for n in ("forward", "backward", "optimizer")] == [2, 2, 2]
    # and without a profiler nothing is written
    done, _ = launched(lambda _: [*started, *script], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(list(folder.iterdir())) == ranks


class _Hooked:
    """A stand-in for a module or an optimizer, which keeps hooks."""

    def __init__(self):
        self.hooks = {}

    def __getattr__(self, name):
        if not name.startswith("register_"):
            raise AttributeError(name)
        return lambda hook: (
            self.hooks.setdefault(name, hook) and types.SimpleNamespace(remove=lambda: self.hooks.pop(name))
        )


def recorded_steps(folder):
    from alltrace.trace.step_records import read_ranks

    (rank,) = read_ranks(next(folder.iterdir()))
    return [step.step for step in rank.steps], rank.phases


def test_reports_by_callbacks_record_every_step(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "local"))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(TrainerCallback=object))
    pytorch = types.SimpleNamespace(Callback=object)
    monkeypatch.setitem(sys.modules, "lightning", types.SimpleNamespace(pytorch=pytorch))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", pytorch)
    model, optimizer = _Hooked(), _Hooked()
    callback = load("huggingface_trainer").AlltraceReport(str(tmp_path / "hf"))
    state = types.SimpleNamespace(global_step=5)
    callback.on_train_begin(None, state, None, model=model, optimizer=optimizer)
    for _ in range(3):
        model.hooks["register_forward_pre_hook"]()
        model.hooks["register_forward_hook"](None, None, None)
        optimizer.hooks["register_step_pre_hook"]()
        callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)
    assert model.hooks == optimizer.hooks == {}
    assert recorded_steps(tmp_path / "hf") == ([5, 6, 7], ("forward", "backward", "optimizer"))
    callback = load("lightning_callback").AlltraceReport(str(tmp_path / "lightning"))
    fit = types.SimpleNamespace(total_batch_idx=-1)
    trainer = types.SimpleNamespace(fit_loop=fit, optimizers=[optimizer], strategy=types.SimpleNamespace(model=model))
    callback.on_train_start(trainer, None)
    for batch in range(2):
        callback.on_train_batch_end(trainer, None, None, None, batch)
    callback.on_train_end(trainer, None)
    assert recorded_steps(tmp_path / "lightning") == ([0, 1], ("forward", "backward", "optimizer"))


TRAINERS = {
    "lightning": (
        """
import sys, torch, lightning.pytorch as lightning
from lightning_callback import AlltraceReport

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, number):
        return self.layer(batch[0]).pow(2).mean()
    def forward(self, batch):
        return self.layer(batch)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(80, 8)), batch_size=4)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
lightning.Trainer(max_epochs=1, accelerator="cpu", callbacks=[AlltraceReport(sys.argv[1])], **quiet).fit(Model(), loader)
"""  # noqa: E501
    ),
    "transformers": """
import sys, torch
from transformers import Trainer, TrainingArguments
from huggingface_trainer import AlltraceReport

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def forward(self, x, labels=None):
        return {"loss": self.layer(x).pow(2).mean()}

data = [{"x": torch.randn(8), "labels": torch.zeros(1)} for _ in range(80)]
quiet = dict(report_to=[], save_strategy="no", use_cpu=True)
options = TrainingArguments(sys.argv[1] + "-out", max_steps=20, per_device_train_batch_size=4, **quiet)
Trainer(model=Model(), args=options, train_dataset=data, callbacks=[AlltraceReport(sys.argv[1])]).train()
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("library", TRAINERS)
def test_a_real_trainer_records_every_step(tmp_path, library):
    python, paths = find_torch(), [str(EXAMPLES), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    there = python and subprocess.run(
        [python, "-c", f"import torch, {library}"], env=environment, capture_output=True, check=False
    )
    if not there or there.returncode:
        pytest.skip(f"no {library} beside PyTorch: set ALLTRACE_TORCH_PYTHON")
    (tmp_path / "train.py").write_text(TRAINERS[library])
    command = [str(python), str(tmp_path / "train.py"), str(tmp_path / "record")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert recorded_steps(tmp_path / "record") == (list(range(20)), ("forward", "backward", "optimizer"))
