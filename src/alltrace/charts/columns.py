"""The columns of an answer as numbers and as texts, for drawing."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.charts.words import natural, title
from alltrace.recipes.base import Answer, Column
from alltrace.trace.amounts import scale, text


class Columns:
    """An answer's columns by name. `answer`: the answer; its table has the columns of `columns`."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._by_name = {c.name: c for c in answer.columns}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __len__(self) -> int:
        rows: int = self.answer.table.num_rows
        return rows

    def column(self, name: str) -> Column:
        return self._by_name[name]

    def numeric(self, name: str) -> bool:
        kind = self.answer.table.schema.field(name).type
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))

    def whole(self, name: str) -> bool:
        """Whether its cells are whole numbers without a unit, such as ranks."""
        return bool(pa.types.is_integer(self.answer.table.schema.field(name).type)) and self.column(name).unit is None

    def numbers(self, name: str) -> NDArray[Any]:
        """The cells as float64, NaN if there is none."""
        cells = self.answer.table.column(name)
        if pa.types.is_dictionary(cells.type):
            cells = cells.cast(cells.type.value_type)
        if not self.numeric(name):
            return np.full(len(cells), np.nan)
        numbers: NDArray[Any] = cells.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
        return np.where(np.isfinite(numbers), numbers, np.nan)

    def texts(self, name: str) -> list[str]:
        shortened: dict[Any, str] = {}
        cells = []
        for value in self.answer.table.column(name).to_pylist():
            key = value if isinstance(value, (str, int)) else repr(value)
            if key not in shortened:
                shortened[key] = text(value)
            cells.append(shortened[key])
        return cells

    def coded(self, name: str) -> tuple[NDArray[Any], list[str]]:
        """For each cell the number of its text among the distinct ones, and these, in natural order."""
        if self.whole(name) and not self.answer.table.column(name).null_count:
            values, codes = np.unique(self.answer.table.column(name).to_numpy(), return_inverse=True)
            return codes, [str(v) for v in values.tolist()]
        texts = self.texts(name)
        names = sorted(set(texts), key=natural)
        index = {n: i for i, n in enumerate(names)}
        return np.array([index[t] for t in texts], np.int64), names

    def scaled(self, names: tuple[str, ...]) -> tuple[list[NDArray[Any]], str]:
        """Columns of one unit in a unit that can be read: their numbers in it, and the unit."""
        numbers = [self.numbers(n) for n in names]
        largest = [float(np.nanmax(np.abs(n))) for n in numbers if np.isfinite(n).any()]
        divisor, unit = scale(self.column(names[0]).unit, largest)
        return [n / divisor for n in numbers], unit

    def title(self, names: tuple[str, ...], unit: str) -> str:
        """The axis title of these columns: the label of one, or the common unit of several."""
        if len(names) == 1:
            return title(self.column(names[0]), unit)
        of_time = unit in ("s", "ms", "µs", "ns")
        return {"%": "share [%]", "": "value"}.get(unit, f"time [{unit}]" if of_time else f"[{unit}]")
