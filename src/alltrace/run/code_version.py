"""The version of the code, for data that is stored with a run."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

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
