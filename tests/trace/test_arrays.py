from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.together import together

from alltrace.trace.arrays import coded, exact_sums, extremes, is_one_of, is_true, narrow, whole_numbers


@together(
    ("values", "expected"),
    [([3, -1, 2], (-1, 3)), ([5], (5, 5)), ([None, 7, 2], (2, 7)), ([], (None, None)), ([None], (None, None))],
)
def test_extremes_leave_nulls_out(values, expected):
    array = pa.array(values, pa.int64())
    assert extremes(array) == extremes(pa.array([0, *values, 0], pa.int64()).slice(1, len(values))) == expected
    assert all(type(n) is int for n in extremes(array) if n is not None)


@together("chunks", [[], [[]], [["a", None, "b"]], [["a"], [None], ["b", "a"]], [[None]]])
def test_codes_and_words_are_the_rows(chunks):
    words = pa.dictionary(pa.int8(), pa.string())
    column = pa.chunked_array([pa.array(c, pa.string()).dictionary_encode().cast(words) for c in chunks], words)
    rows = [word for chunk in chunks for word in chunk]
    known, codes = coded(column)
    assert [[*known.to_pylist(), None][code] for code in codes.tolist()] == rows
    assert is_one_of(column, ("b", "c")).tolist() == [word == "b" for word in rows]
    assert not is_one_of(column, ()).any()


@together("values", [[True, None, False, True], [None, None], [], [True], [None]])
def test_only_true_is_true(values):
    expected = [value is True for value in values]
    array = pa.array(values, pa.bool_())
    assert is_true(array).tolist() == is_true(pa.chunked_array([array])).tolist() == expected


INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(st.integers(0, 3), INT64), max_size=30))
def test_sums_are_exact(pairs):
    group, values = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
    assert exact_sums(values, group, 4).tolist() == [sum(v for g, v in pairs if g == n) for n in range(4)]


def test_sums_are_64_bits_or_decimals():
    assert exact_sums(np.array([1, 2], np.int64), np.array([0, 0]), 1).dtype == np.int64
    assert whole_numbers([1, None]).type == pa.int64()
    assert whole_numbers([1, None, 2**70]).to_pylist() == [Decimal(1), None, Decimal(2**70)]


def test_whole_numbers_are_narrow_where_that_holds_them():
    for values, kind in (
        ([], np.int32),
        ([-(2**31), 2**31 - 1], np.int32),
        ([2**31], np.int64),
        ([-(2**31) - 1], np.int64),
    ):
        numbers = narrow(np.array(values, np.int64))
        assert (numbers.tolist(), numbers.dtype) == (values, kind)
