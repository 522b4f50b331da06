from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.making import kernel, make_run
from tests.viewer_traces import all_nest

from alltrace.export.chrome import export_chrome
from alltrace.export.selection import select
from alltrace.export.tracks import tracks_of
from alltrace.export.viewer_tracks import MOST_TOGETHER, ViewerTracks, process_ids, thread_ids
from alltrace.trace.errors import UsageError

SLICES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 30), st.integers(0, 12)), max_size=60)


@given(SLICES, st.integers(1, 5))
def test_slices_of_a_track_nest_and_none_is_put_beside_without_need(rows, pieces):
    rows = sorted(((b, k, s, s + n) for b, k, s, n in rows), key=lambda r: (r[2], -r[3]))
    placed, found = ViewerTracks(), []
    for part in np.array_split(np.array(rows, np.int64).reshape(-1, 4), pieces):
        bases, kinds, starts, ends = (np.ascontiguousarray(c) for c in part.T)
        tracks, orders = placed.place(bases, kinds, ["a", "b"], np.zeros(len(part), np.int64), starts, ends)
        found += zip(part.tolist(), tracks.tolist(), orders.tolist(), strict=True)
    on = defaultdict(list)
    for (base, kind, start, end), number, order in found:
        track = placed.tracks[number]
        assert (track.base, track.label) == (base, "ab"[kind])
        assert order == sum(s == start and e > s for s, e in on[number])
        for lane in range(track.lane):  # it crosses something on each track before its own
            assert not all_nest([*on[placed.number(base, "ab"[kind], lane)], (start, end)])
        on[number].append((start, end))
    assert all(map(all_nest, on.values()))
    assert placed.beside == sum(placed.tracks[n].lane > 0 for _, n, _ in found)


def test_slices_that_start_together_or_are_of_two_processes():
    count = 3 * MOST_TOGETHER
    starts, ends = np.zeros(count, np.int64), np.arange(count, 0, -1)
    none = np.zeros(count, np.int64)
    tracks, orders = ViewerTracks().place(none, none, ["a"], none, starts, ends)
    assert orders.max() < MOST_TOGETHER
    assert sorted(zip(tracks.tolist(), orders.tolist(), strict=True)) == [
        (t, o) for t in range(3) for o in range(MOST_TOGETHER)
    ]
    placed = ViewerTracks()
    one, two = np.zeros(1, np.int64), np.ones(1, np.int64)
    first, _ = placed.place(one, one, ["a"], one, np.array([50]), np.array([60]))
    second, _ = placed.place(one, one, ["a"], two, np.array([0]), np.array([10]))
    third, _ = placed.place(one, one, ["a"], one, np.array([55]), np.array([70]))
    assert [first[0], second[0], third[0]] == [0, 1, 2]
    assert [placed.tracks[n].lane for n in placed.in_order()] == [0, 1, 2]


def test_process_and_thread_ids_are_the_systems_where_they_are_one_ranks_alone(tmp_path):
    threads = [{"thread": t, "process": 0, "tid": tid} for t, tid in enumerate((77, None, 78))]
    calls = [{"start": t, "end": t + 1, "name": "f", "thread": t} for t in range(3)]
    run = make_run(tmp_path / "run", {r: {"threads": threads, "osrt": calls} for r in range(3)})
    selection = select(run)
    assert process_ids(selection) == {0: 4000, 1: 4001, 2: 4002}
    same = replace(selection, ranks=tuple(r._replace(pids=(1,) if r.rank < 2 else (9,)) for r in selection.ranks))
    ids = process_ids(same)
    assert ids[2] == 9
    assert len(set(ids.values())) == 3
    assert min(ids[0], ids[1]) > 1 << 22
    taken: set[int] = set()
    found = [thread_ids(tracks_of(selection, r), taken) for r in selection.ranks]
    assert found[0][0] == 77
    assert found[0][2] == 78
    assert len({n for own in found for n in own}) == 9
    assert all(n > 1 << 22 for own in found[1:] for n in own)


def test_a_run_that_needs_too_many_tracks_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", exc_type=ImportError)
    from alltrace.export import perfetto

    monkeypatch.setattr(perfetto, "_MOST_TRACKS", 3)
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(i, 100 + i) for i in range(5)]}})
    with pytest.raises(UsageError, match="rank 0 needs 5 tracks"):
        perfetto.export_perfetto(select(run), tmp_path / "t")
    assert export_chrome(select(run), tmp_path / "t.json").beside == 4
