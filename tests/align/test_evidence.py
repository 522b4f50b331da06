"""The communication operations of one rank, from every kind of evidence."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from tests.making import collective, kernel, make_run

from alltrace.align.evidence import _numbered, collect
from alltrace.api import open_run
from alltrace.synth import write_run
from alltrace.trace.schema import TABLES

SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def call(start, end, name, payload=None, **others):
    text = None if payload is None else json.dumps(payload)
    return {"start": start, "end": end, "name": name, "domain": "NCCL", "kind": "pushpop", "payload": text, **others}


def launch(start, correlation, **others):
    return {
        "start": start,
        "end": start + 5,
        "correlation": correlation,
        "name": "cudaLaunchKernelExC",
        "kind": "runtime",
        **others,
    }


def rows_of(folder, **tables):
    return collect(make_run(folder, {0: tables}).in_session_time().rank(0)).to_pylist()


def picked(rows, *columns):
    return [tuple(r[c] for c in columns) for r in rows]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensor")
    truth = write_run(
        "tensor-data", folder / "reports", ranks=4, hosts=2, tensor_parallel=2, steps=3, drift_ppm=0.0, ideal=True
    )
    return truth, open_run(folder / "reports", cache_dir=folder / "cache")


def test_a_simulated_run_gives_its_truth(simulated):
    truth, run = simulated
    every = truth.collectives().to_pylist()
    sizes = {g["comm_hash"]: (len(g["ranks"]), g["ranks"]) for g in truth.groups}
    for rank in run.ranks:
        table = collect(run.rank(rank.rank))
        table.validate(full=True)
        assert table.column_names == list(TABLES["collectives"].column_names)
        found, planted = table.to_pylist(), [t for t in every if t["rank"] == rank.rank]
        key = ("communicator", "sequence", "op", "bytes")
        expected = {(f"{t['comm_hash']:#x}", t["sequence"], t["op"], t["bytes"]): t for t in planted}
        assert len(found) == len(planted) == len(expected) == 84
        lags = set()
        for row in found:
            true = expected[tuple(row[k] for k in key)]
            assert row["end"] - row["start"] == true["end_ns"] - true["arrival_ns"]
            assert row["api_start"] < row["api_end"] < row["start"]
            lags.add(row["end"] - true["end_ns"])
            size, members = sizes[true["comm_hash"]]
            assert (row["group_size"], row["group_rank"]) == (size, members.index(rank.rank))
            assert (row["datatype"], row["evidence"]) == ("bfloat16", "nvtx+kernel")
        assert len(lags) == 1  # the clock alone


def test_kernels_alone_tell_operation_and_type(tmp_path):
    rows = rows_of(
        tmp_path,
        kernels=[
            collective(10, 20),
            kernel(30, 40, "ncclKernel_ReduceScatter_RING_LL_Sum___nv_bfloat16(ncclDevComm *)", stream=20),
            kernel(50, 60, ALL_GATHER, stream=20),
            kernel(70, 80, SEND_RECV, stream=21),
            kernel(90, 95, "void vllm::cross_device_reduce_1stage<__half, 8>(int)", stream=22),
            kernel(1, 5),
        ],
    )
    assert picked(rows, "stream", "sequence", "op", "datatype", "evidence", "communicator") == [
        (20, 0, "AllReduce", "float32", "kernel", None),
        (20, 1, "ReduceScatter", "bfloat16", "kernel", None),
        (20, 2, "AllGather", None, "kernel", None),
        (21, 0, "SendRecv", None, "kernel", None),
        (22, 0, "AllReduce", None, "kernel", None),
    ]
    assert picked(rows, "api_start", "thread", "bytes") == [(None, None, None)] * 5


def test_a_fused_kernel_belongs_to_every_call_of_its_group(tmp_path):
    told = [{"NCCL communicator ID": 255, "Message size [bytes]": 1 << k} for k in (10, 20)]
    rows = rows_of(
        tmp_path,
        ranges=[
            call(100, 101, "ncclGroupStart"),
            call(102, 103, "ncclAllReduce", told[0]),
            call(104, 105, "ncclAllReduce", told[1]),
            call(106, 120, "ncclGroupEnd"),
            call(130, 150, "ncclAllReduce", told[0]),
        ],
        api=[launch(110, 1), launch(140, 2)],
        kernels=[collective(200, 300, correlation=1), collective(400, 500, correlation=2)],
    )
    assert picked(rows, "start", "end", "api_start", "bytes", "sequence", "communicator") == [
        (200, 300, 102, 1 << 10, 0, "0xff"),
        (200, 300, 104, 1 << 20, 1, "0xff"),
        (400, 500, 130, 1 << 10, 2, "0xff"),
    ]


def test_a_group_with_a_kernel_for_each_communicator(tmp_path):
    rows = rows_of(
        tmp_path,
        ranges=[
            call(100, 101, "ncclGroupStart"),
            *(call(102 + k, 103 + k, "ncclAllReduce", {"commHash": f"{k % 2 + 10:#x}", "bytes": k}) for k in range(4)),
            call(110, 130, "ncclGroupEnd"),
        ],
        api=[launch(112, 1), launch(120, 2)],
        kernels=[collective(200, 300, correlation=1, stream=20), collective(205, 400, correlation=2, stream=21)],
    )
    assert picked(rows, "stream", "end", "communicator", "bytes") == [
        (20, 300, "0xa", 0),
        (20, 300, "0xa", 2),
        (21, 400, "0xb", 1),
        (21, 400, "0xb", 3),
    ]


def test_several_kernels_of_one_call_are_one_operation(tmp_path):
    rows = rows_of(
        tmp_path,
        ranges=[call(100, 150, "ncclAllGather", {"bytes": 64})],
        api=[launch(110, 1), launch(120, 2), launch(130, 3)],
        kernels=[kernel(200 + 50 * k, 240 + 50 * k, ALL_GATHER, correlation=k + 1, stream=20) for k in range(3)],
    )
    assert picked(rows, "start", "end", "op", "bytes", "evidence") == [(200, 340, "AllGather", 64, "nvtx+kernel")]


def test_a_call_on_another_thread_launches_nothing_here(tmp_path):
    rows = rows_of(
        tmp_path,
        ranges=[call(100, 150, "ncclAllReduce", {"bytes": 64}, thread=1)],
        api=[launch(110, 1)],
        kernels=[collective(200, 240, correlation=1)],
        threads=[{"thread": t, "process": 0, "tid": t + 1, "name": "t"} for t in range(2)],
    )
    assert Counter(picked(rows, "evidence", "bytes", "start", "api_start")) == {
        ("kernel", None, 200, 110): 1,
        ("nvtx", 64, None, 100): 1,
    }


@pytest.mark.parametrize("lost", ["ncclGroupStart", "ncclGroupEnd"])
def test_a_group_cut_by_the_capture_does_not_swallow_the_next(tmp_path, lost):
    ranges = [
        call(100, 101, "ncclGroupStart"),
        call(102, 103, "ncclAllReduce", {"bytes": 1}),
        call(104, 110, "ncclGroupEnd"),
        call(200, 201, "ncclGroupStart"),
        call(202, 203, "ncclAllReduce", {"bytes": 2}),
        call(204, 210, "ncclGroupEnd"),
        call(300, 310, "ncclAllReduce", {"bytes": 3}),
    ]
    ranges = [r for r in ranges if not (r["name"] == lost and r["start"] < 200)]
    rows = rows_of(
        tmp_path,
        ranges=ranges,
        api=[launch(105, 1), launch(205, 2), launch(305, 3)],
        kernels=[collective(1000 * k, 1000 * k + 100, correlation=k) for k in (1, 2, 3)],
    )
    joined = [r for r in rows if r["evidence"] == "nvtx+kernel" and r["bytes"] > 1]
    assert picked(joined, "bytes", "start") == [(2, 2000), (3, 3000)]
    assert sum(r["start"] == 1000 for r in rows) == 1


def test_an_exchange_among_all_members_is_one_all_to_all(tmp_path):
    init = call(1, 2, "ncclCommInitRank", {"NCCL communicator ID": 7, "No. of ranks": 3, "Rank": 1})
    calls = [
        call(
            100 + k, 101 + k, f"nccl{way}", {"NCCL communicator ID": 7, "Message size [bytes]": 100, "Peer rank": peer}
        )
        for k, (way, peer) in enumerate((w, p) for p in range(3) for w in ("Send", "Recv"))
    ]
    rows = rows_of(
        tmp_path,
        ranges=[init, call(90, 91, "ncclGroupStart"), *calls, call(110, 130, "ncclGroupEnd")],
        api=[launch(112, 1)],
        kernels=[kernel(200, 300, SEND_RECV, correlation=1, stream=20)],
    )
    assert picked(rows, "op", "bytes", "peer", "group_size", "group_rank", "start", "end") == [
        ("AllToAll", 300, None, 3, 1, 200, 300)
    ]


def test_neighbours_in_a_pipeline_stay_a_send_and_a_receive(tmp_path):
    told = {"NCCL communicator ID": 7, "Message size [bytes]": 100}
    rows = rows_of(
        tmp_path,
        ranges=[
            call(1, 2, "ncclCommInitRank", {"NCCL communicator ID": 7, "No. of ranks": 4, "Rank": 1}),
            call(90, 91, "ncclGroupStart"),
            call(100, 101, "ncclSend", {**told, "Peer rank": 2}),
            call(102, 103, "ncclRecv", {**told, "Peer rank": 0}),
            call(110, 130, "ncclGroupEnd"),
        ],
        api=[launch(112, 1)],
        kernels=[kernel(200, 300, SEND_RECV, correlation=1, stream=20)],
    )
    assert picked(rows, "op", "peer", "sequence", "start") == [("Send", 2, 0, 200), ("Recv", 0, 0, 200)]


@pytest.mark.parametrize("told", [{}, {"NCCL communicator ID": 7, "Peer rank": 2}])
def test_what_a_group_exchanges_with_one_peer_is_one_operation(tmp_path, told):
    ways = ("Send", "Recv", "Send", "Recv")
    calls = [
        call(100 + k, 101 + k, f"nccl{way}", told and {**told, "Message size [bytes]": 100 + k})
        for k, way in enumerate(ways)
    ]
    rows = rows_of(
        tmp_path,
        ranges=[
            call(1, 2, "ncclCommInitRank", {"NCCL communicator ID": 7, "No. of ranks": 4, "Rank": 1}),
            *(r for at in (0, 400) for r in grouped(at, calls)),
        ],
        api=[launch(112, 1), launch(512, 2)],
        kernels=[kernel(200 + at, 300 + at, SEND_RECV, correlation=1 + (at > 0), stream=20) for at in (0, 400)],
    )
    known = (100 + 102, 2, "0x7", 4) if told else (None, None, None, None)
    assert picked(rows, "op", "bytes", "peer", "communicator", "group_size", "sequence", "start", "end") == [
        ("SendRecv", *known, number, 200 + at, 300 + at) for number, at in enumerate((0, 400))
    ]


def grouped(at, calls):
    inside = [{**c, "start": c["start"] + at, "end": c["end"] + at} for c in calls]
    return [call(90 + at, 91 + at, "ncclGroupStart"), *inside, call(110 + at, 130 + at, "ncclGroupEnd")]


def test_tensors_that_are_sent_together_to_one_peer_are_one_send(tmp_path):
    told = {"NCCL communicator ID": 7, "Peer rank": 2}
    calls = [call(100 + k, 101 + k, "ncclSend", {**told, "Message size [bytes]": 100 + k}) for k in range(3)]
    rows = rows_of(
        tmp_path,
        ranges=grouped(0, calls),
        api=[launch(112, 1)],
        kernels=[kernel(200, 300, SEND_RECV, correlation=1, stream=20)],
    )
    assert picked(rows, "op", "bytes", "peer") == [("Send", 303, 2)]


def test_an_exchange_among_two_is_one_operation_whatever_each_keeps_for_itself(tmp_path):
    told = {"NCCL communicator ID": 7, "Message size [bytes]": 100}
    exchanges = [
        call(100 + k, 101 + k, f"nccl{way}", {**told, "Peer rank": peer})
        for k, (way, peer) in enumerate((w, p) for p in range(2) for w in ("Send", "Recv"))
    ]
    for rank in range(2):
        rows = rows_of(
            tmp_path / str(rank),
            ranges=[
                call(1, 2, "ncclCommInitRank", {"NCCL communicator ID": 7, "No. of ranks": 2, "Rank": rank}),
                *grouped(0, exchanges),
            ],
            api=[launch(112, 1)],
            kernels=[kernel(200, 300, SEND_RECV, correlation=1, stream=20)],
        )
        assert picked(rows, "op", "bytes", "peer", "group_rank") == [("SendRecv", 100, 1 - rank, rank)]


@pytest.mark.parametrize(("threads", "ranks"), [((5, 6), (0, 1)), ((5, 5), (None, None))])
def test_a_process_with_several_members_of_a_communicator_knows_each_by_its_thread(tmp_path, threads, ranks):
    told = {"NCCL communicator ID": 7, "No. of ranks": 2}
    joined = [call(1, 2, "ncclCommInitRank", {**told, "Rank": n}, thread=t) for n, t in enumerate(threads)]
    sizes = {"NCCL communicator ID": 7, "Message size [bytes]": 100}
    sent = [
        call(100 + 10 * n, 101 + 10 * n, "ncclSend", {**sizes, "Peer rank": 1 - n}, thread=t)
        for n, t in enumerate(threads)
    ]
    rows = rows_of(tmp_path, ranges=[*joined, *sent])
    assert picked(rows, "group_rank", "group_size", "peer") == [(ranks[0], 2, 1), (ranks[1], 2, 0)]


def test_a_group_with_a_kernel_for_each_of_its_calls_is_not_one_operation(tmp_path):
    told = {"NCCL communicator ID": 7, "Peer rank": 2, "Message size [bytes]": 100}
    rows = rows_of(
        tmp_path,
        ranges=grouped(0, [call(100, 101, "ncclSend", told), call(102, 103, "ncclRecv", told)]),
        api=[launch(112, 1), launch(114, 2)],
        kernels=[kernel(200 + at, 300 + at, SEND_RECV, correlation=1 + (at > 0), stream=20) for at in (0, 400)],
    )
    assert picked(rows, "op", "start", "end") == [("Send", 200, 300), ("Recv", 600, 700)]


def test_the_profilers_own_trace_comes_first(tmp_path):
    told = {"commHash": 4096, "commRank": 1, "count": 256, "dataType": "ncclFloat16", "operationId": 3}
    rows = rows_of(
        tmp_path,
        ranges=[
            call(100, 110, "AllReduce", {**told, "seqNumber": 5}),
            *(call(200 + k, 300 + k, "AllReduce", {**told, "seqNumber": 5, "channelId": k}) for k in range(4)),
            call(400, 500, "AllReduce", {**told, "seqNumber": 6, "channelId": 0}),
        ],
        kernels=[collective(200, 303, correlation=1)],
    )
    columns = ("start", "end", "api_start", "communicator", "sequence", "bytes", "datatype", "group_rank", "evidence")
    assert picked(rows, *columns) == [
        (200, 303, 100, "0x1000", 5, 512, "float16", 1, "trace"),
        (400, 500, None, "0x1000", 6, 512, "float16", 1, "trace"),
    ]


def test_mpi_collectives_are_operations_of_the_host(tmp_path):
    rows = rows_of(
        tmp_path,
        mpi=[
            {"start": 10, "end": 90, "name": "MPI_Barrier", "kind": "collective", "communicator": 5},
            {"start": 100, "end": 190, "name": "MPI_Allreduce", "kind": "collective", "communicator": 5, "bytes": 64},
            {"start": 200, "end": 210, "name": "MPI_Iallreduce", "kind": "collective", "communicator": 5},
            {"start": 300, "end": 390, "name": "MPI_Bcast", "kind": "collective", "communicator": 6, "root": 2},
            {"start": 395, "end": 396, "name": "MPI_Barrier", "kind": "collective", "communicator": 1},
            {"start": 400, "end": 490, "name": "MPI_Send", "kind": "p2p", "communicator": 5},
        ],
        communicators=[
            {"communicator": 5, "uid": 77, "group_rank": 3, "size": 8, "process": 0},
            {"communicator": 1, "parent": 0, "group_rank": 5, "size": 16, "process": 0},
        ],
    )
    columns = (
        "op",
        "start",
        "end",
        "api_start",
        "api_end",
        "communicator",
        "sequence",
        "group_rank",
        "group_size",
        "bytes",
        "root",
    )
    assert picked(rows, *columns) == [
        ("Barrier", None, None, 10, 90, "mpi 0x4d", 0, 3, 8, None, None),
        ("AllReduce", None, None, 100, 190, "mpi 0x4d", 1, 3, 8, 64, None),
        ("AllReduce", None, None, 200, None, "mpi 0x4d", 2, 3, 8, None, None),  # it is not known when it was complete
        ("Broadcast", None, None, 300, 390, None, 0, None, None, None, 2),
        ("Barrier", None, None, 395, 396, "mpi world", 0, 5, 16, None, None),
    ]
    assert {r["evidence"] for r in rows} == {"mpi"}


def test_rows_that_a_reader_brought_are_kept(tmp_path):
    own = {
        "start": 10,
        "end": 20,
        "communicator": "pg 3",
        "op": "AllGather",
        "sequence": 41,
        "bytes": 9,
        "evidence": "log",
    }
    rows = rows_of(tmp_path, collectives=[own], kernels=[collective(10, 20)])
    assert picked(rows, *own) == [tuple(own.values())]


def test_a_payload_that_is_no_json_or_hostile_says_nothing(tmp_path):
    texts = [
        "{",
        "[1]",
        '{"commHash": {"a": 1}, "bytes": "x", "Peer rank": 1e400}',
        "3",
        '{"bytes": 99999999999999999999}',
        "\x00",
    ]
    rows = rows_of(
        tmp_path,
        ranges=[call(100 * k, 100 * k + 50, "ncclBcast") | {"payload": t} for k, t in enumerate(texts)],
        api=[launch(100 * k + 10, k + 1) for k in range(len(texts))],
        kernels=[collective(10_000 + 100 * k, 10_050 + 100 * k, correlation=k + 1) for k in range(len(texts))],
    )
    assert (
        picked(rows, "op", "communicator", "bytes", "peer", "evidence")
        == [("Broadcast", None, None, None, "nvtx+kernel")] * 6
    )


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ncclAllReduce", {"count": 2**62, "datatype": "float64"}),
        ("ncclAllReduce", {"count": 2**62, "datatype": "float64", "seq": 1}),
        ("ncclSend", {"peer": 2**40, "seq": 1}),
        ("ncclBroadcast", {"root": 2**40, "seq": 1}),
        ("ncclAllReduce", {"nranks": 2**40, "comm rank": -(2**40), "seq": 1}),
        ("ncclBroadcast", {"root": 2**40, "nranks": 2**31}),
    ],
)
def test_a_payload_with_numbers_that_fit_no_column_does_not_say_them(tmp_path, name, told):
    rows = rows_of(tmp_path, ranges=[call(0, 10, name, {"comm": "0x1", **told})])
    assert picked(rows, "communicator", "bytes", "peer", "root", "group_rank", "group_size") == [("0x1", *[None] * 5)]


@pytest.mark.parametrize("more", [{}, {"seq": 1}])
def test_half_of_a_character_in_a_payload_is_no_traceback(tmp_path, more):
    rows = rows_of(tmp_path, ranges=[call(0, 10, "ncclAllReduce", {"comm": "group \ud800", **more})])
    assert picked(rows, "op", "communicator") == [("AllReduce", "group ?")]


def test_an_exchange_of_more_bytes_than_a_number_holds_has_no_size(tmp_path):
    told = {"comm": "0x1", "bytes": 2**62, "nranks": 3}
    sides = ((1, "ncclSend"), (10, "ncclRecv"))
    ranges = [call(at + k, at + k + 1, name, {**told, "peer": k}) for at, name in sides for k in range(3)]
    rows = rows_of(
        tmp_path,
        ranges=[call(0, 100, "ncclGroupStart"), *ranges, call(120, 130, "ncclGroupEnd")],
        api=[launch(122, 1)],
        kernels=[kernel(200, 300, SEND_RECV, correlation=1, stream=20)],
    )
    assert picked(rows, "op", "bytes") == [("AllToAll", None)]


def test_a_rank_without_communication_has_an_empty_table(tmp_path):
    table = collect(make_run(tmp_path, {0: {"kernels": [kernel(1, 2)]}}).rank(0))
    assert (table.num_rows, table.column_names) == (0, list(TABLES["collectives"].column_names))


@pytest.mark.corpus
def test_real_grouped_calls_find_their_kernels(corpus, tmp_path):
    run = open_run(corpus / "nsys" / "a100x4_ddp_baseline_nsys2022.4.sqlite", cache_dir=tmp_path)
    run = run.in_session_time()
    table = collect(run.rank(0))
    rows = table.to_pylist()
    assert Counter(picked(rows, "op", "datatype", "evidence", "stream")) == {
        ("AllReduce", "float32", "nvtx+kernel", 20): 472
    }
    kernels = run.rank(0).table("kernels", ["start", "end", "stream"]).to_pylist()
    assert picked(rows, "start", "end") == [(k["start"], k["end"]) for k in kernels if k["stream"] == 20]


@pytest.mark.corpus
def test_real_sends_and_receives_in_an_all_to_all(corpus, tmp_path):
    run = open_run(corpus / "nsys" / "h100x2_nccl_sendrecv_nsys2026.2.sqlite", cache_dir=tmp_path)
    counts = [Counter(picked(collect(run.rank(r)).to_pylist(), "op", "evidence")) for r in range(2)]
    assert counts[0] == {("AllToAll", "nvtx+kernel"): 32, ("SendRecv", "kernel"): 1}
    assert counts[1] == {("AllToAll", "nvtx+kernel"): 32, ("SendRecv", "kernel"): 1, ("AllToAll", "nvtx"): 2}


def test_operations_of_a_stream_or_with_a_peer_are_numbered_whether_unknown_is_null_or_below_zero():
    columns = {
        "communicator": [None, None, None, None, "a", "a", "a"], "stream": [None, -1, 7, 7, 7, 8, None],
        "op": ["AllReduce"] * 4 + ["Send", "Send", "Send"], "peer": [None, 3, None, None, None, -1, 2],
    }  # fmt: skip
    table = pa.table(columns | {"sequence": pa.nulls(7, pa.int64())})
    assert _numbered(table, np.arange(7)).column("sequence").to_pylist() == [0, 1, 0, 1, 0, 1, 0]
