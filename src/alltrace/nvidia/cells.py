"""The cells of NVIDIA's tables: how nsys names, rounds and prints what a column holds.

An answer's columns bear nsys' headers; those of reports bear the unit too. A fractional column holds float64 rounded as
nsys does, and its Arrow field has the metadata `decimals`: how many digits after the point every cell is printed with
(`7.0`, `0.000`). A whole number is an int64 printed as it is, and null is an empty cell. A face needs no other rule to
print what nsys prints.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.recipes.base import AnswerTable
from alltrace.trace.columns import Column, ColumnType, arrow_type
from alltrace.trace.grouping import group

Columns = Mapping[str, Any]  # Arrow or NumPy arrays of one length, by title

IMPORTANT = tuple(
    title.strip()
    for title in """
    Name | Kernel Name | Text | NVTX Range | Range | Range Start | Operation | API Name | Event | Function |
    Communicator | Device Name | Device name | Source | Metric | Iteration | Virtual Address | CPU Instruction Address |
    Time | Time (%) | In-Use | Total Time | Total Time (ns) | Total Proj Time (ns) | Projected Duration |
    Projected Duration (ns) | Total | Total (MB) |
    Total Message Volume (MB) | Sum | Caused Wait | Frequency | Mean | Value | Duration | Duration (ns) |
    Kernel Dur (ns) |
    KAvg (ns) | Kernel | All | Communication Overlap | Compute Overlap | SM Active | Send wait rate (ticks/ms) |
    Bytes Sent |
    Congestion | Start | Start (ns) | Rank | CPU Page Faults | Total HtoD Migration Size (MB) |
    Total DtoH Migration Size (MB) |
    Total CPU Page Faults | Count | Instances | Num Calls
    """.split("|")
)
"""Titles of columns in the order of `Question.important`: what a row is about, then how much it is."""
_MOST_TEXT = (1 << 31) - 1


class Kind(NamedTuple):
    """What cells are: their type, unit, digits after the point, whether the header bears the unit, and the rounding."""

    type: ColumnType
    unit: str | None = None
    decimals: int | None = None
    in_header: bool = False
    half_up: bool = False


_INT: ColumnType = "int64"
_REAL: ColumnType = "float64"
KINDS = {
    "text": Kind("text"),
    "word": Kind("enum"),  # text of which few are distinct, each kept once
    "int": Kind(_INT),
    "real": Kind(_REAL, decimals=1),
    # of reports, with sizes in MB of 1e6 bytes
    "name": Kind("text"),  # text, also as a dictionary or with 64-bit offsets
    "time": Kind(_INT, "ns", in_header=True),
    "mean_time": Kind(_REAL, "ns", 1, in_header=True, half_up=True),
    "share": Kind(_REAL, "%", 1, in_header=True, half_up=True),
    "mean": Kind(_REAL, decimals=1, half_up=True),
    "size": Kind(_REAL, "MB", 3, in_header=True),
    "throughput": Kind(_REAL, "MB/s", 3, in_header=True),
    "ticks": Kind(_INT, "ticks/ms", in_header=True),
    # of recipes
    "ns": Kind(_INT, "ns"),
    "bytes": Kind(_INT, "bytes"),
    "mean_ns": Kind(_REAL, "ns", 1),
    "mean_bytes": Kind(_REAL, "bytes", 1),
    "exact_ns": Kind(_REAL, "ns"),
    "exact_bytes": Kind(_REAL, "bytes"),
    "percent": Kind(_REAL, "%", 1),
    "mib_per_s": Kind(_REAL, "MiB/s", 1),
    "ticks_per_s": Kind(_REAL, "ticks/s", 1),
}
SIZES = ("size", "throughput")


class Cell(NamedTuple):
    """A column: title, name of its `Kind`, what it means, and whether halves are rounded up, as SQL does."""

    title: str
    kind: str
    doc: str
    half_up: bool = False

    @property
    def header(self) -> str:
        """The title as nsys prints it, in reports with the unit in brackets."""
        kind = KINDS[self.kind]
        return f"{self.title} ({kind.unit})" if kind.in_header else self.title

    def answer_column(self) -> Column:
        kind = KINDS[self.kind]
        return Column(self.header, kind.type, kind.unit, self.doc, kind.decimals)

    def field(self, kind: pa.DataType | None = None, *, in_bytes: bool = False) -> pa.Field:
        """The column's field, with `decimals` if its cells are rounded."""
        decimals = None if in_bytes and self.kind in SIZES else KINDS[self.kind].decimals
        metadata = None if decimals is None else {"decimals": str(decimals)}
        return pa.field(self.header, kind or arrow_type(KINDS[self.kind].type), metadata=metadata)

    def array(self, values: Any, *, in_bytes: bool = False) -> Any:
        """Values rounded and typed; a sum too large for int64 stays a decimal number."""
        kind = KINDS[self.kind]
        if isinstance(values, pa.ChunkedArray):
            if values.type == arrow_type(kind.type) and kind.decimals is None:
                return values
            values = values.combine_chunks()
        array = values if isinstance(values, pa.Array) else pa.array(values)
        if in_bytes and self.kind in SIZES:
            return pc.cast(array, pa.int64() if self.kind == "throughput" else array.type, safe=False)
        if pa.types.is_dictionary(array.type):
            return pc.cast(array, array.type.value_type) if self.kind == "text" else array
        # more text than a string array can hold comes as a large one, and stays one
        if kind.decimals is None:
            as_it_is = pa.types.is_decimal(array.type) or (self.kind == "name" and array.nbytes > _MOST_TEXT)
            return array if as_it_is else pc.cast(array, arrow_type(kind.type))
        number = pc.cast(array, pa.float64(), safe=False)  # a whole number beyond 53 bits is rounded
        null = pc.is_null(number).to_numpy(zero_copy_only=False) if number.null_count else None
        exact = pc.fill_null(number, 0.0).to_numpy(zero_copy_only=False)
        if self.kind in SIZES:
            rounded = round_printed(exact / 1e6, 3)
        else:
            rounded = round_half_up(exact) if self.half_up or kind.half_up else np.round(exact, 1)
        return pa.array(rounded, mask=null)


