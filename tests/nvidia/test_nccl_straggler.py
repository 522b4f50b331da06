import pytest
from tests.making import make_run

import alltrace
from alltrace.recipes.execution.ask import ask
from alltrace.synth import write_run


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
    parts = [ask(run, "nccl_straggler", {"filter_time": t}).table.column("Operations") for t in (f"/{half}", f"{half}/")]
    whole = sum(ask(run, "nccl_straggler").table.column("Operations").to_pylist())
    # an instance that spans the middle is in both
    assert whole <= sum(sum(p.to_pylist()) for p in parts) <= whole + 4
    assert ask(run, "nccl_straggler", {"start": end + 1}).table.num_rows == 0


def test_lateness_of_each_rank(tmp_path):
    """Four operations of two ranks on one host: the second rank comes 30, 10 and 20 us later than the first, then 40 us earlier."""
    us = 1000

    def rows(rank):
        own = (30, 10, 20, -40) if rank else (0,) * 4
        return [
            {
                "start": (1000 * n + late) * us, "end": (1000 * n + 100) * us, "communicator": "c0", "op": "AllReduce",
                "sequence": n, "bytes": 1 << 20, "group_rank": rank, "group_size": 2, "datatype": "float32", "evidence": "trace",
            }
            for n, late in enumerate(own)
        ]  # fmt: skip

    run = make_run(tmp_path / "run", {rank: {"collectives": rows(rank)} for rank in (0, 1)})
    titles = ("Communicator", "Rank", "Operations", "Times Last", "Last", "Caused Wait", "Late Avg", "Late Med", "Late Max")
    assert [tuple(r[t] for t in titles) for r in ask(run, "nccl_straggler").table.to_pylist()] == [
        ("c0", 1, 4, 3, 75.0, 60 * us, 15.0 * us, 15.0 * us, 30 * us),
        ("c0", 0, 4, 1, 25.0, 40 * us, 10.0 * us, 0.0, 40 * us),
    ]
