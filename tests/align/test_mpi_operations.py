"""MPI's operations of a rank, from the call that begins one to the call that completes it; and how those of ranks are
matched."""

from __future__ import annotations

import pytest
from tests.making import make_run

from alltrace.align.evidence import collect
from alltrace.align.store import aligned

WORLD = {"communicator": 1, "parent": 0, "size": 2, "process": 0}
KINDS = dict.fromkeys(("Wait", "Waitall", "Waitany", "Test", "Testall", "Testsome", "Start", "Startall"), "start-wait")


def mpi(start, end, name, *, request=None, **others):
    """A row of `mpi` as Nsight Systems writes it."""
    plain = name.lower().removeprefix("i").removesuffix("_init")
    message = plain in ("send", "ssend", "bsend", "rsend", "recv", "mrecv", "sendrecv")
    kind = KINDS.get(name) or ("p2p" if message else "collective")
    own = {} if kind == "start-wait" else {"communicator": 1}
    own |= {"tag": 7, "peer": 1, "bytes": 80} if message else {}
    return {
        "start": start,
        "end": end,
        "name": f"MPI_{name}",
        "kind": kind,
        "thread": 0,
        "request": request,
        **own,
        **others,
    }


def operations(folder, *calls):
    """(op, from, to, where it is waited for, peer) of each operation, by its start."""
    run = make_run(folder, {0: {"mpi": list(calls), "communicators": [{**WORLD, "group_rank": 0}]}})
    rows = collect(run.in_session_time().rank(0)).to_pylist()
    columns = ("op", "api_start", "api_end", "wait_start", "peer")
    return sorted((tuple(r[c] for c in columns) for r in rows), key=lambda o: (o[1], o[0] == "Recv", o[4] or 0))


