from __future__ import annotations

from contextlib import closing
from unittest import mock

import pytest
from tests.together import together

from alltrace.readers.nsys.sqlite import open_sqlite, schema
from alltrace.readers.nsys.sqlite.schema import declared_type


@together(
    ("declaration", "kind"),
    [
        ("INTEGER", "int64"), ("bigint unsigned", "int64"), ("REAL", "float64"), ("DOUBLE", "float64"),
        ("NUMERIC", "float64"), ("TEXT", "string"), ("varchar(9)", "string"), ("", "string"), ("BLOB", "binary"),
        ("CHARINT", "int64"),
    ],
)  # fmt: skip
def test_declarations(declaration, kind):
    assert declared_type(declaration) == kind


def test_tables_and_columns_come_in_their_order(tmp_path, make):
    path = make(
        tmp_path / "a.sqlite",
        [
            'CREATE TABLE "it\'s ""odd""" ("a b" INT, "ü" TEXT, "select" REAL, "x""y" BLOB, last)',
            "CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT)",
            "INSERT INTO counted VALUES (1)",
            "CREATE INDEX i ON counted (id)",
            "CREATE TRIGGER g AFTER INSERT ON counted BEGIN SELECT 1; END",
        ],
    )
    with closing(open_sqlite(path)) as source:
        assert {name: dict(columns) for name, columns in source.tables.items()} == {
            "StringIds": {"id": "int64", "value": "string"},
            'it\'s "odd"': {"a b": "int64", "ü": "string", "select": "float64", 'x"y': "binary", "last": "string"},
            "counted": {"id": "int64"},
        }
        assert list(source.tables) == ["StringIds", 'it\'s "odd"', "counted"]
        with pytest.raises(TypeError):
            source.tables["new"] = {}


def test_odd_names_can_be_read(tmp_path, make, both):
    path = make(
        tmp_path / "a.sqlite",
        ['CREATE TABLE "a\nb""c" ("x""y" INT, "?" TEXT)', 'INSERT INTO "a\nb""c" VALUES (1, \'two\')'],
    )
    assert both(path)['a\nb"c'].to_pylist() == [{'x"y': 1, "?": "two"}]


def test_names_that_are_not_utf8_are_left_out(tmp_path, make, both):
    path = make(
        tmp_path / "a.sqlite",
        ["CREATE TABLE bad_name (a INT)", "CREATE TABLE t (bad_col INT, b INT)", "INSERT INTO t VALUES (1, 2)"],
    )
    path.write_bytes(path.read_bytes().replace(b"bad_name", b"bad_\xff\xfeme").replace(b"bad_col", b"bad_\xffol"))
    found = both(path)
    assert list(found) == ["StringIds", "t"]
    assert found["t"].to_pylist() == [{"b": 2}]


def test_a_table_whose_first_page_is_of_another_kind(tmp_path, make, read):
    path = make(
        tmp_path / "a.sqlite",
        ["CREATE TABLE w (k INTEGER PRIMARY KEY, v INTEGER) WITHOUT ROWID", "INSERT INTO w VALUES (1, 2)"],
    )
    raw = bytearray(path.read_bytes())
    ids, other = raw[4096:8192], raw[8192:12288]
    raw[4096:12288] = other + ids  # StringIds and w have changed places
    path.write_bytes(raw)
    with closing(open_sqlite(path)) as source:
        assert "page 2 is not the first page of a table" in read(source, "StringIds")
        assert "table 'w': SQLite cannot read it" in read(source, "w")


def test_tables_of_reports_that_differ_are_told_apart(tmp_path, make, both):
    """What is known of a table holds for the same statement alone, and not for where the table begins."""
    first = make(tmp_path / "a.sqlite", ["CREATE TABLE t (a INT, b TEXT)", "INSERT INTO t VALUES (1, 'x')"])
    later = make(
        tmp_path / "b.sqlite",
        [
            "CREATE TABLE before (a INT)",
            "INSERT INTO before VALUES (7)",
            "CREATE TABLE t (a INT, b TEXT)",
            "INSERT INTO t VALUES (2, 'y')",
        ],
    )
    other = make(tmp_path / "c.sqlite", ["CREATE TABLE t (b INT, a REAL)", "INSERT INTO t VALUES (3, 0.5)"])
    asked = []
    open_sqlite(first).close()
    with (
        mock.patch.object(schema, "_table", side_effect=lambda opened, name, root: asked.append(name)),
        closing(open_sqlite(later)) as source,
    ):
        assert "t" in source.tables
    assert asked == ["before"]
    schema._known.clear()
    assert [both(path)["t"].to_pylist() for path in (first, later, other)] == [
        [{"a": 1, "b": "x"}],
        [{"a": 2, "b": "y"}],
        [{"b": 3, "a": 0.5}],
    ]


def test_what_is_known_of_tables_is_bounded(tmp_path, make, monkeypatch):
    monkeypatch.setattr(schema, "_MOST_KNOWN", 2)
    path = make(tmp_path / "a.sqlite", [f"CREATE TABLE t{n} (a INT)" for n in range(5)])
    with closing(open_sqlite(path)) as source:
        assert {f"t{n}" for n in range(5)} <= set(source.tables)
    assert len(schema._known) <= 2
