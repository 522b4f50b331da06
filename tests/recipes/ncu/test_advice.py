from __future__ import annotations

import pytest
from tests.ncu_launches import ACTIVE, ELAPSED, measured, of

from alltrace.recipes.ncu import advice

SM, MEMORY = f"sm__throughput{ELAPSED}", f"gpu__compute_memory_throughput{ELAPSED}"
THEORETICAL, ACHIEVED = "sm__maximum_warps_per_active_cycle_pct", f"sm__warps_active{ACTIVE}"


def found(metrics, rule, **given):
    return next((f for f in advice.findings(measured(metrics, **given)) if f.rule == rule), None)


def test_a_limited_occupancy_names_what_limits_it():
    limits = {
        "launch__occupancy_limit_registers": 2,
        "launch__occupancy_limit_warps": 8,
        "launch__registers_per_thread": 128,
    }
    some = found({THEORETICAL: 25.0, **limits}, "occupancy-limit")
    assert (some.evidence["limiter"], some.evidence["registers"], some.gain) == ("registers", 128, 0.75)
    # the most used unit bounds what can be gained
    assert found({THEORETICAL: 25.0, **limits, SM: 30.0, MEMORY: 90.0}, "occupancy-limit").gain == pytest.approx(0.1)
    assert found({THEORETICAL: 80.0, **limits}, "occupancy-limit") is None
    assert found({THEORETICAL: 25.0}, "occupancy-limit") is None


def test_an_occupancy_that_was_not_reached():
    assert found({THEORETICAL: 100.0, ACHIEVED: 60.0}, "occupancy-achieved").gain == pytest.approx(0.4)
    assert found({THEORETICAL: 100.0, ACHIEVED: 91.0}, "occupancy-achieved") is None
    assert found({THEORETICAL: 100.0, ACHIEVED: float("nan")}, "occupancy-achieved") is None


def test_a_grid_smaller_than_the_device():
    metrics = {"launch__sm_count": 100, "launch__waves_per_multiprocessor": 0.8}
    some = found(metrics, "small-grid", grid=(8, 10, 1))
    assert (some.evidence, some.gain) == ({"blocks": 80, "multiprocessors": 100}, pytest.approx(0.2))
    assert found(metrics, "small-grid", grid=(100, 1, 1)) is None


@pytest.mark.parametrize(("waves", "gain"), [(1.25, 0.375), (2.5, 1 / 6), (2.0, None), (0.5, None), (99.5, None)])
def test_a_last_wave_that_is_not_full(waves, gain):
    some = found({"launch__sm_count": 10, "launch__waves_per_multiprocessor": waves}, "tail-effect")
    assert (some and some.gain) == (gain and pytest.approx(gain))


def test_uncoalesced_access_by_the_best_count_there_is():
    sectors = {
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 3200,
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 100,
    }
    by_request = found({**sectors, MEMORY: 80.0}, "uncoalesced")
    assert (by_request.evidence, by_request.gain) == ({"sectors_per_request_of_loads": 32}, pytest.approx(0.5 * 0.8))
    for used in (4.0, 1.0):
        ratio = {"smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": used}
        by_bytes = found({**sectors, **ratio, MEMORY: 80.0}, "uncoalesced")
        assert by_bytes.gain == pytest.approx((1 - used / 32) * 0.8)
    exact = {"memory_l2_theoretical_sectors_global": 1000, "memory_l2_theoretical_sectors_global_ideal": 900}
    assert found({**sectors, **exact, MEMORY: 50.0}, "uncoalesced").gain == pytest.approx(0.05)
    assert found({**exact, "memory_l2_theoretical_sectors_global": 900}, "uncoalesced") is None
    sectors["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] = 1600
    assert found(sectors, "uncoalesced") is None


@pytest.mark.parametrize(
    ("sm", "memory", "rule", "gain"),
    [(30.0, 85.0, "memory-bound", 0.15), (85.0, 30.0, "compute-bound", 0.15), (20.0, 40.0, "latency-bound", 0.6)],
)
def test_what_bounds_a_launch(sm, memory, rule, gain):
    (some,) = advice.findings(measured({SM: sm, MEMORY: memory}))
    assert (some.rule, some.gain) == (rule, pytest.approx(gain))


def test_few_issues_name_what_warps_wait_for():
    stall = "smsp__average_warps_issue_stalled_%s_per_issue_active.ratio"
    metrics = {
        f"smsp__issue_active{ACTIVE}": 20.0,
        stall % "long_scoreboard": 6.0,
        stall % "selected": 1.0,
        stall % "wait": 1.0,
    }
    some = found(metrics, "low-issue")
    assert (some.gain, some.evidence["top_stall"], some.evidence["top_stall_percent"]) == (0.8, "long_scoreboard", 75.0)
    assert "data from global" in some.advice
    assert found({f"smsp__issue_active{ACTIVE}": 61.0}, "low-issue") is None


def test_a_launch_without_metrics_gets_no_advice():
    assert advice.findings(measured()) == []
    assert advice.answer(of(measured()), ()).table.num_rows == 0


def test_rows_have_the_gain_in_time_the_largest_first():
    launch = measured({SM: 10.0, MEMORY: 60.0, THEORETICAL: 100.0, ACHIEVED: 80.0, "gpu__time_duration.sum": 1000})
    rows = advice.answer(of(launch), ()).table.to_pylist()
    assert [(r["rule"], r["gain_percent"], r["gain_ns"]) for r in rows] == [
        ("memory-bound", pytest.approx(40.0), 400),
        ("occupancy-achieved", pytest.approx(20.0), 200),
    ]
    assert rows[0]["evidence"] == "sm_percent=10, memory_percent=60"
