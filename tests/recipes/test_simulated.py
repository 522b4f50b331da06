"""The answers on simulated reports, against what the simulator planted."""

from __future__ import annotations

import pytest

import alltrace
from alltrace.synth import write_run

TABLES = {"kernels": ("KERNEL",), "copies": ("MEMCPY", "MEMSET"), "api": ("RUNTIME",), "syncs": ("SYNCHRONIZATION",)}


def count_of(rank, table):
    return sum(rank["rows"].get(f"CUPTI_ACTIVITY_KIND_{name}", 0) for name in TABLES[table])


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straggler")
    truth = write_run("straggler", folder / "reports", ranks=8, steps=3, ideal=True)
    return truth, alltrace.open(folder / "reports", cache_dir=folder / "cache")


def test_times_of_every_rank_are_the_truth_but_for_its_clock(simulated):
    truth, run = simulated
    found = {r["rank"]: r for r in run.recipe("overlap").to_pylist()}
    parts = {r["rank"]: r for r in run.recipe("breakdown").to_pylist()}
    assert list(found) == list(parts) == [r["rank"] for r in truth.ranks]
    drifts = {h["host"]: abs(h["drift_ppm"]) for h in truth.hosts}
    for rank in truth.ranks:
        row, part = found[rank["rank"]], parts[rank["rank"]]
        assert (row["host"], row["gpu"]) == (rank["host"], rank["device_uuid"])
        # a report shows durations by its host's clock, which drifts by millionths and rounds each time to a nanosecond
        rows = count_of(rank, "kernels") + count_of(rank, "copies")
        found_ns = {n: row[n] for n in ("compute_ns", "communication_ns", "exposed_ns", "copy_ns")} | {
            "idle_ns": part["idle_ns"]
        }
        for name, value in found_ns.items():
            assert abs(value - rank[name]) <= rank[name] * (drifts[rank["host"]] + 1) * 1e-6 + rows, (
                rank["rank"],
                name,
            )
        assert part["compute_ns"] == row["compute_ns"]
        assert part["exposed_communication_ns"] == row["exposed_ns"]


def test_the_slow_rank_computes_most_and_waits_least(simulated):
    truth, run = simulated
    (slow,) = truth.faults[0]["ranks"]
    rows = run.recipe("breakdown").to_pylist()
    assert max(rows, key=lambda r: r["compute_ns"])["rank"] == slow
    assert min(rows, key=lambda r: r["exposed_communication_ns"])["rank"] == slow
    typical = sorted(r["compute_ns"] for r in rows)[len(rows) // 2]
    assert rows[slow]["compute_ns"] / typical == pytest.approx(truth.faults[0]["factor"], rel=0.02)


def test_info_counts_the_rows_that_were_written(simulated):
    truth, run = simulated
    rows = {r["rank"]: r for r in run.recipe("info").to_pylist()}
    for rank in truth.ranks:
        row = rows[rank["rank"]]
        assert (row["host"], row["local_rank"], row["process"]) == (rank["host"], rank["local_rank"], rank["pid"])
        assert row["devices"][0].endswith(f"({rank['device_uuid']})")
        assert {t: row[t] for t in TABLES} == {t: count_of(rank, t) for t in TABLES}
        assert row["kernels"] > 100


def test_kernels_of_all_ranks_sum_to_what_each_rank_has(simulated):
    truth, run = simulated
    whole = run.recipe("kernels").to_pylist()
    each = run.recipe("kernels", by_rank=True).to_pylist()
    for row in whole:
        own = [r for r in each if r["name"] == row["name"]]
        assert row["total_ns"] == sum(r["total_ns"] for r in own)
        assert row["count"] == sum(r["count"] for r in own)
        assert row["ranks"] == len(own) == len(truth.ranks)
    assert sum(r["count"] for r in whole) == sum(count_of(r, "kernels") for r in truth.ranks)
