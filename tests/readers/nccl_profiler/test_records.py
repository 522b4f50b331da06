"""Files of NCCL's example profiler plugin: whole, cut, damaged, of an older version, in another order, of something else."""

from __future__ import annotations

import gzip
import random

import pytest
from tests.nccl_profiler_writing import HASH, Writer, ring

from alltrace.readers.nccl_profiler import looks_like
from alltrace.readers.nccl_profiler.records import read_profiler
from alltrace.readers.registry import is_report
from alltrace.trace.errors import InputError


def read(tmp_path, text, name="trace.json"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_profiler(str(path))


def test_operations_hold_proxy_operations_and_these_their_steps(tmp_path):
    writer = ring(operations=2)[2]
    found = read(tmp_path, writer.text())
    assert (found.communicator, found.rank, found.pid, found.whole, found.unread, found.stale) == (
        f"{HASH:#x}",
        2,
        1002,
        True,
        0,
        0,
    )
    first, second = found.operations
    assert (first.op, first.sequence, first.count, first.datatype, first.algorithm, first.protocol) == (
        "AllReduce", 0, 262144, "Float32", "RING", "SIMPLE",
    )  # fmt: skip
    assert (second.sequence, second.kernel_ns) == (1, 500_000)
    received, sent = first.proxies
    assert (received.send, received.peer, received.steps, received.bytes) == (False, 1, 4, 4 * 65536)
    assert (sent.send, sent.peer, sent.channel) == (True, 3, 0)
    start = first.start + 9_000
    assert received.spans["RecvWait"][:2] == [(start, start + 20_000), (start + 100_000, start + 120_000)]
    assert [e - s for s, e in received.spans["RecvGpuWait"]] == [20_000] * 4
    assert {name: len(spans) for name, spans in sent.spans.items()} == {"SendGpuWait": 4, "SendPeerWait": 4, "SendWait": 4}
    assert sent.network[0] == ("ib", 1, 65536, sent.spans["SendWait"][0])
    assert received.end is not None
    assert received.end > received.spans["RecvGpuWait"][-1][1]


def test_pointers_and_types_without_quotes_as_2_28_writes_them(tmp_path):
    writer = Writer(0, 2, quoted=False)
    writer.all_reduce(0, 100, 50, 20)
    assert '"datatype": ncclFloat32' in writer.text()
    found = read(tmp_path, writer.text().replace("0x5020}", "(nil)}"))
    assert (found.unread, len(found.operations), len(found.operations[0].proxies)) == (0, 1, 2)


def test_messages_name_their_peer(tmp_path):
    writer = Writer(0, 2)
    args = f'"CommHash": {HASH}, "Rank": 0, "Peer": 1, "Count": 8, "Datatype": "ncclInt8", "nChannels": 1'
    writer.event("Send", "P2P", "b", 5, args)
    writer.event("Send", "P2P", "e", 9)
    (operation,) = read(tmp_path, writer.text()).operations
    assert (operation.op, operation.sequence, operation.peer, operation.datatype) == ("Send", None, 1, "Int8")


def test_operations_by_copy_engines(tmp_path):
    writer = Writer(3, 4)
    writer.by_copy_engines(50, 700, 80)
    found = read(tmp_path, writer.text(), f"t_{HASH}_3.json")
    (operation,) = found.operations
    assert (found.rank, found.communicator) == (3, f"{HASH:#x}")
    assert (operation.ready_ns, operation.copies_ns, operation.complete_ns) == (700_000, 80_000, 3_000)
    assert (operation.copied_bytes, operation.algorithm, operation.sequence) == (1_048_576, "CE", None)


def test_a_time_of_the_gpu_that_cannot_be_is_not_taken(tmp_path):
    writer = Writer(3, 4)
    writer.by_copy_engines(50, 2**64 - 300, 80)
    assert read(tmp_path, writer.text()).operations[0].ready_ns is None


def test_a_file_that_was_cut_has_what_came_before(tmp_path):
    text = ring(operations=3)[0].text().encode()
    whole = read(tmp_path, text).operations
    for end in range(200, len(text), 997):
        found = read(tmp_path, text[:end])
        assert not found.whole
        assert found.unread <= 1
        for got, true in zip(found.operations, whole, strict=False):
            assert (got.sequence, got.start) == (true.sequence, true.start)
            for mine, theirs in zip(got.proxies, true.proxies, strict=False):
                assert all(mine.spans[name] == theirs.spans[name][: len(mine.spans[name])] for name in mine.spans)


def test_the_rest_of_a_file_whose_beginning_is_gone(tmp_path):
    lines = ring(operations=3)[0].text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"ProgressRecv"' in line and '"ph": "e"' in line) - 1
    found = read(tmp_path, "\n".join(lines[at:]))
    assert [o.sequence for o in found.operations] == [1, 2]
    assert found.operations[0].proxies[0].spans["RecvWait"]


def test_a_damaged_line_takes_only_itself_along(tmp_path):
    lines = ring(operations=3)[0].text().splitlines()
    draw = random.Random(3)
    for _ in range(60):
        at = draw.randrange(1, len(lines) - 1)
        broken = [*lines]
        broken[at] = broken[at][: draw.randrange(1, 60)]
        found = read(tmp_path, "\n".join(broken))
        assert found.unread == 1
        for operation in found.operations:
            for proxy in operation.proxies:
                spans = [s for its in proxy.spans.values() for s in its]
                assert all(start >= operation.start for start, _ in spans)  # none is of another operation
                assert len({len(s) for s in proxy.spans.values()}) <= 2


def test_steps_without_the_begin_of_their_proxy_operation_go_to_no_other(tmp_path):
    lines = ring(operations=1)[0].text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"ProgressSend"' in line)
    found = read(tmp_path, "\n".join([*lines[:at], lines[at][:50], *lines[at + 1 :]]))
    assert (found.unread, found.orphans) == (1, 4)
    assert [p.send for p in found.operations[0].proxies] == [False]


def test_lines_in_another_order_are_refused(tmp_path):
    lines = ring(operations=3)[0].lines
    random.Random(1).shuffle(lines)
    with pytest.raises(InputError, match="its lines are not in their order"):
        read(tmp_path, "\n".join(["[", *lines, "{}]"]))


def test_steps_left_in_a_slot_that_is_used_again_are_not_counted(tmp_path):
    writer = Writer(0, 2)
    writer.all_reduce(0, 5000, 50, 20)
    at = next(i for i, line in enumerate(writer.lines) if '"ProgressRecv"' in line) + 1
    args = '"pid": 1000, "tid": 1'
    old = [
        f'{{"name": "RecvGpuWait", "cat": "NET", "ph": "{p}", "id": 77, {args}, "ts": {t}, "args": {{"Step": 9}}}},'
        for p, t in (("b", 100.0), ("e", 900.0))
    ]
    writer.lines[at:at] = old
    found = read(tmp_path, writer.text())
    assert found.stale == 1
    assert len(found.operations[0].proxies[0].spans["RecvGpuWait"]) == 4


def test_a_state_that_was_not_reached_makes_no_span(tmp_path):
    writer = Writer(0, 2)
    writer.proxy(False, 0, 1, 1, 10, 5, lambda: 90)
    at = next(i for i, line in enumerate(writer.lines) if '"ProgressRecv"' in line) + 1
    body = Writer(0, 2)
    body.step(0, [("RecvWait", 10, 0), ("RecvFlushWait", 0, 30), ("RecvGpuWait", 30, 40)])
    writer.lines[at:at] = body.lines
    (proxy,) = read(tmp_path, writer.text()).detached
    assert proxy.spans == {"RecvGpuWait": [(30_000, 40_000)]}


def test_proxy_operations_for_other_processes_are_apart(tmp_path):
    writer = Writer(0, 2)
    writer.all_reduce(0, 100, 50, 20)
    writer.proxy(True, 1, 3, 1, 10, 5, lambda: 9)
    found = read(tmp_path, writer.text())
    assert [p.peer for p in found.detached] == [3]
    assert len(found.operations[0].proxies) == 2
    at = next(i for i, line in enumerate(writer.lines) if '"COLL"' in line and '"ph": "e"' in line)
    writer.lines[at] = writer.lines[at][:40]  # the end of the operation before
    assert [p.peer for p in read(tmp_path, writer.text()).detached] == [3]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[\n{}]\n",
        "hello\n",
        '[\n{"name": "a", "cat": "kernel", "ph": "b", "id": 0, "pid": 1, "tid": 1, "ts": 1},\n{}]\n',
        "[" * 9999,
    ],
)
def test_something_else_is_refused(tmp_path, text):
    with pytest.raises(InputError, match="no event of NCCL's example profiler plugin"):
        read(tmp_path, text)


