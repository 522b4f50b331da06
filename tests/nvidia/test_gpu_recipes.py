import random

import pytest
from tests.making import collective, kernel, make_run

import alltrace
from alltrace.recipes.execution.ask import ask
from alltrace.synth import write_run
from alltrace.trace.errors import UsageError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straggler")
    write_run("straggler", folder / "reports", ranks=4, hosts=2, steps=4, ideal=True)
    return alltrace.open(folder / "reports", cache_dir=folder / "cache")


def test_the_slow_rank_is_found_and_times_choose_instances(run):
    answer = ask(run, "nccl_straggler", {"bins": 5})
    rows = answer.table.to_pylist()
    members = run.aligned().members
    slow = rows[0]["Rank"]
    caused = dict.fromkeys(range(4), 0)
    for last, wait in zip(*(members.column(c).to_pylist() for c in ("last_rank", "wait_ns")), strict=True):
        caused[last] += wait
    assert {r["Rank"]: r["Caused Wait"] for r in rows} == caused
    assert slow == max(caused, key=caused.get)
    assert rows[0]["Times Last"] == max(r["Times Last"] for r in rows)
    heat = answer.further["heatmap"].table.to_pylist()
    assert len(heat) == 20
    assert sum(r["Operations"] for r in heat) == members.num_rows
    assert sum(r["Times Last"] for r in heat) == len(set(members.column("instance").to_pylist()))
    start, end = run.in_session_time().span_ns
    half = (start + end) // 2
    parts = [
        ask(run, "nccl_straggler", {"filter_time": t}).table.column("Operations") for t in (f"/{half}", f"{half}/")
    ]
    whole = sum(ask(run, "nccl_straggler").table.column("Operations").to_pylist())
    # an instance that spans the middle is in both
    assert whole <= sum(sum(p.to_pylist()) for p in parts) <= whole + 4
    assert ask(run, "nccl_straggler", {"start": end + 1}).table.num_rows == 0


def test_lateness_of_each_rank(tmp_path):
    """Four operations of two ranks on one host: the second rank comes 30, 10 and 20 us later than the first, then 40 us
    earlier."""
    us = 1000

    def rows(rank):
        own = (30, 10, 20, -40) if rank else (0,) * 4
        return [
            {
                "start": (1000 * n + late) * us, "end": (1000 * n + 100) * us, "communicator": "c0", "op": "AllReduce",
                "sequence": n, "bytes": 1 << 20, "group_rank": rank, "group_size": 2, "datatype": "float32",
                "evidence": "trace",
            }
            for n, late in enumerate(own)
        ]  # fmt: skip

    run = make_run(tmp_path / "run", {rank: {"collectives": rows(rank)} for rank in (0, 1)})
    titles = (
        "Communicator",
        "Rank",
        "Operations",
        "Times Last",
        "Last",
        "Caused Wait",
        "Late Avg",
        "Late Med",
        "Late Max",
    )
    assert [tuple(r[t] for t in titles) for r in ask(run, "nccl_straggler").table.to_pylist()] == [
        ("c0", 1, 4, 3, 75.0, 60 * us, 15.0 * us, 15.0 * us, 30 * us),
        ("c0", 0, 4, 1, 25.0, 40 * us, 10.0 * us, 0.0, 40 * us),
    ]


def by_hand(kernels, of):
    """For each kernel the time of it in which another one of the class runs, ns by ns."""
    return [
        sum(
            any(o["start"] <= t < o["end"] for o in kernels if o is not k and o["kind"] == of)
            for t in range(k["start"], k["end"])
        )
        for k in kernels
    ]


@pytest.mark.parametrize("seed", range(5))
def test_each_kernel_against_a_count_of_its_moments(seed, tmp_path):
    draw = random.Random(seed)
    kernels = []
    for _ in range(25):
        start = draw.randrange(200)
        kernels.append((collective if draw.random() < 0.4 else kernel)(start, start + draw.randrange(0, 30)))
    kernels.sort(key=lambda k: (k["start"], k["end"], k["name"]))
    other = [kernel(0, 300, device=1), collective(0, 300, device=1)]
    devices = [{"device": d, "ordinal": d, "uuid": f"GPU-{d}", "name": "H200"} for d in (0, 1)]
    answer = ask(
        make_run(tmp_path / "run", {0: {"kernels": [*kernels, *other], "devices": devices}}), "nccl_gpu_overlap_trace"
    )
    rows = [r for r in answer.further["rank_trace"].table.to_pylist() if r["DeviceID"] == 0]
    wanted = sorted(
        (
            k["start"],
            k["end"],
            k["name"],
            *(round(100 * x / (k["end"] - k["start"]), 1) if k["end"] > k["start"] else 0.0 for x in both),
        )
        for k, *both in zip(kernels, by_hand(kernels, "collective"), by_hand(kernels, "compute"), strict=True)
    )
    assert (
        sorted((r["Start"], r["End"], r["Name"], r["Communication Overlap"], r["Compute Overlap"]) for r in rows)
        == wanted
    )


def test_names_are_weighted_by_duration_over_ranks(tmp_path):
    ranks = {0: {"kernels": [collective(0, 100), kernel(0, 50)]}, 1: {"kernels": [collective(0, 300)]}}
    answer = ask(make_run(tmp_path / "run", ranks), "nccl_gpu_overlap_trace", {"divisor": 3})
    rows = [(r["Count"], r["Communication Overlap"], r["Compute Overlap"]) for r in answer.table.to_pylist()]
    assert rows == [(2, 0.0, 12.5), (1, 100.0, 0.0)]


def run_of(tmp_path):
    lengths = {0: (10, 20, 20, 49), 1: (30,)}
    return make_run(
        tmp_path / "run",
        {r: {"kernels": [kernel(100 * i, 100 * i + n) for i, n in enumerate(ns)]} for r, ns in lengths.items()},
    )


def test_frequencies_percentiles_and_bins_of_a_histogram(tmp_path):
    answer = ask(run_of(tmp_path), "cuda_gpu_kern_hist", {"bins": 4})
    titles = ("Range Start", "Range End", "Frequency", "Percentage", "Cumulative")
    assert [tuple(r[t] for t in titles) for r in answer.table.to_pylist()] == [
        (10, 20, 1, 20.0, 20.0),
        (20, 30, 2, 40.0, 60.0),
        (30, 40, 1, 20.0, 80.0),
        (40, 50, 1, 20.0, 100.0),
    ]
    of_rank = answer.further["rank_histogram"].table.to_pylist()
    assert [(r["Rank"], r["Frequency"], r["Cumulative"]) for r in of_rank[3:6]] == [
        (0, 1, 100.0),
        (1, 0, 0.0),
        (1, 0, 0.0),
    ]
    marks = {r["Percentile"]: r["Duration"] for r in answer.further["percentiles"].table.to_pylist()}
    assert (marks[1], marks[25], marks[50], marks[75], marks[90], marks[100]) == (10, 20, 20, 30, 49, 49)
    run = run_of(tmp_path / "2")
    assert ask(run, "cuda_gpu_kern_hist", {"bins": 1000}).table.num_rows == 40
    assert (
        ask(run, "cuda_gpu_kern_hist", {"name": "gemm_kernel", "base": True}).table.column("Frequency").to_pylist()[0]
        == 1
    )
    assert ask(run, "cuda_gpu_kern_hist", {"name": "a/b"}).notes == ("no rank has a kernel called 'a/b'",)
    with pytest.raises(UsageError, match="--bins"):
        ask(run, "cuda_gpu_kern_hist", {"bins": 0})
