"""The units that `nsys` shows times and sizes in: which a column may have, and its values in another."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.cells import Cell, round_printed

_TIMES = {"ns": (1, None), "us": (10**3, 3), "ms": (10**6, 4), "sec": (10**9, 4)}
_SIZES = {
    "B": (1, None), "KB": (10**3, 2), "KiB": (1 << 10, 2), "MB": (10**6, 3), "MiB": (1 << 20, 3), "GB": (10**9, 3),
    "GiB": (1 << 30, 3),
}  # fmt: skip
SCALES: Mapping[str, Mapping[str, tuple[int, int | None]]] = {
    "ts": _TIMES,
    "dur": _TIMES,
    "mem": _SIZES,
    "thru": _SIZES,
}
"""For each category its units: how many of the least one it is, and how many decimals it is shown with; None for
all."""
DEFAULT_UNITS: Mapping[str, str] = {"ts": "ns", "dur": "ns", "mem": "MB", "thru": "MB"}
META_CATEGORIES: Mapping[str, tuple[str, ...]] = {"time": ("ts", "dur"), "bytes": ("mem", "thru")}
LEAST_UNITS: Mapping[str, str] = {"ts": "ns", "dur": "ns", "mem": "B", "thru": "B"}

_TIME_UNITS = {
    "nsec": "ns",
    "nanoseconds": "ns",
    "usec": "us",
    "microseconds": "us",
    "msec": "ms",
    "milliseconds": "ms",
}
_CATEGORIES: Mapping[str, str] = {
    "mean_time": "dur", "size": "mem", "bytes": "mem", "throughput": "thru", "share": "ratio", "percent": "ratio",
}  # fmt: skip


class Column(NamedTuple):
    title: str  # its title without the unit
    # what it holds: `ts` for a time, `dur` for a duration, `mem` for a size, `thru` for a rate, `ratio` for a share
    category: str
    fixed: str = ""  # the unit of a column that has no other

    def header(self, units: Mapping[str, str], *, with_unit: bool = True) -> str:
        unit = units.get(self.category, self.fixed)
        if not unit or not with_unit:
            return self.title
        return f"{self.title} ({unit}{'/s' if self.category == 'thru' else ''})"


def column_of(cell: Cell) -> Column:
    if cell.kind in ("time", "ns"):
        return Column(cell.title, "ts" if cell.title == "End" or cell.title.endswith("Start") else "dur")
    category = _CATEGORIES.get(cell.kind, "")
    return Column(cell.title, category, "ticks/ms" if cell.kind == "ticks" else "%" if category == "ratio" else "")


def time_unit(text: str) -> str | None:
    """The unit that `--timeunit` names, by the beginning of a name of it; None if there is none."""
    names = {**_TIME_UNITS, "seconds": "sec"}
    units = {unit for name, unit in names.items() if text and name.startswith(text)}
    return units.pop() if len(units) == 1 else None


def converted(table: Any, columns: Sequence[Column], units: Mapping[str, str], *, with_unit: bool = True) -> Any:
    """A table in the requested units, which its headers name."""
    # `table`: A `pyarrow.Table`, its times in ns, its sizes in bytes, its rates in bytes a second. `units`: The unit of
    # each category. `with_unit`: Whether headers name units. Returns a `pyarrow.Table`; the metadata of a field has the
    # number of decimals of its cells, as in answers.
    arrays, fields = [], []
    for place, column in enumerate(columns):
        array, field = table.column(place), table.schema.field(place)
        scales = SCALES.get(column.category, {})
        scale, decimals = scales.get(units.get(column.category, ""), (1, None))
        if scale != 1:
            array = _scaled(array, scale, decimals or 0, inverse=column.category in ("ts", "dur"))
            field = pa.field(field.name, pa.float64(), metadata={"decimals": str(decimals)})
        arrays.append(array)
        fields.append(field.with_name(column.header(units, with_unit=with_unit)))
    return pa.table(arrays, schema=pa.schema(fields))


def _scaled(array: Any, scale: int, decimals: int, *, inverse: bool) -> Any:
    """The numbers in another unit; nsys multiplies times by a fraction and divides sizes, which decides last digits."""
    number = pc.cast(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array, pa.float64(), safe=False)
    number = number.combine_chunks() if isinstance(number, pa.ChunkedArray) else number
    missing = pc.is_null(number).to_numpy(zero_copy_only=False) if number.null_count else None
    values = pc.fill_null(number, 0.0).to_numpy(zero_copy_only=False)
    return pa.array(round_printed(values * (1.0 / scale) if inverse else values / scale, decimals), mask=missing)
