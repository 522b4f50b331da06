from __future__ import annotations

import pytest
from tests.ncu_launches import ACTIVE, ELAPSED, measured, of

from alltrace.recipes.ncu import views


def test_main_metrics_under_any_of_their_names():
    metrics = {
        "gpu__time_duration.sum": 1499.6,
        "launch__shared_mem_per_block_static": 100,
        "launch__shared_mem_per_block_dynamic": 20,
        "launch__shared_mem_per_block_driver": 1024,
        f"dram__throughput{ELAPSED}": 12.5,
        f"smsp__inst_issued{ACTIVE}": 33.0,
        f"sm__throughput{ELAPSED}": float("nan"),
        "launch__occupancy_limit_registers": 2,
        "launch__occupancy_limit_warps": 2,
        "launch__occupancy_limit_blocks": 32,
    }
    (row,) = views.LAUNCHES.answer(of(measured(metrics, grid=(2, 3, 4))), ()).table.to_pylist()
    assert (row["duration_ns"], row["shared_memory_bytes"], row["dram_percent"], row["issue_percent"]) == (1500, 1144, 12.5, 33.0)
    assert (row["grid"], row["occupancy_limiter"]) == ("2x3x4", "registers, warps")
    assert (row["sm_percent"], row["registers"], row["top_stall"], row["device"]) == (None, None, None, None)


def test_shares_of_what_the_gpu_can_do():
    metrics = {
        f"sm__warps_active{ACTIVE}": 41.0,
        f"gpu__compute_memory_throughput{ELAPSED}": 42.0,
        f"lts__throughput{ELAPSED}": 43.0,
        f"l1tex__throughput{ACTIVE}": 44.0,
        f"sm__inst_executed_pipe_tensor{ELAPSED}": 45.0,
        "launch__waves_per_multiprocessor": 1.5,
    }
    (row,) = views.LAUNCHES.answer(of(measured(metrics)), ()).table.to_pylist()
    assert (row["achieved_occupancy_percent"], row["memory_percent"], row["l2_percent"]) == (41.0, 42.0, 43.0)
    assert (row["l1_percent"], row["tensor_percent"], row["waves"]) == (44.0, 45.0, 1.5)


def test_a_configuration_that_is_not_known_is_null():
    (row,) = views.LAUNCHES.answer(of(measured(grid=None, block=None)), ()).table.to_pylist()
    assert (row["grid"], row["block"]) == (None, None)


def test_raw_has_numbers_and_texts_by_name():
    rows = views.METRICS.answer(of(measured({"b": 2, "a": "text"})), ()).table.to_pylist()
    assert [(r["metric"], r["value"], r["text"]) for r in rows] == [("a", None, "text"), ("b", 2.0, None)]


def test_states_of_warps_by_cycles_else_by_samples():
    cycles = "smsp__average_warps_issue_stalled_%s_per_issue_active.ratio"
    samples = "smsp__pcsamp_warps_issue_stalled_%s"
    both = measured({cycles % "wait": 3.0, cycles % "selected": 1.0, samples % "wait": 70, samples % "wait_not_issued": 60})
    sampled = measured({samples % "no_instructions": 25, samples % "selected": 75})
    answer = views.STALLS.answer(of(both, sampled, measured()), ())
    assert [(r["state"], r["warps_per_issue"], r["share_percent"], r["samples"]) for r in answer.table.to_pylist()] == [
        ("wait", 3.0, 75.0, 70),
        ("selected", 1.0, 25.0, None),
        ("selected", None, 75.0, 75),
        ("no_instruction", None, 25.0, 25),
    ]
    assert [r["meaning"] for r in answer.table.to_pylist()[:2]] == [
        "a fixed latency of the previous instruction",
        "nothing: the warp issued",
    ]
    assert answer.notes[0].startswith("1 of 3 launches have no states of warps")
    old = measured({"smsp__average_warp_latency_issue_stalled_barrier.ratio": 2.0})
    assert views.STALLS.answer(of(old), ()).table.to_pylist()[0]["share_percent"] == pytest.approx(100.0)
