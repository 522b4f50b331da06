"""Sweeps over intervals and nesting, with times anywhere in int64, against plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from alltrace.trace import intervals as iv
from alltrace.trace import nesting
from tests.fuzz.fields import Fields

Int64 = NDArray[np.int64]
Pairs = list[tuple[int, int]]

_COMPARED = 24  # intervals at most that plain Python computes the answer of
_MOST = 4_000
_FAR = 1 << 62
_MOST_PAIRS = 1 << 20


def corpus() -> list[bytes]:
    """Two sets of intervals and the tracks of the first: sorted, nested, random, at the ends of int64, none, one,
    many."""
    draw = Random(1)
    found = []
    for count, other in ((0, 0), (1, 0), (1, 1), (3, 5), (8, 8), (16, 12), (24, 24)):
        for ends in (_spread, _nested, _extreme):
            found.append(_packed(ends(count, draw), _spread(other, draw), draw))
            found.append(_packed(sorted(ends(count, draw)), sorted(ends(other, draw)), draw))
    found.append(
        _packed([(n, 10_000 - n) for n in range(1_500)], [(5_000, 5_001)] * 20, Random(0))
    )  # deeper than first room
    found.append(_packed(_spread(700, draw), _spread(300, draw), draw))
    return found


def _spread(count: int, draw: Random) -> Pairs:
    return [(start := draw.randrange(1_000), start + draw.choice((0, 1, 10, 300, -5))) for _ in range(count)]


def _nested(count: int, draw: Random) -> Pairs:
    return [(n * draw.choice((0, 1)), 1_000 - n * draw.choice((1, 2))) for n in range(count)]


def _extreme(count: int, draw: Random) -> Pairs:
    ends = (iv.INT64_MIN, iv.INT64_MAX, -_FAR, _FAR, 0)
    return [
        (
            max(iv.INT64_MIN, draw.choice(ends) - draw.randrange(3)),
            min(iv.INT64_MAX, draw.choice(ends) + draw.randrange(3)),
        )
        for _ in range(count)
    ]


def _packed(pairs: Pairs, others: Pairs, draw: Random) -> bytes:
    columns = [[p[0] for p in pairs], [p[1] for p in pairs], [p[0] for p in others], [p[1] for p in others]]
    head = len(pairs).to_bytes(2, "little") + len(others).to_bytes(2, "little")
    times = b"".join(np.array(c, "<i8").tobytes() for c in columns)
    return head + times + bytes(draw.randrange(2) for _ in pairs) + bytes(draw.randrange(2) for _ in others)


def run(data: bytes) -> None:
    """Every sweep over the intervals in `data`."""
    fields = Fields(data)
    count = fields.number(_MOST)
    other = fields.number(_MOST)
    count = min(count, fields.left() // 16 + 1)
    other = min(other, max(0, fields.left() - 16 * count) // 16 + 1)
    starts, ends = fields.int64(count), fields.int64(count)
    other_starts, other_ends = fields.int64(other), fields.int64(other)
    tracks, other_tracks = fields.small(count) % 3, fields.small(other) % 3
    _sets(starts, ends, other_starts, other_ends)
    _points(starts, ends, other_starts)
    _nesting((tracks, starts, ends), (other_tracks, other_starts, other_ends))


def _sets(starts: Int64, ends: Int64, other_starts: Int64, other_ends: Int64) -> None:
    one, other = iv.merge(starts, ends), iv.merge(other_starts, other_ends)
    both, either, less = iv.intersection(one, other), iv.union((one, other)), iv.difference(one, other)
    for merged in (one, other, both, either, less):
        _normal(merged)
    covered = iv.overlap_ns(starts, ends, other)
    assert one.total_ns == both.total_ns + less.total_ns
    assert either.total_ns == other.total_ns + less.total_ns
    if len(one.starts):
        low, high = int(one.starts[0]), int(one.ends[-1])
        assert iv.gaps(one).total_ns + one.total_ns == high - low
        assert sum(iv.classify_ns((one, other), low, high)) == high - low
        _bins(one, low, high)
    if len(starts) <= _COMPARED and len(other_starts) <= _COMPARED:
        plain_one, plain_other = (
            _union(zip(starts.tolist(), ends.tolist(), strict=True)),
            _union(zip(other_starts.tolist(), other_ends.tolist(), strict=True)),
        )
        assert _pairs(one) == plain_one
        assert _pairs(other) == plain_other
        assert _pairs(both) == _union((max(a, c), min(b, d)) for a, b in plain_one for c, d in plain_other)
        assert covered.tolist() == [
            min(iv.INT64_MAX, sum(max(0, min(end, b) - max(start, a)) for a, b in plain_other))
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]


def _bins(merged: iv.Merged, low: int, high: int) -> None:
    if high - low > iv.INT64_MAX:
        return
    edges = iv.bin_edges(low, high, 7)
    assert int(iv.bin_coverage_ns(merged, edges).astype(object).sum()) == merged.total_ns


def _normal(merged: iv.Merged) -> None:
    assert (merged.starts < merged.ends).all()
    assert (merged.ends[:-1] < merged.starts[1:]).all()


def _pairs(merged: iv.Merged) -> Pairs:
    return list(zip(merged.starts.tolist(), merged.ends.tolist(), strict=True))


def _union(pairs: object) -> Pairs:
    found: Pairs = []
    for start, end in sorted(p for p in pairs if p[0] < p[1]):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _points(starts: Int64, ends: Int64, points: Int64) -> None:
    levels = iv.concurrency(starts, ends)
    merged = iv.merge(starts, ends)
    inside, near = iv.containing(merged, points), iv.nearest(merged, points)
    assert (levels.counts >= 0).all()
    assert (near[inside >= 0] == inside[inside >= 0]).all()
    if len(points) and len(merged.starts):
        assert ((near >= 0) & (near < len(merged.starts))).all()


def _nesting(ranges: Sequence[Int64], calls: Sequence[Int64]) -> None:
    order = np.lexsort(
        (-np.clip(np.maximum(ranges[1], ranges[2]), -_FAR, _FAR - 1), np.clip(ranges[1], -_FAR, _FAR - 1), ranges[0])
    )
    ordered = [c[order] for c in ranges]
    depths, parents = nesting.nest(*ordered)
    inner = nesting.innermost(*ranges, *calls)
    few = len(ranges[0]) <= _COMPARED and len(calls[0]) <= _COMPARED
    if few or len(ranges[0]) * len(calls[0]) <= _MOST_PAIRS:
        query, row = nesting.enclosing(*ranges, *calls)
        assert (inner[query] >= 0).all()
    if not few:
        return
    outer = _rows(ordered)
    for child, parent in enumerate(parents.tolist()):
        assert parent == _shortest(outer, lambda n, child=child: n < child and _encloses(outer[n], outer[child]))
        assert depths[child] == (0 if parent < 0 else depths[parent] + 1)
    outer, inside = _rows(ranges), _rows(calls)
    for call, found in enumerate(inner.tolist()):
        assert found == _shortest(outer, lambda n, call=call: _encloses(outer[n], inside[call]))
    expected = {(c, n) for c, call in enumerate(inside) for n, its in enumerate(outer) if _encloses(its, call)}
    pairs = list(zip(query.tolist(), row.tolist(), strict=True))
    assert len(pairs) == len(expected)
    assert set(pairs) == expected


def _rows(columns: Sequence[Int64]) -> list[tuple[int, int, int]]:
    """Track, start and end, as the sweeps take them: no end before its start, no time beyond +-2**62."""
    return [
        (track, max(-_FAR, min(_FAR - 1, start)), max(-_FAR, min(_FAR - 1, max(start, end))))
        for track, start, end in zip(*(c.tolist() for c in columns), strict=True)
    ]


def _encloses(outer: tuple[int, int, int], inner: tuple[int, int, int]) -> bool:
    return outer[0] == inner[0] and outer[1] <= inner[1] and outer[2] >= inner[2]


def _shortest(rows: list[tuple[int, int, int]], encloses: Callable[[int], bool]) -> int:
    """The shortest row that encloses; of equally short ones the last by start, descending end and row; -1 where there
    is none."""
    found = [n for n in range(len(rows)) if encloses(n)]
    return min(found, key=lambda n: (rows[n][2] - rows[n][1], -rows[n][1], rows[n][2], -n), default=-1)
