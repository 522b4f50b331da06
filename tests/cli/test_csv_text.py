"""CSV of tables, against Python's own writer and reader of CSV."""

import csv
import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.tables import TABLE

from alltrace.cli import csv_text
from alltrace.cli.csv_text import csv_rows, to_csv, without_formulas

INT64 = st.integers(-(2**63), 2**63 - 1)
WORDS = st.text('ab,"\r\n核é', max_size=40)
TYPES = {
    pa.int64(): INT64,
    pa.int8(): st.integers(-128, 127),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.string(): WORDS,
    pa.large_string(): WORDS,
    pa.dictionary(pa.int16(), pa.string()): st.sampled_from(
        ["", "one", "a,b", 'in "quotes"', "longer than sixteen bytes of text"]
    ),
    pa.bool_(): st.booleans(),
    pa.float64(): st.integers(-(2**20), 2**20).map(lambda n: n / 4),
    pa.null(): st.none(),
}


def line_of(cells):
    """The line that Python's module writes, which quotes a CR only where line ends have one."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n") + "\n"


def shown(value):
    """What a cell shows of a value."""
    return str(value).lower() if isinstance(value, bool) else f"{value:.15g}" if isinstance(value, float) else value


@st.composite
def tables(draw):
    """Some columns of all types in chunks of their own, dictionaries among them that differ from chunk to chunk."""
    rows = draw(st.integers(0, 12))
    cut = draw(st.integers(0, rows))
    columns = {}
    for number, kind in enumerate(draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=5))):
        cells = st.one_of(TYPES[kind], st.none()) if draw(st.booleans()) else TYPES[kind]
        values = draw(st.lists(cells, min_size=rows, max_size=rows))
        columns[f"c{number}"] = pa.chunked_array([pa.array(values[:cut], kind), pa.array(values[cut:], kind)], kind)
    return pa.table(columns)


@given(tables(), st.integers(0, 12), st.sampled_from([1, 3, 16_384]))
def test_csv_is_what_pythons_module_writes(table, first, piece):
    table = table.slice(first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_text, "_PIECE_ROWS", piece)
        found = to_csv(table)
    rows = (line_of([shown(v) for v in row.values()]) for row in table.to_pylist())
    assert found == "".join([line_of(table.column_names), *rows])


def test_texts_dictionaries_and_lists_are_quoted():
    texts = ["x" * n for n in range(70)]
    table = pa.table({"t": texts, "d": pa.array(texts).dictionary_encode(), "n": pa.nulls(70, pa.string())})
    assert to_csv(table.slice(3, 60)) == "t,d,n\n" + "".join(f"{t},{t},\n" for t in texts[3:63])
    nothing = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
    null = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array([None, "x"]))
    assert to_csv(pa.table({"a": nothing, "b": null})) == "a,b\n,\n,x\n"
    numbers = pa.array([7, None, 7], pa.int64()).dictionary_encode()
    assert to_csv(pa.table({"a": numbers})) == 'a\n7\n""\n7\n'
    table = pa.table({"l": [["a", "b"], []], "s": [{"x": 1}, None], "b": [b"\x01\xff", None]})
    assert to_csv(table) == 'l,s,b\n"a, b","{""x"": 1}",01ff\n,,\n'
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


def test_many_rows_stay_in_order():
    count = 3 * csv_text._PIECE_ROWS + 5
    last = [1] * (count - 1) + [2]
    table = pa.table({"n": range(count), "same": [7] * count, "last": last, "no": pa.array([None] * count, pa.int32())})
    assert to_csv(table) == "n,same,last,no\n" + "".join(f"{n},7,{last[n]},\n" for n in range(count))
    count = 5 * csv_text._PIECE_ROWS + 3
    numbers = np.arange(count)
    names = pa.array(["even", "odd, that is"]).take(pa.array(numbers % 2)).dictionary_encode()
    table = pa.table(
        {"n": numbers, "name": names, "share": numbers / 4, "text": pa.array([f"t{n}" for n in range(count)])}
    )
    expected = [
        [str(n), "odd, that is" if n % 2 else "even", f"{n / 4:g}" if n < 10 else None, f"t{n}"] for n in range(count)
    ]
    rows = list(csv.reader(io.StringIO(to_csv(table))))[1:]
    assert [[r[0], r[1], r[3]] for r in rows] == [[e[0], e[1], e[3]] for e in expected]
    assert [r[2] for r in rows[:10]] == [e[2] for e in expected[:10]]
    assert sum(piece.count("\n") for piece in csv_rows(table)) == count


@pytest.mark.parametrize(
    ("cells", "alone", "beside"),
    [([5, 5], "5\n5\n", "5,-1\n5,-1\n"), ([5, None], '5\n""\n', "5,-1\n,-1\n"), ([5], "5\n", "5,-1\n")],
)
def test_csv_of_columns_of_one_number(cells, alone, beside):
    assert to_csv(pa.table({"a": cells})) == f"a\n{alone}"
    assert to_csv(pa.table({"a": cells, "b": [-1] * len(cells)})) == f"a,b\n{beside}"


def test_a_table_without_rows_or_with_an_only_empty_cell():
    assert to_csv(TABLE.slice(0, 0)) == "rank,name,time_ns,share,rate\n"
    text = to_csv(pa.table({"name": ["a", None, ""]}))
    assert text == 'name\na\n""\n""\n'
    assert list(csv.reader(io.StringIO(text))) == [["name"], ["a"], [""], [""]]


@pytest.mark.parametrize("names", [["a,b", 'c"d', "e\nf", "g"], [""], ["", "x"], ["plain"]])
def test_the_header_is_quoted_as_cells_are(names):
    text = to_csv(pa.table([pa.array([], pa.int64())] * len(names), names=names))
    assert list(csv.reader(io.StringIO(text, newline=""))) == [names]
    assert text.count('"') % 2 == 0


HALVES = st.integers(-10_000, 10_000).map(lambda n: n / 1000 + 0.0005)


@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6), HALVES)), st.integers(0, 3))
def test_halves_are_rounded_as_the_table_rounds_them(values, decimals):
    field = pa.field("a", pa.float64(), metadata={"decimals": str(decimals)})
    found = list(csv.reader(io.StringIO(to_csv(pa.table([pa.array(values, pa.float64())], pa.schema([field]))))))
    wanted = ["" if v is None else f"{v:z.{decimals}f}" for v in values]
    assert [row[0].removeprefix("-") if row[0] and not float(row[0]) else row[0] for row in found[1:]] == wanted


def test_texts_of_safe_csv_are_no_formulas():
    texts = ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "a=1", "'=1", "", None, "two\n=3"]
    coded = pa.array(texts).dictionary_encode()
    table = pa.table(
        {"=a": texts, "d": pa.chunked_array([coded, coded.slice(2, 9)][:1]), "n": pa.array([-1.5] * len(texts))}
    )
    found = list(csv.reader(io.StringIO(to_csv(without_formulas(table)), newline="")))
    assert found[0] == ["'=a", "d", "n"]
    wanted = ["'=1+1", "'+1", "'-1", "'@x", "'\t=1", "'\r=1", "a=1", "'=1", "", "", "two\n=3"]
    assert [row[0] for row in found[1:]] == [row[1] for row in found[1:]] == wanted
    assert {row[2] for row in found[1:]} == {"-1.5"}  # numbers are as they were
