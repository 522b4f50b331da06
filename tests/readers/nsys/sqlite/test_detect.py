from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import pytest

from alltrace.readers.nsys.sqlite import open_sqlite
from alltrace.trace.errors import InputError


@pytest.fixture
def export(tmp_path, make):
    rows = [(i, f"name {i}") for i in range(2000)]
    return make(tmp_path / "a.sqlite", [("INSERT INTO StringIds VALUES (?, ?)", rows)])


def said(path):
    with pytest.raises(InputError) as error:
        open_sqlite(path)
    assert str(error.value).startswith(str(path))
    return str(error.value)


def test_files_that_are_something_else(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "zeros").write_bytes(bytes(8192))
    (tmp_path / "text").write_text("hello " * 1000)
    (tmp_path / "short").write_bytes(b"SQLite fo")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert "is empty (0 bytes); expected an SQLite export of Nsight Systems; the export failed" in said(
        tmp_path / "empty"
    )
    assert "starts with zeros: it was not written completely" in said(tmp_path / "zeros")
    assert "is not an SQLite database" in said(tmp_path / "text")
    assert "is cut short: it has 9 bytes" in said(tmp_path / "short")
    assert "is a folder" in said(tmp_path / "folder")
    assert "is not a regular file" in said(tmp_path / "pipe")
    assert "does not exist" in said(tmp_path / "absent")


@pytest.mark.corpus
def test_a_real_export_of_zero_bytes(corpus):
    assert "is empty (0 bytes)" in said(corpus / "malformed" / "zero_bytes.sqlite")


@pytest.mark.parametrize("keep", [100, 4095, 4096, 20_000])
def test_a_file_cut_short(export, keep):
    whole = export.stat().st_size
    os.truncate(export, keep)
    assert f"is cut short: it has {keep} bytes of {whole}" in said(export)


def test_a_file_cut_short_that_does_not_tell_its_size(export):
    raw = bytearray(export.read_bytes())
    raw[92:96] = b"\0\0\0\0"  # as a writer older than 2010 leaves it
    export.write_bytes(raw[: len(raw) // 8192 * 4096])
    with closing(open_sqlite(export)) as source, pytest.raises(InputError, match="table 'StringIds' is corrupt: page"):
        source.count_about("StringIds")


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [(16, b"\x03\x00", "broken SQLite header"), (19, b"\x03", "file format 3"), (21, b"\x41", "broken SQLite header")],
)
def test_broken_headers(export, at, value, message):
    raw = bytearray(export.read_bytes())
    raw[at : at + len(value)] = value
    export.write_bytes(raw)
    assert message in said(export)


def test_a_broken_schema(export):
    raw = bytearray(export.read_bytes())
    raw[100] = 0x77
    export.write_bytes(raw)
    assert "SQLite cannot read it" in said(export)


def test_databases_of_something_else(tmp_path):
    with closing(sqlite3.connect(tmp_path / "other")) as database:
        for name in ("songs", "albums", "artists\x1b[31m", "years", "zones"):
            database.execute(f'CREATE TABLE "{name}" (a)')
    with closing(sqlite3.connect(tmp_path / "none")) as database:
        database.execute("PRAGMA user_version = 1")
    assert "is an SQLite database of something else (tables: albums, artists\\x1b[31m, songs, years, ...)" in said(
        tmp_path / "other"
    )
    assert "is an SQLite database without tables" in said(tmp_path / "none")


def test_a_file_that_may_not_be_read(export, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    assert "may not be read; ask its owner" in said(export)
