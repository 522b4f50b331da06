"""Writers of text against Python's own words for numbers, its writer of CSV and its sort; and that they stay in their
buffer."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.together import together

from alltrace.core import text

INT64 = st.integers(-(2**63), 2**63 - 1)
POWERS = [10**k + d for k in range(19) for d in (-1, 0, 1)]
EDGES = [-(2**63), *(-n for n in POWERS), *POWERS, 2**63 - 1]
GUARD = 0xA5
GUARD_BYTES = 32


def joined(pieces):
    """The bytes of all pieces, and where each starts, with the end last."""
    return np.frombuffer(b"".join(pieces), np.uint8), np.cumsum([0, *map(len, pieces)], dtype=np.int64)


def guarded(room):
    """A buffer of `room` bytes, and the memory around it, whose other bytes are all `GUARD`."""
    around = np.full(room + 2 * GUARD_BYTES, GUARD, np.uint8)
    return around[GUARD_BYTES : GUARD_BYTES + room], around


def held_to_room(write, expected):
    """`write` into a buffer of just the expected size gives what is expected; with less room it raises. It never writes
    outside."""
    out, around = guarded(len(expected))
    assert write(out) == len(expected)
    assert out.tobytes() == expected
    assert np.all(around[:GUARD_BYTES] == GUARD)
    assert np.all(around[GUARD_BYTES + len(out) :] == GUARD)
    for room in {0, len(expected) // 2, len(expected) - 1} - {-1, len(expected)}:
        out, around = guarded(room)
        with pytest.raises(ValueError, match="too little room"):
            write(out)
        assert np.all(around[:GUARD_BYTES] == GUARD)
        assert np.all(around[GUARD_BYTES + room :] == GUARD)


# records


def record_writer(kinds, columns, pieces, count):
    """Writes records whose fields are columns, or constants where they are one number."""
    varying = [c for c in columns if not isinstance(c, int)]
    values = np.array(varying, np.int64).reshape(len(varying), count)
    rows = iter(range(len(values)))
    sources = np.array([-1 if isinstance(c, int) else next(rows) for c in columns])
    constants = np.array([c if isinstance(c, int) else 0 for c in columns])
    texts, offsets = joined(pieces)
    lengths = np.empty(count, np.int64)

    def write(out):
        size = text.write_records(np.array(kinds, np.int8), sources, constants, values, offsets, texts, lengths, out)
        assert size == lengths.sum()
        return size

    return write


@together("value", EDGES)
def test_an_integer(value):
    held_to_room(record_writer([text.INT], [[value]], [], 1), b"%d" % value)


@together("value", EDGES)
def test_nanoseconds_as_microseconds(value):
    expected = f"{'-' * (value < 0)}{abs(value) // 1000}.{abs(value) % 1000:03}"
    held_to_room(record_writer([text.MICROSECONDS], [value], [], 1), expected.encode())


def varint(value):
    """The bytes of a protobuf varint of 64 bits."""
    value %= 2**64
    found = []
    while value >= 128:
        found.append(value % 128 + 128)
        value //= 128
    return bytes([*found, value])


@given(
    st.lists(st.tuples(INT64, INT64, INT64, INT64, st.integers(-1, 9)), min_size=1, max_size=9),
    st.lists(st.binary(max_size=40), min_size=10, max_size=10),
    INT64,
)
def test_records_of_every_kind_of_field(rows, pieces, constant):
    kinds = [text.INT, text.MICROSECONDS, text.VARINT, text.FIXED64, text.TEXT, text.TEXT, text.INT]
    columns = [*(list(c) for c in zip(*rows, strict=True)), 3, constant]
    expected = b""
    for a, b, c, d, piece in rows:
        expected += b"%d" % a + f"{'-' * (b < 0)}{abs(b) // 1000}.{abs(b) % 1000:03}".encode() + varint(c)
        expected += (
            (d % 2**64).to_bytes(8, "little") + (pieces[piece] if piece >= 0 else b"") + pieces[3] + b"%d" % constant
        )
    held_to_room(record_writer(kinds, columns, pieces, len(rows)), expected)


def test_pieces_of_every_length():
    pieces = [bytes(range(1, n + 1)) for n in range(70)]
    held_to_room(
        record_writer([text.TEXT, text.TEXT], [list(range(70)), 5], pieces, 70), b"".join(p + pieces[5] for p in pieces)
    )


def test_no_records():
    held_to_room(record_writer([text.INT, text.TEXT], [[], 0], [b"x"], 0), b"")


def test_a_piece_that_does_not_exist_is_refused():
    with pytest.raises(IndexError):
        record_writer([text.TEXT], [[2]], [b"one", b"two"], 1)(np.empty(99, np.uint8))


@together("offsets", [[0, 7], [-1, 3], [4, 3], [7, 7], [-(2**63), 2**63 - 1]])
def test_a_piece_outside_of_the_texts_is_refused(offsets):
    zero, lengths, out = np.zeros(1, np.int64), np.empty(1, np.int64), np.empty(99, np.uint8)
    texts, bounds = np.zeros(6, np.uint8), np.array(offsets)
    with pytest.raises(ValueError, match="outside of the texts"):
        text.write_records(
            np.array([text.TEXT], np.int8), zero, zero, np.zeros((1, 1), np.int64), bounds, texts, lengths, out
        )
    with pytest.raises(ValueError, match="outside of the texts"):
        text.write_csv_rows(np.array([text.NAME], np.int8), np.zeros((1, 2), np.int64), texts, bounds, texts, out)
    with pytest.raises(ValueError, match="outside of the texts"):
        text.write_csv_rows(np.array([text.CELL], np.int8), bounds.reshape(1, 2), texts, bounds, texts, out)


# rows of CSV


def csv_line(cells):
    """The line that Python's module writes, which quotes a CR only where line ends have one."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n") + "\n"


