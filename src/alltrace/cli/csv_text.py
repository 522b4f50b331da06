"""An answer as CSV: by Arrow's kernels, and of many rows by a compiled loop, in several threads.

Both write the same: RFC 4180 with a header line and LF line ends, null is empty, a text is quoted where it must be. A column whose
Arrow field has the metadata `decimals` has so many decimals; other numbers have as many as they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from alltrace.cli.cells import column_cells, is_number

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE_ROWS = 16_384  # what fits the caches
_THREADS = 4  # more are not faster: one thread writes what they make
_MOST_DECIMAL = 1e30


def to_csv(table: Any) -> str:
    """A table as CSV."""
    return "".join(csv_pieces(table))


def csv_pieces(table: Any) -> Iterator[str]:
    """The text of `to_csv` in pieces of some thousand rows, so that a trace of millions is never a text of gigabytes."""
    yield _header(table.column_names)
    pieces = range(0, table.num_rows, _PIECE_ROWS)
    if len(pieces) < 2 or table.num_columns < 2:
        yield from (_by_arrow(table.slice(first, _PIECE_ROWS)) for first in pieces)
        return
    from alltrace.cli.csv_rows import Rows
    from alltrace.engine.tasks import default_jobs
    from alltrace.run.ahead import in_threads

    rows = Rows(table)
    yield from in_threads(lambda first: rows.text(first, _PIECE_ROWS), pieces, min(len(pieces), default_jobs(), _THREADS))


def _header(names: list[str]) -> str:
    special = [any(c in name for c in ',"\r\n') or names == [""] for name in names]
    quoted = ('"' + name.replace('"', '""') + '"' if s else name for name, s in zip(names, special, strict=True))
    return ",".join(quoted) + "\n"


def _by_arrow(table: Any) -> str:
    """The rows of a table, a line each."""
    import pyarrow as pa

    columns = [column_texts(table.column(i), table.schema.field(i)) for i in range(table.num_columns)]
    # a line with nothing on it is no row, so an only cell that is empty is quoted
    single = len(columns) == 1
    lines = pc.replace_substring_regex(columns[0], "^$", '""') if single else pc.binary_join_element_wise(*columns, ",")
    whole = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n")
    return f"{whole[0].as_py()}\n"


def column_texts(column: Any, field: Any) -> Any:
    """A column as text cells, quoted where RFC 4180 asks for it; null is empty.

    Args:
        column: A `pyarrow.ChunkedArray`.
        field: Its Arrow field.

    Returns:
        A `pyarrow.StringArray` without nulls.
    """
    import pyarrow as pa

    column = one_chunk(column)
    if pa.types.is_dictionary(field.type):
        return pc.fill_null(pc.take(quoted(pc.cast(column.dictionary, pa.string())), column.indices), "")
    decimals = (field.metadata or {}).get(b"decimals")
    if pa.types.is_floating(field.type):
        column = pc.if_else(pc.is_finite(column), column, None)
        if decimals is not None and not pc.any(pc.greater(pc.abs(column), _MOST_DECIMAL)).as_py():
            column = pc.cast(pc.round(column, int(decimals)), pa.decimal128(38, int(decimals)))
        elif decimals is not None:
            column = pa.array(column_cells(column, field, grouped=False), pa.string())
    elif not (is_number(field) or pa.types.is_string(field.type) or pa.types.is_null(field.type)):
        column = pa.array(column_cells(column, field, grouped=False), pa.string())
    text = pc.cast(column, pa.string())
    return pc.fill_null(text if is_number(field) else quoted(text), "")


def one_chunk(column: Any) -> Any:
    """A `pyarrow.ChunkedArray` as one array."""
    import pyarrow as pa

    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return column


def quoted(text: Any) -> Any:
    """The cells of a string array, in quotes where one needs them."""
    if not _has_special(text):
        return text
    special = pc.match_substring_regex(text, '[",\\r\\n]')
    if not pc.any(special).as_py():
        return text
    return pc.if_else(special, pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', ""), text)


def _has_special(text: Any) -> bool:
    """Whether a quote, a comma or an end of a line is anywhere in a string array; its bytes are looked at, not cell by cell."""
    _, offsets, data = text.buffers()
    if data is None or not len(text):
        return False
    place = memoryview(offsets).cast("i")
    low, high = place[text.offset], place[text.offset + len(text)]
    whole = data.slice(low, high - low).to_pybytes()
    return any(byte in whole for byte in (b",", b'"', b"\n", b"\r"))
