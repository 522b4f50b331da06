"""Rows that wait: what comes out is what went in, also where a column has values in some batches alone."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.thorough import cases

from alltrace.run.columns import HeldColumns
from alltrace.run.writer import PendingRows
from alltrace.trace.schema import TABLES

RANGES = TABLES["ranges"]
column = st.sampled_from(["values", "some", "none"])


@settings(max_examples=cases(50, 150), deadline=None)
@given(
    batches=st.lists(st.tuples(st.integers(1, 9), column, column, column, st.integers(0, 2)), min_size=1, max_size=8)
)
def test_rows_come_back(batches):
    held = HeldColumns(RANGES)
    buffer = PendingRows(held)
    given_rows = []
    for number, (count, start, depth, payload, skip) in enumerate(batches):
        made = {
            "start": _values(start, [number * 100 + i for i in range(count)]),
            "depth": _values(depth, list(range(count))),
            "payload": _values(payload, [f"p{number}-{i}" for i in range(count)]),
            "kind": _values(payload, ["pushpop"] * count),
        }
        arrays = [pa.array(made.get(f.name, [None] * count), f.type) for f in held.schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=held.schema).slice(min(skip, count - 1))
        given_rows += batch.to_pylist()
        buffer.append(held.hold(batch))
    assert buffer.count == len(given_rows)
    taken = buffer.take()
    assert (buffer.count, buffer.nbytes) == (0, 0)
    taken.validate(full=True)
    assert held.release([held.full(taken)]).to_pylist() == given_rows


def _values(kind, values):
    if kind == "none":
        return [None] * len(values)
    return [None if kind == "some" and i % 2 else v for i, v in enumerate(values)]


def test_a_taken_buffer_can_be_filled_again():
    held = HeldColumns(RANGES)
    buffer = PendingRows(held)
    taken = []
    for start in (5, 6):
        columns = [pa.array([start if f.name == "start" else None], f.type) for f in held.schema]
        buffer.append(held.hold(pa.RecordBatch.from_arrays(columns, schema=held.schema)))
        taken.append(buffer.take())
    assert [t.column("start").to_pylist() for t in taken] == [[5], [6]]
