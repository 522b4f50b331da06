"""The views of NCCL's logs: exact numbers, and each fault of the usual grep-and-awk pipeline shown to be avoided."""

from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace

import pytest
from tests.nccl_writing import SIZES, write_log

from alltrace.charts.prepare import draw
from alltrace.recipes.logs.nccl import NcclOptions
from alltrace.recipes.logs.nccl_sizes import HISTOGRAM, parse_edges
from alltrace.run.nccl_logs import log_folder, read_nccl_logs
from alltrace.run.run_logs import ranks_of_members
from alltrace.trace.errors import UsageError
from alltrace.trace.spans import Span, parse_steps

HOST = "node-0"


def init(rank, nranks=2, comm=0x100, pid=None, ident="0xabc", host=HOST):
    pid = 10 + rank if pid is None else pid
    return (
        f"{host}:{pid}:{pid} [{rank}] NCCL INFO ncclCommInitRank comm {comm + rank:#x} rank {rank} nranks {nranks} "
        f"cudaDev {rank} nvmlDev {rank} busId 1000 commId {ident} - Init COMPLETE\n"
    )


def coll(rank, op="AllReduce", count=1024, datatype=7, k=0, comm=0x100, nranks=2, root=0, host=HOST, redop=0):
    return (
        f"{host}:{10 + rank}:{10 + rank} [{rank}] NCCL INFO {op}: opCount {k:x} sendbuff 0x1 recvbuff 0x2 count {count}"
        f" datatype {datatype} op {redop} root {root} comm {comm + rank:#x} [nranks={nranks}] stream 0x5\n"
    )


def step(k):
    return (
        f" 0: Training epoch 0, iteration {k}/99 | lr: 1.469e-05 | global_step: {k} | train_step_timing in s: 12.22\n"
    )


@pytest.mark.parametrize("each", [True, False])
def test_ops_are_exact(ask, each):
    written = write_log(calls=60, seed=5)
    rows, _answer = ask("ops", written.text, each=each)
    total = Counter()
    for call in written.calls:
        total[call.op] += call.bytes
    assert {r["op"]: int(r["total_bytes"]) for r in rows} == dict(total)
    for row in rows:
        sizes = [c.bytes for c in written.calls if c.op == row["op"]]
        assert (row["calls"], row["min_bytes"], row["max_bytes"]) == (len(sizes), min(sizes), max(sizes))
        assert row["mean_bytes"] == sum(sizes) / len(sizes)


def test_totals_beyond_64_bits_are_exact(ask):
    # awk prints 1.07374e+09 for 2^30; here nothing is rounded, even beyond int64
    text = "".join(coll(0, count=(1 << 59) + 1, k=k) for k in range(9))
    rows, _answer = ask("ops", text)
    assert int(rows[0]["total_bytes"]) == 9 * 4 * ((1 << 59) + 1)


def test_the_operation_is_not_the_prefix(ask):
    # the first word that ends in a colon is `3:` with srun -l
    rows, _answer = ask("ops", "3: " + coll(0))
    assert [r["op"] for r in rows] == ["AllReduce"]


def test_two_records_on_a_line_are_two(ask):
    first, second = coll(0, count=10).rstrip("\n"), coll(1, count=20)
    rows, _answer = ask("sizes", init(0) + init(1) + first + second)
    assert sorted((r["count"], r["calls"]) for r in rows) == [(10, 1), (20, 1)]


def test_count_zero_and_unknown_datatypes_are_counted(ask):
    rows, _answer = ask("ops", coll(0, count=0) + coll(0, datatype=99, k=1) + coll(0, datatype=11, count=3, k=2))
    assert (rows[0]["calls"], rows[0]["unknown_calls"], rows[0]["total_bytes"]) == (3, 1, 3)


def test_op_count_is_hexadecimal(ask):
    rows, _answer = ask("calls", coll(0, k=0x1606))
    assert rows[0]["op_count"] == 0x1606


