"""Operations as times and kinds: members, what is alike, and which messages belong together."""

from __future__ import annotations

import resource

import pyarrow as pa
import pytest
from tests.align.tables import timelines_of
from tests.align.test_operations import table_of

from alltrace.align.timelines import ANY_TAG, message_keys
from alltrace.trace.errors import InputError

NAMES = ["AllReduce", "Send", "Recv", "SendRecv", "Broadcast", "world", "half"]
ALL_REDUCE, SEND, RECV, SEND_RECV, BROADCAST, WORLD, HALF = range(7)


def texts(ids):
    return pa.array([None if i is None else NAMES[i] for i in ids.to_pylist()])


def op(start, end, kind=ALL_REDUCE, **others):
    return {
        "start": start,
        "end": end,
        "op": kind,
        "evidence": "kernel",
        "communicator": WORLD,
        "device": 0,
        "stream": 3,
        **others,
    }


def message(start, end, kind, **others):
    times = {"api_start": start, "api_end": end, "op": kind, "evidence": "mpi"}
    return {**times, "communicator": WORLD, "group_size": 3, "tag": 5, **others}


def timelines(ranks, **options):
    return timelines_of({r: table_of(*rows) for r, rows in ranks.items()}, texts, **options)


def test_members_are_devices_of_ranks_with_their_operations_by_end():
    ranks = {
        2: [op(50, 90), op(10, 20), op(5, 40, device=7), op(0, 0, kind=None)],
        5: [op(60, 61)],
    }
    for most in (100, 1):  # all in memory, or one rank at a time
        found = timelines(ranks, most=most)
        assert found.devices == 2
        assert found.extents == {4: (20, 90), 5: (40, 40), 10: (61, 61)}
        assert [found.rank_of(m) for m in found.extents] == [2, 2, 5]
        assert found.rows == {2: 4, 5: 1}
        assert [(its.start.tolist(), its.end.tolist(), its.row.tolist()) for its in map(found.of, (4, 5, 10))] == [
            ([10, 50], [20, 90], [1, 0]), ([5], [40], [2]), ([60], [61], [0]),
        ]  # fmt: skip


