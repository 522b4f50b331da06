"""The hash of a report's content, and what shows whether its files changed."""

import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from alltrace.trace.errors import InputError

_HASH_BLOCK, _LEAST_BLOCK = 1 << 20, 1 << 14
_WORTH_A_THREAD_BYTES = 8 << 20

Stamps = tuple[tuple[int, ...], ...]


class Content(NamedTuple):
    """The content of a report when its files were last checked."""

    stamps: Stamps  # size, inode and times of each of its files, in ns
    digest: str  # the hash of `content_hash`

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(s[0] for s in self.stamps)


def file_stamps(report: Path) -> Stamps:
    """Size, inode and times of each file of a report. Raises `OSError`: they cannot be seen."""
    files = sorted(p for p in report.rglob("*") if p.is_file()) if report.is_dir() else [report]
    return tuple((s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns) for s in (f.stat() for f in files)) or (
        (0, 0, 0, 0),
    )


def is_as_it_was(report: Path, content: Content) -> bool:
    """Whether no file of a report has changed since."""
    try:
        return file_stamps(report) == content.stamps
    except OSError:
        return False


def content_hash(path: Path) -> tuple[int, str]:
    """Size in bytes and XXH3-128 of a file, or of a folder's files with names. Raises `InputError`: unreadable."""
    import xxhash

    digest = xxhash.xxh3_128()
    size, is_folder = 0, path.is_dir()
    try:
        for file in sorted(p for p in path.rglob("*") if p.is_file()) if is_folder else [path]:
            if is_folder:
                digest.update(str(file.relative_to(path)).encode("utf-8", "surrogateescape") + b"\0")
            with file.open("rb", buffering=0) as source:
                for piece in _read(source):
                    digest.update(piece)
                    size += len(piece)
    except OSError as error:
        raise InputError.cannot_be("read", path, error, advice="check its permissions") from error
    return size, digest.hexdigest()


@contextmanager
def hashing(path: Path, known: Content | None) -> Iterator[Callable[[], tuple[int, str]]]:
    """A function that gives size and hash of a report, which for a large one are worked out while the block runs."""
    if known is not None and is_as_it_was(path, known):
        unchanged = known.size_bytes, known.digest
        yield lambda: unchanged
    elif path.is_file() and path.stat().st_size < _WORTH_A_THREAD_BYTES:
        yield lambda: content_hash(path)
    else:
        with ThreadPoolExecutor(1, "alltrace-hash") as pool:
            yield pool.submit(content_hash, path).result


def _read(source: io.FileIO) -> Iterator[memoryview]:
    """The bytes of an open file, each piece replacing the previous one."""
    # to clear a block takes longer than to read a small file
    size = os.fstat(source.fileno()).st_size
    view = memoryview(bytearray(min(max(size + 1, _LEAST_BLOCK), _HASH_BLOCK)))
    while n := source.readinto(view):
        yield view[:n]
