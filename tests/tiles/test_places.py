from __future__ import annotations

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


def test_what_nobody_waits_for_is_seen_at_its_longest_event(view):
    place = Places(view).of("pageable-copy", [0], "HtoD")
    view.tiles([(0, "gpu/0/0/30")], 9, 0, 1)
    place = Places(view).of("pageable-copy", [0], "HtoD")
    assert place.event[:2] == (0, "copies")
    assert place.start <= 110 * US < 120 * US <= place.end
    nowhere = Places(view).of("pageable-copy", [0], "nothing of that name")
    assert (nowhere.start, nowhere.end, nowhere.event) == (0, view.grid.span_ns, None)
    assert Places(view).of("sync", [], None).culprit == 0


def test_of_many_members_the_culprit_a_peer_and_those_that_waited_longest_are_shown(view):
    members = tuple(range(40))
    instance = Instance(0, 10, (*members[1:], 0), tuple(100 + r for r in (*members[1:], 0)), tuple(range(40)))
    place = Places(view)._at_instance(instance, [0])
    assert place.ranks == (0, 20, *range(1, 15))
    assert len(place.ranks) == MOST_RANKS
    assert place.event == (0, "collectives", 100)
    blamed = list(range(10, 31))  # a typical peer is none of the culprits
    assert Places(view)._at_instance(instance, blamed)[1:3] == (30, 31)
    assert Places(view)._at_instance(instance._replace(ranks=(5,), rows=(1,)), [0]).culprit == 5


@pytest.mark.parametrize("kind", ["straggler", "exposed-communication", "sync"])
def test_a_run_without_ranks_has_no_place(tmp_path, kind):
    from tests.making import make_run

    run = make_run(tmp_path / "run", {})
    assert Places(View(run, pyramid(run, jobs=1))).of(kind, [], None) is None
