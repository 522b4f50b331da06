"""A stream of records as one file, or as several of a greatest size."""

from collections.abc import Iterable
from itertools import chain, groupby
from pathlib import Path

from alltrace.export.atomic_output import Draft, Output

_PIECES = 16


def piece_of(most_bytes: int | None) -> int | None:
    """How large blocks for `write_parts` may be: so small that parts of this size become nearly full."""
    return None if most_bytes is None else max(most_bytes // _PIECES, 1)


def write_parts(
    draft: Draft,
    path: Path,
    blocks: Iterable[bytes | memoryview],
    *,
    head: bytes = b"",
    tail: bytes = b"",
    most_bytes: int | None = None,
) -> list[Path]:
    """Write blocks of whole records; every part has the same head and tail."""
    # `path`: the first file; the others have `-2`, `-3` before its suffixes. It is compressed when its name ends in
    # `.gz`. `head`: what every part begins with. `most_bytes`: the uncompressed size after which a part is full; None
    # for one part. Returns the files.
    bare = len(head) + len(tail)
    part, size = 0, bare

    def part_of(block: bytes | memoryview) -> int:
        nonlocal part, size
        if most_bytes is not None and size > bare and size + len(block) > most_bytes:
            part, size = part + 1, bare
        size += len(block)
        return part

    places = []
    for number, own in groupby(chain([b""], blocks), key=part_of):
        places.append(path.with_name(_numbered(path.name, number + 1)) if number else path)
        with Output(draft.file(places[-1]), gzip=path.name.endswith(".gz")) as output:
            output.write(head)
            for block in own:
                output.write(block)
            output.write(tail)
    return places


def _numbered(name: str, number: int) -> str:
    stem, dot, suffixes = name.partition(".")
    return f"{stem}-{number}{dot}{suffixes}"
