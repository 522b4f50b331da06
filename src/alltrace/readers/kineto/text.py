"""The bytes of a trace, decompressed as they are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alltrace.trace.errors import InputError

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
PIECE = 4 << 20
_AT_ONCE = 1 << 20


class Text:
    """A trace, opened for one pass; `packed`: compressed, `cut`: the stream broke off, after what was handed out."""

    def __init__(self, path: Path) -> None:
        self.cut: bool = False
        self._path = path
        self._packed: Any = None
        try:
            self._file = path.open("rb")
            magic = self._file.read(4)
            self._file.seek(0)
        except OSError as error:
            raise InputError(path, found=f"it cannot be opened ({error.strerror})") from error
        codec = "gzip" if magic.startswith(_GZIP) else "zstd" if magic == _ZSTD else None
        self.packed: bool = codec is not None
        if codec is not None:
            import pyarrow as pa

            from alltrace.readers.packed import Packed

            # Arrow does not open paths that are not UTF-8
            self._packed = Packed(path, codec, pa.PythonFile(self._file, mode="r"))

    def read(self, count: int = PIECE) -> bytes:
        """The next bytes, at most `count`; none at the end, or if a compressed stream is broken."""
        if self._packed is not None:
            data: bytes = self._packed.read(count)
            self.cut = self._packed.broken
            return data
        parts: list[bytes] = []
        wanted = count
        while wanted > 0:
            try:
                part = self._file.read(min(wanted, _AT_ONCE))
            except OSError as error:
                raise InputError(self._path, found=f"it cannot be read to its end ({error.strerror})") from error
            if not part:
                break
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file."""
        if self._packed is not None:
            self._packed.close()
        self._file.close()
