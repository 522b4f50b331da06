from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from alltrace.readers.nsys.sqlite import open_sqlite
from alltrace.trace.errors import InputError, UsageError

API = 'CREATE TABLE api (start INTEGER NOT NULL, "end" INTEGER, name TEXT, weight REAL, raw BLOB)'


def api_rows(count):
    return [(i * 1000, i * 1000 + 7 if i % 3 else None, f"call {i % 5}", i / 4, bytes([i % 256])) for i in range(count)]


@pytest.mark.slow
@pytest.mark.corpus
def test_both_ways_agree_on_every_table_and_column_of_real_exports(corpus, both):
    files = [*sorted((corpus / "nsys").glob("*.sqlite")), corpus / "malformed" / "cp1251_metadata.sqlite"]
    tables = rows = 0
    for file in files:
        found = both(file)
        tables += len(found)
        rows += sum(table.num_rows for table in found.values() if not isinstance(table, str))
        # Tables of averages declared INTEGER, in an export of 2020, are the only ones with a misfit
        assert all("column 'avg' holds the number" in table for table in found.values() if isinstance(table, str))
    assert tables > 1000
    assert rows > 300_000


@pytest.mark.corpus
def test_real_exports_need_no_fallback(corpus, read):
    with closing(open_sqlite(corpus / "nsys" / "h100x2_nccl_sendrecv_nsys2026.2.sqlite", "fast")) as source:
        assert all(isinstance(read(source, table), pa.Table) for table in source.tables)


def test_values_of_all_types(tmp_path, make, both):
    path = make(tmp_path / "a.sqlite", [API, ("INSERT INTO api VALUES (?, ?, ?, ?, ?)", api_rows(5000))])
    table = both(path)["api"]
    assert table.schema == pa.schema(
        {"start": pa.int64(), "end": pa.int64(), "name": pa.string(), "weight": pa.float64(), "raw": pa.binary()}
    )
    assert table.to_pylist()[4999] == {
        "start": 4999000,
        "end": 4999007,
        "name": "call 4",
        "weight": 1249.75,
        "raw": b"\x87",
    }
    assert table["end"].null_count == 1667


@pytest.mark.parametrize("batch_rows", [1, 7, 680, 5000, 131_072])
def test_batches_hold_all_rows_in_order(tmp_path, make, read, batch_rows):
    path = make(tmp_path / "a.sqlite", [API, ("INSERT INTO api VALUES (?, ?, ?, ?, ?)", api_rows(2000))])
    with closing(open_sqlite(path, "fast")) as source:
        table = read(source, "api", {"start": pa.int32(), "name": pa.string()}, batch_rows)
    assert table["start"].to_pylist() == [i * 1000 for i in range(2000)]
    assert table["name"].to_pylist() == [f"call {i % 5}" for i in range(2000)]


@pytest.mark.parametrize("engine", ["fast", "sqlite3"])
def test_integers_come_as_narrow_as_asked(tmp_path, make, read, engine):
    rows = [
        (-128, -32768, -(2**31), -(2**63)),
        (127, 32767, 2**31 - 1, 2**63 - 1),
        (None, None, None, None),
        (0, 1, 2**23, 2**47),
    ]
    path = make(
        tmp_path / "a.sqlite",
        ["CREATE TABLE t (a INT, b INT, c INT, d INT)", ("INSERT INTO t VALUES (?, ?, ?, ?)", rows)],
    )
    with closing(open_sqlite(path, engine)) as source:
        table = read(source, "t", {"a": pa.int8(), "b": pa.int16(), "c": pa.int32(), "d": pa.int64()})
    assert [tuple(row.values()) for row in table.to_pylist()] == rows


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.int8(), 128), (pa.int8(), -129), (pa.int16(), 32768), (pa.int32(), -(2**31) - 1), (pa.int64(), "12 ns")],
)
@pytest.mark.parametrize("engine", ["auto", "sqlite3"])
def test_a_value_that_does_not_fit_is_an_error(tmp_path, make, engine, kind, value):
    path = make(tmp_path / "a.sqlite", ["CREATE TABLE t (a INTEGER)", ("INSERT INTO t VALUES (?)", [(5,), (value,)])])
    with (
        closing(open_sqlite(path, engine)) as source,
        pytest.raises(InputError, match="table 't', column 'a' holds") as error,
    ):
        list(source.batches("t", {"a": kind}))
    assert ("text or bytes" if isinstance(value, str) else str(value)) in str(error.value)