def test_payload_of_a_share_is_times_the_ranks(ask):
    rows, _answer = ask("sizes", coll(0, op="AllGather", count=8, nranks=2))
    assert (rows[0]["bytes"], rows[0]["payload_bytes"]) == (32, 64)


def test_datatype_sizes(ask):
    for code, size in enumerate(SIZES):
        rows, _answer = ask("sizes", coll(0, count=3, datatype=code))
        assert rows[0]["bytes"] == 3 * size


def test_steps_have_the_calls_before_their_line(ask):
    # calls with count k lie before the line of step k
    text = "".join("".join(coll(0, count=k, k=4 * k + n) for n in range(2)) + step(k) for k in range(40, 56))
    rows, _answer = ask("sizes", text, steps=parse_steps("45:50"))
    assert sorted((r["count"], r["calls"]) for r in rows) == [(k, 2) for k in range(45, 50)]
    calls, _answer = ask("calls", text + coll(0, count=7))
    assert [(c["count"], c["step"]) for c in calls] == [(k, k) for k in range(40, 56) for _ in range(2)] + [(7, None)]


def test_steps_printed_by_every_rank(ask):
    text = ""
    for k in range(5):
        text += "".join(f"{rank}: " + coll(rank, count=k + 1, k=k) for rank in (0, 1))
        # rank 1 is late: its call of the next step comes before rank 0's line
        text += "".join(f"{rank}: iteration {k}/ 99 | elapsed time per iteration (ms): 5.0 |\n" for rank in (1, 0))
    rows, _answer = ask("sizes", text, steps=Span(2, 4))
    assert sorted((r["count"], r["calls"]) for r in rows) == [(3, 2), (4, 2)]


def job_by_rank(draw, steps, printing=0):
    """A log for each of four ranks, of which one has steps' lines, and the step of each call by its count, which is
    told once.

    Ranks 2 and 3 have a communicator of their own, and each rank sends as often as it likes; a step's last call is
    everybody's.
    """
    texts = ["".join(init(r, 4) for r in [rank]) for rank in range(4)]
    for rank in (2, 3):
        texts[rank] += init(rank, comm=0x900, ident="0xdef")
    truth = [{} for _ in range(4)]
    numbers = [0] * 4

    def call(rank, at, **about):
        numbers[rank] += 1
        truth[rank][numbers[rank]] = at
        texts[rank] += coll(rank, count=numbers[rank], **about)

    for at in range(1, steps + 1):
        for _ in range(draw.randrange(1, 4)):
            for rank in range(4):
                for _ in range(draw.randrange(3)):
                    call(rank, at, op="Send", nranks=4)
                if rank > 1:
                    call(rank, at, comm=0x900)
                call(rank, at, nranks=4)
        texts[printing] += step(at)
    for rank in range(4):  # of no step that ended
        call(rank, None, nranks=4)
    return texts, truth


@pytest.mark.parametrize("seed", range(4))
def test_logs_without_lines_of_steps_are_held_against_those_with_them(ask, seed):
    draw = Random(seed)
    printing = draw.randrange(4)
    texts, truth = job_by_rank(draw, 6, printing)
    calls, answer = ask("calls", *texts)
    found = [{} for _ in range(4)]
    for call in calls:
        found[call["global_rank"]][call["count"]] = call["step"]
    assert found == truth
    note = (
        "3 logs of 4 with calls have no step's line: their steps are by the order of the calls that they share with"
        " logs that have"
    )
    assert answer.notes.count(note) == 1
    rows, answer = ask("ops", *texts, steps=Span(2, 4))
    assert sum(r["calls"] for r in rows) == sum(at in (2, 3) for its in truth for at in its.values())
    assert note in answer.notes


def test_logs_that_share_nothing_with_lines_of_steps_are_noted(ask):
    texts, truth = job_by_rank(Random(1), 4)
    texts[1] = texts[1].partition("\n")[2]  # its INIT is not in the log
    other = init(0, 1, comm=0x700, ident="0x77", host="other") + coll(0, comm=0x700, nranks=1, host="other")
    rows, answer = ask("ops", *texts, other, steps=Span(1, 3))
    assert sum(r["calls"] for r in rows) == sum(at in (1, 2) for n in (0, 2, 3) for at in truth[n].values())
    assert (
        "2 of 5 logs with calls have no step's line and share no communicator from its INIT on with logs that have, "
        "so none of their calls is counted with --steps" in answer.notes
    )