def test_numbers_that_cannot_be_are_lines_that_are_no_event(tmp_path):
    lines = ring(operations=1)[0].text().splitlines()
    bad = [
        lines[1].replace('"ts": ', '"ts": 1e400'),
        lines[1].replace('"id": 0', '"id": -1'),
        lines[1].replace('"id": 0', '"id": true'),
        lines[1].replace('"ts": ', '"ts": NaN, "x": '),
        '["not", "an", "object"],',
    ]
    found = read(tmp_path, "\n".join(["[", *bad, *lines[1:]]))
    assert found.unread == len(bad)
    assert len(found.operations) == 1


def test_compressed_files_and_their_damage(tmp_path):
    packed = gzip.compress(ring(operations=3)[0].text().encode())
    assert len(read(tmp_path, packed, f"t_{HASH}_0.json.gz").operations) == 3
    assert read(tmp_path, packed[: len(packed) * 2 // 3], f"t_{HASH}_0.json.gz").damage


def test_in_a_folder_of_reports_it_is_no_trace_of_pytorch(tmp_path):
    path = ring()[0].write(tmp_path)
    with open(path, "rb") as file:  # noqa: PTH123
        head = file.read(4096)
    assert looks_like(head)
    assert not is_report(tmp_path / f"trace_{HASH}_0.json")
    assert not looks_like(b'[\n{"name": "k", "cat": "kernel", "ph": "X", "id": 0, "pid": 1, "tid": 1, "ts": 1}')