def test_a_value_of_another_type_is_read_by_sqlite_from_there_on(tmp_path, make, both, read):
    rows = [(i, "x", 1.5) for i in range(3000)]
    path = make(
        tmp_path / "a.sqlite",
        [
            "CREATE TABLE t (a INTEGER, b, c REAL)",
            ("INSERT INTO t VALUES (?, ?, ?)", rows),
            "INSERT INTO t VALUES (7, 12, 3), (8, 0.1, -4), (9, x'c3a9', 1e300)",
            ("INSERT INTO t VALUES (?, ?, ?)", rows),
        ],
    )
    table = both(path, 1000)["t"]
    assert table.num_rows == 6003
    assert table.slice(2999, 4).to_pydict() == {
        "a": [2999, 7, 8, 9],
        "b": ["x", "12", "0.1", "é"],
        "c": [1.5, 3.0, -4.0, 1e300],
    }
    with closing(open_sqlite(path, "fast")) as source:
        assert "needs sqlite3" in read(source, "t")
        assert read(source, "t", {"a": pa.int64()}).num_rows == 6003


def test_an_integral_number_in_an_integer_column_is_an_integer(tmp_path, make, both):
    path = make(
        tmp_path / "a.sqlite", ["CREATE TABLE t (a INTEGER, b INTEGER)", "INSERT INTO t VALUES (1e18, 1), (2, 1e300)"]
    )
    with closing(open_sqlite(path)) as source:
        (batch,) = source.batches("t", {"a": pa.int64()})
    assert batch["a"].to_pylist() == [10**18, 2]
    assert "column 'b' holds the number 1e+300" in both(path)["t"]


def test_the_row_number_stands_in_for_an_integer_key(tmp_path, make, both):
    path = make(
        tmp_path / "a.sqlite",
        [
            "CREATE TABLE alias (a TEXT, id integer PRIMARY KEY)",
            "INSERT INTO alias VALUES ('x', -5), ('y', 9000000000)",
            "CREATE TABLE other (id INTEGER PRIMARY KEY DESC, a TEXT)",
            "INSERT INTO other VALUES (4, 'p'), (3, 'q')",
            "CREATE TABLE short (id INT PRIMARY KEY, a TEXT)",
            "INSERT INTO short VALUES (4, 'p'), (3, 'q')",
        ],
    )
    found = both(path)
    assert found["alias"]["id"].to_pylist() == [-5, 9000000000]
    assert found["other"]["id"].to_pylist() == [4, 3]
    assert found["short"]["id"].to_pylist() == [4, 3]


def test_a_row_number_too_large_is_an_error(tmp_path, make, read):
    path = make(tmp_path / "a.sqlite", ["INSERT INTO StringIds VALUES (70000, 'x')"])
    with closing(open_sqlite(path)) as source:
        assert "column 'id' holds the integer 70000" in read(source, "StringIds", {"id": pa.int16()})
        assert read(source, "StringIds", {"id": pa.int32()})["id"].to_pylist() == [70000]


def test_added_columns_have_their_default(tmp_path, make, both, read):
    path = make(
        tmp_path / "a.sqlite",
        [
            "CREATE TABLE t (a INTEGER)",
            "INSERT INTO t VALUES (1)",
            "ALTER TABLE t ADD COLUMN b TEXT",
            "ALTER TABLE t ADD COLUMN c INTEGER NOT NULL DEFAULT 42",
            "ALTER TABLE t ADD COLUMN d REAL DEFAULT 3",
            "INSERT INTO t VALUES (2, 'x', 3, 4)",
        ],
    )
    assert both(path)["t"].to_pylist() == [{"a": 1, "b": None, "c": 42, "d": 3.0}, {"a": 2, "b": "x", "c": 3, "d": 4.0}]
    with closing(open_sqlite(path, "fast")) as source:  # what has no default needs no help
        assert read(source, "t", {"b": pa.string(), "a": pa.int8()}).to_pylist() == [
            {"b": None, "a": 1},
            {"b": "x", "a": 2},
        ]