def unnamed(rank):
    """INIT as before NCCL 2.18, without a commId."""
    return init(rank, 3).replace(" commId 0xabc", "")


def lines_of(rank, printing, *counts):
    """A rank's calls, so many before the line of each step."""
    return "".join(coll(rank, nranks=3) * n + step(k) * printing for k, n in enumerate(counts))


@pytest.mark.parametrize(
    ("texts", "counted"),
    [
        # the log of rank 2 begins within a step, so its first call is not the communicator's
        ([unnamed(0) + lines_of(0, 1, 2, 2), unnamed(1) + lines_of(1, 0, 2, 2), lines_of(2, 0, 1, 2)], 2),
        # so does the only one with lines of steps
        ([lines_of(0, 1, 1, 2), unnamed(1) + lines_of(1, 0, 2, 2), unnamed(2) + lines_of(2, 0, 2, 2)], 1),
        # ranks with lines do not agree
        ([unnamed(0) + lines_of(0, 1, 2, 2), unnamed(1) + lines_of(1, 1, 3, 1), unnamed(2) + lines_of(2, 0, 2, 2)], 2),
    ],
)
def test_what_cannot_be_counted_from_the_start_is_not_counted(ask, texts, counted):
    _rows, answer = ask("ops", *texts, steps=Span(1, 2))
    assert any("1 of 3 logs" in n or "2 of 3 logs" in n for n in answer.notes if "none of their calls" in n)
    calls, _answer = ask("calls", *texts)
    assert len({c["pid"] for c in calls if c["step"] is not None}) == counted


def test_steps_that_go_back_are_those_of_no_other_log(ask):
    texts = [
        init(rank) + "".join(coll(rank, k=k) + (step(at) if not rank else "") for k, at in enumerate((1, 2, 1, 2)))
        for rank in (0, 1)
    ]
    rows, answer = ask("ops", *texts, steps=Span(1, 3))
    assert sum(r["calls"] for r in rows) == 4
    assert any("so none of their calls" in n for n in answer.notes)


def test_steps_without_lines_are_refused(ask):
    with pytest.raises(UsageError, match="step's lines"):
        ask("ops", coll(0), steps=Span(1, 3))
    with pytest.raises(UsageError, match="--steps is 1:3; the logs have steps 3 to 3"):
        ask("ops", coll(0) + step(3), steps=Span(1, 3))


@pytest.mark.parametrize("view", ["mismatches", "topology", "tuning"])
@pytest.mark.parametrize("chosen", [{"steps": Span(1, 3)}, {"ranks": frozenset({1})}])
def test_a_view_of_everything_refuses_a_choice(ask, view, chosen):
    with pytest.raises(UsageError, match=f"--{next(iter(chosen))} is not for the view {view}"):
        ask(view, init(0) + init(1) + coll(0) + coll(1), **chosen)


@pytest.mark.parametrize("view", ["calls", "ops", "histogram", "sizes", "communicators"])
def test_ranks_that_are_not_there_are_refused(ask, view):
    with pytest.raises(UsageError, match="none of these ranks is in the logs, which have ranks 0-1"):
        ask(view, init(0) + init(1) + coll(0) + coll(1), ranks=frozenset({7, 9}))
    assert ask(view, init(0) + init(1) + coll(0) + coll(1), ranks=frozenset({1, 9}))[0]


