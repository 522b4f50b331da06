"""Nesting and look-ups in ranges against every pair of range and call."""

from __future__ import annotations

import csv
import io
import random
import shutil
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.thorough import cases

from alltrace.trace import nesting
from alltrace.trace.intervals import INT64_MAX, INT64_MIN

spans = st.tuples(st.integers(0, 2), st.integers(-5, 12), st.integers(0, 9)).map(lambda s: (s[0], s[1], s[1] + s[2]))
many = st.lists(spans, max_size=14)


@pytest.fixture(autouse=True, scope="module")
def little_room():
    """Sweeps have to ask for more room."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_ROOM", 1)
        yield


def columns(rows):
    table = np.array(rows, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def encloses(outer, inner):
    return outer[0] == inner[0] and outer[1] <= inner[1] and outer[2] >= inner[2]


def rank(ranges, i):
    """How good a range is as the innermost: short, then late in the order of the file."""
    _, start, end = ranges[i]
    return (end - start, -start, -i)


@settings(max_examples=cases(100, 300))
@given(many, many)
def test_lookups(ranges, calls):
    expected = [
        min((i for i, r in enumerate(ranges) if encloses(r, c)), key=lambda i: rank(ranges, i), default=-1)
        for c in calls
    ]
    assert nesting.innermost(*columns(ranges), *columns(calls)).tolist() == expected
    query, row = nesting.enclosing(*columns(ranges), *columns(calls))
    found = list(zip(query.tolist(), row.tolist(), strict=True))
    assert sorted(found) == [(q, i) for q, c in enumerate(calls) for i, r in enumerate(ranges) if encloses(r, c)]
    for q in range(len(calls)):
        outer_first = [(ranges[i][1], -ranges[i][2], i) for c, i in found if c == q]
        assert outer_first == sorted(outer_first)


@given(many, many)
def test_points(ranges, calls):
    tracks, starts, _ = columns(calls)
    inner = nesting.innermost(*columns(ranges), tracks, starts)
    assert inner.tolist() == nesting.innermost(*columns(ranges), tracks, starts, starts).tolist()
    query, _ = nesting.enclosing(*columns(ranges), tracks, starts)
    assert set(query.tolist()) == set(np.flatnonzero(inner >= 0).tolist())


@settings(max_examples=cases(100, 300))
@given(many, st.integers(1, 5))
def test_blocks(ranges, size):
    ranges = sorted(ranges, key=lambda r: (r[0], r[1], -r[2]))
    sweep = nesting.NestingSweep()
    depths, parents = [], []
    for first in range(0, len(ranges), size):
        tracks, starts, ends = columns(ranges[first : first + size])
        for got, into in zip(
            sweep.step(np.ones(len(tracks), bool), tracks, starts, ends), (depths, parents), strict=True
        ):
            into.extend(got.tolist())
    for i, r in enumerate(ranges):
        # Of equal ranges the earlier row is the parent.
        outer = [j for j, o in enumerate(ranges) if j != i and encloses(o, r) and not (o == r and j > i)]
        parent = min(outer, key=lambda j: rank(ranges, j), default=-1)
        assert parents[i] == parent
        assert depths[i] == (0 if parent < 0 else depths[parent] + 1)


def test_ranges_interleave_nest_deeply_and_reach_far():
    ranges = [(0, 0, 10), (0, 5, 15), (0, 6, 9), (0, 11, 14)]
    depths, parents = nesting.nest(*columns(ranges))
    assert parents.tolist() == [-1, -1, 1, 1]
    assert depths.tolist() == [0, 0, 1, 1]
    query, row = nesting.enclosing(*columns(ranges), *columns([(0, 7, 8), (0, 8, 12), (0, 10, 10), (1, 7, 8)]))
    assert list(zip(query.tolist(), row.tolist(), strict=True)) == [(0, 0), (0, 1), (0, 2), (1, 1), (2, 0), (2, 1)]
    draw = np.random.default_rng(3)
    starts = draw.integers(0, 200, 400)
    ranges = np.stack((draw.integers(0, 3, 400), starts, starts + draw.integers(0, 60, 400)))
    order = np.lexsort((-ranges[2], ranges[1], ranges[0]))
    depths, parents = nesting.nest(*np.ascontiguousarray(ranges[:, order]))
    found_depths, found_parents = nesting.nest(*ranges)
    assert found_depths[order].tolist() == depths.tolist()
    assert found_parents[order].tolist() == np.where(parents < 0, -1, order[parents]).tolist()
    low, high = INT64_MIN, INT64_MAX
    depths, parents = nesting.nest(*columns([(0, low, high), (0, low, 0), (0, -1, high)]))
    assert (depths.tolist(), parents.tolist()) == ([0, 1, 1], [-1, 0, 0])
    depth = 3000
    tracks = np.zeros(depth, np.int64)
    starts = np.arange(depth)
    ends = 10_000 - starts
    depths, parents = nesting.nest(tracks, starts, ends)
    assert depths.tolist() == list(range(depth))
    assert parents.tolist() == list(range(-1, depth - 1))
    at = np.array([0, 10, depth, 9999, 10_000, 10_001])
    assert nesting.innermost(tracks, starts, ends, np.zeros(6, np.int64), at).tolist() == [0, 10, depth - 1, 1, 0, -1]
    query, row = nesting.enclosing(tracks, starts, ends, np.zeros(6, np.int64), at)
    assert np.bincount(query, minlength=6).tolist() == [1, 11, depth, 2, 1, 0]
    assert row[query == 1].tolist() == list(range(11))


@pytest.mark.oracle
@pytest.mark.corpus
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_parents_are_those_of_nsys(corpus: Path, nsys: Path, tmp_path: Path, seed: int) -> None:
    """Random ranges in a real export; of lengths that all differ, because nsys leaves ties open and drops equal
    ranges."""
    export = tmp_path / "ranges.sqlite"
    shutil.copyfile(corpus / "nsys" / "schema3.1_nsys2023.1.sqlite", export)
    export.chmod(0o600)
    rng = random.Random(seed)
    database = sqlite3.connect(export)
    rows = [r[0] for r in database.execute("SELECT rowid FROM NVTX_EVENTS WHERE eventType = 59")]
    lengths = rng.sample(range(1, 400), len(rows))
    for row, length in zip(rows, lengths, strict=True):
        start = 10**6 + rng.randrange(500)
        database.execute("UPDATE NVTX_EVENTS SET start = ?, end = ? WHERE rowid = ?", (start, start + length, row))
    database.commit()
    database.close()
    command = [str(nsys), "stats", "-q", "-r", "nvtx_pushpop_trace", "-f", "csv", "--force-export=false", str(export)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    theirs = list(csv.DictReader(io.StringIO(printed)))
    assert len(theirs) == len(rows)
    theirs.sort(key=lambda r: (int(r["Start (ns)"]), -int(r["End (ns)"])))
    starts = np.array([int(r["Start (ns)"]) for r in theirs])
    ends = np.array([int(r["End (ns)"]) for r in theirs])
    depths, parents = nesting.nest(np.zeros(len(theirs), np.int64), starts, ends)
    ids = [r["RangeId"] for r in theirs]
    assert ["" if p < 0 else ids[p] for p in parents] == [r["ParentId"] for r in theirs]
    assert depths.tolist() == [int(r["Lvl"]) for r in theirs]
    assert ((starts[1:] < ends[:-1]) & (ends[1:] > ends[:-1])).any()  # some interleave