def test_what_only_sqlite_reads(tmp_path, make, both, read):
    path = make(
        tmp_path / "a.sqlite",
        [
            "CREATE TABLE w (k TEXT PRIMARY KEY, v INTEGER) WITHOUT ROWID",
            "INSERT INTO w VALUES ('b', 1), ('a', 2)",
            "CREATE TABLE g (a INTEGER, b INTEGER AS (a * 2) STORED, c INTEGER AS (a + 1), d TEXT)",
            "INSERT INTO g (a, d) VALUES (5, 'x')",
            "CREATE VIEW v AS SELECT k, v + 1 AS more FROM w",
            "CREATE VIEW broken AS SELECT * FROM nowhere",
            "CREATE TABLE hidden (rowid INTEGER, _rowid_ INTEGER, oid TEXT)",
            "INSERT INTO hidden VALUES (3, 4, 'five'), (1, 2, 'three')",
        ],
    )
    found = both(path)
    assert found["w"].to_pylist() == [{"k": "a", "v": 2}, {"k": "b", "v": 1}]
    assert found["g"].to_pylist() == [{"a": 5, "b": 10, "c": 6, "d": "x"}]
    assert found["v"].num_rows == 2
    assert found["hidden"]["oid"].to_pylist() == ["five", "three"]
    assert "broken" not in found
    with closing(open_sqlite(path, "fast")) as source:
        assert [table for table in source.tables if "needs sqlite3" in str(read(source, table))] == [
            "w",
            "g",
            "v",
            "hidden",
        ]


def test_rows_come_in_their_own_order_although_an_index_has_all_columns(tmp_path, make, both):
    rows = [(i * 7919 % 1000,) for i in range(1000)]
    path = make(
        tmp_path / "a.sqlite",
        ["CREATE TABLE t (a INTEGER)", ("INSERT INTO t VALUES (?)", rows), "CREATE INDEX i ON t (a)"],
    )
    assert both(path)["t"]["a"].to_pylist() == [row[0] for row in rows]


def test_utf16(tmp_path, make, both):
    path = make(
        tmp_path / "a.sqlite",
        ["CREATE TABLE t (a TEXT)", "INSERT INTO t VALUES ('grüße 🚀'), (NULL), ('')"],
        ["encoding='UTF-16le'"],
    )
    assert both(path)["t"]["a"].to_pylist() == ["grüße 🚀", None, ""]


def test_bytes_that_are_not_utf8_are_escaped_and_stay_apart(tmp_path, make, both):
    raw = [b"caf\xe9", "naïve".encode(), b"\xc3", b"\xa9", b"\xed\xa0\x80x", b"\xf0\x9f\x9a", b"", b"a\x00b"]
    rows = [(value,) for value in raw]
    path = make(tmp_path / "a.sqlite", ["CREATE TABLE t (a TEXT)", ("INSERT INTO t VALUES (CAST(? AS TEXT))", rows)])
    assert both(path)["t"]["a"].to_pylist() == [value.decode("utf-8", "backslashreplace") for value in raw]


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_long_values_on_overflow_pages(tmp_path, make, both, page_size):
    usable = page_size
    sizes = [0, usable - 36, usable - 35, usable - 34, usable, 2 * usable + 1, 300_000, 3]
    rows = [(i, chr(97 + i) * size, bytes([200 + i]) * size) for i, size in enumerate(sizes)]
    path = make(
        tmp_path / "a.sqlite",
        ["CREATE TABLE t (a INTEGER, b TEXT, c BLOB)", ("INSERT INTO t VALUES (?, ?, ?)", rows)],
        [f"page_size={page_size}"],
    )
    assert [tuple(row.values()) for row in both(path)["t"].to_pylist()] == rows
    assert both(path, 3)["t"].num_rows == len(rows)


@pytest.mark.slow
def test_much_text_makes_smaller_batches(tmp_path, make):
    rows = [("x" * (9 << 20),) for _ in range(16)]
    path = make(tmp_path / "a.sqlite", ["CREATE TABLE t (a TEXT)", ("INSERT INTO t VALUES (?)", rows)])
    for engine in ("fast", "sqlite3"):
        with closing(open_sqlite(path, engine)) as source:
            sizes = [batch.nbytes for batch in source.batches("t", {"a": pa.string()})]
        assert len(sizes) > 1
        assert max(sizes) < 2 * (64 << 20)


