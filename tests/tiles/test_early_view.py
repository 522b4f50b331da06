import numpy as np
import pytest
from tests.making import make_run
from tests.tiles.conftest import busy_run, rank_rows

from alltrace.align.store import aligned
from alltrace.run.store import Run
from alltrace.tiles.build import kept_pyramid, pyramid
from alltrace.tiles.early_view import EarlyView
from alltrace.tiles.files import NO_DATA
from alltrace.tiles.fine import fine_heat
from alltrace.tiles.view import View


def test_it_shows_what_the_pyramid_shows_wherever_events_are_read(tmp_path):
    run = busy_run(tmp_path / "run")
    aligned(run, jobs=1)
    early, built = EarlyView(run), View(run, pyramid(run, jobs=1))
    (rank,) = (r.rank for r in run.ranks)
    names = [(t.key, t.rows, t.level) for t in built.tracks(rank)[1:]]
    assert [(t.key, t.rows, t.level) for t in early.tracks(rank)[1:]] == names
    assert len(names) > 1
    assert (early.devices(rank), early.gpus(rank)) == (built.devices(rank), built.gpus(rank))
    for key in ("summary", *(n for n, *_ in names)):
        for level in (2, built.grid.level - 1):
            mine, theirs = (v.tiles([(rank, key)], level, 0, 2)[0] for v in (early, built))
            for one, other in zip(mine, theirs, strict=True):
                assert (one.kind, one.classes, list(one.arrays)) == (other.kind, other.classes, list(other.arrays))
                assert all(
                    np.array_equal(one.arrays[a], other.arrays[a], equal_nan=a in ("mean", "least", "most"))
                    for a in one.arrays
                )
    for metric in early.metrics:
        level = built.grid.level - 1
        assert np.array_equal(fine_heat(early, metric, level, 0, [rank]), fine_heat(built, metric, level, 0, [rank])), (
            metric
        )


def test_early_views_are_made_of_events_or_of_a_kept_pyramid(tmp_path):
    run = make_run(tmp_path / "run", {0: rank_rows(), 1: {}})
    early = EarlyView(run)
    assert early.heat("busy", early.grid.level, 0).tolist() == [[NO_DATA], [NO_DATA]]
    found = fine_heat(early, "busy", early.grid.level - 9, 0, [0, 1])
    assert found.shape[1] > 200
    busy = found[0].astype(float) / 65534
    assert busy.sum() * (1 << early.grid.level - 9) == pytest.approx(70_000, rel=0.01)
    assert (found[1] == NO_DATA).all()
    make_run(tmp_path / "2" / "run", {r: rank_rows(r) for r in range(2)})
    run = Run(tmp_path / "2" / "run")
    assert "waiting" not in EarlyView(run).metrics
    aligned(run, jobs=1)
    assert "waiting" in EarlyView(run).metrics
    run = make_run(tmp_path / "3" / "run", {0: rank_rows()})
    assert kept_pyramid(run) is None
    assert not (tmp_path / "3" / "run/tiles").exists()
    made = pyramid(run, jobs=1)
    assert kept_pyramid(Run(tmp_path / "3" / "run")) == made
