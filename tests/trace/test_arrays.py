from __future__ import annotations

import pyarrow as pa
import pytest

from alltrace.trace.arrays import extremes


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3, -1, 2], (-1, 3)), ([5], (5, 5)), ([None, 7, 2], (2, 7)), ([], (None, None)), ([None], (None, None))],
)
def test_extremes_leave_nulls_out(values, expected):
    array = pa.array(values, pa.int64())
    assert extremes(array) == extremes(pa.array([0, *values, 0], pa.int64()).slice(1, len(values))) == expected
    assert all(type(n) is int for n in extremes(array) if n is not None)
