import json

import numpy as np
import pytest
from tests.making import flip, kernel, make_run
from tests.tiles.conftest import busy_run
from tests.together import together

from alltrace.align.store import aligned
from alltrace.run.checked_arrow import read_table
from alltrace.run.manifest import write_manifest
from alltrace.run.store import Run
from alltrace.tiles.build import inputs_of, pyramid
from alltrace.tiles.files import FACTS, HEAT, NO_DATA, heat_arrays, rank_file, read_rank
from alltrace.tiles.grid import MOST_SPAN_NS, TILE_BINS, Grid, grid_of, level_for, power_of_two
from alltrace.tiles.labels import labelled
from alltrace.tiles.rank_tiles import shared_tables, summary_of, tracks_of
from alltrace.tiles.view import View
from alltrace.trace.errors import AlltraceError, DamageError


def size_of(folder):
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def test_the_bins_of_a_rank_add_up_to_what_it_did(run):
    aligned(run)
    made = pyramid(run, jobs=1)
    assert (made.grid.start_ns, run.origin_ns) == (0, -40_000)
    tracks = read_rank(made.folder / rank_file(0))
    sums = {
        n: int(tracks[f"summary/{n}"].values[0].sum())
        for n in ("compute", "communication", "exposed_communication", "copy")
    }
    assert sums == {"compute": 50_000, "communication": 20_000, "exposed_communication": 10_000, "copy": 10_000}
    assert tracks["gpu/0/0/7"].rows == 2
    assert (tracks["ranges/0"].first_ns, tracks["ranges/0"].last_ns) == (0, 130_000)
    assert (tracks["api/0"].level, tracks["api/0"].values) == (-1, ())


def test_a_rank_waits_from_its_arrival_to_the_last(waiting):
    view = waiting
    width = np.diff(view.grid.edges(0, view.grid.bins(view.grid.level), view.grid.level))
    waited = (view.whole("waiting") * width / 65534).sum(axis=1)
    assert waited == pytest.approx([10_000, 0], abs=2)


def test_busy_tracks_have_bins_and_the_pyramid_is_small(tmp_path):
    run = busy_run(tmp_path / "run")
    made = pyramid(run, jobs=1)
    tracks = read_rank(made.folder / rank_file(0))
    kernels = tracks["gpu/0/0/7"]
    assert kernels.level >= 0
    assert [int(v.sum()) for v in kernels.values] == [4000 * 60, 0, 0]
    (metric,) = [t for k, t in tracks.items() if k.startswith("metric/")]
    assert np.nanmax(metric.values[2]) == 99
    assert np.nanmin(metric.values[1]) == 0
    assert View(run, made).scales == {"metric: SM Active": [0.0, pytest.approx(99, abs=50)]}
    draw = np.random.default_rng(7)
    ends = np.cumsum(draw.integers(50, 5000, 20_000))
    rows = [kernel(e - 40, e, f"void k{e % 50}(int)", correlation=i) for i, e in enumerate(ends.tolist())]
    run = make_run(tmp_path / "2" / "run", {0: {"kernels": rows}})
    before = size_of(run.path)
    assert size_of(pyramid(run, jobs=1).folder) < 0.15 * before


def test_it_is_made_once_and_what_is_damaged_is_made_anew(run):
    aligned(run)
    done = []
    folder = pyramid(run, jobs=1, progress=done.append).folder
    assert sum(done) == 2
    assert pyramid(run, jobs=1, progress=done.append).folder == folder
    assert sum(done) == 2
    stamp = (folder / rank_file(0)).stat().st_mtime_ns
    (folder / FACTS).unlink()
    (folder / rank_file(1)).write_bytes(b"cut")
    pyramid(run, jobs=1)
    assert (folder / rank_file(0)).stat().st_mtime_ns == stamp, "the rank that was whole was kept"
    assert read_rank(folder / rank_file(1))
    (folder / FACTS).write_text(json.dumps({"signature": 5}))
    assert pyramid(run, jobs=1).grid.span_ns == 130_000


def test_another_alignment_means_another_pyramid(run):
    before = inputs_of(run)
    aligned(run)
    assert inputs_of(run) != before


