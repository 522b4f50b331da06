from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from alltrace.align.members import EXCHANGE, _awaited, described, direction_of
from alltrace.run.overlay import MEMBERS


@pytest.mark.parametrize(
    ("op", "direction"),
    [("AllReduce", 0), ("Broadcast", 0), ("Send", 1), ("Recv", -1), ("SendRecv", EXCHANGE), (None, 0)],
)
def test_which_way_an_operation_goes(op, direction):
    assert direction_of(op) == direction


@pytest.mark.parametrize(
    ("op", "root", "awaited"),
    [
        ("AllReduce", -1, [1, 1, 1, 1]),
        ("Broadcast", 2, [2, 2, 2, 2]),
        ("Scatter", 0, [0, 0, 0, 0]),
        ("Reduce", 2, [0, 1, 1, 3]),
        ("Gather", 1, [0, 1, 2, 3]),
        ("Scan", -1, [0, 1, 1, 1]),
        ("Broadcast", -1, [1, 1, 1, 1]),
    ],
)
def test_members_wait_for_those_they_need(op, root, awaited):
    # after an instance of others; rank 1 comes last, rank 0 second
    start = np.array([9, 8, 70, 100, 60, 50])
    place = np.array([0, 0, 1, 1, 1, 1])
    last = np.array([0, 0, 3, 3, 3, 3])
    roots = np.array([-1, -1, root, root, root, root])
    found = _awaited(
        np.array(["AllReduce"] * 2 + [op] * 4, object), last, place, start, roots, np.array([0, 1, 0, 1, 2, 3])
    )
    assert found.tolist() == [0, 0, *(2 + row for row in awaited)]


NAMES = ["AllReduce", "Broadcast", "Send", "Recv"]
MPI = {"evidence": "mpi"}


def described_of(*instances, error_ns=lambda one, other: 0, sizes=(0,)):
    """`described` of instances, each of rows of (rank, start, end, others)."""
    rows = [(n, *row) for n, its in enumerate(instances) for row in its]
    columns = (
        "op", "bytes", "datatype", "stream", "device", "evidence", "group_size", "root", "group_rank", "wait_start",
        "tag", "synchronous",
    )  # fmt: skip
    ranks = sorted({row[1] for row in rows})
    tables = {}
    for rank in ranks:
        own = [{"op": 0, "evidence": "kernel", **row[4]} for row in rows if row[1] == rank]
        tables[rank] = pa.table(
            {c: pa.array([r.get(c) for r in own], pa.string() if c == "evidence" else pa.int64()) for c in columns}
        )
        at = tables[rank].column_names.index("evidence")
        tables[rank] = tables[rank].set_column(at, "evidence", tables[rank].column("evidence").dictionary_encode())
    place = dict.fromkeys(ranks, 0)
    members = []
    for instance, rank, start, end, _others in rows:
        members.append(
            {
                "instance": instance,
                "communicator": 0,
                "ordinal": instance,
                "rank": rank,
                "row": place[rank],
                "start": start,
            }
        )
        members[-1] |= {"end": end, "confidence": 1.0}
        place[rank] += 1
    table = pa.Table.from_pylist(members, MEMBERS.arrow_schema())

    def texts(ids):
        return pa.array([None if i is None else NAMES[i] for i in ids.to_pylist()], pa.string())

    return described(table, tables, group_sizes=sizes, texts=texts, error_ns=error_ns)


def picked(table, *columns):
    return list(zip(*(table.column(c).to_pylist() for c in columns), strict=True))


def test_members_wait_from_their_arrival_to_the_last_and_transfer_from_there():
    found = described_of(
        [(0, 10, 105, {}), (1, 40, 90, {}), (2, 70, 100, {})],
        [(0, 200, 260, {}), (1, 300, 360, {})],  # rank 0 ends before the other arrives
        [(0, 400, 440, {}), (1, 400, 450, {})],
    )
    columns = ("rank", "last_rank", "awaited_rank", "awaited_ns", "wait_ns", "transfer_ns", "members")
    assert picked(found, *columns) == [
        (0, 2, 2, 70, 60, 35, 3), (1, 2, 2, 70, 30, 35, 3), (2, 2, 2, 70, 0, 35, 3),
        (0, 1, 1, 300, 60, 60, 2), (1, 1, 1, 300, 0, 60, 2),
        (0, 0, 0, 400, 0, 50, 2), (1, 0, 0, 400, 0, 50, 2),
    ]  # fmt: skip
    assert picked(found, "first_arrival_ns", "last_arrival_ns", "last_end_ns", "wait_start_ns")[:3] == [
        (10, 70, 105, 10), (10, 70, 105, 40), (10, 70, 105, 70),
    ]  # fmt: skip


