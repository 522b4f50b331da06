"""The distribution of rows that arrive in pieces equals that of all rows at once."""

from __future__ import annotations

import numpy as np
import pytest
from tests.making import copy, make_run

from alltrace.run import collecting, row_groups
from alltrace.run.collecting import Growing, in_pieces, whole_columns


def calls(tmp_path, monkeypatch, count):
    """A rank with calls in row groups of four, which are read one at a time."""
    monkeypatch.setattr(row_groups, "ROW_GROUP_ROWS", 4)
    monkeypatch.setattr(collecting, "_PIECE_ROWS", 1)
    rows = [
        {"start": n, "end": n + 1, "correlation": None if n % 3 == 1 else n, "name": "cudaMalloc"} for n in range(count)
    ]
    return make_run(tmp_path, {0: {"api": rows, "copies": [copy(5, 6), copy(7, 8, correlation=70)]}}).rank(0)


def test_a_rank_in_memory_is_read_whole_and_one_in_files_in_pieces(tmp_path, monkeypatch):
    rank = calls(tmp_path, monkeypatch, 10)
    assert [p["start"].to_pylist() for p in in_pieces(rank, "api", ["start"])] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    in_memory = rank.view(wanted={"api": ["start"]})
    for _ in range(2):
        assert [p["start"].to_pylist() for p in in_pieces(in_memory, "api", ["start"])] == [list(range(10))]
    assert in_memory.reads == {"api": 1}


@pytest.mark.parametrize("foreseen", [0, 2, 3, 100])
def test_rows_are_added_whatever_was_foreseen(foreseen):
    growing = Growing(2, foreseen)
    for part in ([1], [], [2, 3], list(range(4, 40))):
        growing.add(np.array(part, np.int64), -np.array(part, np.int64))
    assert [c.tolist() for c in growing.columns()] == [list(range(1, 40)), list(range(-1, -40, -1))]


@pytest.mark.parametrize("view", [lambda rank: rank, lambda rank: rank.view(wanted={"api": ["start"]})])
def test_whole_columns_of_tables_one_after_the_other(tmp_path, monkeypatch, view):
    rank = view(calls(tmp_path, monkeypatch, 6))
    start, correlation = whole_columns(rank, ("api", "copies"), {"start": 0, "correlation": -1})
    assert start.tolist() == [0, 1, 2, 3, 4, 5, 5, 7]
    assert correlation.tolist() == [0, -1, 2, 3, -1, 5, -1, 70]
    assert start.dtype == correlation.dtype == np.int64
