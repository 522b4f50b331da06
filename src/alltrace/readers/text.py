"""Text logs as blocks of whole lines: plain, gzip or zstd, of any size, in constant memory; garbage is just bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from alltrace.readers.packed import Packed
from alltrace.trace.errors import InputError

BLOCK_BYTES = 4 << 20
LONGEST_LINE = 1 << 20
_BLANK = re.compile(r"[ \t\r\n]*")
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


@final
class TextLog:
    """A log file as a context manager; `damage`: what is wrong with the end of a compressed one, or None."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: str | None = None
        if path.is_dir():
            raise InputError(path, found="it is a folder", expected="a log file")
        if not path.exists():
            raise InputError(path, found="there is no such file")
        if not path.is_file():  # opening a pipe would wait for its other end
            raise InputError(
                path, found="it is not a regular file", expected="a log file", advice="save it to a file first"
            )
        try:
            with path.open("rb") as file:
                magic = file.read(4)
            source: Any = _opened(path)
        except OSError as error:
            raise InputError(path, found=f"it cannot be opened ({error.strerror or error})") from error
        self.codec = "gzip" if magic[:2] == _GZIP else "zstd" if magic == _ZSTD else None
        self._packed: Packed | None = None
        if self.codec:
            from alltrace.readers.packed import Packed

            self._packed = Packed(path, self.codec, source)
        self._file = self._packed or source

    def __enter__(self) -> TextLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[bytes, bool]]:
        """The bytes of the file in order, as blocks that end with a line's end.

        A line longer than `LONGEST_LINE`, which no log has but a binary file may, is handed out in pieces.

        Yields the block, and whether its last line is known to be whole: False only for the end of a file that ends
        within a line.
        """
        rest = b""
        while True:
            data = self._read(block_bytes)
            if not data:
                break
            data = rest + data if rest else data
            end = data.rfind(b"\n") + 1
            if end == 0 and len(data) < LONGEST_LINE:
                rest = data
                continue
            if len(data) - end >= LONGEST_LINE:
                end = len(data)
            rest = data[end:]
            yield data[:end], True
        if rest:
            yield rest, False

    def lines(self) -> Iterator[bytes]:
        """The lines of the file without their ends."""
        for block, _whole in self.blocks():
            yield from block.splitlines()

    def _read(self, size: int) -> bytes:
        if self._packed is not None:
            data = self._packed.read(size)
            if self._packed.broken:
                self.damage = f"the {self.codec} data ends early; everything before was read"
            return data
        import pyarrow as pa

        try:
            read: bytes = self._file.read(size)
        except (OSError, EOFError, pa.ArrowException) as error:
            raise InputError(self.path, found=f"it cannot be read ({error})") from error
        return read


def _opened(path: Path) -> Any:
    import pyarrow as pa

    try:
        return pa.OSFile(str(path), "rb")
    except UnicodeEncodeError:  # Arrow does not open paths that are not UTF-8
        return pa.PythonFile(path.open("rb"), mode="r")


def json_documents(data: bytes) -> Iterator[Any]:
    """The documents of a JSON text, of which several may follow. Raises `ValueError`: damaged, cut, or none."""
    text = data.decode("utf-8-sig", "surrogatepass").rstrip("\0 \t\r\n")
    decode, at = json.JSONDecoder(strict=False).raw_decode, 0
    while at < len(text) or not at:
        blank = _BLANK.match(text, at)
        value, at = decode(text, at if blank is None else blank.end())
        yield value
