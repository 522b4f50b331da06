"""Calls of a log as units, on rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from alltrace.align.logged_units import _begun_again, _times, _uncounted, units_of
from alltrace.trace.nccl_words import OPERATIONS

ALL_REDUCE, SEND, RECV = (OPERATIONS.index(o) for o in ("AllReduce", "Send", "Recv"))


def calls(*rows):
    """Rows of operation, opCount, peer and bytes, or more."""
    names = (
        "op",
        "op_count",
        "peer",
        "bytes",
        "communicator",
        "time_ns",
        "group_size",
        "datatype",
        "count",
        "root",
        "group_rank",
    )
    values = [
        dict(zip(names, ({4: "a", 6: 3}.get(n) if n >= len(row) else row[n] for n in range(len(names))), strict=True))
        for row in rows
    ]
    table = {
        name: pa.array([row[name] for row in values], pa.string() if name == "communicator" else pa.int64())
        for name in names
    }
    table["shared"] = pa.array([True] * len(rows))
    return pa.table(table)


def named(units):
    return [units.ops[n] for n in units.op.tolist()]


def test_lines_without_a_time_have_that_of_the_line_before():
    column = pa.chunked_array([pa.array([None, 5, None, 9, None, 11], pa.int64())])
    assert _times(column, np.array([0, 1, 2, 3, 4, 5])).tolist() == [5, 5, 5, 9, 9, 11]
    assert _times(column, np.array([2, 4])).tolist() == [5, 9]
    assert _times(pa.chunked_array([pa.array([None, None, 3], pa.int64())]), np.arange(3)) is None
    assert _times(pa.chunked_array([pa.array([None, 3], pa.int64())]), np.arange(2)).tolist() == [3, 3]
    assert _times(pa.chunked_array([pa.nulls(2, pa.int64())]), np.arange(2)) is None


def test_a_counter_that_stands_still_counts_nothing():
    assert _uncounted(np.array([0, 0, 1, 2, 2, 3, 3]), np.array([4, 4, 4, 1, 2, -1, -1]), 4).tolist() == [
        True,
        False,
        False,
        False,
    ]
    assert _uncounted(np.array([0, 0]), np.array([0, 0]), 1).tolist() == [True]


def test_what_comes_again_begins_another_launch():
    head, asked = np.array([1, 0, 0, 0, 1, 0], bool), np.array([1, 1, 1, 1, 1, 0], bool)
    assert _begun_again(head, asked, np.array([5, 6, 5, 6, 6, 6])).tolist() == [True, False, True, False, True, False]


def test_calls_of_one_launch_are_one_kernel_and_those_among_all_one_exchange():
    table = calls(
        (ALL_REDUCE, 1, None, 64),
        (SEND, 2, 1, 8),
        (RECV, 2, 1, 4),
        (SEND, 3, 1, 8),
        (SEND, 3, 2, 8),
        (RECV, 3, 1, 4),
        (RECV, 3, 2, 4),
    )
    by_kernel = units_of(table, by_call=False)
    assert named(by_kernel) == ["AllReduce", "SendRecv", "AllToAll"]
    assert by_kernel.numbers["bytes"].tolist() == [64, 8, 16]
    assert by_kernel.numbers["peer"].tolist() == [-1, -1, -1]
    by_call = units_of(table, by_call=True)
    assert named(by_call) == ["AllReduce", "Send", "Recv", "AllToAll"]
    assert by_call.numbers["bytes"].tolist() == [64, 8, 4, 16]
    assert by_call.numbers["peer"].tolist() == [-1, 1, 1, -1]
    assert (by_call.single_id != 0).tolist() == [False, True, True, True]
    assert len(set(by_call.kind.tolist())) == 4


def test_sizes_that_are_not_known_make_no_sum():
    by_kernel = units_of(calls((SEND, 2, 1, None), (SEND, 2, 2, 8), (RECV, 3, 1, 4), (RECV, 3, 2, 4)), by_call=False)
    assert by_kernel.numbers["bytes"].tolist() == [-1, 8 - 8]  # of receives alone nothing is sent
    assert units_of(calls((RECV, 3, 1, 4), (RECV, 3, 2, 4)), by_call=False).numbers["bytes"].tolist() == [0]


def test_without_a_counter_collectives_are_launches_and_messages_until_one_comes_again():
    table = calls(
        (ALL_REDUCE, 7, None, 1),
        (ALL_REDUCE, 7, None, 1),
        (SEND, 7, 1, 2),
        (RECV, 7, 1, 2),
        (SEND, 7, 1, 2),
        (RECV, 7, 1, 2),
    )
    assert named(units_of(table, by_call=False)) == ["AllReduce", "AllReduce", "SendRecv", "SendRecv"]
    other = calls((ALL_REDUCE, 1, None, 1), (ALL_REDUCE, 1, None, 1, "b"), (ALL_REDUCE, 2, None, 1, "b"))
    assert units_of(other, by_call=False).group.tolist() == [0, 1, 1]
