"""The cells of an answer as text, and its values as JSON has them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

from alltrace.trace.amounts import column_scale
from alltrace.trace.number_text import named_devices, number_ranges

_UNIT = re.compile(r"(_ns|_us|_bytes)((?:_per_step)?)$")
_UNITS = ("bytes", "ns")
_PLACE = re.compile(r"(?:^|_)(?:start|end)_ns$")
_NAMING = frozenset({"process", "pid", "tid", "corrid", "rank", "device", "strm", "ctx", "line", "op_count", "tag"})


def cells(table: Any, *, grouped: bool = False) -> list[list[str]]:
    """The cells of each column as text."""
    # A column with the metadata `decimals` in its Arrow field is written with that many decimals; other floats have as
    # many as they need. Null is the empty string.
    return [column_cells(table.column(i), table.schema.field(i), grouped=grouped) for i in range(table.num_columns)]


def column_cells(column: Any, field: Any, *, grouped: bool) -> list[str]:
    import pyarrow as pa

    values = column.to_pylist()
    if is_sparse(field):
        return [
            ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items() if v is not None)
            for row in values
        ]
    # numbers that name a thing are not amounts
    comma = "," if grouped and field.name.lower() not in _NAMING else ""
    if pa.types.is_integer(field.type):
        return ["" if v is None else format(v, f"{comma}d") for v in values]
    if pa.types.is_floating(field.type):
        decimals = (field.metadata or {}).get(b"decimals")
        if decimals is not None:
            return ["" if v is None else format(v, f"{comma}.{int(decimals)}f") for v in values]
        if grouped:
            return ["" if v is None else f"{v:,.1f}" if abs(v) >= 1000 else f"{v:,.4g}" for v in values]
        return ["" if v is None else repr(v) for v in values]
    if pa.types.is_decimal(field.type):
        return ["" if v is None else format(v, f"{comma}f") for v in values]
    if pa.types.is_boolean(field.type):
        return ["" if v is None else str(v).lower() for v in values]
    if pa.types.is_list(field.type):
        return ["" if v is None else ", ".join(map(words, v)) for v in values]
    return [words(v) for v in values]


class NumberForm(NamedTuple):
    """How the numbers of a column are written for reading: in one unit, with the same decimals."""

    divisor: float
    unit: str
    decimals: int


def number_form(column: Any, field: Any) -> NumberForm | None:
    """The form in which the numbers of a column can be read; None for texts, counts, and stated decimals."""
    # Times and sizes are detected by the column's name.
    import pyarrow as pa

    unit = _unit_of(field)
    if unit is None and (not pa.types.is_floating(field.type) or b"decimals" in (field.metadata or {})):
        return None
    if _PLACE.search(field.name):
        return NumberForm(1e9, "s", 6)
    return NumberForm(*column_scale(unit, [float(v) for v in column.to_pylist() if v is not None]))


def read_cells(
    column: Any, field: Any, form: NumberForm | None, gpus: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """The cells of a column in readable form."""
    # `form`: How its numbers are written (see `number_form`). `gpus`: Short names of devices.
    import pyarrow as pa

    if form is None:
        if pa.types.is_list(field.type) and pa.types.is_integer(field.type.value_type) and field.name == "ranks":
            return ["" if v is None else number_ranges(v) for v in column.to_pylist()]
        if field.name == "devices" and pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type):
            return ["" if v is None else named_devices(v) for v in column.to_pylist()]
        shown = column_cells(column, field, grouped=True)
        return [gpus.get(text, text) for text in shown] if field.name == "gpu" else shown
    least = 10.0**-form.decimals
    return ["" if v is None else _in_form(float(v) / form.divisor, form.decimals, least) for v in column.to_pylist()]


def _in_form(value: float, decimals: int, least: float) -> str:
    if value and abs(value) < least / 2:
        return f"{'>-' if value < 0 else '<'}{least:.{decimals}f}"
    return f"{value:,.{decimals}f}"


def read_name(field: Any) -> str:
    """The name of a column without its unit, for columns with units in their cells."""
    name = str(field.name)
    return _UNIT.sub(r"\2", name) if _unit_of(field) is not None and name not in _UNITS else name


def _unit_of(field: Any) -> str | None:
    """The unit of a column of times or sizes, taken from its name; None for any other column."""
    if not is_number(field):
        return None
    match = _UNIT.search(field.name)
    return match[1].lstrip("_") if match else field.name if field.name in _UNITS else None


def words(value: Any) -> str:
    """A value that is not a number as text: bytes as hex, what is nested as JSON; null is empty."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.hex()
    return json_text(value) if isinstance(value, (dict, list, tuple)) and not hasattr(value, "_fields") else str(value)


def is_number(field: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type))


def is_amount(field: Any) -> bool:
    """Whether the numbers of a column say how much, so that zero is nothing; those that name a thing do not."""
    named = field.name.lower() in _NAMING or field.name.endswith(("rank", "step")) or _PLACE.search(field.name)
    return is_number(field) and not named


def is_sparse(field: Any) -> bool:
    """Whether the objects of a column have only the fields that are not null."""
    return b"sparse" in (field.metadata or {})


def json_text(value: Any) -> str:
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, default=_json_plain)


def _json_plain(value: Any) -> Any:
    """What JSON has no word for: a decimal is a number, whole without fraction; bytes are hex; a date is its text."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return words(value)


def _finite(value: Any) -> Any:
    """`value` with null for the numbers that JSON does not have."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value
