"""Each switch changes what it says and nothing else, as observed on trainings that run."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from tests.capture.launching import find_torch

from benchmarks.ladder.measuring import ROOT

STEPS = 3

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def torch_python():
    python = find_torch()
    if python is None:
        pytest.skip("no PyTorch: set ALLTRACE_TORCH_PYTHON")
    return python


@pytest.fixture(scope="module")
def environment():
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


@pytest.fixture(scope="module")
def observed(torch_python, environment):
    script = str(Path(__file__).with_name("observed_switches.py"))
    done = subprocess.run(
        [torch_python, script], capture_output=True, text=True, env=environment, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_values_are_read_of_the_loss_and_of_every_norm_or_not_at_all(observed):
    assert observed["reads"] == [STEPS * (1 + observed["parameters"]), 0]


def test_attention_is_one_operator_or_its_parts(observed):
    fused, parts = observed["attention"]
    assert any("flash_attention_for_cpu" in name for name in fused)
    assert "aten::_scaled_dot_product_attention_math" not in fused
    assert parts == ["aten::_scaled_dot_product_attention_math"]


def test_products_have_the_precision(observed):
    assert observed["precision"] == {
        "fp32": ["torch.float32", "highest", False],
        "tf32": ["torch.float32", "high", True],
        "bf16": ["torch.bfloat16", "high", True],
    }


def test_samples_come_from_so_many_processes(observed):
    assert observed["workers"] == [[0, [8, 3, 32, 32]], [2, [8, 3, 32, 32]]]


def test_each_sample_is_smoothed_so_often(observed):
    assert observed["sample_passes"] == [7]
    assert observed["passes"] == [True] * 3


def test_garbage_is_collected_once_a_step_or_never_and_the_heap_is_there(observed):
    assert observed["collections"] == [STEPS + 1, 0]  # the warm-up step too
    assert observed["live"] == pytest.approx(100_000, rel=0.05)


def test_the_host_sleeps_so_long_in_each_step(observed):
    assert observed["sleep"] == [[[0.02]] * STEPS, []]


def test_the_allocator_is_emptied_in_each_step(observed):
    assert observed["emptied"] == [STEPS, 0]


def test_batches_are_page_locked_and_copied_without_waiting_or_neither(observed):
    assert observed["copies"] == [[True] * 4, [False] * 4]


def test_the_model_is_compiled(observed):
    assert observed["compiled"] == ["OptimizedModule", "Transformer"]


def test_a_step_is_captured_once_replayed_each_time_and_reads_the_batch_at_hand(observed):
    before_capture = 3
    assert observed["graph"] == [before_capture + 1, 1, STEPS, True, True]


def test_both_sides_begin_with_the_same_weights(observed):
    assert observed["same_weights"]


STARTS_A_NEIGHBOUR = """
import subprocess, sys
process = subprocess.Popen([sys.argv[1], "-m", "benchmarks.ladder.neighbour", "--device", "cpu"], stdout=subprocess.PIPE, text=True)
print(process.pid, process.stdout.readline(), end="")
"""  # noqa: E501


def test_the_second_process_ends_with_the_one_that_started_it(torch_python, environment):
    command = [torch_python, "-c", STARTS_A_NEIGHBOUR, torch_python]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=True)
    pid, said = done.stdout.split()
    assert said == "ready"
    for _ in range(600):
        if not running(int(pid)):
            return
        time.sleep(0.1)
    pytest.fail("it went on")


def running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
