"""Broken files give an InputError or sound tables; never a crash, a hang or another exception."""

from __future__ import annotations

import os
import random
import time
from contextlib import closing

import pytest

from alltrace.readers.nsys.sqlite import open_sqlite
from alltrace.trace.errors import InputError

CASES = int(os.environ.get("ALLTRACE_FUZZ_CASES", "120"))  # of each kind of file
SEED = int(os.environ.get("ALLTRACE_FUZZ_SEED", "1"))


@pytest.fixture(scope="module")
def damage():
    return [_bytes, _page_heads, _pointers, _cut, _swap, _zero, _cycle]


def _page_starts(raw, size):
    return range(0, len(raw) - size + 1, size)


def _bytes(raw, size, dice):
    for _ in range(dice.choice([1, 1, 3, 30])):
        raw[dice.randrange(100, len(raw))] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])


def _page_heads(raw, size, dice):
    raw[dice.choice(_page_starts(raw, size)[1:]) + dice.randrange(12)] = dice.choice(
        [0, 2, 5, 10, 13, 255, dice.randrange(256)]
    )


def _pointers(raw, size, dice):
    at = dice.choice(_page_starts(raw, size)[1:]) + 8 + 2 * dice.randrange(20)
    raw[at : at + 2] = dice.randrange(size + 8).to_bytes(3, "big")[1:]


def _cut(raw, size, dice):
    del raw[dice.randrange(1, len(raw)) :]
    if len(raw) > 100 and dice.random() < 0.7:
        raw[92:96] = bytes(4)  # the header no longer vouches for the number of pages


def _swap(raw, size, dice):
    one, other = (dice.choice(_page_starts(raw, size)[1:]) for _ in range(2))
    raw[one : one + size], raw[other : other + size] = raw[other : other + size], raw[one : one + size]


def _zero(raw, size, dice):
    at = dice.choice(_page_starts(raw, size)[1:])
    raw[at : at + size] = bytes(size)


def _cycle(raw, size, dice):
    """Makes an interior page lead to any page of the file, such as itself."""
    inner = [at for at in _page_starts(raw, size)[1:] if raw[at] == 5]
    if inner:
        at = dice.choice(inner) + 8
        raw[at : at + 4] = dice.randrange(len(raw) // size + 2).to_bytes(4, "big")


def _example(make, path, size, auto_vacuum):
    rows = [(i, None if i % 7 == 0 else 2 ** (i % 63), "name" * (i % 9), i / 3, bytes(i % 11)) for i in range(400)]
    long = [(i, "long text " * (i * 37 % 400)) for i in range(30)]
    return make(
        path,
        [
            "CREATE TABLE t (a INTEGER, b INTEGER, c TEXT, d REAL, e BLOB)",
            ("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows[:200]),
            ("INSERT INTO StringIds VALUES (?, ?)", long),
            ("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows[200:]),
            "CREATE TABLE w (k INTEGER PRIMARY KEY, v TEXT) WITHOUT ROWID",
            ("INSERT INTO w VALUES (?, ?)", long),
        ],
        [f"page_size={size}", f"auto_vacuum={auto_vacuum}"],
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("size", "auto_vacuum"), [(512, "NONE"), (1024, "FULL"), (4096, "NONE")])
def test_damaged_files(tmp_path, make, read, rows, as_rows, damage, size, auto_vacuum):
    whole = _example(make, tmp_path / "whole", size, auto_vacuum).read_bytes()
    path = tmp_path / "broken"
    outcomes = {"refused": 0, "error": 0, "same": 0, "other": 0}
    for case in range(CASES):
        dice = random.Random(SEED * 1_000_003 + case)
        raw = bytearray(whole)
        dice.choice(damage)(raw, size, dice)
        path.write_bytes(raw)
        began = time.monotonic()
        for outcome in _outcomes(path, read, rows, as_rows):
            outcomes[outcome] += 1
        assert time.monotonic() - began < 5, f"case {case} took too long"
    assert outcomes["error"] + outcomes["refused"] > CASES // 4
    assert outcomes["same"] > CASES
    assert outcomes["other"] <= CASES // 20


def _outcomes(path, read, rows, as_rows):
    try:
        auto, slow = open_sqlite(path), open_sqlite(path, "sqlite3")
    except InputError:
        return ["refused"]
    outcomes = []
    with closing(auto), closing(slow):
        for table in auto.tables:
            one, other = read(auto, table), read(slow, table)
            assert rows(auto, table) == as_rows(one)
            try:
                auto.count_about(table)
            except InputError:
                assert isinstance(one, str)
            if isinstance(one, str):
                outcomes.append("error")
            else:
                outcomes.append("same" if not isinstance(other, str) and one.equals(other) else "other")
    return outcomes