def test_a_disk_that_is_full_before_the_last_operation_is_a_sentence():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150, limits[1]))  # those of two ranks take 80 bytes each
    try:
        with pytest.raises(InputError, match=r"the times of operations cannot be written there \(.*; free some space"):
            timelines({0: [op(0, 1), op(2, 3)], 1: [op(0, 1), op(2, 3)], 2: [op(0, 1)]}, most=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_kinds_are_what_is_alike_but_the_time():
    rows = [
        op(0, 1, bytes=8), op(2, 3, bytes=8), op(4, 5, bytes=9), op(6, 7, bytes=8, stream=4),
        op(8, 9, BROADCAST, bytes=8), op(10, 11, bytes=8, communicator=None), op(12, 13, bytes=8, communicator=HALF),
    ]  # fmt: skip
    found = timelines({0: rows})
    kinds, its = found.kinds, found.of(0)
    assert len(kinds) == 6
    assert kinds.count[its.kind].tolist() == [2, 2, 1, 1, 1, 1, 1]
    assert kinds.size[its.kind].tolist() == [8, 8, 9, 8, 8, 8, 8]
    assert kinds.stream[its.kind].tolist() == [3, 3, 3, 4, 3, 3, 3]
    assert kinds.synchronising[its.kind].tolist() == [True, True, True, True, False, True, True]
    assert kinds.directed[its.kind].tolist() == [False, False, False, False, True, False, False]
    names = [[*kinds.names, None][c] for c in kinds.communicator[its.kind]]
    assert names == ["world"] * 5 + [None, "half"]
    assert found.first_inferred == len(kinds.names)


def test_sizes_that_come_after_128_others_count_by_their_remainder():
    found = timelines({0: [op(2 * n, 2 * n + 1, bytes=1_000 + n) for n in range(160)]})
    sizes = found.kinds.size[found.of(0).kind]
    assert sizes[:128].tolist() == list(range(1_000, 1_128))
    assert sizes[128:].tolist() == [-2 - n % 17 for n in range(1_128, 1_160)]


@pytest.mark.parametrize(
    ("size", "recorded", "numbers"),
    [
        (2, (None, None), [0, 1]),  # all are present
        (None, (None, None), [0, 1]),
        (3, (None, None), [-1, -1]),  # one is missing
        (2, (1, 0), [1, 0]),
        (2, (1, None), [1, -1]),
    ],
)
def test_members_are_numbered_in_their_order_where_all_are_present_and_none_has_a_number(size, recorded, numbers):
    found = timelines({r: [op(0, 1, group_size=size, group_rank=n)] for r, n in zip((3, 8), recorded, strict=True)})
    assert found.kinds.group_rank.tolist() == numbers


def keys_of(*rows_of_ranks):
    """For each operation of each rank the number of its messages, as letters in order."""
    found = timelines(dict(enumerate(rows_of_ranks)))
    keys = message_keys(found.kinds)
    letters: dict[int, str] = {-1: "-"}
    return [
        "".join(letters.setdefault(k, chr(ord("a") + len(letters) - 1)) for k in keys[found.of(r).kind].tolist())
        for r in range(len(rows_of_ranks))
    ]


def test_messages_are_of_a_sender_a_receiver_and_a_size():
    first = [
        op(0, 1, SEND, peer=1, bytes=8),
        op(2, 3, SEND, peer=1, bytes=9),
        op(4, 5, RECV, peer=1, bytes=8),
        op(6, 7),
    ]
    second = [
        op(0, 1, RECV, peer=0, bytes=8),
        op(2, 3, SEND, peer=0, bytes=8),
        op(4, 5, SEND, peer=0, bytes=8, communicator=HALF),
    ]
    named = [
        [{**row, "group_rank": rank, "group_size": 2} for row in rows] for rank, rows in enumerate((first, second))
    ]
    assert keys_of(*named) == ["abc-", "acd"]


def test_an_exchange_of_two_is_one_message_whoever_sends_more():
    sizes = [op(0, 1, SEND_RECV, peer=1, bytes=8, group_rank=0)], [op(0, 1, SEND_RECV, peer=0, bytes=99, group_rank=1)]
    assert keys_of(*sizes) == ["a", "a"]
    assert keys_of(*([{**row, "peer": None} for row in rows] for rows in sizes)) == ["-", "-"]


def test_messages_of_mpi_are_of_a_tag_and_not_of_a_size():
    first = [message(0, 1, SEND, peer=1, bytes=8), message(2, 3, SEND, peer=1, bytes=8, tag=6)]
    second = [message(0, 5, RECV, peer=0, bytes=80), message(2, 6, RECV, peer=0, bytes=80, tag=6)]
    named = [[{**row, "group_rank": rank} for row in rows] for rank, rows in enumerate((first, second))]
    assert keys_of(*named) == ["ab", "ab"]


ANY = {"peer": None, "bytes": 80}
TO_2 = {"peer": 2, "bytes": 8}


@pytest.mark.parametrize(
    ("sends", "receives", "expected"),
    [
        ([[TO_2], []], [ANY], [(0, 5)]),
        ([[], [TO_2]], [ANY], [(1, 5)]),
        ([[TO_2], [TO_2 | {"tag": 6}]], [ANY], [(0, 5)]),  # the other has another tag
        ([[TO_2], [TO_2]], [ANY], [(-1, 5)]),  # two could be meant
        ([[TO_2], [TO_2]], [ANY, ANY], [(-1, 5)] * 2),
        ([[TO_2, TO_2], []], [ANY], [(-1, 5)]),  # one is received elsewhere
        ([[TO_2], [TO_2]], [ANY, ANY | {"peer": 1}], [(0, 5), (1, 5)]),  # the other is taken
        ([[TO_2], [TO_2]], [ANY, ANY | {"peer": 0}], [(1, 5), (0, 5)]),
        ([[TO_2 | {"tag": 9}], []], [ANY | {"tag": -1}], [(0, 9)]),  # with any tag
        ([[TO_2 | {"tag": 9}], [TO_2 | {"tag": 8}]], [ANY | {"tag": -1, "peer": 1}], [(1, 8)]),
        ([[TO_2, TO_2 | {"tag": 6}], []], [ANY | {"tag": -1}], [(-1, ANY_TAG)]),
        ([[TO_2 | {"communicator": HALF}], []], [ANY], [(-1, 5)]),
        ([[TO_2], []], [ANY, ANY | {"peer": 1}], [(0, 5), (1, 5)]),  # what the other takes was not recorded
    ],
)
def test_a_receive_from_any_rank_is_named_where_only_one_can_be_meant(sends, receives, expected):
    ranks = {
        r: [{**message(9 * n, 9 * n + 1, SEND, group_rank=r), **row} for n, row in enumerate(rows)] or [op(0, 1)]
        for r, rows in enumerate(sends)
    }
    ranks[2] = [{**message(9 * n, 9 * n + 5, RECV, group_rank=2), **row} for n, row in enumerate(receives)]
    found = timelines(ranks)
    kind = found.of(2).kind
    assert list(zip(found.kinds.peer[kind].tolist(), found.kinds.tag[kind].tolist(), strict=True)) == expected
