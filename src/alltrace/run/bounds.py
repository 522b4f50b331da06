"""What numbers of a report may be, so that no question about them leaves 64 bits or the finite numbers.

Questions add up times and sizes in whole numbers of 64 bits, and values of metrics and their squares in floating point.
Both are exact, or as exact as floating point is, as long as what goes in is small enough. That is seen to here, once
for every question: a report with a sum that no job can reach is damaged and refused; a value of a metric that is not a
number is left out. What is odd but usable is counted, so that answers made from it have a note. Single rows with such a
time are left out.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.base import ReportWarning
from alltrace.trace.arrays import Int64, extremes, integers
from alltrace.trace.errors import InputError
from alltrace.trace.schema import Table

MOST_TIME_NS = 1 << 60  # 36 years: no event is farther from the zero of its report

MOST_SUM = 1 << 59
"""18 years, or half an exabyte: no table of a rank has more durations or sizes, so that sums over ranks fit too."""

_LONGEST_NS = 1 << 55  # a year: no event lasts longer

_LARGEST_BYTES = 1 << 50

_MANY = 100_000

_INTERVALS = (("start", "end"), ("api_start", "api_end"))

MOST_VALUE = 1e100  # no value of a metric is as large, so that sums of squares are finite


_OPEN = ("ranges", "collectives")
"""Tables with rows that may have no end: a range that is still open, or an operation with only a known call."""

UNREACHABLE_TEXT = "rows of `{table}` with a time more than 36 years away or a duration of more than a year"
_ENDLESS = "rows of `{table}` without an end, so their duration is unknown"
_NO_NUMBER = "values of `{table}` left out because they are not finite or are 1e100 or more"
_NO_SIZE = "sizes of `{table}` left out because they are beyond a petabyte"
_WRONG = (UNREACHABLE_TEXT, _NO_SIZE, _ENDLESS, _NO_NUMBER)


class Bounds:
    """Checks the batches of one table of one rank."""

    def __init__(self, path: str, table: Table) -> None:
        self._path = path
        self._table = table
        self._sizes = [c for c in table.columns if c.unit == "bytes" and c.type == "int64"]
        self._values = [c.name for c in table.columns if c.type == "float64"]
        self._sums: dict[str, float] = {}
        self._rows = 0
        self.unreachable: list[pa.RecordBatch] = []  # the rows that were left out for their times
        self._empty = set(table.column_names)
        self._wrong = dict.fromkeys(_WRONG, 0)

    def checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch without values that are not numbers. Raises `InputError`: most cannot be added up."""
        names, columns, rows = batch.schema.names, batch.columns, batch.num_rows
        self._empty &= {n for n, column in zip(names, columns, strict=True) if column.null_count == rows}
        batch = self._reachable(batch)
        for column in self._sizes:
            batch = self._possible_size(batch, column.name)
        for what, amounts in self._amounts(batch):
            self._sums[what] = self._sums.get(what, 0.0) + float(np.abs(amounts.astype(np.float64)).sum())
            if self._sums[what] > MOST_SUM:
                largest = int(amounts[np.argmax(np.abs(amounts.astype(np.float64)))])
                raise self._refusal(
                    f"{what} are too large to add up, such as {largest}", f"a sum of {MOST_SUM} for each rank at most"
                )
        for name in self._values:
            batch = self._finite(batch, name)
        return batch

    def _reachable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose times can be counted with."""
        names = self._table.time_columns()
        self._rows += batch.num_rows
        far = [
            n for n in names if any(time is not None and abs(time) > _LONGEST_NS for time in extremes(batch.column(n)))
        ]
        if not far:
            return batch
        good = np.ones(batch.num_rows, np.bool_)
        for name in far:
            time = integers(batch.column(name))
            good &= (time >= -MOST_TIME_NS) & (time <= MOST_TIME_NS)
        for first, last in _INTERVALS:
            if {first, last} <= set(names):
                start, end = (integers(batch.column(c)).astype(np.float64) for c in (first, last))
                known = (batch.column(first).is_valid().to_numpy(False)) & (
                    batch.column(last).is_valid().to_numpy(False)
                )
                good &= ~known | (np.abs(end - start) <= _LONGEST_NS)
        left_out = int(np.count_nonzero(~good))
        if left_out:
            self.unreachable.append(batch.filter(pa.array(~good)))
        self._wrong[UNREACHABLE_TEXT] += left_out
        if self._wrong[UNREACHABLE_TEXT] > _MANY:
            self._refuse_most()
        return batch.filter(pa.array(good)) if left_out else batch

    def warnings(self) -> tuple[ReportWarning, ...]:
        """What is wrong with rows, or was left out, once all are checked. Raises `InputError`: most were left out."""
        self._refuse_most()
        name = self._table.name
        return tuple(
            ReportWarning(text.format(table=name), (name,), count) for text, count in self._wrong.items() if count
        )

    def _refuse_most(self) -> None:
        if 2 * self._wrong[UNREACHABLE_TEXT] <= self._rows:
            return
        rows = self.unreachable[0]
        worst = max((t for c in self._table.time_columns() for t in extremes(rows.column(c)) if t is not None), key=abs)
        problem = f"most rows have a time that cannot be, such as {worst} ns"
        raise self._refusal(problem, "times in ns, within 36 years of its zero")

    def lacking(self) -> tuple[str, ...]:
        """The columns that had no value in any row."""
        return tuple(c for c in self._table.column_names if c in self._empty)

    def _amounts(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Int64]]:
        for first, last in _INTERVALS:
            if {first, last} <= set(self._table.time_columns()):
                took = _known(pc.subtract(batch.column(last), batch.column(first)))
                if self._table.name not in _OPEN and batch.column(last).null_count:
                    self._wrong[_ENDLESS] += batch.column(last).null_count
                yield f"durations ({first} to {last}, ns)", took
        for column in self._sizes:
            yield f"sizes ({column.name})", _known(batch.column(column.name))

    def _possible_size(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        sizes = batch.column(name)
        if all(size is None or abs(size) <= _LARGEST_BYTES for size in extremes(sizes)):
            return batch
        possible = pc.and_(pc.greater_equal(sizes, -_LARGEST_BYTES), pc.less_equal(sizes, _LARGEST_BYTES))
        self._wrong[_NO_SIZE] += len(possible) - possible.null_count - (pc.sum(possible).as_py() or 0)
        place = batch.schema.get_field_index(name)
        return batch.set_column(place, batch.schema.field(name), pc.if_else(possible, sizes, None))

    def _finite(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        column = batch.column(name)
        if column.null_count == len(column):
            return batch
        good = pc.less(pc.abs(column), MOST_VALUE)  # not so of what is not a number
        wrong = len(good) - good.null_count - (pc.sum(good).as_py() or 0)
        if not wrong:
            return batch
        self._wrong[_NO_NUMBER] += wrong
        place = batch.schema.get_field_index(name)
        return batch.set_column(place, batch.schema.field(name), pc.if_else(good, column, None))

    def _refusal(self, problem: str, expected: str) -> InputError:
        advice = "record or export it again, or leave the table out with `alltrace import --only`"
        return InputError(self._path, found=f"table {self._table.name!r}: {problem}", expected=expected, advice=advice)


def _known(column: Any) -> Int64:
    """The numbers of an Arrow array, nulls left out."""
    known: Int64 = (column.drop_null() if column.null_count else column).to_numpy(zero_copy_only=False)
    return known
