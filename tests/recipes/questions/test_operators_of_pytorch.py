"""`operators` against PyTorch's own `key_averages`, and against plain loops over the JSON of traces."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tests import kineto_truth as truth
from tests.capture.launching import find_torch
from tests.torch_programs import programs

from alltrace.api import open_run

SCRIPT = Path(__file__).resolve().parents[2] / "torch_programs.py"
HOST = ("calls", "cpu_total_ns", "cpu_self_ns")
HTA = (
    "timeline_analysis__sampled_rank-0",
    "trace_filter__sampled_rank-1",
    "rank_unavailable__rank_not_found",
    "rank_unavailable__rank_not_found~9246864",
    "distributed_info_unavailable__distributed_info_not_found",
)
TRACES = (
    *(f"hta/{name}.json.gz" for name in HTA),
    "hta/df_index_resolver__df_index_resolver.json.gz",
    "tb_plugin/resnet50_workers0.pt.trace.json.gz",
    "tb_plugin/resnet50_workers4.pt.trace.json.gz",
    "tracelens/b200__eager_trace.json.gz",
    "tracelens/h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "tracelens/h100__gaunernst_bert-small-uncased__1016001.json.gz",
    "tracelens/inference__vllm_decode_full__graph_execution.json.gz",
    "tracelens/mi300__resnet_act_checkpoint.json.gz",
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of the programs' traces."""
    python = find_torch()
    if python is None:
        pytest.skip("no PyTorch: set ALLTRACE_TORCH_PYTHON")
    folder = tmp_path_factory.mktemp("programs")
    done = subprocess.run([python, str(SCRIPT), str(folder)], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def by_name(run, **options):
    return {r["name"]: r for r in run.recipe("operators", top=0, **options).to_pylist()}


@pytest.mark.parametrize("name", programs())
def test_host_times_are_those_of_key_averages(recorded, name, tmp_path):
    """What PyTorch adds up follows from the tree of operators, ranges and functions; `operators` from that of
    operators."""
    said = json.loads((recorded / f"{name}.truth.json").read_text())["rows"]
    events = truth.load(recorded / f"{name}.json")
    operators = truth.whole(events, truth.OPERATORS)
    whole_tree = truth.averages(truth.trees(truth.whole(events, (*truth.OPERATORS, *truth.NAMED))))
    names = {e["name"] for e in operators}
    assert names <= said.keys()
    assert {n: whole_tree[n] for n in names} == {
        n: {
            "calls": said[n]["calls"],
            **{f"cpu_{k}_ns": round(1000 * said[n][f"cpu_{k}_us"]) for k in ("total", "self")},
        }
        for n in names
    }
    found = by_name(open_run(recorded / f"{name}.json", cache_dir=tmp_path))
    assert {n: {c: r[c] for c in HOST} for n, r in found.items()} == truth.sums(truth.trees(operators))
    if not truth.whole(events, ("python_function",)) and name != "own_function":
        # without others inside of operators, self times are PyTorch's own
        assert all(r["cpu_self_ns"] == round(1000 * said[n]["cpu_self_us"]) for n, r in found.items())


@pytest.mark.sampled(5)
@pytest.mark.corpus
@pytest.mark.parametrize("name", TRACES)
def test_real_traces_are_as_plain_loops_have_them(corpus, name, tmp_path):
    path = corpus / "kineto" / name
    events = truth.without_step_numbers(truth.load(path))
    operators = truth.whole(events, truth.OPERATORS)
    run = open_run(path, cache_dir=tmp_path)
    found = by_name(run)
    assert {n: {c: r[c] for c in HOST} for n, r in found.items()} == truth.sums(truth.trees(operators))
    assert {n: (r["gpu_total_ns"], r["gpu_self_ns"]) for n, r in found.items()} == truth.gpu_sums(events, operators)
    parts = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
    if truth.breakdowns(events):  # else the work of the host is divided
        assert Counter(tuple(r[c] for c in parts) for r in run.recipe("breakdown").to_pylist()) == Counter(
            truth.breakdowns(events).values()
        )
    modules = truth.module_paths(events)
    if modules:
        assert {
            n: {c: r[c] for c in ("calls", "cpu_total_ns")} for n, r in by_name(run, by="module").items()
        } == modules
    stacks = truth.stacks(events)
    if stacks:
        assert {n: r["calls"] for n, r in by_name(run, by="stack").items()} == stacks


@pytest.mark.slow
@pytest.mark.corpus
def test_windows_of_a_rank_are_one_answer(corpus, tmp_path):
    """A trace cut into two by time, as a schedule with `repeat` writes them."""
    path = corpus / "kineto" / "tracelens/mi300__resnet_act_checkpoint.json.gz"
    content = json.loads(gzip.decompress(path.read_bytes()), strict=False)
    events = content["traceEvents"]
    steps = sorted(
        e["ts"] for e in events if str(e.get("name")).startswith("ProfilerStep") and e.get("cat") == "user_annotation"
    )
    halves = [[e for e in events if "ts" not in e or (e["ts"] < steps[-1]) == first] for first in (True, False)]
    for n, half in enumerate(halves):
        (tmp_path / f"node1_77.{n}.pt.trace.json").write_text(json.dumps({**content, "traceEvents": half}))
    run = open_run(tmp_path, cache_dir=tmp_path / "cache")
    assert len(run.ranks) == 1
    parts = [
        truth.trees(
            [
                e
                for e in truth.load(tmp_path / f"node1_77.{n}.pt.trace.json")
                if e.get("ph") == "X" and e.get("cat") == "cpu_op"
            ]
        )
        for n in range(2)
    ]
    expected = truth.sums([node for part in parts for node in part])
    assert {n: {c: r[c] for c in HOST} for n, r in by_name(run).items()} == expected


@pytest.mark.parametrize("name", ["perceptron", "embeddings"])
def test_net_memory_is_the_self_memory_of_key_averages(recorded, name, tmp_path):
    said = json.loads((recorded / f"{name}.truth.json").read_text())["rows"]
    run = open_run(recorded / f"{name}.json", cache_dir=tmp_path)
    found = {r["name"]: r["net_bytes"] for r in run.recipe("memory-peak", top=0).to_pylist() if r["name"] in said}
    operators = {n: r["memory_self_bytes"] for n, r in said.items() if not r["annotation"] and r["memory_self_bytes"]}
    assert {n: size for n, size in found.items() if size} == {
        n: size for n, size in operators.items() if n != "[memory]"
    }
