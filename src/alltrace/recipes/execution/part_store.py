"""What ranks contributed to questions: in memory as long as it is little, else in files.

A table in a file is mapped into memory whenever it is looked at, so that what a question has read and let go of takes no room while
it is answered. Parts that are no tables, such as graphs, can be shared by several questions, so those of a rank go into one file,
and come back together when the first of these questions is answered.
"""

from __future__ import annotations

import mmap
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.recipes.base import Part
from alltrace.trace.scratch import scratch_folder, writing_scratch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from tempfile import TemporaryDirectory
    from types import TracebackType
    from typing import Self

_HELD_BYTES = 32 << 20
_LARGE_BYTES = 1 << 16
_LARGE_OBJECTS = 1 << 20
_ALIGNED = 64
_WHAT = "what the ranks contributed"


class StoredPart(Part):
    """A part whose table lies in a file; each look at `table` opens it anew, which is quick and copies nothing.

    Args:
        rank: The rank.
        path: The file, which must stay until the last look.
    """

    def __init__(self, rank: int, path: Path) -> None:
        super().__init__(rank, None)
        self.path = path

    @property
    def table(self) -> Any:
        """What `map` returned."""
        return _read(self.path)


class PartStore:
    """Parts by question and rank; the files are gone when the block ends.

    Args:
        held_bytes: So much of tables is kept in memory.
    """

    def __init__(self, held_bytes: int = _HELD_BYTES) -> None:
        self._left = held_bytes
        self._found: dict[int, dict[int, Part | str | Path | None]] = {}  # None: it is among the objects
        self._folder: TemporaryDirectory[str] | None = None
        self._taken: list[Path] = []
        self._objects: dict[int, Path | dict[int, Any]] = {}  # of each rank those on disk, by question once they were read

    def __enter__(self) -> Self:
        """The store."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Remove the files."""
        self._found.clear()
        self._objects.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def keep(self, rank: int, parts: Mapping[int, Part | str]) -> None:
        """Keep what a rank contributed to questions, or why it did not.

        Raises:
            InputError: The temporary folder is full.
        """
        objects = {q: p.table for q, p in parts.items() if isinstance(p, Part) and not _is_table(p.table)}
        stored = self._write_objects(rank, objects) if objects else False
        for question, part in parts.items():
            kept: Part | str | Path | None = part
            if question in objects:
                kept = None if stored else part
            elif isinstance(part, Part) and (size := _table_bytes(part.table)) >= _LARGE_BYTES:
                if size > self._left:
                    kept = self._write(part.table, f"{question}-{rank}.arrow")
                else:
                    self._left -= size
            self._found.setdefault(question, {})[rank] = kept

    def has_objects(self, question: int) -> bool:
        """Whether parts of the question are no tables, which questions share, so that they stay in memory once one is taken."""
        found = self._found.get(question, {}).values()
        return any(p is None or (isinstance(p, Part) and not _is_table(p.table)) for p in found)

    def take(self, question: int) -> list[Part | str]:
        """What was kept for a question, by rank; it is forgotten. Its files go when the next one is taken."""
        for path in self._taken:
            path.unlink(missing_ok=True)
        self._taken.clear()
        found = self._found.pop(question, {})
        parts: list[Part | str] = []
        for rank in sorted(found):
            kept = found[rank]
            if kept is None:
                parts.append(Part(rank, self._object(rank, question)))
                continue
            if isinstance(kept, Path):
                parts.append(StoredPart(rank, kept))
                self._taken.append(kept)
                continue
            if isinstance(kept, Part):
                size = _table_bytes(kept.table)
                self._left += size if size >= _LARGE_BYTES else 0
            parts.append(kept)
        return parts

    def _path(self, name: str) -> Path:
        if self._folder is None:
            self._folder = scratch_folder("alltrace-parts-")
        return Path(self._folder.name) / name

    def _write_objects(self, rank: int, objects: Mapping[int, Any]) -> bool:
        """Write the objects of a rank to a file; False where they are small, or cannot be."""
        arrays: list[pickle.PickleBuffer] = []
        try:
            head = pickle.dumps(objects, protocol=5, buffer_callback=arrays.append)
        except (pickle.PicklingError, TypeError, AttributeError):  # of a recipe that no process was ever asked for
            return False
        pieces: list[bytes | memoryview] = [head, *(a.raw() for a in arrays)]
        if sum(map(len, pieces)) < _LARGE_OBJECTS:
            return False
        path = self._objects[rank] = self._path(f"{rank}.objects")
        sizes = [len(piece) for piece in pieces]
        with writing_scratch(path.parent, _WHAT), path.open("wb") as file:
            file.write(pickle.dumps(sizes))
            for piece in pieces:
                file.write(bytes(-file.tell() % _ALIGNED))
                file.write(piece)
        return True

    def _object(self, rank: int, question: int) -> Any:
        found = self._objects[rank]
        if isinstance(found, Path):
            path, found = found, _read_objects(found)
            path.unlink()
            self._objects[rank] = found
        return found.pop(question)

    def _write(self, table: Any, name: str) -> Path:
        import pyarrow as pa

        path = self._path(name)
        with (
            writing_scratch(path.parent, _WHAT),
            pa.OSFile(str(path), "wb") as file,
            pa.ipc.new_stream(file, table.schema) as writer,
        ):
            writer.write_table(table.combine_chunks())  # a column that lies in one piece is looked at without a copy
        return path


def _read(path: Path) -> Any:
    import pyarrow as pa

    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
        return reader.read_all()


def _read_objects(path: Path) -> dict[int, Any]:
    """The objects of a file of ours, whose arrays lie in the mapped file, and in memory as far as they are written to."""
    with path.open("rb") as file:
        sizes = pickle.load(file)  # noqa: S301  this process wrote it, to a folder of its own
        at = file.tell()
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    pieces = []
    for size in sizes:
        at += -at % _ALIGNED
        pieces.append(whole[at : at + size])
        at += size
    found: dict[int, Any] = pickle.loads(pieces[0], buffers=pieces[1:])  # noqa: S301  likewise
    return found


def _is_table(part: Any) -> bool:
    import pyarrow as pa

    return isinstance(part, pa.Table)


def _table_bytes(part: Any) -> int:
    return int(part.nbytes) if _is_table(part) else 0
