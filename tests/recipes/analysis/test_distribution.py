from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.recipes.analysis.distribution import collect, summarize


def one(values: list[int], **kwargs: Any) -> dict[str, Any]:
    table = collect({"k": pa.array(["a"] * len(values))}, pa.array(values, pa.int64()))
    return summarize(table, **kwargs).to_pylist()[0]


def test_collect_counts_equal_values() -> None:
    table = collect({"k": pa.array(["b", "a", "b", "b"])}, np.array([5, 1, 2, 5]))
    assert sorted(map(tuple, (r.values() for r in table.to_pylist()))) == [("a", 1, 1), ("b", 2, 1), ("b", 5, 2)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-40, 40))))
def test_counting_gives_what_sorting_gives(rows: list[tuple[int, int]]) -> None:
    keys, values = pa.array([k for k, _ in rows], pa.int64()), np.array([v for _, v in rows], np.int64)
    counted = collect({"k": keys}, values)
    assert sorted(map(tuple, zip(*counted.to_pydict().values(), strict=True))) == sorted(
        (*k, n) for k, n in Counter(rows).items()
    )
    # too far apart to be counted
    far = collect({"k": keys}, values * 10**9)
    assert far.column("value").to_pylist() == [v * 10**9 for v in counted.column("value").to_pylist()]
    assert far.column("count").equals(counted.column("count"))


def test_collect_refuses_nulls() -> None:
    with pytest.raises(ValueError, match="nulls"):
        collect({"k": pa.array([1])}, pa.array([None], pa.int64()))


def test_collect_of_values_too_far_apart_to_pack() -> None:
    table = collect({"k": pa.array([1, 1, 0, 1])}, [2**62, -(2**62), 3, 2**62])
    assert sorted(map(tuple, (r.values() for r in table.to_pylist()))) == [(0, 3, 1), (1, -(2**62), 1), (1, 2**62, 2)]


def test_nothing() -> None:
    table = collect({"k": pa.array([], pa.string())}, pa.array([], pa.int64()))
    assert table.num_rows == 0
    assert summarize(table).num_rows == 0


@pytest.mark.parametrize(
    ("values", "q1", "median", "q3"),
    [
        ([1, 2, 3, 4], 1.5, 2.5, 3.5),
        ([1, 2, 3, 4, 5], 2, 3, 4),
        ([8, 7, 6, 5, 4, 3, 2, 1], 2.5, 4.5, 6.5),
        ([5], 5, 5, 5),
        ([1, 1, 1, 9], 1, 1, 5),
    ],
)
def test_quartiles_of_type_2(values: list[int], q1: float, median: float, q3: float) -> None:
    row = one(values)
    assert (row["q1"], row["median"], row["q3"]) == (q1, median, q3)


def test_statistics() -> None:
    assert one([2, 4, 4, 4, 5, 5, 7, 9]) == {
        "k": "a", "count": 8, "total": 40, "mean": 5.0, "median": 4.5, "q1": 4.0, "q3": 6.0, "min": 2, "max": 9,
        "stddev": pytest.approx((32 / 7) ** 0.5, rel=1e-15),
    }  # fmt: skip
    assert one([3])["stddev"] == 0.0


def test_deviation_keeps_its_digits_far_from_zero() -> None:
    far = 2**60
    assert one([far, far + 1, far + 2])["stddev"] == 1.0


def test_total_beyond_int64_is_exact() -> None:
    row = one([2**62, 2**62, 2**62])
    assert row["total"] == Decimal(3 * 2**62)
    assert row["mean"] == float(2**62)
    assert row["stddev"] == 0.0


def test_total_is_int64_where_it_fits_after_all() -> None:
    table = summarize(collect({"k": pa.array([1, 1, 1])}, [2**62, 2**62, -(2**62)]))
    assert table.schema.field("total").type == pa.int64()
    assert table.column("total").to_pylist() == [2**62]


samples = st.lists(st.tuples(st.integers(0, 3), st.integers(-(10**9), 10**9)), min_size=1, max_size=60)


@given(samples, st.integers(1, 5))
def test_split_over_ranks_it_is_what_numpy_says_of_the_whole(sample: list[tuple[int, int]], ranks: int) -> None:
    parts = [sample[i::ranks] for i in range(ranks)]
    tables = [collect({"k": pa.array([k for k, _ in p], pa.int64())}, [v for _, v in p]) for p in parts]
    for row in summarize(pa.concat_tables(tables), "linear").to_pylist():
        values = np.array([v for k, v in sample if k == row["k"]])
        assert (row["count"], row["total"], row["min"], row["max"]) == (
            len(values),
            values.sum(),
            values.min(),
            values.max(),
        )
        wanted = [values.mean(), *np.quantile(values, [0.5, 0.25, 0.75])]
        assert [row["mean"], row["median"], row["q1"], row["q3"]] == pytest.approx(wanted, rel=1e-12, abs=1e-6)
        assert row["stddev"] == pytest.approx(values.std(ddof=1) if len(values) > 1 else 0.0, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("bits", [0, 1, 30, 31, 32, 33, 62, 63])
@pytest.mark.parametrize("names", [1, 2, 3])
def test_values_are_sorted_at_every_width(bits: int, names: int) -> None:
    low = -(1 << 62) if bits == 63 else 7
    values = [low + v for v in ((1 << bits) - 1, 0, (1 << bits) // 2, 0)]
    keys = {"k": pa.array([n for n in range(names) for _ in values])}
    found = collect(keys, np.array(values * names, np.int64))
    expected = sorted((n, v, values.count(v)) for n in range(names) for v in set(values))
    assert list(zip(*found.to_pydict().values(), strict=True)) == expected
    again = summarize(found.take(list(reversed(range(found.num_rows)))))
    assert {(r["k"], r["count"], r["min"], r["max"]) for r in again.to_pylist()} == {
        (n, len(values), min(values), max(values)) for n in range(names)
    }
