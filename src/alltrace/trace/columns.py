"""A column of a table, stored or answered: schemas are made of columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

ColumnType = Literal[
    "time",
    "name",
    "enum",
    "text",
    "int8",
    "int16",
    "int32",
    "int64",
    "float64",
    "bool",
    "binary",
    "texts",
    "numbers",
    "ranks",
    "devices",
    "any",
]


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: Its name.
        type: `time` (int64 ns), `name` (int64 id of an interned string), `enum` (one of a few words), `text`, a plain
            type, a list of `texts`, `numbers`, `ranks` or `devices` (rank, device, gpu, host), or `any` for what the
            rows have.
        unit: `ns`, `bytes`, `%`, ... or None.
        doc: What it holds.
        decimals: How many digits after the point a fraction is shown with; None for all.
        importance: 1 if a table always shows it, as it says what the row is about or what the answer is; from 2 on, the
            order in which others are shown as far as they fit; 0 for after these.
    """

    name: str
    type: ColumnType
    unit: str | None
    doc: str
    decimals: int | None = None
    importance: int = 0


Columns = tuple[Column, ...]
MOST_ALWAYS = 3
"""How many columns a table always shows, at most."""


def by_importance(columns: Columns, names: Sequence[str]) -> Columns:
    """The columns with their importance: their first three names are always shown, then others."""
    own = {column.name for column in columns}
    order = {name: max(place - MOST_ALWAYS + 2, 1) for place, name in enumerate([n for n in names if n in own])}
    return tuple(column._replace(importance=order.get(column.name, 0)) for column in columns)


def text(name: str, doc: str) -> Column:
    """A column of text."""
    return Column(name, "text", None, doc)


def whole(name: str, doc: str, unit: str | None = None) -> Column:
    """A column of whole numbers."""
    return Column(name, "int64", unit, doc)


def ns(name: str, doc: str) -> Column:
    """A column of times or durations in whole ns."""
    return Column(name, "int64", "ns", doc)


def size(name: str, doc: str) -> Column:
    """A column of whole bytes."""
    return Column(name, "int64", "bytes", doc)


def real(name: str, doc: str, unit: str | None = None, decimals: int | None = None) -> Column:
    """A column of numbers with fractions."""
    return Column(name, "float64", unit, doc, decimals)


def percent(name: str, doc: str, decimals: int | None = 1) -> Column:
    """A column of shares from 0 to 100."""
    return Column(name, "float64", "%", doc, decimals)


def flag(name: str, doc: str) -> Column:
    """A column that is true or false."""
    return Column(name, "bool", None, doc)


def texts(name: str, doc: str) -> Column:
    """A column of lists of text."""
    return Column(name, "texts", None, doc)


def numbers(name: str, doc: str) -> Column:
    """A column of lists of whole numbers."""
    return Column(name, "numbers", None, doc)


def rank(name: str = "rank", doc: str = "rank") -> Column:
    """A column of numbers of ranks."""
    return Column(name, "int32", None, doc)


RANK = rank()


def device(name: str = "device", of: str = "rank") -> Column:
    """A column of the device of a rank, next to that of the rank."""
    return Column(
        name, "int32", None, f"the device of {of}, its row in `devices`; null if each rank works with one device"
    )


def devices(doc: str) -> Column:
    """A column of lists of devices."""
    return Column("devices", "devices", None, doc)


DEVICES = devices(
    "the devices of `ranks`: rank, row in its `devices`, number in sentences (the CUDA ordinal; null if the rank works "
    "with one), host; null if every rank works with one device"
)


@lru_cache(256)
def schema_of(columns: Columns) -> Any:
    """The `pyarrow.Schema` of a table with these columns; a field has `decimals` where the column has."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field(c.name, arrow_type(c.type), metadata=None if c.decimals is None else {"decimals": str(c.decimals)})
            for c in columns
        ]
    )


@cache
def arrow_type(kind: ColumnType) -> Any:
    """The `pyarrow.DataType` of a column in memory; `enum` is a dictionary of strings."""
    import pyarrow as pa

    types = {
        "time": pa.int64(), "name": pa.int64(), "enum": pa.dictionary(pa.int32(), pa.string()), "text": pa.string(),
        "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(), "float64": pa.float64(),
        "bool": pa.bool_(), "binary": pa.binary(),
        "texts": pa.list_(pa.string()), "numbers": pa.list_(pa.int64()), "ranks": pa.list_(pa.int32()),
        "devices": pa.list_(
            pa.struct([("rank", pa.int32()), ("device", pa.int32()), ("gpu", pa.int32()), ("host", pa.string())])
        ),
        "any": pa.null(),
    }  # fmt: skip
    return types[kind]


def table_of(rows: Sequence[Any], columns: Columns, schema: Any = None) -> Any:
    """Rows as a `pyarrow.Table`, null in columns that they lack; a column with sums beyond 64 bits has decimals.

    `schema` is that of the columns where one of them is of `any` type.
    """
    import pyarrow as pa

    schema = schema or schema_of(columns)
    try:
        return pa.Table.from_pylist(rows, schema)
    except OverflowError:
        from alltrace.trace.arrays import whole_numbers

        arrays = [
            (
                whole_numbers([r.get(f.name) for r in rows])
                if f.type == pa.int64()
                else pa.array([r.get(f.name) for r in rows], f.type)
            )
            for f in schema
        ]
        return pa.table(arrays, pa.schema([f.with_type(a.type) for f, a in zip(schema, arrays, strict=True)]))
