"""Copies the reports of a job away, such as to s3:// or https://, and checks that they arrived."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from alltrace.capture.check import ENDINGS, report_fault
from alltrace.capture.stores import Store, store_at
from alltrace.trace.errors import AlltraceError, InputError
from alltrace.trace.scratch import scratch_folder

_TRIES = 3
_SCRUBBED_AS_IS = (".csv", ".csv.utc-offset", ".capture.json")
_SCRUBBED = (".nsys-rep", ".sqlite")


@dataclass(frozen=True)
class Uploaded:
    copied: int  # files that were copied
    present: int  # files that were already there, of the same size
    size: int  # bytes that were copied
    faults: tuple[tuple[Path, str], ...]  # each file that was not copied, or is no whole report, with what is wrong
    place: str  # where they are, without passwords


def upload(
    places: Sequence[Path], url: str, say: Callable[[str], None], *, scrub: Callable[[Path, Path], object] | None = None
) -> Uploaded:
    """Copy files, and every file below folders, to `url`, but for what is there already and has the same size."""
    # `scrub`: writes what may be shared of a report of nsys as an export, which is copied instead; None to copy
    # reports.
    files = [(path, name) for place in places for path, name in _files(place)]
    store = store_at(url)
    copied = present = size = 0
    faults: list[tuple[Path, str]] = []
    with scratch_folder("alltrace-scrubbed-") as scratch:
        for path, name in files:
            fault = report_fault(path) if path.name.endswith(tuple(ENDINGS.values())) else None
            if fault is not None:
                faults.append((path, f"{fault}; it is {'copied as it is' if scrub is None else 'not copied'}"))
            if scrub is None:
                source, target = path, name
            else:
                scrubbed = None if fault is not None else _scrubbed(scrub, path, name, Path(scratch), faults)
                if scrubbed is None:
                    continue
                source, target = scrubbed
            length = source.stat().st_size
            if store.size(target) == length:
                present += 1
                continue
            problem = _copy(store, source, target, length)
            if source != path:
                source.unlink()
            if problem is not None:
                faults.append((path, problem))
                continue
            copied += 1
            size += length
            say(f"{target}, {length} bytes")
    return Uploaded(copied, present, size, tuple(faults), store.label("").rstrip("/"))


def _files(place: Path) -> list[tuple[Path, str]]:
    """Each file with its path below the place; nothing that is hidden."""
    if place.is_file():
        return [(place, place.name)]
    if not place.is_dir():
        raise InputError(place, found="there is no such file or folder", expected="a report, or a folder of reports")
    paths = []
    for at, folders, names in os.walk(place):
        folders[:] = [n for n in folders if not n.startswith(".")]
        paths += sorted(Path(at, n) for n in names if not n.startswith(".") and Path(at, n).is_file())
    if not paths:
        raise InputError(place, found="there are no files in it", advice="see what the ranks said about their reports")
    return [(path, path.relative_to(place).as_posix()) for path in sorted(paths)]


def _scrubbed(
    scrub: Callable[[Path, Path], object], path: Path, name: str, scratch: Path, faults: list[tuple[Path, str]]
) -> tuple[Path, str] | None:
    """What is copied of a file, and its name there; None if it must not be shared."""
    if name.endswith(_SCRUBBED_AS_IS):
        return path, name
    if not name.endswith(_SCRUBBED):
        faults.append((path, "it is not a report of nsys, so it cannot be scrubbed; it is not copied"))
        return None
    target = str(Path(name).with_suffix(".sqlite"))
    export = scratch / Path(target).name
    try:
        scrub(path, export)
    except AlltraceError as error:
        faults.append((path, f"it cannot be scrubbed ({error}); it is not copied"))
        return None
    return export, target


def _copy(store: Store, path: Path, name: str, length: int) -> str | None:
    """What is wrong, or None if the copy has the size that it should."""
    problem, target = None, store.label(name)
    for _ in range(_TRIES):
        try:
            there = store.put(path, name)
        except FileNotFoundError:
            return f"{target} cannot be written: there is no such bucket or folder"
        except Exception as error:  # noqa: BLE001  the errors of a dozen stores' libraries
            problem = f"it cannot be copied to {target} ({type(error).__name__}: {error})"
            continue
        if there == length:
            return None
        problem = f"{target} has {'no' if there < 0 else there} bytes after copying, and the file has {length}"
    return problem
