"""What is said of each way in which a page or a record can be broken."""

from __future__ import annotations

import os
from contextlib import closing

import pyarrow as pa
import pytest

from alltrace.readers.nsys.sqlite import open_sqlite
from alltrace.trace.errors import InputError
from alltrace.trace.nsys_payloads import EXPORT

SIZE = 512
IDS = {"id": pa.int64(), "value": pa.string()}


@pytest.fixture
def export(tmp_path, make):
    """StringIds with its root on page 2, leaves below it, and a last row that goes on in other pages."""
    rows = [(i, f"name {i:04}") for i in range(300)] + [(300, "long " * 300)]
    path = make(tmp_path / "a.sqlite", [("INSERT INTO StringIds VALUES (?, ?)", rows)], [f"page_size={SIZE}"])
    raw = path.read_bytes()
    assert raw[SIZE] == 5
    return path


@pytest.fixture
def broken(export):
    """Writes over some bytes, and gives what reading then says."""

    def said(page, at, value):
        raw = bytearray(export.read_bytes())
        begin = (page - 1) * SIZE + at
        raw[begin : begin + len(value)] = value
        export.write_bytes(raw)
        with closing(open_sqlite(export)) as source, pytest.raises(InputError) as error:
            list(source.batches("StringIds", IDS))
        assert str(error.value).startswith(f"{export}: table 'StringIds' is corrupt: ")
        assert str(error.value).endswith(f"; copy the file again, or export the report again with '{EXPORT}'")
        return str(error.value).removeprefix(f"{export}: table 'StringIds' is corrupt: ").split(";")[0]

    return said


def first_leaf(path):
    raw = path.read_bytes()
    at = SIZE + int.from_bytes(raw[SIZE + 12 : SIZE + 14], "big")
    return int.from_bytes(raw[at : at + 4], "big")


def last_leaf(path):
    raw = path.read_bytes()
    return int.from_bytes(raw[SIZE + 8 : SIZE + 12], "big")


def cell(path, page, number):
    """Where in its page a cell begins."""
    raw = path.read_bytes()
    at = (page - 1) * SIZE + 8 + 2 * number
    return int.from_bytes(raw[at : at + 2], "big")


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (8, b"\0\0\0\0", "page 2 points to a page that the file does not have"),
        (8, b"\0\0\0\1", "page 2 points to a page that the file does not have"),
        (8, b"\xff\xff\xff\xff", "page 2 points to a page that the file does not have"),
        (8, b"\0\0\0\2", "page 2 points to a page that is already in use"),
        (3, b"\xff\xff", "page 2 has more cells than it has room for"),
        (12, b"\0\1", "page 2 has a cell outside of the page"),
        (12, b"\x01\xfe", "page 2 has a cell outside of the page"),
        (0, b"\x0a", "page 2 is not the first page of a table"),
        (0, b"\x00", "page 2 is not the first page of a table"),
    ],
)
def test_broken_roots(broken, at, value, message):
    assert broken(2, at, value) == message


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"\x05", "is not a page of a table"),
        (0, b"\x00", "is not a page of a table"),
        (3, b"\x00\xf0", "has more cells than it has room for"),
        (8, b"\xff\xff", "has a cell outside of the page"),
        (8, b"\x00\x08", "has a cell outside of the page"),
        (8, b"\x01\xff", "has a cell outside of the page"),
    ],
)
def test_broken_leaves(export, broken, at, value, message):
    leaf = first_leaf(export)
    said = broken(leaf, at, value)
    # A leaf that says it is an inner page, as the first of its level, is taken for one
    assert said == f"page {leaf} {message}" or (value == b"\x05" and said.startswith(f"page {leaf} "))


