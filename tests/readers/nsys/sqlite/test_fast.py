from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pytest

from alltrace.readers.nsys.sqlite import open_sqlite

TABLE = (
    "CREATE TABLE mixed (id INTEGER PRIMARY KEY, small INTEGER, wide INTEGER, skipped TEXT, real REAL, name TEXT, raw"
    " BLOB)"
)
WIDE = [
    0,
    1,
    -1,
    127,
    -128,
    128,
    32_767,
    -32_769,
    2**23,
    -(2**31),
    2**31,
    2**47 - 1,
    -(2**47),
    2**48,
    2**63 - 1,
    -(2**63),
    None,
]
REALS = [None, 0.0, 1.5, -3.0, 1e300, float("inf"), float("-inf"), 7.0, 5e-324]


def rows(count, long):
    """Rows of all lengths of values; those at `long` have text whose type takes two bytes."""
    return [
        (
            i if i < 900 else i + (1 << 40),
            i % 100 - 50,
            WIDE[i % len(WIDE)],
            None if i % 2 else "no",
            REALS[i % len(REALS)],
            "x" * (200 if i in long else i % 50),
            None if i % 7 == 0 else bytes(i % 9),
        )
        for i in range(1, count + 1)
    ]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("long", [set(), {1}, {128, 129}, set(range(300, 1500)), set(range(1, 2000, 300))], ids=len)
def test_rows_are_read_as_sqlite_reads_them(tmp_path, make, both, long):
    made = rows(2000, long)
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