@pytest.mark.parametrize("reserved", [1, 8, 32])
def test_pages_with_reserved_bytes(tmp_path, both, reserved):
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 1")
    raw = bytearray(path.read_bytes())
    raw[20] = reserved
    raw[105:107] = (4096 - reserved).to_bytes(
        2, "big"
    )  # page 1 is empty, and its content now begins before the reserved bytes
    path.write_bytes(raw)
    rows = [(i, "x" * (i * 37 % 9000)) for i in range(500)]
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", rows)
        database.commit()
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert path.read_bytes()[20] == reserved
    assert [tuple(row.values()) for row in both(path)["StringIds"].to_pylist()] == rows


def test_two_threads_read_one_source(tmp_path, make, read):
    path = make(tmp_path / "a.sqlite", [API, ("INSERT INTO api VALUES (?, ?, ?, ?, ?)", api_rows(20000))])
    found = []
    with closing(open_sqlite(path)) as source:
        threads = [threading.Thread(target=lambda: found.append(read(source, "api", None, 999))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 4
    assert all(table.equals(found[0]) for table in found)
    assert found[0].num_rows == 20000


def test_closing_lets_batches_under_way_end(tmp_path, make):
    path = make(tmp_path / "a.sqlite", [API, ("INSERT INTO api VALUES (?, ?, ?, ?, ?)", api_rows(50000))])
    source = open_sqlite(path)
    batches = source.batches("api", {"start": pa.int64()}, 100)
    first = next(batches)
    source.close()
    source.close()
    assert first["start"].to_pylist() == [i * 1000 for i in range(100)]
    assert sum(batch.num_rows for batch in batches) == 49900
    with pytest.raises(UsageError, match="is closed already"):
        source.count_about("api")


def test_descriptors_are_given_back(tmp_path, make):
    path = make(tmp_path / "a.sqlite", [API, ("INSERT INTO api VALUES (?, ?, ?, ?, ?)", api_rows(5000))])
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        source = open_sqlite(path)
        next(source.batches("api", {"start": pa.int64()}, 10))
        source.count_about("api")
        del source
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_file_written_meanwhile_is_an_error(tmp_path, make):
    path = make(tmp_path / "a.sqlite", [API, ("INSERT INTO api VALUES (?, ?, ?, ?, ?)", api_rows(5000))])
    with closing(open_sqlite(path)) as source:
        batches = source.batches("api", {"start": pa.int64()}, 1000)
        next(batches)
        with closing(sqlite3.connect(path)) as database:
            database.execute("INSERT INTO api (start) VALUES (1)")
            database.commit()
        with pytest.raises(InputError, match="changed while it was read"):
            list(batches)


def test_wrong_questions(tmp_path, make):
    path = make(tmp_path / "a.sqlite", [API])
    with closing(open_sqlite(path)) as source:
        with pytest.raises(UsageError, match="unknown table 'apis'; did you mean api"):
            source.count_about("apis")
        with pytest.raises(UsageError, match="unknown column of table 'api' 'begin'"):
            source.batches("api", {"begin": pa.int64()})
        with pytest.raises(UsageError, match="no column of table 'api' is asked for"):
            source.batches("api", {})
        with pytest.raises(UsageError, match="at least one row, not 0"):
            source.batches("api", {"start": pa.int64()}, 0)
        with pytest.raises(InputError, match="column 'name' is declared as string; expected int64"):
            source.batches("api", {"name": pa.int64()})
        assert list(source.batches("api", {"start": pa.int64()})) == []
        assert source.count_about("api") == 0
    with pytest.raises(UsageError, match="unknown engine 'slow'"):
        open_sqlite(path, "slow")


def test_opening_does_not_load_the_machinery(tmp_path, make):
    path = make(tmp_path / "a.sqlite", [])
    code = (
        "import sys; from alltrace.readers.nsys.sqlite import open_sqlite; s = open_sqlite(sys.argv[1]); s.tables;"
        " s.close();print([m for m in ('numba', 'pyarrow', 'numpy', 'duckdb') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
