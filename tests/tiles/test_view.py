import json
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.making import collective, copy, kernel, make_run
from tests.tiles.conftest import busy_run

from alltrace.tiles.build import pyramid
from alltrace.tiles.cancel import CancelledError, Token
from alltrace.tiles.events import MOST_LANES, lanes_of
from alltrace.tiles.files import NO_DATA
from alltrace.tiles.grid import TILE_BINS
from alltrace.tiles.prefetch import Prefetcher
from alltrace.tiles.tracks import CLASSES, SUMMARY, parse_key
from alltrace.tiles.view import View, pack
from alltrace.trace.errors import AlltraceError, UsageError


def items(view, rank, key, level, first=0, count=1):
    tiles, names = view.tiles([(rank, key)], level, first, count)
    arrays = [t.arrays for t in tiles]
    assert {t.kind for t in tiles} == {"items"}
    return [
        (int(a["start"][i]), int(a["length"][i]), names[int(a["name"][i])], int(a["count"][i]), int(a["lane"][i]))
        for a in arrays
        for i in range(len(a["start"]))
    ]


def test_events_are_exact_to_the_nanosecond_and_nested_ones_lie_below(view):
    assert items(view, 0, "ranges/0", 9) == [(0, 130_000, "step 0", 1, 0), (10_000, 25_000, "forward", 1, 1)]
    assert items(view, 0, "gpu/0/0/7", 9) == [
        (40_000, 40_000, "gemm_kernel", 1, 0),
        (90_000, 10_000, "softmax_kernel", 1, 0),
    ]
    assert items(view, 0, "gpu/0/0/30", 9) == [(110_000, 10_000, "HtoD", 1, 0)]
    # bins of one ns, in the middle of a kernel
    assert items(view, 0, "gpu/0/0/7", 0, 100, 1) == [(40_000, 40_000, "gemm_kernel", 1, 0)]


def test_narrow_events_of_a_bin_are_one_named_by_the_longest(tmp_path):
    rows = [
        kernel(0, 10, "void a(int)"),
        kernel(20, 50, "void b(int)"),
        kernel(60, 70, "void a(int)"),
        kernel(128, 400, "void c(int)"),
    ]
    run = make_run(tmp_path / "run", {0: {"kernels": rows}})
    view = View(run, pyramid(run, jobs=1))
    assert items(view, 0, "gpu/0/0/7", 7) == [(0, 70, "b", 3, 0), (128, 272, "c", 1, 0)]
    (tile,) = view.tiles([(0, "gpu/0/0/7")], 7, 0, 1)[0]
    assert tile.arrays["share"].tolist() == [round(50 / 70 * 255), 255]
    assert tile.arrays["row"].tolist() == [1, 3]


def test_the_summary_divides_time_as_the_breakdown_does_at_every_level(view):
    for level in (9, view.grid.level, 16):
        (tile,) = view.tiles([(0, "summary")], level, 0, 1)[0]
        share = tile.arrays["share"].reshape(3, -1).astype(float) / 255 * 2**level
        assert tile.classes == ("compute", "exposed communication", "exposed copy")
        assert share.sum(axis=1) == pytest.approx([50_000, 10_000, 10_000], abs=2**level / 255 * 6 + 1)


def test_a_wide_view_costs_bins_and_a_narrow_one_the_events_themselves(tmp_path):
    run = busy_run(tmp_path / "run")
    view = View(run, pyramid(run, jobs=1))
    (tile,) = view.tiles([(0, "gpu/0/0/7")], 13, 0, 1)[0]
    assert tile.kind == "bins"
    shares = tile.arrays["share"].reshape(3, -1)
    assert shares[0][:48] == pytest.approx(np.full(48, 0.6 * 255), abs=2)
    assert not shares[1:].any()
    assert len(items(view, 0, "gpu/0/0/7", 2, 0, 1)) == 21
    key = next(t.key for t in view.tracks(0) if t.key.startswith("metric/"))
    for level in (2, 14):
        (metric,) = view.tiles([(0, key)], level, 0, 1)[0]
        known = metric.arrays["mean"][~np.isnan(metric.arrays["mean"])]
        assert 0 < len(known) < TILE_BINS
        assert known[0] == pytest.approx(0 if level == 2 else (3 * 4950 + 378) / 328)


