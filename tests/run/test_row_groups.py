"""Columns without nulls are declared so, and a null that arrives late is still written."""

from __future__ import annotations

from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alltrace.run import parquet, row_groups
from alltrace.run.parquet import read_parquet, read_row_groups
from alltrace.run.writer import TableWriter
from alltrace.trace.schema import TABLES

KERNELS = TABLES["kernels"]
COLUMNS = ["start", "end", "device", "stream", "correlation", "kind"]


def batch(rows):
    arrays = [
        pa.array([r.get(f.name) for r in rows], pa.string() if f.name == "kind" else f.type)
        for f in KERNELS.arrow_schema()
    ]
    arrays = [
        a.dictionary_encode() if f.name == "kind" else a for f, a in zip(KERNELS.arrow_schema(), arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=KERNELS.column_names)


def write(path, rows, memory_bytes=1 << 24, batch_rows=7):
    with TableWriter(KERNELS, path, path.parent / "spill", memory_bytes) as writer:
        for first in range(0, len(rows), batch_rows):
            writer.append(batch(rows[first : first + batch_rows]))
        return writer.finish()


def complete(path):
    schema = pq.read_schema(path)
    return {name for name in COLUMNS if not schema.field(name).nullable}


@pytest.fixture
def small_groups(monkeypatch):
    monkeypatch.setattr(row_groups, "ROW_GROUP_ROWS", 8)
    monkeypatch.setattr(row_groups, "_SMALL_ROWS", 2)


def row(i, **more):
    return {"start": 10 * i, "end": 10 * i + 5, "device": 0, "stream": 7, "correlation": i, "kind": "compute", **more}


@pytest.mark.usefixtures("small_groups")
def test_columns_without_nulls_say_so(tmp_path):
    rows = [row(i, device=None if i == 3 else 0) for i in range(30)]
    write(tmp_path / "t.parquet", rows)
    assert complete(tmp_path / "t.parquet") == set(COLUMNS) - {"device"}
    found = read_parquet(tmp_path / "t.parquet", COLUMNS, ["kind"])
    assert all(field.nullable for field in found.schema)
    assert found.column("correlation").to_pylist() == [*range(3), *range(4, 30), 3]
    assert all(f.nullable for part in read_row_groups(tmp_path / "t.parquet", COLUMNS, ["kind"]) for f in part.schema)


def test_small_tables_say_nothing(tmp_path):
    write(tmp_path / "t.parquet", [row(i) for i in range(30)])
    assert complete(tmp_path / "t.parquet") == set()


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize(
    ("late", "left"),
    [
        ({20: ["correlation"]}, set(COLUMNS) - {"correlation"}),
        ({20: ["correlation", "kind"]}, set(COLUMNS) - {"correlation", "kind"}),
        ({20: ["correlation"], 40: ["end"]}, set()),  # the second time room is made everywhere
        ({20: ["correlation"], 40: ["end"], 50: ["kind"]}, set()),
        ({20: ["correlation"], 50: ["correlation"]}, set(COLUMNS) - {"correlation"}),
    ],
)
def test_a_null_that_comes_late_is_written(tmp_path, late, left):
    rows = [row(i, **dict.fromkeys(late.get(i, []))) for i in range(60)]
    stats = write(tmp_path / "t.parquet", rows)
    found = pq.read_table(tmp_path / "t.parquet", columns=COLUMNS).to_pylist()
    assert found == rows
    assert complete(tmp_path / "t.parquet") == left
    assert stats.rows == 60
    assert stats.bytes == (tmp_path / "t.parquet").stat().st_size
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["t.parquet"]


rows_with_nulls = st.lists(
    st.fixed_dictionaries(
        {
            "start": st.integers(0, 50),
            "device": st.sampled_from([0, 0, 0, 1, None]),
            "stream": st.sampled_from([7, 7, 7, 13, None]),
            "kind": st.sampled_from(["compute", "compute", "collective", None]),
            "end": st.one_of(st.integers(0, 60), st.none()),
        }
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(rows=rows_with_nulls, memory=st.sampled_from([1, 3000, 1 << 24]), ahead=st.booleans())
def test_any_rows_come_back(rows, memory, ahead, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    rows = [{**r, "correlation": i} for i, r in enumerate(rows)]
    with (
        mock.patch.object(row_groups, "ROW_GROUP_ROWS", 8),
        mock.patch.object(row_groups, "_SMALL_ROWS", 2),
        mock.patch("alltrace.run.track_row_groups.MIN_ROWS", 6 if ahead else 8192),
        mock.patch("alltrace.run.track_row_groups.HELD_BACK_ROWS", 2),
    ):
        write(folder / "t.parquet", rows, memory)
    found = read_parquet(folder / "t.parquet", COLUMNS, ["kind"]).to_pylist()
    keys = [tuple((r[k] is None, r[k] or 0) for k in ("device", "stream", "start")) for r in found]
    assert keys == sorted(keys)
    assert sorted(found, key=lambda r: r["correlation"]) == [{c: r[c] for c in COLUMNS} for r in rows]


class Pyarrow:
    """PyArrow with or without LZ4."""

    def __init__(self, lz4):
        self.Codec = type("Codec", (), {"is_available": staticmethod(lambda name: name != "lz4" or lz4)})

    def __getattr__(self, name):
        return getattr(pa, name)


@pytest.mark.parametrize(("lz4", "expected"), [(True, "LZ4"), (False, "ZSTD")])
def test_tables_are_lz4_where_there_is_one(tmp_path, monkeypatch, lz4, expected):
    for module in (row_groups, parquet):
        monkeypatch.setattr(module, "pa", Pyarrow(lz4))
    count = row_groups._SMALL_ROWS + 1
    write(
        tmp_path / "a.parquet",
        [{"start": n, "end": n + 1, "device": n % 7, "kind": "compute"} for n in range(count)],
        batch_rows=500,
    )
    group = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    codecs = {group.column(n).path_in_schema: group.column(n).compression for n in range(group.num_columns)}
    assert (codecs["device"], codecs["start"]) == (expected, "UNCOMPRESSED")
    assert sorted(read_parquet(tmp_path / "a.parquet", ["start"]).column(0).to_pylist()) == list(range(count))
    write(tmp_path / "b.parquet", [{"start": n, "end": n + 1, "device": n % 7} for n in range(100)])
    group = pq.ParquetFile(tmp_path / "b.parquet").metadata.row_group(0)
    assert {group.column(n).compression for n in range(group.num_columns)} == {expected}
