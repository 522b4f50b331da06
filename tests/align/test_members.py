from __future__ import annotations

import numpy as np
import pytest

from alltrace.align.members import EXCHANGE, _awaited, direction_of, is_synchronising


@pytest.mark.parametrize(
    ("op", "synchronising", "direction"),
    [
        ("AllReduce", True, 0), ("ReduceScatter", True, 0), ("MPI_Barrier", True, 0), ("alltoall", True, 0),
        ("Broadcast", False, 0), ("Send", False, 1), ("irecv", False, -1), ("SendRecv", False, EXCHANGE), (None, False, 0),
    ],
)  # fmt: skip
def test_what_an_operation_makes_its_members_wait_for(op, synchronising, direction):
    assert (is_synchronising(op), direction_of(op)) == (synchronising, direction)


@pytest.mark.parametrize(
    ("op", "root", "awaited"),
    [
        ("AllReduce", -1, [1, 1, 1, 1]),
        ("Broadcast", 2, [2, 2, 2, 2]),
        ("Scatter", 0, [0, 0, 0, 0]),
        ("Reduce", 2, [0, 1, 1, 3]),
        ("Gather", 1, [0, 1, 2, 3]),
        ("Scan", -1, [0, 1, 1, 1]),
        ("Broadcast", -1, [1, 1, 1, 1]),
    ],
)
def test_members_wait_for_those_they_need(op, root, awaited):
    # after an instance of others; rank 1 comes last, rank 0 second
    start = np.array([9, 8, 70, 100, 60, 50])
    place = np.array([0, 0, 1, 1, 1, 1])
    last = np.array([0, 0, 3, 3, 3, 3])
    roots = np.array([-1, -1, root, root, root, root])
    found = _awaited(np.array(["AllReduce"] * 2 + [op] * 4, object), last, place, start, roots, np.array([0, 1, 0, 1, 2, 3]))
    assert found.tolist() == [0, 0, *(2 + row for row in awaited)]
