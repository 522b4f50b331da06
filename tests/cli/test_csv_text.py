from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.tables import TABLE

from alltrace.cli import csv_text
from alltrace.cli.csv_text import to_csv


def test_csv_quotes_what_it_must_and_leaves_null_empty():
    assert to_csv(TABLE) == (
        "rank,name,time_ns,share,rate\n"
        "0,plain,0,0.5,0.2\n"
        '1,"a ""quoted"", name",1234567,,2.0\n'
        '2,"two\nlines\r",,,\n'
        "3,\x1b[31m\u202e,-5,,100.0\n"
        f"4,naïve 核,4611686018427387904,1e-9,{format(1e300, '.1f')}\n"
        "5,<img src=x onerror=alert(1)>,7,100,-0.0\n"
        "6,a|b*c,8,2,3.0\n"
        "7,,9,12345.678,4.0\n"
    )


@given(st.lists(st.text('ab,"\r\n') | st.none(), max_size=6), st.integers(0, 6))
def test_csv_reads_back_whatever_slice_of_texts_it_is_of(texts, first):
    table = pa.table({"n": pa.array(range(len(texts)), pa.int64()), "t": pa.array(texts, pa.string())}).slice(first)
    rows = list(csv.reader(io.StringIO(to_csv(table), newline="")))
    assert rows == [["n", "t"], *([str(n), texts[n] or ""] for n in range(first, len(texts)))]


def test_csv_of_many_rows_is_that_of_its_rows_in_their_order():
    count = 3 * csv_text._PIECE_ROWS + 5
    last = [1] * (count - 1) + [2]
    table = pa.table({"n": range(count), "same": [7] * count, "last": last, "no": pa.array([None] * count, pa.int32())})
    assert to_csv(table) == "n,same,last,no\n" + "".join(f"{n},7,{last[n]},\n" for n in range(count))


@pytest.mark.parametrize(
    ("cells", "alone", "beside"),
    [([5, 5], "5\n5\n", "5,-1\n5,-1\n"), ([5, None], '5\n""\n', "5,-1\n,-1\n"), ([5], "5\n", "5,-1\n")],
)
def test_csv_of_columns_of_one_number(cells, alone, beside):
    assert to_csv(pa.table({"a": cells})) == f"a\n{alone}"
    assert to_csv(pa.table({"a": cells, "b": [-1] * len(cells)})) == f"a,b\n{beside}"


def test_csv_without_rows_is_its_header():
    assert to_csv(TABLE.slice(0, 0)) == "rank,name,time_ns,share,rate\n"


def test_an_only_cell_that_is_empty_is_still_a_row():
    text = to_csv(pa.table({"name": ["a", None, ""]}))
    assert text == 'name\na\n""\n""\n'
    assert list(csv.reader(io.StringIO(text))) == [["name"], ["a"], [""], [""]]


@pytest.mark.parametrize("names", [["a,b", 'c"d', "e\nf", "g"], [""], ["", "x"], ["plain"]])
def test_the_header_is_quoted_as_cells_are(names):
    text = to_csv(pa.table([pa.array([], pa.int64())] * len(names), names=names))
    assert list(csv.reader(io.StringIO(text, newline=""))) == [names]
    assert text.count('"') % 2 == 0
