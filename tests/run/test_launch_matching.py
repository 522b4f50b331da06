"""Operations and the calls that launched them: what a search through all pairs finds, whichever way they are looked
up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from alltrace.run import launch_matching as call_matching
from alltrace.run.launch_matching import match_launches


def test_operations_are_matched_within_their_process() -> None:
    api = pa.table(
        {
            "start": pa.array([10, 20, 30, 40]), "end": pa.array([11, 21, 31, 41]), "process": pa.array([0, 0, 1, 0]),
            "thread": pa.array([0, 0, 1, None], pa.int32()), "correlation": pa.array([5, 6, 5, 7]),
        }
    )  # fmt: skip
    found = match_launches([api], np.array([0, 0, 1, 0, 0, 0]), np.array([5, 5, 5, 9, -1, 7]))
    assert found.start.tolist() == [10, 30]
    assert found.thread.tolist() == [0, 1]
    assert found.op.tolist() == [0, 1, 2]
    assert found.first_op().tolist() == [0, 2]
    assert found.many is not None
    assert found.call_of_pair().tolist() == [0, 0, 1]


def test_huge_correlation_ids_do_not_clash() -> None:
    api = pa.table(
        {"start": [0, 1], "end": [1, 2], "process": [0, 1], "thread": [0, 1], "correlation": [2**62, 2**62 + 1]}
    )
    found = match_launches([api], np.array([1, 0]), np.array([2**62 + 1, 2**62]))
    assert found.op.tolist() == [1, 0]


def calls_of(calls: list[tuple[int, int]], factor: int) -> pa.Table:
    process, ids = (pa.array([c[i] for c in calls], pa.int64()) for i in (0, 1))
    zeros, starts = pa.array([0] * len(calls), pa.int64()), pa.array(range(len(calls)), pa.int64())
    ids = pa.array([i * factor for i in ids.to_pylist()], pa.int64())
    return pa.table({"start": starts, "end": starts, "process": process, "thread": zeros, "correlation": ids})


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 9)), max_size=12),
    st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 9)), max_size=12),
    st.integers(1, 5),
)
def test_all_pairs_are_found_whole_and_in_pieces_ids_close_together_and_far_apart(
    calls: list[tuple[int, int]], operations: list[tuple[int, int]], size: int
) -> None:
    expected = [
        (c, o) for c, call in enumerate(calls) for o, op in enumerate(operations) if call == op and call[1] >= 0
    ]
    of, ids = (np.array([o[i] for o in operations], np.int64) for i in (0, 1))
    for factor in (1, 1 << 40, 1 << 58):
        api = calls_of(calls, factor)
        pieces = [api.slice(first, size) for first in range(0, len(calls), size)]
        for given_calls in ([api], pieces, iter(pieces)):
            found = match_launches(given_calls, of, np.where(ids < 0, ids, ids * factor))
            # of each call in its order, and of one call in the order of the operations
            assert list(zip(found.row[found.call_of_pair()].tolist(), found.op.tolist(), strict=True)) == expected
            assert found.start.tolist() == found.row.tolist()
            assert found.correlation.tolist() == [calls[row][1] * factor for row in found.row]
            assert (found.many is None) == (len(expected) == len(found.row))
            assert found.one_call_each() == (len({o for _, o in expected}) == len(expected))


@given(st.lists(st.integers(0, 12), max_size=20), st.lists(st.integers(-2, 12), max_size=20))
def test_looking_up_by_place_is_searching(calls: list[int], ops: list[int]) -> None:
    api, of = calls_of([(0, c) for c in calls], 1), np.zeros(len(ops), np.int64)
    found = []
    for places in (0, 1000):
        before, call_matching._PLACES = call_matching._PLACES, places
        try:
            launches = match_launches([api], of, np.array(ops, np.int64))
        finally:
            call_matching._PLACES = before
        columns = (launches.row, launches.first_op(), launches.op, launches.correlation)
        found.append([column.tolist() for column in columns])
    assert found[0] == found[1]


def test_calls_are_not_read_where_no_operation_has_an_id() -> None:
    def pieces():
        raise AssertionError("read")
        yield

    found = match_launches(pieces(), np.array([0, -1]), np.array([-1, 3]))
    assert [
        len(v) for v in (found.thread, found.start, found.row, found.first_op(), found.op, found.call_of_pair())
    ] == [0] * 6


def test_operations_that_share_a_correlation_are_all_paired_with_their_call() -> None:
    api = calls_of([(0, 1), (0, 3), (0, 2)], 1)
    found = match_launches([api.slice(0, 1), api.slice(1)], np.zeros(4, np.int64), np.array([2, -1, 1, 2]))
    assert found.row.tolist() == [0, 2]
    assert found.first_op().tolist() == [0, 1]
    assert found.op.tolist() == [2, 0, 3]
    assert found.call_of_pair().tolist() == [0, 1, 1]
