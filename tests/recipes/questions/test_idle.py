from __future__ import annotations

import pytest
from tests.making import make_run
from tests.recipes.work import call, launched

CAUSES = ("host_sync_ns", "host_ns", "launch_ns", "kernel_wait_ns", "dependency_ns", "unknown_ns")


def gaps():
    """Six kernels with five gaps, one for each cause; the sync lies in the first.

    [0, 100) gap 100 [200, 300): launched at 170 after a sync from 50 to 150 -> 50 in the sync, 20 elsewhere, 30
    launching [300] gap 20 [320, 400): queued at 180 -> an ordinary delay [400] gap 50,000 [50400, 50500): queued at 190
    -> waited for something else [50500] gap 500 [51000, 51100): no call
    """
    kernels = launched(
        [("a", 1, 0, 100), ("b", 2, 200, 300), ("c", 3, 320, 400), ("d", 4, 50_400, 50_500), ("e", 99, 51_000, 51_100)]
    )
    calls = [
        call(-20, -10, 1),
        call(50, 150, 50, "cudaStreamSynchronize_v3020"),
        call(170, 175, 2),
        call(180, 185, 3),
        call(190, 195, 4),
    ]
    return {"kernels": kernels, "api": calls}


def test_every_gap_has_its_cause_and_the_causes_sum_to_the_idle_time(tmp_path):
    (row,) = make_run(tmp_path, {0: gaps()}).recipe("idle").to_pylist()
    assert tuple(row[c] for c in CAUSES) == (50, 20, 30, 20, 50_000, 500)
    assert (row["gaps"], row["idle_ns"], row["span_ns"]) == (4, 50_620, 51_100)
    assert row["idle_percent"] == pytest.approx(100 * 50_620 / 51_100)


def test_the_ordinary_delay_can_be_chosen(tmp_path):
    run = make_run(tmp_path, {0: gaps()})
    for delay, waited, depended in ((20, 0, 50_020), (60_000, 50_020, 0)):
        (row,) = run.recipe("idle", kernel_delay_ns=delay).to_pylist()
        assert (row["kernel_wait_ns"], row["dependency_ns"]) == (waited, depended)


def test_a_device_is_not_idle_while_another_of_its_streams_works(tmp_path):
    kernels = [*launched([("a", 1, 0, 100), ("b", 2, 300, 400)]), *launched([("c", 3, 90, 310)], stream=8)]
    tables = {"kernels": kernels, "api": [call(-9, -8, 1), call(150, 160, 2), call(10, 20, 3)]}
    run = make_run(tmp_path, {0: tables})
    (row,) = run.recipe("idle").to_pylist()
    assert (row["gaps"], row["idle_ns"]) == (0, 0)
    one, other = run.recipe("idle", by="stream").to_pylist()
    assert (one["stream"], one["host_ns"], one["launch_ns"]) == (7, 50, 150)
    assert (other["stream"], other["idle_ns"], other["span_ns"]) == (8, 0, 220)


def test_a_device_is_not_idle_while_a_graph_traced_as_a_whole_runs(tmp_path):
    kernels = launched([("a", 1, 0, 100), ("b", 3, 900, 1000)])
    graph = {"start": 150, "end": 880, "correlation": 2, "graph": 5}
    calls = [call(-9, -8, 1), call(110, 130, 2, "cudaGraphLaunch_v10000"), call(140, 145, 3)]
    run = make_run(tmp_path, {0: {"kernels": kernels, "graphs": [graph], "api": calls}})
    (row,) = run.recipe("idle", kernel_delay_ns=10).to_pylist()
    # launched 10 ns after the gap began; the kernel behind the graph was queued
    assert (row["gaps"], row["idle_ns"]) == (2, 70)
    assert tuple(row[c] for c in CAUSES) == (0, 10, 40, 0, 20, 0)


def test_only_the_launching_thread_is_asked_for_waits(tmp_path):
    tables = gaps()
    tables["threads"] = [{"thread": n, "process": 0, "tid": 4001 + n, "name": f"t{n}"} for n in range(2)]
    tables["api"][1]["thread"] = 1
    (row,) = make_run(tmp_path, {0: tables}).recipe("idle").to_pylist()
    assert (row["host_sync_ns"], row["host_ns"]) == (0, 70)
