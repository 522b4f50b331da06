"""Whether a file is an SQLite database that can be read, and one that Nsight Systems wrote."""

import os
import stat
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from alltrace.trace.errors import InputError, printable
from alltrace.trace.nsys_payloads import EXPORT

MAGIC = b"SQLite format 3\x00"
HEADER_BYTES = 100
EXPECTED = "an SQLite export of Nsight Systems"
AGAIN = f"export the report again with '{EXPORT}'"
COPY = f"copy the file again, or {AGAIN}"

# Any of these makes a database an export; the names that have been there since 2020 and the commonest of each kind.
_KNOWN = {
    "ANALYSIS_DETAILS", "ANALYSIS_FILE", "COMPOSITE_EVENTS", "EXPORT_META_DATA", "GENERIC_EVENTS", "GPU_METRICS",
    "MPI_RANKS", "META_DATA_CAPTURE", "META_DATA_EXPORT", "NVTX_EVENTS", "OSRT_API", "PROCESSES", "SCHED_EVENTS",
    "StringIds", "ThreadNames",
}  # fmt: skip
_KNOWN_STARTS = ("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_")


class Header(NamedTuple):
    """What the first 100 bytes of a database say, checked against the size of the file."""

    page_size: int  # bytes of a page
    usable: int  # bytes of a page without the reserved ones at its end
    page_count: int  # pages of the file
    utf8: bool  # whether text is UTF-8
    wal: bool  # whether the file was last written in write-ahead mode


def open_file(path: str | PathLike[str]) -> int:
    """A descriptor for reading the regular file at `path`. Raises `InputError`: it is none, or may not be read."""
    try:
        if stat.S_ISDIR(Path(path).stat().st_mode):
            raise InputError(path, found="is a folder", expected=EXPECTED, advice="name the .sqlite file in it")
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise InputError(path, found="is not a regular file", expected=EXPECTED, advice="save it to a file first")
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise InputError(path, found="does not exist", expected=EXPECTED, advice="check the path") from None
    except PermissionError:
        raise InputError(path, found="may not be read", advice="ask its owner for permission to read it") from None
    except (OSError, ValueError) as error:
        raise InputError(path, found=f"cannot be opened ({error_text(error)})", expected=EXPECTED) from None


def read_header(path: str | PathLike[str], descriptor: int) -> Header:
    """The checked header. Raises `InputError`: the file is empty, something else, cut short, or of no known format."""
    try:
        head, size = os.pread(descriptor, HEADER_BYTES, 0), os.fstat(descriptor).st_size
    except OSError as error:
        raise InputError(
            path, found=f"cannot be read ({error_text(error)})", advice="check the disk it is on"
        ) from None
    if size == 0:
        raise InputError(path, found="is empty (0 bytes)", expected=EXPECTED, advice=f"the export failed; {AGAIN}")
    if not head.startswith(MAGIC[: len(head)]):
        if not any(head):
            raise InputError(
                path, found="starts with zeros: it was not written completely", expected=EXPECTED, advice=AGAIN
            )
        raise InputError(
            path, found="is not an SQLite database", expected=EXPECTED, advice="name a .sqlite file, or " + AGAIN
        )
    if size < HEADER_BYTES:
        raise InputError(
            path, found=f"is cut short: it has {size} bytes", expected="a complete SQLite database", advice=COPY
        )
    page_size = _big(head, 16, 2)
    page_size = 65536 if page_size == 1 else page_size
    reserved = head[20]
    if page_size < 512 or page_size & (page_size - 1) or page_size - reserved < 480 or head[21:24] != b"\x40\x20\x20":
        raise InputError(path, found="has a broken SQLite header", expected=EXPECTED, advice=COPY)
    if head[19] not in (1, 2):
        raise InputError(path, found=f"is of SQLite's file format {head[19]}", expected="format 1 or 2", advice=COPY)
    page_count = size // page_size
    stated = _big(head, 28, 4)
    # The count in the header holds only if the last writer knew of it (section 1.3.7 of SQLite's file format)
    if stated and head[24:28] == head[92:96]:
        if stated > page_count:
            raise InputError(
                path,
                found=f"is cut short: it has {size} bytes of {stated * page_size}",
                expected="a complete SQLite database",
                advice=COPY,
            )
        page_count = stated
    if page_count < 1:
        raise InputError(
            path, found=f"is cut short: it has {size} bytes", expected="a complete SQLite database", advice=COPY
        )
    return Header(
        page_size=page_size,
        usable=page_size - reserved,
        page_count=page_count,
        utf8=_big(head, 56, 4) in (0, 1),
        wal=2 in (head[18], head[19]),
    )


def check_export(path: str | PathLike[str], tables: Iterable[str]) -> None:
    """Raise an InputError unless some of the names `tables` belong to an export of Nsight Systems."""
    names = sorted(tables)
    if any(name in _KNOWN or name.startswith(_KNOWN_STARTS) for name in names):
        return
    if not names:
        raise InputError(path, found="is an SQLite database without tables", expected=EXPECTED, advice=AGAIN)
    shown = ", ".join(printable(name[:40]) for name in names[:4]) + (", ..." if len(names) > 4 else "")
    raise InputError(
        path,
        found=f"is an SQLite database of something else (tables: {shown})",
        expected=EXPECTED,
        advice="name a file that 'nsys export --type sqlite' wrote",
    )


def error_text(error: Exception) -> str:
    """What the system says of an error, without the path, which messages begin with."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return printable(text)


def _big(head: bytes, at: int, size: int) -> int:
    return int.from_bytes(head[at : at + size], "big")
