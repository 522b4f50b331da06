"""The loops that read b-tree pages and records, compiled.

Every position is checked against the page or the record before a byte is read there, so that no file, however broken, makes
these functions read outside of the buffer that they were given. Layout: https://www.sqlite.org/fileformat2.html, sections 1.6
and 2.1.

Kernels return a count, or `-1` (broken) with the particulars in `info`: `info[0]` a code of `CORRUPT`, `info[1]` an index.
"""

# mypy: disable-error-code="no-any-return"
# (integers of NumPy's types, which the compiler needs to be told, are to mypy not what is declared)

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from numpy import float64, int8, int16, int32, int64, uint8, uint64

from alltrace.trace.eight_bytes import load, load_big, store
from alltrace.trace.jit import inlined, plain_kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Longs = NDArray[np.int64]

# What can be wrong with a page or a record; the keys are the codes in `info[0]`.
CORRUPT = {
    1: "is not a page of a table",
    2: "has more cells than it has room for",
    3: "has a cell outside of the page",
    4: "points to a page that the file does not have",
    5: "points to a page that is already in use",
    6: "has a cell that is larger than the page leaves room for",
    7: "has row numbers out of order",
    8: "has a record that is larger than SQLite allows",
    9: "has cells that overlap",
    10: "has a record whose header is broken",
    11: "has a record whose values run past its end",
}
_NOT_A_PAGE, _TOO_MANY, _CELL_OUTSIDE, _NO_SUCH_PAGE, _USED_TWICE, _CELL_TOO_LARGE = 1, 2, 3, 4, 5, 6
_OUT_OF_ORDER, _RECORD_TOO_LARGE, _OVERLAP, _BAD_HEADER, _BAD_VALUES = 7, 8, 9, 10, 11
# A sound record with a value that the column's type does not take as it is, or with a default left out: not broken, not ours
SURPRISE = 100

_LOW_FIRST = sys.byteorder == "little"

LEAF, INTERIOR = 0x0D, 0x05
INT8, INT16, INT32, INT64, FLOAT64, BYTES = 0, 1, 2, 3, 4, 5
MAX_RECORD = 10**9  # SQLite's own limit of a row, as it is built by default


