"""What a matching says of itself, from arrays."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from alltrace.align.matching import _all_to_all, _confidence, _notes
from alltrace.align.related_clocks import RankClock


def test_notes_say_what_was_not_matched():
    assert _notes(0, 0, 0, {0: 0.1}) == ()
    one, inferred, withheld, alone = _notes(1, 1, 3, {0: 0.11, 4: 0.1, 7: 0.5})
    assert one == "1 communication call has no kernel, end, communicator or set-up in the reports, so it is not matched"
    assert inferred.startswith(
        "1 communicator is inferred from times, because the reports do not name it; groups that work"
    )
    assert withheld == "3 sends and receives are not matched, because their times fit several partners, or none"
    assert alone.startswith("ranks 0, 7: more than 10 % of the communication found no match on other ranks; ")
    two, inferred, alone = _notes(2, 2, 0, {3: 0.2})
    assert (
        two
        == "2 communication calls have no kernel, end, communicator or set-up in the reports, so they are not matched"
    )
    assert inferred.startswith("2 communicators are inferred from times, because the reports do not name them; ")
    assert alone.startswith("rank 3: more than 10 %")
    assert _notes(0, 0, 0, {}, 0, 1) == (
        "1 collective operation is not matched, because times do not show which ranks meet in it",
    )
    assert _notes(0, 0, 0, {}, 0, 2) == (
        "2 collective operations are not matched, because times do not show which ranks meet in them",
    )


def kinds(**columns):
    count = len(columns["member"])
    rest = {name: np.zeros(count, np.int64) for name in ("paired", "peer", "exchanging", "all_to_all")}
    rest["count"] = np.ones(count, np.int64)
    return SimpleNamespace(**{**rest, **{name: np.array(values) for name, values in columns.items()}})


def test_a_communicator_is_all_to_all_if_most_of_its_operations_are():
    named = kinds(member=[0, 0, 1], all_to_all=[True, False, False], count=[3, 1, 1])
    assert _all_to_all(named, np.arange(3), 0.0, 3)
    named.count[0] = 2
    assert not _all_to_all(named, np.arange(3), 0.0, 3)
    kernels = kinds(member=[0, 1, 2], exchanging=[True] * 3)
    assert _all_to_all(kernels, np.arange(3), 0.6, 3)
    assert not _all_to_all(kernels, np.arange(3), 0.5, 3)
    assert not _all_to_all(kernels, np.arange(3), 1.0, 2)  # two stages of a pipeline look like that
    pairs = [(r, q) for r in range(3) for q in range(3) if r != q]
    sends = kinds(member=[r for r, _ in pairs], peer=[q for _, q in pairs], paired=[1] * 6)
    assert _all_to_all(sends, np.arange(6), 0.0, 3)
    assert not _all_to_all(sends, np.arange(5), 0.0, 3)
    receives = kinds(member=sends.member, peer=sends.peer, paired=[-1] * 6)
    assert not _all_to_all(receives, np.arange(6), 0.0, 3)


@pytest.mark.parametrize(
    ("certainty", "related", "expected"), [(1.0, 1.0, [1.0, 0.98, 0.9]), (0.5, 0.5, [1.0, 0.375 * 0.98, 0.375 * 0.9])]
)
def test_an_instance_is_as_sure_as_its_clock_and_the_law(certainty, related, expected):
    its = SimpleNamespace(kind=np.array([0, 0, 1]), sequence=np.array([4, -1, -1]))
    of_kinds = SimpleNamespace(synchronising=np.array([True, False]), exchanging=np.array([False, False]))
    timelines = SimpleNamespace(of=lambda member: its, kinds=of_kinds)
    clock = RankClock(0.0, 0.0, 0.0, certainty, 0)
    assert _confidence(timelines, clock, 0, np.arange(3), related).tolist() == pytest.approx(expected)
    of_kinds.exchanging[1] = True
    assert _confidence(timelines, clock, 0, np.arange(3), related)[2] == pytest.approx(expected[1])
