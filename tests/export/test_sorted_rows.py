import random

import numpy as np
import pytest

from alltrace.export import sorted_rows as rows
from alltrace.export.sorted_rows import RowSorter
from alltrace.run import sorted_runs


def drawn(draw, most):
    """Batches of rows (key, second, serial number), some of them in order."""
    serial = 0
    for _ in range(12):
        keys = np.array([draw.randrange(most) for _ in range(draw.randrange(30))], np.int64)
        if draw.random() < 0.5:
            keys.sort()
        second = np.array([draw.randrange(4) for _ in keys], np.int64)
        yield np.stack((keys, second, np.arange(serial, serial + len(keys))), axis=1)
        serial += len(keys)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("held", [1, 50, 1 << 20])
@pytest.mark.parametrize("room", [1, 7, 100_000])
@pytest.mark.parametrize("most", [1, 20, 10**9])
@pytest.mark.parametrize("alone", [1, 5, 1 << 20])
@pytest.mark.parametrize("runs", [3, 4_000])
def test_rows_come_in_order_and_equal_ones_as_given(tmp_path, monkeypatch, held, room, most, alone, runs):
    monkeypatch.setattr(rows, "_HELD_ROWS", held)
    monkeypatch.setattr(rows, "_ALONE_ROWS", alone)
    monkeypatch.setattr(RowSorter, "most_runs", runs)
    monkeypatch.setattr(sorted_runs, "_MERGED_RECORDS", room)
    monkeypatch.setattr(sorted_runs, "_LEAST_RECORDS", room)
    batches = list(drawn(random.Random(held * room), most))
    given = [tuple(row) for batch in batches for row in batch.tolist()]
    for by, found_by in ((1, "ordered"), (2, "blocks")):
        with RowSorter(tmp_path / "s", 3) as sorter:
            for batch in batches:
                sorter.add_rows(batch)
            blocks = list(getattr(sorter, found_by)())
        parts = [r[o] for r, o in blocks] if by == 1 else [np.stack(b, axis=1) for b in blocks]
        assert [tuple(row) for part in parts for row in part.tolist()] == sorted(given, key=lambda row: row[:by])
        keys = [set(part[:, 0].tolist()) for part in parts]
        assert all(not one & other for one, other in zip(keys[1:], keys[:-1], strict=True))
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("few", [0, 1, 3, 32])
def test_many_equal_keys_are_ordered_too(tmp_path, monkeypatch, few):
    monkeypatch.setattr(rows, "_FEW_EQUAL", few)
    keys = np.repeat(np.arange(20), 20)
    second = np.arange(400) * 7919 % 13
    with RowSorter(tmp_path / "s", 3) as sorter:
        sorter.add(keys, second, np.arange(400))
        found = np.concatenate([np.stack(b, axis=1) for b in sorter.blocks()])
    assert found.tolist() == sorted(np.stack((keys, second, np.arange(400)), axis=1).tolist())


def test_one_number_for_all_and_nothing(tmp_path):
    with RowSorter(tmp_path / "s", 3) as sorter:
        sorter.add(np.array([2, 1]), 5, np.array([7, 8]))
        assert [c.tolist() for (c) in next(sorter.blocks())] == [[1, 2], [5, 5], [8, 7]]
    with RowSorter(tmp_path / "2" / "s", 2) as sorter:
        sorter.add(np.empty(0, np.int64), 1)
        assert list(sorter.ordered()) == list(sorter.blocks()) == []
