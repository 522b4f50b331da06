from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.together import together

from alltrace.trace.distinct import (
    distinct,
    distinct_rows,
    folded,
    occurrences,
    rows_by,
    run_starts,
    sorted_groups,
    values_by,
)
from alltrace.trace.grouping import group


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.sampled_from([1, 5, 10**6, 2**63]))
def test_it_is_what_unique_gives(values: list[int], near: int) -> None:
    column = np.array([v % near if near < 2**63 else v for v in values], np.int64)
    found, place = distinct(column)
    wanted, at = np.unique(column, return_inverse=True)
    assert found.tolist() == wanted.tolist()
    assert place.tolist() == at.tolist()


@together("values", [[], [7], [3, 3, 3], [-5, 2**62, -5], [4, 2, 3]])
def test_few_values(values: list[int]) -> None:
    found, place = distinct(np.array(values, np.int64))
    assert found.tolist() == sorted(set(values))
    assert [found[p] for p in place] == values


@given(st.integers(0, 30), st.integers(1, 4), st.sampled_from([1, 2, 6, 2**62]), st.integers(0, 2**32))
def test_rows_of_several_columns_are_what_unique_gives(rows: int, columns: int, most: int, seed: int) -> None:
    given_ = np.random.default_rng(seed).integers(-most, most, (columns, rows))
    found, place = distinct_rows(*given_)
    if not rows:
        assert found.shape == (columns, 0)
        return
    wanted, at = np.unique(given_, axis=1, return_inverse=True)
    assert found.tolist() == wanted.tolist()
    assert place.tolist() == at.reshape(-1).tolist()


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 1))))
def test_occurrences_count_the_equal_rows_before(rows: list[tuple[int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 2).T
    assert occurrences(*columns).tolist() == [rows[:n].count(row) for n, row in enumerate(rows)]


@given(st.lists(st.integers(-3, 9)), st.sampled_from([np.int8, np.int32, np.int64]))
def test_the_rows_of_each_value_are_those_that_a_look_at_all_rows_finds(values: list[int], kind: type) -> None:
    column = np.array(values, kind)
    found = rows_by(column)
    assert list(found) == sorted(set(values))
    for value, rows in found.items():
        assert rows.tolist() == np.flatnonzero(column == value).tolist()


def test_groups_of_nulls_and_of_many_combinations():
    codes, first = group([pa.array([1, None, 1, None]), pa.array(["x", "x", "y", "x"])])
    assert codes[1] == codes[3]
    assert len(set(codes.tolist())) == 3
    assert [codes[i] for i in first] == [0, 1, 2]
    codes, first = group([pa.nulls(3, pa.int64())])
    assert codes.tolist() == [0, 0, 0]
    assert len(first) == 1
    n = 300
    columns = [pa.array(np.roll(np.arange(n), i)) for i in range(9)]
    codes, first = group(columns)
    assert sorted(codes.tolist()) == list(range(n))
    assert sorted(first.tolist()) == list(range(n))


def test_runs_of_equal_rows_start_where_any_column_changes():
    assert run_starts(np.array([1, 1, 2, 2, 1]), np.array([7, 7, 7, 8, 8])).tolist() == [0, 2, 3, 4]
    assert run_starts(np.array([3, 3])).tolist() == [0]
    assert run_starts(np.empty(0, np.int64)).tolist() == []


def test_values_of_a_number_are_folded_into_what_they_begin_with():
    of, values = np.array([2, 0, 2, 0]), np.array([5, 1, 9, -4])
    assert folded(np.minimum, of, values, 4, 3).tolist() == [-4, 3, 3, 3]
    assert folded(np.maximum, of, values, 4, -np.inf).tolist() == [1.0, -np.inf, 9.0, -np.inf]


def test_groups_have_their_values_in_order():
    values, groups = np.array([5.0, 1.0, 4.0, 2.0, 3.0]), np.array([2, 0, 2, 0, 2])
    ordered, begins, counts = sorted_groups(values, groups, 4)
    assert ordered.tolist() == [1, 2, 3, 4, 5]
    assert (begins.tolist(), counts.tolist()) == ([0, 2, 2, 5], [2, 0, 3, 0])


def test_values_of_a_key_are_together_and_in_order():
    assert values_by([("b", 2), ("a", 1), ("b", 1)]) == {"b": [2, 1], "a": [1]}
