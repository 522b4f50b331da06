"""Calls and kernels joined, on arrays."""

from __future__ import annotations

import numpy as np

from alltrace.align.nccl_calls import Calls, _nesting, _units, spans_around
from alltrace.align.nccl_join import _fold_exchanges, _kernels_of_calls, _range_maximum, _untraced

OPS = ["AllReduce", "AllToAll", "Recv", "Send"]


def calls(op, unit, context):
    op, unit, context = (np.array(v, np.int64) for v in (op, unit, context))
    none, units = np.zeros(len(op), np.int64), np.zeros(len(context), np.int64)
    return Calls(
        np.arange(len(op)), np.arange(len(op)) + 1, none, none, op, none, unit, units, units, units, context, OPS, []
    )


def test_grouped_sends_and_receives_are_what_the_range_around_them_says():
    # a group that a range names an exchange, one that is not named, one with a collective, one named a send
    own = calls([3, 2, 3, 2, 3, 2, 0, 3, 3], [0, 0, 0, 0, 1, 1, 2, 2, 3], [1, -1, 1, 3])
    numbers = {"bytes": np.array([8, 5, 16, 5, 8, 8, 64, 8, 8])}
    valid = {name: np.ones(9, np.bool_) for name in ("bytes", "peer", "sequence")}
    op = own.op.copy()
    keep = _fold_exchanges(own, numbers, valid, op, OPS)
    assert np.flatnonzero(keep).tolist() == [0, 4, 5, 6, 7, 8]
    assert op[keep].tolist() == [1, 3, 2, 0, 3, 3]
    assert numbers["bytes"][keep].tolist() == [24, 8, 8, 64, 8, 8]
    assert valid["bytes"].all()
    assert np.flatnonzero(~valid["peer"]).tolist() == np.flatnonzero(~valid["sequence"]).tolist() == [0]
    large = {"bytes": np.array([1 << 62, 0, 1 << 62, 0])}
    four = {name: np.ones(4, np.bool_) for name in valid}
    assert _fold_exchanges(calls([3, 2, 3, 2], [0] * 4, [1]), large, four, np.array([3, 2, 3, 2]), OPS).tolist() == [
        True,
        False,
        False,
        False,
    ]
    assert (large["bytes"][0], four["bytes"].tolist()) == (
        0,
        [False, True, True, True],
    )  # what is more than a number holds is not known
    one = {"bytes": np.array([8])}, {name: np.ones(1, np.bool_) for name in valid}
    assert _fold_exchanges(calls([0], [0], [1]), *one, np.array([0]), OPS).all()
    assert _fold_exchanges(calls([3], [0], [-1]), *one, np.array([3]), OPS).all()
    single = np.array([3])  # a rank that has one message of the exchange
    known = {name: np.ones(1, np.bool_) for name in valid}
    assert _fold_exchanges(calls([3], [0], [1]), {"bytes": np.array([8])}, known, single, OPS).all()
    assert single.tolist() == [1]
    assert one[0]["bytes"].tolist() == [8]
    assert all(known.all() for known in one[1].values())


def test_kernels_of_a_unit_belong_to_its_calls():
    # as many kernels as calls; as many as communicators; one for all; none
    own = calls([0] * 8, [0, 0, 1, 1, 1, 2, 2, 3], [-1] * 4)
    communicator = np.array([0, 0, 4, 5, 4, 0, 0, 0])
    unit = np.array([-1, 0, 1, 0, 1, 2])
    first, last = _kernels_of_calls(own, communicator, unit, 4)
    assert first.tolist() == [1, 2, 3, 4, 3, 5, 5, -1]
    assert last.tolist() == [1, 2, 3, 4, 3, 5, 5, -1]
    three = _kernels_of_calls(calls([0, 0], [0, 0], [-1]), np.array([-1, -1]), np.array([0, 0, 0]), 1)
    assert [c.tolist() for c in three] == [[0, 0], [2, 2]]
    assert _range_maximum(np.array([5, 9, 2, 4]), np.array([0, 2, 1]), np.array([1, 3, 1])).tolist() == [9, 4, 9]


def test_what_was_traced_is_not_read_from_calls_again():
    own = calls([0, 3, 2], [0, 1, 2], [7, 8, 9])
    left, unit = _untraced(own, np.array([2, -1, 0]))
    assert (left.op.tolist(), left.unit.tolist(), left.unit_context.tolist(), unit.tolist()) == (
        [0, 2],
        [0, 1],
        [7, 9],
        [1, -1, 0],
    )


def test_a_span_holds_what_ends_within_it():
    spans = np.array([1, 1, 2]), np.array([0, 100, 0]), np.array([50, 200, 300])
    inner = np.array([1, 1, 1, 1, 2, 3]), np.array([0, 10, 50, 120, 299, 5]), np.array([50, 51, 60, 200, 300, 6])
    assert spans_around(spans, inner).tolist() == [0, -1, -1, 1, 2, -1]


def test_groups_are_nested_and_starts_and_ends_without_each_other_do_not_count():
    start, end = np.array([1, 1, 0, 0, 0, 1, 0], bool), np.array([0, 0, 0, 1, 1, 0, 1], bool)
    assert _nesting(start, end).tolist() == [1, 2, 2, 1, 0, 1, 0]
    assert _nesting(np.array([0, 1, 0], bool), np.array([1, 0, 0], bool)).tolist() == [0, 0, 0]
    assert _nesting(np.array([1, 1, 0, 0], bool), np.array([0, 0, 0, 1], bool)).tolist() == [0, 1, 1, 0]
    assert _nesting(np.zeros(2, bool), np.ones(2, bool)).tolist() == [0, 0]


def test_units_are_single_calls_and_outermost_groups():
    # a call, a group of two calls within a group, a call
    op = np.array([0, -1, -1, 3, 2, -1, -1, 0])
    starts, ends = (np.isin(np.arange(8), its) for its in ([1, 2], [5, 6]))
    begin = np.arange(8) * 10
    rows, unit, unit_start, unit_end, first = _units(np.arange(8), begin, begin + 5, op, starts, ends)
    assert (rows.tolist(), unit.tolist(), first.tolist()) == ([0, 3, 4, 7], [0, 1, 1, 2], [0, 1, 7])
    assert (unit_start.tolist(), unit_end.tolist()) == ([0, 10, 70], [5, 65, 75])
