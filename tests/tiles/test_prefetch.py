import threading

from tests.tiles.conftest import busy_run

from alltrace.tiles.build import pyramid
from alltrace.tiles.prefetch import Prefetcher
from alltrace.tiles.tracks import SUMMARY
from alltrace.tiles.view import View
from alltrace.trace.errors import AlltraceError


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