def test_histogram_presets_and_edges(ask):
    text = "".join(
        coll(0, op="Broadcast", count=n, datatype=0, k=n % 7)
        for n in (1, 65535, 65536, 1 << 20, (16 << 20) - 1, 16 << 20)
    )
    rows, _answer = ask("histogram", text, preset="four")
    every = [(r["from_bytes"], r["to_bytes"], r["calls"]) for r in rows if r["process"] is None]
    assert every == [(0, 65536, 2), (65536, 1 << 20, 1), (1 << 20, 16 << 20, 2), (16 << 20, None, 1)]
    rows, _answer = ask("histogram", init(0) + init(1) + coll(0) + coll(1) * 2, edges=parse_edges("4K,1M"))
    assert [(r["rank"], r["calls"]) for r in rows] == [(None, 3), (0, 1), (1, 2)]
    assert {(r["from_bytes"], r["to_bytes"]) for r in rows} == {(4096, 1 << 20)}
    with pytest.raises(UsageError, match="--edges"):
        parse_edges("1M,64K")


def test_rank_is_that_of_the_process_and_communicator(ask):
    # the same pointer on two processes, and a pointer that is used again for another communicator
    text = init(0, comm=0x100) + init(1, comm=0xFF)
    text += coll(0, comm=0x100) + coll(1, comm=0xFF)
    text += f"{HOST}:10:10 [0] NCCL INFO comm 0x100 rank 0 nranks 2 cudaDev 0 busId 1000 - Destroy COMPLETE\n"
    text += (
        f"{HOST}:10:10 [0] NCCL INFO ncclCommSplit comm 0x100 rank 3 nranks 4 cudaDev 0 nvmlDev 0 busId 1000 "
        "parent 0x9 splitCount 1 color 0 key 3 - Init COMPLETE\n" + coll(0, comm=0x100, nranks=4, k=1)
    )
    rows, _answer = ask("calls", text)
    assert [(r["rank"], r["pid"], r["group_size"]) for r in rows] == [(0, 10, 2), (1, 11, 2), (3, 10, 4)]
    assert [(r["device"], r["stream"], r["state"]) for r in rows] == [
        (0, "0x5", "whole"),
        (1, "0x5", "whole"),
        (0, "0x5", "whole"),
    ]
    assert rows[0]["communicator"] == rows[1]["communicator"] == "0xabc" != rows[2]["communicator"]


def test_a_log_for_each_process_makes_one_job(ask):
    rows, _answer = ask("communicators", init(0) + coll(0), init(1, host="node-1") + coll(1, host="node-1"))
    assert [(r["group_size"], r["seen"], r["ranks"], r["hosts"], r["role"]) for r in rows] == [
        (2, 2, ["0", "1"], ["node-0", "node-1"], "world")
    ]
    assert [(r["identified"], r["nodes"], r["role_reason"], r["made_by"]) for r in rows] == [
        ("commId", 2, "it has all processes of the log", "ncclCommInitRank")
    ]


def test_a_log_of_one_rank_only(ask):
    rows, answer = ask("mismatches", init(0, nranks=8) + coll(0, nranks=8))
    assert rows == []
    assert "1 have one rank in the logs" in answer.notes[-1]


def test_local_times_across_the_end_of_summer_time(ask):
    text = (
        "[2026-10-25 02:59:59] "
        + coll(0)
        + "[2026-10-25 02:00:01] "
        + coll(0, k=1)
        + "[2026-10-25 02:00:02] "
        + coll(0, k=2)
    )
    rows, answer = ask("calls", text)
    times = [r["time_ns"] for r in rows]
    assert (times[1] - times[0], times[2] - times[1]) == (2_000_000_000, 1_000_000_000)
    assert "summer time" in answer.notes[-1]


@pytest.mark.parametrize(
    ("stamp", "form"),
    [
        ("[2026-05-05 06:16:47] ", None),
        ("2026-05-05T06:16:47.000Z stdout F ", None),
        ("2026-05-05T08:16:47+02:00 ", None),
        ("[1777961807.000] ", None),
        ("05/May/2026 06:16:47 ", "%d/%b/%Y %T"),
    ],
)
def test_times_of_any_format(ask, stamp, form):
    rows, _answer = ask("calls", stamp + coll(0) + stamp + coll(0, k=1), time_format=form)
    assert [r["time_ns"] for r in rows] == [1_777_961_807_000_000_000] * 2


