"""Samples that one report of a host has of all its GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.making import copy, kernel, make_run

import alltrace
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.execution.ask_all import ask_all
from alltrace.recipes.registry import find
from alltrace.run.manifest import read_manifest, write_manifest
from alltrace.run.store import Run
from alltrace.synth import write_run
from alltrace.trace.intervals import merge

ALL = [
    {"device": d, "ordinal": d, "gpu": d, "uuid": f"GPU-{d}", "memory_bandwidth_bytes_per_s": 1000} for d in range(3)
]


def samples(device, *values, metric="SM Active"):
    return [{"time": 100 * (i + 1), "device": device, "metric": metric, "value": v} for i, v in enumerate(values)]


def one_host(tmp_path, *, hosts=None):
    """Rank 0 has the samples of three GPUs; ranks 0 and 1 work on the first two, each calling its own device 0."""
    sampled = [*samples(0, 10, 20, 30), *samples(1, 40, 50, 60), *samples(2, 7, 8, 9)]
    ranks = {
        0: {"kernels": [kernel(0, 200, "a")], "gpu_metrics": sampled, "devices": ALL},
        1: {
            "kernels": [kernel(100, 300, "b")],
            "devices": [{"device": 0, "ordinal": 0, "gpu": 1, "uuid": "GPU-1", "memory_bandwidth_bytes_per_s": 1000}],
        },
    }
    return make_run(tmp_path / "run", ranks, hosts=hosts)


def test_a_rank_is_given_the_samples_of_its_gpu_from_another_report(tmp_path):
    run = one_host(tmp_path)
    found = run.rank(1).gpu_samples(["time", "value", "device"])
    assert found.to_pylist() == [{"time": t, "value": v, "device": 0} for t, v in ((100, 40), (200, 50), (300, 60))]
    assert run.rank(0).gpu_samples(["value"]).num_rows == 9


def test_in_the_time_of_a_ranks_files_samples_of_another_report_are_too(tmp_path):
    path = one_host(tmp_path).path
    manifest = read_manifest(path)
    ranks = [r._replace(time_base_utc_ns=1_000_000 + 250 * r.rank) for r in manifest.ranks]
    write_manifest(path, replace(manifest.with_ranks(ranks), zero_utc_ns=1_000_000))
    rank = Run(path).rank(1)
    times = rank.in_file_time().gpu_samples(["time"]).column("time").to_numpy()
    assert times.tolist() == [-150, -50, 50]
    assert rank.clock.apply(times).tolist() == rank.gpu_samples(["time"]).column("time").to_pylist()


def test_gpus_of_another_host_are_others_even_under_the_same_name(tmp_path):
    run = one_host(tmp_path, hosts={0: "here", 1: "there"})
    assert run.rank(1).gpu_samples(["value"]).num_rows == 0
    answer = ask(run, "metric-attribution")
    assert {r["rank"] for r in answer.table.to_pylist()} == {0}
    assert any("rank 1" in note for note in answer.notes)


def test_a_ranks_own_samples_come_before_those_of_others(tmp_path):
    ranks = {
        0: {"kernels": [kernel(0, 200)], "gpu_metrics": [*samples(0, 1, 2), *samples(1, 3, 4)], "devices": ALL},
        1: {"kernels": [kernel(0, 200)], "gpu_metrics": samples(0, 5, 6), "devices": [{"device": 0, "uuid": "GPU-1"}]},
    }
    run = make_run(tmp_path / "run", ranks)
    assert run.rank(1).gpu_samples(["value"]).column("value").to_pylist() == [5, 6]


def test_metrics_are_attributed_to_the_kernels_of_the_rank_that_works_on_the_gpu(tmp_path):
    answer = ask(one_host(tmp_path), "metric-attribution")
    rows = [(r["rank"], r["gpu"], r["name"], r["value"], r["covered_ns"]) for r in answer.table.to_pylist()]
    assert rows[:1] == [(0, "GPU-0", "a", 15.0, 200)]
    assert rows[1:] == [(1, "GPU-1", "b", 55.0, 200)]
    # two reports are laid over each other, and nothing tells how far their stamps are off
    assert len(answer.notes) == 1
    assert "UTC stamps" in answer.notes[0]


def test_rates_stand_with_the_rank_that_works_on_the_gpu_and_else_with_the_report(tmp_path):
    ranks = {
        0: {
            "kernels": [kernel(0, 200)],
            "gpu_metrics": [
                *samples(0, 10, 30, metric="DRAM Read Bandwidth [Throughput %]"),
                *samples(1, 40, 60),
                *samples(2, 7, 9),
            ],
            "devices": ALL,
        },
        1: {"kernels": [kernel(0, 200)], "devices": [{"device": 0, "uuid": "GPU-1"}]},
    }
    run = make_run(tmp_path / "run", ranks)
    # what the ranks worked on, as an import finds it
    record = run.manifest.ranks[0]
    used = record._replace(devices=record.devices[:1])
    run._manifest = run.manifest.with_ranks([used, run.manifest.ranks[1]])
    answer = ask(run, "gpu-rates")
    found = [(r["rank"], r["gpu"], r["rate"], r["mean"], r["mean_bytes_per_s"]) for r in answer.table.to_pylist()]
    assert found == [
        (0, "GPU-0", "dram read", 20.0, 200), (0, "GPU-2", "sm active", 8.0, None),
        (1, "GPU-1", "sm active", 50.0, None),
    ]  # fmt: skip
    assert [r["rank"] for r in ask(run, "gpu-rates", ranks=[1]).table.to_pylist()] == [1]


def test_sums_by_kernel_and_filters_see_them_too(tmp_path):
    run = one_host(tmp_path)
    rows = ask(run, "gpu_metric_util_sum", {"per_kernel": True}).table.to_pylist()
    assert [(r["Name"], r["GPU"], r["Count"], r["Mean"], r["File"]) for r in rows] == [
        ("a", 0, 2, 15.0, "rank0"), ("b", 1, 3, 50.0, "rank1"),
    ]  # fmt: skip
    rows = ask(run, "gpu_metric_util_sum", {"per_kernel": True, "start": 250}).table.to_pylist()
    assert [(r["Name"], r["Count"], r["Mean"]) for r in rows] == [("b", 1, 60.0)]
    whole = ask(run, "gpu_metric_util_sum").table.to_pylist()
    assert [(r["GPU"], r["File"]) for r in whole] == [(0, "rank0"), (1, "rank0"), (2, "rank0")]


def test_all_at_once_gives_the_same(tmp_path):
    run = one_host(tmp_path)
    names = ("metric-attribution", "gpu-rates", "gpu_metric_util_sum")
    for reply, name in zip(ask_all(run, [(find(n), {}) for n in names]), names, strict=True):
        assert reply.answer.table.equals(ask(run, name).table)


def test_without_any_samples_nothing_is_asked(tmp_path):
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 10)], "copies": [copy(10, 20)]}})
    answer = ask(run, "metric-attribution")
    assert not answer.table.num_rows
    assert answer.notes == ("no rank has `gpu_metrics`: the reports hold no GPU metrics, so the answer is empty",)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Two hosts of four ranks, of which the first of each has the samples of all its GPUs; and the same without
    that."""
    folder = tmp_path_factory.mktemp("hosts")
    runs = []
    for per_host in (True, False):
        place = folder / str(per_host)
        write_run(
            "healthy", place, ranks=8, hosts=2, steps=3, layers=4, gpu_metrics_hz=5000, gpu_metrics_per_host=per_host,
            visible_devices=True, ideal=True
        )  # fmt: skip
        runs.append(alltrace.open(*sorted(Path(place).glob("*.sqlite")), cache_dir=folder / "cache"))
    return runs


