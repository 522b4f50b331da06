from __future__ import annotations

import json
import os
from itertools import chain, pairwise
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.run import sorted_runs
from alltrace.run.sorted_runs import DiskSorter, Form, read_bytes


class Pairs(Form):
    """Blocks of pairs of a key and where it comes from."""

    def __init__(self):
        self.runs = set()
        self.most_runs = 0

    def pack(self, block, at):
        data = json.dumps(block).encode()
        return (at, len(data), 0), (data,)

    def read(self, file, place, room):
        start, size, done = place
        pairs = json.loads(read_bytes(file, size, start).tobytes())
        count = min(room, len(pairs) - done)
        self.runs.add(start)
        self.most_runs = max(self.most_runs, len(self.runs))
        if done + count == len(pairs):
            self.runs.discard(start)
        return pairs[done : done + count], (start, size, done + count) if done + count < len(pairs) else None

    def key(self, block, record):
        return tuple(block[record][0])

    def count(self, block):
        return len(block)

    def before(self, block, bound):
        return sum(tuple(key) < bound for key, _ in block)

    def cut(self, block, first, last):
        return block[first:last]

    def ordered(self, blocks):
        return sorted(chain.from_iterable(blocks), key=itemgetter(0))


class Sorter(DiskSorter):
    def add(self, block):
        self._add_run([block])

    def blocks(self):
        return self._in_order()


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1).map(sorted), max_size=5),
    st.integers(1, 4),
    st.integers(1, 20),
    st.sampled_from([2, 3, 100]),
)
def test_equal_keys_come_in_one_block_in_the_order_of_the_runs(tmp_path_factory, keys, least, most, most_runs):
    runs = [[[[key], [number, n]] for n, key in enumerate(one)] for number, one in enumerate(keys)]
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch, Sorter(folder / "s", Pairs()) as sorter:
        patch.setattr(sorted_runs, "_LEAST_RECORDS", least)
        patch.setattr(sorted_runs, "_MERGED_RECORDS", most)
        sorter.most_runs = most_runs
        for pairs in runs:
            sorter.add(pairs)
        blocks = list(sorter.blocks())
    assert [pair for block in blocks for pair in block] == sorted(chain.from_iterable(runs), key=itemgetter(0))
    assert all(one[-1][0] < other[0][0] for one, other in pairwise(blocks))
    assert list(folder.iterdir()) == []


def test_a_run_is_opened_when_its_first_key_is_near(tmp_path, monkeypatch):
    monkeypatch.setattr(sorted_runs, "_MERGED_RECORDS", 100)
    monkeypatch.setattr(sorted_runs, "_LEAST_RECORDS", 10)
    form = Pairs()
    with Sorter(tmp_path / "s", form) as sorter:
        for number in reversed(range(200)):
            sorter.add([[[key + 40 * number], number] for key in range(50)])
        keys = [key for block in sorter.blocks() for (key,), _ in block]
    assert keys == sorted(key + 40 * number for number in range(200) for key in range(50))
    assert 1 <= form.most_runs <= 8


def test_a_temporary_file_that_was_cut_short_is_an_error(tmp_path):
    path = tmp_path / "runs"
    path.write_bytes(b"0123456789")
    assert read_bytes(str(path), 4, 3).tobytes() == b"3456"
    file = os.open(path, os.O_RDONLY)
    try:
        assert read_bytes(file, 10, 0).tobytes() == b"0123456789"
        with pytest.raises(OSError, match="ended 2 bytes early"):
            read_bytes(file, 4, 8)
    finally:
        os.close(file)
