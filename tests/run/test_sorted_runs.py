from __future__ import annotations

import os
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.run import sorted_runs
from alltrace.run.sorted_runs import merged, read_bytes


class Run:
    """A sorted run of pairs of a key and where it comes from."""

    def __init__(self, pairs, opened):
        self.first, self.in_memory, self.rest = pairs[0][0], [], pairs
        self.opened = opened

    @property
    def unread(self):
        return bool(self.rest)

    @property
    def head(self):
        return self.in_memory[0][0]

    @property
    def last(self):
        return self.in_memory[-1][0]

    def __len__(self):
        return len(self.in_memory)

    def read(self, room):
        count = max(room - len(self.in_memory), 0)
        self.in_memory, self.rest = self.in_memory + self.rest[:count], self.rest[count:]
        self.opened.add(id(self))

    def take(self, bound):
        count = sum(bound is None or key < bound for key, _ in self.in_memory)
        taken, self.in_memory = self.in_memory[:count], self.in_memory[count:]
        if not self.in_memory and not self.rest:
            self.opened.discard(id(self))
        return taken


def by_key(pair):
    return pair[0]


@given(st.lists(st.lists(st.integers(0, 5), min_size=1).map(sorted), max_size=5), st.integers(1, 4), st.integers(1, 20))
def test_equal_keys_come_in_one_block_in_the_order_of_the_runs(keys, least, most):
    runs = [[((key,), (number, n)) for n, key in enumerate(one)] for number, one in enumerate(keys)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_runs, "_LEAST_RECORDS", least)
        patch.setattr(sorted_runs, "_MERGED_RECORDS", most)
        blocks = list(merged([Run(pairs, set()) for pairs in runs], lambda parts: sorted(chain.from_iterable(parts), key=by_key)))
    assert [pair for block in blocks for pair in block] == sorted((pair for one in runs for pair in one), key=by_key)
    assert all(one[-1][0] < other[0][0] for one, other in pairwise(blocks))


def test_a_run_is_opened_when_its_first_key_is_near(monkeypatch):
    monkeypatch.setattr(sorted_runs, "_MERGED_RECORDS", 100)
    monkeypatch.setattr(sorted_runs, "_LEAST_RECORDS", 10)
    opened: set[int] = set()
    runs = [Run([(key + 40 * number, number) for key in range(50)], opened) for number in reversed(range(200))]
    most, count = 0, 0
    for block in merged(runs, lambda parts: sorted(chain.from_iterable(parts))):
        most, count = max(most, len(opened)), count + len(block)
    assert (count, len(opened)) == (10_000, 0)
    assert 1 <= most <= 8


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
