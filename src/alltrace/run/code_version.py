"""The version of the code, for data that is stored with a run."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

_PACKAGES = ("core", "trace", "readers", "run", "align", "replay", "recipes")
_SOURCES = (".py", ".pyx")


@cache
def code_version() -> str:
    """The version of alltrace and a hash of its source, so that results of a different source are not reused."""
    import xxhash

    from alltrace import __version__

    digest = xxhash.xxh3_128()
    for package in _PACKAGES:
        for source in _sources(files("alltrace").joinpath(package)):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return f"{__version__}+{digest.hexdigest()}"


def _sources(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            yield from _sources(entry)
        elif entry.name.endswith(_SOURCES):
            yield entry