CASES = {
    "an operation ends where its request is waited for": (
        [mpi(10, 12, "Iallreduce", request=5), mpi(20, 90, "Wait", request=5)],
        [("AllReduce", 10, 90, 20, None)],
    ),
    "one call completes several, and numbers are used again": (
        [
            mpi(10, 12, "Irecv", request=5), mpi(13, 14, "Isend", request=6), mpi(20, 90, "Waitall", request=5),
            mpi(20, 90, "Waitall", request=6), mpi(100, 101, "Ibarrier", request=5), mpi(110, 120, "Test", request=5),
        ],
        [("Recv", 10, 90, 20, 1), ("Send", 13, 90, 20, 1), ("Barrier", 100, 120, 110, None)],
    ),
    "a persistent request is an operation at each start": (
        [
            mpi(1, 2, "Recv_init", request=5, peer=0), mpi(10, 11, "Start", request=5), mpi(20, 30, "Wait", request=5),
            mpi(40, 41, "Startall", request=5), mpi(50, 60, "Waitall", request=5),
        ],
        [("Recv", 10, 30, 20, 0), ("Recv", 40, 60, 50, 0)],
    ),
    "the same number set up again has new arguments": (
        [
            mpi(1, 2, "Recv_init", request=5, peer=0), mpi(10, 11, "Start", request=5), mpi(20, 30, "Wait", request=5),
            mpi(40, 41, "Ssend_init", request=5, peer=1), mpi(50, 51, "Start", request=5),
            mpi(60, 70, "Wait", request=5),
        ],
        [("Recv", 10, 30, 20, 0), ("Send", 50, 70, 60, 1)],
    ),
    "what is never completed has no end, but a message that was sent": (
        [mpi(10, 12, "Isend", request=5), mpi(20, 21, "Isend", request=5), mpi(30, 31, "Irecv", request=6),
            mpi(40, 41, "Ibcast")],
        [("Send", 10, 12, None, 1), ("Send", 20, 21, None, 1), ("Recv", 30, None, None, 1),
            ("Broadcast", 40, None, None, None)],
    ),
    "a start of what was set up unrecorded is an operation of which the start alone is known": (
        [mpi(10, 11, "Start", request=5), mpi(20, 30, "Wait", request=5), mpi(40, 45, "Barrier")],
        [("Start", 10, None, None, None), ("Barrier", 40, 45, None, None)],
    ),
    "an exchange with one peer is recorded once": (
        [mpi(10, 50, "Sendrecv")],
        [("Send", 10, 50, None, 1), ("Recv", 10, 50, None, 1)],
    ),
    "an exchange with two peers is recorded twice, its send without a length": (
        [mpi(10, 50, "Sendrecv", peer=3), mpi(10, 10, "Sendrecv", peer=2)],
        [("Send", 10, 50, None, 2), ("Recv", 10, 50, None, 3)],
    ),
    "half of an exchange has no peer at the edge of a grid": (
        [mpi(10, 10, "Sendrecv", peer=2), mpi(10, 50, "Sendrecv", peer=None, tag=None, bytes=0)],
        [("Send", 10, 50, None, 2)],
    ),
    "a receive from any rank has no peer": ([mpi(10, 50, "Recv", peer=-2)], [("Recv", 10, 50, None, None)]),
    "calls without arguments are no operations": ([mpi(10, 50, "Send", kind="other", tag=None)], []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_operation_runs_from_its_call_to_the_one_that_completes_it(case, tmp_path):
    calls, expected = CASES[case]
    assert operations(tmp_path, *calls) == expected


def matched(folder, *ranks):
    """For each member of all instances (instance, rank, start, wait, transfer), with times in us; and the notes."""
    size = len(ranks)
    tables = {
        n: {
            "mpi": [c | {"start": 1000 * c["start"], "end": 1000 * c["end"]} for c in calls],
            "communicators": [{**WORLD, "group_rank": n, "size": size}],
        }
        for n, calls in enumerate(ranks)
    }
    found = aligned(make_run(folder, tables))
    rows = found.members.select(["instance", "rank", "start", "wait_ns", "transfer_ns"]).to_pylist()
    first = min(c["start"] for calls in ranks for c in calls)
    us = [
        (r["instance"], r["rank"], r["start"] // 1000 + first, r["wait_ns"] // 1000, r["transfer_ns"] // 1000)
        for r in rows
    ]
    return us, found.notes


def test_what_is_known_of_sends_and_of_calls_that_test(tmp_path):
    calls = [
        *(mpi(start, start + 5, name) for start, name in ((10, "Send"), (20, "Ssend"), (30, "Bsend"), (40, "Rsend"))),
        mpi(50, 51, "Issend", request=5), mpi(55, 60, "Wait", request=5),
        mpi(60, 61, "Isend", request=5), mpi(65, 70, "Testsome", request=5),
        mpi(1, 2, "Ssend_init", request=6), mpi(70, 71, "Start", request=6), mpi(75, 80, "Waitany", request=6),
        mpi(80, 81, "Ibarrier", request=7), mpi(85, 86, "Testall", request=7), mpi(90, 91, "Isend", request=8),
    ]  # fmt: skip
    run = make_run(tmp_path, {0: {"mpi": calls, "communicators": [{**WORLD, "group_rank": 0}]}})
    rows = sorted(collect(run.in_session_time().rank(0)).to_pylist(), key=lambda r: r["api_start"])
    assert [(r["op"], r["synchronous"], r["tested"]) for r in rows] == [
        ("Send", None, None), ("Send", True, None), ("Send", False, None), ("Send", False, None),
        ("Send", True, None), ("Send", None, True), ("Send", True, None), ("Barrier", None, True),
        ("Send", False, None),
    ]  # fmt: skip


def test_waits_of_calls_that_test_are_not_known_and_what_is_started_unrecorded_is_not_matched(tmp_path):
    calls = [mpi(10, 12, "Ibarrier", request=5), mpi(20, 21, "Test", request=5), mpi(30, 31, "Start", request=8)]
    rows, notes = matched(tmp_path, calls, [*calls[:1], mpi(40, 50, "Wait", request=5)])
    assert len(rows) == 2
    assert notes[:2] == (
        "1 communication call has no kernel, end, communicator or set-up in the reports, so it is not matched",
        (
            "1 MPI operation was completed by calls that test, such as MPI_Test; profilers record only the last of"
            " these, so how long ranks waited there is not known"
        ),
    )


def test_a_rank_waits_from_its_wait_on_and_transfers_end_where_one_waited(tmp_path):
    late = [mpi(300, 301, "Iallreduce", request=5), mpi(900, 901, "Wait", request=5)]
    rows, _ = matched(tmp_path, [mpi(100, 101, "Iallreduce", request=4), mpi(200, 350, "Wait", request=4)], late)
    assert rows == [(0, 0, 100, 100, 50), (0, 1, 300, 0, 50)]


@pytest.mark.parametrize(("name", "wait"), [("Send", 250), ("Ssend", 250), ("Bsend", 0)])
def test_a_sender_that_stays_until_the_receive_begins_waits_for_it_unless_it_need_not(name, wait, tmp_path):
    rows, _ = matched(tmp_path, [mpi(100, 400, name)], [mpi(350, 420, "Recv", peer=0)])
    assert rows == [(0, 0, 100, wait, 70), (0, 1, 350, 0, 70)]


def test_messages_of_a_tag_keep_their_order_and_others_may_overtake_them(tmp_path):
    sends = [mpi(100, 101, "Send", tag=1), mpi(110, 111, "Send", tag=2), mpi(120, 121, "Send", tag=1)]
    receives = [
        mpi(200, 210, "Recv", peer=0, tag=2),
        mpi(220, 230, "Recv", peer=0, tag=1),
        mpi(300, 310, "Recv", peer=0, tag=1),
    ]
    rows, _ = matched(tmp_path, sends, receives)
    pairs = {frozenset(r[2] for r in rows if r[0] == number) for number in {r[0] for r in rows}}
    assert pairs == {frozenset((110, 200)), frozenset((100, 220)), frozenset((120, 300))}


def test_a_receive_may_have_room_for_more_than_is_sent(tmp_path):
    rows, _ = matched(tmp_path, [mpi(100, 101, "Send", bytes=80)], [mpi(50, 110, "Recv", peer=0, bytes=8_000)])
    assert [r[:4] for r in rows] == [(0, 0, 100, 0), (0, 1, 50, 50)]


@pytest.mark.parametrize(
    ("first", "second", "instances"),
    [
        ([mpi(100, 101, "Send", peer=2)], [mpi(50, 51, "Barrier")], 1),  # only one sends with the tag
        ([mpi(100, 101, "Send", peer=2)], [mpi(110, 111, "Send", peer=2)], 0),  # two do
        ([mpi(100, 101, "Send", peer=2)], [mpi(110, 111, "Send", peer=2, tag=8)], 1),
        (
            [mpi(100, 101, "Send", peer=2), mpi(105, 106, "Send", peer=2)],
            [mpi(50, 51, "Barrier")],
            0,
        ),  # more than are received
    ],
)
def test_a_receive_from_any_rank_is_of_the_only_one_that_sends_with_its_tag(first, second, instances, tmp_path):
    rows, _ = matched(
        tmp_path, first, second, [mpi(60, 61, "Irecv", peer=-1, request=3), mpi(90, 120, "Wait", request=3)]
    )
    assert len({r[0] for r in rows}) == instances


def test_a_message_without_communicator_is_matched_with_none(tmp_path):
    calls = [[mpi(100, 101, "Send", communicator=9)], [mpi(100, 110, "Recv", peer=0, communicator=9)]]
    rows, notes = matched(tmp_path, *calls)
    assert rows == []
    assert (
        "2 communication calls have no kernel, end, communicator or set-up in the reports, so they are not matched"
        in notes
    )
