"""Keeps what is derived from a run on demand: one layout, signature, lock, atomic rename and clean-up for all of it.

A value is in `RUN/NAME`, or in the cache folder, by its signature, where the run cannot be written. Its signature says
what it was made from; with another one it is made again. A file is written to a draft and renamed when it is whole, and
the drafts of processes that were killed are removed before the next value is made.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from alltrace.trace.cache_dir import default_folder, existing_folder, own_folder
from alltrace.trace.errors import AlltraceError, InputError

# The version of the code, for data that is stored with a run.

_PACKAGES = ("core", "trace", "readers", "run", "align", "replay", "recipes")
_SOURCES = (".py", ".pyx")


@cache
def code_version() -> str:
    """The version of alltrace and a hash of its source, so that results of a different source are not reused."""
    from alltrace import __version__

    return f"{__version__}+{source_hash(Path(__file__).parents[1])}"


def source_hash(root: Path) -> str:
    """A hash of the names and contents of the sources that determine results, in the folder `root` of the package."""
    import xxhash

    digest = xxhash.xxh3_128()
    for package in _PACKAGES:
        for folder, folders, names in os.walk(root / package):
            folders.sort()
            for name in sorted(n for n in names if n.endswith(_SOURCES)):
                digest.update(name.encode() + b"\0" + Path(folder, name).read_bytes())
    return digest.hexdigest()


_Value = TypeVar("_Value")


class OnDisk(Protocol):
    """A run, as far as its place matters here."""

    path: Path


def derived(
    run: OnDisk,
    name: str,
    inputs: Any,
    read: Callable[[Path, str], _Value | None],
    make: Callable[[Path, str], _Value],
    *,
    what: str,
    folder: Path | None = None,
) -> _Value:
    """A value that is derived from a run: the one that is kept, or a new one; two processes do not make it at once.

    `name`: its place in the run directory, or in `folder`. `inputs`: what it is made from, as JSON. `read` gets a place
    and the signature, and returns None if nothing whole of that signature is. `make` also writes the value there.
    `what`: what it is, a subject in the plural. Raises `InputError`: it cannot be written.
    """
    return place_of(run, name, inputs, folder=folder).get(read, make, what)


class Place(NamedTuple):
    """Where a derived value is kept."""

    path: Path  # the place with the run, or that the caller named
    signature: str  # what the value is made from
    in_cache: Path | None = None  # its place below the cache folder; None if it is never there
    writable: bool = True  # whether `path` can be written

    def find(self, read: Callable[[Path, str], _Value | None]) -> _Value | None:
        """The value that is kept; None if it must be made."""
        cache = existing_folder() if self.in_cache is not None else None
        for place in (self.path, *([cache / self.in_cache] if cache is not None and self.in_cache is not None else [])):
            with suppress(AlltraceError, ValueError, LookupError, TypeError, AttributeError):
                if (value := read(place, self.signature)) is not None:
                    return value
        return None

    def keep(self, write: Callable[[Path, str], object], *, tidy: bool = True) -> None:
        """Write a value that is one file, where anything can be written; `tidy`: whether old drafts are looked for."""
        with suppress(OSError, AlltraceError):
            place = self._home()
            place.parent.mkdir(parents=True, exist_ok=True)
            if tidy:
                remove_drafts(place)
            write(place, self.signature)

    def get(self, read: Callable[[Path, str], _Value | None], make: Callable[[Path, str], _Value], what: str) -> _Value:
        """The value that is kept, or a new one; see `derived`."""
        value = self.find(read)
        if value is not None:
            return value
        place = self._home()
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with locked(place.parent / f".{place.name}.lock") as alone:
                value = self.find(read)  # another process may have made it meanwhile
                if value is not None:
                    return value
                remove_drafts(place, all_of_them=alone)
                return make(place, self.signature)
        except OSError as error:
            advice = "free some space, or copy the run"
            raise InputError.cannot_be("written", place, error, what=what, advice=advice) from error

    def _home(self) -> Path:
        """Where a new value is written."""
        return self.path if self.writable or self.in_cache is None else own_folder(default_folder()) / self.in_cache


def place_of(run: OnDisk, name: str, inputs: Any, *, folder: Path | None = None) -> Place:
    """The place of a value that is derived from a run; see `derived` for the arguments."""
    signature = digest(inputs)
    if folder is not None:
        return Place(folder, signature)
    path = run.path / name
    in_cache = Path(name).parts[0], f"{signature}{path.suffix}"
    return Place(path, signature, Path(*in_cache), os.access(run.path, os.W_OK))


def digest(inputs: Any) -> str:
    """A signature of anything that JSON can hold."""
    return blake2b(json.dumps(inputs, sort_keys=True).encode(), digest_size=16).hexdigest()


@contextmanager
def locked(lock: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds a lock file, which goes with the process; yields whether it does. File systems without locks give none."""
    with lock.open("w") as handle:
        holds = False
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            holds = True
        yield holds


@contextmanager
def draft_of(place: Path) -> Iterator[Path]:
    """A path beside `place` to write to: renamed to it at the end of the block, removed after an error."""
    draft = place.with_name(f".{place.name}.{os.uname().nodename}-{os.getpid()}.tmp")
    remove(draft)  # of a process that had the same number
    try:
        yield draft
        draft.replace(place)
    finally:
        remove(draft)


def remove_drafts(place: Path, *, all_of_them: bool = False) -> None:
    """Remove drafts of `place` of this host's processes that are gone; `all_of_them`: also those of other hosts."""
    before, behind = f".{place.name}.", ".tmp"
    for name in [entry.name for entry in os.scandir(place.parent)]:  # of parts there are as many as ranks
        if name.startswith(before) and name.endswith(behind):
            host, _, number = name.removeprefix(before).removesuffix(behind).rpartition("-")
            if number.isdecimal() and (all_of_them or (host == os.uname().nodename and not _runs(int(number)))):
                remove(place.with_name(name))


def remove(path: Path) -> None:
    """Remove a file, or a folder with what is in it, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
