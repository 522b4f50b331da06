"""SQLite exports of Nsight Systems: pages decoded directly, with the `sqlite3` module for unusual files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike
    from typing import Literal

    from alltrace.readers.nsys.source import RawSource


def open_sqlite(path: str | PathLike[str], engine: Literal["auto", "fast", "sqlite3"] = "auto") -> RawSource:
    """Open an SQLite export of Nsight Systems; nothing is written next to it.

    `path`: the file. `engine`: `auto` decodes the pages of a table directly, and continues with `sqlite3` if that is
    not possible (a table WITHOUT ROWID, UTF-16, a value of another type than declared); `sqlite3` always reads with
    `sqlite3`; `fast` never does and raises an error instead. Results are equal. Raises `InputError`: the file cannot be
    read, is not an SQLite database or not whole, is being written, or is not an export of Nsight Systems.
    """
    from alltrace.readers.nsys.sqlite.read import SqliteSource

    return SqliteSource(path, engine)
