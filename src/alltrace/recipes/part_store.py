"""What ranks contributed to questions: in memory as long as it is little, else in files until it is asked for."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.recipes.base import Part

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_HELD_BYTES = 128 << 20
_LARGE_BYTES = 1 << 16


class PartStore:
    """Parts by question and rank; the files are gone when the block ends.

    Args:
        held_bytes: So much of tables is kept in memory.
    """

    def __init__(self, held_bytes: int = _HELD_BYTES) -> None:
        self._left = held_bytes
        self._found: dict[int, dict[int, Part | str | Path]] = {}
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        """The store."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Remove the files."""
        self._found.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def keep(self, question: int, rank: int, part: Part | str) -> None:
        """Keep what a rank contributed, or why it did not."""
        kept: Part | str | Path = part
        if isinstance(part, Part) and (size := _table_bytes(part.table)) >= _LARGE_BYTES:
            if size > self._left:
                kept = self._write(part.table, f"{question}-{rank}.arrow")
            else:
                self._left -= size
        self._found.setdefault(question, {})[rank] = kept

    def has_objects(self, question: int) -> bool:
        """Whether parts of the question are no tables, so that they are in memory."""
        return any(isinstance(p, Part) and not _is_table(p.table) for p in self._found.get(question, {}).values())

    def take(self, question: int) -> list[Part | str]:
        """What was kept for a question, by rank; it is forgotten."""
        found = self._found.pop(question, {})
        parts: list[Part | str] = []
        for rank in sorted(found):
            kept = found[rank]
            if isinstance(kept, Path):
                parts.append(Part(rank, _read(kept)))
                kept.unlink()
                continue
            if isinstance(kept, Part):
                size = _table_bytes(kept.table)
                self._left += size if size >= _LARGE_BYTES else 0
            parts.append(kept)
        return parts

    def _write(self, table: Any, name: str) -> Path:
        import pyarrow as pa

        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="alltrace-parts-"))
        path = self._folder / name
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        return path


def _read(path: Path) -> Any:
    import pyarrow as pa

    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
        return reader.read_all()


def _is_table(part: Any) -> bool:
    import pyarrow as pa

    return isinstance(part, pa.Table)


def _table_bytes(part: Any) -> int:
    return int(part.nbytes) if _is_table(part) else 0
