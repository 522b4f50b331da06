"""What one kernel sends and receives, from calls of any recorder."""

from __future__ import annotations

import pyarrow as pa
import pytest

from alltrace.align.evidence import fold_groups
from alltrace.trace.schema import TABLES

NAMES = TABLES["collectives"].name_columns()
SCHEMA = pa.schema(
    [
        pa.field(f.name, pa.dictionary(pa.int32(), pa.string()) if f.name in NAMES else f.type)
        for f in TABLES["collectives"].arrow_schema()
    ]
)


def call(op, peer, size=100, *, start=200, group_size=4, **others):
    known = {"op": op, "peer": peer, "bytes": size, "count": size // 4, "start": start, "stream": 20, "device": 0}
    return {**known, "communicator": "c", "group_rank": 1, "group_size": group_size, "sequence": 9, **others}


def folded(*calls):
    found = fold_groups(pa.Table.from_pylist(calls, SCHEMA))
    assert found.schema.types == SCHEMA.types
    columns = ("op", "peer", "bytes", "count", "sequence", "start")
    return sorted((tuple(row[c] for c in columns) for row in found.to_pylist()), key=lambda r: r[-1])


def test_what_one_peer_gets_and_gives_is_an_exchange():
    assert folded(
        call("Send", 2, 100), call("Recv", 2, 40), call("Send", 2, 60), call("AllReduce", None, start=900)
    ) == [
        ("SendRecv", 2, 160, 40, None, 200),
        ("AllReduce", None, 100, 25, 9, 900),
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"start": 201},
        {"stream": 21},
        {"device": 1},
        {"communicator": "d"},
        {"start": None, "api_start": 5},
        {"peer": 3},
    ],
)
def test_another_kernel_communicator_or_peer_is_another_operation(other):
    calls = call("Send", 2), {**call("Recv", 2), **other}
    assert [r[:4] for r in sorted(fold_rows(*calls))] == [("Recv", other.get("peer", 2), 100, 9), ("Send", 2, 100, 9)]


def fold_rows(*calls):
    found = fold_groups(pa.Table.from_pylist(calls, SCHEMA))
    return [tuple(row[c] for c in ("op", "peer", "bytes", "sequence")) for row in found.to_pylist()]


def test_one_alone_beside_a_group_stays_what_it_is():
    calls = call("Send", 2, 100), call("Recv", 2, 40), call("Send", 3, 8, start=300)
    assert folded(*calls) == [("SendRecv", 2, 100, 25, None, 200), ("Send", 3, 8, 2, 9, 300)]


@pytest.mark.parametrize("op", ["Send", "Recv"])
def test_several_tensors_one_way_stay_what_they_are(op):
    assert folded(call(op, 2, 100), call(op, 2, 60)) == [(op, 2, 160, 40, None, 200)]


def test_what_all_send_to_all_is_an_all_to_all_with_what_each_keeps():
    calls = [call(op, peer, 100 + peer) for peer in range(4) for op in ("Send", "Recv")]
    assert folded(*calls) == [("AllToAll", None, 406, 100, None, 200)]
    assert folded(*(c for c in calls if c["peer"] != 1)) == [("AllToAll", None, 305, 75, None, 200)]
    some = [c for c in calls if c["peer"] in (0, 2)]
    assert len(folded(*some)) == 4


def test_among_two_what_each_keeps_does_not_count():
    calls = [call(op, peer, group_size=2) for peer in range(2) for op in ("Send", "Recv")]
    assert folded(*calls) == [("SendRecv", 0, 100, 25, None, 200)]


def test_calls_without_a_peer_are_of_one():
    assert folded(call("Send", None, group_rank=None), call("Recv", None, group_rank=None)) == [
        ("SendRecv", None, 100, 25, None, 200)
    ]


def nameless(sends, receives):
    calls = [call(op, None, group_rank=None, evidence="nvtx+kernel") for op in ["Send"] * sends + ["Recv"] * receives]
    [row] = fold_groups(pa.Table.from_pylist(calls, SCHEMA)).to_pylist()
    return row["op"], row["evidence"]


@pytest.mark.parametrize(("sends", "receives"), [(2, 2), (4, 4), (3, 2)])
def test_of_several_calls_both_ways_without_a_peer_only_the_kernel_is_known(sends, receives):
    assert nameless(sends, receives) == ("SendRecv", "kernel")


@pytest.mark.parametrize(
    ("sends", "receives", "op"), [(1, 1, "SendRecv"), (3, 0, "Send"), (0, 2, "Recv"), (1, 2, "SendRecv")]
)
def test_other_calls_without_a_peer_are_known_from_their_ranges(sends, receives, op):
    assert nameless(sends, receives) == (op, "nvtx+kernel")


def test_groups_of_which_others_have_peers_keep_what_they_are_known_from():
    of_peer = [call(op, 2, 60, evidence="nvtx+kernel") for op in ("Send", "Recv") for _ in range(2)]
    without = [call(op, None, start=900, evidence="nvtx+kernel") for op in ("Send", "Recv") for _ in range(2)]
    rows = fold_groups(pa.Table.from_pylist([*of_peer, *without], SCHEMA)).to_pylist()
    assert sorted((r["start"], r["evidence"]) for r in rows) == [(200, "nvtx+kernel"), (900, "kernel")]


def test_sizes_that_are_not_told_are_not_zero():
    assert folded(call("Send", 2, bytes=None, count=None), call("Recv", 2)) == [("SendRecv", 2, None, None, None, 200)]
