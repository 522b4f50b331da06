"""Tables written sorted, with little memory, and no leftover files."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.thorough import cases

from alltrace.run import sorted_runs, sorting
from alltrace.run.writer import TableWriter
from alltrace.trace.schema import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from alltrace.trace.schema import Table

API = TABLES["api"]


def batch_of(table: Table, rows: list[dict[str, Any]], words: list[str] | None = None) -> pa.RecordBatch:
    """Rows as a batch; `words` is the dictionary of the enum columns, by default one made of what occurs."""
    arrays = []
    for field in table.arrow_schema():
        values = [r.get(field.name) for r in rows]
        if not pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values, field.type))
        elif words is None:
            arrays.append(pa.array(values, pa.string()).dictionary_encode().cast(field.type))
        else:
            codes = [None if v is None else words.index(v) for v in values]
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(words, pa.string())))
    return pa.RecordBatch.from_arrays(arrays, schema=table.arrow_schema())


def write(table: Table, rows: list[dict[str, Any]], folder: Path, batch_rows: int = 100, memory_bytes: int = 1 << 24):
    """Write rows; what the file then holds, and the statistics."""
    with TableWriter(table, folder / "t.parquet", folder / "spill", memory_bytes) as out:
        for first in range(0, len(rows), batch_rows):
            out.append(batch_of(table, rows[first : first + batch_rows]))
        stats = out.finish()
    assert not list((folder / "spill").glob("*"))
    assert stats.bytes == (folder / "t.parquet").stat().st_size
    return pq.read_table(folder / "t.parquet").to_pylist(), stats


def in_order(table: Table, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    full = [{c: r.get(c) for c in table.column_names} for r in rows]
    return sorted(full, key=lambda r: [(r[k] is None, r[k] or 0) for k in table.sort_keys])


small = st.one_of(st.integers(0, 3), st.none())
words = st.sampled_from(["compute", "collective", "p2p", None])
kernel_rows = st.fixed_dictionaries(
    {
        "start": st.one_of(st.integers(-3, 8), st.integers(-(2**63), 2**63 - 1), st.none()),
        "process": small,
        "device": small,
        "stream": st.one_of(small, st.integers(-(2**63), 2**63 - 1)),
        "kind": words,
    }
)


def small_blocks(patch, most_runs):
    patch.setattr(sorting, "BLOCK_BYTES", 1)
    patch.setattr(sorting, "MIN_BLOCK_ROWS", 3)
    patch.setattr(sorting.TableSorter, "most_runs", most_runs)
    patch.setattr(sorted_runs, "_MERGED_RECORDS", 1)
    patch.setattr(sorted_runs, "_LEAST_RECORDS", 1)


@pytest.mark.slow
@settings(max_examples=cases(66, 200), deadline=None)
@given(
    rows=st.lists(kernel_rows, max_size=40),
    batch_rows=st.integers(1, 50),
    memory=st.sampled_from([1, 1500, 1 << 24]),
    wide=st.booleans(),
)
def test_any_rows_are_sorted_stably(rows, batch_rows, memory, wide, tmp_path_factory):
    rows = [{**r, "correlation": i} for i, r in enumerate(rows)]
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, 64 if wide else 2)
        found, stats = write(TABLES["kernels"], rows, tmp_path_factory.mktemp("w"), batch_rows, memory)
    assert found == in_order(TABLES["kernels"], rows)
    times = [r["start"] for r in rows if r["start"] is not None]
    assert (stats.rows, stats.first_start_ns, stats.last_end_ns) == (
        len(rows),
        min(times, default=None),
        max(times, default=None),
    )


def api_rows(count: int, seed: int = 1, shuffle: float = 0.0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        start = 1000 * i + rng.randrange(500)
        if rng.random() < shuffle:
            start -= rng.randrange(10**6)
        rows.append(
            {
                "start": start, "end": start + rng.randrange(900), "process": 0, "thread": rng.randrange(4),
                "correlation": i, "name": rng.randrange(20) * 7**20, "return_value": 0,
                "kind": rng.choice(["runtime", "driver"]),
            }
        )  # fmt: skip
    return rows


@pytest.mark.parametrize("shuffle", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("memory", [20_000, 1 << 24])
def test_many_rows(tmp_path, shuffle, memory, monkeypatch):
    monkeypatch.setattr(sorting, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(sorting.TableSorter, "most_runs", 8)
    rows = api_rows(5000, shuffle=shuffle)
    found, stats = write(API, rows, tmp_path, 333, memory)
    assert found == in_order(API, rows)
    assert (stats.rows, stats.first_start_ns) == (5000, min(r["start"] for r in rows))
    assert stats.last_end_ns == max(r["end"] for r in rows)


@pytest.mark.parametrize("fan_in", [2, 64])
def test_equal_keys_keep_their_order_over_blocks_and_runs(tmp_path, monkeypatch, fan_in):
    small_blocks(monkeypatch, fan_in)
    rows = [{"thread": i % 2, "start": 7, "correlation": i} for i in range(100)]
    found, _ = write(API, rows, tmp_path, 10, 1)
    assert [r["correlation"] for r in found] == [*range(0, 100, 2), *range(1, 100, 2)]


def test_each_batch_may_bring_its_own_dictionary(tmp_path):
    rows = api_rows(6)
    kinds = ["driver", "runtime", None, "driver", "runtime", "driver"]
    for row, kind in zip(rows, kinds, strict=True):
        row["kind"] = kind
    with TableWriter(API, tmp_path / "t.parquet", tmp_path) as out:
        out.append(batch_of(API, rows[:2], ["driver", "runtime"]))
        out.append(batch_of(API, rows[2:3]))
        out.append(batch_of(API, rows[3:5], ["runtime", "unused", "driver"]))
        out.append(batch_of(API, rows[5:], ["driver"]))
        out.finish()
    table = pq.read_table(tmp_path / "t.parquet", read_dictionary=["kind"])
    assert pa.types.is_dictionary(table.schema.field("kind").type)
    assert dict(zip(table["correlation"].to_pylist(), table["kind"].to_pylist(), strict=True)) == dict(enumerate(kinds))


def test_types_come_back_without_the_arrow_schema(tmp_path):
    for name in ("kernels", "ranges", "sched", "gpu_metrics", "names"):
        table = TABLES[name]
        _, stats = write(table, [{}, {}], tmp_path)
        assert stats.rows == 2
        enums = [c.name for c in table.columns if c.type == "enum"]
        found = pq.read_schema(tmp_path / "t.parquet")
        for field in table.arrow_schema():
            assert found.field(field.name).type == (pa.string() if field.name in enums else field.type)


def test_dictionaries_keep_their_order(tmp_path):
    rows = [{"id": i, "value": f"name {i}"} for i in (5, 3, 9, -4)]
    found, stats = write(TABLES["names"], rows, tmp_path, 2)
    assert found == rows
    assert (stats.first_start_ns, stats.last_end_ns) == (None, None)


def test_no_rows(tmp_path):
    found, stats = write(API, [], tmp_path)
    assert found == []
    assert (stats.rows, stats.first_start_ns, stats.last_end_ns) == (0, None, None)
    assert pq.read_schema(tmp_path / "t.parquet").names == list(API.column_names)


def numbers(count: int) -> pa.RecordBatch:
    index = np.arange(count)
    columns = {
        "start": index * 10, "end": index * 10 + 5, "process": np.zeros(count, np.int32),
        "thread": (index % 3).astype(np.int32), "correlation": index, "name": index % 7,
        "return_value": np.zeros(count, np.int32),
    }  # fmt: skip
    kind = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), ["runtime"])
    arrays = [kind if n == "kind" else pa.array(columns[n]) for n in API.column_names]
    return pa.RecordBatch.from_arrays(arrays, schema=API.arrow_schema())


def test_row_groups_can_be_skipped(tmp_path):
    count = 200_000
    path = tmp_path / "api.parquet"
    with TableWriter(API, path, tmp_path / "spill") as out:
        out.append(numbers(count))
        out.finish()
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    assert [g.num_rows for g in groups] == [65_536, 65_536, 65_536, 3_392]
    position = {API.column_names.index(n): n for n in ("thread", "start")}
    bounds = [
        {n: (g.column(i).statistics.min, g.column(i).statistics.max) for i, n in position.items()} for g in groups
    ]
    assert [b["thread"] for b in bounds] == [(0, 0), (0, 1), (1, 2), (2, 2)]
    assert bounds[3]["start"] == (20 + 30 * (66_666 - 3_392), 20 + 30 * 66_665)
    per_track = f"SELECT count(*), sum(start) FROM '{path}' WHERE thread = 2 AND start < 1000"
    assert duckdb.connect().execute(per_track).fetchone() == (33, sum(range(20, 1000, 30)))
    kept = pq.ParquetFile(path).metadata.row_group(0).column(API.column_names.index("start"))
    assert "DELTA_BINARY_PACKED" in kept.encodings


def test_each_column_has_the_codec_that_suits_it(tmp_path):
    with TableWriter(API, tmp_path / "api.parquet", tmp_path / "spill") as out:
        out.append(numbers(10_000))
        out.finish()
    group = pq.read_metadata(tmp_path / "api.parquet").row_group(0)
    facts = {API.column_names[n]: group.column(n) for n in range(group.num_columns)}
    packed = {n for n, f in facts.items() if f.compression == "UNCOMPRESSED"}
    assert packed == {"start", "end", "correlation"}  # differences
    assert facts["thread"].compression == "LZ4"  # repeats
    assert "RLE_DICTIONARY" in facts["thread"].encodings
    assert facts["kind"].compression == "SNAPPY"  # nothing
    for same in facts["process"], facts["return_value"]:  # without a dictionary, and a few bytes all the same
        assert (same.compression, "RLE_DICTIONARY" in same.encodings) == ("LZ4", False)
        assert same.total_compressed_size < 300 < 40_000 <= same.total_uncompressed_size
    assert {n for n, f in facts.items() if f.is_stats_set} == {"start", "end", "thread", "correlation"}


def test_small_files_stay_small(tmp_path):
    _, stats = write(API, api_rows(10), tmp_path)
    assert stats.bytes < 1800
    query = f"SELECT sum(correlation), min(kind) FROM '{tmp_path / 't.parquet'}'"
    assert duckdb.connect().execute(query).fetchone() == (45, "driver")


def test_abort_leaves_nothing(tmp_path):
    out = TableWriter(API, tmp_path / "t.parquet", tmp_path / "spill", 1)
    out.append(batch_of(API, api_rows(50)))
    assert len(list((tmp_path / "spill").glob("*"))) == 1
    out.abort()
    out.abort()
    assert [p.name for p in tmp_path.rglob("*")] == ["spill"]
    with pytest.raises(ValueError, match="closed"):
        out.append(batch_of(API, api_rows(1)))


def write_numbers(count: int, folder: Path, memory_bytes: int) -> None:
    with TableWriter(API, folder / "t.parquet", folder / "spill", memory_bytes) as out:
        out.append(numbers(count))
        out.finish()


def test_an_error_leaves_nothing(tmp_path, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    for count, memory in ((200_000, 1 << 26), (200_000, 1 << 20), (10, 1 << 20)):
        with pytest.raises(OSError, match="No space left"):
            write_numbers(count, tmp_path, memory)
        assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_other_columns_are_refused(tmp_path):
    out = TableWriter(API, tmp_path / "t.parquet", tmp_path)
    batch = batch_of(API, api_rows(1))
    with pytest.raises(ValueError, match=r"api: expected columns"):
        out.append(batch.select(["start", "end"]))
    wrong = batch.set_column(0, "start", pa.array([1.5]))
    with pytest.raises(ValueError, match=r"api\.start: expected int64, got double"):
        out.append(wrong)
    out.abort()
