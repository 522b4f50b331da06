from __future__ import annotations

import json

import pytest
from tests.making import collective, make_run

from alltrace.api import open_run
from alltrace.charts.prepare import draw
from alltrace.cli.main import main
from alltrace.recipes.execution.ask import ask
from alltrace.synth import write_run
from alltrace.trace.errors import InputError
from alltrace.trace.nsys_payloads import EXPORT

TESTS = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 16777216 step: 4(factor) warmup iters: 5 iters: 20
# Using devices
#  Rank  0 Group  0 Pid   100 on      a device  0 [0x07] NVIDIA A100
#  Rank  1 Group  0 Pid   101 on      a device  1 [0x0f] NVIDIA A100
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    50.00   20.97   20.97      0    50.00   20.97   20.97      0
     4194304       1048576     float     sum      -1   100.00   41.94   41.94      0   100.00   41.94   41.94      0
    16777216       4194304     float     sum      -1   200.00   83.89   83.89      0   200.00   83.89   83.89      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 48.9
"""


def operation(start, duration, op, size, rank, **others):
    return {
        "start": start,
        "end": start + duration,
        "api_start": start - 1_000,
        "stream": 20,
        "communicator": "c",
        "op": op,
        "bytes": size,
        "group_rank": rank,
        "group_size": 2,
        "datatype": "float32",
        "evidence": "trace",
        **others,
    }


@pytest.fixture
def run(tmp_path):
    ranks = {}
    for rank in range(2):
        rows = []
        for n, taken in enumerate((100_000, 110_000, 130_000, 170_000)):
            # rank 1 comes 20 us later, and both end together
            late = 20_000 * rank
            rows.append(operation(1_000_000 * n + late, taken - late, "AllReduce", 4 << 20, rank, sequence=2 * n))
            rows.append(operation(1_000_000 * n + 500_000, 60_000, "AllGather", 1 << 20, rank, sequence=2 * n + 1))
        ranks[rank] = {"collectives": rows}
    return make_run(tmp_path / "run", ranks, hosts={0: "a", 1: "a"})


def rows(answer):
    return {(r["op"], r.get("rank")): r for r in answer.table.to_pylist()}


def test_times_of_each_size_have_exact_quartiles(run):
    found = rows(ask(run, "nccl_size_spread"))
    reduce = found["AllReduce", None]
    # 80, 90, 100, 110, 110, 130, 150 and 170 us
    five = [reduce[n] for n in ("count", "min_ns", "q1_ns", "median_ns", "q3_ns", "max_ns", "total_ns")]
    assert five == [8, 80_000, 97_500, 110_000, 135_000, 170_000, 940_000]
    assert reduce["what"] == "AllReduce x2 4 MiB"
    assert reduce["busbw_gb_per_s"] == pytest.approx((4 << 20) / 110_000)
    gather = found["AllGather", None]
    assert (gather["bytes"], gather["payload_bytes"], gather["datatype"]) == (1 << 20, 2 << 20, "float32")
    assert gather["busbw_gb_per_s"] == pytest.approx((2 << 20) / 60_000 / 2)


def test_each_rank_has_its_own_row(run):
    found = rows(ask(run, "nccl_size_spread", {"by": "rank", "op": "allreduce"}))
    assert {k: (r["min_ns"], r["median_ns"], r["max_ns"]) for k, r in found.items()} == {
        ("AllReduce", 0): (100_000, 120_000, 170_000),
        ("AllReduce", 1): (80_000, 100_000, 150_000),
    }


def test_transfer_is_one_time_for_each_instance(run):
    found = rows(ask(run, "nccl_size_spread", {"measure": "transfer"}))
    reduce = found["AllReduce", None]
    assert [reduce[n] for n in ("count", "min_ns", "median_ns", "max_ns")] == pytest.approx(
        [4, 80_000, 100_000, 150_000], abs=2
    )


@pytest.mark.parametrize("measure", ["duration", "transfer"])
def test_mpis_operations_are_left_out(tmp_path, measure):
    def rows(late):
        starts = [1_000_000 * n + late * (n % 2) for n in range(8)]
        calls = [
            {"start": s + 500_000, "end": s + 600_000, "name": "MPI_Allreduce", "kind": "collective", "bytes": 8}
            for s in starts
        ]
        return {"kernels": [collective(s, s + 200_000) for s in starts], "mpi": calls}

    run = make_run(tmp_path, {rank: rows(5_000 * rank) for rank in range(2)})
    assert [r["instances"] for r in ask(run, "collectives").table.to_pylist()] == [8, 8]
    (row,) = ask(run, "nccl_size_spread", {"measure": measure}).table.to_pylist()
    assert (row["bytes"], row["count"]) == (None, 16 if measure == "duration" else 8)


def test_times_are_held_against_nccl_tests(run, tmp_path):
    (tmp_path / "all_reduce_perf.out").write_text(TESTS)
    answer = ask(run, "nccl_size_spread", {"nccl_tests": str(tmp_path / "all_reduce_perf.out")})
    found = rows(answer)
    assert found["AllReduce", None]["tests_time_ns"] == 100_000
    assert found["AllReduce", None]["tests_ratio"] == pytest.approx(1.1)
    assert found["AllReduce", None]["tests_busbw_gb_per_s"] == pytest.approx(41.94, abs=0.01)
    assert found["AllGather", None]["tests_time_ns"] is None
    assert answer.chart.where == ("op", "AllReduce")
    drawn = draw(answer)
    assert [s.name for s in drawn.series][-1] == "tests time"
    assert [s.y for s in drawn.series] == [(80.0,), (97.5,), (110.0,), (135.0,), (170.0,), (100.0,)]
    assert any("1 of 2 rows have a size that the 1 runs of nccl-tests cover" in n for n in answer.notes)


@pytest.mark.parametrize(("size", "expected"), [(2 << 20, 50_000 * 2**0.5), (32 << 20, 400_000), (1 << 10, None)])
def test_sizes_between_those_of_nccl_tests_lie_on_the_line(tmp_path, size, expected):
    (tmp_path / "all_reduce_perf.out").write_text(TESTS)
    ranks = {r: {"collectives": [operation(0, 100_000, "AllReduce", size, r)]} for r in range(2)}
    run = make_run(tmp_path / "run", ranks)
    row = ask(run, "nccl_size_spread", {"nccl_tests": str(tmp_path / "all_reduce_perf.out")})
    found = row.table.to_pylist()[0]["tests_time_ns"]
    assert found == (None if expected is None else pytest.approx(expected))


def test_a_file_without_a_table_is_refused(run, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("nothing\n")
    with pytest.raises(InputError, match="no table of nccl-tests"):
        ask(run, "nccl_size_spread", {"nccl_tests": str(tmp_path / "notes.txt")})
    assert (
        main(
            [
                "recipe",
                "nccl_size_spread",
                str(run.path),
                "--nccl-tests",
                str(tmp_path / "none.out"),
                "--format",
                "json",
            ]
        )
        == 3
    )
    assert "there is no such file" in capsys.readouterr().err


def test_operations_without_a_size_are_told(tmp_path, capsys):
    ranks = {r: {"collectives": [operation(0, 100_000, "AllReduce", None, r)]} for r in range(2)}
    run = make_run(tmp_path / "run", ranks)
    assert main(["recipe", "nccl_size_spread", str(run.path), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["rows"][0]["what"] == "AllReduce x2 ?"
    assert any("2 operations have no size" in n and "--nccl-log" in n for n in answer["notes"])


def test_every_answer_that_misses_sizes_says_how_to_export_payloads(tmp_path):
    write_run("tiny", tmp_path / "reports")
    run = open_run(tmp_path / "reports", cache_dir=tmp_path / "cache")
    for name in ("nccl_size_spread", "nccl_sum", "collectives", "diagnose"):
        notes = [note for note in run.recipe(name).notes if "no payload, which names sizes and communicators" in note]
        assert len(notes) == 1
        assert notes[0].startswith("ranks 0-1: ")
        assert EXPORT in notes[0]
    assert not any("payload" in note for note in run.recipe("kernels").notes)
    assert not any("does not record" in note for note in run.recipe("nccl_size_spread").notes)


def test_a_step_has_its_own_row(tmp_path):
    ranks = {}
    for rank in range(2):
        steps = [
            {"start": s * 1_000_000, "end": (s + 1) * 1_000_000, "thread": 1, "name": f"step {s}"} for s in range(3)
        ]
        ops = [operation(s * 1_000_000 + 10_000, 100_000 + s, "AllReduce", 1 << 20, rank, sequence=s) for s in range(3)]
        ranks[rank] = {"collectives": ops, "ranges": steps}
    answer = ask(make_run(tmp_path / "run", ranks), "nccl_size_spread", {"by": "step"})
    assert [(r["step"], r["count"], r["min_ns"]) for r in answer.table.to_pylist()] == [
        (s, 2, 100_000 + s) for s in range(3)
    ]


@pytest.mark.parametrize("measure", ["duration", "transfer"])
def test_what_comes_after_the_last_step_is_in_none(tmp_path, measure):
    ranks = {}
    for rank in range(2):
        steps = [
            {"start": s * 1_000_000, "end": (s + 1) * 1_000_000 - 1, "thread": 1, "name": f"step {s}"} for s in range(3)
        ]
        ops = [operation(s * 1_000_000 + 10_000, 100_000 + s, "AllReduce", 1 << 20, rank, sequence=s) for s in range(5)]
        ranks[rank] = {"collectives": ops, "ranges": steps}
    answer = ask(make_run(tmp_path / "run", ranks), "nccl_size_spread", {"by": "step", "measure": measure})
    each = 2 if measure == "duration" else 1
    assert [(r["step"], r["count"]) for r in answer.table.to_pylist()] == [
        (0, each),
        (1, each),
        (2, each),
        (None, 2 * each),
    ]
