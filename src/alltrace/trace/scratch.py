"""Temporary folders, and the error if one cannot be created or is full."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from alltrace.trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator


def scratch_folder(prefix: str, place: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """A new folder for temporary files, of this user alone; it goes with `cleanup`, a `with` block or the object.

    `prefix`: what its name begins with. `place`: the folder for it; None for the user's. Raises `InputError`: None
    can be made.
    """
    try:
        return tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True)
    except OSError as error:
        raise InputError(
            Path(error.filename).parent if error.filename else "TMPDIR",
            found=f"no temporary folder can be made ({error.strerror or error})",
            advice="free some space, or set TMPDIR to a writable folder",
        ) from error


def use_scratch(folder: str) -> None:
    """Have this process, and those that it starts, make their temporary files in a folder, which goes when they are gone."""
    os.environ["TMPDIR"] = tempfile.tempdir = folder


@contextmanager
def writing_scratch(folder: Path, what: str) -> Iterator[None]:
    """A block that writes temporary files.

    `what`: what they hold, as the subject of a sentence in the plural: `the rows of the answer`. Raises
    `InputError`: the system refuses to write them.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            folder,
            found=f"{what} cannot be written there ({error.strerror or error})",
            advice="free some space, or set TMPDIR to a folder on a larger disk",
        ) from error
