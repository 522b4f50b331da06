import numpy as np
import pytest
from tests.making import collective, copy, kernel, make_run
from tests.tiles.conftest import US, busy_run

from alltrace.align.store import aligned
from alltrace.tiles.build import pyramid
from alltrace.tiles.cancel import CancelledError, Token
from alltrace.tiles.files import NO_DATA
from alltrace.tiles.fine import fine_heat
from alltrace.tiles.grid import TILE_BINS
from alltrace.tiles.view import View
from alltrace.trace.errors import UsageError


@pytest.fixture
def mixed(tmp_path):
    """Rank 0: compute 0 to 40 us, communication 30 to 50, a copy 45 to 55; again and again. Rank 1 has no device
    work."""

    def rows(at):
        return {
            "kernels": [kernel(at, at + 40 * US), collective(at + 30 * US, at + 50 * US)],
            "copies": [copy(at + 45 * US, at + 55 * US)],
        }

    every = [rows(100 * US * i) for i in range(400)]
    tables = {t: [r for one in every for r in one[t]] for t in ("kernels", "copies")}
    run = make_run(tmp_path / "mixed", {0: tables, 1: {}})
    aligned(run)
    return View(run, pyramid(run, jobs=1))


@pytest.mark.parametrize("metric", ["busy", "idle", "compute", "communication", "exposed", "copy"])
def test_finer_bins_add_up_to_those_that_are_kept(mixed, metric):
    level = mixed.grid.level - 3
    fine = fine_heat(mixed, metric, level, 0, [0, 1])
    coarse = mixed.heat(metric, mixed.grid.level, 0)
    assert (fine[1] == NO_DATA).all()
    bins = min(fine.shape[1] // 8, coarse.shape[1] - 1)
    means = fine[0, : bins * 8].reshape(-1, 8).mean(axis=1)
    assert bins > 10
    assert np.abs(means - coarse[0, :bins]).max() <= 1.5


def test_bins_show_what_was_planted(mixed):
    level = 10  # 1,024 ns
    bins = [int(t * US // 1024) for t in (10, 35, 48, 52, 70)]
    expected = {
        "busy": [1, 1, 1, 1, 0],
        "compute": [1, 1, 0, 0, 0],
        "communication": [0, 1, 1, 0, 0],
        "exposed": [0, 0, 1, 0, 0],
        "copy": [0, 0, 1, 1, 0],
        "idle": [0, 0, 0, 0, 1],
    }
    for metric, shares in expected.items():
        found = fine_heat(mixed, metric, level, 0, [0])[0]
        assert [int(found[b]) for b in bins] == [65534 * s for s in shares], metric
    assert fine_heat(mixed, "busy", 0, 10**6 // TILE_BINS, [0]).shape == (1, TILE_BINS)


def test_waits_are_shown_as_far_as_the_clocks_can_tell(waiting):
    level = max(waiting.grid.level - 4, 0)
    tiles = range(-(-waiting.grid.bins(level) // TILE_BINS))
    found = np.concatenate([fine_heat(waiting, "waiting", level, n, [0, 1]) for n in tiles], axis=1)
    width, coarse = 1 << level, waiting.heat("waiting", waiting.grid.level, 0)
    ns = (found.astype(np.float64) * width / 65534).sum(axis=1)
    assert ns[0] == pytest.approx((coarse[0].astype(np.float64) * (1 << waiting.grid.level) / 65534).sum(), rel=0.02)
    assert ns[0] == pytest.approx(10 * US, rel=0.02)
    assert ns[1] == 0


def test_what_lies_behind_the_end_is_left_out_and_what_is_not_there_refused(mixed, tmp_path):
    level = mixed.grid.level - 1
    last = (mixed.grid.bins(level) - 1) // TILE_BINS
    found = fine_heat(mixed, "busy", level, last, [0])
    assert found.shape[1] == mixed.grid.bins(level) - last * TILE_BINS
    for metric, at, index, ranks in (
        ("nothing", level, 0, [0]),
        ("busy", mixed.grid.level, 0, [0]),
        ("busy", -1, 0, [0]),
        ("busy", level, last + 1, [0]),
        ("busy", level, 0, [7]),
        ("busy", level, 0, list(range(100))),
    ):
        with pytest.raises(UsageError):
            fine_heat(mixed, metric, at, index, ranks)
    sampled = View(run := busy_run(tmp_path / "run"), pyramid(run, jobs=1))
    with pytest.raises(UsageError, match="finer bins"):
        fine_heat(sampled, "metric: SM Active", sampled.grid.level - 1, 0, [0])
    token = Token()
    token.cancel()
    with pytest.raises(CancelledError):
        fine_heat(mixed, "busy", level, 0, [0], token)
