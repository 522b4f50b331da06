from __future__ import annotations

from collections import Counter

import pytest
from tests import kineto_truth as truth
from tests.making import COMMUNICATION_KERNEL, copy, kernel, make_run
from tests.recipes.work import call, operator

from alltrace.api import open_run

CLASSES = tuple("kernel_ns communication_ns memcpy_ns memset_ns runtime_ns dataloader_ns cpu_ns idle_ns".split())
HALF = "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n"


def tables():
    """Two steps, of 100 and 60 ns; the device works on until 180.

    0 .. 20 loading, with an operator inside; 20 .. 30 an operator with a call at 25 .. 35; kernels 30 .. 50, 45 .. 70
    communicates, a copy 60 .. 75, a fill 74 .. 80; in the second step a kernel 130 .. 180.
    """
    devices = [{"device": 0, "ordinal": 0, "uuid": "GPU-0", "name": "H200", "sm_count": 100}]
    return {
        "devices": devices,
        "ranges": [
            {"start": 0, "end": 95, "name": "ProfilerStep#7", "kind": "pushpop"},
            {"start": 100, "end": 160, "name": "ProfilerStep#8", "kind": "pushpop"},
            {
                "start": 0,
                "end": 20,
                "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                "kind": "pushpop",
            },
            operator("aten::stack", 5, 15),
            operator("aten::mm", 20, 30),
        ],
        "api": [call(25, 35, 1)],
        "kernels": [
            kernel(30, 50, HALF, grid_x=50, grid_y=1, grid_z=1, occupancy_percent=40),
            kernel(45, 70, COMMUNICATION_KERNEL, grid_x=8, grid_y=1, grid_z=1, stream=8),
            kernel(130, 180, "void elementwise_kernel(int)", grid_x=40, grid_y=50, grid_z=1),
        ],
        "copies": [copy(60, 75), copy(74, 80, "memset")],
    }


def test_the_first_class_that_applies_counts_and_all_sum_to_the_step(tmp_path):
    run = make_run(tmp_path, {0: tables(), 1: tables()})
    first, second, other, _ = run.recipe("step-time").to_pylist()
    assert (first["rank"], first["step"], first["kind"], first["span_ns"]) == (0, 7, "step", 100)
    assert tuple(first[c] for c in CLASSES) == (20, 20, 5, 5, 5, 20, 5, 20)
    assert (second["step"], second["span_ns"], second["kernel_ns"], second["idle_ns"]) == (8, 80, 50, 30)
    assert {**other, "rank": 0} == first
    whole, _ = run.recipe("step-time", by="rank").to_pylist()
    assert (whole["step"], whole["kind"]) == (None, None)
    assert {c: whole[c] for c in (*CLASSES, "span_ns")} == {c: first[c] + second[c] for c in (*CLASSES, "span_ns")}


def test_use_of_the_device_is_weighted_by_time(tmp_path):
    run = make_run(tmp_path, {0: tables()})
    facts = ("occupancy_percent", "sm_efficiency_percent", "tensor_core_percent")
    found = [tuple(r[f] for f in facts) for r in run.recipe("step-time").to_pylist()]
    assert found == [(40.0, pytest.approx(100 * 20 / 100 * 0.5), 100.0), (None, pytest.approx(100 * 50 / 80), 0.0)]
    (whole,) = run.recipe("step-time", by="rank").to_pylist()
    assert tuple(whole[f] for f in facts) == (
        40.0,
        pytest.approx(100 * 70 / 180 * (0.5 * 20 + 50) / 70),
        pytest.approx(100 * 20 / 70),
    )


def test_a_run_without_steps_says_so(tmp_path):
    answer = make_run(tmp_path, {0: {"kernels": [kernel(0, 10)]}}).recipe("step-time")
    assert (answer.to_pylist(), answer.notes[-1]) == ([], "no steps were found in the run")


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.corpus
@pytest.mark.parametrize(
    "name", ["tb_plugin/resnet50_workers0.pt.trace.json.gz", "hta/df_index_resolver__df_index_resolver.json.gz"]
)
def test_real_traces_are_as_a_plain_sweep_has_them(corpus, name, tmp_path):
    path = corpus / "kineto" / name
    events = truth.load(path)
    found = open_run(path, cache_dir=tmp_path).recipe("step-time").to_pylist()
    zero = min(truth.ns(e["ts"]) for e in events if e.get("ph") == "X" and str(e["name"]).startswith("ProfilerStep#"))
    expected = truth.step_times(events)
    assert len(found) == len(expected)
    for row, (start, end, times) in zip(found, expected, strict=True):
        assert row["span_ns"] == end - start, start - zero
        assert {c: row[c] for c in CLASSES} == {c: times.get(c, 0) for c in CLASSES}
    assert Counter(r["rank"] for r in found).total() == len(expected)
