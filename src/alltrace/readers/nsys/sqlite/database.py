"""The database as the `sqlite3` module opens it: without writing next to it, and without trusting its content."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote_from_bytes

from alltrace.readers.nsys.sqlite.detect import AGAIN, COPY, Header, error_text
from alltrace.trace.errors import InputError
from alltrace.trace.scratch import scratch_folder

_LOCK_WAIT_S = 1.0
_STALL_S = 60.0  # a view that yields no row for this time is interrupted
_STEPS = 1_000_000  # of SQLite's machine between two looks at the clock


class Access(NamedTuple):
    """How a database is to be opened."""

    path: Path  # the file that the user named, for messages
    file: Path  # the file to open: the same, or a copy
    immutable: (
        bool  # whether SQLite may assume that the file does not change, so that it needs no locks and no further files
    )
    journal: bool  # whether there is a rollback journal next to it, so that only SQLite may read the pages
    scratch: TemporaryDirectory[str] | None = None  # the folder of the copy, for `cleanup` in the end


def plan_access(path: Path, header: Header) -> Access:
    """How to open the database at `path` so that nothing is written next to it.

    SQLite creates a `-shm` file next to a database in write-ahead mode even when it only reads. So such a database is
    opened as immutable if its log is empty, and with a log of changes not yet in the file, a copy of both is opened
    elsewhere.

    Raises `InputError`: a transaction was not finished, or the copy cannot be made.
    """
    real = Path(os.path.realpath(path))
    log = _size(Path(f"{real}-wal"))
    journal = bool(_size(Path(f"{real}-journal")))
    if log:
        scratch, copy = _copy_with_log(path, real)
        return Access(path, copy, immutable=True, journal=False, scratch=scratch)
    quiet = header.wal or log is not None
    if journal and quiet:
        raise unfinished(path)
    return Access(path, real, immutable=quiet, journal=journal)


def unfinished(path: Path) -> InputError:
    """The error for a database whose last transaction was cut off or is still in progress."""
    return InputError(
        path,
        found="has an unfinished transaction (a -journal file is next to it)",
        expected="a complete export",
        advice=f"wait until the export has ended, or {AGAIN}",
    )


@contextmanager
def connection(access: Access, what: str | None = None) -> Iterator[sqlite3.Connection]:
    """A connection for reading, text as bytes; errors inside become InputErrors that name the file and `what`."""
    try:
        opened = _connect(access)
        try:
            yield opened
        finally:
            opened.close()
    # the second if SQLite's message has a broken name in it, the third if a broken record claims to have gigabytes
    except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:
        raise _translated(error, access, what) from None


def _connect(access: Access) -> sqlite3.Connection:
    try:
        return _try_connect(access, immutable=access.immutable)
    except sqlite3.OperationalError as error:
        # Some network file systems have no locks. Without a journal, no write can be in progress.
        if access.immutable or access.journal or "disk I/O error" not in str(error):
            raise
        return _try_connect(access, immutable=True)


def _try_connect(access: Access, *, immutable: bool) -> sqlite3.Connection:
    # an absolute path may begin with two slashes, which in a URI is a host
    name = "/" + quote_from_bytes(os.fsencode(Path.cwd() / access.file)).lstrip("/")
    uri = f"file:{name}?mode=ro" + ("&immutable=1" if immutable else "")
    opened = sqlite3.connect(uri, uri=True, timeout=_LOCK_WAIT_S, check_same_thread=False, isolation_level=None)
    try:
        opened.text_factory = bytes
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "query_only=ON", "mmap_size=0"):
            opened.execute(f"PRAGMA {pragma}")
        # takes the lock, finds a journal, reads the schema
        opened.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        opened.close()
        raise
    return opened


class Watch:
    """Interrupts a query that yields nothing for a minute, such as a malicious view that never ends."""

    def __init__(self, opened: sqlite3.Connection) -> None:
        self._last = time.monotonic()
        opened.set_progress_handler(self._late, _STEPS)

    def progress(self) -> None:
        """Say that the query gave something."""
        self._last = time.monotonic()

    def _late(self) -> int:
        return int(time.monotonic() - self._last > _STALL_S)


def quoted(name: str) -> str:
    """`name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _translated(error: Exception, access: Access, what: str | None) -> InputError:
    text = "out of memory" if isinstance(error, MemoryError) else error_text(error)
    where = f"{what}: " if what else ""
    if "locked" in text:
        return InputError(
            access.path,
            found="is locked by a program that is writing it",
            advice="wait until the export has ended, then try again",
        )
    if access.journal and ("readonly" in text or "unable to open" in text or "disk I/O" in text):
        return unfinished(access.path)
    if "interrupted" in text:
        return InputError(
            access.path, found=f"{where}did not respond for {_STALL_S:.0f} s", advice="leave this table out"
        )
    if "unable to open" in text:
        return InputError(
            access.path, found=f"{where}SQLite cannot open it ({text})", advice="check the path and permissions"
        )
    return InputError(
        access.path, found=f"{where}SQLite cannot read it ({text})", expected="a sound database", advice=COPY
    )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _copy_with_log(path: Path, real: Path) -> tuple[TemporaryDirectory[str], Path]:
    """A new folder, and in it a copy of the database with its write-ahead log merged."""
    log = Path(f"{real}-wal")
    scratch = scratch_folder("alltrace-copy-")
    copy = Path(scratch.name, "copy.sqlite")
    try:
        before = _stamp(real), _stamp(log)
        shutil.copyfile(real, copy)
        shutil.copyfile(log, f"{copy}-wal")
        if before != (_stamp(real), _stamp(log)):
            raise changed(path)
        opened = sqlite3.connect(copy, isolation_level=None)
        try:
            opened.execute("PRAGMA trusted_schema=OFF")
            opened.execute("SELECT count(*) FROM sqlite_master").fetchone()
            opened.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            opened.close()
    except (OSError, sqlite3.Error) as error:
        scratch.cleanup()
        raise InputError(
            path,
            found=f"has changes in a -wal file that cannot be merged in a copy ({error_text(error)})",
            advice=f"close the program that writes it, and check the free space in {copy.parent.parent}, or {AGAIN}",
        ) from None
    except (InputError, KeyboardInterrupt, SystemExit):
        scratch.cleanup()
        raise
    return scratch, copy


def changed(path: Path) -> InputError:
    """The error for a file that somebody wrote while it was read."""
    return InputError(path, found="changed while it was read", advice="wait until the export has ended, then try again")


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
