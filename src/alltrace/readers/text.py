"""Texts in pieces, and logs as blocks of whole lines: plain, gzip or zstd, of any size, in constant memory."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from alltrace.trace.errors import InputError

PIECE = 4 << 20
_AT_ONCE = 1 << 20
LONGEST_LINE = 1 << 20
_BLANK = re.compile(r"[ \t\r\n]*")
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_PIECE = 1 << 16
_FED = 1 << 10
_MOST_LOST = 2 << 20


@final
class Packed:
    """A gzip or zstd file, opened for one pass; decompressed as it is needed, up to the very place where it breaks off.

    `broken`: its data end early, after what was handed out.
    """

    def __init__(self, path: Path, codec: str, source: Any) -> None:
        import pyarrow as pa

        self.broken: bool = False
        self._path = path
        self._codec = codec
        self._stream = pa.CompressedInputStream(source, codec)
        self._done = 0
        self._rest: bytes | None = None

    def read(self, count: int) -> bytes:
        """The next `count` bytes; fewer at the end, or if the data are broken."""
        parts: list[bytes] = []
        while count > 0:
            part = self._next(min(count, _PIECE))
            if not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _next(self, count: int) -> bytes:
        import pyarrow as pa

        if self._rest is None:
            try:
                part: bytes = self._stream.read(count)
            except (OSError, EOFError, pa.ArrowException):
                # the piece in which data break off is lost, so its beginning is read once more
                lost = _lost_of_gzip if self._codec == "gzip" else _lost_of_zstd
                self._rest, whole = lost(self._path, self._done)
                self.broken = not whole
            else:
                self._done += len(part)
                return part
        part, self._rest = self._rest[:count], self._rest[count:]
        return part

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def _lost_of_gzip(path: Path, done: int) -> tuple[bytes, bool]:
    """The data after the first `done` bytes and before the break; and whether only zeros follow, which pad a file."""
    import zlib

    lost, at = bytearray(), 0
    member = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        with path.open("rb") as file:
            while len(lost) < _MOST_LOST:
                data = member.unused_data or file.read(_FED)
                if member.eof:
                    while data and not data.strip(b"\0"):
                        data = file.read(_FED)
                    if not data:
                        return bytes(lost), True
                    data, member = data.lstrip(b"\0"), zlib.decompressobj(zlib.MAX_WBITS | 16)
                elif not data:
                    break
                part = member.decompress(data)
                at += len(part)
                if at > done:
                    lost += part[done - at :]
    except (OSError, zlib.error):
        pass
    return bytes(lost), False


def _lost_of_zstd(path: Path, done: int) -> tuple[bytes, bool]:
    """The data after the first `done` bytes and before the break: a byte at a time, so that the last piece is empty."""
    import pyarrow as pa

    lost = bytearray()
    try:
        # Arrow does not open paths that are not UTF-8
        with pa.CompressedInputStream(pa.PythonFile(path.open("rb"), mode="r"), "zstd") as stream:
            while done and (skipped := stream.read(min(done, _PIECE))):
                done -= len(skipped)
            while len(lost) < _MOST_LOST and (byte := stream.read(1)):
                lost += byte
    except (OSError, EOFError, pa.ArrowException):
        pass
    return bytes(lost), False


class Text:
    """A file, opened for one pass; `packed`: compressed, `cut`: the stream broke off, after what was handed out."""

    def __init__(self, path: Path) -> None:
        self.cut: bool = False
        self._path = path
        self._packed: Any = None
        try:
            self._file = path.open("rb")
            magic = self._file.read(4)
            self._file.seek(0)
        except OSError as error:
            raise InputError.cannot_be("opened", path, error) from error
        self.codec = "gzip" if magic.startswith(_GZIP) else "zstd" if magic == _ZSTD else None
        self.packed: bool = self.codec is not None
        if self.codec is not None:
            import pyarrow as pa

            # Arrow does not open paths that are not UTF-8
            self._packed = Packed(path, self.codec, pa.PythonFile(self._file, mode="r"))

    def read(self, count: int = PIECE) -> bytes:
        """The next bytes, at most `count`; none at the end, or if a compressed stream is broken."""
        if self._packed is not None:
            data: bytes = self._packed.read(count)
            self.cut = self._packed.broken
            return data
        parts: list[bytes] = []
        while count > 0:
            try:
                part = self._file.read(min(count, _AT_ONCE))
            except OSError as error:
                raise InputError.cannot_be("read to its end", self._path, error) from error
            if not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file."""
        if self._packed is not None:
            self._packed.close()
        self._file.close()


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
        self._file = Text(path)
        self.codec = self._file.codec

    def __enter__(self) -> "TextLog":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def blocks(self, block_bytes: int = PIECE) -> Iterator[tuple[bytes, bool]]:
        """The bytes of the file in order, as blocks that end with a line's end.

        A line longer than `LONGEST_LINE`, which no log has but a binary file may, is handed out in pieces.

        Yields the block, and whether its last line is known to be whole: False only for the end of a file that ends
        within a line.
        """
        rest = b""
        while True:
            data = self._file.read(block_bytes)
            if self._file.cut:
                self.damage = f"the {self.codec} data ends early; everything before was read"
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


def json_documents(data: bytes) -> Iterator[Any]:
    """The documents of a JSON text, of which several may follow. Raises `ValueError`: damaged, cut, or none."""
    text = data.decode("utf-8-sig", "surrogatepass").rstrip("\0 \t\r\n")
    decode, at = json.JSONDecoder(strict=False).raw_decode, 0
    while at < len(text) or not at:
        blank = _BLANK.match(text, at)
        value, at = decode(text, at if blank is None else blank.end())
        yield value
