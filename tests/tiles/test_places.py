import pytest

from alltrace.tiles.build import pyramid
from alltrace.tiles.places import MOST_RANKS, Places
from alltrace.tiles.view import View
from alltrace.tiles.waits import Instance

US = 1000


def test_a_straggler_is_seen_where_others_wait_longest_for_it(waiting):
    place = Places(waiting).of("straggler", [1], "gemm")
    assert (place.ranks, place.culprit, place.peer) == ((1, 0), 1, 0)
    rank, table, row = place.event
    assert (rank, table) == (1, "collectives")
    stored = waiting.run.table("collectives", [1]).order("start").fetchall()
    assert 0 <= row < len(stored)
    assert place.start < place.end
    assert (place.start, place.end) in [(120 * US, 160 * US), (320 * US, 360 * US)]
    assert place.says == "Rank 1 reaches AllReduce #1 5.000 µs after rank 0."


def test_what_nobody_waits_for_is_seen_at_its_longest_event(view):
    place = Places(view).of("pageable-copy", [0], "HtoD")
    view.tiles([(0, "gpu/0/0/30")], 9, 0, 1)
    place = Places(view).of("pageable-copy", [0], "HtoD")
    assert place.event[:2] == (0, "copies")
    assert place.start <= 110 * US < 120 * US <= place.end
    nowhere = Places(view).of("pageable-copy", [0], "nothing of that name")
    assert (nowhere.start, nowhere.end, nowhere.event) == (0, view.grid.span_ns, None)
    assert Places(view).of("sync", [], None).culprit == 0


def test_of_many_members_the_culprit_a_peer_and_those_that_waited_longest_are_shown(view, monkeypatch):
    monkeypatch.setattr(Places, "_named", lambda *_: "AllReduce #7")
    members = tuple(range(40))
    instance = Instance(0, 10, (*members[1:], 0), tuple(100 + r for r in (*members[1:], 0)), tuple(range(40)))
    place = Places(view)._at_instance(instance, [0])
    assert place.ranks == (0, 20, *range(1, 15))
    assert len(place.ranks) == MOST_RANKS
    assert place.event == (0, "collectives", 100)
    assert place.says == "Rank 0 reaches AllReduce #7 20 ns after the others."
    blamed = list(range(10, 31))  # a typical peer is none of the culprits
    assert Places(view)._at_instance(instance, blamed)[1:3] == (30, 31)
    assert Places(view)._at_instance(instance._replace(ranks=(5,), rows=(1,), arrivals=(3,)), [0]).culprit == 5


STEP_NS = 1000 * US
LATE_US = (900, 10, 200, 20, 210, 30, 220)
"""How late rank 1 comes in each step; in the warm-up, step 0, it is worst."""


@pytest.fixture(scope="module")
def stepped(tmp_path_factory):
    """Two ranks with seven steps of which the first is a warm-up, as they are printed, an all-reduce in each."""
    from tests.making import collective, kernel, make_run
    from tests.tiles.conftest import ranges

    from alltrace.align.store import aligned

    def rows(late):
        kernels, own = [], []
        at = 0
        for step, late_us in enumerate(LATE_US):
            length = STEP_NS * (3 if step == 0 else 1)
            kernels += [kernel(at, at + 40 * US), collective(at + (50 + late * late_us) * US, at + 960 * US)]
            own.append((at, at + length, f"step {step}", 0))
            at += length
        return {"kernels": kernels, "ranges": ranges(own)}

    run = make_run(tmp_path_factory.mktemp("stepped") / "run", {0: rows(0), 1: rows(1)})
    aligned(run)
    return View(run, pyramid(run, jobs=1))


def test_which_step_is_shown(stepped):
    place = Places(stepped).of("straggler", [1], None)
    assert place.says == "In step 4, rank 1 reaches AllReduce #4 210.0 µs after rank 0."
    assert place.start < 6 * STEP_NS + (50 + 210) * US < place.end
    place = Places(stepped).of("sync", [1], None)
    assert (place.event, place.end - place.start) == (None, STEP_NS)
    assert place.says.startswith("step ")
    assert not place.says.startswith("step 0")


@pytest.mark.parametrize("kind", ["straggler", "exposed-communication", "sync"])
def test_a_run_without_ranks_has_no_place(tmp_path, kind):
    from tests.making import make_run

    run = make_run(tmp_path / "run", {})
    assert Places(View(run, pyramid(run, jobs=1))).of(kind, [], None) is None
