import random

import numpy as np
import pytest

from alltrace.export import sorted_records
from alltrace.export.record_bytes import INT, Pool, Template
from alltrace.export.sorted_records import Sorter
from alltrace.run import sorted_runs


@pytest.mark.sampled(4)
@pytest.mark.parametrize("held", [1, 500, 1 << 20])
@pytest.mark.parametrize("room", [1, 7, 100_000])
@pytest.mark.parametrize("most", [1, 20, 10**9])
@pytest.mark.parametrize("alone", [1, 5, 1 << 20])
def test_records_come_in_order_of_keys_and_equal_ones_as_given(tmp_path, monkeypatch, held, room, most, alone):
    monkeypatch.setattr(sorted_records, "_HELD_BYTES", held)
    monkeypatch.setattr(sorted_records, "_ALONE_RECORDS", alone)
    monkeypatch.setattr(sorted_runs, "_MERGED_RECORDS", room)
    monkeypatch.setattr(sorted_runs, "_LEAST_RECORDS", room)
    template = Template(Pool(), [INT, "/", INT, "\n"])
    draw = random.Random(held * room)
    expected, serial = [], 0
    with Sorter(tmp_path / "s") as sorter:
        for _ in range(12):
            keys = np.array([draw.randrange(most) for _ in range(draw.randrange(30))], np.int64)
            if draw.random() < 0.5:
                keys.sort()
            numbers = np.arange(serial, serial + len(keys))
            serial += len(keys)
            sorter.add(keys, template.records(len(keys), keys, numbers))
            expected += list(zip(keys.tolist(), numbers.tolist(), strict=True))
        found = b"".join(bytes(b) for b in sorter.blocks()).decode()
    expected.sort(key=lambda p: p[0])
    lines = [tuple(map(int, line.split("/"))) for line in found.splitlines()]
    assert [k for k, _ in lines] == [k for k, _ in expected]
    assert sorted(lines) == sorted(expected)
    assert lines == expected
    assert not (tmp_path / "s").exists()


def test_equal_keys_stay_in_order_over_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(sorted_records, "_HELD_BYTES", 1)
    template = Template(Pool(), [INT, "\n"])
    with Sorter(tmp_path / "s") as sorter:
        for start in (0, 3, 6):
            sorter.add(np.array([5, 5, 5], np.int64), template.records(3, np.arange(start, start + 3)))
        assert b"".join(bytes(b) for b in sorter.blocks()).split() == [b"%d" % i for i in range(9)]


def test_nothing_gives_nothing(tmp_path):
    with Sorter(tmp_path / "s") as sorter:
        assert list(sorter.blocks()) == []
