"""An nsys export as the reader sees it, independent of its container: tables of typed columns, read in batches."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

BATCH_BYTES = 4 << 20
_MOST_ROWS = 65_536
_TEXT_BYTES = 32  # a guess


def rows_per_batch(columns: Mapping[str, Any]) -> int:
    """How many rows of columns of the given Arrow types make a batch of about `BATCH_BYTES`."""
    widths = (_TEXT_BYTES if str(kind) in {"string", "binary"} else kind.bit_width // 8 for kind in columns.values())
    return min(_MOST_ROWS, BATCH_BYTES // max(1, sum(widths)) + 1)


class RawSource(Protocol):
    """An export of Nsight Systems, opened.

    A column's type is one of `int64`, `float64`, `string` and `binary` (Arrow types by name), by its declaration:
    INTEGER, REAL, TEXT or none, BLOB. Text that is not UTF-8 has its bad bytes escaped.
    """

    path: Path

    @property
    def tables(self) -> Mapping[str, Mapping[str, str]]:
        """Column name to type name, for each table, in the order of the file."""

    def count_about(self, table: str) -> int:
        """About the number of rows of `table`, found quickly; 0 only if it has none."""

    def batches(self, table: str, columns: Mapping[str, Any], batch_rows: int | None = None) -> Iterator[Any]:
        """The rows of `table`, in the order of the file, as `pyarrow.RecordBatch` of at most `batch_rows` rows.

        `table`: a key of `tables`. `columns`: the columns wanted, in order, each with the `pyarrow.DataType` to
        deliver: the column's own type, or for `int64` a narrower signed integer, and for `string` also `binary` (the
        bytes as they are). `batch_rows`: the most rows of a batch; None for `rows_per_batch`. Raises `InputError`: the
        file is corrupt or cut short, or a value does not fit its column's type; the message names the table and the
        column.
        """

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """The rows of a small `table` as Python values, with bytes as text; raises what `batches` raises."""

    def warnings(self) -> Mapping[str, str]:
        """What a user should know of the rows that were read so far, one sentence for each table."""

    def close(self) -> None:
        """Release the file; batches handed out stay valid."""
