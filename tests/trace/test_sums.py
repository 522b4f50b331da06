"""Sums that 64 bits need not hold."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from alltrace.trace.arrays import exact_sums, whole_numbers

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(st.integers(0, 3), INT64), max_size=30))
def test_sums_are_exact(pairs):
    group, values = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
    assert exact_sums(values, group, 4).tolist() == [sum(v for g, v in pairs if g == n) for n in range(4)]


def test_sums_are_64_bits_or_decimals():
    assert exact_sums(np.array([1, 2], np.int64), np.array([0, 0]), 1).dtype == np.int64
    assert whole_numbers([1, None]).type == pa.int64()
    assert whole_numbers([1, None, 2**70]).to_pylist() == [Decimal(1), None, Decimal(2**70)]
