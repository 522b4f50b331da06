"""Interval arithmetic against sets of integer points."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.trace import intervals as iv

LOW, HIGH = -8, 20
MIN, MAX = iv.INT64_MIN, iv.INT64_MAX
point = st.integers(LOW, HIGH)
pairs = st.lists(st.tuples(point, point), max_size=12)


def arrays(given_pairs):
    table = np.array(given_pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def points(given_pairs):
    return {p for s, e in given_pairs for p in range(s, e)}


def of(merged):
    """The points of a set, which must be in normal form."""
    starts, ends = merged.starts.tolist(), merged.ends.tolist()
    assert all(s < e for s, e in zip(starts, ends, strict=True))
    assert all(e < s for e, s in zip(ends, starts[1:], strict=False))
    assert merged.starts.dtype == merged.ends.dtype == np.int64
    return points(zip(starts, ends, strict=True))


def merged_of(given_pairs):
    return iv.merge(*arrays(given_pairs))


@given(pairs)
def test_merge(a):
    assert of(merged_of(a)) == points(a)
    assert of(merged_of(sorted(a))) == points(a)
    assert merged_of(a).total_ns == len(points(a))


def test_merge_touching_and_empty():
    merged = merged_of([(0, 5), (5, 7), (9, 9), (8, 6), (10, 11)])
    assert (merged.starts.tolist(), merged.ends.tolist()) == ([0, 10], [7, 11])
    assert merged.durations_ns.tolist() == [7, 1]
    assert merged_of([]).total_ns == 0
    assert merged_of([(3, 3)]).total_ns == 0


@given(pairs, pairs)
def test_set_operations(a, b):
    first, second = merged_of(a), merged_of(b)
    assert of(iv.union([first, second])) == points(a) | points(b)
    assert of(iv.intersection(first, second)) == points(a) & points(b)
    assert of(iv.difference(first, second)) == points(a) - points(b)


@given(pairs, point, point)
def test_clip_and_gaps(a, start, end):
    merged = merged_of(a)
    window = set(range(start, end))
    assert of(iv.clip(merged, start, end)) == points(a) & window
    assert of(iv.gaps(merged, start, end)) == window - points(a)
    covered = points(a)
    between = set(range(min(covered), max(covered))) - covered if covered else set()
    assert of(iv.gaps(merged)) == between
    if covered:
        assert of(iv.gaps(merged, start=LOW)) == set(range(LOW, max(covered))) - covered
        assert of(iv.gaps(merged, end=HIGH)) == set(range(min(covered), HIGH)) - covered


@given(pairs, pairs)
def test_overlap(a, b):
    expected = [len(set(range(s, e)) & points(b)) for s, e in a]
    assert iv.overlap_ns(*arrays(a), merged_of(b)).tolist() == expected
    ordered = sorted(a)
    expected = [len(set(range(s, e)) & points(b)) for s, e in ordered]
    assert iv.overlap_ns(*arrays(ordered), merged_of(b)).tolist() == expected


@given(pairs, point, st.integers(1, 30), st.integers(1, 12))
def test_bins(a, start, length, bins):
    edges = iv.bin_edges(start, start + length, bins)
    assert (edges[0], edges[-1], len(edges)) == (start, start + length, bins + 1)
    assert set(np.diff(edges)) <= {length // bins, length // bins + 1}
    parts = [set(range(s, e)) for s, e in pairwise(edges)]
    assert iv.bin_coverage_ns(merged_of(a), edges).tolist() == [len(points(a) & p) for p in parts]
    load = [sum(len(set(range(s, e)) & p) for s, e in a) for p in parts]
    assert iv.bin_load_ns(*arrays(a), edges).tolist() == load


def test_bin_edges_refuse_what_cannot_be_parted():
    for start, end, bins in ((0, 10, 0), (5, 5, 3), (6, 5, 3), (MIN, MAX, 2)):
        with pytest.raises(ValueError, match="cannot part"):
            iv.bin_edges(start, end, bins)
    edges = iv.bin_edges(-5, MAX - 5, 1000)
    assert (edges[0], edges[-1], edges[500]) == (-5, MAX - 5, -5 + MAX // 2)


@given(st.lists(pairs, max_size=4), point, point)
def test_classes(classes, start, end):
    left = set(range(start, end))
    span = len(left)
    expected = []
    for each in classes:
        expected.append(len(left & points(each)))
        left -= points(each)
    times = iv.classify_ns([merged_of(c) for c in classes], start, end)
    assert times == [*expected, len(left)]
    assert sum(times) == span
    taken = set()
    for each, merged in zip(classes, iv.exclusive([merged_of(c) for c in classes]), strict=True):
        assert of(merged) == points(each) - taken
        taken |= points(each)


@given(pairs)
def test_concurrency(a):
    level = iv.concurrency(*arrays(a))
    times, counts = level.times.tolist(), level.counts.tolist()
    assert times == sorted(set(times))
    assert all(x != y for x, y in pairwise(counts))
    for p in range(LOW - 1, HIGH + 2):
        position = int(np.searchsorted(level.times, p, "right")) - 1
        assert (counts[position] if position >= 0 else 0) == sum(s <= p < e for s, e in a)


@given(pairs, st.lists(point, max_size=8))
def test_containing_and_nearest(a, where):
    merged = merged_of(a)
    spans = list(zip(merged.starts.tolist(), merged.ends.tolist(), strict=True))
    at = np.array(where, np.int64)
    holds = [next((i for i, (s, e) in enumerate(spans) if s <= p < e), -1) for p in where]
    assert iv.containing(merged, at).tolist() == holds
    distance = [[0 if s <= p < e else s - p if p < s else p - e + 1 for s, e in spans] for p in where]
    assert iv.nearest(merged, at).tolist() == [d.index(min(d)) if d else -1 for d in distance]


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 1), point, point), max_size=15))
def test_by_track(rows):
    table = np.array(rows, np.int64).reshape(-1, 4)
    found = {track: table[taken].tolist() for track, taken in iv.by_track(table[:, 0], table[:, 1])}
    assert list(found) == sorted({(r[0], r[1]) for r in rows})
    for track, taken in found.items():
        assert taken == [list(r) for r in rows if (r[0], r[1]) == track]
    unions = iv.merge_by_track(table[:, 0], table[:, 2], table[:, 3])
    assert {t: of(m) for t, m in unions.items()} == {
        t: points((r[2], r[3]) for r in rows if r[0] == t) for t in {r[0] for r in rows}
    }


def test_slices_extremes_and_large_inputs():
    assert list(iv.by_track(np.array([3, 3, 5]), np.array([1, 1, 0]))) == [((3, 1), slice(0, 2)), ((5, 0), slice(2, 3))]
    assert list(iv.by_track(np.empty(0, np.int64))) == []
    everything = merged_of([(MIN, 0), (-1, MAX)])
    assert everything.total_ns == 2**64 - 1
    edge = merged_of([(MIN, MIN + 3), (MAX - 4, MAX)])
    assert edge.total_ns == 7
    inner = iv.difference(everything, edge)
    assert (inner.starts.tolist(), inner.ends.tolist()) == ([MIN + 3], [MAX - 4])
    assert iv.intersection(everything, edge).total_ns == 7
    starts, ends = arrays([(MIN, MAX), (MIN, MIN + 2), (0, MAX), (MAX - 1, MAX)])
    assert iv.overlap_ns(starts, ends, edge).tolist() == [7, 2, 4, 1]
    assert iv.overlap_ns(starts, ends, everything).tolist() == [
        MAX,
        2,
        MAX,
        1,
    ]  # the first is cut to what an int64 holds
    assert iv.classify_ns([edge], MIN, MAX) == [7, 2**64 - 8]
    assert iv.gaps(edge, MIN, MAX).total_ns == 2**64 - 8
    assert iv.nearest(edge, np.array([MIN, 0, MAX])).tolist() == [0, 1, 1]
    assert iv.containing(edge, np.array([MIN, 0, MAX - 1, MAX])).tolist() == [0, -1, 1, -1]
    load = iv.bin_load_ns(*arrays([(MAX - 10, MAX)] * 3), np.array([MAX - 20, MAX - 5, MAX]))
    assert load.tolist() == [15, 15]
    rng = np.random.default_rng(5)
    starts = np.sort(rng.integers(0, 10**9, 20_000))
    ends = starts + rng.integers(0, 60_000, len(starts))
    merged = iv.merge(starts, ends)
    half = iv.merge(starts[::2] + 7, ends[::2])
    both = iv.intersection(merged, half)
    covered = iv.overlap_ns(half.starts, half.ends, merged)
    assert covered.sum() == both.total_ns
    assert both.total_ns + iv.difference(half, merged).total_ns == half.total_ns
    edges = iv.bin_edges(0, int(merged.ends[-1]), 1000)
    assert iv.bin_coverage_ns(merged, edges).sum() == merged.total_ns
    assert iv.bin_load_ns(starts, ends, edges).sum() == (ends - starts).sum()
    level = iv.concurrency(starts, ends)
    lengths, counts = np.diff(level.times), level.counts[:-1]
    assert lengths[counts > 0].sum() == merged.total_ns
    assert (lengths * counts).sum() == (ends - starts).sum()
