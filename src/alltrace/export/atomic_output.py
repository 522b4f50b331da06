"""Outputs that are complete or missing: written to a temporary path next to the output, and renamed at the end."""

import os
import shutil
import zlib
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

from alltrace.trace.errors import InputError, UsageError

_FAST = 1
_GZIP = 31


# `path`: the output; further outputs from `file` are next to it.
class Draft:
    """A folder next to the output; its files are renamed into place on success, and it is removed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder: Path = path.parent / f".{path.name}.{os.getpid()}.tmp"
        self._places: list[tuple[Path, Path]] = []

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir()
        except OSError as error:
            raise self._refusal(error) from error
        return self

    def file(self, place: Path) -> Path:
        """The path to write the final file `place` to; files are renamed in the order of these calls."""
        draft = self.folder / f"{len(self._places)}"
        self._places.append((draft, place))
        return draft

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                for draft, place in self._places:
                    draft.replace(place)
        except OSError as failed:
            raise self._refusal(failed) from failed
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        # an error of reading a run is an InputError already; what is left is ours
        if isinstance(error, OSError):
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> InputError:
        advice = "nothing was left there; free some space or choose another place"
        return InputError.cannot_be("written", self.path, error, advice=advice)


def check_folder(path: Path) -> None:
    """Refuse an output folder that holds something. Raises `UsageError`: it is a file, or not empty."""
    if path.is_dir() and not any(path.iterdir()):
        path.rmdir()
    if path.exists():
        raise UsageError(f"-o is {path}, which already exists; expected a new folder")


# `gzip`: whether to compress, at zlib's fastest level: text of numbers shrinks nearly as much as at the slowest.
class Output:
    """A binary file that may be compressed on the fly."""

    def __init__(self, path: Path, *, gzip: bool) -> None:
        self._file = FileIO(path, "w")  # without a buffer there is nothing to lose at the end
        self._packer = zlib.compressobj(_FAST, zlib.DEFLATED, _GZIP) if gzip else None

    def write(self, data: bytes | memoryview) -> None:
        self._all(self._packer.compress(data) if self._packer else data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if error is None:  # what waits goes down to the disk, so that a full one is noticed now
                self._all(self._packer.flush() if self._packer else b"")
                os.fsync(self._file.fileno())

    def _all(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while len(view):
            view = view[self._file.write(view) :]
