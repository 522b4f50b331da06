"""Rows written ahead: whatever the order of the source, readers see the order of a plain sort."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.run.test_writer import batch_of, in_order
from tests.thorough import cases

from alltrace.run import sorting
from alltrace.run import track_row_groups as lanes
from alltrace.run.parquet import ORDER_KEY, row_group_order
from alltrace.run.writer import TableWriter
from alltrace.trace.schema import TABLES

API, KERNELS = TABLES["api"], TABLES["kernels"]
RANGES = TABLES["ranges"]


def written(table, rows, folder, memory, batch_rows=20):
    """Write rows; what readers see, and the file."""
    path = folder / "t.parquet"
    with TableWriter(table, path, folder / "spill", memory) as out:
        for first in range(0, len(rows), batch_rows):
            out.append(batch_of(table, rows[first : first + batch_rows]))
        stats = out.finish()
    assert stats.rows == len(rows)
    assert not list((folder / "spill").glob("*"))
    file = pq.ParquetFile(path)
    return file.read_row_groups(row_group_order(file.metadata)).to_pylist(), file


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(lanes, "MIN_ROWS", 4)
    monkeypatch.setattr(lanes, "HELD_BACK_ROWS", 2)
    monkeypatch.setattr(lanes, "ROW_GROUP_ROWS", 8)
    monkeypatch.setattr(sorting, "BLOCK_BYTES", 1)
    monkeypatch.setattr(sorting, "MIN_BLOCK_ROWS", 3)


busy = st.sampled_from([0] * 6 + [1] * 6 + [2, 3, None])


class Source:
    """How rows come: how late, and whether times are missing."""

    def __init__(self, seed, lateness, nulls):
        self.rng, self.lateness, self.nulls = random.Random(seed), lateness, nulls

    def maybe(self, time):
        return None if self.nulls and self.rng.random() < 0.1 else time

    def start(self, row, step):
        return self.maybe(row // 3 * step - self.rng.randrange(self.lateness + 1))


def rows_of(*track):
    """Tracks of rows, how they come, how much memory there is and how large batches are."""
    return given(
        tracks=st.lists(st.tuples(*track), max_size=150),
        source=st.builds(Source, st.integers(0, 2**32), st.sampled_from([0, 0, 1, 3, 40]), st.booleans()),
        memory=st.sampled_from([400, 2000, 6000, 1 << 20]),
        batch_rows=st.integers(1, 50),
    )


@settings(max_examples=cases(100, 300), deadline=None)
@rows_of(busy, busy, st.sampled_from([0] * 9 + [1, 2]))
def test_any_order_reads_as_a_plain_sort(tracks, source, memory, batch_rows, tmp_path_factory):
    rng, rows = source.rng, []
    for i, (device, stream, step) in enumerate(tracks):
        start = source.start(i, step)
        kind = rng.choice(["compute", "p2p", None])
        rows.append({"start": start, "process": 0, "device": device, "stream": stream, "correlation": i, "kind": kind})
    found, _ = written(KERNELS, rows, tmp_path_factory.mktemp("w"), memory, batch_rows)
    assert found == in_order(KERNELS, rows)


def calls(count, threads, late=()):
    return [
        {
            "start": 5 if i in late else 10 * i,
            "end": 10 * i + 9,
            "thread": i % threads,
            "correlation": i,
            "kind": "runtime",
        }
        for i in range(count)
    ]


def spills_of(monkeypatch):
    made = []
    add = sorting.TableSorter.add
    monkeypatch.setattr(sorting.TableSorter, "add", lambda self, rows: (made.append(rows.num_rows), add(self, rows)))
    return made


def test_tracks_in_order_never_wait_on_disk(tmp_path, monkeypatch):
    made = spills_of(monkeypatch)
    rows = calls(600, 2)
    found, file = written(API, rows, tmp_path, 6000)
    assert found == in_order(API, rows)
    assert made == []
    order = row_group_order(file.metadata)
    assert order != sorted(order)
    first_thread = [file.metadata.row_group(g).column(API.column_names.index("thread")).statistics.min for g in order]
    assert first_thread == sorted(first_thread)


def test_a_little_lateness_is_waited_for(tmp_path, monkeypatch):
    made = spills_of(monkeypatch)
    rows = calls(600, 1)
    for i in range(0, 600, 3):
        rows[i], rows[i + 1] = rows[i + 1], rows[i]
    found, _ = written(API, rows, tmp_path, 6000)
    assert found == in_order(API, rows)
    assert made == []


@pytest.mark.parametrize("late", [{300}, {599}, {200, 450, 590}])
def test_what_comes_late_is_merged_with_what_was_written(tmp_path, late, monkeypatch):
    made = spills_of(monkeypatch)
    rows = calls(600, 2, late)
    found, file = written(API, rows, tmp_path, 6000)
    assert found == in_order(API, rows)
    assert made
    assert ORDER_KEY not in (file.metadata.metadata or {})


def test_many_small_tracks_are_put_aside(tmp_path, monkeypatch):
    made = spills_of(monkeypatch)
    rows = calls(600, 200)
    found, _ = written(API, rows, tmp_path, 6000)
    assert found == in_order(API, rows)
    assert made


def test_busy_tracks_among_many_small_ones(tmp_path, monkeypatch):
    made = spills_of(monkeypatch)
    rows = calls(900, 3)
    for i, row in enumerate(rows):
        if i > 450 or not i % 3:
            row["thread"] = 7 * i % 101
    found, _ = written(API, rows, tmp_path, 6000)
    assert found == in_order(API, rows)
    assert made


def longest_first(rows):
    full = [{c: r.get(c) for c in RANGES.column_names} for r in rows]

    def key(row):
        start, end = row["start"], row["end"]
        longest = -(2**62) if end is None else -max(end, start or 0)
        return [*((row[c] is None, row[c] or 0) for c in RANGES.track), (start is None, start or 0), longest]

    return sorted(full, key=key)


@pytest.mark.slow
@settings(max_examples=cases(100, 300), deadline=None)
@rows_of(busy, st.sampled_from([0] * 5 + [1, 2]))
def test_ranges_of_one_start_have_the_longest_first(tracks, source, memory, batch_rows, tmp_path_factory):
    rows = []
    for i, (thread, step) in enumerate(tracks):
        start = source.start(i, step)
        end = source.maybe((start or 0) + source.rng.randrange(-1, 4))
        rows.append({"start": start, "end": end, "process": 0, "thread": thread, "name": i, "kind": "pushpop"})
    found, _ = written(RANGES, rows, tmp_path_factory.mktemp("w"), memory, batch_rows)
    for row in found:
        row["depth"] = row["parent"] = None  # see test_nesting
    assert found == longest_first(rows)


@pytest.mark.parametrize("order", ["[0, 1]", "[0]", "{", '"x"', "[0, 0, 1]", "[[]]", "null"])
def test_a_damaged_order_is_an_error(tmp_path, order):
    schema = pa.schema([("a", pa.int64())])
    with pq.ParquetWriter(tmp_path / "t.parquet", schema) as out:
        for i in range(3):
            out.write_table(pa.table([[i]], schema=schema))
        out.add_key_value_metadata({ORDER_KEY.decode(): order})
    with pytest.raises(pa.ArrowInvalid, match="order of its row groups"):
        row_group_order(pq.ParquetFile(tmp_path / "t.parquet").metadata)
