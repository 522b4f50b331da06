"""The three ways to apply a clock's correction, and its inverse, agree."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.run.clock import ClockMap, clock_map
from alltrace.run.manifest import Clock, Manifest, RankRecord

times = st.lists(st.integers(-(1 << 51), 1 << 51), min_size=1, max_size=30)
maps = st.builds(ClockMap, st.integers(-(1 << 51), 1 << 51), st.floats(-1e-3, 1e-3), st.integers(-(1 << 51), 1 << 51))


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect() as opened:
        yield opened


@given(times, maps)
def test_numpy_python_and_sql_agree(connection, values, clock):
    moved = clock.apply(np.array(values, np.int64)).tolist()
    assert moved == [clock.apply_one(v) for v in values]
    rows = connection.execute(f"SELECT {clock.sql('t')} FROM (SELECT unnest(?::BIGINT[]) AS t)", [values]).fetchall()
    assert [r[0] for r in rows] == moved


@given(times, maps)
def test_the_order_of_times_is_kept(values, clock):
    moved = clock.apply(np.array(sorted(values), np.int64))
    assert (np.diff(moved) >= 0).all()


@given(st.integers(-(1 << 51), 1 << 51), maps)
def test_the_inverse_is_right_to_a_nanosecond(run_ns, clock):
    assert abs(clock.apply_one(clock.invert_one(run_ns)) - run_ns) <= 1
    assert ClockMap(clock.shift_ns).apply_one(ClockMap(clock.shift_ns).invert_one(run_ns)) == run_ns


def test_the_map_follows_from_the_manifest():
    rank = RankRecord(0, 0, "b", (), (), "order", (), time_base_utc_ns=5_000)
    clocks = (Clock("a"), Clock("b", offset_ns=700, drift_ppm=2.0))
    manifest = Manifest(ranks=(rank,), clocks=clocks, zero_utc_ns=1_000)
    assert clock_map(manifest, rank) == ClockMap(5_000 - 1_000 - 700, 2e-6)
    # a million ns later 2 ppm are 2 ns
    assert clock_map(manifest, rank).apply_one(1_000_000 - 3_300) == 999_998
    assert clock_map(Manifest(ranks=(rank,)), rank) == ClockMap(0)


def test_lengths_are_what_lies_between_moments():
    clock = ClockMap(7, 1e-3)
    lengths = np.array([0, 499, 501, 1_000_000, -1_000_000], np.int64)
    assert clock.lengths(lengths).tolist() == [0, 499, 500, 999_000, -999_000]
    assert ClockMap(7).lengths(lengths).tolist() == lengths.tolist()
