"""The records of NCCL Inspector in its versions, and files that are cut, mixed or none."""

from __future__ import annotations

import json

import pytest
from tests.inspector_writing import collective, message, record, stats, write

from alltrace.readers.nccl_inspector.records import Communicator, read_inspector
from alltrace.trace.errors import InputError


def read(tmp_path, *lines):
    return read_inspector(write(tmp_path, {0: list(lines)})[0])


def test_a_record_of_the_first_version(tmp_path):
    found = read(
        tmp_path, record(0, collective("ReduceScatter", 7, 41)), record(0, message("Send", 1, 3), key="p2p_perf")
    )
    assert (found.version, found.host, found.pid, found.unread, found.tells_drops) == ("v4.0", "h", 100, 0, False)
    assert found.communicators == {"0x9f": Communicator("world", 2, 1, 0)}
    one, other = found.operations
    assert one[:9] == ("0x9f", 0, "ReduceScatter", 7, 1 << 20, 41.0, "kernel_gpu", 1.5, "")
    assert (one.peer, one.start_ns, one.end_ns, one.written_ns) == (None, None, None, 5_000_000_000)
    assert (other.op, other.sequence, other.peer, other.bytes, other.duration_us) == ("Send", 1, 3, 1 << 18, 30.0)


def test_what_later_versions_add(tmp_path):
    verbose = {
        "event_trace_sn": {"coll_start_sn": 1, "coll_stop_sn": 2, "kernel_events": []},
        "event_trace_ts": {
            "coll_start_ts": 90,
            "coll_stop_ts": 95,
            "kernel_events": [
                {"channel_id": 0, "kernel_start_ts": 110, "kernel_stop_ts": 150, "kernel_record_ts": 150},
                {"channel_id": 1, "kernel_start_ts": 105, "kernel_stop_ts": 140, "kernel_record_ts": 140},
                {"channel_id": 2, "kernel_start_ts": 0, "kernel_stop_ts": 0, "kernel_record_ts": 0},
            ],
        },
    }
    found = read(
        tmp_path,
        record(0, stats(12, 3), key="dump_stats", version="v4.1"),
        record(0, collective("AllReduce", 1, 40, coll_algo="RING", coll_proto="LL128", **verbose), version="v4.3"),
        record(0, collective("All2All", 1, 40, coll_algo="unknown", coll_proto="unknown"), version="v4.3"),
        record(0, stats(11, 2), key="dump_stats", version="v4.3"),
        record(0, {"record_type": "proxy_op"}, key="proxy_perf", version="v4.3"),
    )
    assert (found.version, found.dropped, found.tells_drops, found.others) == ("v4.3", {"0x9f": (12, 3)}, True, 1)
    one, other = found.operations
    assert (one.algorithm, one.protocol, one.start_ns, one.end_ns) == ("RING", "LL128", 105_000, 150_000)
    assert (other.op, other.algorithm, other.protocol) == ("AllToAll", "", "")


@pytest.mark.parametrize(
    "line",
    [
        "[1]",
        "{}",
        "no json",
        json.dumps({"header": {"id": "0x9f", "rank": -1}, "coll_perf": collective("AllReduce", 1, 1)}),
        json.dumps({"header": {"id": "0x9f", "rank": 0}, "coll_perf": []}),
        record(0, collective("AllReduce", 1, 1) | {"coll_exec_time_us": "x"}),
        record(0, collective("AllReduce", 1 << 70, 1)),
        record(0, collective("AllReduce", 1, 1))[:60],
        record(0, [], key="dump_stats"),
        '{"header":' * 5000,
    ],
)
def test_a_line_that_is_no_record_is_counted(tmp_path, line):
    found = read(tmp_path, record(0, collective("AllReduce", 1, 1)), line, record(0, collective("AllReduce", 2, 1)))
    assert (found.unread, [o.sequence for o in found.operations]) == (1, [1, 2])


def test_a_record_of_another_process_is_left_out(tmp_path):
    found = read(tmp_path, record(0, collective("AllReduce", 1, 1)), record(1, collective("AllReduce", 1, 1)))
    assert (found.mixed, len(found.operations)) == (1, 1)


@pytest.mark.parametrize("text", ["", "{}\n", "text\n", '{"entries": []}\n'])
def test_what_has_no_record_is_refused(tmp_path, text):
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(InputError, match="no record of NCCL Inspector"):
        read_inspector(str(path))