def test_a_run_that_cannot_be_written_is_tiled_in_the_cache(run, tmp_path, monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("os.access", lambda *_: False)
    made = pyramid(run, jobs=1)
    assert made.folder.is_relative_to(tmp_path / "cache")
    assert not (run.path / "tiles").exists()
    assert pyramid(run, jobs=1).folder == made.folder


def test_a_rank_that_cannot_be_read_is_left_out_and_named(run):
    kernels = run.path / "ranks/rank=1/kernels.parquet"
    flip(kernels)
    made = pyramid(run, jobs=1)
    assert list(made.broken) == [1]
    assert "kernels.parquet" in made.broken[1]
    view = View(run, made)
    assert (view.whole("busy")[1] == NO_DATA).all()
    assert view.tiles([(1, "summary")], 10, 0, 1) == ([], {})
    flip(kernels)
    assert not pyramid(Run(run.path), jobs=1).broken, "what has been repaired is there"
    (run.path / "ranks/rank=0/kernels.parquet").unlink()
    flip(kernels)
    with pytest.raises(AlltraceError, match=r"kernels\.parquet"):
        pyramid(Run(run.path), folder=run.path / "other", jobs=1)


def test_a_rank_without_device_work_has_no_data(tmp_path):
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 10)]}, 1: {}})
    arrays, _ = heat_arrays(read_table(pyramid(run, jobs=1).folder / HEAT))
    assert arrays["busy"][0].max() == 65534
    assert (arrays["busy"][1] == NO_DATA).all()


def sampled_by_the_first(tmp_path, *, own):
    """One report has the samples of GPUs 0 to 2, of which its rank works on those in `own`; rank 1 works on GPU 1."""
    listed = [{"device": d, "ordinal": d, "uuid": f"GPU-{d}"} for d in range(3)]
    samples = [
        {"time": t, "device": d, "metric": "SM Active", "value": v}
        for d, v in enumerate((10.0, 50.0, 90.0))
        for t in (20, 60)
    ]
    ranks = {
        0: {"kernels": [kernel(0, 100)], "gpu_metrics": samples, "devices": listed},
        1: {"kernels": [kernel(0, 100)], "devices": [{"device": 0, "ordinal": 0, "uuid": "GPU-1"}]},
    }
    run = make_run(tmp_path / "run", ranks)
    first, second = run.manifest.ranks
    used = first._replace(devices=tuple(d for d in first.devices if d.device in own))
    write_manifest(run.path, run.manifest.with_ranks([used, second]))
    return Run(run.path)


@pytest.mark.parametrize(("own", "first"), [((0,), 10), ((), 50), ((0, 2), 50)])
def test_the_samples_of_a_host_stand_with_the_ranks_that_work_on_its_gpus(tmp_path, own, first):
    run = sampled_by_the_first(tmp_path, own=own)
    view = View(run, pyramid(run, jobs=1))
    low, high = view.scales["metric: SM Active"]
    rows = view.whole("metric: SM Active")
    found = [low + (high - low) * row[row != NO_DATA].astype(float) / 65534 for row in rows]
    assert [len(f) for f in found] == [2, 2]
    assert found[0] == pytest.approx([first] * 2, abs=0.01)
    assert found[1] == pytest.approx([50] * 2, abs=0.01)


@pytest.mark.parametrize("own", [(0,), ()])
def test_tracks_of_samples_lie_with_the_rank_that_works_on_the_gpu(tmp_path, own):
    """Those of a GPU that no rank works on stay with the report that has them."""
    run = sampled_by_the_first(tmp_path, own=own)
    view = View(run, pyramid(run, jobs=1))
    labels = [{t["key"].split("/")[1]: t["label"] for t in labelled(view, r) if t["group"] == "metric"} for r in (0, 1)]
    assert labels == [{"0": "GPU 0: SM Active", "2": "GPU 2: SM Active"}, {"0": "GPU 0: SM Active"}]
    tracks = [{t.key.split("/")[1]: t.rows for t in view.tracks(r) if t.key.startswith("metric/")} for r in (0, 1)]
    assert tracks == [{"0": 2, "2": 2}, {"0": 2}]
    key = next(t.key for t in view.tracks(1) if t.key.startswith("metric/"))
    assert [(k, t.tolist(), v.tolist()) for k, t, v in view.events.samples(1, "gpu_metrics", 0, 100)] == [
        (key, [20, 60], [50, 50])
    ]
    (tile,) = view.tiles([(1, key)], 0, 0, 1)[0]
    assert np.nanmax(tile.arrays["mean"]) == 50
    found = {k.split("/")[1]: v.tolist() for k, _, v in view.events.samples(0, "gpu_metrics", 0, 100)}
    assert found == {"0": [10, 10], "2": [90, 90]}


def test_damaged_samples_and_runs_without_ranks(tmp_path):
    run = sampled_by_the_first(tmp_path, own=(0,))
    flip(run.path / "ranks/rank=0/gpu_metrics.parquet")
    with pytest.raises(AlltraceError, match=r"rank=0/gpu_metrics\.parquet: it is damaged"):
        pyramid(run, jobs=1)
    for n, ranks in enumerate(({}, {0: {}})):
        run = make_run(tmp_path / "2" / str(n), ranks)
        view = View(run, pyramid(run, jobs=1))
        assert view.heat("idle", view.grid.level, 0).shape[0] == len(ranks)