def test_a_leaf_among_others_that_is_none(export, broken):
    leaf = last_leaf(export)
    assert broken(leaf, 0, b"\x05") == f"page {leaf} is not a page of a table"


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff", "has a record that is larger than SQLite allows"),
        (0, b"\x8f\xff\xff\xff\x7f", "has a record that is larger than SQLite allows"),
        (1, b"\x64", "has row numbers out of order"),
        (0, b"\x30", "has cells that overlap"),
        (0, b"\x7f", "has a cell that is larger than the page leaves room for"),
    ],
)
def test_broken_cells(export, broken, at, value, message):
    leaf = first_leaf(export)
    assert broken(leaf, cell(export, leaf, 5) + at, value) == f"page {leaf} {message}"


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (2, b"\x00", "has a record whose header is broken"),
        (2, b"\x7f", "has a record whose header is broken"),
        (4, b"\x0a", "has a record whose header is broken"),
        (4, b"\x80", "has a record whose header is broken"),
        (4, b"\x7e", "has a record whose values do not end where it ends"),
    ],
)
def test_broken_records(export, broken, at, value, message):
    # A cell: bytes of the record, row number, bytes of the record's header, type of id, type of value, value
    leaf = first_leaf(export)
    assert broken(leaf, cell(export, leaf, 5) + at, value) == f"row 5 {message}"


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (0, None),
        (1, None),
        (10**6, "goes on in page 1000000, which the file does not have"),
        (2, "goes on in page 2, which is already in use"),
    ],
)
def test_broken_long_rows(export, broken, page, message):
    leaf = last_leaf(export)
    raw = export.read_bytes()
    number = int.from_bytes(raw[(leaf - 1) * SIZE + 3 : (leaf - 1) * SIZE + 5], "big") - 1
    begin = cell(export, leaf, number)
    size = 1504  # the text's 1500 bytes, and a header: its length, a null, and a type of two bytes
    least = (SIZE - 12) * 32 // 255 - 23
    local = least + (size - least) % (SIZE - 4)
    local = local if local <= SIZE - 35 else least
    said = broken(leaf, begin + 4 + local, page.to_bytes(4, "big"))
    assert said == (f"a long row {message}" if message else f"page {leaf} points to a page that the file does not have")


def test_a_long_row_that_goes_in_circles(export, broken):
    raw = export.read_bytes()
    pages = [
        page for page in range(1, len(raw) // SIZE) if raw[page * SIZE + 4 : page * SIZE + 4 + 100].count(b"long") > 15
    ]
    assert len(pages) == 3
    first = next(page for page in pages if raw[page * SIZE : page * SIZE + 4] != bytes(4)) + 1
    assert broken(first, 0, first.to_bytes(4, "big")) == f"a long row goes on in page {first}, which is already in use"


def test_a_file_cut_short_while_it_is_read(export):
    with closing(open_sqlite(export)) as source:
        os.truncate(export, 4 * SIZE)
        with pytest.raises(InputError, match=r"page \d+ is past the end of the file"):
            source.count_about("StringIds")
        with pytest.raises(InputError, match=r"page \d+ is past the end of the file"):
            list(source.batches("StringIds", IDS))


def test_counts_come_from_the_heads_of_pages(export):
    leaf = last_leaf(export)
    raw = bytearray(export.read_bytes())
    with closing(open_sqlite(export)) as source:
        assert source.count_about("StringIds") == 301
    raw[(leaf - 1) * SIZE + 8 : leaf * SIZE] = bytes(SIZE - 8)  # what lies behind the head is not looked at
    export.write_bytes(raw)
    with closing(open_sqlite(export)) as source:
        assert source.count_about("StringIds") == 301
    raw[(leaf - 1) * SIZE] = 2
    export.write_bytes(raw)
    with (
        closing(open_sqlite(export)) as source,
        pytest.raises(InputError, match=f"page {leaf} is not a page of a table"),
    ):
        source.count_about("StringIds")


def test_a_page_holds_no_more_rows_than_have_room(tmp_path, make):
    nothings = [(None,)] * 84  # 6 bytes each, and 8 before them, fill a page
    path = make(tmp_path / "a.sqlite", ["CREATE TABLE t (a INT)", ("INSERT INTO t VALUES (?)", nothings)],
                [f"page_size={SIZE}"])  # fmt: skip
    raw = bytearray(path.read_bytes())
    with closing(open_sqlite(path)) as source:
        assert source.count_about("t") == 84
    at = raw.index(b"\x0d\0\0\0\x54")
    raw[at + 4] = 85
    path.write_bytes(raw)
    with closing(open_sqlite(path)) as source, pytest.raises(InputError, match="is not a page of a table"):
        source.count_about("t")


def test_who_wants_few_rows_at_a_time_gets_them_before_all_pages_are_read(export, broken):
    broken(last_leaf(export), 0, b"\x02")
    with closing(open_sqlite(export)) as source:
        first = next(source.batches("StringIds", IDS, 8))
    assert first.column("id").to_pylist() == list(range(8))
