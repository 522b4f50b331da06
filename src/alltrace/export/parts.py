"""A stream of records as one file, or as several of a greatest size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.export.atomic_output import Output

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from alltrace.export.atomic_output import Draft


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
    """Write blocks of whole records; every part has the same head and tail.

    Args:
        draft: The draft that the files belong to.
        path: The first file; the others have `-2`, `-3` before its suffixes. It is compressed when its name ends in `.gz`.
        blocks: The records.
        head: What every part begins with.
        tail: What every part ends with.
        most_bytes: The uncompressed size after which a part is full; None for one part.

    Returns:
        The files.
    """
    places = [path]
    gzip = path.name.endswith(".gz")
    output = Output(draft.file(path), gzip=gzip)
    try:
        output.write(head)
        size = len(head)
        for block in blocks:
            if most_bytes is not None and size > len(head) and size + len(block) + len(tail) > most_bytes:
                output.write(tail)
                output.close()
                places.append(path.with_name(_numbered(path.name, len(places) + 1)))
                output = Output(draft.file(places[-1]), gzip=gzip)
                output.write(head)
                size = len(head)
            output.write(block)
            size += len(block)
        output.write(tail)
        output.close()
    except BaseException:
        output.abandon()
        raise
    return places


def _numbered(name: str, number: int) -> str:
    stem, dot, suffixes = name.partition(".")
    return f"{stem}-{number}{dot}{suffixes}"
