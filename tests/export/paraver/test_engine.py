"""The configurations in Paraver's own engine show what the run has: kept results of it, and the engine itself where it
is named.

ALLTRACE_PARAMEDIR names `paramedir`.
"""

import json
import os

import pytest
from tests.export.paraver.engine import EXPECTED, ROWS, US, fingerprint, shown, written

KEPT = json.loads(EXPECTED.read_text())
END = 1200
COMPUTE = [(k["start"] // US, k["end"] // US) for k in ROWS["kernels"] if k["kind"] != "collective"]
NCCL = [(k["start"] // US, k["end"] // US) for k in ROWS["kernels"] if k["kind"] == "collective"]
CALLS = {c["correlation"]: (c["start"] // US, c["end"] // US) for c in ROWS["api"]}
LAUNCHED = [(CALLS[k["correlation"]][0], k["start"] // US, k["end"] // US) for k in ROWS["kernels"]]


def at(spans, time):
    return sum(a <= time < b for a, b in spans)


def timeline(value):
    """The value in each of the 120 pieces of 10 us of the trace."""
    return [value(time) for time in range(0, END, 10)]


def of(view):
    """What the engine showed in these pieces, over all objects."""
    return timeline(lambda t: sum(v for _, start, length, v in KEPT["shown"][view] if start <= t < start + length))


TRUTH = {
    "analysis/kernel_duration": lambda t: sum(b - a for a, b in COMPUTE if a <= t < b),
    "analysis/useful_device": lambda t: at(COMPUTE, t),
    "analysis/nccl_running": lambda t: at(NCCL, t),
    "analysis/overlap": lambda t: at(NCCL, t) * at(COMPUTE, t),
    "analysis/exposed_nccl": lambda t: at(NCCL, t) - at(COMPUTE, t),
    "analysis/kernels_running": lambda t: at(COMPUTE + NCCL, t),
    "analysis/kernels_in_flight": lambda t: at([(sent, end) for sent, _, end in LAUNCHED], t),
    "analysis/launches_queued": lambda t: at([(sent, begun) for sent, begun, _ in LAUNCHED], t),
    "analysis/copy_sizes": lambda t: 1000 * at([(20, 70)], t),
    "analysis/copy_bandwidth": lambda t: 1000 // 50 * at([(20, 70)], t),
    "analysis/nccl_sizes": lambda t: 64 * at(NCCL, t),
    "basics/cuda_calls": lambda t: at(CALLS.values(), t),
    "basics/nvtx_depth": lambda t: at([(0, 900)], t),
    "hwcounters/001_gpu_sm_active": lambda t: 10 if t < 100 else 20 if t < 200 else 30,
}


@pytest.mark.parametrize("view", TRUTH)
def test_what_the_engine_showed_is_what_the_run_has(view):
    assert of(view) == timeline(TRUTH[view])


def test_the_kept_results_are_of_the_trace_and_configurations_of_today(tmp_path):
    assert fingerprint(written(tmp_path)) == KEPT["of"], "made by tests/export/paraver/engine.py"


@pytest.mark.oracle
def test_the_engine_shows_the_kept_results(tmp_path):
    paramedir = os.environ.get("ALLTRACE_PARAMEDIR")
    if not paramedir:
        pytest.skip("no Paraver: set ALLTRACE_PARAMEDIR")
    assert shown(paramedir, written(tmp_path)) == KEPT["shown"]
