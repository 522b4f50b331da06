"""The statistics in SQL against plain Python over all values, one by one."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alltrace.recipes.analysis.sql_engine import run_statement
from alltrace.recipes.analysis.statistics_sql import distribution_statement, merged_statement, statistics_statement

NAMES = pa.table({"id": [1, 2, 3], "value": ["a", "a", "b"]})
KINDS = {"rank": pa.int32(), "name": pa.int64(), "value": pa.int64(), "count": pa.int64()}
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([1, 2, 3, None]), st.integers(-50, 10**12), st.integers(1, 4)),
    min_size=1,
)


def ask(rows: list[tuple[Any, ...]], quantile: Any, **more: Any) -> dict[Any, dict[str, Any]]:
    parts = pa.table(
        [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), KINDS.values(), strict=True)], list(KINDS)
    )
    statement = statistics_statement({"Name": "coalesce(text_of(name), '')"}, ["name"], quantile, **more)
    found = run_statement(statement, {"parts": parts, "names": NAMES}).to_pylist()
    return {(row.get("rank"), row["Name"]): row for row in found}


def quartile(values: list[int], quarters: int, quantile: str) -> float:
    """By the definitions of Hyndman and Fan."""
    n = len(values)
    if quantile == "type_7":
        at, rest = divmod((n - 1) * quarters, 4)
        return float(values[at] + Fraction(rest, 4) * (values[min(at + 1, n - 1)] - values[at]))
    at, rest = divmod(n * quarters, 4)
    return float(values[at]) if rest else (values[at - 1] + values[min(at, n - 1)]) / 2


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from(["type_2", "type_7"]), st.booleans())
def test_statistics_are_those_of_all_values(rows: list[tuple[Any, ...]], quantile: str, by_rank: bool) -> None:
    groups: dict[Any, list[int]] = {}
    texts = {1: "a", 2: "a", 3: "b", None: ""}
    for rank, name, value, count in rows:
        groups.setdefault((rank if by_rank else None, texts[name]), []).extend([value] * count)
    found = ask(rows, quantile, by_rank=by_rank)
    assert set(found) == set(groups)
    for key, unsorted in groups.items():
        values, row = sorted(unsorted), found[key]
        n, mean = len(values), Fraction(sum(values), len(values))
        assert (row["count"], row["total"], row["min"], row["max"]) == (n, sum(values), values[0], values[-1])
        assert row["mean"] == pytest.approx(float(mean), rel=1e-15)
        assert [row[q] for q in ("q1", "median", "q3")] == [quartile(values, k, quantile) for k in (1, 2, 3)]
        deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else 0.0
        assert row["stddev"] == pytest.approx(deviation, rel=1e-9, abs=1e-6)


def test_the_order_of_rows_changes_no_digit() -> None:
    rows = [(n % 3, 1 + n % 3, (n * 7919) % 100_003, 1 + n % 5) for n in range(5_000)]
    assert ask(rows, "type_2") == ask(rows[::-1], "type_2")


def test_a_sum_beyond_64_bits_is_exact() -> None:
    (row,) = ask([(0, 3, 2**63 - 1, 3), (1, 3, 2**63 - 1, 4)], "type_2").values()
    assert row["total"] == 7 * (2**63 - 1)
    assert row["stddev"] == 0


def test_values_too_far_apart_for_exact_squares_still_have_a_deviation() -> None:
    (row,) = ask([(0, 3, 2**62, 1), (0, 3, -(2**62), 1)], "type_2").values()
    assert row["stddev"] == pytest.approx(2**62 * math.sqrt(2))


def test_quartiles_are_left_out() -> None:
    (row,) = ask([(0, 3, 5, 1)], "type_2", quartiles=False).values()
    assert list(row) == ["Name", "count", "total", "mean", "median", "min", "max", "stddev"]


def test_a_distribution_counts_equal_values_and_leaves_out_null() -> None:
    events = pa.table({"rank": [0] * 5, "name": [1, 1, 1, 2, None], "value": pa.array([5, 5, None, 5, 5], pa.int64())})
    found = run_statement(distribution_statement(["name"], "SELECT rank, name, value FROM events"), {"events": events})
    assert sorted(map(tuple, (r.values() for r in found.to_pylist())), key=str) == [
        (0, 1, 5, 2),
        (0, 2, 5, 1),
        (0, None, 5, 1),
    ]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_merged_ranks_have_the_statistics_of_all(rows: list[tuple[Any, ...]]) -> None:
    parts = pa.table(
        [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), KINDS.values(), strict=True)], list(KINDS)
    )
    distinct = {(name, value) for _, name, value, _ in rows}
    for further in ({}, {"ranks": "count(DISTINCT rank)"}):
        merged = run_statement(merged_statement(["name"], ranks=bool(further)), {"parts": parts})
        owners = {(rank, name) for rank, name, _, _ in rows} if further else ()
        assert merged.num_rows == len(distinct) + len(owners)
        assert ask([tuple(row.values()) for row in merged.to_pylist()], "type_7", further=further) == ask(
            rows, "type_7", further=further
        )
