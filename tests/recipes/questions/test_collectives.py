from __future__ import annotations

import numpy as np
import pytest
from tests.align.planted import arrival, planted_run, rows_of
from tests.making import collective, make_run

from alltrace.align.aligned import Aligned
from alltrace.recipes.execution.ask import ask
from alltrace.trace.errors import UsageError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return planted_run(tmp_path_factory.mktemp("planted") / "run")


def one_group(folder, op, *, size, ranks=4, members=4):
    rows = {r: {"collectives": rows_of(r, 8, 0, size=size, members=members, op=op)} for r in range(ranks)}
    return make_run(folder, rows, hosts={r: "ab"[r // 2] for r in range(ranks)})


def test_bandwidth_is_free_of_waiting(run):
    answer = ask(run, "collectives", {"link_gb_per_s": 10.0})
    (row,) = answer.table.to_pylist()
    assert (row["communicator"], row["op"], row["bytes"], row["group_size"], row["ranks"]) == (
        "c0",
        "AllReduce",
        1 << 20,
        4,
        "0-3",
    )
    assert (row["instances"], row["incomplete"]) == (20, 0)
    # transfers take 500 us and the jitter of 300 ns, however long the ranks wait
    assert row["transfer_median_ns"] == pytest.approx(500_230, abs=500)
    assert row["algbw_gb_per_s"] == pytest.approx((1 << 20) / row["transfer_median_ns"], rel=1e-6)
    assert row["busbw_gb_per_s"] == pytest.approx(row["algbw_gb_per_s"] * 1.5, rel=1e-6)
    assert row["peak_percent"] == pytest.approx(row["busbw_gb_per_s"] * 10, rel=1e-6)
    assert row["skew_median_ns"] == row["skew_max_ns"] == pytest.approx(2_000_000, abs=400)
    assert row["duration_median_ns"] == pytest.approx(2_500_230, abs=400)
    assert row["wait_ns"] == row["wait_certain_ns"] == pytest.approx(20 * 5_920_000, abs=20 * 1_200)


def test_share_of_peak_is_left_open_where_the_link_is_not_known(run):
    assert ask(run, "collectives").table["peak_percent"].to_pylist() == [None]
    for wrong in (0.0, -3.0, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="link-gb-per-s"):
            ask(run, "collectives", {"link_gb_per_s": wrong})


def test_instances_are_listed_by_time(run):
    table = ask(run, "collectives", {"instances": True}).table
    rows = table.to_pylist()
    assert [r["ordinal"] for r in rows] == list(range(20))
    zero = rows[0]["first_arrival_ns"] - arrival(0, 0)
    for r in rows:
        assert r["first_arrival_ns"] == pytest.approx(zero + arrival(0, r["ordinal"]), abs=400)
        assert r["last_arrival_ns"] == pytest.approx(zero + arrival(2, r["ordinal"]), abs=400)
        assert r["last_rank"] == 2
        assert r["skew_ns"] == r["last_arrival_ns"] - r["first_arrival_ns"]
        assert r["transfer_ns"] == r["end_ns"] - r["last_arrival_ns"]
        assert r["busbw_gb_per_s"] == pytest.approx(1.5 * r["bytes"] / r["transfer_ns"], rel=1e-9)
        assert r["certain"] is True
        assert r["confidence"] == 1.0
    (summed,) = ask(run, "collectives").table.to_pylist()
    assert sum(r["wait_ns"] for r in rows) == summed["wait_ns"]
    assert np.median([r["transfer_ns"] for r in rows]) == pytest.approx(summed["transfer_median_ns"], abs=0.5)
    # of 20 values the 95th percentile lies at place 18.05, between the last but one and the last
    for listed, percentile in (("transfer_ns", "transfer_p95_ns"), ("skew_ns", "skew_p95_ns")):
        *_, before, last = sorted(r[listed] for r in rows)
        assert summed[percentile] == pytest.approx(before + 0.05 * (last - before), abs=0.51)


def test_percentiles_are_the_ninety_fifth(tmp_path):
    """Twenty operations whose last rank is 10, 20, ... 200 us late and which then take 1, 2, ... 20 ms."""
    us = 1000
    ranks = {
        rank: [
            {**row, "start": row["start"] // 10_000_000 * 100_000_000 + (10 * us * (n + 1) if rank == 1 else 0)}
            for n, row in enumerate(rows_of(rank, 20, 0, size=1 << 20, members=2))
        ]
        for rank in (0, 1)
    }
    for rows in ranks.values():
        for n, row in enumerate(rows):
            row["end"] = ranks[1][n]["start"] + 1000 * us * (n + 1)
    run = make_run(tmp_path / "run", {rank: {"collectives": rows} for rank, rows in ranks.items()})
    (row,) = ask(run, "collectives").table.to_pylist()
    assert (row["skew_median_ns"], row["skew_p95_ns"], row["skew_max_ns"]) == (105 * us, 190_500, 200 * us)
    assert (row["transfer_median_ns"], row["transfer_p95_ns"]) == (10_500 * us, 19_050 * us)


@pytest.mark.parametrize(
    ("op", "total", "share"),
    [
        ("AllReduce", 1, 1.5),
        ("AllGather", 4, 0.75),
        ("ReduceScatter", 4, 0.75),
        ("AllToAll", 1, 0.75),
        ("Broadcast", 1, 1.0),
    ],
)
def test_the_formulas_are_those_of_nccl_tests(tmp_path, op, total, share):
    (row,) = ask(one_group(tmp_path / "run", op, size=1_000_000), "collectives").table.to_pylist()
    assert row["op"] == op
    assert row["algbw_gb_per_s"] == pytest.approx(total * 1_000_000 / row["transfer_median_ns"], rel=1e-6)
    assert row["busbw_gb_per_s"] == pytest.approx(share * row["algbw_gb_per_s"], rel=1e-6)


def test_without_a_size_there_is_no_bandwidth(tmp_path):
    (row,) = ask(one_group(tmp_path / "run", "AllReduce", size=None), "collectives").table.to_pylist()
    assert row["bytes"] is None
    assert row["busbw_gb_per_s"] is None
    assert row["transfer_median_ns"] > 0


def test_instances_that_lack_a_rank_have_waits_but_no_transfer(tmp_path):
    run = one_group(tmp_path / "run", "AllReduce", size=1000, ranks=2, members=4)
    answer = ask(run, "collectives")
    (row,) = answer.table.to_pylist()
    assert (row["group_size"], row["instances"], row["incomplete"]) == (4, 8, 8)
    assert row["transfer_median_ns"] is row["skew_median_ns"] is row["busbw_gb_per_s"] is None
    assert row["wait_ns"] == pytest.approx(8 * 20_000, abs=8 * 400)
    assert any("8 of 8 instances lack a rank" in n for n in answer.notes)
    assert ask(run, "collectives", {"instances": True}).table["transfer_ns"].null_count == 8


def test_a_skew_below_the_error_of_the_clocks_is_not_stated_as_certain(run, monkeypatch):
    monkeypatch.setattr(Aligned, "error_ns", lambda _self, one, other: 0 if one == other else 3_000_000)
    ask(run, "collectives")  # aligns the run, if no test before this one has
    run.alignment.__dict__.pop("members", None)
    answer = ask(run, "collectives", {"instances": True})
    assert not any(answer.table["certain"].to_pylist())
    assert any("20 of 20 instances" in n for n in answer.notes)
    assert ask(run, "collectives").table["wait_certain_ns"].to_pylist() == [0]
    run.alignment.__dict__.pop("members", None)


def test_ranks_choose_instances(tmp_path):
    ranks = {r: {"collectives": rows_of(r % 2, 6, 0, size=8, members=2, communicator=f"c{r // 2}")} for r in range(4)}
    run = make_run(tmp_path / "run", ranks)
    assert sorted(ask(run, "collectives").table["communicator"].to_pylist()) == ["c0", "c1"]
    assert ask(run, "collectives", ranks=[3]).table["communicator"].to_pylist() == ["c1"]


def test_one_rank_has_counts_sizes_and_durations(tmp_path):
    broadcasts = [r | {"sequence": 6 + r["sequence"], "op": "Broadcast"} for r in rows_of(0, 2, 10**8, size=16)]
    run = make_run(tmp_path / "run", {3: {"collectives": [*rows_of(0, 6, 0, size=8), *broadcasts]}})
    answer = ask(run, "collectives")
    rows = answer.table.to_pylist()
    assert [(r["communicator"], r["op"], r["bytes"], r["instances"], r["incomplete"]) for r in rows] == [
        ("c0", "AllReduce", 8, 6, 6), ("c0", "Broadcast", 16, 2, 2),
    ]  # fmt: skip
    assert {(r["group_size"], r["ranks"]) for r in rows} == {(4, "3")}
    assert [r["duration_median_ns"] for r in rows] == pytest.approx([2_500_000] * 2, abs=300)
    assert {r[name] for r in rows for name in ("skew_max_ns", "transfer_median_ns", "wait_ns", "wait_certain_ns")} == {
        None
    }
    assert "the run has one rank with one device, so there is nothing to align" in answer.notes
    assert any("a report of rank 3 alone" in n for n in answer.notes)
    listed = ask(run, "collectives", {"instances": True}).table.to_pylist()
    assert len(listed) == 8
    assert {(r["members"], r["last_rank"], r["skew_ns"], r["wait_ns"], r["certain"]) for r in listed} == {
        (1, *[None] * 4)
    }
    assert all(r["end_ns"] - r["first_arrival_ns"] == pytest.approx(2_500_000, abs=300) for r in listed)


def test_one_rank_without_names_of_communicators(tmp_path):
    run = make_run(tmp_path / "run", {0: {"kernels": [collective(100 * n, 100 * n + 40) for n in range(5)]}})
    (row,) = ask(run, "collectives").table.to_pylist()
    assert (row["communicator"], row["op"], row["group_size"], row["instances"]) == (None, "AllReduce", None, 5)
    assert row["duration_median_ns"] == 40
    assert ask(run, "collectives", {"instances": True}).table["group_size"].null_count == 5


def test_one_rank_that_is_its_communicator_lacks_nobody(tmp_path):
    alone = [r | {"group_size": 1} for r in rows_of(0, 4, 0, size=8, members=1)]
    answer = ask(make_run(tmp_path / "run", {0: {"collectives": alone}}), "collectives")
    (row,) = answer.table.to_pylist()
    assert (row["instances"], row["incomplete"]) == (4, 0)
    assert not any("alone" in n for n in answer.notes)


def test_kernels_that_wait_for_peers_inside_give_no_bandwidth(tmp_path):
    kernel = {"name": "void deep_ep::intranode::dispatch<8>(int4*)", "kind": "exchange"}
    starts = [10**6 * n * n for n in range(1, 30)]
    rows = {
        r: {"kernels": [{**kernel, "start": s + 100_000 * r, "end": s + 800_000} for s in starts]} for r in range(2)
    }
    run = make_run(tmp_path / "run", rows)
    answer = ask(run, "collectives")
    (row,) = answer.table.to_pylist()
    assert (row["op"], row["instances"], row["busbw_gb_per_s"]) == ("AllToAll", 29, None)
    assert any("29 of 29 instances are kernels that wait for peers inside" in n for n in answer.notes)
    (listed,) = {r["busbw_gb_per_s"] for r in ask(run, "collectives", {"instances": True}).table.to_pylist()}
    assert listed is None
    broken_down = ask(run, "breakdown")
    assert [r["exposed_communication_ns"] for r in broken_down.table.to_pylist()] == [29 * 800_000, 29 * 700_000]
    assert any(n.startswith("100.0 % of the kernel time is in kernels that send to peers") for n in broken_down.notes)


def test_other_kernels_are_not_said_to_wait_inside(tmp_path):
    rows = {
        r: {"kernels": [{"name": "ncclDevKernel_AllReduce", "start": n, "end": n + 9} for n in range(9)]}
        for r in range(2)
    }
    run = make_run(tmp_path / "run", rows)
    assert not any(
        "wait for peers inside" in n or "send to peers" in n
        for q in ("collectives", "breakdown")
        for n in ask(run, q).notes
    )


def test_a_message_is_whole_with_its_sender_and_receiver_whoever_comes_first(tmp_path):
    # on three ranks: 0 sends to 1, for which it waits 10 us; 2 sends to 0, which waits 40 us for it; 1 MB take 100 us
    # after both have come
    def call(start, end, name, peer):
        own = {
            "start": start * 1000,
            "end": end * 1000,
            "name": f"MPI_{name}",
            "kind": "p2p",
            "thread": 0,
            "communicator": 1,
        }
        return {**own, "peer": peer, "tag": 0, "bytes": 1_000_000}

    calls = (
        [call(0, 110, "Send", 1), call(500, 640, "Recv", 2)],
        [call(10, 110, "Recv", 0)],
        [call(540, 640, "Send", 0)],
    )
    world = [{"communicator": 1, "parent": 0, "size": 3, "process": 0}]
    ranks = {r: {"mpi": its, "communicators": [{**world[0], "group_rank": r}]} for r, its in enumerate(calls)}
    answer = ask(make_run(tmp_path / "run", ranks), "collectives")
    (row,) = answer.table.to_pylist()
    chosen = ("op", "instances", "incomplete", "group_size", "transfer_median_ns", "busbw_gb_per_s", "wait_ns")
    assert [row[c] for c in chosen] == ["Send", 2, 0, 3, 100_000, 10.0, 50_000]
    assert (row["late_sender_ns"], row["late_receiver_ns"]) == (40_000, 10_000)
    assert answer.notes == ()
