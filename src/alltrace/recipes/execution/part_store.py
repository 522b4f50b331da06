"""What ranks contributed to questions: in memory as long as it is little, else in files.

A table in a file is mapped into memory on each access, so that parts that a question has read and released take no
memory while it runs; a statement over all ranks reads the file instead (`Part.batches`). Parts that are not tables,
such as graphs, can be shared by several questions, so those of a rank go into one file, and come back together when the
first of these questions is answered.
"""

import mmap
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import pyarrow as pa

from alltrace.recipes.part import Part
from alltrace.trace.errors import InputError
from alltrace.trace.scratch import scratch_folder, writing_scratch

HELD_BYTES = 32 << 20  # how much of the tables of all ranks is kept in memory

LARGE_BYTES = 1 << 16  # a smaller table is always kept in memory

_LARGE_OBJECTS = 1 << 20
_ALIGNED = 64
_WHAT = "what the ranks contributed"


class StoredPart(Part):
    """A part with its table in a file, which must stay: each access opens it again, quickly, and copies nothing."""

    def __init__(self, rank: int, path: Path) -> None:
        super().__init__(rank, None)
        self.path = path

    @property
    def table(self) -> Any:
        try:
            with pa.memory_map(str(self.path)) as file, pa.ipc.open_stream(file) as reader:
                return reader.read_all()
        except (OSError, pa.ArrowInvalid) as error:
            raise _lost(self.path) from error

    def batches(self) -> Iterator[Any]:
        """The rows as they are read from the file, which is not mapped."""
        try:
            with pa.OSFile(str(self.path)) as file, pa.ipc.open_stream(file) as reader:
                yield from reader
        except (OSError, pa.ArrowInvalid) as error:
            raise _lost(self.path) from error


class PartFiles:
    """Storage for parts that are too large for memory (`held_bytes`); its files are removed when the block ends."""

    def __init__(self, held_bytes: int | None = None) -> None:
        self._left = HELD_BYTES if held_bytes is None else held_bytes
        self._folder: TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def stored(self, part: Part, question: int = 0) -> Part:
        """The part, or one with the same table in a file."""
        size = _table_bytes(part.table)
        if size < LARGE_BYTES:
            return part
        if size <= self._left:
            self._left -= size
            return part
        return StoredPart(part.rank, self._write(part.table, f"{question}-{part.rank}.arrow"))

    def _give_back(self, part: Part) -> None:
        """Return the part's bytes to the budget."""
        size = _table_bytes(part.table)
        self._left += size if size >= LARGE_BYTES else 0

    def _path(self, name: str) -> Path:
        if self._folder is None:
            self._folder = scratch_folder("alltrace-parts-")
        return Path(self._folder.name) / name

    def _write(self, table: Any, name: str) -> Path:
        path = self._path(name)
        with (
            writing_scratch(path.parent, _WHAT),
            path.open("wb") as file,
            pa.ipc.new_stream(file, table.schema) as writer,
        ):
            writer.write_table(table.combine_chunks())  # a column in one piece is read without a copy
        return path


class PartStore(PartFiles):
    """Parts by question and rank, in memory up to `held_bytes`; the files are gone when the block ends."""

    def __init__(self, held_bytes: int | None = None) -> None:
        super().__init__(held_bytes)
        self._found: dict[int, dict[int, Part | str | None]] = {}  # None: it is among the objects
        self._taken: list[Path] = []
        # of each rank those on disk, by question once they were read
        self._objects: dict[int, Path | dict[int, Any]] = {}

    def __exit__(self, *_: object) -> None:
        self._found.clear()
        self._objects.clear()
        super().__exit__()

    def keep(self, rank: int, parts: Mapping[int, Part | str]) -> None:
        """Keep what a rank contributed to questions, or why it did not.

        Raises `InputError`: a file cannot be written.
        """
        objects = {q: p.table for q, p in parts.items() if isinstance(p, Part) and not _is_table(p.table)}
        stored = self._write_objects(rank, objects) if objects else False
        for question, part in parts.items():
            stored_part: Part | str | None = part
            if question in objects:
                stored_part = None if stored else part
            elif isinstance(part, Part):
                stored_part = self.stored(part, question)
            self._found.setdefault(question, {})[rank] = stored_part

    def has_objects(self, question: int) -> bool:
        """Whether parts of the question are not tables: they are shared, and stay in memory once one is taken."""
        parts = self._found.get(question, {}).values()
        in_memory = (p for p in parts if not isinstance(p, StoredPart))
        return any(p is None or (isinstance(p, Part) and not _is_table(p.table)) for p in in_memory)

    def take(self, question: int) -> list[Part | str]:
        """What was kept for a question, by rank; it is forgotten. Its files go when the next one is taken."""
        for path in self._taken:
            path.unlink(missing_ok=True)
        self._taken.clear()
        by_rank = self._found.pop(question, {})
        parts: list[Part | str] = []
        for rank in sorted(by_rank):
            part = by_rank[rank]
            if part is None:
                parts.append(Part(rank, self._object(rank, question)))
                continue
            if isinstance(part, StoredPart):
                self._taken.append(part.path)
            elif isinstance(part, Part):
                self._give_back(part)
            parts.append(part)
        return parts

    def _write_objects(self, rank: int, objects: Mapping[int, Any]) -> bool:
        """Write the objects of a rank to a file; False if they are small, or cannot be."""
        arrays: list[pickle.PickleBuffer] = []
        try:
            head = pickle.dumps(objects, protocol=5, buffer_callback=arrays.append)
        except (pickle.PicklingError, TypeError, AttributeError):  # of a recipe that no process has run
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
        objects = self._objects[rank]
        if isinstance(objects, Path):
            path, objects = objects, _read_objects(objects)
            path.unlink()
            self._objects[rank] = objects
        return objects.pop(question)


def _read_objects(path: Path) -> dict[int, Any]:
    """The objects of a file of this process; arrays stay in the mapped file, and go to memory when written to."""
    with path.open("rb") as file:
        sizes = pickle.load(file)  # noqa: S301  this process wrote it, to its own folder
        at = file.tell()
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    pieces = []
    for size in sizes:
        at += -at % _ALIGNED
        pieces.append(whole[at : at + size])
        at += size
    objects: dict[int, Any] = pickle.loads(pieces[0], buffers=pieces[1:])  # noqa: S301  likewise
    return objects


def _is_table(part: Any) -> bool:
    return isinstance(part, pa.Table)


def _table_bytes(part: Any) -> int:
    return int(part.nbytes) if _is_table(part) else 0


def _lost(path: Path) -> InputError:
    return InputError(
        path, found="a temporary file was removed or truncated while the answer was computed", advice="run it again"
    )
