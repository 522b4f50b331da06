from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alltrace.run import parquet
from alltrace.trace.errors import InputError

TABLE = pa.table({"a": [1, 2, 3, 4], "b": ["x", "y", "x", None], "c": [0.5, None, 1.5, 2.5]})


@pytest.fixture
def path(tmp_path):
    """Three row groups, which lie in another order than their rows."""
    file = tmp_path / "t.parquet"
    with pq.ParquetWriter(str(file), TABLE.schema) as writer:
        for first, count in ((2, 1), (0, 2), (3, 1)):
            writer.write_table(TABLE.slice(first, count))
        writer.add_key_value_metadata({parquet.ORDER_KEY.decode(): "[1, 0, 2]"})
    return file


def test_columns_are_read_in_the_order_of_the_rows(path):
    assert parquet.read_parquet(path, ["a", "c"]).to_pydict() == TABLE.select(["a", "c"]).to_pydict()
    words = parquet.read_parquet(path, ["b"], ["b"]).column("b")
    assert words.type == pa.dictionary(pa.int32(), pa.string())
    assert words.to_pylist() == ["x", "y", "x", None]
    assert words.chunk(0).dictionary.equals(words.chunk(1).dictionary)


def test_a_file_that_cannot_be_read_is_a_sentence(path, tmp_path):
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(path.read_bytes()[:-20])
    for bad in (cut, tmp_path / "none.parquet"):
        with pytest.raises(InputError, match=r"it cannot be read .*import the reports again"):
            parquet.read_parquet(bad, ["a"])


def test_a_type_that_parquet_lacks_is_an_error(tmp_path):
    with pytest.raises(pa.ArrowException):
        parquet.write_parquet(pa.table({"x": pa.nulls(1, pa.month_day_nano_interval())}), tmp_path / "none")


def test_a_table_written_at_once_is_the_file_of_one_written_in_pieces(tmp_path, monkeypatch):
    for name, most_bytes in (("once", 1 << 22), ("pieces", 0)):
        monkeypatch.setattr(parquet, "_WRITE_WHOLE_BYTES", most_bytes)
        parquet.write_row_group(TABLE, tmp_path / name, compression="lz4", store_schema=False)
    assert (tmp_path / "once").read_bytes() == (tmp_path / "pieces").read_bytes()
    assert parquet.read_parquet(tmp_path / "once", TABLE.column_names).equals(TABLE)


def test_row_groups_come_one_by_one_in_the_order_of_the_rows(path, tmp_path):
    found = [t.to_pydict() for t in parquet.read_row_groups(path, ["c", "b", "not there"], ["b"])]
    assert [sorted(t.items()) for t in found] == [
        [("b", ["x", "y"]), ("c", [0.5, None])],
        [("b", ["x"]), ("c", [1.5])],
        [("b", [None]), ("c", [2.5])],
    ]
    with pytest.raises(InputError, match="it cannot be read"):
        next(parquet.read_row_groups(tmp_path / "none.parquet", ["a"]))


@pytest.mark.parametrize("wanted", [["c", "a", "b"], ["b"], ["b", "c"]])
def test_columns_of_nothing_but_nulls_are_as_any_other(tmp_path, wanted):
    table = pa.table(
        {"a": pa.array([1, 2, 3]), "b": pa.nulls(3, pa.string()), "c": pa.nulls(3, pa.int64()), "d": [None, None, 1]}
    )
    file = tmp_path / "t.parquet"
    pq.write_table(table, file, row_group_size=2)
    found = parquet.read_parquet(file, wanted, ["b"])
    assert found.column_names == wanted
    assert found.to_pydict() == table.select(wanted).to_pydict()
    assert found.schema.field("b").type == pa.dictionary(pa.int32(), pa.string())
    assert [t.num_rows for t in parquet.read_row_groups(file, wanted, ["b"])] == [2, 1]
    # null in one row group, not in the other
    assert parquet.read_parquet(file, ["d", "c"]).to_pydict() == {"d": [None, None, 1], "c": [None] * 3}


@pytest.mark.parametrize("told", [True, False])
def test_rows_with_a_value_are_read_out_of_the_groups_that_may_have_it(tmp_path, told):
    file = tmp_path / "t.parquet"
    table = pa.table({"rank": [0, 0, 1, 1, 1, 3, 3, None], "word": list("abcabcab")})
    pq.write_table(table, file, 2, write_statistics=told)
    of_file = file.stat().st_size, file.stat().st_mtime_ns
    for value, words in (0, "ab"), (1, "cab"), (2, ""), (3, "ca"), (4, ""):
        found = parquet.read_rows(file, ["word", "rank"], ("rank", value), ["word"])
        assert found.column_names == ["word", "rank"]
        assert "".join(found.column("word").to_pylist()) == words
        assert found.column("rank").to_pylist() == [value] * len(words)
        groups = parquet._facts(file, "rank", *of_file).groups(value)
        assert groups == ({0: [0], 1: [1, 2], 2: [2], 3: [2, 3], 4: []}[value] if told else [0, 1, 2, 3])


def test_rows_are_those_of_the_file_as_it_is_now(tmp_path):
    file = tmp_path / "t.parquet"
    for words in ("ab", "cdef"):
        pq.write_table(pa.table({"rank": range(len(words)), "word": list(words)}), file, 2)
        found = [
            parquet.read_rows(file, ["rank", "word"], ("rank", n)).column("word").to_pylist() for n in range(len(words))
        ]
        assert found == [[w] for w in words]


def test_row_groups_that_ranks_share_are_decoded_once(tmp_path, monkeypatch):
    file, opened = tmp_path / "t.parquet", []
    pq.write_table(pa.table({"rank": [0, 1, 1, 2, 2, 2, 3, 3], "word": list("abcdefgh")}), file, 4)

    class Opened(pq.ParquetFile):
        def read_row_groups(self, groups, **how):
            opened.append(groups)
            return super().read_row_groups(groups, **how)

    monkeypatch.setattr(pq, "ParquetFile", Opened)
    words = [
        "".join(parquet.read_rows(file, ["rank", "word"], ("rank", n)).column("word").to_pylist()) for n in range(4)
    ]
    assert words == ["a", "bc", "def", "gh"]
    assert opened == [[0], [0, 1], [1]]
    opened.clear()
    monkeypatch.setattr(parquet, "_FEW_ROWS", 0)  # what is long is not held in memory
    for _ in range(2):
        assert parquet.read_rows(file, ["rank", "word"], ("rank", 2)).num_rows == 3
    assert opened == [[0, 1], [0, 1]]


@pytest.mark.parametrize("whole", [True, False])
def test_a_file_is_read_at_once_or_column_by_column(tmp_path, monkeypatch, whole):
    monkeypatch.setattr(parquet, "_READ_WHOLE_BYTES", (1 << 20) if whole else 0)
    pq.write_table(TABLE, tmp_path / "t.parquet")
    assert parquet.read_parquet(tmp_path / "t.parquet", TABLE.column_names).to_pydict() == TABLE.to_pydict()


def test_rows_of_an_empty_file(tmp_path):
    pq.write_table(TABLE.slice(0, 0), tmp_path / "t.parquet")
    assert parquet.read_rows(tmp_path / "t.parquet", ["a"], ("a", 1)).num_rows == 0
    (tmp_path / "u.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read"):
        parquet.read_rows(tmp_path / "u.parquet", ["a"], ("a", 1))
