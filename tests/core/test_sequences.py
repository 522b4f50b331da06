"""Alignment within a band against all the paths that there are, tried one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alltrace.align.log_call_matching import align_within_band
from alltrace.core import sequences

ALIKE, MARGIN = 0.35, 1.03
UNKNOWN = math.nan


@st.composite
def jobs(draw):
    n, m, band = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(0, 2))
    number, size, lane = st.integers(0, 2), st.integers(-1, 1), st.integers(-1, 1)
    duration = st.sampled_from([UNKNOWN, 0.0, 0.1, 0.5, 2.0])
    ops = [(draw(number), draw(size), draw(duration), draw(lane)) for _ in range(n)]
    calls = [(draw(number), draw(size), draw(st.integers(0, 2))) for _ in range(m)]
    kinds = [(draw(duration), draw(lane)) for _ in range(3)]
    return ops, calls, kinds, draw(st.integers(-3, 4)), band


def aligned(job):
    ops, calls, kinds, first, band = job
    op, size, duration, lane = (np.array(c) for c in zip(*ops, strict=True))
    call_op, call_size, kind = (np.array(c) for c in zip(*calls, strict=True))
    kind_duration, kind_lane = (np.array(c) for c in zip(*kinds, strict=True))
    durations = duration.astype(float), kind_duration.astype(float)
    return align_within_band(
        op, size, durations[0], lane, call_op, call_size, kind, durations[1], kind_lane, first, band, ALIKE, MARGIN
    )


def match_score(op, call, kind):
    if op[0] != call[0]:
        return None
    score = 1.0
    if op[1] >= 0 and call[1] >= 0:
        score += 0.5 if op[1] == call[1] else -1.0
    if not math.isnan(op[2]) and not math.isnan(kind[0]):
        score += 0.5 - min(abs(op[2] - kind[0]) / ALIKE, 2.0) * 0.5
    if op[3] >= 0 and kind[1] >= 0:
        score += 0.1 if op[3] == kind[1] else -2.0
    return score


class Lattice:
    """Every path of an alignment, walked one by one.

    At a place (i, j) operation i and call j come next. `width` is the column of the places behind the band's last
    match.
    """

    def __init__(self, job):
        self.ops, self.calls, self.kinds, self.first, self.band = job
        self.n, self.m, self.width = len(self.ops), len(self.calls), 2 * self.band + 1

    def column(self, i, j):
        return j - i - self.first + self.band

    def outside(self, j):
        return j <= 0 or j >= self.m

    def onwards(self, i, j, *, leave):
        """(score, calls) of every way from a place to the end, or out of the band where the log has nothing for it."""
        column = self.column(i, j)
        if i == self.n:
            yield 0.0, ()
            if column < self.width:
                yield from self.skip_call(i, j, leave)
            return
        if column < self.width:
            score = match_score(self.ops[i], self.calls[j], self.kinds[self.calls[j][2]]) if 0 <= j < self.m else None
            if score is not None:
                yield from ((score + s, (j, *c)) for s, c in self.onwards(i + 1, j + 1, leave=leave))
            yield from self.skip_call(i, j, leave)
        if column > 0:
            cost = 0.0 if self.outside(j) else 0.7
            yield from ((s - cost, (-1, *c)) for s, c in self.onwards(i + 1, j, leave=leave))
        elif leave and self.outside(j):
            yield 0.0, (-1,) * (self.n - i)

    def skip_call(self, i, j, leave):
        cost = 0.7 if 0 <= j < self.m else 0.0
        return ((s - cost, c) for s, c in self.onwards(i, j + 1, leave=leave))

    def paths(self, *, leave):
        """Those from every beginning: before the first operation, or into the band where the log has nothing before it.

        What lies before the place where a path comes into the band is None.
        """
        for column in range(self.width + 1):
            yield from self.onwards(0, self.first + column - self.band, leave=leave)
        for i in range(1, self.n + 1):
            j = i + self.first + self.width - self.band
            if self.outside(j):
                yield from ((s, (*(None,) * i, *c)) for s, c in self.onwards(i, j, leave=leave))


@settings(deadline=None)
@given(jobs())
def test_the_best_of_all_alignments_is_found(job):
    found = aligned(job)
    paths = list(Lattice(job).paths(leave=False))
    best = max(score for score, _ in paths)
    assert found.score == pytest.approx(best)
    calls = found.call.tolist()
    assert any(
        all(c is None or c == mine for c, mine in zip(path, calls, strict=True))
        for score, path in paths
        if score > best - 1e-8
    )


@settings(deadline=None)
@given(jobs())
def test_a_match_is_sure_where_every_path_to_another_kind_scores_less(job):
    found = aligned(job)
    lattice = Lattice(job)
    paths = list(lattice.paths(leave=True))
    for i, call in enumerate(found.call.tolist()):
        best = dict.fromkeys((True, False), -1e9)
        for score, path in paths:
            if path[i] is not None and path[i] >= 0:
                same = lattice.calls[path[i]][2] == lattice.calls[call][2]
                best[same] = max(best[same], score)
        assert found.sure[i] == (call >= 0 and best[True] - best[False] >= MARGIN)


def test_skipped_operations_and_calls_between_matches_cost_and_those_outside_do_not():
    def score(ops, calls):
        return aligned(
            ([(o, -1, UNKNOWN, -1) for o in ops], [(c, -1, c) for c in calls], [(UNKNOWN, -1)] * 9, 0, 4)
        ).score

    assert score([1, 2, 3], [1, 2, 3]) == pytest.approx(3.0)
    assert score([1, 2, 3], [1, 8, 2, 3]) == pytest.approx(3.0 - 0.7)
    assert score([1, 7, 2, 3], [1, 2, 3]) == pytest.approx(3.0 - 0.7)
    assert score([7, 7, 1, 2, 3], [1, 2, 3]) == pytest.approx(3.0)
    assert score([1, 2, 3, 7, 7], [1, 2, 3]) == pytest.approx(3.0)


def test_arrays_of_other_lengths_are_refused():
    one, half, scores = np.zeros(1, np.int64), np.zeros(1), np.zeros((3, 3))
    with pytest.raises(IndexError):
        sequences.match_scores(one, one, half, one, one, one, one, half, one, 0, ALIKE, scores)
    with pytest.raises(IndexError):  # a kind that there is not
        sequences.match_scores(one, one, half, one, one, one, one + 1, half, one, 0, ALIKE, scores[:1])
    with pytest.raises(IndexError):
        sequences.prefix_scores(scores, 3, 0, np.zeros((4, 3)))
    with pytest.raises(IndexError):
        sequences.suffix_scores(scores, 3, 0, np.zeros((3, 4)))
    with pytest.raises(IndexError):
        sequences.best_path(scores, np.zeros((4, 4)), 3, 0, one)
    with pytest.raises(IndexError):
        sequences.certain_matches(
            scores, np.zeros((4, 4)), np.zeros((4, 4)), np.array([0, 5, 0]), one, 0, 1.0, np.zeros(3, np.bool_)
        )