@plain_kernel("UniTuple(int64, 2)(uint8[::1], int64, int64)")
def _varint(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """The varint at `at` and where it ends; an end of `-1` where it does not end before `end`."""
    value = int64(0)
    for i in range(8):
        if at + i >= end:
            return int64(0), int64(-1)
        byte = buf[at + i]
        value = (value << 7) | int64(byte & 0x7F)
        if byte < 0x80:
            return value, at + i + 1
    if at + 8 >= end:
        return int64(0), int64(-1)
    return (value << 8) | int64(buf[at + 8]), at + 9


@plain_kernel("int64(uint8[::1], int64)")
def _be2(buf: Bytes, at: int) -> int:
    return (int64(buf[at]) << 8) | int64(buf[at + 1])


@plain_kernel("int64(uint8[::1], int64)")
def _be4(buf: Bytes, at: int) -> int:
    return (int64(buf[at]) << 24) | (int64(buf[at + 1]) << 16) | (int64(buf[at + 2]) << 8) | int64(buf[at + 3])


@plain_kernel("int64(uint8[::1], int64, int64)")
def _integer(buf: Bytes, at: int, serial: int) -> int:
    """The big-endian signed integer of serial type 1 to 6 (the float's bits for 7), or the constants of 8 and 9."""
    if serial >= 8:
        return serial - 8
    high = int64(int8(buf[at]))
    if serial == 1:
        return high
    if serial == 2:
        return (high << 8) | int64(buf[at + 1])
    if serial == 3:
        return (high << 16) | (int64(buf[at + 1]) << 8) | int64(buf[at + 2])
    top = (high << 24) | (int64(buf[at + 1]) << 16) | (int64(buf[at + 2]) << 8) | int64(buf[at + 3])
    if serial == 4:
        return top
    if serial == 5:
        return (top << 16) | (int64(buf[at + 4]) << 8) | int64(buf[at + 5])
    return (top << 32) | _be4(buf, at + 4)


@plain_kernel("int64(uint8[::1], int64, int64, int64, int64, int64, uint8[::1], uint32[::1], int64[::1])")
def children(
    buf: Bytes,
    pages: int,
    page_size: int,
    usable: int,
    page_count: int,
    lock_page: int,
    seen: Bytes,
    out: NDArray[np.uint32],
    info: Longs,
) -> int:
    """The children of `pages` interior pages that lie one after the other in `buf`, in key order.

    Args:
        buf: The pages.
        pages: How many.
        page_size: Bytes of a page.
        usable: Bytes of a page without the reserved ones.
        page_count: Pages of the file.
        lock_page: The page that SQLite never uses, for its locks lie there.
        seen: One byte a page of the file, 1 where the page is in use; those found are set.
        out: Where the page numbers go; room for `pages * (usable - 12) // 2 + pages`.
        info: Particulars of what is broken.
    """
    n = 0
    for page in range(pages):
        base = page * page_size
        info[1] = page
        if buf[base] != INTERIOR:
            info[0] = _NOT_A_PAGE
            return -1
        cells = _be2(buf, base + 3)
        first = 12 + 2 * cells
        if first > usable:
            info[0] = _TOO_MANY
            return -1
        for cell in range(cells + 1):
            at = int64(8)
            if cell < cells:
                at = _be2(buf, base + 12 + 2 * cell)
                if at < first or at + 5 > usable:
                    info[0] = _CELL_OUTSIDE
                    return -1
            child = _be4(buf, base + at)
            if child < 2 or child > page_count or child == lock_page:
                info[0] = _NO_SUCH_PAGE
                return -1
            if seen[child]:
                info[0] = _USED_TWICE
                return -1
            seen[child] = 1
            out[n] = child
            n += 1
    return n


@plain_kernel("int64(int64, int64)")
def local_size(size: int, usable: int) -> int:
    """Bytes of a record of `size` bytes that lie in its leaf page; the rest is on overflow pages (section 1.6)."""
    most = usable - 35
    if size <= most:
        return size
    least = (usable - 12) * 32 // 255 - 23
    local = least + (size - least) % (usable - 4)
    return local if local <= most else least


@plain_kernel("int64(uint8[::1], int64, int64, int64, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def cells(  # noqa: C901 - as `decode`
    buf: Bytes,
    pages: int,
    page_size: int,
    usable: int,
    start: Longs,
    size: Longs,
    rowid: Longs,
    overflow: Longs,
    info: Longs,
) -> int:
    """Where the records of `pages` leaf pages lie.

    Args:
        buf: The pages, one after the other.
        pages: How many.
        page_size: Bytes of a page.
        usable: Bytes of a page without the reserved ones.
        start: Out: where each record starts in `buf`; room for `pages * (usable - 8) // 6`, as the next three.
        size: Out: the bytes of the whole record.
        rowid: Out: the row's number.
        overflow: Out: the first overflow page, or 0.
        info: Particulars of what is broken; `info[2]` in and out: the last row number, `info[3]`: whether there is one.
    """
    n = 0
    last, has_last = info[2], info[3]
    for page in range(pages):
        base = page * page_size
        end = base + usable
        info[1] = page
        if buf[base] != LEAF:
            info[0] = _NOT_A_PAGE
            return -1
        count = _be2(buf, base + 3)
        if count > (usable - 8) // 6:
            info[0] = _TOO_MANY
            return -1
        first = base + 8 + 2 * count
        room = end - first
        for cell in range(count):
            begin = base + _be2(buf, base + 8 + 2 * cell)
            if begin < first or begin >= end:
                info[0] = _CELL_OUTSIDE
                return -1
            at = begin
            length, row = int64(0), int64(0)
            if begin + 10 <= end and buf[uint64(begin)] < 0x80:
                # Nearly all cells: one byte of length, a varint that has room for all its bytes
                length = int64(buf[uint64(begin)])
                at = begin + 1
                byte = int64(buf[uint64(at)])
                row = byte & 0x7F
                more_bytes = 1
                while byte >= 0x80 and more_bytes < 8:
                    byte = int64(buf[uint64(at + more_bytes)])
                    row = (row << 7) | (byte & 0x7F)
                    more_bytes += 1
                at += more_bytes
                if byte >= 0x80:
                    row = (row << 8) | int64(buf[uint64(at)])
                    at += 1
            else:
                length, at = _varint(buf, begin, end)
                if at >= 0:
                    row, at = _varint(buf, at, end)
            if at < 0:
                info[0] = _CELL_OUTSIDE
                return -1
            if length < 0 or length > MAX_RECORD:
                info[0] = _RECORD_TOO_LARGE
                return -1
            long = length > usable - 35
            stop = at + (local_size(length, usable) + 4 if long else length)
            if stop > end:
                info[0] = _CELL_TOO_LARGE
                return -1
            more = _be4(buf, stop - 4) if long else int64(0)
            if long and more < 2:
                info[0] = _NO_SUCH_PAGE
                return -1
            room -= stop - begin
            if room < 0:
                info[0] = _OVERLAP
                return -1
            if has_last and row <= last:
                info[0] = _OUT_OF_ORDER
                return -1
            last, has_last = row, 1
            start[n] = at
            size[n] = length
            rowid[n] = row
            overflow[n] = more
            n += 1
    info[2], info[3] = last, has_last
    return n


@plain_kernel("int64(int64)")
def _length(serial: int) -> int:
    """Bytes of a value of a serial type; -1 for the two types that SQLite keeps for itself (section 2.1)."""
    if serial >= 12:
        return (serial - 12) >> 1
    if serial <= 4:
        return serial
    if serial >= 10:
        return int64(-1)
    if serial >= 8:
        return int64(0)
    return int64(6) if serial == 5 else int64(8)


@plain_kernel("boolean(int64, int64)")
def _fits(kind: int, value: int) -> bool:
    """Whether an integer has room in a column of `kind`."""
    if kind == INT32:
        return value == int64(int32(value))
    if kind == INT16:
        return value == int64(int16(value))
    return kind == INT64 or value == int64(int8(value))


@plain_kernel(
    "int64(uint8[::1], int64[::1], int64[::1], int64[::1], int64, int64, int64[:, ::1], int64[:, ::1], int64, int64, "
    "int64[:, ::1], int64[:, ::1], int64[::1], int64[::1], int8[::1], int16[::1], int32[::1], int64[::1], "
    "float64[::1], uint8[::1])"
)
def decode(  # noqa: C901 - in pieces it takes ten times as long: a call that passes arrays counts references
    buf: Bytes,
    start: Longs,
    size: Longs,
    rowid: Longs,
    low: int,
    high: int,
    fields: NDArray[np.int64],
    outputs: NDArray[np.int64],
    rowid_output: int,
    to: int,
    text_at: NDArray[np.int64],
    text_size: NDArray[np.int64],
    nulls: Longs,
    info: Longs,
    out8: NDArray[np.int8],
    out16: NDArray[np.int16],
    out32: NDArray[np.int32],
    out64: Longs,
    out_real: NDArray[np.float64],
    bits: Bytes,
) -> int:
    """Write the wanted values of the records `low` to `high` into columns; how many records were written.

    Fewer than `high - low` says that the next one cannot be: `info[0]` is a code of `CORRUPT` or `SURPRISE`, `info[1]` the
    record.

    Args:
        buf: Where the records lie.
        start: Where each record starts.
        size: The bytes of each record.
        rowid: The row's number of each record.
        low: The first record to write.
        high: One past the last.
        fields: Shape (2, fields), up to the last one wanted: the output of each field of a record, or -1; whether it has
            a default.
        outputs: Shape (3, outputs): what each is (`INT8` to `BYTES`); where it begins, in its own items (for `BYTES`:
            its row in `text_at`); the byte at which its validity bits begin in `bits`.
        rowid_output: The output that takes the row's number, or -1.
        to: The row of the outputs to write first.
        text_at: Where the bytes of each value lie in `buf`; shape (texts, records), counted from `low`.
        text_size: How many they are; 0 for a null.
        nulls: Nulls of each output, counted up.
        info: Particulars.
        out8: The memory of all columns, as 8-bit integers; the next four are the same memory as other types.
        out16: As 16-bit integers.
        out32: As 32-bit integers.
        out64: As 64-bit integers.
        out_real: As floats.
        bits: As bytes; validity bits come set, and are cleared for nulls.
    """
    wanted = fields.shape[1]
    # The row's number comes last, as if it were one more field
    steps = wanted + 1 if rowid_output >= 0 else wanted
    for record in range(low, high):
        row = to + record - low
        info[1] = record
        at = start[record]
        end = at + size[record]
        header, head = _varint(buf, at, end)
        if head < 0 or header < head - at or header > end - at:
            info[0] = _BAD_HEADER
            return record - low
        head_end = at + header
        value_at = head_end
        for field in range(steps):
            if field < wanted:
                output = fields[0, field]
                serial = int64(0)
                if head < head_end:
                    serial, head = int64(buf[head]), head + 1
                    if serial >= 0x80:
                        serial, head = _varint(buf, head - 1, head_end)
                elif fields[1, field]:
                    info[0] = SURPRISE
                    return record - low
                length = _length(serial)
                here = value_at
                if head < 0 or length < 0 or length > end - here:
                    info[0] = _BAD_HEADER if head < 0 or length < 0 else _BAD_VALUES
                    return record - low
                value_at += length
                if output < 0:
                    continue
                kind = outputs[0, output]
                # Bytes for text, numbers for numbers, and no float for an integer: all else SQLite converts, or nobody can
                if serial != 0 and ((kind == BYTES) != (serial >= 12) or (serial == 7 and kind != FLOAT64)):
                    info[0] = SURPRISE
                    return record - low
                if kind == BYTES:
                    text_at[outputs[1, output], record - low] = here
                    text_size[outputs[1, output], record - low] = length
                value = _integer(buf, here, serial) if 0 < serial < 12 else int64(0)
                # SQLite reads a float that is no number as NULL
                if serial == 0 or (serial == 7 and (value & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000):
                    bits[outputs[2, output] + (row >> 3)] &= uint8(0xFF ^ (1 << (row & 7)))
                    nulls[output] += 1
                    value = int64(0)
            else:
                output, serial, value = rowid_output, int64(6), rowid[record]
                kind = outputs[0, output]
            place = outputs[1, output] + row
            if kind == FLOAT64:
                if serial == 7:
                    out64[place] = value
                else:
                    out_real[place] = float64(value)
            elif kind != BYTES:
                if not _fits(kind, value):
                    info[0] = SURPRISE
                    return record - low
                if kind == INT64:
                    out64[place] = value
                elif kind == INT32:
                    out32[place] = int32(value)
                elif kind == INT16:
                    out16[place] = int16(value)
                else:
                    out8[place] = int8(value)
    return high - low


PADDING = 8
"""So many bytes must follow the last record in the buffer of `decode_usual`, which reads eight for each value."""

BLOCK = 128
"""So many records at a time `decode_usual` keeps the places of values for."""


TOO_LONG = 1 << 40
"""In the table of lengths: a type that is not usual."""


@inlined
def _number(buf: Bytes, packed: int) -> Any:
    """The integer at a place with a type other than 0, or the bits of the float; eight bytes are read, whatever it takes."""
    here, serial = packed >> 8, packed & 0xFF
    # 64 less eight times the length of each type
    value = load_big(buf, uint64(here)) >> ((int64(0x0024_5670) >> (serial << 2) & 15) << 3)
    return serial - 8 if serial >= 8 else value


@plain_kernel(
    "int64(uint8[::1], int64[::1], int64[::1], int64, int64, int64[:, ::1], int64[:, ::1], int64, int64[:, ::1], "
    "int64[:, ::1], int64[::1], int64[:, ::1], int64[::1], int64[::1], int8[::1], int16[::1], int32[::1], int64[::1], "
    "float64[::1], uint8[::1])"
)
def decode_usual(  # noqa: C901 - as `decode`
    buf: Bytes,
    start: Longs,
    size: Longs,
    low: int,
    high: int,
    fields: NDArray[np.int64],
    outputs: NDArray[np.int64],
    to: int,
    text_at: NDArray[np.int64],
    text_size: NDArray[np.int64],
    nulls: Longs,
    places: NDArray[np.int64],
    lengths: Longs,
    usual: Longs,
    out8: NDArray[np.int8],
    out16: NDArray[np.int16],
    out32: NDArray[np.int32],
    out64: Longs,
    out_real: NDArray[np.float64],
    bits: Bytes,
) -> int:
    """`decode` for records as they usually are, a column at a time; how many were written before one that is not.

    Usual is a record whose header has one byte for its length and each wanted type, whose values have types that their columns
    take whatever the value, and that ends `PADDING` bytes before the end of the buffer. What is not is for `decode` to judge.

    Args:
        buf: As in `decode`, and so all that are not named here.
        start: Where each record starts.
        size: The bytes of each record.
        low: The first record to write.
        high: One past the last.
        fields: The output of each field, or -1.
        outputs: What each output is.
        to: The row of the outputs to write first.
        text_at: Where the bytes of each value lie.
        text_size: How many they are.
        nulls: Nulls of each output.
        places: Room to work in; shape (outputs, at least `BLOCK`).
        lengths: Of `usual_lengths`.
        usual: Of `usual_types`, for each field.
        out8: The memory of all columns.
        out16: As 16-bit integers.
        out32: As 32-bit integers.
        out64: As 64-bit integers.
        out_real: As floats.
        bits: As bytes.
    """
    wanted = fields.shape[1]
    limit = int64(len(buf)) - 8
    done = low
    while done < high:
        # First pass: check records, and keep for each wanted value its place and its type
        many = min(high - done, int64(BLOCK))
        good = int64(0)
        while good < many:
            at = start[uint64(done + good)]
            length = size[uint64(done + good)]
            end = at + length
            if length < 1 or end > limit:
                break
            header = int64(buf[uint64(at)])
            if header <= wanted or header >= 0x80 or header > length:
                break
            here = at + header
            fits = int64(1)
            for field in range(wanted):
                serial = int64(buf[uint64(at + 1 + field)])
                output = fields[0, field]
                if output >= 0:
                    places[uint64(output), uint64(good)] = (here << 8) | serial
                fits &= usual[uint64(field)] >> min(serial, int64(15))
                here += lengths[uint64(serial)]
            if not fits & 1 or here > end:
                break
            good += 1
        # Second pass: each column by itself
        row_at = to + done - low
        for field in range(wanted):
            output = fields[0, field]
            if output < 0:
                continue
            kind = outputs[0, output]
            place = outputs[1, output] + row_at
            bit_at = outputs[2, output]
            empty = int64(0)
            if kind == BYTES:
                text = outputs[1, output]
                for i in range(good):
                    packed = places[uint64(output), uint64(i)]
                    serial = packed & 0xFF
                    text_at[text, done - low + i] = packed >> 8
                    text_size[text, done - low + i] = (serial - 12) >> 1 if serial else int64(0)
                    empty += serial == 0
            elif kind == INT32:
                for i in range(good):
                    packed = places[uint64(output), uint64(i)]
                    out32[uint64(place + i)] = int32(_number(buf, packed))
                    empty += packed & 0xFF == 0
            elif kind == INT64:
                for i in range(good):
                    packed = places[uint64(output), uint64(i)]
                    out64[uint64(place + i)] = _number(buf, packed)
                    empty += packed & 0xFF == 0
            elif kind == INT16:
                for i in range(good):
                    packed = places[uint64(output), uint64(i)]
                    out16[uint64(place + i)] = int16(_number(buf, packed))
                    empty += packed & 0xFF == 0
            elif kind == INT8:
                for i in range(good):
                    packed = places[uint64(output), uint64(i)]
                    out8[uint64(place + i)] = int8(_number(buf, packed))
                    empty += packed & 0xFF == 0
            else:
                for i in range(good):
                    packed = places[uint64(output), uint64(i)]
                    serial = packed & 0xFF
                    value = _number(buf, packed)
                    if serial == 7:
                        out64[uint64(place + i)] = value
                        # SQLite reads a float that is no number as NULL
                        if value & 0x7FFFFFFFFFFFFFFF > 0x7FF0000000000000:
                            places[uint64(output), uint64(i)] = int64(0)
                            empty += 1
                    else:
                        out_real[uint64(place + i)] = float64(value)
                        empty += serial == 0
            if empty:
                nulls[output] += empty
                for i in range(good):
                    if places[uint64(output), uint64(i)] & 0xFF == 0:
                        row = row_at + i
                        bits[bit_at + (row >> 3)] &= uint8(0xFF ^ (1 << (row & 7)))
                        if kind in (FLOAT64, INT64):
                            out64[uint64(place + i)] = int64(0)
                        elif kind == INT32:
                            out32[uint64(place + i)] = int32(0)
                        elif kind == INT16:
                            out16[uint64(place + i)] = int16(0)
                        elif kind == INT8:
                            out8[uint64(place + i)] = int8(0)
        done += good
        if good < many:
            break
    return done - low


def usual_lengths() -> Longs:
    """The bytes of a value of each type that has one byte; for others so many that no record has room for them."""
    import numpy as np

    found = np.full(256, TOO_LONG, np.int64)
    found[:10] = 0, 1, 2, 3, 4, 6, 8, 8, 0, 0
    found[12:128] = (np.arange(12, 128) - 12) >> 1
    return found


def usual_types(kind: int) -> int:
    """The types that a column of `kind` takes whatever the value: a bit for each of 0 to 14, and one for all that follow.

    Args:
        kind: `INT8` to `BYTES`, or -1 for a field that is not wanted.
    """
    if kind < 0:
        return 0xFFFF
    if kind == BYTES:
        return 0xF001
    most = {INT8: 1, INT16: 2, INT32: 4, INT64: 6, FLOAT64: 7}[kind]
    return (1 << (most + 1)) - 1 | 1 << 8 | 1 << 9


@plain_kernel("boolean(uint8[::1], int64[::1], int64[::1], int64, int32[::1], int64, uint8[::1])")
def gather(buf: Bytes, at: Longs, size: Longs, count: int, offsets: NDArray[np.int32], to: int, data: Bytes) -> Any:
    """Copy `count` values out of `buf`, one after the other, into an Arrow string column; whether all of them are ASCII.

    Args:
        buf: Where the values lie.
        at: Where each begins.
        size: The bytes of each.
        count: How many.
        offsets: The column's offsets; `offsets[to]` says where the first goes, and those after it are written.
        to: The row of the column to write first.
        data: The column's bytes, with room for all.
    """
    high = uint64(0)
    place = int64(offsets[to])
    limit, room = int64(len(buf)) - 8, int64(len(data)) - 8
    for i in range(count):
        begin, many = at[i], size[i]
        # Eight bytes at a time; what is too many is written over by the next value
        k = int64(0)
        while k < many and begin + k <= limit and place + k <= room:
            word = load(buf, uint64(begin + k))
            store(data, uint64(place + k), word)
            rest = many - k
            if rest < 8:
                beyond = uint64(64 - 8 * rest)
                word = (word << beyond) if _LOW_FIRST else (word >> beyond)
            high |= word
            k += 8
        while k < many:
            byte = buf[uint64(begin + k)]
            high |= uint64(byte)
            data[uint64(place + k)] = byte
            k += 1
        place += many
        offsets[uint64(to + i + 1)] = int32(place)
    return high & uint64(0x8080_8080_8080_8080) == 0
