"""The arguments of a slice that viewers show with its name and times, named as in traces of PyTorch's profiler."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from alltrace.export.columns import UNKNOWN, numbers
from alltrace.export.record_bytes import Pool
from alltrace.export.selection import Selection
from alltrace.export.tracks import Tracks
from alltrace.trace.arrays import Flags, Int64, integers
from alltrace.trace.grouping import group
from alltrace.trace.schema import TABLES
from alltrace.trace.slice_arguments import FEW, MANY, OPERATION, OPERATION_MANY

Value = int | str | list[int]


class Form(Protocol):
    def text(self, text: str) -> str | bytes:
        """A text."""

    def arguments(self, values: Mapping[str, Value]) -> str | bytes:
        """Some arguments by name, one after the other."""


class Arguments(NamedTuple):
    """The arguments of n slices."""

    few: Int64  # n numbers in the pool, -1 for none
    many: dict[str, tuple[Int64, Flags]]  # for each name int64 values of n, and which slices have it


def columns_of(table: str) -> list[str]:
    few = [c for columns in FEW.get(table, {}).values() for c in columns]
    return [*few, *MANY.get(table, {}).values()]


class Operations:
    def __init__(self, selection: Selection, tracks: Tracks) -> None:
        import pyarrow as pa

        columns = ["start", "device", "stream", *OPERATION.values(), *OPERATION_MANY.values()]
        parts = list(selection.batches(tracks.rank, "collectives", columns))
        # a `pyarrow.Table` of n operations
        self.rows: Any = pa.concat_tables(parts).combine_chunks() if parts else None
        if self.rows is not None:
            starts = numbers(self.rows, "start") - selection.zero_ns
            self._places = Places(tracks.of_streams(numbers(self.rows, "device"), numbers(self.rows, "stream")), starts)

    def of(self, tracks: Int64, starts: Int64) -> Int64 | None:
        """For each kernel, by its stream and start, its operation, -1 for none; None if no kernel has one."""
        if self.rows is None:
            return None
        places = self._places.find(tracks, starts)
        return places if np.any(places >= 0) else None


class Places:
    """Rows by track and start. `tracks`: int64 array of n tracks, -1 for none."""

    def __init__(self, tracks: Int64, starts: Int64) -> None:
        # one number for a start and a track, which together may need more than 64 bits
        self._starts = np.unique(starts)
        self._width = int(tracks.max(initial=0)) + 2
        keys = np.searchsorted(self._starts, starts) * self._width + tracks + 1
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def find(self, tracks: Int64, starts: Int64) -> Int64:
        """The first row of each track and start, -1 for none."""
        if not len(self._keys):
            return np.full(len(tracks), -1, np.int64)
        place = np.minimum(np.searchsorted(self._starts, starts), len(self._starts) - 1)
        present = (self._starts[place] == starts) & (tracks >= 0) & (tracks < self._width - 1)
        wanted = np.where(present, place * self._width + tracks + 1, -1)
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(self._keys[at] == wanted, self._order[at], -1)


def arguments_of(
    selection: Selection, table: str, rows: Any, pool: Pool, form: Form, of: tuple[Any, Int64] | None = None
) -> Arguments:
    # `of`: communication operations, and for each row its place among them, -1 for none.
    import pyarrow as pa

    few = [(name, [(c, rows.column(c)) for c in columns]) for name, columns in FEW.get(table, {}).items()]
    many = {name: _whole(rows.column(column)) for name, column in MANY.get(table, {}).items()}
    if of is not None:
        operations, places = of
        taken = operations.take(pa.array(places, mask=places < 0))
        few += [(name, [(column, taken.column(column))]) for name, column in OPERATION.items()]
        many.update({name: _whole(taken.column(column)) for name, column in OPERATION_MANY.items()})
    some = [(name, columns) for name, columns in few if any(len(c) > c.null_count for _, c in columns)]
    if not some:
        return Arguments(np.full(rows.num_rows, -1, np.int64), many)
    codes, first = group([column for _, columns in some for _, column in columns])
    texts = [
        [_texts(selection, table, name, column.take(pa.array(first))) for name, column in columns]
        for _, columns in some
    ]
    pieces = []
    for row in range(len(first)):
        values = {name: _value([t[row] for t in own]) for (name, _), own in zip(some, texts, strict=True)}
        filled = {name: value for name, value in values.items() if value is not None}
        pieces.append(pool.add(form.arguments(filled)) if filled else -1)
    return Arguments(np.array(pieces, np.int64)[codes], many)


def _whole(column: Any) -> tuple[Int64, Flags]:
    return integers(column, UNKNOWN), column.is_valid().to_numpy()


def _texts(selection: Selection, table: str, column: str, values: Any) -> Sequence[Any]:
    kinds = {c.name: c.type for t in ("collectives", table) for c in TABLES[t].columns}
    texts: Sequence[Any] = (selection.run.texts(values) if kinds[column] == "name" else values).to_pylist()
    return texts


def _value(parts: Sequence[Any]) -> Value | None:
    """One argument: a list if it has several columns, None if one is null."""
    if any(p is None for p in parts):
        return None
    return list(parts) if len(parts) > 1 else parts[0]
