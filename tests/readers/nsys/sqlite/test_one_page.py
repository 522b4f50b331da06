"""Small tables come as Python rows from their one page, and by batches where that is not enough."""

from __future__ import annotations

from contextlib import closing

import pytest

from alltrace.readers.nsys.sqlite import one_page, open_sqlite
from alltrace.trace.errors import InputError

PAGE_SIZE = 4096
ROWS = [(3, "Hostname", -1.5, b"\xff", None), (9, None, None, None, 2**40), (11, "", 2.0, b"", -1)]
GIVEN = [(3, "Hostname", -1.5, "\\xff", None), (9, None, None, None, 2**40), (11, "", 2.0, "", -1)]


@pytest.fixture
def small(tmp_path, make):
    create = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, share REAL, raw BLOB, n INTEGER)"
    return make(
        tmp_path / "a.sqlite", [create, ("INSERT INTO t VALUES (?, ?, ?, ?, ?)", ROWS)], [f"page_size={PAGE_SIZE}"]
    )


@pytest.fixture
def pages_read(monkeypatch):
    read = []
    real = one_page.rows_of_page

    def noted(tree, table, columns):
        read.append(real(tree, table, columns))
        return read[-1]

    monkeypatch.setattr(one_page, "rows_of_page", noted)
    return read


def test_values_of_all_types(small, pages_read):
    with closing(open_sqlite(small)) as source:
        assert list(source.rows("t", ["id", "name", "share", "raw", "n"])) == GIVEN
        assert list(source.rows("t", ["n", "id"])) == [(row[4], row[0]) for row in ROWS]
        assert not source.warnings()
    assert None not in pages_read


def test_a_table_without_rows(small, make, pages_read):
    with closing(open_sqlite(small)) as source:
        assert list(source.rows("StringIds", ["id", "value"])) == []
    assert pages_read == [[]]


def test_nine_rows_with_every_other_one_null(tmp_path, make, pages_read):
    rows = [(n if n % 2 else None,) for n in range(9)]
    path = make(tmp_path / "a.sqlite", ["CREATE TABLE t (a INTEGER)", ("INSERT INTO t VALUES (?)", rows)])
    with closing(open_sqlite(path)) as source:
        assert list(source.rows("t", ["a"])) == rows
    assert pages_read == [rows]


@pytest.mark.parametrize(
    "values",
    [[(1, "text in a column of numbers")], [(1, 5)], [(n, "x" * 400) for n in range(100)], [(1, "long " * 2000)]],
    ids=["does not fit", "converted", "many pages", "long row"],
)
def test_what_takes_more_than_a_page_or_sqlite(tmp_path, make, both, rows, as_rows, pages_read, values):
    number = values[0][1] == "text in a column of numbers"
    create = f"CREATE TABLE t (a INTEGER, b {'INTEGER' if number else 'BLOB'})"
    path = make(tmp_path / "a.sqlite", [create, ("INSERT INTO t VALUES (?, ?)", values)])
    found = both(path)["t"]
    with closing(open_sqlite(path)) as source:
        assert rows(source, "t") == as_rows(found)
    assert all(page is None for page in pages_read if page != [])


def test_a_broken_page_is_an_error(small):
    raw = bytearray(small.read_bytes())
    page = raw.rindex(b"Hostname") // PAGE_SIZE * PAGE_SIZE
    raw[page + 3 : page + 5] = (2).to_bytes(2, "big")  # one row fewer, which SQLite itself does not notice
    small.write_bytes(raw)
    with (
        closing(open_sqlite(small)) as source,
        pytest.raises(InputError, match=r"table 't' is corrupt: page .* has free space"),
    ):
        list(source.rows("t", ["id"]))
