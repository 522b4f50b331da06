"""The JSON files of a run: written whole or not at all, and read as objects."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from alltrace.trace.errors import InputError, printable

if TYPE_CHECKING:
    from pathlib import Path


def write_json(path: Path, value: Any, *, lasting: bool = True) -> None:
    """Write `value` so that `path` holds either what it held before or all of it.

    Args:
        path: The file.
        value: What JSON can hold.
        lasting: Also after a power cut, for which the disk is waited for. Without, the file may then be damaged.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        # a path with bytes that are no UTF-8 has lone surrogates in it, which JSON can only hold escaped
        with draft.open("w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(value, file, indent=1, ensure_ascii=False)
            file.write("\n")
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_json(path: Path, expected: str = "a JSON object") -> dict[str, Any]:
    """The JSON object in `path`.

    Args:
        path: The file.
        expected: What should be there, for the message.

    Raises:
        InputError: There is none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(path.parent, found=f"no {path.name}", expected=expected) from None
    except (OSError, ValueError, RecursionError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(
            path, found=f"it cannot be read ({printable(what)})", expected=expected, advice="import the reports again"
        ) from error
    if not isinstance(value, dict):
        raise InputError(path, found="no JSON object in it", expected=expected, advice="import the reports again")
    return value
