"""Nsight Systems: SQLite exports, parquet directories, and reports through an installed nsys."""

from pathlib import Path

from alltrace.readers.heads import head_of

SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm", ".sqlite", ".sqlite3", ".db", "_pqtdir")

_MAGIC = b"SQLite format 3\x00"
_SURE = (".nsys-rep", ".qdrep", ".qdstrm", ".sqlite")
_PERHAPS = (".sqlite3", ".db")


def is_report(path: Path) -> bool:
    """Whether this reader recognizes `path` as one of its reports.

    A file called `.sqlite` is, even an empty or damaged one, so that the error is about it; `.db` and `.sqlite3` are if
    they are databases; a folder is if it holds an nsys export.
    """
    name = path.name.lower()
    if path.is_dir():
        return is_parquet_folder(path)
    if not path.is_file():
        return False
    if name.endswith(_SURE):
        return True
    return name.endswith(_PERHAPS) and head_of(path, len(_MAGIC)) == _MAGIC


def is_parquet_folder(path: Path) -> bool:
    """Whether a folder is an export as Parquet files."""
    if path.name.lower().endswith("_pqtdir"):
        return True
    return (path / "StringIds.parquet").is_file()
