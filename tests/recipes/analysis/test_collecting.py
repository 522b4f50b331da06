"""The distribution of rows that come piece by piece is that of all rows at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from alltrace.recipes.analysis import collecting
from alltrace.recipes.analysis.collecting import Collector, Growing, in_pieces, whole_columns
from alltrace.recipes.analysis.distribution import COUNT, VALUE, collect


def pieces(values, names, kinds, sizes):
    """Tables of some rows each; every one has a dictionary of its own for `kind`."""
    at = 0
    for size in sizes:
        part = slice(at, at + size)
        at += size
        yield pa.table(
            {
                "name": pa.array(names[part], pa.int64()),
                "kind": pa.array(kinds[part], pa.string()).dictionary_encode(),
                "nothing": pa.nulls(len(values[part]), pa.int64()),
                VALUE: pa.array(values[part], pa.int64()),
            }
        )
    assert at == len(values)


KEYS = ("name", "kind", "nothing")


def plain_rows(table, keys=KEYS):
    """Key, value and count of each row, equal pairs added up, as a sorted list."""
    found = {}
    columns = [table.column(c).to_pylist() for c in (*keys, VALUE, COUNT)]
    for *pair, count in zip(*columns, strict=True):
        found[tuple(pair)] = found.get(tuple(pair), 0) + count
    return sorted(found.items(), key=repr)


def at_once(tables, keys=KEYS):
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in tables[0].schema]
    whole = pa.concat_tables([t.cast(pa.schema(fields)) for t in tables]).combine_chunks()
    return plain_rows(collect({k: whole.column(k) for k in keys}, whole.column(VALUE)), keys)


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 50), (1_000, 300_000), (2**32 - 60, 2**32 - 1), (0, 2**32 - 1), (5, 2**40), (-20, 20)],
    ids=["few", "many", "few at the end of 32 bits", "32 bits", "more than 32 bits", "below zero"],
)
def test_pieces_are_counted_as_one(low, high):
    random = np.random.default_rng(7)
    rows = 5_000
    values = random.integers(low, high, rows, endpoint=True)
    names = [None if n == 3 else int(n) for n in random.integers(0, 12, rows)]
    kinds = [None if k == 2 else "abc"[k] for k in random.integers(0, 3, rows)]
    tables = list(pieces(values, names, kinds, [1_000, 1, 0, 2_999, 1_000]))
    collector = Collector(KEYS)
    for table in tables:
        collector.add(table)
    found = collector.table()
    assert found.column_names == [*KEYS, VALUE, COUNT]
    assert sum(found.column(COUNT).to_pylist()) == rows
    assert plain_rows(found) == at_once(tables)


@pytest.mark.parametrize("high", [50, 100_000_000], ids=["a cell for each", "sorted"])
def test_pieces_of_ids_with_nulls_and_without_are_counted_as_one(high):
    random = np.random.default_rng(9)
    ids = random.integers(-(2**63), 2**63 - 1, 40)
    tables = []
    for nulls, top in ((0, high), (0.3, high), (0, 2**40), (0, 4 * high), (1, high), (0, high)):
        names = [None if random.random() < nulls else int(i) for i in random.choice(ids, 400)]
        values = random.integers(0, top, 400)
        tables.append(pa.table({"domain": pa.nulls(400, pa.int64()), "name": pa.array(names, pa.int64()), VALUE: values}))
    tables.append(pa.table({"domain": pa.array([5, 6], pa.int64()), "name": pa.array([None, None], pa.int64()), VALUE: [1, 2]}))
    collector = Collector(("domain", "name"))
    for table in tables:
        collector.add(table)
    assert plain_rows(collector.table(), ("domain", "name")) == at_once(tables, ("domain", "name"))


def test_of_one_key_null_is_a_value_like_any_other():
    table = pa.table({"name": pa.array([5, None, 5, None, 2], pa.int64()), VALUE: pa.array([1, 1, 1, 2, 1], pa.int64())})
    collector = Collector(("name",))
    collector.add(table)
    assert plain_rows(collector.table(), ("name",)) == [((2, 1), 1), ((5, 1), 2), ((None, 1), 1), ((None, 2), 1)]


def test_words_of_a_dictionary_that_no_row_has_are_no_keys():
    words = pa.DictionaryArray.from_arrays(pa.array([2, None, 2], pa.int32()), pa.array(["a", "b", "c", None]))
    collector = Collector(("kind",))
    collector.add(pa.table({"kind": words, VALUE: pa.array([7, 8, 7], pa.int64())}))
    assert plain_rows(collector.table(), ("kind",)) == [(("c", 7), 2), ((None, 8), 1)]


def test_very_many_keys_are_counted_apart(monkeypatch):
    monkeypatch.setattr(collecting, "_MOST_KEYS", 8)
    names = [*range(4), *range(100), 2, 2, 1]
    values = [3] * len(names)
    kinds = ["a"] * len(names)
    tables = list(pieces(values, names, kinds, [4, 100, 3]))
    for keys in (KEYS, ("name",)):
        collector = Collector(keys)
        for table in tables:
            collector.add(table)
        found = collector.table()
        assert plain_rows(found, keys) == at_once(tables, keys)
        twos = [n for n, name in zip(found.column(COUNT).to_pylist(), found.column("name").to_pylist(), strict=True) if name == 2]
        assert sum(twos) == 4


def test_nothing_is_an_empty_table():
    collector = Collector(KEYS)
    collector.add(next(pieces([], [], [], [0])))
    assert collector.table().num_rows == 0


def test_a_row_without_a_value_is_left_out():
    collector = Collector(("name",))
    collector.add(pa.table({"name": pa.array([1, 1, 2], pa.int64()), VALUE: pa.array([5, None, None], pa.int64())}))
    collector.add(pa.table({"name": pa.array([3], pa.int64()), VALUE: pa.array([None], pa.int64())}))
    assert plain_rows(collector.table(), ("name",)) == [((1, 5), 1)]


def test_a_rank_that_holds_tables_is_asked_for_a_whole_one():
    class Held:
        def table(self, name, columns):
            return (name, tuple(columns))

    assert list(in_pieces(Held(), "api", ["start"])) == [("api", ("start",))]


@pytest.mark.parametrize("foreseen", [0, 2, 3, 100])
def test_rows_are_added_whatever_was_foreseen(foreseen):
    growing = Growing(2, foreseen)
    for part in ([1], [], [2, 3], list(range(4, 40))):
        growing.add(np.array(part, np.int64), -np.array(part, np.int64))
    assert [c.tolist() for c in growing.columns()] == [list(range(1, 40)), list(range(-1, -40, -1))]


@pytest.mark.parametrize("rows", [0, 3, 10])
def test_whole_columns_of_tables_one_after_the_other(rows):
    class Read:
        record = type("Record", (), {"rows": {"kernels": rows}})()

        def batches(self, table, columns, rows, *, lengths):
            numbers = {"kernels": [[1, None], [3]], "copies": [[None, 5]]}[table]
            for part in numbers:
                yield pa.table({name: pa.array(part, pa.int32() if name == "process" else pa.int64()) for name in columns})

    start, process = whole_columns(Read(), ("kernels", "copies"), {"start": 0, "process": -1})
    assert start.tolist() == [1, 0, 3, 0, 5]
    assert process.tolist() == [1, -1, 3, -1, 5]
    assert process.dtype == np.int64