RANK_CELL = Cell("Rank", "int", "Rank.")


def cells(*texts: str) -> tuple[Cell, ...]:
    """Cells written as `Title | kind | What it means.`."""
    parts = ([part.strip() for part in text.split("|", 2)] for text in texts)
    return tuple(Cell(title, kind, doc) for title, kind, doc in parts)


def empty_table(columns: Sequence[Cell], *, in_bytes: bool = False) -> AnswerTable:
    return AnswerTable(
        pa.schema([c.field(in_bytes=in_bytes) for c in columns]).empty_table(),
        tuple(c.answer_column() for c in columns),
    )


def cell_table(columns: Sequence[Cell], values: Columns, *, in_bytes: bool = False) -> AnswerTable:
    """A table of values by title, rounded and typed; sizes are bytes, rates bytes per second, percentages 0 to 100."""
    arrays = [cell.array(values[cell.title], in_bytes=in_bytes) for cell in columns]
    fields = [cell.field(array.type, in_bytes=in_bytes) for cell, array in zip(columns, arrays, strict=True)]
    return AnswerTable(pa.table(arrays, schema=pa.schema(fields)), tuple(cell.answer_column() for cell in columns))


def ordered(values: Columns, *order: str) -> dict[str, Any]:
    """The columns with their rows sorted by titles; one that begins with `-` is descending."""
    table = pa.table({n: np.asarray(v) if isinstance(v, list) else v for n, v in values.items()})
    keys = [(key.removeprefix("-"), "descending" if key.startswith("-") else "ascending") for key in order]
    table = table.take(pc.sort_indices(table, keys))
    return {name: table.column(name) for name in table.column_names}


def shares(totals: Any, within: Any = None) -> Any:
    """Each total as a percentage of the sum of all, or of those with the same `within`; null if that is 0."""
    values = np.asarray([float(v) for v in totals.to_pylist()])
    if within is None:
        sums = np.full(len(values), values.sum())
    else:
        codes, _ = group([within])
        sums = np.bincount(codes, weights=values)[codes] if len(codes) else values
    of_all = np.divide(100.0 * values, sums, out=np.zeros_like(values), where=sums != 0)
    return pa.array(of_all, mask=sums == 0)


def stack(tables: Sequence[Any]) -> Any:
    """The rows of all tables with one dictionary; Arrow unifies only dictionaries without null."""
    return pa.concat_tables([_without_null_words(table) for table in tables]).unify_dictionaries()


def _without_null_words(table: Any) -> Any:
    for position, field in enumerate(table.schema):
        column = table.column(position)
        if pa.types.is_dictionary(field.type) and any(chunk.dictionary.null_count for chunk in column.chunks):
            table = table.set_column(position, field.name, pc.dictionary_encode(pc.cast(column, field.type.value_type)))
    return table


def round_half_up(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values rounded to one decimal, halves away from zero as SQL's ROUND does: 1.25 is 1.3."""
    return np.copysign(np.floor(np.abs(values) * 10.0 + 0.5) / 10.0, values)


def round_printed(values: NDArray[np.float64], decimals: int) -> NDArray[np.float64]:
    """Values rounded as printing with this many decimals does: a decimal half follows its binary value."""
    scale = 10.0**decimals
    scaled = values * scale
    rounded: NDArray[np.float64] = np.rint(scaled) / scale
    near = np.flatnonzero(np.abs(scaled - np.floor(scaled) - 0.5) < 1e-6)
    if len(near):
        distinct, at = np.unique(values[near], return_inverse=True)
        rounded[near] = np.array([round(float(v), decimals) for v in distinct])[at]
    return rounded
