"""Rows of a table as tracks of the timeline: the result of a query, shown next to its subject."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.tiles.events import lanes_of
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import UsageError
from alltrace.trace.intervals import by_track

STARTS = ("start", "start_ns", "time", "time_ns", "api_start")
ENDS = ("end", "end_ns", "api_end")
LENGTHS = ("duration_ns", "duration", "length_ns")
NAMES = ("name", "short_name", "op", "kind", "where")
_NO_RANK = -1


def laid(table: pa.Table) -> dict[str, Any]:
    """The rows of a table by rank, as slices that can be drawn."""
    # The start is the first column called as in `STARTS`, the end one of `ENDS`, or the start and one of `LENGTHS`
    # after it; a row without either is a moment. The name is one of `NAMES`, or the first column of text. Without
    # `rank` rows are of no rank. `table`: a `pyarrow.Table`; times are ns from the run's start. Returns `tracks`, one
    # per rank: `rank` (None for none), and of n rows ascending by start `start`, `length` (ns), `name`, `lane` and
    # `row` (of the table); `left_out`, the number of rows without a start.
    columns = {name.lower(): name for name in reversed(table.column_names)}
    start_of = _first(columns, STARTS)
    if start_of is None:
        raise UsageError(
            f"the answer has no column of times; expected one called {', '.join(STARTS[:-1])} or {STARTS[-1]}"
        )
    there = np.flatnonzero(pc.is_valid(table.column(start_of)).to_numpy())
    rows = table.take(pa.array(there))
    starts = _whole(rows, start_of)
    end_of, length_of = _first(columns, ENDS), _first(columns, LENGTHS)
    ends = starts
    if end_of is not None:
        ends = _whole(rows, end_of, starts)
    elif length_of is not None:
        ends = starts + _whole(rows, length_of, np.zeros(len(starts), np.int64))
    ends = np.maximum(starts, ends)
    ranks = (
        _whole(rows, columns["rank"], np.full(len(starts), _NO_RANK))
        if "rank" in columns
        else np.full(len(starts), _NO_RANK)
    )
    names = _names(rows, columns)
    tracks = []
    for (rank,), its in by_track(ranks):
        own = np.arange(len(starts))[its]
        order = own[np.lexsort((-ends[own], starts[own]))]
        start, end = starts[order], ends[order]
        tracks.append(
            {
                "rank": None if rank == _NO_RANK else int(rank),
                "start": start.tolist(),
                "length": (end - start).tolist(),
                "name": [names[i] for i in order.tolist()],
                "lane": lanes_of(start, end).tolist(),
                "row": there[order].tolist(),
            }
        )
    return {"tracks": tracks, "left_out": table.num_rows - len(there)}


def _first(columns: dict[str, str], wanted: Sequence[str]) -> str | None:
    return next((columns[w] for w in wanted if w in columns), None)


def _whole(table: pa.Table, column: str, missing: Int64 | None = None) -> Int64:
    """A column as int64; null is what `missing` has in that row."""
    values = table.column(column)
    try:
        numbers = values.cast(pa.int64()).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UsageError(f"the column {column} holds {values.type}; expected whole numbers of 64 bits") from error
    if missing is not None and numbers.null_count:
        numbers = pc.coalesce(numbers, pa.array(missing))
    integers: Int64 = numbers.to_numpy(zero_copy_only=False)
    return integers


def _names(table: pa.Table, columns: dict[str, str]) -> list[str]:
    column = _first(columns, NAMES)
    if column is None:
        column = next((f.name for f in table.schema if pa.types.is_string(f.type) and f.name.lower() != "host"), None)
    if column is None:
        return [""] * table.num_rows
    return ["" if v is None else str(v) for v in table.column(column).to_pylist()]