def test_a_view_outside_is_empty_and_each_kind_has_its_class(view):
    tiles, names = view.tiles([(0, "gpu/0/0/7"), (0, "summary")], 62, 1 << 40, 2)
    assert [t.kind for t in tiles] == ["items", "items", "bins", "bins"]
    assert not names
    assert not tiles[-1].arrays["share"].any()
    codes = {}
    for key in ("gpu/0/0/7", "gpu/0/0/20", "gpu/0/0/30", "api/0", "ranges/0"):
        (tile,) = view.tiles([(0, key)], 9, 0, 1)[0]
        codes[key] = {CLASSES[c] for c in tile.arrays["code"]}
    assert list(codes.values()) == [{"compute"}, {"communication"}, {"copy"}, {"api"}, {"range"}]


@pytest.mark.parametrize(
    ("tracks", "level", "first", "count", "message"),
    [
        ([(9, "summary")], 5, 0, 1, "rank 9 is not in the run"),
        ([(0, "gpu/0/0/8")], 5, 0, 1, "no track 'gpu/0/0/8'"),
        ([(0, "../x")], 5, 0, 1, "unknown track '../x'"),
        ([(0, "summary")], 63, 0, 1, "of level 63"),
        ([(0, "summary")], 5, -1, 1, "from -1"),
        ([(0, "summary")], 5, 0, 9000, "9000 tiles"),
    ],
)
def test_what_is_not_there_is_refused(view, tracks, level, first, count, message):
    with pytest.raises(UsageError, match=message):
        view.tiles(tracks, level, first, count)


def test_the_heat_map_is_right_at_coarser_levels_and_work_stops(view):
    token = Token()
    token.cancel()
    with pytest.raises(CancelledError):
        view.tiles([(0, "summary")], 9, 0, 1, token)
    grid = view.grid
    fine = view.heat("busy", grid.level, 0)
    assert fine.shape == (2, grid.bins(grid.level))
    whole = view.heat("busy", grid.level + 12, 0)
    assert whole.shape == (2, 1)
    assert whole[:, 0] / 65534 == pytest.approx([70 / 130, 70 / 130], abs=0.001)
    idle = view.heat("idle", grid.level + 12, 0)
    assert (idle[:, 0] + whole[:, 0].astype(int)).tolist() == [65534, 65534]
    assert view.heat("busy", grid.level, 5).shape == (2, 0)
    with pytest.raises(UsageError, match="unknown metric 'bussy'; did you mean busy"):
        view.heat("bussy", grid.level, 0)
    with pytest.raises(UsageError, match="unknown tile"):
        view.heat("busy", grid.level - 1, 0)


def test_no_data_does_not_weigh_and_many_streams_are_tracks(tmp_path):
    run = make_run(tmp_path / "run", {0: {}, 1: {"kernels": [kernel(0, 1000)]}})
    view = View(run, pyramid(run, jobs=1))
    assert view.heat("compute", 20, 0).tolist() == [[NO_DATA], [65534]]
    assert view.heat("idle", 20, 0).tolist() == [[NO_DATA], [0]]
    rows = [kernel(10 * i, 10 * i + 5, stream=i) for i in range(10_000)]
    run = make_run(tmp_path / "2" / "run", {0: {"kernels": rows}})
    view = View(run, pyramid(run, jobs=1))
    tracks = [t.key for t in view.tracks(0) if t.key.startswith("gpu/")]
    assert len(tracks) == 10_000
    assert items(view, 0, "gpu/0/0/9999", 7) == []
    assert items(view, 0, "gpu/0/0/9999", 9) == [(99_990, 5, "gemm_kernel", 1, 0)]


def test_tiles_travel_as_bytes(view):
    tiles, names = view.tiles([(0, "gpu/0/0/7"), (0, "summary")], 9, 0, 1)
    names[next(iter(names))] = "x" * 300
    packed = pack(tiles, names, {"level": 9})
    assert packed[:4] == b"ATB1"
    size = int.from_bytes(packed[4:8], "little")
    header = json.loads(packed[8 : 8 + size])
    assert header["level"] == 9
    assert max(len(n) for n in header["names"]) == 200
    arrays = {a[0]: a for a in header["tiles"][0]["arrays"]}
    name, kind, offset, length = arrays["start"]
    start = np.frombuffer(packed, f"<{kind}", length, 8 + size + offset)
    assert (name, start.tolist()) == ("start", [40_000.0, 90_000.0])
    assert (8 + size + offset) % 8 == 0


