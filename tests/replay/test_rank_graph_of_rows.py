"""Parts of a rank's graph, on rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from alltrace.replay import rank_graph
from alltrace.replay.rank_graph import UNKNOWN, _begun, _Builder, _host_meetings, _parts


@pytest.mark.parametrize("size", [8, 4, 3])
def test_rows_are_taken_some_at_a_time_with_the_parts_of_segments_in_them(monkeypatch, size):
    monkeypatch.setattr(
        rank_graph, "blocks", lambda count: (slice(n, min(n + size, count)) for n in range(0, count, size))
    )
    parts = list(_parts(np.array([0, 3, 5]), 8))
    assert [(rows.start, rows.stop) for rows, _, _, _ in parts] == {
        8: [(0, 8)],
        4: [(0, 4), (4, 8)],
        3: [(0, 3), (3, 6), (6, 8)],
    }[size]
    assert np.concatenate([numbers[part] for _, _, numbers, part in parts]).tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert [begin.tolist() for _, begin, _, _ in parts] == {8: [[0, 3, 5]], 4: [[0, 3], [0, 1]], 3: [[0], [0, 2], [0]]}[
        size
    ]


def rank_with(**columns):
    table = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    return SimpleNamespace(table=lambda name, wanted: table.select(list(wanted)), host_work=object())


def test_calls_of_the_host_meet_from_their_begin_or_their_wait_to_their_end():
    rank = rank_with(
        start=[None, None, None, 5, None, None], api_start=[10, 0, 3, 1, None, 20],
        wait_start=[None, 30, 2, None, 4, None], api_end=[15, 40, 9, 8, 9, 20],
    )  # fmt: skip
    meetings, unplaced = _host_meetings(rank, np.arange(6), {5})
    assert meetings == [(3, 3, 9, 2), (10, 10, 15, 0), (0, 30, 40, 1)]
    assert unplaced == 1
    assert _host_meetings(rank, np.array([5]), {5}) == ([], 0)


def test_what_a_call_began_is_the_work_that_starts_with_it():
    rank = rank_with(api_start=[100, 300, 500], wait_start=[400, None, 600])
    work = SimpleNamespace(
        track=np.array([0, 0, 0, 1, 1]), start=np.array([90, 100, 400, 500, 600]), rows={2: [0], 3: [1], 4: [2]}
    )
    assert _begun(rank, work) == {0: 1, 2: 3}
    assert _begun(SimpleNamespace(host_work=None), work) == {}
    late = SimpleNamespace(track=work.track, start=np.array([90, 101, 400, 501, 600]), rows=work.rows)
    assert _begun(rank, late) == {}


def test_an_anchor_is_the_last_moment_at_which_the_host_goes_on_by_then_and_before_a_node():
    builder = object.__new__(_Builder)
    builder._moment_ns, builder._going = np.array([0, 5, 5, 9]), np.array([0, 2, 3])
    assert builder._anchor(np.array([-1, 4, 5, 8, 20])).tolist() == [0, 0, 2, 2, 3]
    assert builder._anchor(np.array([5, 5, 20, 20]), np.array([2, 3, 3, 0])).tolist() == [0, 2, 2, 0]


def builder_of(track, start, end):
    """A builder of pieces of work whose launches are unknown."""
    builder = object.__new__(_Builder)
    track, unknown = np.array(track), np.full(len(start), UNKNOWN)
    builder._work = SimpleNamespace(track=track, start=np.array(start), launch=unknown, launched=unknown)
    builder._end = np.array(end)
    builder._bounds = np.searchsorted(track, np.arange(track.max() + 2))
    builder._first = np.isin(np.arange(len(track)), builder._bounds[:-1])
    builder._within, builder._of_host = np.zeros(len(track), bool), False
    return builder


def test_work_waits_for_the_work_of_another_stream_that_ended_last():
    assert builder_of([0, 1, 2], [0, 0, 100], [90, 80, 150])._ended_just_before(np.array([2])).tolist() == [-1, -1, 0]
    assert builder_of([0, 1, 2], [0, 0, 100], [80, 90, 150])._ended_just_before(np.array([2])).tolist() == [-1, -1, 1]


def test_the_usual_pause_is_the_median_of_those_up_to_the_longest_that_needs_no_cause():
    builder = builder_of([0, 0, 0, 0], [0, 2_000, 8_000, 14_001], [1_000, 3_000, 9_000, 15_000])
    builder._anchor = lambda moments: np.zeros(len(moments), np.int32)
    builder._told = lambda binding: np.full(len(binding), -1, np.int32)
    builder._explain()
    assert builder._gap == (1_000 + 5_000) // 2