def test_processes_make_the_same_and_damage_is_told(tmp_path):
    run = busy_run(tmp_path / "run", 1500, ranks=2)
    alone, together = (pyramid(run, folder=tmp_path / str(j), jobs=j).folder for j in (1, 2))
    for rank in (0, 1):
        assert (alone / rank_file(rank)).read_bytes() == (together / rank_file(rank)).read_bytes()
    (tmp_path / "2" / "heat.arrow").write_bytes(b"ARROW1 nothing")
    with pytest.raises(DamageError, match=r"heat\.arrow: it is damaged"):
        read_table(tmp_path / "2" / "heat.arrow")


def test_a_new_rank_is_drawn_and_those_that_it_does_not_move_are_not(tmp_path):
    rows = {r: {"kernels": [kernel(0, 100_000 + r, "a")]} for r in range(3)}
    run = make_run(tmp_path / "three", rows)
    made = pyramid(run, folder=tmp_path / "tiles", jobs=1)
    stamps = {r: (made.folder / rank_file(r)).stat().st_mtime_ns for r in range(3)}
    rows[3] = {"kernels": [kernel(0, 50_000, "a")]}
    hosts = {3: "another"}
    more = make_run(tmp_path / "four", rows, hosts=hosts)
    again = pyramid(more, folder=tmp_path / "tiles", jobs=1)
    assert again.grid == made.grid
    assert {r: (again.folder / rank_file(r)).stat().st_mtime_ns for r in range(3)} == stamps
    assert read_rank(again.folder / rank_file(3))["gpu/0/0/7"].rows == 1
    fresh = pyramid(more, folder=tmp_path / "fresh", jobs=1)
    for name in (HEAT, *(rank_file(r) for r in range(4))):
        assert (again.folder / name).read_bytes() == (fresh.folder / name).read_bytes()
    # of its own host a rank may draw others' GPUs, so what it has been drawn from is another
    make_run(tmp_path / "moved", rows, hosts={3: "another", 2: "another"})
    pyramid(Run(tmp_path / "moved"), folder=tmp_path / "tiles", jobs=1)
    assert all((again.folder / rank_file(r)).stat().st_mtime_ns != stamps[r] for r in range(3))


def test_each_table_is_read_once_and_forgotten_by_the_end(run):
    aligned(run)
    grid = pyramid(run, jobs=1).grid
    rank = run.rank(0)
    tables = shared_tables(rank)
    assert summary_of(tables, grid)["compute"].sum() == 50_000
    assert tables.reads == {"kernels": 1, "copies": 1, "graphs": 1}
    keys = [track.key for track in tracks_of(rank, tables, grid, grid.start_ns + grid.span_ns)]
    assert {"gpu/0/0/7", "ranges/0", "api/0"} <= set(keys)
    assert set(tables.reads.values()) == {1}
    tables.table("kernels", ["start"])
    assert tables.reads["kernels"] == 2


def test_the_level_of_a_span_is_the_finest_that_fits():
    assert [level_for(span, 64) for span in (0, 1, 64, 65, 128, 129)] == [0, 0, 0, 1, 1, 2]
    assert level_for(MOST_SPAN_NS, 1) == 62


@together(("number", "found"), [(0.1, 64), (64, 64), (127, 64), (128, 128), (1e9, 4096)])
def test_powers_of_two_stay_in_their_bounds(number, found):
    assert power_of_two(number, 64, 4096) == found


def test_bins_of_a_rank_and_edges_of_the_grid():
    assert grid_of((-10, 1_000_000 - 10), 1, 16 * 256).bins(grid_of((-10, 1_000_000 - 10), 1, 16 * 256).level) <= 256
    many = grid_of((0, 10**12), 8192, 8192 * 10**6)
    assert 512 < many.bins(many.level) <= 1024
    assert grid_of((0, 0), 0, 0) == Grid(0, 1, 0)
    grid = Grid(-100, 1000, 4)
    assert grid.bins(4) == 63
    assert grid.edges(2, 2, 4).tolist() == [-68, -52, -36]
    assert grid.tile_span(0, 1) == (-100 + TILE_BINS, -100 + 2 * TILE_BINS)
    assert grid.edges(5, 1, 62).tolist() == [MOST_SPAN_NS - 100] * 2
    for level in (0, 20, 54, 62):
        for first in (0, 1, 1 << 30, 1 << 62, 1 << 71):
            edges = grid.edges(first, TILE_BINS, level).tolist()
            assert edges == [min(first + n << level, MOST_SPAN_NS) - 100 for n in range(TILE_BINS + 1)]
    assert grid.tile_span(62, 7) == (MOST_SPAN_NS - 100, MOST_SPAN_NS - 100)
    assert grid_of((-(1 << 62), (1 << 62) - 1), 1, 10).span_ns == MOST_SPAN_NS