@pytest.mark.slow
def test_a_simulated_host_whose_first_rank_samples_answers_as_if_each_rank_had_sampled(simulated):
    one, each = simulated
    assert [r.rank for r in one.ranks if r.rows.get("gpu_metrics")] == [0, 4]
    assert [r.rank for r in each.ranks if r.rows.get("gpu_metrics")] == list(range(8))
    # of the kernels that take most time; the samples are taken at the same moments of the GPU's own work
    found, wanted = (
        {(r["rank"], r["gpu"], r["name"], r["metric"]): r for r in ask(run, "metric-attribution").table.to_pylist()}
        for run in simulated
    )
    assert set(found) == set(wanted)
    assert {key[0] for key in found} == set(range(8))
    for key, row in found.items():
        assert row["work_ns"] == wanted[key]["work_ns"]
        assert row["coverage_percent"] > 90
        if row["samples"] >= 40 and row["value"] >= 20:
            assert row["value"] == pytest.approx(wanted[key]["value"], rel=0.25), key
    rates = ask(one, "gpu-rates").table.to_pylist()
    assert {(r["rank"], r["gpu"]) for r in rates} == {
        (r["rank"], r["gpu"]) for r in ask(each, "gpu-rates").table.to_pylist()
    }


def test_what_a_sampled_rank_is_given_is_what_the_first_ranks_report_has_of_its_gpu(simulated):
    run = simulated[0]
    for rank in (1, 6):
        uuid = run.rank(rank).record.devices[0].uuid
        sampler = run.rank(rank // 4 * 4)
        devices = sampler.table("devices", ["device", "uuid"]).to_pylist()
        device = next(d["device"] for d in devices if d["uuid"] == uuid)
        table = sampler.table("gpu_metrics", ["time", "device", "value"])
        mine = table.column("device").to_numpy() == device
        given = run.rank(rank).gpu_samples(["time", "device", "value"])
        assert given.num_rows == mine.sum() > 100
        assert np.array_equal(np.sort(given.column("time").to_numpy()), np.sort(table.column("time").to_numpy()[mine]))
        # the GPU works when the rank's kernels do
        work = run.rank(rank).table("kernels", ["start", "end"])
        assert merge(work.column("start").to_numpy(), work.column("end").to_numpy()).total_ns > 0