def test_ranks_that_agree_have_no_mismatch(ask):
    text = init(0) + init(1) + "".join(coll(r, k=k, count=k + 1) for k in range(50) for r in ((0, 1), (1, 0))[k % 2])
    rows, answer = ask("mismatches", text)
    assert rows == []
    assert answer.notes[-1] == "1 communicators were compared"


@pytest.mark.parametrize(
    ("odd", "kind", "found"),
    [
        ({"op": "AllGather"}, "operation", "AllGather count 5 float32"),
        ({"count": 6}, "count", "AllReduce count 6 float32 sum"),
        ({"datatype": 9}, "datatype", "AllReduce count 5 bfloat16 sum"),
        ({"redop": 2}, "reduction", "AllReduce count 5 float32 max"),
    ],
)
def test_a_disagreement_is_found(ask, odd, kind, found):
    text = "".join(init(r, nranks=3) for r in range(3))
    for k in range(10):
        text += "".join(coll(r, nranks=3, k=k, **({"count": 5} | (odd if (k, r) == (7, 2) else {}))) for r in range(3))
    rows, _answer = ask("mismatches", text)
    assert [(r["sequence"], r["kind"], r["found"], r["ranks"], r["agreeing"]) for r in rows] == [
        (7, kind, found, ["2"], 2)
    ]
    assert text.splitlines()[rows[0]["line"] - 1].startswith(f"{HOST}:12:12 [2]")


def test_a_reduction_of_the_program_has_another_number_on_each_rank(ask):
    numbers = (193046123, 77445599)  # as `ncclUserRedOpMangle` makes them from addresses
    text = (
        init(0)
        + init(1)
        + "".join(coll(r, op="ReduceScatter", k=k, redop=numbers[r]) for k in range(3) for r in (0, 1))
    )
    rows, _answer = ask("mismatches", text)
    assert rows == []
    rows, _answer = ask("mismatches", text + coll(0, k=3, redop=numbers[0]) + coll(1, k=3))
    assert [(r["sequence"], r["kind"], r["expected"][-5:], r["found"][-4:]) for r in rows] == [
        (3, "reduction", " user", " sum")
    ]
    calls, _answer = ask("calls", text)
    assert {c["redop"] for c in calls} == {"user"}


def test_order_and_missing_calls(ask):
    first, second = {"op": "AllReduce", "count": 5}, {"op": "AllGather", "count": 7}
    head = init(0) + init(1)
    rows, _answer = ask(
        "mismatches", head + coll(0, **first) + coll(0, k=1, **second) + coll(1, **second) + coll(1, k=1, **first)
    )
    assert [(r["kind"], r["sequence"]) for r in rows] == [("order", 0)]
    rows, _answer = ask("mismatches", head + coll(0, **first) + coll(0, k=1, **second) + coll(1, **first))
    assert [(r["kind"], r["sequence"], r["ranks"], r["expected"]) for r in rows] == [
        ("missing", 1, ["1"], "AllGather count 7 float32")
    ]


def test_opcounts_that_do_not_count(ask):
    """All calls have one opCount: from INIT on, calls are compared by their order; a log without its INIT cannot be
    placed."""
    calls = {r: [coll(r, count=c) for c in range(1, 20)] for r in (0, 1)}
    agreed = [line for pair in zip(calls[0], calls[1], strict=True) for line in pair]
    rows, _answer = ask("mismatches", init(0) + init(1) + "".join(agreed))
    assert rows == []
    odd = "".join([*agreed[:9], coll(1, count=99), *agreed[10:]])
    rows, _answer = ask("mismatches", init(0) + init(1) + odd)
    assert [(r["sequence"], r["kind"], r["op_count"]) for r in rows] == [(4, "count", 0)]
    rows, answer = ask("mismatches", "".join(calls[0]) + "".join(calls[1][5:]))
    assert rows == []
    assert any("opCount does not count" in n for n in answer.notes)
    rows, _answer = ask("calls", "".join(agreed))
    assert {r["op_count"] for r in rows} == {0}
    assert len(rows) == 38


