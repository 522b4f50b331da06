"""Operations that the profiler traced itself, joined with the kernels and copies that did them."""

from __future__ import annotations

import numpy as np
from tests.align.test_evidence import ALL_GATHER, SEND_RECV, call, launch, picked, rows_of
from tests.making import collective, kernel

from alltrace.align.nccl_calls import NOT_KNOWN
from alltrace.align.nccl_trace import _extents, _members

TOLD = {"commHash": 4096, "commRank": 0, "count": 256, "dataType": "ncclFloat16"}


def traced(start, end, name="AllReduce", **told):
    """The range of one channel of an operation."""
    return call(start, end, name, {**TOLD, "channelId": 0, **told})


def test_an_operation_has_device_stream_and_times_of_its_kernel(tmp_path):
    rows = rows_of(
        tmp_path,
        ranges=[traced(1010 + 1000 * k, 1110 + 1000 * k, seqNumber=k) for k in range(3)],
        api=[launch(500 + 1000 * k, k + 1) for k in range(3)],
        kernels=[
            kernel(1000 + 1000 * k, 1100 + 1000 * k, collective(0, 1)["name"], correlation=k + 1, stream=20)
            for k in range(3)
        ],
    )
    columns = ("start", "end", "device", "stream", "sequence", "api_start", "evidence")
    assert picked(rows, *columns) == [
        (1000 + 1000 * k, 1100 + 1000 * k, 0, 20, k, 500 + 1000 * k, "trace") for k in range(3)
    ]


def test_members_of_several_devices_keep_to_their_own(tmp_path):
    """One process drives two devices, whose kernels overlap; times on the device are off by some ns."""
    name = collective(0, 1)["name"]
    rows = rows_of(
        tmp_path,
        ranges=[
            traced(start + 100 * k + 2, end + 100 * k - 1, seqNumber=k, commRank=member)
            for k in range(3)
            for member, start, end in ((0, 1000, 1060), (1, 1030, 1064))
        ],
        kernels=[
            kernel(start + 100 * k, end + 100 * k, name, stream=20 + device, device=device)
            for k in range(3)
            for device, start, end in ((0, 1000, 1060), (1, 1030, 1064))
        ],
        devices=[{"device": d, "ordinal": d, "uuid": f"GPU-{d}", "name": "H200"} for d in range(2)],
    )
    assert picked(rows, "device", "stream", "group_rank", "sequence", "start") == [
        (device, 20 + device, device, k, start + 100 * k) for device, start in ((0, 1000), (1, 1030)) for k in range(3)
    ]


def test_operations_of_a_group_share_its_kernel(tmp_path):
    rows = rows_of(
        tmp_path,
        ranges=[
            traced(1000, 1050, seqNumber=0),
            traced(1050, 1099, "AllGather", seqNumber=1),
            traced(2000, 2100, seqNumber=2),
        ],
        kernels=[collective(1000, 1100), collective(2000, 2100)],
    )
    assert picked(rows, "op", "start", "end", "stream") == [
        ("AllReduce", 1000, 1100, 20),
        ("AllGather", 1000, 1100, 20),
        ("AllReduce", 2000, 2100, 20),
    ]


def test_short_kernels_are_met_in_order_where_times_are_off_by_more_than_their_length(tmp_path):
    off = [0, -9, 12, -14, 8, 0]
    rows = rows_of(
        tmp_path,
        ranges=[traced(1000 + 20 * k + o, 1015 + 20 * k + o, seqNumber=k) for k, o in enumerate(off)],
        kernels=[collective(1000 + 20 * k, 1015 + 20 * k) for k in range(6)],
    )
    assert picked(rows, "sequence", "start") == [(k, 1000 + 20 * k) for k in range(6)]


def test_of_kernels_that_follow_each_other_the_one_with_most_shared_time_counts(tmp_path):
    rows = rows_of(
        tmp_path,
        ranges=[traced(990, 1085, seqNumber=5), traced(1099, 1180, seqNumber=6)],
        kernels=[collective(900, 1000), collective(1000, 1090), collective(1090, 1190)],
    )
    assert picked(rows, "start", "sequence", "evidence") == [(900, 0, "kernel"), (1000, 5, "trace"), (1090, 6, "trace")]


def test_an_operation_stays_on_the_stream_of_its_communicator(tmp_path):
    """Two communicators work at once; of one operation the times fit the other one's kernel better."""
    first, second = (1000, 2000, 3000), (3050, 4000)
    rows = rows_of(
        tmp_path,
        ranges=[
            *(traced(at, at + 100, seqNumber=k, commHash=1) for k, at in enumerate((1000, 2000, 3040))),
            *(traced(at, at + 100, seqNumber=k, commHash=2) for k, at in enumerate(second)),
        ],
        kernels=[
            *(collective(at, at + 100, stream=20) for at in first),
            *(collective(at, at + 100, stream=21) for at in second),
        ],
    )
    found = [("0x1", 20, at) for at in first] + [("0x2", 21, at) for at in second]
    assert picked(rows, "communicator", "stream", "start") == found


