"""Rows written by the compiled loop: what Python's own words for numbers and its reader of CSV say of them."""

from __future__ import annotations

import csv
import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.cli import csv_text
from alltrace.cli.csv_rows import Rows
from alltrace.cli.csv_text import csv_pieces, to_csv

INT64 = st.integers(-(2**63), 2**63 - 1)
WORDS = st.text('ab,"\r\n核é', max_size=40)
TYPES = {
    pa.int64(): INT64,
    pa.int8(): st.integers(-128, 127),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.string(): WORDS,
    pa.large_string(): WORDS,
    pa.dictionary(pa.int16(), pa.string()): st.sampled_from(["", "one", "a,b", 'in "quotes"', "longer than sixteen bytes of text"]),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(-1e6, 1e6),
}
POWERS = [10**k + d for k in range(19) for d in (-1, 0, 1)]
EDGES = [-(2**63), *(-n for n in POWERS), *POWERS, 2**63 - 1]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Some columns of all types in chunks of their own, dictionaries among them that differ from chunk to chunk."""
    rows = draw(st.integers(1, 12))
    cut = draw(st.integers(0, rows))
    columns = {}
    for number, kind in enumerate(draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=5))):
        cells = st.one_of(TYPES[kind], st.none()) if draw(st.booleans()) else TYPES[kind]
        values = draw(st.lists(cells, min_size=rows, max_size=rows))
        columns[f"c{number}"] = pa.chunked_array([pa.array(values[:cut], kind), pa.array(values[cut:], kind)], kind)
    return pa.table(columns)


@given(tables(), st.data())
def test_rows_are_what_arrows_kernels_write(table: pa.Table, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, table.num_rows - 1))
    count = data.draw(st.integers(1, table.num_rows - first))
    # of an only column empty cells are quoted, which Arrow's way sees to
    table = table.append_column("last", pa.array(range(table.num_rows)))
    assert Rows(table).text(first, count) == csv_text._by_arrow(table.slice(first, count))


@given(st.lists(st.tuples(INT64 | st.none(), WORDS | st.none()), min_size=1, max_size=30))
def test_rows_are_read_back(rows: list[tuple[int | None, str | None]]) -> None:
    table = pa.table({"n": pa.array([r[0] for r in rows], pa.int64()), "t": pa.array([r[1] for r in rows], pa.string())})
    text = Rows(table).text(0, len(rows))
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["" if n is None else str(n), t or ""] for n, t in rows]


@pytest.mark.parametrize("nulls", [False, True])
def test_numbers_of_every_length(nulls: bool) -> None:
    values = [*EDGES, None] if nulls else EDGES
    table = pa.table({"a": pa.array(values, pa.int64()), "b": pa.array(values[::-1], pa.int64())})
    words = ["" if v is None else str(v) for v in values]
    assert Rows(table).text(0, len(values)) == "".join(f"{a},{b}\n" for a, b in zip(words, words[::-1], strict=True))


def test_texts_longer_than_a_register_and_none() -> None:
    texts = ["x" * n for n in range(70)]
    table = pa.table({"t": texts, "d": pa.array(texts).dictionary_encode(), "n": pa.nulls(70, pa.string())})
    assert Rows(table).text(3, 60) == "".join(f"{t},{t},\n" for t in texts[3:63])


def test_a_dictionary_that_holds_nothing_or_null() -> None:
    nothing = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
    null = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array([None, "x"]))
    assert Rows(pa.table({"a": nothing, "b": null})).text(0, 2) == ",\n,x\n"


def test_many_rows_come_in_order_from_several_threads() -> None:
    count = 5 * csv_text._PIECE_ROWS + 3
    numbers = np.arange(count)
    names = pa.array(["even", "odd, that is"]).take(pa.array(numbers % 2)).dictionary_encode()
    table = pa.table({"n": numbers, "name": names, "share": numbers / 4, "text": pa.array([f"t{n}" for n in range(count)])})
    expected = [[str(n), "odd, that is" if n % 2 else "even", f"{n / 4:g}" if n < 10 else None, f"t{n}"] for n in range(count)]
    rows = list(csv.reader(io.StringIO(to_csv(table))))[1:]
    assert [[r[0], r[1], r[3]] for r in rows] == [[e[0], e[1], e[3]] for e in expected]
    assert [r[2] for r in rows[:10]] == [e[2] for e in expected[:10]]
    assert sum(piece.count("\n") for piece in csv_pieces(table)) == count + 1
