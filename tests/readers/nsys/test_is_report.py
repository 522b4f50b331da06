from __future__ import annotations

from alltrace.readers.nsys import SUFFIXES, is_report
from alltrace.readers.registry import is_report as known

MAGIC = b"SQLite format 3\x00 and more"


def test_files(tmp_path):
    cases = {
        "a.nsys-rep": (b"", True),
        "b.qdrep": (b"x", True),
        "c.qdstrm": (b"x", True),
        "d.sqlite": (b"", True),  # so that the error names it
        "e.sqlite": (b"not a database", True),
        "f.db": (MAGIC, True),
        "g.db": (b"Berkeley", False),
        "h.sqlite3": (MAGIC, True),
        "i.json": (MAGIC, False),
        "J.SQLITE": (MAGIC, True),
    }
    for name, (content, expected) in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert is_report(path) is expected, name
        assert known(path) is expected, name
    assert not is_report(tmp_path / "absent.sqlite")


def test_folders(tmp_path):
    (tmp_path / "rep_pqtdir").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "renamed").mkdir()
    (tmp_path / "renamed" / "StringIds.parquet").write_bytes(b"")
    (tmp_path / "folder.sqlite").mkdir()
    assert is_report(tmp_path / "rep_pqtdir")
    assert is_report(tmp_path / "renamed")
    assert not is_report(tmp_path / "other")
    assert not is_report(tmp_path / "folder.sqlite")
    assert "_pqtdir" in SUFFIXES
