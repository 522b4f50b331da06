"""Reports that stay open from the first look until they are read, in the same process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from alltrace.readers.base import ReportReader

Readers = dict[str, ReportReader]  # by the path of the report; what reads a report takes its reader out and closes it

_MOST_OPEN = 16
"""With 64 open reports an import took a tenth more CPU time than if each is opened again, with 16 a twentieth less."""
_QUICK_LOOK = ".sqlite"
_SMALL_BYTES = 8 << 20  # such a report of up to this size takes little memory while it stays open


@contextmanager
def closing_readers() -> Iterator[Readers]:
    """A place for readers; those that are left are closed where the block ends."""
    readers: Readers = {}
    try:
        yield readers
    finally:
        close_readers(readers)


def close_readers(readers: Readers) -> None:
    """Close all readers, and forget them."""
    while readers:
        readers.popitem()[1].close()


def staying_open(reports: Sequence[Path]) -> set[Path]:
    """The reports that may stay open together."""
    small = (p for p in reports if p.suffix.lower() == _QUICK_LOOK and p.is_file() and p.stat().st_size < _SMALL_BYTES)
    return {report for report, _ in zip(small, range(_MOST_OPEN), strict=False)}