def test_a_wait_is_a_fact_from_the_error_of_both_clocks_on():
    errors = {(0, 1): 60, (0, 2): 61, (1, 1): 0, (2, 2): 0}
    one, other = ([(0, 100, 200, {}), (r, 160, 200, {})] for r in (1, 2))
    found = described_of(one, other, error_ns=lambda a, b: errors[a, b])
    assert picked(found, "wait_ns", "error_ns", "fact") == [(60, 60, True), (0, 0, True), (60, 61, False), (0, 0, True)]
    unknown = described_of(one, error_ns=lambda _a, _b: None)
    assert picked(unknown, "error_ns", "fact") == [(None, False), (None, False)]


def test_a_communicator_is_as_large_as_its_largest_record():
    two = [(0, 1, 2, {"group_size": 3}), (1, 1, 2, {})]
    assert described_of(two).column("group_size").to_pylist() == [3, 2]
    assert described_of(two, sizes=(5,)).column("group_size").to_pylist() == [5, 5]


@pytest.mark.parametrize(
    ("waits", "wait_ns", "transfer_ns"),
    [
        ((None, None), (60, 0), 40),
        ((50, None), (20, 0), 40),
        ((75, None), (0, 0), 40),  # it asks after all have arrived, but the other waits in its own call
        ((75, 80), (0, 0), 30),  # of none it is known when it was complete: the first end is the nearest
        ((60, 80), (10, 0), 30),
        ((5, None), (60, 0), 40),  # not before it arrived
    ],
)
def test_what_only_began_an_operation_waits_in_the_call_that_completes_it(waits, wait_ns, transfer_ns):
    found = described_of([(0, 10, 100, {**MPI, "wait_start": waits[0]}), (1, 70, 110, {**MPI, "wait_start": waits[1]})])
    assert tuple(found.column("wait_ns").to_pylist()) == wait_ns
    assert set(found.column("transfer_ns").to_pylist()) == {transfer_ns}


def message(send, receive, size=8, **sent):
    """Rank 0 sends to rank 1, each from a start to an end."""
    both = {"tag": 0, "bytes": size, **MPI}
    return [(0, *send, {"op": 2, **both, **sent}), (1, *receive, {"op": 3, **both})]


def late_receivers(*messages, **others):
    """How long the sender of each message waits."""
    found = described_of(*messages, **others)
    sent = [row for row in picked(found, "instance", "rank", "wait_ns") if row[1] == 0]
    return [wait for _instance, _rank, wait in sorted(sent)]


KEPT, HELD = ((10, 90), (60, 95)), ((110, 115), (160, 195))
"""A sender that stays until the receive begins, and one that leaves before."""


@pytest.mark.parametrize(
    ("messages", "waits"),
    [
        ([message(*KEPT, 4000)], [50]),
        ([message(*HELD, 4000)], [0]),
        ([message(*KEPT, 4000), message(*HELD, 3000)], [50, 0]),
        ([message(*KEPT, 3000), message(*HELD, 4000)], [0, 0]),  # what a larger one does not do, it does by chance
        ([message(*KEPT, 4000), message(*HELD, 4000)], [0, 0]),
        ([message(*KEPT, 3000, synchronous=1), message(*HELD, 4000)], [50, 0]),
        ([message(*KEPT, 3000, synchronous=0)], [0]),
        ([message(*KEPT, 3000), message(*HELD, 4000, synchronous=0)], [50, 0]),  # shows nothing of what decides by size
        ([message(*KEPT, None)], [0]),
        ([message((60, 90), (10, 95))], [0]),
    ],
)
def test_a_sender_waits_for_its_receiver_with_what_the_library_does_not_hold(messages, waits):
    assert late_receivers(*messages) == waits


def test_what_a_library_holds_within_a_host_says_nothing_of_a_network():
    far = [(2 * rank, *row) for rank, *row in message(*KEPT, 3000)]
    found = described_of(message(*HELD, 4000), far, error_ns=lambda one, other: 5 if {one, other} == {0, 2} else 0)
    assert picked(found, "instance", "rank", "wait_ns") == [(0, 0, 0), (0, 1, 0), (1, 0, 50), (1, 2, 0)]