def csv_writer(columns, names):
    """Writes rows of columns, each of which is a kind and its cells."""
    count = len(columns[0][1])
    cells = [cell for kind, column in columns if kind == text.CELL for cell in column]
    texts, starts = joined(cells)
    joined_names, name_offsets = joined(names)
    values = np.zeros((len(columns), count + 1), np.int64)
    done = 0
    for row, (kind, column) in zip(values, columns, strict=True):
        if kind == text.CELL:
            row[:] = starts[done : done + count + 1]
            done += count
        else:
            row[:-1] = column
    kinds = np.array([kind for kind, _ in columns], np.int8)
    return lambda out: text.write_csv_rows(kinds, values, joined_names, name_offsets, texts, out)


NAMES = ["", "a", "ten letters", "longer than sixteen bytes of text", "核é"]
COLUMNS = {
    text.NUMBER: INT64,
    text.NUMBER_OR_NULL: INT64 | st.just(text.NULL_NUMBER),
    text.NAME: st.integers(-1, len(NAMES) - 1),
    text.CELL: st.text("ab核", max_size=40).map(str.encode),
}


@given(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=5), st.integers(1, 9), st.data())
def test_rows_are_those_of_pythons_module(kinds, count, data):
    columns = [(kind, data.draw(st.lists(COLUMNS[kind], min_size=count, max_size=count))) for kind in kinds]
    shown = {
        text.NUMBER: str,
        text.NUMBER_OR_NULL: lambda n: None if n == text.NULL_NUMBER else n,
        text.NAME: lambda n: None if n < 0 else NAMES[n],
        text.CELL: bytes.decode,
    }
    rows = zip(*([shown[kind](cell) for cell in column] for kind, column in columns), strict=True)
    expected = "".join(csv_line(row) for row in rows).encode()
    held_to_room(csv_writer(columns, [n.encode() for n in NAMES]), expected)


@pytest.mark.parametrize("kind", [text.NUMBER, text.NUMBER_OR_NULL])
def test_numbers_of_rows_of_every_length(kind):
    cells = [n for n in EDGES if n != text.NULL_NUMBER or kind == text.NUMBER]
    held_to_room(
        csv_writer([(kind, cells), (kind, cells[::-1])], []),
        b"".join(b"%d,%d\n" % p for p in zip(cells, cells[::-1], strict=True)),
    )


def test_a_row_without_columns_is_an_empty_line():
    none = np.empty(0, np.uint8)
    arguments = np.empty(0, np.int8), np.empty((0, 3), np.int64), none, np.zeros(1, np.int64), none
    held_to_room(lambda out: text.write_csv_rows(*arguments, out), b"\n\n")


# records and rows in order


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 9)), max_size=20))
def test_gathered_records(records):
    texts, offsets = joined([r for r, _ in records])
    order = np.argsort([k for _, k in records], kind="stable") if records else np.empty(0, np.int64)
    lengths = np.diff(offsets).astype(np.int32)

    def write(out):
        text.gather_records(texts, offsets[:-1], lengths, order, out)
        return len(texts)

    held_to_room(write, b"".join(r for r, _ in sorted(records, key=lambda r: r[1])))


def test_a_record_that_does_not_exist_is_refused():
    texts, place = np.arange(9, dtype=np.uint8), np.zeros(1, np.int64)
    for start, length in ((0, 10), (-1, 3), (9, 1), (3, -1), (2**63 - 1, 2**31 - 1)):
        with pytest.raises(ValueError, match="outside of the texts"):
            text.gather_records(texts, np.array([start]), np.array([length], np.int32), place, np.empty(99, np.uint8))
    with pytest.raises(IndexError):
        text.gather_records(texts, place, np.ones(1, np.int32), place + 1, np.empty(99, np.uint8))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), INT64), max_size=30), st.integers(0, 30))