def test_a_kernel_of_another_operation_at_the_same_time_is_not_taken(tmp_path):
    rows = rows_of(
        tmp_path,
        ranges=[traced(1000, 1100, seqNumber=0)],
        kernels=[kernel(1000, 1100, ALL_GATHER, stream=21)],
    )
    assert picked(rows, "op", "start", "stream", "evidence") == [
        ("AllGather", 1000, 21, "kernel"),
        ("AllReduce", 1000, None, "trace"),
    ]


def test_an_operation_by_copies_extends_over_them(tmp_path):
    copies = [
        {"start": s, "end": e, "kind": "PtoP", "bytes": b, "collective": c, "stream": 21}
        for s, e, b, c in (
            (1000, 1002, 4, True),
            (1010, 1090, 4096, True),
            (1095, 1099, 4, True),
            (1200, 1300, 64, None),
        )
    ]
    rows = rows_of(tmp_path, ranges=[traced(1001, 1098, "AllGather", seqNumber=0)], copies=copies)
    assert picked(rows, "op", "start", "end", "stream", "sequence") == [("AllGather", 1000, 1099, 21, 0)]


def test_a_call_that_the_profiler_traced_without_work_has_the_kernel_that_it_launched(tmp_path):
    """The second call returns while the first one's kernel runs."""
    rows = rows_of(
        tmp_path,
        ranges=[
            *(call(100 + 100 * k, 150 + 100 * k, "AllReduce", {**TOLD, "seqNumber": k}) for k in range(3)),
            *(call(99 + 100 * k, 151 + 100 * k, "ncclAllReduce", {"NCCL communicator ID": 4096}) for k in range(3)),
        ],
        api=[launch(110, 1), launch(210, 2)],
        kernels=[collective(160, 400, correlation=1), collective(400, 500, correlation=2)],
    )
    assert picked(rows, "sequence", "start", "end", "api_start") == [
        (0, 160, 400, 100),
        (1, 400, 500, 200),
        (2, None, None, 300),
    ]


def test_what_was_not_traced_stays(tmp_path):
    init = call(1, 2, "ncclCommInitRank", {"NCCL communicator ID": 4096, "No. of ranks": 8, "Rank": 0})
    rows = rows_of(
        tmp_path,
        ranges=[
            init,
            call(100, 110, "ncclAllReduce", {"NCCL communicator ID": 4096, "Message size [bytes]": 512}),
            call(200, 210, "ncclAllReduce", {"NCCL communicator ID": 4096, "Message size [bytes]": 1024}),
            traced(1000, 1100, seqNumber=7),
        ],
        api=[launch(105, 1), launch(205, 2)],
        kernels=[collective(1000, 1100, correlation=1), collective(2000, 2100, correlation=2), collective(3000, 3100)],
    )
    assert picked(rows, "start", "bytes", "group_size", "evidence") == [
        (1000, 512, 8, "trace"),
        (2000, 1024, 8, "nvtx+kernel"),
        (3000, None, None, "kernel"),
    ]


def test_traced_messages_among_all_members_are_one_all_to_all(tmp_path):
    init = call(1, 2, "ncclCommInitRank", {"NCCL communicator ID": 4096, "No. of ranks": 3, "Rank": 0})
    messages = [
        traced(1000, 1100, way, peer=peer, operationId=10 * at + peer)
        for at, way in enumerate(("Send", "Recv"))
        for peer in range(3)
    ]
    rows = rows_of(tmp_path, ranges=[init, *messages], kernels=[kernel(1000, 1100, SEND_RECV, stream=20)])
    assert picked(rows, "op", "bytes", "peer", "start", "stream") == [("AllToAll", 1536, None, 1000, 20)]


def test_a_frameworks_range_says_what_a_kernel_without_calls_exchanges(tmp_path):
    rows = rows_of(
        tmp_path,
        ranges=[
            {"start": 100, "end": 150, "name": "nccl:all_to_all, op_id = 999929", "kind": "pushpop"},
            {"start": 200, "end": 250, "name": "nccl:send 0->1, op_id = 999930", "kind": "pushpop"},
        ],
        api=[launch(110, 1), launch(210, 2), launch(310, 3)],
        kernels=[kernel(1000 * k, 1000 * k + 100, SEND_RECV, correlation=k, stream=20) for k in (1, 2, 3)],
    )
    assert picked(rows, "op", "start", "evidence") == [
        ("AllToAll", 1000, "kernel"),
        ("SendRecv", 2000, "kernel"),
        ("SendRecv", 3000, "kernel"),
    ]


def test_the_member_of_a_row_that_does_not_say_it_is_the_only_one_of_its_process():
    process, communicator, said = (
        np.array([1, 1, 1, 2, 2, 2, 3]),
        np.zeros(7, np.int64),
        np.array([4, -1, 4, 0, 1, -1, -1]),
    )
    assert _members(process, communicator, said).tolist() == [4, 4, 4, 0, 1, -1, -1]


def test_operations_last_from_their_first_row_to_their_last():
    low, high = _extents(np.array([0, 2, 0]), np.array([5, 7, 3]), np.array([9, 8, 11]), 3)
    assert (low.tolist(), high.tolist()) == ([3, NOT_KNOWN, 7], [11, NOT_KNOWN, 8])
