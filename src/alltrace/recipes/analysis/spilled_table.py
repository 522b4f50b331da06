"""Tables with a row for each event of all ranks: put together piece by piece, in a file once they are large.

The file is mapped, so that memory holds what is looked at and can let go of it, and nobody's: it has no name any more once it is
written, and is gone with the table.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alltrace.recipes.stats.base import without_null_words
from alltrace.trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

_HELD_BYTES = 32 << 20


def shelved(pieces: Iterable[Any], held_bytes: int = _HELD_BYTES) -> Any:
    """The rows of `pieces`, one after the other.

    Args:
        pieces: Tables of one schema, one at least.
        held_bytes: So much of them is held in memory; more goes to a file.

    Raises:
        InputError: The file cannot be written.
    """
    held: list[Any] = []
    size = 0
    remaining = iter(pieces)
    for piece in remaining:
        held.append(without_null_words(piece))
        size += held[-1].nbytes
        if size > held_bytes:
            return _in_file(held, remaining).unify_dictionaries()
    return pa.concat_tables(held).unify_dictionaries()


def _in_file(held: list[Any], remaining: Iterable[Any]) -> Any:
    path = Path(tempfile.gettempdir())
    name = ""
    try:
        handle, name = tempfile.mkstemp(prefix="alltrace-answer-", suffix=".arrow")
        os.close(handle)
        with pa.OSFile(name, "wb") as file, pa.ipc.new_stream(file, held[0].schema) as writer:
            for piece in held:
                writer.write_table(piece)
            held.clear()
            for piece in remaining:
                writer.write_table(without_null_words(piece))
        with pa.memory_map(name) as file, pa.ipc.open_stream(file) as reader:
            return reader.read_all()
    except OSError as error:
        raise InputError(
            path,
            found=f"an answer cannot be kept there ({error.strerror or error})",
            advice="make room, or let TMPDIR name another folder",
        ) from error
    finally:
        with contextlib.suppress(OSError):  # a system that removes no file that is mapped
            Path(name).unlink()