def test_columns_in_order_of_the_first_two(rows, few):
    given_rows = np.array(rows, np.int64).reshape(-1, 3)
    order = np.argsort(given_rows[:, 0], kind="stable")
    out = np.empty((3, len(rows)), np.int64)
    more = text.columns_in_order(given_rows, order, few, out)
    assert out[0].tolist() == sorted(r[0] for r in rows)
    if not more:
        assert list(zip(*out.tolist(), strict=True)) == sorted(rows, key=lambda r: r[:2])
    seconds = [[r[1] for r in rows if r[0] == key] for key in range(4)]
    assert more == any(n >= few and own[n] < max(own[:n]) for own in seconds for n in range(1, len(own)))


# lines of a .prv

HEADS = ["1:1:", "1:22:", "2:1:", "2:22:", "3:1:", "3:22:", "1:", "22:"]


def line_writer(rows, shapes, most=1 << 20):
    """Writes lines of rows (key, word), whose shapes are a variant and steps of text and a kind."""
    steps = np.cumsum([0, *(len(s) for _, s in shapes)], dtype=np.int64)
    heads, head_offsets = joined([h.encode() for h in HEADS])
    texts, text_offsets = joined([t for _, s in shapes for t, _ in s])
    kinds = np.array([k for _, s in shapes for _, k in s], np.int8)
    variants = np.array([v for v, _ in shapes], np.int64)
    packed = np.array(rows, np.int64).reshape(-1, 2)
    order = np.arange(len(packed))

    def write(out, first=0):
        return text.write_paraver_lines(
            packed, order, first, heads, head_offsets, 2, variants, steps, kinds, texts, text_offsets, out, most
        )

    return write


def word(shape, own, value=0):
    return shape << 48 | own << 32 | value


STEPS = [
    (b"", text.VALUE), (b":", text.LATER), (b":", text.NEXT), (b":", text.LOW), (b":", text.LAST_HIGH),
    (b"|", text.AGAIN), (b"", text.LOW), (b":", text.LAST_HIGH), (b"\n", text.STOP),
]  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**50), 2**50), st.integers(0, 1), st.integers(0, 2**32 - 1), INT64,
            *(st.integers(0, 2**32 - 1) for _ in range(4)),
        ),
        min_size=1,
        max_size=6,
    )
)  # fmt: skip
def test_lines_of_every_kind_of_step(drawn):
    rows, expected = [], ""
    for time, own, value, number, a, b, c, d in drawn:
        halves = [np.uint64(high << 32 | low).astype(np.int64) for low, high in ((a, b), (c, d))]
        rows += [(time * 8 + 3, n) for n in (word(0, own, value), number, *halves)]
        head = f"2:{(1, 22)[own]}:{time}"
        expected += f"{head}{value}:{time + value}:{number}:{time + a}:{time + b}|{head}{time + c}:{time + d}\n"

    def write(out):
        size, place = line_writer(rows, [(1, STEPS)])(out)
        assert place == len(rows)
        return size

    held_to_room(write, expected.encode())


def test_lines_name_objects_and_go_on_where_they_stopped():
    shapes = [(0, [(b":5:", text.OBJECT), (b"\n", text.STOP)]), (2, [(b":", text.HIGH), (b"\n", text.STOP)])]
    rows = [(80, word(0, 1, 1)), (-9, word(1, 0)), (8, word(0, 1, 1))]
    write, out = line_writer(rows, shapes, most=3), np.empty(99, np.uint8)
    # no line begins after three bytes; the row whose number HIGH reads becomes the next line
    for first, expected in ((0, b"1:22:10:5:22:\n"), (1, b"3:1:-2:-1\n"), (2, b"1:22:1:5:22:\n")):
        size, place = write(out, first)
        assert (out[:size].tobytes(), place) == (expected, first + 1)


def test_rows_of_what_does_not_exist_are_refused():
    shapes = [(0, [(b":", text.NEXT), (b"\n", text.STOP)]), (2, [(b":", text.OBJECT), (b"\n", text.STOP)])]
    for rows in (
        [(8, word(0, 0))],
        [(8, word(2, 0))],
        [(8, word(1, 0, 2))],
        [(8, word(1, 7))],
        [(8, word(1, 0, 2**32 - 1))],
    ):
        with pytest.raises(IndexError):
            line_writer(rows, shapes)(np.empty(999, np.uint8))
