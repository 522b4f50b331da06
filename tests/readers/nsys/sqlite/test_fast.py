from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from alltrace.readers.nsys.sqlite import fast, kernels, open_sqlite

TABLE = "CREATE TABLE mixed (id INTEGER PRIMARY KEY, small INTEGER, wide INTEGER, skipped TEXT, real REAL, name TEXT, raw BLOB)"
WIDE = [0, 1, -1, 127, -128, 128, 32_767, -32_769, 2**23, -(2**31), 2**31, 2**47 - 1, -(2**47), 2**48, 2**63 - 1, -(2**63), None]
REALS = [None, 0.0, 1.5, -3.0, 1e300, float("inf"), float("-inf"), 7.0, 5e-324]


def rows(count, strange):
    """Rows of all lengths of values; those at `strange` have text or row numbers that take more than the usual bytes."""
    return [
        (
            i if i < 900 else i + (1 << 40),
            i % 100 - 50,
            WIDE[i % len(WIDE)],
            None if i % 2 else "no",
            REALS[i % len(REALS)],
            "x" * (200 if i in strange else i % 50),
            None if i % 7 == 0 else bytes(i % 9),
        )
        for i in range(1, count + 1)
    ]


@pytest.mark.parametrize("strange", [set(), {1}, {128, 129}, set(range(300, 1500)), set(range(1, 2000, 300))], ids=len)
def test_usual_and_unusual_rows_are_read_as_sqlite_reads_them(tmp_path, make, both, strange):
    made = rows(2000, strange)
    path = make(tmp_path / "a.sqlite", [TABLE, ("INSERT INTO mixed VALUES (?,?,?,?,?,?,?)", made)])
    for batch_rows in (131_072, 100, 1):
        found = both(path, batch_rows)["mixed"]
        assert list(zip(*found.to_pydict().values(), strict=True)) == made


def test_narrow_columns_take_what_fits_and_leave_the_rest_to_be_refused(tmp_path, make, read):
    path = make(tmp_path / "a.sqlite", [TABLE, ("INSERT INTO mixed VALUES (?,?,?,?,?,?,?)", rows(2000, set()))])
    with closing(open_sqlite(path, "fast")) as source:
        narrow = read(source, "mixed", {"small": pa.int8()})
        assert narrow.column("small").to_pylist() == [i % 100 - 50 for i in range(1, 2001)]
        assert "needs sqlite3" in read(source, "mixed", {"wide": pa.int32()})
        assert "needs sqlite3" in read(source, "mixed", {"id": pa.int32()})
    with closing(open_sqlite(path)) as source:
        assert "wide" in read(source, "mixed", {"wide": pa.int32()})


def test_nearly_all_rows_are_decoded_the_usual_way(tmp_path, make, read, monkeypatch):
    path = make(tmp_path / "a.sqlite", [TABLE, ("INSERT INTO mixed VALUES (?,?,?,?,?,?,?)", rows(20_000, {5000}))])
    slow = []

    def counting(*arguments):
        slow.append(kernels_decode(*arguments))
        return slow[-1]

    kernels_decode = kernels.decode
    monkeypatch.setattr(kernels, "decode", counting)
    with closing(open_sqlite(path, "fast")) as source:
        assert read(source, "mixed").num_rows == 20_000
    assert 0 < sum(slow) <= fast._UNUSUAL_ROWS


@settings(max_examples=300, deadline=None)
@given(
    values=st.lists(st.one_of(st.binary(max_size=40), st.text("ab", max_size=40).map(str.encode)), max_size=12),
    after=st.binary(max_size=9),
    room=st.integers(0, 9),
    backwards=st.booleans(),
)
@example(values=[b"a", b"1234567\x80"], after=b"\xff", room=0, backwards=False)
@example(values=[b"1234567", b"12345678"], after=b"\xff" * 9, room=0, backwards=True)
def test_text_is_copied_as_it_is_and_nothing_beside_it(values, after, room, backwards):
    stored = values[::-1] if backwards else values
    at = np.cumsum([0, *map(len, stored)], dtype=np.int64)[: len(values)]
    at = at[::-1].copy() if backwards else at
    size = np.array([len(v) for v in values], np.int64)
    source = np.frombuffer(b"".join(stored) + after, np.uint8).copy()
    whole = np.full(int(size.sum()) + room + 16, 0xEE, np.uint8)
    data = whole[8 : len(whole) - 8]
    offsets = np.zeros(len(values) + 2, np.int32)
    ascii_only = kernels.gather(source, at, size, len(values), offsets, 1, data)
    assert bytes(data[: size.sum()]) == b"".join(values)
    assert bytes(whole[:8]) == bytes(whole[-8:]) == b"\xee" * 8
    assert offsets[1:].tolist() == np.cumsum([0, *size]).tolist()
    assert ascii_only == all(v.isascii() for v in values)
