from __future__ import annotations

import re

import pyarrow as pa
import pytest

from alltrace.cli.text_table import TableForm, streamed_text, to_text
from alltrace.recipes.base import Answer
from alltrace.recipes.row_stream import RowStream

KERNELS = [f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x{n}x64_execute_kernel__5x_cublas" for n in (64, 128)]
TABLE = pa.table(
    {
        "name": KERNELS,
        "ranks": pa.array([[0, 1, 2, 3], [5]], pa.list_(pa.int32())),
        "hosts": pa.nulls(2, pa.string()),
        "start_ns": [1_234_567_890, 0],
        "lost_ns": [12_412_345, None],
        "lost_ns_per_step": [1_773_192, 46],
        "bytes": [3_200_000_000, 1],
        "share": [0.5, 0.25],
    }
)


def text(width=0, *, units=True):
    return to_text(Answer(TABLE, ()), TABLE, form=TableForm(width, units)).splitlines()


def parts(lines):
    """The names of the columns, joined where they are on several lines, and the lines below the rule."""
    rule = next(n for n, line in enumerate(lines) if line.startswith("-") and not set(line) - {"-", " "})
    spans = [match.span() for match in re.finditer("-+", lines[rule])]
    return ["".join(line[a:b].strip() for line in lines[:rule]) for a, b in spans], lines[rule + 1 :]


def test_times_and_sizes_have_units_and_heads_have_none():
    head, _, first, second = text()
    assert head.split() == ["name", "ranks", "hosts", "start", "lost", "lost_per_step", "bytes", "share"]
    assert first.split()[1:] == "0-3 1.234568 s 12.4 ms 1.77 ms 3.20 GB 0.5".split()
    assert second.split()[1:] == "5 0.000000 s 46 ns 1 bytes 0.25".split()


def test_plain_numbers_are_as_they_were():
    head, _, first, _ = text(units=False)
    assert "lost_ns_per_step" in head
    assert "1,234,567,890  12,412,345" in first


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_columns_are_dropped_before_names_cannot_be_told_apart(width):
    lines = text(width)
    assert max(map(len, lines)) <= width
    shown, (first, second, *below) = parts(lines)
    assert first.split()[0] != second.split()[0]
    left_out = " ".join(below)
    if width < 120:
        assert "columns that do not fit: " in left_out
        assert "hosts" in left_out, "a column without a value goes first"
    for name, read in (("ranks", "ranks"), ("start_ns", "start"), ("lost_ns", "lost"), ("bytes", "bytes"), ("share", "share")):
        assert (read in shown) != bool(re.search(rf"\b{name}\b", left_out)), "each column is shown or named"


def test_names_of_columns_are_folded_where_the_table_is_wider_than_the_terminal():
    table = pa.table({"rank": [1], "exposed_communication_percent": [12.5], "of_all": [10], "count": [3]})
    wide, narrow = (to_text(Answer(table, ()), table, form=TableForm(w)).splitlines() for w in (80, 40))
    assert wide[0].split() == table.column_names
    assert narrow[:3] == ["            exposed_", "      communication_  of_", "rank         percent  all  count"]
    assert parts(narrow)[0] == table.column_names


def test_a_table_that_fits_loses_nothing():
    assert "do not fit" not in "\n".join(text(200))
    assert KERNELS[0] in "\n".join(text(250))


@pytest.mark.parametrize("width", [0, 60, 200])
def test_rows_that_are_still_made_look_the_same(width):
    stream = RowStream((t for t in (TABLE.slice(0, 1), TABLE.slice(1))), TABLE.schema.empty_table())
    form = TableForm(width, units=True)
    lines = "".join(streamed_text(Answer(TABLE.slice(0, 0), ()), stream, form)).splitlines()
    expected = text(width)
    first = next(n for n, line in enumerate(expected) if line.startswith("-")) + 1
    names = slice(first, first + 2)  # of rows that come one after the other, names are cut alike
    lines[names] = [line[34:] for line in lines[names]]
    expected[names] = [line[34:] for line in expected[names]]
    assert lines == expected


def test_the_first_column_is_never_dropped():
    table = pa.table({"total_ns": [1], "name": ["x" * 90], "other": ["y" * 90]})
    lines = to_text(Answer(table, ()), table, form=TableForm(30)).splitlines()
    assert parts(lines)[0][0] == "total_ns"
    assert max(map(len, lines)) <= 30
