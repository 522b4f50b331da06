"""What stands for device work where nothing ran on a device: pieces of the main thread, and its communication."""

from __future__ import annotations

import pytest
from tests.making import kernel, make_run

MS = 1_000_000
OTHER_THREAD = {"threads": [{"thread": n, "process": 0, "tid": 4001 + n, "name": f"thread {n}"} for n in range(3)]}


def range_of(start, end, name, **others):
    return {"start": start, "end": end, "name": name, "kind": "pushpop", **others}


def operator(start, end, name="aten::mm", **others):
    return range_of(start, end, name, domain="cpu_op", **others)


def call(start, end, name="MPI_Allreduce", kind="collective", **others):
    return {"start": start, "end": end, "name": name, "kind": kind, **others}


def gloo(start, end, thread=1):
    operation = {
        "start": start,
        "end": end,
        "api_start": start,
        "api_end": end,
        "op": "AllReduce",
        "communicator": "pg 0 [0, 1]",
    }
    return {
        **operation,
        "thread": thread,
        "device": None,
        "stream": None,
        "group_size": 2,
        "sequence": start,
        "evidence": "trace",
    }


def work_of(tmp_path, tables, others=None):
    run = make_run(tmp_path / "run", {0: {**OTHER_THREAD, **tables}, **(others or {})})
    table = run.rank(0).with_host_work().table("kernels", ("start", "end", "stream", "kind", "name"))
    names = run.texts(table.column("name")).to_pylist()
    columns = [table.column(c).to_pylist() for c in ("start", "end", "stream", "kind")]
    return sorted(zip(*columns, names, strict=True))


def test_a_thread_computes_whenever_it_does_not_communicate(tmp_path):
    rows = work_of(
        tmp_path,
        {
            "ranges": [range_of(0, 100, "step"), range_of(10, 30, "work"), range_of(35, 60, "exchange")],
            "mpi": [call(40, 50), call(50, 60, "MPI_Send", "p2p"), call(70, 80, "MPI_Wtime", "other")],
        },
    )
    assert rows == [
        (0, 10, 0, "host", "step"),
        (10, 30, 0, "host", "work"),
        (30, 35, 0, "host", "step"),
        (35, 40, 0, "host", "exchange"),
        (40, 50, 0, "collective", "MPI_Allreduce"),
        (50, 60, 0, "p2p", "MPI_Send"),
        (60, 70, 0, "host", "step"),
        (80, 100, 0, "host", "step"),
    ]


def test_calls_of_which_only_the_name_is_recorded_communicate_too(tmp_path):
    calls = [call(0, 10, "MPI_Init", "other"), call(20, 30, "MPI_Barrier", "other"), call(40, 50, "MPI_Recv", "other")]
    assert work_of(tmp_path, {"mpi": calls}) == [
        (10, 20, 0, "host", None),
        (20, 30, 0, "collective", "MPI_Barrier"),
        (30, 40, 0, "host", None),
        (40, 50, 0, "p2p", "MPI_Recv"),
    ]


def test_with_operators_short_pauses_are_work_and_long_ones_are_not(tmp_path):
    rows = [
        operator(0, 4 * MS),
        operator(1 * MS, 2 * MS, "aten::add"),
        operator(5 * MS - 1, 6 * MS),
        operator(7 * MS, 8 * MS),
    ]
    assert work_of(tmp_path, {"ranges": rows}) == [
        (0, 1 * MS, 0, "host", "aten::mm"),
        (1 * MS, 2 * MS, 0, "host", "aten::add"),
        (2 * MS, 4 * MS, 0, "host", "aten::mm"),
        (4 * MS, 5 * MS - 1, 0, "host", None),
        (5 * MS - 1, 6 * MS, 0, "host", "aten::mm"),
        (7 * MS, 8 * MS, 0, "host", "aten::mm"),
    ]


WAITS = {
    "operating system": {
        "osrt": [
            {"start": 2 * MS + at, "end": 2 * MS + at + MS // 4, "name": name}
            for at, name in zip(
                range(0, MS, MS // 4), ("nanosleep", "sem_wait", "pthread_cond_wait", "read"), strict=True
            )
        ]
    },
    "off the CPU": {"sched": [{"time": t, "scheduled_in": t != 2 * MS} for t in (0, 2 * MS, 3 * MS, 4 * MS)]},
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_thread_that_waits_does_not_compute(tmp_path, wait):
    rows = work_of(tmp_path, {**WAITS[wait], "ranges": [range_of(0, 4 * MS, "step")], "mpi": [call(0, 1)]})
    assert [r[:2] for r in rows if r[3] == "host"] == [(1, 2 * MS), (3 * MS, 4 * MS)]


def test_what_loads_a_batch_is_no_work(tmp_path):
    loading = operator(3 * MS, 5 * MS, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    rows = work_of(
        tmp_path,
        {"ranges": [operator(0, 3 * MS), loading, operator(4 * MS, 5 * MS, "aten::randn"), operator(5 * MS, 6 * MS)]},
    )
    assert [r[:2] for r in rows] == [(0, 3 * MS), (5 * MS, 6 * MS)]


def test_another_thread_communicates_while_the_main_one_computes(tmp_path):
    rows = work_of(
        tmp_path,
        {
            "ranges": [
                operator(0, 10 * MS),
                operator(20 * MS, 21 * MS, "aten::add"),
                range_of(4 * MS, 19 * MS, "gloo", thread=1),
            ],
            "collectives": [gloo(4 * MS, 20 * MS + MS // 2), gloo(25 * MS, 30 * MS, thread=2)],
        },
    )
    assert rows == [
        (0, 4 * MS, 0, "host", "aten::mm"),
        (4 * MS, 10 * MS, 0, "host", "aten::mm"),
        (4 * MS, 20 * MS, 1, "collective", "AllReduce"),
        (20 * MS, 21 * MS, 0, "host", "aten::add"),
        (25 * MS, 30 * MS, 2, "collective", "AllReduce"),
    ]


def test_operations_are_where_their_rows_are(tmp_path):
    tables = {"ranges": [operator(0, 10 * MS)], "collectives": [gloo(4 * MS, 20 * MS)]}
    rank = make_run(tmp_path / "run", {0: {**OTHER_THREAD, **tables}}).rank(0).with_host_work()
    assert rank.table("collectives", ("start", "end", "stream", "device")).to_pylist() == [
        {"start": 4 * MS, "end": 20 * MS, "stream": 1, "device": None}
    ]
    assert rank.has("kernels")


def test_where_any_rank_has_device_work_hosts_do_not_stand_in(tmp_path):
    tables = {"ranges": [range_of(0, 10, "step")], "mpi": [call(2, 3)]}
    assert work_of(tmp_path, tables, {1: {"kernels": [kernel(0, 5)]}}) == []


def test_a_rank_of_which_nothing_shows_what_it_did_has_no_work(tmp_path):
    assert work_of(tmp_path, {"osrt": [{"start": 0, "end": 5, "name": "read"}]}) == []
