from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.recipes.analysis.distribution import collect, merge, summarize
from alltrace.recipes.analysis.merged_distributions import Pool, _ascending
from alltrace.recipes.base import Part

EXACT = ("count", "total", "mean", "median", "q1", "q3", "min", "max")
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(-50, 50)), max_size=40)


def part(rank: int, rows: list[tuple[str | None, int]]) -> Part:
    return Part(rank, collect({"k": pa.array([k for k, _ in rows], pa.string())}, np.array([v for _, v in rows], np.int64)))


def by_key(pool: Pool, table: Any, *more: str) -> dict[Any, dict[str, Any]]:
    names = pool.keys.column("k").to_pylist()
    rows = table.to_pylist()
    return {(*(r[m] for m in more), names[r["group"]]): {n: r[n] for n in (*EXACT, "stddev")} for r in rows}


def expected(tables: list[Any], quantile: Any) -> dict[Any, dict[str, Any]]:
    whole = summarize(merge(tables), quantile)
    return {(r["k"],): {n: r[n] for n in (*EXACT, "stddev")} for r in whole.to_pylist()}


@pytest.mark.parametrize("quantile", ["linear", "hyndman-fan-2"])
@pytest.mark.parametrize("rows_at_once", [1, 3, 8, 1000])
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_some_rows_at_a_time_give_what_all_at_once_give(rows_at_once: int, quantile: Any, ranks: list[Any]) -> None:
    parts = [part(n, rows) for n, rows in enumerate(ranks)]
    pool = Pool(parts, ("k",), rows_at_once)
    groups = np.arange(pool.keys.num_rows)
    found, wanted = by_key(pool, pool.summarize(groups, quantile)), expected([p.table for p in parts], quantile)
    assert found.keys() == wanted.keys()
    for key, values in wanted.items():
        assert [found[key][n] for n in EXACT] == [values[n] for n in EXACT]
        assert found[key]["stddev"] == pytest.approx(values["stddev"], rel=1e-12, abs=1e-9)
    each = by_key(pool, pool.summarize_ranks(groups, quantile), "rank")
    for p in parts:
        own = expected([p.table], quantile)
        mine = {key[1:]: values for key, values in each.items() if key[0] == p.rank}
        assert {k: [v[n] for n in EXACT] for k, v in mine.items()} == {k: [v[n] for n in EXACT] for k, v in own.items()}
    numbers = dict(zip(pool.keys.column("k").to_pylist(), pool.ranks_of(groups).tolist(), strict=True))
    assert numbers == {k: sum(k in {key for key, _ in rows} for rows in ranks) for k in {key for r in ranks for key, _ in r}}
    above = dict(zip(pool.keys.column("k").to_pylist(), pool.above(groups, 7).tolist(), strict=True))
    assert above == {k: sum(key == k and value > 7 for rows in ranks for key, value in rows) for k in numbers}


def test_keys_of_a_group_are_described_together() -> None:
    parts = [part(0, [("a", 1), ("b", 5)]), part(1, [("c", 3), ("a", 7)])]
    pool = Pool(parts, ("k",))
    place = {k: n for n, k in enumerate(pool.keys.column("k").to_pylist())}
    groups = np.zeros(3, np.int64)
    groups[place["b"]] = 1
    rows = pool.summarize(groups).to_pylist()
    assert [(r["group"], r["count"], r["total"], r["median"]) for r in rows] == [(0, 3, 11, 3.0), (1, 1, 5, 5.0)]
    assert pool.ranks == [0, 1]
    assert pool.ranks_of(groups).tolist() == [2, 1]


def test_a_long_key_is_described_in_pieces_whatever_the_order_of_ranks() -> None:
    draw = np.random.default_rng(5)
    values = [draw.lognormal(10, 1, 4000).astype(np.int64) for _ in range(6)]
    parts = [part(n, [("a", int(v)) for v in own]) for n, own in enumerate(values)]
    group = np.zeros(1, np.int64)
    (row,) = Pool(parts, ("k",), 1000).summarize(group, "linear").to_pylist()
    together = np.concatenate(values)
    assert (row["count"], row["total"], row["min"], row["max"]) == (24_000, together.sum(), together.min(), together.max())
    assert [row["q1"], row["median"], row["q3"]] == np.quantile(together, [0.25, 0.5, 0.75]).tolist()
    assert row["stddev"] == pytest.approx(together.std(ddof=1), rel=1e-12)
    assert Pool(parts[::-1], ("k",), 1000).summarize(group, "linear").to_pylist() == [row]


@pytest.mark.parametrize(("ranks", "rows", "most"), [(4000, 2, 4000), (400, 5, 200), (20, 100, 200), (3, 1000, 200)])
def test_no_more_rows_are_taken_at_once_however_many_ranks_share_them(ranks: int, rows: int, most: int) -> None:
    draw = np.random.default_rng(3)
    runs = [(np.sort(draw.integers(0, 2**40, rows)), np.ones(rows, np.int64)) for _ in range(ranks)]
    sizes = [int(count.sum()) for _, count in _ascending(runs, ranks * rows, most)]
    assert sum(sizes) == ranks * rows
    assert max(sizes) < 2 * most


def test_one_value_that_all_have() -> None:
    parts = [part(n, [("a", 9)] * 5) for n in range(10)]
    (row,) = Pool(parts, ("k",), 2).summarize(np.zeros(1, np.int64)).to_pylist()
    assert (row["count"], row["total"], row["q1"], row["max"], row["stddev"]) == (50, 450, 9.0, 9, 0.0)


@pytest.mark.parametrize("rows_at_once", [1, 1000])
def test_totals_that_no_int64_holds(rows_at_once: int) -> None:
    parts = [part(n, [("a", 2**62), ("b", n), ("a", 2**62 - n - 1)]) for n in range(3)]
    pool = Pool(parts, ("k",), rows_at_once)
    found = by_key(pool, pool.summarize(np.arange(2)))
    assert int(found["a",]["total"]) == 6 * 2**62 - 6
    assert int(found["b",]["total"]) == 3


def test_runs_that_are_not_in_order() -> None:
    rows = pa.table({"k": ["a", "b", "a", "a"], "value": [5, 1, 9, 2], "count": [1, 2, 1, 3]})
    pool = Pool([Part(0, rows)], ("k",), 1)
    found = by_key(pool, pool.summarize(np.arange(2)))
    assert (found["a",]["count"], found["a",]["total"], found["a",]["median"], found["a",]["max"]) == (5, 20, 2.0, 9)


@pytest.mark.parametrize("parts", [[], [part(0, [])]])
def test_nothing(parts: list[Part]) -> None:
    pool = Pool(parts, ("k",))
    nothing = np.empty(0, np.int64)
    assert (pool.keys.num_rows, pool.ranks, pool.ranks_of(nothing).tolist()) == (0, [], [])
    assert pool.summarize(nothing).num_rows == pool.summarize_ranks(nothing).num_rows == 0
    assert pool.summarize_ranks(nothing).column_names[:3] == ["rank", "group", "count"]
