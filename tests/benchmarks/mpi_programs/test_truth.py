"""What follows from a program's record: who met whom, who waited, and the size of a message."""

from __future__ import annotations

import json

import pytest

from benchmarks.mpi_programs.recording import IMPLEMENTATIONS, Plan, lacking, record
from benchmarks.mpi_programs.score import scored
from benchmarks.mpi_programs.truth import instances, message_bytes, read_records

COLUMNS = (
    "call", "communicator", "root", "count", "type", "in_place", "peer", "receive_peer", "tag", "requests", "sleep_us",
    "wtime_begun", "wtime_ended", "start_ns", "end_ns",
)  # fmt: skip


def call(name, start, end, group="world", **more):
    lacks = dict.fromkeys(COLUMNS, -1) | {"type": None, "in_place": 0, "requests": [], "sleep_us": 0}
    row = lacks | {"call": name, "communicator": group, "start_ns": start, "end_ns": end} | more
    return [row[c] for c in COLUMNS]


def truth(folder, calls, groups=None):
    groups = groups or {"world": list(range(len(calls)))}
    for rank, mine in enumerate(calls):
        facts = {"rank": rank, "size": len(calls), "library": "none", "columns": COLUMNS, "calls": mine}
        facts["communicators"] = {name: ranks for name, ranks in groups.items() if rank in ranks}
        (folder / f"record.{rank}.json").write_text(json.dumps(facts))
    return instances(read_records(folder))


def waits(instance):
    return [instance.wait_ns(rank) for rank in sorted(instance.ranks)]


def test_operations_are_counted_on_each_communicator(tmp_path):
    one = [call("MPI_Barrier", 0, 9), call("MPI_Allreduce", 10, 19, "pair"), call("MPI_Barrier", 20, 29)]
    other = [call("MPI_Allreduce", 0, 19, "pair"), call("MPI_Comm_split", 19, 20, None), call("MPI_Barrier", 20, 21)]
    third = [call("MPI_Barrier", 1, 8), call("MPI_Barrier", 22, 23)]
    found = truth(tmp_path, [one, [*other, call("MPI_Barrier", 25, 28)], third], {"world": [0, 1, 2], "pair": [1, 0]})
    assert {i.key for i in found} == {
        frozenset({(0, 0, 0), (1, 2, 0), (2, 0, 0)}),
        frozenset({(0, 2, 0), (1, 3, 0), (2, 1, 0)}),
        frozenset({(0, 1, 0), (1, 0, 0)}),
    }


def test_ranks_that_call_in_another_order_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="operation 0 of world is"):
        truth(tmp_path, [[call("MPI_Barrier", 0, 1)], [call("MPI_Allreduce", 0, 1)]])


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("MPI_Allreduce", {}, [30, 20, 0]),
        ("MPI_Bcast", {"root": 1}, [10, 0, 0]),
        ("MPI_Bcast", {"root": 2}, [30, 20, 0]),
        ("MPI_Reduce", {"root": 1}, [0, 20, 0]),
        ("MPI_Gather", {"root": 2}, [0, 0, 0]),
        ("MPI_Scan", {}, [0, 0, 0]),
    ],
)
def test_who_waits_follows_the_direction(tmp_path, name, more, expected):
    (found,) = truth(tmp_path, [[call(name, start, 40, **more)] for start in (0, 10, 30)])
    assert waits(found) == expected


def test_a_rank_does_not_wait_after_its_end(tmp_path):
    (found,) = truth(tmp_path, [[call("MPI_Barrier", 0, 12)], [call("MPI_Barrier", 20, 30)]])
    assert waits(found) == [12, 0]


def test_an_operation_that_only_begins_is_waited_for_later(tmp_path):
    first = [call("MPI_Ibarrier", 0, 1, requests=[4]), call("MPI_Wait", 15, 31, None, requests=[4])]
    second = [call("MPI_Ibarrier", 30, 31, requests=[0]), call("MPI_Waitall", 35, 36, None, requests=[9, 0])]
    (found,) = truth(tmp_path, [first, second])
    assert found.key == {(0, 0, 0), (1, 0, 0)}
    assert found.begins_only
    assert waits(found) == [15, 0]


def test_a_receiver_waits_for_its_sender(tmp_path):
    sends = [call("MPI_Send", 50, 60, peer=1, tag=7, count=3, type="MPI_INT"), call("MPI_Send", 70, 75, peer=1, tag=7)]
    receives = [call("MPI_Recv", 10, 55, peer=-2, tag=7), call("MPI_Recv", 60, 80, peer=-2, tag=7)]
    found = truth(tmp_path, [sends, receives])
    assert [i.key for i in found] == [{(0, 0, 1), (1, 0, -1)}, {(0, 1, 1), (1, 1, -1)}]
    assert [waits(i) for i in found] == [[0, 40], [0, 10]]


def test_each_start_of_a_persistent_message_is_one(tmp_path):
    def mine(setup, shift):
        starts = [
            call("MPI_Start", 10 + shift, 11 + shift, None, requests=[3]),
            call("MPI_Startall", 40, 41, None, requests=[3, 8]),
        ]
        ends = [
            call("MPI_Wait", 20, 30 + shift, None, requests=[3]),
            call("MPI_Waitall", 50, 60, None, requests=[8, 3]),
        ]
        return [call(setup, 0, 1, peer=1 - shift // 5, tag=1, requests=[3]), starts[0], ends[0], starts[1], ends[1]]

    found = truth(tmp_path, [mine("MPI_Recv_init", 0), mine("MPI_Send_init", 5)])
    assert {i.key for i in found} == {frozenset({(0, 1, -1), (1, 1, 1)}), frozenset({(0, 3, -1), (1, 3, 1)})}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("MPI_Allreduce", 80), ("MPI_Iallgather", 80), ("MPI_Alltoall", 240), ("MPI_Ialltoall", 240),
        ("MPI_Alltoallv", 8 * (10 + 11 + 12)), ("MPI_Scatterv", 80),
    ],
)  # fmt: skip
def test_the_size_of_a_message(tmp_path, name, expected):
    requests = [0] if "_I" in name else []
    wait = call("MPI_Wait", 1, 2, None, requests=[0])
    rows = [call(name, 0, 1, count=10, type="MPI_DOUBLE", peer=0, tag=1, requests=requests), wait]
    truth(tmp_path, [rows, [], []])
    assert message_bytes(read_records(tmp_path)[0].calls[0], (0, 1, 2)) == expected


def test_a_barrier_has_no_size(tmp_path):
    (found,) = truth(tmp_path, [[call("MPI_Barrier", 0, 1)], [call("MPI_Barrier", 0, 1)]])
    assert message_bytes(found.members[0], found.ranks) is None


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_real_recording_lists_the_calls_of_the_record(implementation, nsys, tmp_path):
    plan = Plan(implementation, 2, each=1, sleep_us=2000)
    if lacking(plan):
        pytest.skip(f"no {lacking(plan)}")
    record(plan, tmp_path / "kept", nsys)
    score = scored(tmp_path / "kept", tmp_path / "run")  # raises where the calls differ
    assert score.total("world").planted == 10
    assert score.clock_error_ns < 1_000_000
