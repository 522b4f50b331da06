from __future__ import annotations

import sqlite3
from contextlib import closing

import pyarrow as pa
import pytest

from alltrace.readers.nsys.sqlite import database, fallback, open_sqlite
from alltrace.trace.errors import InputError

FILL = ("INSERT INTO StringIds VALUES (?, ?)", [(i, f"name {i}") for i in range(2000)])


def test_more_rows_than_the_file_has_room_for(tmp_path, make, monkeypatch):
    path = make(tmp_path / "a.sqlite", [FILL])
    monkeypatch.setattr(fallback, "_SMALLEST_ROW", 1 << 10)
    with (
        closing(open_sqlite(path, "sqlite3")) as source,
        pytest.raises(InputError, match="'StringIds' is corrupt: it has more rows than the file has room for"),
    ):
        list(source.batches("StringIds", {"id": pa.int64()}))


def test_going_on_after_a_row(tmp_path, make):
    path = make(
        tmp_path / "a.sqlite",
        ["CREATE TABLE t (rowid TEXT, a INT)", "INSERT INTO t (_rowid_, a) VALUES (-3, 1), (5, 2), (9, 3)"],
    )
    with closing(open_sqlite(path)) as source:
        table = source._schema["t"]
        given = fallback.fallback_batches(source._access, source._header, table, {"a": pa.int8()}, 1, -3)
        assert [batch["a"].to_pylist() for batch in given] == [[2], [3]]


def test_a_file_system_without_locks(tmp_path, make, monkeypatch):
    path = make(tmp_path / "a.sqlite", [FILL])
    connect, tried = sqlite3.connect, []

    def without_locks(name, **options):
        if path.name not in str(name):
            return connect(name, **options)  # such as the data of coverage.py
        tried.append(name.partition("?")[2])
        if "immutable" not in name:
            raise sqlite3.OperationalError("disk I/O error")
        return connect(name, **options)

    monkeypatch.setattr(database.sqlite3, "connect", without_locks)
    with closing(open_sqlite(path, "sqlite3")) as source:
        assert sum(batch.num_rows for batch in source.batches("StringIds", {"id": pa.int64()})) == 2000
    assert tried == ["mode=ro", "mode=ro&immutable=1"] * 2


def test_numbers_as_text_are_written_as_sqlite_writes_them(tmp_path, make, both):
    path = make(
        tmp_path / "a.sqlite",
        ["CREATE TABLE t (a)", "INSERT INTO t VALUES (0.1), (1e100), (-5), (3.0), (x'ff'), (NULL)"],
    )
    assert both(path)["t"]["a"].to_pylist() == ["0.1", "1.0e+100", "-5", "3.0", "\\xff", None]


@pytest.mark.parametrize(("rows", "wrong", "set_aside"), [(4, 3, True), (4, 4, False), (600, 6, True), (600, 7, False)])
def test_a_few_times_that_are_none_are_those_of_rows_that_cannot_be_true(rows, wrong, set_aside):
    values = (*["x", 1.5] * 4, *range(rows))[8 - wrong : 8 + rows - wrong]
    times = fallback._as_times(values)
    assert times == ([fallback._NO_TIME] * wrong + list(range(rows - wrong)) if set_aside else list(values))