def test_a_sender_that_left_as_long_before_as_clocks_may_be_off_waited():
    assert late_receivers(message((10, 55), (60, 95), 4000), error_ns=lambda _one, _other: 20) == [45]
    assert late_receivers(message((10, 55), (60, 95), 4000), error_ns=lambda _one, _other: None) == [0]


def test_of_two_sends_of_one_call_the_one_with_the_later_receive_kept_it():
    assert late_receivers(message((10, 90), (60, 95), 3000), message((10, 90), (80, 95), 4000)) == [0, 70]
    sure = message((110, 190), (160, 195), 2000)
    assert late_receivers(message((10, 90), (60, 95), 3000), message((10, 90), (80, 95), 4000), sure) == [50, 20, 50]


def test_an_exchange_waits_for_the_message_of_a_late_partner_and_not_once_more_for_its_receive():
    back = [
        (1, 60, 95, {"op": 2, "tag": 1, "bytes": 4000, **MPI}),
        (0, 10, 90, {"op": 3, "tag": 1, "bytes": 4000, **MPI}),
    ]
    for others, awaited in ([], 0), ([message((110, 190), (160, 195), 2000)], 1):
        found = picked(
            described_of(message((10, 90), (60, 95), 4000), back, *others), "rank", "awaited_rank", "wait_ns"
        )
        assert found[:4] == [(0, awaited, 0), (1, 1, 0), (0, 1, 50), (1, 1, 0)]


def test_operations_of_a_device_are_waited_for_at_once():
    found = described_of(
        [(0, 10, 100, {}), (1, 50, 100, {})],
        [(0, 10, 100, {}), (2, 70, 100, {})],
        [(0, 200, 300, MPI), (1, 250, 300, MPI)],
    )
    assert picked(found, "rank", "wait_ns") == [(0, 40), (1, 0), (0, 60), (2, 0), (0, 50), (1, 0)]


def test_a_sender_is_not_known_to_wait_while_its_call_waits_for_something_else():
    together = {"wait_start": 20}
    other = {"tag": 1, "bytes": 8, **MPI}
    received = [(0, 12, 90, {"op": 3, **other, **together}), (2, 70, 75, {"op": 2, **other})]
    assert late_receivers(message((10, 90), (60, 95), 4000, **together), received) == [0, 50]
    between = [message(*HELD, 3000), message((210, 290), (260, 295), 5000)]
    assert late_receivers(message((10, 90), (60, 95), 4000, **together), received, *between) == [0, 50, 0, 50]
    sure = message((110, 190), (160, 195), 3000)
    found = described_of(message((10, 90), (60, 95), 4000, **together), received, sure)
    mine = [row[1:] for row in picked(found, "rank", "wait_start_ns", "wait_ns") if row[0] == 0]
    assert mine == [(20, 40), (60, 10), (110, 50)]


def test_one_call_waits_for_what_it_completes_one_after_the_other():
    def of_all(start, late, rank):
        return [(0, start, 100, {"wait_start": 30, **MPI}), (rank, late, late + 5, MPI)]

    found = described_of(of_all(10, 70, 1), of_all(11, 50, 2), of_all(12, 20, 3), of_all(13, 90, 4))
    mine = [row for row in picked(found, "rank", "wait_start_ns", "wait_ns", "transfer_ns", "until_ns") if row[0] == 0]
    assert [row[1:3] for row in mine] == [(50, 20), (30, 20), (30, 0), (70, 20)]
    assert [row[4] for row in mine] == [70, 50, 30, 100]
    # after the last is there the call takes 10; the others are taken to need as long, but for one that it did not wait
    # for
    assert [row[3] for row in mine] == [10, 10, 5, 10]


def test_a_sender_of_nccl_waits_for_its_receiver():
    late = [(0, 60, 90, {"op": 2, "tag": 0, **MPI}), (1, 10, 95, {"op": 3, "tag": 0, **MPI})]
    assert picked(described_of(late), "awaited_rank", "wait_ns") == [(0, 0), (0, 50)]
    nccl = [(0, 10, 90, {"op": 2}), (1, 60, 95, {"op": 3})]
    assert picked(described_of(nccl), "awaited_rank", "wait_ns") == [(1, 50), (1, 0)]


def test_no_members_are_no_rows():
    assert described_of().num_rows == 0
    assert [described_of().schema.field(name).type for name in ("bytes", "device")] == [pa.int64(), pa.int32()]
