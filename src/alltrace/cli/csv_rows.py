"""CSV of many rows: numbers and texts go from Arrow's memory into lines by a compiled loop, some rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.cli._csv_kernel import NAMED, NONE, NUMBER, NUMBER_OR_NONE, SLACK, TEXT, WIDEST, write_rows
from alltrace.cli.csv_text import column_texts, one_chunk, quoted
from alltrace.trace.arrays import integers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class Rows:
    """The rows of a table as CSV; several threads may ask.

    What a dictionary holds becomes text once, for all rows.

    Args:
        table: A `pyarrow.Table`.
    """

    def __init__(self, table: Any) -> None:
        self._table = table.unify_dictionaries()
        self._first_name: dict[int, int] = {}  # of a column with a dictionary: the number of its first name
        texts: list[Any] = []
        for column, field in enumerate(table.schema):
            if pa.types.is_dictionary(field.type) and self._table.column(column).num_chunks:
                self._first_name[column] = sum(map(len, texts))
                words = pc.cast(self._table.column(column).chunk(0).dictionary, pa.string())
                texts.append(pc.fill_null(quoted(words), ""))
        self._names, self._name_at = _one_behind_the_other(texts)
        self._name_size = np.diff(self._name_at)

    def text(self, first: int, count: int) -> str:
        """The lines of up to `count` rows, from row `first` on."""
        part = self._table.slice(first, count)
        values = np.empty((part.num_columns, part.num_rows + 1), np.int64)
        kinds = np.empty(part.num_columns, np.int8)
        texts: list[Any] = []
        of_texts: list[int] = []
        room = part.num_rows * part.num_columns
        for place, field in enumerate(part.schema):
            column = part.column(place)
            if place in self._first_name:
                kinds[place] = NAMED
                named = integers(one_chunk(column).indices, -1)
                values[place, :-1] = np.where(named >= 0, named + self._first_name[place], -1)
                room += int(self._name_size[values[place, :-1][named >= 0]].sum())
            elif _fits(column, field):
                kinds[place] = NUMBER_OR_NONE if column.null_count else NUMBER
                values[place, :-1] = integers(pc.cast(column, pa.int64()) if column.null_count else column, NONE)
                room += part.num_rows * WIDEST
            else:
                kinds[place] = TEXT
                texts.append(column_texts(column, field))
                of_texts.append(place)
        found, at = _one_behind_the_other(texts)
        for number, place in enumerate(of_texts):  # each starts where the one before it ended
            values[place] = at[number * part.num_rows : (number + 1) * part.num_rows + 1]
        out = np.empty(room + int(at[-1]) + SLACK, np.uint8)
        size = write_rows(kinds, values, self._names, self._name_at, found, out)
        return out[:size].tobytes().decode()


def _fits(column: Any, field: Any) -> bool:
    """Whether a column has whole numbers of 64 bits with a sign, and none that stands for null if it has nulls."""
    if not pa.types.is_integer(field.type) or field.type == pa.uint64():
        return False
    return not column.null_count or field.type != pa.int64() or pc.min(column).as_py() != NONE


def _one_behind_the_other(texts: Sequence[Any]) -> tuple[NDArray[np.uint8], Ints]:
    """The bytes of all cells of some string arrays, with slack, and where each cell starts, and the end last."""
    data, starts, end = [], [], 0
    for text in filter(len, texts):
        _, offsets, buffer = text.buffers()
        at = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
        if buffer is not None:
            data.append(np.frombuffer(buffer, np.uint8)[at[0] : at[-1]])
        starts.append(at[:-1] - at[0] + end)
        end += int(at[-1] - at[0])
    return np.concatenate([*data, np.zeros(SLACK, np.uint8)]), np.concatenate([*starts, np.array([end], np.int64)])
