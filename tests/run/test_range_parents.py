"""Depth and parent of push/pop ranges against the definition, tried on every pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.thorough import cases

from alltrace.run.writer import TableWriter
from alltrace.trace.schema import TABLES

if TYPE_CHECKING:
    from pathlib import Path

RANGES = TABLES["ranges"]
Row = tuple[int | None, int | None, int | None, str | None]  # thread, start, end, kind


def batch_of(rows: list[Row], first: int = 0) -> pa.RecordBatch:
    """The rows as a batch; `color` holds their number in the source."""
    columns = {
        "thread": [r[0] for r in rows],
        "start": [r[1] for r in rows],
        "end": [r[2] for r in rows],
        "kind": [r[3] for r in rows],
        "color": list(range(first, first + len(rows))),
    }
    schema = RANGES.arrow_schema()
    arrays = [
        pa.array(columns[f.name], pa.string()).dictionary_encode()
        if f.name == "kind"
        else pa.array(columns.get(f.name, [None] * len(rows)), f.type if not pa.types.is_dictionary(f.type) else None)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def write(
    rows: list[Row], folder: Path, open_end_ns: int | None, batch_rows: int = 1000, memory_bytes: int = 1 << 20
) -> list[dict]:
    with TableWriter(RANGES, folder / "ranges.parquet", folder / "spill", memory_bytes) as writer:
        for first in range(0, len(rows), batch_rows):
            writer.append(batch_of(rows[first : first + batch_rows], first))
        writer.finish(open_end_ns)
    return pq.read_table(folder / "ranges.parquet").to_pylist()


def expected(rows: list[Row], open_end: float) -> dict[int, int | None]:
    """The parent of every push/pop range by its definition; keys and values are row numbers of the source."""
    spans = {
        i: (thread, start, max(start, open_end if end is None else end), end is not None)
        for i, (thread, start, end, kind) in enumerate(rows)
        if kind == "pushpop" and thread is not None and start is not None
    }
    parents: dict[int, int | None] = {}
    for child, (thread, start, end, closed) in spans.items():
        best = None
        for other, (its_thread, its_start, its_end, its_closed) in spans.items():
            if other == child or its_thread != thread or its_start > start or its_end < end:
                continue
            if (its_start, its_end) == (start, end) and (its_closed, other) > (closed, child):
                continue  # equal ones: the open one, then the earlier one is the parent
            cost = its_end - its_start
            # Of equally short ones the latest to start, then the innermost of equal ones.
            key = (cost, -its_start, not its_closed, -other)
            if best is None or key < best[0]:
                best = (key, other)
        parents[child] = None if best is None else best[1]
    return parents


def check(rows: list[Row], written: list[dict], open_end: float) -> None:
    source = [r["color"] for r in written]
    assert sorted(source) == list(range(len(rows)))
    wanted = expected(rows, open_end)
    found = {r["color"]: None if r["parent"] is None else source[r["parent"]] for r in written}
    assert {i: found[i] for i in wanted} == wanted
    depths = {r["color"]: r["depth"] for r in written}
    for i in range(len(rows)):
        if i in wanted:
            parent = wanted[i]
            assert depths[i] == (0 if parent is None else depths[parent] + 1)
        else:
            assert (depths[i], found[i]) == (None, None)


times = st.integers(-3, 12)
rows_strategy = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, None]),
        st.one_of(times, st.integers(0, 6), st.just(None) if False else times),
        st.one_of(times, times, times, st.none()),
        st.sampled_from(["pushpop", "pushpop", "pushpop", "startend"]),
    ),
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=cases(100, 300), deadline=None)
@given(rows=rows_strategy, end=st.sampled_from([None, 0, 13, 40]), batch_rows=st.integers(1, 40), tiny=st.booleans())
def test_any_ranges(rows, end, batch_rows, tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("r")
    written = write(rows, folder, end, batch_rows, 1 if tiny else 1 << 20)
    latest = max([t for r in rows for t in r[1:3] if t is not None], default=0)
    check(rows, written, float("inf") if end is None else max(end, latest))
    assert not list((folder / "spill").glob("*"))
