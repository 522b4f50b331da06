"""Traces as a run: what is said of them gets into the run's facts and answers."""

from __future__ import annotations

import json

import pytest

from alltrace.api import open_run
from alltrace.readers.base import ReportWarning
from alltrace.readers.kineto.identity import TABLES
from alltrace.run.importer import import_reports
from alltrace.run.manifest import read_manifest

from .conftest import EVENTS, trace

KERNELS = sum(e.get("cat") == "kernel" for e in EVENTS)

BROKEN = "events left out because they are not valid JSON (an escape or a quote may be at fault)"


def broken():
    return json.dumps(trace()).replace("aten::mm", 'aten::"mm')


def test_what_only_reading_finds_is_in_the_manifest_also_when_an_import_is_resumed(write, tmp_path):
    path = write(broken())
    output = tmp_path / "run"
    for _ in range(2):
        import_reports([str(path)], output)
        manifest = read_manifest(output)
        assert manifest.ranks[0].warnings == {"0": (ReportWarning(BROKEN, TABLES, 1),)}


def test_a_damaged_trace_is_answered_and_named(write, tmp_path):
    text = broken()
    write(text[: text.index("cudaDriver") if "cudaDriver" in text else text.index("cuLaunchKernelEx")], "a.json")
    run = open_run(tmp_path / "a.json", cache_dir=tmp_path / "cache")
    notes = run.recipe("info").notes
    assert any("cut short" in n for n in notes)
    assert any(f"{BROKEN}: 1" in n for n in notes)
    assert {"cut short", BROKEN} <= {w for w in ("cut short", BROKEN) for n in run.recipe("kernels").notes if w in n}
    assert [r["name"] for r in run.recipe("kernels").to_pylist()] == ["void ns::gemm<float, (int)4>(float const*)"]
    found = [r for r in run.recipe("diagnose").to_pylist() if r["where"] == "damaged report"]
    assert [(r["kind"], r["ranks"]) for r in found] == [("capture-fault", [1])]


@pytest.mark.parametrize("category", ["another_device_kernel", "new_device_kernel"])
def test_work_of_an_unknown_category_counts_and_is_noted(write, tmp_path, category):
    """Without it, devices that do such work would look idle."""
    events = [{**e, "cat": category} if e.get("cat") == "kernel" else e for e in EVENTS]
    events += [{**e, "cat": "gpu_user_annotation"} for e in EVENTS if e.get("cat") == "kernel"]
    run = open_run(write(trace(events)), cache_dir=tmp_path / "cache")
    assert run.manifest.ranks[0].rows["kernels"] == KERNELS
    noted = (
        f"rank 1: events of the unknown category `{category}`, read as kernels because they have a device and a stream:"
        f" {KERNELS}"
    )
    for recipe in ("kernels", "breakdown", "idle", "diagnose", "gpu_time_util", "stats:cuda_gpu_sum"):
        assert noted in run.recipe(recipe).notes


def test_work_of_other_devices_is_work(write, tmp_path):
    events = [{**e, "cat": "mtia_ccp_events"} if e.get("cat") == "kernel" else e for e in EVENTS]
    run = open_run(write(trace(events)), cache_dir=tmp_path / "cache")
    assert run.manifest.ranks[0].rows["kernels"] == KERNELS
    assert not [n for n in run.recipe("breakdown").notes if "unknown category" in n]


@pytest.mark.parametrize("category", ["xpu_runtime", "mtia_runtime", "xpu_driver"])
def test_calls_of_other_devices_are_calls(write, tmp_path, category):
    events = [{**e, "cat": category} if e.get("cat") == "cuda_runtime" else e for e in EVENTS]
    run = open_run(write(trace(events)), cache_dir=tmp_path / "cache")
    assert run.manifest.ranks[0].rows["api"] == sum(e.get("cat") in ("cuda_runtime", "cuda_driver") for e in EVENTS)


def test_two_traces_that_state_one_rank_are_two_ranks_and_it_is_said(write, tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    for n, name in enumerate(("first.json", "second.json")):
        content = trace()
        content["traceEvents"] = [{**e, "pid": 4000 + n} if e.get("pid") == 4000 else e for e in content["traceEvents"]]
        write(content, name).rename(folder / name)
    run = open_run(folder, cache_dir=tmp_path / "cache")
    assert [(r.rank, r.rank_source) for r in run.ranks] == [(0, "order"), (1, "order")]
    assert any("distributedInfo" in n for n in run.manifest.notes)
    assert len(run.recipe("breakdown").to_pylist()) == 2