def test_a_deviceless_copy_on_two_devices_counts_both(tmp_path):
    rows = {
        "devices": [{"device": d, "ordinal": d, "uuid": f"GPU-{d}", "name": "H200"} for d in (0, 1)],
        "kernels": [kernel(0, 1000), kernel(0, 500, device=1), collective(500, 1000, device=1)],
        "copies": [copy(0, 1000, device=1)],
    }
    run = make_run(tmp_path / "run", {0: rows})
    view = View(run, pyramid(run, jobs=1))
    assert view.heat("compute", 10, 0)[0, 0] == pytest.approx(65534 * 0.75, abs=1)
    assert view.heat("exposed", 10, 0)[0, 0] == pytest.approx(65534 * 0.25, abs=1)
    (tile,) = view.tiles([(0, "summary")], 1, 0, 1)[0]
    share = tile.arrays["share"].reshape(3, -1)[:, :499].astype(int)
    assert share[:, 0].tolist() == [255, 0, 0]
    assert share[:, 300].tolist() == [128, 128, 0]


def test_keys_of_tracks_are_read_strictly():
    assert parse_key("gpu/0/-1/7") == ("gpu", (0, -1, 7))
    for bad in ("gpu/0/0", "gpu/a/0/7", "nothing/1", "", "summary/1", f"ranges/{1 << 70}"):
        with pytest.raises(UsageError):
            parse_key(bad)


def lanes(pairs):
    starts, ends = (np.array(v, np.int64) for v in zip(*pairs, strict=True))
    return lanes_of(starts, ends).tolist()


def test_what_overlaps_has_lanes_up_to_a_last_one():
    assert lanes([(0, 10), (10, 20), (30, 40)]) == [0, 0, 0]
    assert lanes([(0, 100), (10, 50), (20, 30), (60, 70), (100, 110)]) == [0, 1, 2, 1, 0]
    assert lanes_of(np.zeros(0, np.int64), np.zeros(0, np.int64)).tolist() == []
    assert max(lanes([(i, 1000) for i in range(100)])) == MOST_LANES - 1


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=20))
def test_no_two_of_a_lane_overlap(pairs):
    spans = sorted((s, s + n) for s, n in pairs)
    found = lanes(spans)
    for lane in set(found):
        own = [s for s, at in zip(spans, found, strict=True) if at == lane]
        assert all(b[0] >= a[1] for a, b in pairwise(own))


def test_wishes_wait_while_somebody_asks_and_the_latest_count():
    ahead, did, gate = Prefetcher(), [], threading.Event()

    def fails():
        raise AlltraceError("no")

    ahead.want([gate.wait, lambda: did.append("old")])
    ahead.want([fails, lambda: did.append("new")])
    gate.set()
    assert ahead.done(20)
    assert did == ["new"]
    with ahead.paused():
        ahead.want([lambda: did.append("later")])
        assert not ahead.done(0.05)
        assert did == ["new"]
    assert ahead.done(20)
    assert did == ["new", "later"]


def test_a_view_just_coarser_than_the_bins_reads_what_lies_below_it(tmp_path):
    run = busy_run(tmp_path / "run", ranks=2)
    view = View(run, pyramid(run, jobs=1))
    view.tiles([(0, SUMMARY), (1, SUMMARY)], view.grid.level + 5, 0, 1)
    assert view.prefetcher.done(20)
    assert view.events._cache.nbytes == 0, "too coarse to tell where somebody will zoom"
    view.tiles([(0, SUMMARY), (1, SUMMARY)], view.grid.level + 1, 0, 1)
    assert view.prefetcher.done(20)
    held = view.events._cache.nbytes
    assert held > 0
    view.tiles([(0, SUMMARY), (1, SUMMARY)], view.grid.level - 2, 0, 1)
    assert view.events._cache.nbytes == held, "nothing was left to read"
