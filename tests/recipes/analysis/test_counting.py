from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.recipes.analysis import counting
from alltrace.recipes.analysis.counting import Cells, Slots

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.lists(INT64, max_size=30), max_size=4))
def test_every_id_has_a_slot_of_its_own(pieces):
    slots = Slots()
    for piece in pieces:
        ids = np.array(piece, np.int64)
        found = slots.of(ids)
        if found is None:
            assert slots.of(ids[:0]) is None, "from then on"
            break
        place = dict(zip(slots.ids, slots.places.tolist(), strict=True))
        assert len(set(place.values())) == len(place)
        assert [place[i] for i in piece] == found.tolist()
    else:
        assert slots.ids == list(dict.fromkeys(i for piece in pieces for i in piece))


def test_other_bits_are_taken_where_some_are_the_same():
    slots = Slots()
    assert slots.of(np.array([0x1_0000, 0x2_0000], np.int64)).tolist() == [1, 2]  # the lowest 16 bits are the same
    assert slots.of(np.array([0, -1, 0x1_0000], np.int64)).tolist() == [0, 0xFFFF, 1]
    assert slots.of(np.array([0x5_0001_0000], np.int64)) is None


def test_ids_that_no_16_bits_tell_apart():
    slots = Slots()
    assert slots.of(np.array([0, 1, 0x1_0000, 0x1_0000_0000, 0x1_0000_0000_0000], np.int64)) is None
    assert slots.of(np.array([7], np.int64)) is None


def test_too_many_ids(monkeypatch):
    monkeypatch.setattr(counting, "_MOST_IDS", 3)
    assert Slots().of(np.array([1, 2, 3, 1], np.int64)) is not None
    assert Slots().of(np.array([1, 2, 3, 4], np.int64)) is None


def test_zero_and_what_marks_an_empty_slot_are_ids_like_any_other():
    for ids in ([0], [-1], [0, -1], [5, 0]):
        slots = Slots()
        slots.of(np.array([9], np.int64))
        slots.of(np.array(ids, np.int64))
        assert slots.ids == [9, *ids]


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), min_size=1, max_size=20), max_size=4))
def test_cells_count_pairs(pieces):
    cells, wanted = Cells(), {}
    number = np.arange(6, dtype=np.uint32)
    for piece in pieces:
        owners, values = (np.array(c, np.int64) for c in zip(*piece, strict=True))
        assert cells.add(owners, number, 6, values, int(values.max()))
        for pair in piece:
            wanted[pair] = wanted.get(pair, 0) + 1
    found = list(zip(*(c.tolist() for c in cells.take()), strict=True))
    assert found == [(*pair, count) for pair, count in sorted(wanted.items())]
    assert [len(c) for c in cells.take()] == [0, 0, 0], "they are forgotten"


def test_what_takes_too_many_cells_is_not_counted(monkeypatch):
    monkeypatch.setattr(counting, "_MOST_CELLS", 100)
    cells, number = Cells(), np.arange(2, dtype=np.uint32)
    assert cells.add(np.array([0, 1]), number, 2, np.array([3, 40]), 40)
    assert not cells.add(np.array([0]), number, 2, np.array([60]), 60)
    assert [c.tolist() for c in cells.take()] == [[0, 1], [3, 40], [1, 1]]


def test_numbers_may_change_between_pieces():
    cells = Cells()
    assert cells.add(np.array([0, 0]), np.array([0], np.uint32), 1, np.array([2, 3]), 3)
    assert cells.add(np.array([0, 1]), np.array([1, 0], np.uint32), 2, np.array([2, 3]), 3)
    assert [c.tolist() for c in cells.take()] == [[0, 0, 1], [2, 3, 2], [1, 2, 1]]


@pytest.mark.parametrize("count", [0, 5])
def test_nothing(count):
    slots = Slots()
    assert slots.of(np.zeros(0, np.int64)).tolist() == []
    assert slots.of(np.zeros(count, np.int64)).tolist() == [0] * count
