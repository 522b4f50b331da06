"""The loops over SQLite's pages and records, on bytes written here by the rules of the file format."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.thorough import cases
from tests.together import together

from alltrace.core import sqlite as core

SIZE = 512  # of a page
MOST = 2**63 - 1  # a row number
WIDTHS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes of an integer, by its serial type
KINDS = {core.INT8: np.int8, core.INT16: np.int16, core.INT32: np.int32, core.INT64: np.int64, core.FLOAT64: np.float64}
EDGES = [sign * 2**bits + by for bits in (0, 7, 15, 23, 31, 47, 62, 63) for sign in (1, -1) for by in (-1, 0, 1)]
INT64S = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([e for e in EDGES if -(2**63) <= e < 2**63]))


def varint(value, least=1):
    """A varint, in at least so many bytes."""
    value &= 2**64 - 1
    if value >= 2**56 or least == 9:
        groups = [value >> (8 + 7 * i) & 0x7F for i in range(7, -1, -1)]
        return bytes([0x80 | group for group in groups] + [value & 0xFF])
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.insert(0, value & 0x7F)
    groups = [0] * (least - len(groups)) + groups
    return bytes([0x80 | group for group in groups[:-1]] + groups[-1:])


def record(*values, least=1):
    """A record of (serial type, bytes) for each field."""
    types = b"".join(varint(serial, least) for serial, _ in values)
    header = varint(len(types) + 1 if len(types) < 127 else len(types) + 2)
    return header + types + b"".join(value for _, value in values)


def field(value):
    """The serial type and the bytes of a value as SQLite writes it, except that constants have a byte."""
    if value is None:
        return 0, b""
    if isinstance(value, float):
        return 7, struct.pack(">d", value)
    if isinstance(value, bytes):
        return 12 + 2 * len(value), value
    if isinstance(value, str):
        return 13 + 2 * len(value.encode()), value.encode()
    serial = next(s for s, width in WIDTHS.items() if -(2 ** (8 * width - 1)) <= value < 2 ** (8 * width - 1))
    return serial, value.to_bytes(WIDTHS[serial], "big", signed=True)


def leaf(*cells, size=SIZE, at=None, usable=None, blocks=()):
    """A leaf page of cells; they lie from the end backwards, or at the places given, and take four bytes at least.

    Bytes between them are of free blocks, (place, size) each, or counted as fragments.
    """
    page = bytearray(size)
    page[0] = core.LEAF
    page[3:5] = len(cells).to_bytes(2, "big")
    end, lengths = size, [max(len(cell), 4) for cell in cells]
    begins = []
    for i, cell in enumerate(cells):
        end = at[i] if at else end - lengths[i]
        begins.append(end)
        page[end : end + len(cell)] = cell
        page[8 + 2 * i : 10 + 2 * i] = end.to_bytes(2, "big")
    return bytes(accounted(page, begins, lengths, usable or size, blocks))


def accounted(page, begins, lengths, usable, blocks=()):
    """A page whose head tells of its free space (section 1.6)."""
    content = min([*begins, *(place for place, _ in blocks)], default=usable)
    for (place, length), (following, _) in zip(blocks, [*blocks[1:], (0, 0)], strict=False):
        page[place : place + 4] = following.to_bytes(2, "big") + length.to_bytes(2, "big")
    page[1:3] = (blocks[0][0] if blocks else 0).to_bytes(2, "big")
    page[5:7] = (content % 65536).to_bytes(2, "big")
    page[7] = max(0, min(255, usable - content - sum(lengths) - sum(length for _, length in blocks)))
    return page


def inner(*children, size=SIZE, at=None):
    """An interior page of so many children."""
    page = bytearray(size)
    page[0] = core.INTERIOR
    page[3:5] = (len(children) - 1).to_bytes(2, "big")
    page[8:12] = children[-1].to_bytes(4, "big")
    end, begins = size, []
    for i, child in enumerate(children[:-1]):
        end = at[i] if at else end - 5
        begins.append(end)
        page[end : end + 5] = child.to_bytes(4, "big") + varint(i)
        page[12 + 2 * i : 14 + 2 * i] = end.to_bytes(2, "big")
    return bytes(accounted(page, begins, [5] * len(begins), size))


def array(content):
    return np.frombuffer(content, np.uint8).copy()


def run_cells(content, size=SIZE, usable=None, info=None, most=None):
    """What `cells` finds: rows of (start, size, row number, overflow page); or what is broken and in which page.

    The first of two pages has no row after row 0, where `most` does not tell.
    """
    usable = size if usable is None else usable
    pages = len(content) // size
    out = np.full((4, pages * ((usable - 8) // 6)), -7, np.int64)
    info = np.zeros(4, np.int64) if info is None else info
    most = np.array([0] * (pages - 1) + [MOST] if most is None else most, np.int64)
    count = core.cells(array(content), pages, size, usable, pages == 1, most, *out, info)
    if count < 0:
        return tuple(info[:2].tolist())
    assert (out[:, count:] == -7).all()
    return out[:, :count].T.tolist()


class TestCells:
    def test_where_records_lie(self):
        one, two = record(field(5)), record(field("text"))
        content = leaf(varint(len(one)) + varint(1) + one, varint(len(two)) + varint(300) + two) + leaf(
            b"\x01" + varint(301) + b"\x01"
        )
        first, second, third = run_cells(content, most=[300, MOST])
        assert first == [SIZE - len(one), len(one), 1, 0]
        assert second[1:] == [len(two), 300, 0]
        assert content[second[0] :].startswith(two)
        assert third == [2 * SIZE - 1, 1, 301, 0]
        assert run_cells(content, most=[299, MOST]) == (core.OUT_OF_ORDER, 0)
        assert run_cells(content, most=[301, MOST]) == (core.OUT_OF_ORDER, 1)
        assert run_cells(content, most=[300, 300]) == (core.OUT_OF_ORDER, 1)

    def test_no_page_and_no_cell(self):
        assert run_cells(b"") == []
        assert run_cells(leaf()) == []

    @together("row", [-(2**63), -1, 0, 127, 128, 2**56 - 1, 2**56, 2**63 - 1])
    @together("least", [1, 9])
    def test_row_numbers_of_all_lengths(self, row, least):
        assert run_cells(leaf(varint(2, least) + varint(row, least) + b"\x02\x00")) == [[SIZE - 2, 2, row, 0]]

    @given(length=st.integers(2, 40), row=INT64S, least=st.integers(1, 9), gap=st.integers(0, 20))
    def test_varints_that_end_with_the_page_or_before(self, length, row, least, gap):
        cell = varint(length, least) + varint(row, least) + bytes(length)
        at = SIZE - len(cell) - gap
        assert run_cells(leaf(cell, at=[at])) == [[SIZE - gap - length, length, row, 0]]

    @together(
        ("content", "code"),
        [
            (bytes(SIZE), core.NOT_A_PAGE),
            (inner(2, 3), core.NOT_A_PAGE),
            (bytes([core.LEAF, 0, 0, 0, 85]) + bytes(SIZE - 5), core.TOO_MANY_CELLS),
            (bytes([core.LEAF, 0, 0, 0xFF, 0xFF]) + bytes(SIZE - 5), core.TOO_MANY_CELLS),
            (leaf(b"\1\1\1", at=[9]), core.CELL_OUTSIDE),  # among the pointers
            (leaf(b"", at=[SIZE]), core.CELL_OUTSIDE),
            (leaf(b"", at=[0xFFFF]), core.CELL_OUTSIDE),
            (leaf(b"\x81", at=[SIZE - 1]), core.CELL_OUTSIDE),  # a varint that does not end
            (leaf(b"\x01", at=[SIZE - 1]), core.CELL_OUTSIDE),  # no row number
            (leaf(b"\x01\xff", at=[SIZE - 2]), core.CELL_OUTSIDE),
            (leaf(b"\xff" * 8, at=[SIZE - 8]), core.CELL_OUTSIDE),
            (leaf(b"\x00" + b"\xff" * 8, at=[SIZE - 9]), core.CELL_OUTSIDE),
            (leaf(varint(-1) + b"\1", at=[SIZE - 10]), core.RECORD_TOO_LARGE),
            (leaf(varint(10**9 + 1) + b"\1", at=[SIZE - 90]), core.RECORD_TOO_LARGE),
            (leaf(varint(2) + b"\1\1", at=[SIZE - 3]), core.CELL_TOO_LARGE),  # its record ends beyond the page
            (leaf(varint(10**9) + b"\1", at=[SIZE - 40]), core.CELL_TOO_LARGE),
            (leaf(varint(478) + b"\1" + bytes(50), at=[SIZE - 60]), core.NO_SUCH_PAGE),  # goes on in page 0
            (leaf(varint(478) + b"\1" + bytes(39) + b"\0\0\0\1", at=[SIZE - 60]), core.NO_SUCH_PAGE),
            (leaf(varint(200) + b"\1", varint(200) + b"\2", varint(200) + b"\3", at=[100, 110, 120]), core.OVERLAP),
            (leaf(b"\1\2\1", b"\1\2\1"), core.OUT_OF_ORDER),
            (leaf(b"\1\2\1", b"\1\1\1"), core.OUT_OF_ORDER),
            (leaf(b"\1\2\1", b"\1\3\1", at=[500, 502]), core.OVERLAP),  # of cells of four bytes
            (leaf(b"\1\2\1", at=[SIZE - 3]), core.OVERLAP),
        ],
    )
    def test_what_is_broken(self, content, code):
        assert run_cells(content) == (code, 0)
        assert run_cells(leaf(b"\1\0\1") + content) == (code, 1)

    def test_no_page_but_the_first_may_be_empty(self):
        assert run_cells(leaf(b"\1\0\1") + leaf()) == (core.EMPTY_PAGE, 1)

    def test_free_space_is_that_between_the_cells(self):
        two = [varint(10) + varint(row) + bytes(10) for row in (1, 2)]
        at, blocks = [500, 460], [(440, 6), (475, 20)]  # fragments of 14, 3 and 5 bytes
        page = leaf(*two, at=at, blocks=blocks)
        assert page[7] == 22
        assert [found[2] for found in run_cells(page)] == [1, 2]
        for byte, value in (
            (7, 21),  # fragments
            (6, 0xB9),  # where the content begins
            (6, 0xB7),
            (2, 0),  # the first free block
            (2, 0xBA),
            (441, 0),  # the next one
            (441, 0xDC),
            (441, 0xBC),  # itself, in effect
            (443, 7),  # its size
            (478, 25),  # that of the last, which is now as large as to the next cell
            (478, 26),
            (477, 1),
        ):
            broken = bytearray(page)
            assert broken[byte] != value
            broken[byte] = value
            assert run_cells(bytes(broken)) == (core.BAD_SPACE, 0), (byte, value)

    def test_a_content_that_begins_among_the_pointers(self):
        page = bytearray(leaf(varint(2) + b"\1" + bytes(2)))
        page[5:7] = (9).to_bytes(2, "big")
        page[7] = 255
        assert run_cells(bytes(page)) == (core.BAD_SPACE, 0)

    def test_cells_may_fill_a_page_but_not_overlap(self):
        sizes = [200, 150, SIZE - (8 + 3 * 2) - 3 * 3 - 350]  # of records, with three bytes before each
        cells = [varint(size, 2) + varint(row) + bytes(size) for row, size in enumerate(sizes)]
        at = [SIZE - sum(map(len, cells[: i + 1])) for i in range(3)]
        assert at[2] == 8 + 3 * 2
        assert [found[1] for found in run_cells(leaf(*cells, at=at))] == sizes
        cells[2] = varint(sizes[2] + 1, 2) + cells[2][2:]  # runs one byte into the cell behind it
        assert run_cells(leaf(*cells[:2], cells[2], at=at)) == (core.OVERLAP, 0)

    def test_the_last_row_number_carries_over(self):
        info = np.zeros(4, np.int64)
        assert len(run_cells(leaf(b"\1\5\1"), info=info, most=[7])) == 1
        assert info.tolist()[2:] == [7, 1]
        assert run_cells(leaf(b"\1\7\1"), info=info) == (core.OUT_OF_ORDER, 0)
        assert len(run_cells(leaf(b"\1\x08\1"), info=info)) == 1

    @together(("usable", "size"), [(480, 512), (512, 512), (4096, 4096), (4076, 4096), (65536, 65536)])
    def test_records_that_go_on_elsewhere(self, usable, size):
        least = (usable - 12) * 32 // 255 - 23
        ends = [usable - 36, usable - 35, usable - 34, usable, 5 * usable + 3, 10**9]
        # and where the part in the leaf falls from its most to its least bytes
        for length in [*ends, *(3 * (usable - 4) + most for most in (usable - 36, usable - 35, usable - 34, least))]:
            local = local_size(length, usable)
            more = length > usable - 35
            cell = varint(length) + varint(3) + bytes(local) + (b"\0\0\1\2" if more else b"")
            begin = usable - len(cell)
            found = run_cells(leaf(cell, size=size, at=[begin], usable=usable), size, usable)
            assert found == [[begin + len(cell) - local - 4 * more, length, 3, 258 if more else 0]]
            assert run_cells(leaf(cell, size=size, at=[begin + 1]), size, usable) == (core.CELL_TOO_LARGE, 0)

    @together(("pages", "size", "usable"), [(2, 512, 512), (-1, 512, 512), (1, 512, 479), (1, 512, 513), (1, 0, 480)])
    def test_pages_that_are_not_in_the_buffer(self, pages, size, usable):
        out, info = np.zeros((4, 200), np.int64), np.zeros(4, np.int64)
        with pytest.raises(ValueError, match="do not lie in"):
            core.cells(array(leaf()), pages, size, usable, True, np.zeros(9, np.int64), *out, info)
        room = np.zeros(99, np.int64), np.zeros(99, np.uint32), np.zeros(99, np.int64)
        with pytest.raises(ValueError, match="do not lie in"):
            core.children(array(inner(2, 3)), pages, size, usable, 9, 0, array(bytes(10)), *room, info)

    def test_more_cells_than_there_is_room_for(self):
        out = np.zeros((4, 1), np.int64)
        with pytest.raises(IndexError):
            core.cells(
                array(leaf(b"\1\1\1", b"\1\2\1")),
                1,
                SIZE,
                SIZE,
                True,
                np.zeros(1, np.int64),
                *out,
                np.zeros(4, np.int64),
            )

    @settings(max_examples=cases(100, 300), deadline=None)
    @given(st.data())
    def test_any_bytes_give_records_within_pages_or_a_code(self, data):
        head = bytes([core.LEAF, 0, 0, 0, data.draw(st.integers(0, 86))])
        rest = data.draw(st.lists(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF]), min_size=30, max_size=60))
        page = (head + bytes(rest)).ljust(SIZE, b"\x81")
        found = run_cells(page)
        if isinstance(found, tuple):
            assert core.NOT_A_PAGE <= found[0] <= core.OVERLAP or found[0] == core.BAD_SPACE
            return
        for start, length, _, more in found:
            assert 8 + 2 * len(found) <= start <= SIZE
            assert start + local_size(length, SIZE) + 4 * (more > 0) <= SIZE


def local_size(size, usable):
    """Section 1.6 of the file format: U, P, X, M and K as there."""
    most = usable - 35
    least = (usable - 12) * 32 // 255 - 23
    if size <= most:
        return size
    k = least + (size - least) % (usable - 4)
    return k if k <= most else least


@settings(max_examples=cases(100, 300))
@given(size=st.integers(0, 10**9), usable=st.integers(480, 65536))
@example(size=477, usable=512)
@example(size=478, usable=512)
@example(size=10**9, usable=65536)
def test_local_size(size, usable):
    assert core.local_size(size, usable) == local_size(size, usable)
    for near in range(usable - 37, usable - 32):
        assert core.local_size(near, usable) == local_size(near, usable)


def test_a_page_that_is_too_small():
    with pytest.raises(ValueError, match="at least 480"):
        core.local_size(5000, 479)


def run_children(content, page_count=100, lock_page=0, seen=()):
    pages = len(content) // SIZE
    marks, info = np.zeros(page_count + 1, np.uint8), np.zeros(4, np.int64)
    marks[list(seen)] = 1
    out = np.zeros(pages * ((SIZE - 12) // 2 + 1), np.uint32)
    most, out_most = np.arange(1000, 1000 + pages), np.zeros(len(out), np.int64)
    count = core.children(array(content), pages, SIZE, SIZE, page_count, lock_page, marks, most, out, out_most, info)
    if count < 0:
        return tuple(info[:2].tolist())
    assert set(np.flatnonzero(marks).tolist()) == {*seen, *out[:count].tolist()}
    keys = [
        [*range(int.from_bytes(content[at + 3 : at + 5], "big")), 1000 + at // SIZE]
        for at in range(0, len(content), SIZE)
    ]
    assert out_most[:count].tolist() == [key for page in keys for key in page]
    return out[:count].tolist()


class TestChildren:
    def test_in_key_order(self):
        assert run_children(b"") == []
        assert run_children(inner(9, 2, 100) + inner(3, 8)) == [9, 2, 100, 3, 8]
        many = list(range(2, 74))  # a page has room for 71 cells of 5 bytes with a pointer each, and the last child
        assert run_children(inner(*many[:72])) == many[:72]

    @together(
        ("content", "code"),
        [
            (leaf(), core.NOT_A_PAGE),
            (inner(7), core.EMPTY_PAGE),
            (inner(2, 3, 4, at=[400, 404]), core.OVERLAP),
            (inner(2, 3)[:7] + b"\1" + inner(2, 3)[8:], core.BAD_SPACE),
            (inner(2, 3)[:-1] + b"\x81", core.CELL_OUTSIDE),  # a key that does not end
            (bytes([core.INTERIOR, 0, 0, 0, 251]) + bytes(SIZE - 5), core.TOO_MANY_CELLS),
            (bytes([core.INTERIOR, 0, 0, 0, 250]) + bytes(SIZE - 5), core.CELL_OUTSIDE),
            (inner(2, 3, at=[SIZE - 5]), None),
            (inner(2, 3, at=[SIZE - 4])[:SIZE], core.CELL_OUTSIDE),
            (inner(2, 3, at=[13]), core.CELL_OUTSIDE),
            (inner(1, 3), core.NO_SUCH_PAGE),
            (inner(101, 3), core.NO_SUCH_PAGE),
            (inner(2**32 - 1, 3), core.NO_SUCH_PAGE),
            (inner(2, 0), core.NO_SUCH_PAGE),
            (inner(55, 3), core.NO_SUCH_PAGE),  # where the locks lie
            (inner(3, 3), core.USED_TWICE),
            (inner(3, 44), core.USED_TWICE),
        ],
    )
    def test_what_is_broken(self, content, code):
        found = run_children(inner(90, 91) + content, lock_page=55, seen=[44])
        assert found == ([90, 91, 2, 3] if code is None else (code, 1))


def run_decode(
    records, kinds, *, defaults=(), not_null=(), rows=None, rowid_kind=-1, after=b"", first_row=0, sizes=None, low=0
):
    """What `decode` writes for each field (of a kind, or None where it is not wanted): columns of values, row numbers
    last.

    Returns how many records were written, what is wrong if not all, and the columns.
    """
    count, room = len(records), first_row + len(records)
    size = np.array([len(r) for r in records] if sizes is None else sizes, np.int64)
    start = np.cumsum([0, *(len(r) for r in records)])[:count].astype(np.int64)
    buf = array(b"".join(records) + after)
    wanted = [*kinds, *([rowid_kind] if rowid_kind >= 0 else [])]
    stride = 8 * (room + 1)
    memory = np.full(64 + stride * 2 * max(len(wanted), 1), 0xFF, np.uint8)
    memory = memory[: len(memory) // 8 * 8]
    fields, places, texts = np.zeros((len(kinds), 6), np.int64), [], 0
    for i, kind in enumerate(wanted):
        bits_at, values_at = stride * 2 * i, stride * (2 * i + 1)
        begin = (
            texts if kind == core.BYTES else values_at // (np.dtype(KINDS[kind]).itemsize if kind is not None else 1)
        )
        texts += kind == core.BYTES
        places.append((kind, begin, bits_at))
        if i < len(kinds):
            output, takes = (-1, -1) if kind is None else (i, kind)
            fields[i] = output, i in defaults, i in not_null, takes, begin, bits_at
    text = np.full((2, texts, count - low), -7, np.int64)
    nulls, info = np.zeros(len(wanted), np.int64), np.zeros(4, np.int64)
    views = [memory.view(t) for t in (np.int8, np.int16, np.int32, np.int64, np.uint8)]
    rowid = np.array(range(count) if rows is None else rows, np.int64)
    rowid_begin = places[-1][1] if rowid_kind >= 0 else 0
    done = core.decode(
        buf, start, size, rowid, low, count, fields, rowid_kind, rowid_begin, first_row, *text, nulls, info, *views
    )  # fmt: skip
    columns = []
    for i, (kind, begin, bits_at) in enumerate(places):
        valid = np.unpackbits(memory[bits_at : bits_at + stride], bitorder="little")
        assert valid[:first_row].all()
        valid = valid[first_row : first_row + done]
        if kind is None:
            continue
        assert (nulls[i] == (valid == 0).sum()) if done == count - low else True
        if kind == core.BYTES:
            values = [bytes(buf[a : a + s]) for a, s in zip(*text[:, begin, :done].tolist(), strict=True)]
        else:
            values = memory.view(KINDS[kind])[begin + first_row : begin + first_row + done].tolist()
        assert all(v or not value for v, value in zip(valid, values, strict=True))  # a null has zeros, or no bytes
        columns.append([value if v else None for v, value in zip(valid, values, strict=True)])
    return done, tuple(info[:2].tolist()) if done < count - low else None, columns


class TestDecode:
    def test_each_serial_type(self):
        values = [
            (0, b""),
            (1, b"\xff"),
            (2, b"\x80\x00"),
            (3, b"\x80\0\1"),
            (4, b"\x7f\xff\xff\xff"),
            (5, b"\xff\0\0\0\0\0"),
        ]
        values += [(6, b"\x80" + bytes(7)), (8, b""), (9, b"")]
        expected = [None, -1, -32768, -(2**23) + 1, 2**31 - 1, -(2**40), -(2**63), 0, 1]
        for after in (b"", b"\xaa" * 8):  # the last record ends with the buffer, or does not
            assert run_decode([record(v) for v in values], [core.INT64], after=after) == (9, None, [expected])
            reals = [None if e is None else float(e) for e in expected]
            assert run_decode([record(v) for v in values], [core.FLOAT64], after=after) == (9, None, [reals])
            assert run_decode([record(*values)], [core.INT64] * 9, after=after) == (1, None, [[e] for e in expected])

    @together("serial", [10, 11, 2**63, 2**63 + 5, 2**64 - 1])
    def test_serial_types_that_are_none(self, serial):
        for kind in (core.INT64, core.BYTES, None):
            assert run_decode([record(field(None)), record((serial, b""))], [kind])[:2] == (1, (core.BAD_HEADER, 1))

    def test_text(self):
        values = ["", "a", "ä" * 29, "b" * 57, "c" * 58, "d" * 9000, b"", b"\0\xff", None]
        raw = [v.encode() if isinstance(v, str) else v for v in values]
        assert run_decode([record(field(v)) for v in values], [core.BYTES]) == (9, None, [raw])
        nine = [record(field(v), field(3), least=9) for v in values]
        assert run_decode(nine, [core.BYTES, core.INT8], first_row=5) == (9, None, [raw, [3] * 9])

    @together("value", [math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.5, -1e300, math.nan])
    def test_floats(self, value):
        done, wrong, [[found]] = run_decode([record(field(value))], [core.FLOAT64])
        assert (done, wrong) == (1, None)
        assert (
            found is None
            if math.isnan(value)
            else (found == value and math.copysign(1, found) == math.copysign(1, value))
        )
        for bits in (0x7FF0000000000001, 0xFFF0000000000001, 0xFFFFFFFFFFFFFFFF):
            assert run_decode([record((7, bits.to_bytes(8, "big")))], [core.FLOAT64])[2] == [[None]]

    @together(
        ("value", "kind"),
        [
            (1.5, core.INT64),
            (1.5, core.BYTES),
            (1, core.BYTES),
            ("1", core.INT64),
            ("1", core.FLOAT64),
            (b"", core.INT8),
        ],
    )
    def test_values_that_only_sqlite_converts(self, value, kind):
        assert run_decode([record(field(None)), record(field(value))], [kind])[:2] == (1, (core.SURPRISE, 1))
        assert run_decode([record(field(value))], [None])[:2] == (1, None)

    @given(value=INT64S, kind=st.sampled_from([core.INT8, core.INT16, core.INT32, core.INT64]))
    def test_narrow_columns(self, value, kind):
        limits = np.iinfo(KINDS[kind])
        fits = limits.min <= value <= limits.max
        expected = (1, None, [[value]]) if fits else (0, (core.SURPRISE, 0), [[]])
        assert run_decode([record(field(value))], [kind]) == expected
        assert run_decode([record()], [], rows=[value], rowid_kind=kind) == expected

    def test_row_numbers(self):
        records, rows = [record(field("x"))] * 3, [-5, 2**62, 2**63 - 1]
        assert run_decode(records, [core.BYTES], rows=rows, rowid_kind=core.INT64) == (3, None, [[b"x"] * 3, rows])
        assert run_decode(records, [None], rows=rows, rowid_kind=core.FLOAT64) == (3, None, [[float(r) for r in rows]])

    def test_records_from_the_middle_on(self):
        records = [record(field(i), field(b"x" * i)) for i in range(5)]
        expected = [[3, 4], [b"xxx", b"xxxx"], [3, 4]]
        assert run_decode(records, [core.INT32, core.BYTES], rowid_kind=core.INT64, low=3, first_row=9) == (
            2,
            None,
            expected,
        )
        assert run_decode([*records, b""], [core.INT32, core.BYTES], low=3)[:2] == (2, (core.BAD_HEADER, 5))

    def test_records_shorter_than_the_table(self):
        short = [record(field(1), field(2)), record(field(3)), record()]
        assert run_decode(short, [core.INT8, core.INT8]) == (3, None, [[1, 3, None], [2, None, None]])
        assert run_decode(short, [core.INT8, core.INT8], defaults=[1])[:2] == (1, (core.SURPRISE, 1))
        assert run_decode(short, [core.INT8, None], defaults=[1], not_null=[1]) == (3, None, [[1, 3, None]])
        assert run_decode(short, [core.INT8, core.INT8], defaults=[0])[:2] == (2, (core.SURPRISE, 2))

    @pytest.mark.parametrize("kind", [core.INT8, None])
    def test_columns_that_must_have_a_value(self, kind):
        records = [record(field(1)), record(field(0)), record(field(None)), record()]
        assert run_decode(records, [kind])[:2] == (4, None)
        assert run_decode(records, [kind], not_null=[0])[:2] == (2, (core.NULL_VALUE, 2))
        assert run_decode(records[:2] + records[3:], [kind], not_null=[0])[:2] == (2, (core.NULL_VALUE, 2))

    def test_fields_that_the_table_has_no_column_for_are_not_looked_at(self):
        assert run_decode([record(field(1), (10, b""))], [core.INT8]) == (1, None, [[1]])

    @together(
        ("content", "code"),
        [
            (b"", core.BAD_HEADER),
            (b"\x00", core.BAD_HEADER),  # a header shorter than its own length
            (b"\x80\x01\x00", core.BAD_HEADER),
            (b"\x03\x01", core.BAD_HEADER),  # longer than the record
            (b"\x81", core.BAD_HEADER),
            (b"\xff" * 9, core.BAD_HEADER),  # of -1 bytes
            (b"\x02\x80\x01", core.BAD_HEADER),  # a type that goes on beyond the header
            (b"\x09" + b"\x80" * 8 + b"\x01", core.BAD_HEADER),
            (b"\x02\x01", core.BAD_VALUES),
            (b"\x01\x07", core.BAD_VALUES),
            (b"\x02\x06" + bytes(7), core.BAD_VALUES),
            (b"\x02\x0e", core.BAD_VALUES),
            (b"\x03" + varint(2**13 + 13) + bytes(4095), core.BAD_VALUES),
            (b"\x0a" + varint(2**63 - 1, 9), core.BAD_VALUES),
        ],
    )
    def test_broken_records(self, content, code):
        good = record(field(7))
        for kind in (core.INT64, core.BYTES, None):
            # the bytes after a record are not its own
            assert run_decode([content], [kind], after=good * 9)[:2] == (0, (code, 0))
            assert run_decode([good, content], [None], after=good * 9)[:2] == (1, (code, 1))

    @pytest.mark.parametrize("kind", [core.INT8, None])
    def test_bytes_of_a_record_that_are_of_no_value(self, kind):
        assert run_decode([b"\x02\x01\x07\x08"], [kind])[:2] == (0, (core.BAD_VALUES, 0))
        assert run_decode([b"\x02\x01\x07\x08"], [])[:2] == (1, None)  # of fields without a column

    @together("size", [-1, 4, 2**62, 2**63 - 1, -(2**63)])
    def test_records_beyond_the_buffer(self, size):
        one = record(field(1))
        assert run_decode([one], [core.INT8], sizes=[size])[:2] == (0, (core.BAD_VALUES, 0))
        assert run_decode([one, one], [core.INT8], sizes=[len(one), size])[:2] == (1, (core.BAD_VALUES, 1))

    def test_columns_without_room(self):
        fields = np.array([[0, 0, 0, core.INT64, 1, 0]], np.int64)
        memory, one = np.zeros(16, np.uint8), np.ones(1, np.int64)
        views = [memory.view(t) for t in (np.int8, np.int16, np.int32, np.int64, np.uint8)]
        content = record(field(9))
        text, info, start, size = np.zeros((2, 0, 1), np.int64), np.zeros(4, np.int64), one - 1, one * len(content)
        for row, kind, begin in [
            (1, core.INT64, 1),
            (0, core.INT64, 2),
            (0, core.INT64, -1),
            (0, core.INT8, 16),
            (0, core.BYTES, 0),
        ]:
            fields[0, 3:5] = kind, begin
            value = array(record(field(b"t")) if kind == core.BYTES else content)
            with pytest.raises(IndexError):
                core.decode(value, start, size, one, 0, 1, fields, -1, 0, row, *text, one * 0, info, *views)
        fields[0, 3:5] = core.INT64, 1
        for bad, rowid_kind in [
            (np.array([[0, 0, 0, 6, 0, 0]]), -1),
            (fields[:, :4].copy(), -1),
            (fields, core.BYTES),
            (fields, -2),
        ]:
            with pytest.raises(ValueError):
                core.decode(array(content), start, size, one, 0, 1, bad, rowid_kind, 0, 0, *text, one * 0, info, *views)

    @settings(max_examples=cases(66, 200), deadline=None)
    @given(st.data())
    def test_all_values_as_they_were_written(self, data):
        values = {
            core.INT64: INT64S,
            core.FLOAT64: st.floats(allow_nan=False),
            core.BYTES: st.binary(max_size=70),
            core.INT16: st.integers(-(2**15), 2**15 - 1),
            None: st.one_of(INT64S, st.binary(max_size=70)),
        }
        kinds = data.draw(st.lists(st.sampled_from(list(values)), max_size=6))
        rows = data.draw(st.lists(st.tuples(*(st.none() | values[kind] for kind in kinds)), min_size=1, max_size=12))
        least, first_row = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 9))
        records = [record(*map(field, row), least=least) for row in rows]
        expected = [
            list(column) for kind, column in zip(kinds, zip(*rows, strict=True), strict=True) if kind is not None
        ]
        assert run_decode(records, kinds, first_row=first_row) == (len(rows), None, expected)

    @settings(max_examples=cases(100, 300), deadline=None)
    @given(
        content=st.binary(max_size=40),
        kinds=st.lists(st.sampled_from([core.INT64, core.INT8, core.BYTES, core.FLOAT64, None])),
    )
    def test_any_bytes_give_values_or_a_code(self, content, kinds):
        done, wrong, _ = run_decode([content], kinds)
        assert done == 1 or wrong[0] in (core.BAD_HEADER, core.BAD_VALUES, core.SURPRISE)


@settings(max_examples=cases(100, 300), deadline=None)
@given(
    values=st.lists(st.one_of(st.binary(max_size=40), st.text("ab", max_size=40).map(str.encode)), max_size=12),
    after=st.binary(max_size=9),
    room=st.integers(0, 9),
    backwards=st.booleans(),
)
@example(values=[b"\x80"], after=b"", room=0, backwards=False)
@example(values=[b"a", b"1234567\x80"], after=b"\xff", room=0, backwards=False)
@example(values=[b"1234567", b"12345678"], after=b"\xff" * 9, room=0, backwards=True)
def test_text_is_copied_as_it_is_and_nothing_beside_it(values, after, room, backwards):
    stored = values[::-1] if backwards else values
    at = np.cumsum([0, *map(len, stored)], dtype=np.int64)[: len(values)]
    at = at[::-1].copy() if backwards else at
    size = np.array([len(v) for v in values], np.int64)
    source = array(b"".join(stored) + after)
    whole = np.full(int(size.sum()) + room + 16, 0xEE, np.uint8)
    data = whole[8 : len(whole) - 8]
    offsets = np.zeros(len(values) + 2, np.int32)
    ascii_only = core.gather(source, at, size, len(values), offsets, 1, data)
    assert bytes(data[: size.sum()]) == b"".join(values)
    assert bytes(whole[8 + size.sum() :]) == b"\xee" * (room + 8)
    assert bytes(whole[:8]) == b"\xee" * 8
    assert offsets[1:].tolist() == np.cumsum([0, *size]).tolist()
    assert ascii_only is all(v.isascii() for v in values)


def test_text_goes_after_what_is_there():
    data, offsets = array(b"\xff\xff......"), np.array([0, 2, -1, -1], np.int32)
    assert core.gather(array(b"abc"), np.array([1, 0]), np.array([2, 1]), 2, offsets, 1, data)
    assert (bytes(data), offsets.tolist()) == (b"\xff\xffbca...", [0, 2, 4, 5])


@together(
    ("at", "size", "offset"), [(-1, 1, 0), (0, -1, 0), (0, 4, 0), (3, 1, 0), (2**62, 1, 0), (0, 3, 6), (0, 1, -1)]
)
def test_text_that_is_not_there_or_has_no_room(at, size, offset):
    with pytest.raises(IndexError):
        core.gather(
            array(b"abc"), np.array([at]), np.array([size]), 1, np.array([offset, 0], np.int32), 0, array(bytes(8))
        )
