"""Copies the reports of a job to a store that fsspec knows, such as s3:// or gs://, and checks that they arrived."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.capture.check import ENDINGS, report_fault
from alltrace.trace.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_EXTRAS = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_TRIES = 3


@dataclass(frozen=True)
class Uploaded:
    """What became of the files of a folder.

    Attributes:
        copied: Files that were copied.
        present: Files that were there already, of the same size.
        size: Bytes that were copied.
        faults: Each file that was not copied, or is no whole report, with what is wrong.
    """

    copied: int
    present: int
    size: int
    faults: tuple[tuple[Path, str], ...]


def upload(folder: Path, url: str, say: Callable[[str], None]) -> Uploaded:
    """Copy every file in `folder` and below to `url`; what is there already and has the same size is not copied again.

    Args:
        folder: Where the reports are.
        url: Where they go, such as `s3://bucket/folder`.
        say: Gets a line for each file that is copied.

    Raises:
        InputError: There is no such folder, or nothing in it.
        UsageError: `url` is none, or what opens it is not installed.
    """
    files = _files(folder)
    system, base = _system(url)
    copied = present = size = 0
    faults: list[tuple[Path, str]] = []
    for path in files:
        fault = report_fault(path) if path.name.endswith(tuple(ENDINGS.values())) else None
        if fault is not None:
            faults.append((path, f"{fault}; it is copied as it is"))
        target = f"{base.rstrip('/')}/{path.relative_to(folder).as_posix()}"
        length = path.stat().st_size
        if _size(system, target) == length:
            present += 1
            continue
        problem = _copy(system, path, target, length)
        if problem is not None:
            faults.append((path, problem))
            continue
        copied += 1
        size += length
        say(f"{path.relative_to(folder)}, {length} bytes")
    return Uploaded(copied, present, size, tuple(faults))


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InputError(folder, found="there is no such folder", expected="one with reports")
    found = sorted(
        Path(at, n) for at, _, names in os.walk(folder) for n in names if not n.startswith(".") and Path(at, n).is_file()
    )
    if not found:
        raise InputError(folder, found="there are no files in it", advice="see what the ranks said about their reports")
    return found


def _system(url: str) -> tuple[Any, str]:
    scheme, colon, _ = url.partition("://")
    if not colon:
        raise UsageError(f"{url!r} is no URL; expected such as s3://bucket/folder or gs://bucket/folder")
    import fsspec

    try:
        system, base = fsspec.core.url_to_fs(url)
    except ImportError as error:
        package = _EXTRAS.get(scheme)
        how = f"pip install {package}" if package else str(error)
        raise UsageError(f"nothing here opens {scheme}:// URLs; {how}") from error
    except ValueError as error:
        raise UsageError(f"{url!r} cannot be written to ({error}); expected such as s3://bucket/folder") from error
    return system, str(base)


def _size(system: Any, target: str) -> int | None:
    try:
        return int(system.size(target))
    except Exception:  # noqa: BLE001  stores have errors of their own for what is not there; copying tells the rest
        return None


def _has_buckets(system: Any) -> bool:
    """Whether it is an object store, which has no folders to make."""
    named = system.protocol
    return not _EXTRAS.keys().isdisjoint({named} if isinstance(named, str) else named)


def _copy(system: Any, path: Path, target: str, length: int) -> str | None:
    """What is wrong, or None where the copy has the size that it should."""
    problem = None
    for _ in range(_TRIES):
        try:
            if not _has_buckets(system):  # there it would make the bucket that a typing error names
                system.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
            system.put_file(str(path), target)
            system.invalidate_cache()
        except FileNotFoundError:
            return f"{target} cannot be written: there is no such bucket or folder"
        except Exception as error:  # noqa: BLE001  the errors of a dozen stores' libraries
            problem = f"it cannot be copied to {target} ({type(error).__name__}: {error})"
            continue
        there = _size(system, target)
        if there == length:
            return None
        problem = f"{target} has {there} bytes after copying, and the file has {length}"
    return problem
