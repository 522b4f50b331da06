"""The distribution of values by key, of rows that come piece by piece: what `distribution.collect` gives of all rows at once.

Most of the time of a sum over millions of rows went to memory that was touched for the first time. Here a piece leaves eight bytes
for each row behind, the rest of it is used again for the next one.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.counting import SLOTS, Cells, Slots
from alltrace.recipes.analysis.distribution import COUNT, VALUE, collect, group
from alltrace.run.prefetch import prefetched
from alltrace.trace.arrays import integers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.recipes.base import RankTables

    Ints = NDArray[np.int64]

_PIECE_ROWS = 1 << 17
_MOST_KEYS = 1 << 14  # of one piece; more are told apart by sorting, not one by one
_CELLS = 1 << 16
_UINT32_MAX = 2**32 - 1


def in_pieces(rank: RankTables, table: str, columns: Sequence[str], *, lengths: bool = False) -> Iterator[Any]:
    """The `table` of a rank as `RankTables.table` gives it, but piece by piece where the rank's file is read for it.

    Each piece is read while the one before is worked on. With `lengths` times may be moved, all by the same: for what asks for
    lengths alone.
    """
    batches = getattr(rank, "batches", None)
    if batches is None:  # cut down to steps, or held in memory for other questions
        yield rank.table(table, columns)
    else:
        with closing(prefetched(batches(table, columns, _PIECE_ROWS, lengths=lengths), 1)) as pieces:
            yield from pieces


class Growing:
    """Columns of int64 that rows are added to; what was foreseen is written once and never moved.

    Args:
        columns: How many.
        rows: So many rows are foreseen. Memory is touched only where rows are added.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self._columns = [np.empty(rows, np.int64) for _ in range(columns)]
        self._rows = 0

    def add(self, *parts: Ints) -> None:
        """Add rows: a part for each column."""
        last = self._rows + len(parts[0])
        for place, part in enumerate(parts):
            column = self._columns[place]
            if last > len(column):
                self._columns[place] = np.empty(last + last // 2, np.int64)
                self._columns[place][: self._rows] = column[: self._rows]
            self._columns[place][self._rows : last] = part
        self._rows = last

    def columns(self) -> list[Ints]:
        """The columns, as long as rows were added."""
        return [column[: self._rows] for column in self._columns]


def whole_columns(rank: RankTables, tables: Sequence[str], columns: Mapping[str, int]) -> list[Ints]:
    """Columns of whole numbers of some tables of a rank, one table after the other, as int64.

    They are read piece by piece, so that nothing but them takes memory.

    Args:
        rank: The rank.
        tables: The tables.
        columns: The columns, each with what stands for null.
    """
    rows = getattr(getattr(rank, "record", None), "rows", {})
    found = Growing(len(columns), sum(rows.get(table, 0) for table in tables))
    for table in tables:
        for piece in in_pieces(rank, table, tuple(columns)):
            found.add(*(integers(column, null) for column, null in zip(piece.columns, columns.values(), strict=True)))
    return found.columns()


class Collector:
    """Collects the distribution of `value` by key.

    Args:
        keys: The names of the key columns.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)
        self._types: dict[str, Any] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}  # each key by its number
        self._slots, self._key_of_slots = Slots(), ""
        # of the keys of the last piece, and of all pieces by the key columns of one value: the number of the key in each slot
        self._number: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._number_of: dict[Any, tuple[int, NDArray[np.uint32]]] = {}
        self._cells = Cells()
        self._codes: list[NDArray[np.uint32]] = []
        self._values: list[NDArray[np.uint32]] = []
        self._others: list[pa.Table] = []  # distributions of pieces with very many keys or very large values

    def add(self, table: Any) -> None:
        """Add rows: a `pyarrow.Table` with the keys and `value`, whole numbers; rows without a value are left out."""
        if not table.num_rows:
            return
        if table.column(VALUE).null_count:  # of events whose end a damaged report lacks
            self.add(table.filter(table.column(VALUE).is_valid()))
            return
        for key in self._keys:
            kind = table.schema.field(key).type
            self._types.setdefault(key, kind.value_type if pa.types.is_dictionary(kind) else kind)
        values = table.column(VALUE).to_numpy()
        highest = int(values.max())
        known = None
        if int(values.min()) >= 0 and highest <= _UINT32_MAX:
            slots = self._slots_of(table)
            if slots is not None and self._cells.add(slots, self._number, len(self._numbers), values, highest):
                return
            known = self._coded(table) if slots is None else self._number.take(slots)
        if known is None:
            self._others.append(collect({k: table.column(k) for k in self._keys}, values))
            return
        self._codes.append(known)
        self._values.append(values.astype(np.uint32))

    def table(self) -> Any:
        """The distribution: the key columns, dictionary-encoded, `value` and `count` (int64); empty where no rows came.

        Each distinct pair of key and value has one row, but for pieces that had to be counted apart.
        """
        counted = self._cells.take()
        parts = [self._encoded(counted[0].astype(np.int32), *counted[1:])] if len(counted[0]) else []
        parts += [self._encoded(*self._counted())] if self._codes else []
        parts += [self._dictionaries(other) for other in self._others]
        return pa.concat_tables(parts) if len(parts) > 1 else parts[0] if parts else pa.table({})

    def _slots_of(self, table: Any) -> NDArray[np.intp] | None:
        """The slot of each row's key; None where more than one column of ids tells rows apart."""
        same, telling = [], []
        for key in self._keys:
            is_one, value = _one_value(table.column(key))
            same.append(value)
            if not is_one:
                telling.append(key)
        # where nothing tells rows apart a column of ids is taken all the same
        ids = telling or [key for key in self._keys if pa.types.is_int64(table.schema.field(key).type)][-1:]
        if len(ids) != 1 or self._key_of_slots not in ("", ids[0]):
            return None
        column = table.column(ids[0])
        if column.null_count or not pa.types.is_int64(column.type):
            return None
        self._key_of_slots = ids[0]
        slots = self._slots.of(column.to_numpy())
        if slots is None:
            return None
        place = self._keys.index(ids[0])
        before, after = tuple(same[:place]), tuple(same[place + 1 :])
        known, number = self._number_of.get((before, after), (0, None))
        if number is None or known < len(self._slots.ids):
            number = np.zeros(SLOTS, np.uint32)
            numbers = self._numbers
            number[self._slots.places] = [numbers.setdefault((*before, i, *after), len(numbers)) for i in self._slots.ids]
            self._number_of[before, after] = len(self._slots.ids), number
        self._number = number
        return slots

    def _coded(self, table: Any) -> NDArray[np.uint32] | None:
        """The number of each row's key; None where there are too many keys."""
        columns = [table.column(k) for k in self._keys]
        telling = [n for n, c in enumerate(columns) if c.null_count < len(c)]
        if len(telling) == 1:
            codes, words = _one_key(columns[telling[0]])
            if len(words) > _MOST_KEYS:
                return None
            before, after = (None,) * telling[0], (None,) * (len(columns) - telling[0] - 1)
            keys: Iterable[tuple[Any, ...]] = ((*before, word, *after) for word in words.to_pylist())
        else:
            codes, first = group(columns)
            if len(first) > _MOST_KEYS:
                return None
            rows = pa.array(first)
            keys = zip(*(pc.take(c, rows).to_pylist() for c in columns), strict=True)
        numbers = self._numbers
        own = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.uint32)
        coded: NDArray[np.uint32] = own.take(codes)
        return coded

    def _counted(self) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
        """Number of the key, value and how many, of the distinct pairs, sorted by both."""
        low = min(int(v.min()) for v in self._values)
        high = max(int(v.max()) for v in self._values)
        width, rows, groups = high - low + 1, sum(map(len, self._values)), len(self._numbers)
        if width * groups <= min(rows + _CELLS, _UINT32_MAX):
            number = np.zeros(width * groups, np.int64)
            waiting: list[NDArray[np.uint32]] = []
            for codes, values in zip(self._codes, self._values, strict=True):
                # in 32 bits, which may overflow on the way and still end right
                cells = codes * np.uint32(width)
                cells += values
                cells -= np.uint32(low)
                waiting.append(cells)
                if sum(map(len, waiting)) >= len(number):  # each count goes over all cells
                    number += np.bincount(np.concatenate(waiting), minlength=len(number))
                    waiting.clear()
            if waiting:
                number += np.bincount(np.concatenate(waiting), minlength=len(number))
            self._forget()
            found = np.flatnonzero(number)
            owner, value = np.divmod(found, width)
            return owner.astype(np.int32), value + low, number[found]
        bits = (high - low).bit_length()
        kind: Any = np.uint32 if bits + (groups - 1).bit_length() <= 32 else np.uint64
        packed = np.empty(rows, kind)
        at = 0
        for codes, values in zip(self._codes, self._values, strict=True):
            part = packed[at : at + len(codes)]
            np.left_shift(codes, kind(bits), out=part, dtype=kind)
            part |= values - np.uint32(low)
            at += len(codes)
        self._forget()
        packed.sort()
        new = np.empty(rows, bool)
        new[0] = True
        np.not_equal(packed[1:], packed[:-1], out=new[1:])
        first = np.flatnonzero(new)
        found = packed.take(first)
        # each array that is not made need not be touched for the first time
        value = np.empty(len(found), np.int64)
        np.bitwise_and(found, kind((1 << bits) - 1), out=value, dtype=kind, casting="same_kind")
        value += low
        found >>= kind(bits)
        first[:-1] = first[1:] - first[:-1]
        first[-1] = rows - int(first[-1])
        return found.astype(np.int32), value, first

    def _forget(self) -> None:
        self._codes.clear()
        self._values.clear()

    def _encoded(self, owner: NDArray[Any], value: NDArray[np.int64], count: NDArray[np.int64]) -> Any:
        columns = {}
        at = pa.array(owner)
        for n, key in enumerate(self._keys):
            words = pc.dictionary_encode(pa.array([k[n] for k in self._numbers], self._types[key]))
            if len(words.dictionary) == len(words):  # the words are numbered as the keys are
                indices = at
            elif not len(words.dictionary):
                indices = pa.nulls(len(at), pa.int32())
            else:
                indices = pc.take(words.indices, at)
            columns[key] = pa.DictionaryArray.from_arrays(indices, words.dictionary)
        return pa.table({**columns, VALUE: pa.array(value), COUNT: pa.array(count)})

    def _dictionaries(self, table: Any) -> Any:
        columns = {}
        for key in self._keys:
            column = table.column(key)
            columns[key] = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
        return pa.table({**columns, VALUE: table.column(VALUE), COUNT: table.column(COUNT)})


def _one_value(column: Any) -> tuple[bool, Any]:
    """Whether all rows of a column have one value, and that value."""
    if column.null_count:
        return column.null_count == len(column), None
    array = column.combine_chunks()
    if pa.types.is_dictionary(array.type) and isinstance(array, pa.DictionaryArray):
        codes = array.indices.to_numpy()
    elif pa.types.is_int64(array.type):
        codes = column.to_numpy()
    else:
        return False, None
    # the last one mostly tells, so that not all are looked at
    return (True, array[0].as_py()) if codes[0] == codes[-1] and (codes == codes[0]).all() else (False, None)


def _one_key(column: Any) -> tuple[NDArray[Any], Any]:
    """The place of each row's value among `words`, and those: null is one of them where there are nulls."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    encoded = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array, null_encoding="encode")
    words, indices = encoded.dictionary, encoded.indices
    if indices.null_count:
        words = pa.concat_arrays([words, pa.nulls(1, words.type)])
        indices = pc.fill_null(indices, len(words) - 1)
    return indices.to_numpy(), words
