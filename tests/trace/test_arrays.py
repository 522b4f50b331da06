import pyarrow as pa
from tests.together import together

from alltrace.trace.arrays import coded, extremes, is_one_of, is_true


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
