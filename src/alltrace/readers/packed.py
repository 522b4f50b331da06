"""A gzip or zstd file, decompressed as it is needed, up to the very place where it breaks off."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

_PIECE = 1 << 16
_FED = 1 << 10
_MOST_LOST = 2 << 20


@final
class Packed:
    """A compressed file, opened for one pass; `broken`: its data end early, after what was handed out."""

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
