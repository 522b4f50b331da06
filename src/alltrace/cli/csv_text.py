"""An answer as CSV: numbers and texts go from Arrow's memory into lines by a compiled loop, in several threads.

CSV is as in RFC 4180, with a header line and LF line ends; null is empty, and text is quoted if necessary. A column
with the metadata `decimals` in its Arrow field is written with that many decimals; other numbers have as many as they
need.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.charts.cells import column_cells, is_number
from alltrace.core.text import CELL, NAME, NULL_NUMBER, NUMBER, NUMBER_OR_NULL, write_csv_rows
from alltrace.engine.tasks import default_jobs
from alltrace.run.prefetch import in_threads
from alltrace.trace.arrays import Int64, integers

_PIECE_ROWS = 16_384  # what fits the caches
_THREADS = 4  # more are not faster: one thread writes what they make
_NUMBER_BYTES = 20
_MOST_DECIMAL = 1e30
_NEAR = 1e-14  # a product with a power of ten is off by less


def to_csv(table: Any) -> str:
    return "".join([csv_header(table.schema), *csv_rows(table)])


def csv_rows(table: Any) -> Iterator[str]:
    rows = _Rows(table)
    pieces = range(0, table.num_rows, _PIECE_ROWS)
    yield from in_threads(partial(rows.text, count=_PIECE_ROWS), pieces, min(len(pieces), default_jobs(), _THREADS))


def csv_header(schema: Any) -> str:
    names: list[str] = schema.names
    special = [any(c in name for c in ',"\r\n') or names == [""] for name in names]
    quoted = ('"' + name.replace('"', '""') + '"' if s else name for name, s in zip(names, special, strict=True))
    return ",".join(quoted) + "\n"


def without_formulas(table: Any) -> Any:
    """A table without formulas: texts and column names that a spreadsheet reads as a formula get a `'` in front."""
    columns = []
    for column, field in zip(table.columns, table.schema, strict=True):
        if pa.types.is_dictionary(field.type):
            changed = column.unify_dictionaries()
            chunks = [pa.DictionaryArray.from_arrays(c.indices, _no_formulas(c.dictionary)) for c in changed.chunks]
            columns.append(pa.chunked_array(chunks, field.type) if chunks else changed)
        else:
            columns.append(_no_formulas(column))
    fields = [field.with_name(_no_formulas(pa.array([field.name]))[0].as_py()) for field in table.schema]
    return pa.table(columns, pa.schema(fields, table.schema.metadata))


def _no_formulas(texts: Any) -> Any:
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        return texts
    return pc.replace_substring_regex(texts, r"^([=+\-@\t\r])", r"'\1")


class _Rows:
    """The rows of a table as CSV; several threads may ask. What a dictionary holds becomes text once, for all rows."""

    def __init__(self, table: Any) -> None:
        self._table = table.unify_dictionaries()
        self._first_name: dict[int, int] = {}  # of a column with a dictionary: the number of its first name
        texts: list[Any] = []
        for column, field in enumerate(table.schema):
            if pa.types.is_dictionary(field.type) and self._table.column(column).num_chunks:
                self._first_name[column] = sum(map(len, texts))
                words = pc.cast(self._table.column(column).chunk(0).dictionary, pa.string())
                texts.append(pc.fill_null(_quoted(words), ""))
        self._names, self._name_offsets = _joined(texts)
        self._name_bytes = np.diff(self._name_offsets)

    def text(self, first: int, count: int) -> str:
        part = self._table.slice(first, count)
        values = np.empty((part.num_columns, part.num_rows + 1), np.int64)
        kinds = np.empty(part.num_columns, np.int8)
        texts: list[Any] = []
        of_texts: list[int] = []
        # what ends each cell, and the quotes of an only one that is empty
        room = part.num_rows * (part.num_columns + 2)
        for place, field in enumerate(part.schema):
            column = part.column(place)
            if place in self._first_name:
                kinds[place] = NAME
                named = integers(_one_chunk(column).indices, -1)
                values[place, :-1] = np.where(named >= 0, named + self._first_name[place], -1)
                room += int(self._name_bytes[values[place, :-1][named >= 0]].sum())
            elif _fits(column, field):
                kinds[place] = NUMBER_OR_NULL if column.null_count else NUMBER
                values[place, :-1] = integers(pc.cast(column, pa.int64()) if column.null_count else column, NULL_NUMBER)
                room += part.num_rows * _NUMBER_BYTES
            else:
                kinds[place] = CELL
                texts.append(_column_texts(column, field))
                of_texts.append(place)
        joined, offsets = _joined(texts)
        for number, place in enumerate(of_texts):  # each starts where the one before it ended
            values[place] = offsets[number * part.num_rows : (number + 1) * part.num_rows + 1]
        out = np.empty(room + int(offsets[-1]), np.uint8)
        size = write_csv_rows(kinds, values, self._names, self._name_offsets, joined, out)
        return out[:size].tobytes().decode()


def _fits(column: Any, field: Any) -> bool:
    """Whether a column has signed 64-bit integers and, if it has nulls, none equal to the value that marks a null."""
    if not pa.types.is_integer(field.type) or field.type == pa.uint64():
        return False
    return not column.null_count or field.type != pa.int64() or pc.min(column).as_py() != NULL_NUMBER


def _joined(texts: Sequence[Any]) -> tuple[NDArray[np.uint8], Int64]:
    """The bytes of all cells of some string arrays without nulls, and where each cell starts, and the end last."""
    data, starts, end = [np.empty(0, np.uint8)], [], 0
    for text in filter(len, texts):
        _, offsets, buffer = text.buffers()
        at = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
        if buffer is not None:
            data.append(np.frombuffer(buffer, np.uint8)[at[0] : at[-1]])
        starts.append(at[:-1] - at[0] + end)
        end += int(at[-1] - at[0])
    return np.concatenate(data), np.concatenate([*starts, np.array([end], np.int64)])


def _column_texts(column: Any, field: Any) -> Any:
    """A column as text cells, quoted if RFC 4180 requires it; null is empty."""
    # `column`: A `pyarrow.ChunkedArray`. `field`: Its Arrow field. Returns a `pyarrow.StringArray` without nulls.
    column = _one_chunk(column)
    decimals = (field.metadata or {}).get(b"decimals")
    if pa.types.is_floating(field.type):
        column = pc.if_else(pc.is_finite(column), column, None)
        if decimals is not None and not pc.any(pc.greater(pc.abs(column), _MOST_DECIMAL)).as_py():
            column = _rounded(column, int(decimals))
        elif decimals is not None:
            column = pa.array(column_cells(column, field, grouped=False), pa.string())
    elif not (is_number(field) or pa.types.is_string(field.type) or pa.types.is_null(field.type)):
        column = pa.array(column_cells(column, field, grouped=False), pa.string())
    text = pc.cast(column, pa.string())
    return pc.fill_null(text if is_number(field) else _quoted(text), "")


def _rounded(column: Any, decimals: int) -> Any:
    """Floats as text with a number of decimals, rounded from the exact value: near a half is not a half."""
    scaled = np.abs(column.to_numpy(zero_copy_only=False).astype(np.float64)) * 10.0**decimals
    with np.errstate(invalid="ignore"):
        near = np.abs(scaled - np.floor(scaled) - 0.5) <= np.maximum(scaled, 1.0) * _NEAR  # false for null
    text = pc.cast(pc.cast(pc.round(column, decimals), pa.decimal128(38, decimals)), pa.string())
    if not near.any():
        return text
    exact = pa.array([f"{v:.{decimals}f}" for v in column.filter(pa.array(near)).to_pylist()], pa.string())
    return pc.replace_with_mask(text, pa.array(near), exact)


def _one_chunk(column: Any) -> Any:
    """A `pyarrow.ChunkedArray` as one array."""
    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return column


def _quoted(text: Any) -> Any:
    """The cells of a string array, in quotes if one needs them."""
    if not _has_special(text):
        return text
    special = pc.match_substring_regex(text, '[",\\r\\n]')
    if not pc.any(special).as_py():
        return text
    return pc.if_else(special, pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', ""), text)


def _has_special(text: Any) -> bool:
    """Whether a quote, a comma or an end of a line is in a string array; reads the bytes at once, not by cell."""
    _, offsets, data = text.buffers()
    if data is None or not len(text):
        return False
    place = memoryview(offsets).cast("i")
    low, high = place[text.offset], place[text.offset + len(text)]
    whole = data.slice(low, high - low).to_pybytes()
    return any(byte in whole for byte in (b",", b'"', b"\n", b"\r"))