def test_sends_need_not_agree(ask):
    text = init(0) + init(1) + coll(0, op="Send", root=1) + coll(1, op="Recv", root=0) + coll(0, k=1) + coll(1, k=1)
    rows, _answer = ask("mismatches", text)
    assert rows == []
    calls, _answer = ask("calls", text)
    assert [(c["op"], c["peer"], c["root"]) for c in calls[:2]] == [("Send", 1, None), ("Recv", 0, None)]


def test_roles(ask):
    lines = ""
    for rank in range(4):
        lines += init(rank, nranks=4, comm=0x1000, ident="0x1").replace(f":{10 + rank}:", f":{10 + rank}:")
    for rank in range(4):
        for name, size, own, ident in (("tp", 2, rank % 2, 0x20 + rank // 2), ("dp", 2, rank // 2, 0x30 + rank % 2)):
            comm = (0x2000 if name == "tp" else 0x3000) + rank
            lines += (
                f"{HOST}:{10 + rank}:{10 + rank} [{rank}] NCCL INFO ncclCommSplit comm {comm:#x} rank {own} nranks"
                f" {size} cudaDev {rank} nvmlDev {rank} busId {rank}000 parent 0x1 splitCount 1 color 0 key 0 commId"
                f" {ident:#x} - Init COMPLETE\n"
            )
            lines += coll(rank, comm=comm - rank, nranks=2)
    rows, _answer = ask("communicators", lines)
    assert {r["communicator"]: (r["ranks"], r["role"]) for r in rows} == {
        "0x1": (["0", "1", "2", "3"], "world"),
        "0x20": (["0", "1"], "TP"),
        "0x21": (["2", "3"], "TP"),
        "0x30": (["0", "2"], "DP"),
        "0x31": (["1", "3"], "DP"),
    }
    calls, _answer = ask("calls", lines)
    assert sorted((c["communicator"], c["rank"], c["global_rank"]) for c in calls) == [
        ("0x20", 0, 0), ("0x20", 1, 1), ("0x21", 0, 2), ("0x21", 1, 3),
        ("0x30", 0, 0), ("0x30", 1, 2), ("0x31", 0, 1), ("0x31", 1, 3),
    ]  # fmt: skip


def test_topology_names_pairs_over_sockets(ask):
    def say(rank, message, host=HOST):
        return f"{host}:{10 + rank}:{10 + rank} [{rank}] NCCL INFO {message}\n"

    text = init(0, nranks=4) + init(1, nranks=4) + init(2, nranks=4, host="node-1")
    text += say(0, "Channel 00/02 :    0   1   2   3")
    text += say(0, "Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->2")
    text += say(0, "Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0") + say(
        0, "Channel 01/0 : 0[0] -> 1[1] [send] via NET/Socket/0"
    )
    text += say(1, "Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0(3)/GDRDMA") + say(
        0, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read"
    )
    rows, answer = ask("topology", text)
    assert [(r["from_rank"], r["to_rank"], r["via"], r["channels"], r["suspect"]) for r in rows] == [
        (0, 1, "NET/Socket/0", 2, "ranks of one host talk over sockets"),
        (0, 1, "P2P/CUMEM/read", 1, None),
        (1, 2, "NET/IB/0/GDRDMA", 1, None),
    ]
    assert [(r["from_host"], r["to_host"], r["transport"], r["gpu_direct"]) for r in rows] == [
        ("node-0", "node-0", "NET", False),
        ("node-0", "node-0", "P2P", None),
        ("node-0", "node-1", "NET", True),
    ]
    assert answer.extra["rings"] == [{"communicator": "0xabc", "channel": 0, "ranks": "0 1 2 3", "cut": False}]
    assert [(t["channel"], t["up"], t["down"]) for t in answer.extra["trees"]] == [
        (0, -1, "1/-1/-1"),
        (1, 2, "-1/-1/-1"),
    ]


@pytest.mark.parametrize(
    ("message", "want"),
    [
        ("1024 Bytes -> Algo 1 proto 2 time 12.5", ("", 1024, "RING", "SIMPLE", None)),
        ("AllGather: 37756928 Bytes -> Algo 1 proto 0 time 2860.2", ("AllGather", 37756928, "RING", "LL", None)),
        ("AllReduce: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..3}", ("AllReduce", 4, "TREE", "LL", 4)),
        (
            "AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512 nWorks 1",
            ("AllReduce [Symmetric]", 64, "AllReduce_AGxLL_R", "", 8),
        ),
    ],
)
def test_tuning_of_every_version(ask, message, want):
    rows, _answer = ask("tuning", init(0) + f"{HOST}:10:10 [0] NCCL INFO {message}\n" * 2)
    assert [(r["op"], r["bytes"], r["algorithm"], r["protocol"], r["channels"]) for r in rows] == [want]
    assert (rows[0]["choices"], rows[0]["communicator"]) == (2, "0xabc")


def test_calls_of_trace_stand_in_where_there_is_no_coll(ask):
    call = f"{HOST}:10:10 NCCL CALL ncclAllReduce(7f00,7f00,1024,7,0,0,0x100,0x5)\n"
    rows, answer = ask("ops", init(0) + call)
    assert [(r["op"], r["calls"], r["total_bytes"]) for r in rows] == [("AllReduce", 1, 4096)]
    assert any("CALL records" in n for n in answer.notes)
    rows, _answer = ask("ops", init(0) + call + coll(0))
    assert rows[0]["calls"] == 1


def test_the_picture_of_the_histogram_counts_each_call_once(tmp_path):
    (tmp_path / "log").write_text(
        init(0) + init(1) + "".join(coll(r, count=c, k=k) for k, c in enumerate((16, 1 << 20)) for r in (0, 1))
    )
    answer = HISTOGRAM.answer(read_nccl_logs([tmp_path / "log"], calls_to=None), NcclOptions())
    assert [sum(y) for y in zip(*(s.y for s in draw(answer).series), strict=True)] == [2, 2]


def contained(rank, pid=31, calls=2):
    """The log of a rank in a container: its process has the host's name and the process id that all have."""
    text = init(rank, 4, pid=pid) + "".join(coll(rank, nranks=4, count=rank + 1, k=k) for k in range(calls))
    its = {f"{HOST}:{10 + rank}:{10 + rank}": f"{HOST}:{pid}:{pid}", f"[{rank}]": "[0]", f"cudaDev {rank}": "cudaDev 0"}
    for word, other in its.items():
        text = text.replace(word, other)
    return text


def test_containers_with_one_host_name_and_process_id_are_processes_of_their_own(ask):
    texts = [contained(rank) for rank in range(4)]
    calls, _answer = ask("calls", *texts)
    assert Counter((c["global_rank"], c["count"]) for c in calls) == {(rank, rank + 1): 2 for rank in range(4)}
    whole = ask("calls", "".join(contained(rank, pid=31 + rank) for rank in range(4)))[0]
    assert Counter((c["global_rank"], c["count"]) for c in whole) == Counter(
        (c["global_rank"], c["count"]) for c in calls
    )


def test_a_process_of_several_files_is_one(ask):
    text = contained(0) + contained(1, pid=40) + contained(2, pid=41) + contained(3, pid=42)
    calls, _answer = ask("calls", text, contained(0))
    assert Counter(c["global_rank"] for c in calls) == {0: 4, 1: 2, 2: 2, 3: 2}


def test_containers_are_the_ranks_of_reports_by_their_communicators(tmp_path):
    for rank in range(4):
        (tmp_path / f"{rank}.log").write_text(contained(rank, pid=31 if rank < 3 else 40))
    ranks = [SimpleNamespace(rank=r, host=f"{HOST}.cluster", pids=(31 if r < 3 else 40,)) for r in range(4)]
    with log_folder() as folder:
        logs = read_nccl_logs(sorted(tmp_path.glob("*.log")), calls_to=folder)
        for reports, expected in ((ranks, [0, 1, 2, 3]), (ranks[1:2] + ranks[3:], [-1, 1, -1, 3])):
            found, owners, _notes = ranks_of_members(logs, reports)
            assert owners == expected
            assert found == {r.rank: "process" for r in reports}
