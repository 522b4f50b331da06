"""The JSON files of a run: written completely or not at all, each with a checksum of its content.

The checksum is the first member of the object, `checksum`: the XXH3-128 of the other members as Python's `json` writes
them by default. So a file may be reformatted, but not changed.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alltrace.run.derived import draft_of
from alltrace.trace.errors import DamageError, InputError

REPAIR = "import the reports again; `alltrace verify RUN` lists all damaged files"
"""What to do about a damaged file of a run."""

_CHECKSUM = "checksum"


def write_json(path: Path, value: dict[str, Any], *, lasting: bool = True) -> None:
    """Write `value`, without a member `checksum`, so that `path` has either its previous content or all of the new one.

    `lasting`: also after a power cut, for which the disk is waited for.
    """
    # a path with bytes that are not UTF-8 has lone surrogates in it, which JSON can only hold escaped
    with draft_of(path) as draft, draft.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(_texts({_CHECKSUM: _checksum(value), **value}, ",\n", ensure_ascii=False))
        file.write("\n")
        if lasting:
            file.flush()
            os.fsync(file.fileno())


def read_json(path: Path, expected: str = "a JSON object") -> dict[str, Any]:
    """The JSON object that `write_json` wrote. Raises `InputError`: there is none. Raises `DamageError`: it differs."""
    value = read_unchecked(path, expected)
    if value.pop(_CHECKSUM, None) != _checksum(value):
        raise DamageError(path, found="it is damaged: its checksum does not match", expected=expected, advice=REPAIR)
    return value


def read_unchecked(path: Path, expected: str = "a JSON object") -> dict[str, Any]:
    """The JSON object in `path` as it is, for what versions without checksums wrote; errors as of `read_json`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(path.parent, found=f"no {path.name}", expected=expected) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DamageError.cannot_be("read", path, error, expected=expected, advice=REPAIR) from error
    if not isinstance(value, dict):
        raise DamageError(path, found="it contains no JSON object", expected=expected, advice=REPAIR)
    return value


def _checksum(value: dict[str, Any]) -> str:
    import xxhash

    digest = xxhash.xxh3_128()
    for text in _texts(value, ", "):
        digest.update(text.encode())
    return str(digest.hexdigest())


def _texts(value: dict[str, Any], between: str, *, ensure_ascii: bool = True) -> Iterator[str]:
    """An object as JSON, part by part: members and items of their lists, which may be those of thousands of ranks."""
    encoded = json.JSONEncoder(ensure_ascii=ensure_ascii).encode
    yield "{"
    for number, (key, member) in enumerate(value.items()):
        yield f"{between if number else ''}{encoded(key)}: "
        if isinstance(member, list):
            yield "["
            yield from (f"{between if place else ''}{encoded(item)}" for place, item in enumerate(member))
            yield "]"
        else:
            yield encoded(member)
    yield "}"
