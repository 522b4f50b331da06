"""Loops over the b-tree pages and the records of an SQLite file.

All positions come from the file, so the functions check each against the page or the record before they read.
Layout: https://www.sqlite.org/fileformat2.html, sections 1.6 and 2.1.

`children`, `cells` and `decode` report errors in `info`: `info[0]` is a code (`NOT_A_PAGE` to `NULL_VALUE`,
`SURPRISE`), `info[1]` the index of the page or of the record. They reject whatever SQLite's `PRAGMA integrity_check`
rejects in a table, including what SQLite ignores when it reads, such as unused bytes of a page that are not counted as
free.
"""

from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

# The first byte of a page: its type
cpdef enum:
    INTERIOR = 0x05
    LEAF = 0x0D

# The values that a column accepts
cpdef enum:
    INT8 = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    FLOAT64 = 4
    BYTES = 5

# Errors in a page or a record
cpdef enum:
    NOT_A_PAGE = 1
    TOO_MANY_CELLS = 2
    CELL_OUTSIDE = 3
    NO_SUCH_PAGE = 4
    USED_TWICE = 5
    CELL_TOO_LARGE = 6
    OUT_OF_ORDER = 7
    RECORD_TOO_LARGE = 8
    OVERLAP = 9
    BAD_HEADER = 10
    BAD_VALUES = 11
    EMPTY_PAGE = 12
    BAD_SPACE = 13
    NULL_VALUE = 14
    # a valid record, but its column does not accept the value as it is, or it lacks a column with a default
    SURPRISE = 100

cdef enum:
    MIN_USABLE = 480  # set by the file format
    MAX_RECORD = 1000000000  # SQLite's limit for a row, in its default build


cdef inline Py_ssize_t varint(const uint8_t* data, Py_ssize_t at, Py_ssize_t end, int64_t* value) noexcept nogil:
    """Read the varint at `at`; returns its end, or -1 if it does not end before `end`. `data` has at least `end`
    bytes."""
    cdef uint64_t bits = 0
    cdef Py_ssize_t i, stop = min(at + 8, end)
    for i in range(at, stop):
        bits = (bits << 7) | (data[i] & 0x7F)
        if data[i] < 0x80:
            value[0] = <int64_t>bits
            return i + 1
    if at + 8 >= end:
        return -1
    value[0] = <int64_t>((bits << 8) | data[at + 8])
    return at + 9


cdef inline int64_t big_endian_2(const uint8_t* data) noexcept nogil:
    return (<int64_t>data[0] << 8) | data[1]


cdef inline int64_t big_endian_4(const uint8_t* data) noexcept nogil:
    return (<int64_t>data[0] << 24) | (<int64_t>data[1] << 16) | (<int64_t>data[2] << 8) | data[3]


cdef inline uint64_t big_endian_8(const uint8_t* data) noexcept nogil:
    # compilers turn this into one load
    return (
        (<uint64_t>data[0] << 56) | (<uint64_t>data[1] << 48) | (<uint64_t>data[2] << 40) | (<uint64_t>data[3] << 32)
        | (<uint64_t>data[4] << 24) | (<uint64_t>data[5] << 16) | (<uint64_t>data[6] << 8) | <uint64_t>data[7]
    )


cdef int check_pages(Py_ssize_t size, Py_ssize_t pages, Py_ssize_t page_size, Py_ssize_t usable) except -1:
    """Raise ValueError if `size` bytes are too few for the pages."""
    if not MIN_USABLE <= usable <= page_size or not 0 <= pages <= size // page_size:
        raise ValueError(f"{pages} pages of {page_size} bytes ({usable} of them usable) do not lie in {size} bytes")
    return 0


cdef inline Py_ssize_t refuse(int64_t[::1] info, int64_t problem, Py_ssize_t result) except? -1 nogil:
    """Write the error to `info`; returns `result`."""
    info[0] = problem
    return result


cdef bint cover(uint8_t* used, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    """Mark the bytes of a page from `begin` to `end` as used; returns whether all were unused."""
    cdef Py_ssize_t at
    for at in range(begin, end):
        if used[at]:
            return False
        used[at] = 1
    return True


cdef bint space_is_sound(const uint8_t* page, Py_ssize_t first, Py_ssize_t usable, uint8_t* used) noexcept nogil:
    """Whether each byte of a page's content belongs to one cell or free block, or is counted as a fragment (section
    1.6).

    Args:
        page: The page.
        first: The end of the pointers to its cells.
        usable: Number of its usable bytes.
        used: A mark for each of them: 1 for bytes of cells, which do not overlap. The marks of free blocks are set
            here.
    """
    cdef Py_ssize_t content = big_endian_2(page + 5), block = big_endian_2(page + 1), following, size, at
    cdef Py_ssize_t free = 0, unused = 0
    if content == 0:
        content = 65536
    if content > usable or (block and block < content):
        return False
    while block:
        if block + 4 > usable:
            return False
        following = big_endian_2(page + block)
        size = big_endian_2(page + block + 2)
        if block + size > usable or (following and following < block + size + 4) or not cover(
            used, block, block + size
        ):
            return False
        free += size
        block = following
    for at in range(first, min(content, usable)):
        if used[at]:
            return False
    for at in range(content, usable):
        unused += not used[at]
    return unused == page[7] and content + free + page[7] >= first


cpdef Py_ssize_t children(
    const uint8_t[::1] buf,
    Py_ssize_t pages,
    Py_ssize_t page_size,
    Py_ssize_t usable,
    int64_t page_count,
    int64_t lock_page,
    uint8_t[::1] seen,
    const int64_t[::1] most,
    uint32_t[::1] out,
    int64_t[::1] out_most,
    int64_t[::1] info,
) except? -1:
    """The children of interior pages, in key order; returns how many there are, or -1 if a page is invalid (see
    `info`).

    Args:
        buf: The pages, one after the other.
        pages: How many.
        page_size: Bytes of a page.
        usable: Bytes of a page without the reserved ones; at least 480.
        page_count: Pages of the file.
        lock_page: The page that SQLite never uses, because its locks are there.
        seen: Shape (page_count + 1,): 1 for each page in use; set here for the children.
        most: The largest row number that each page may have below it.
        out: Out: the page numbers; space for `pages * ((usable - 12) // 2 + 1)`.
        out_most: Out: the largest row number that each of them may have; as much space.
        info: Out: the error, and the index of the page.
    """
    check_pages(buf.shape[0], pages, page_size, usable)
    cdef const uint8_t* page
    cdef Py_ssize_t index, cell, count, first, at, stop, written = 0
    cdef int64_t child, key = 0
    cdef uint8_t used[65536]
    with nogil:
        for index in range(pages):
            page = &buf[index * page_size]  # with `usable` bytes, as `check_pages` checked
            info[1] = index
            if page[0] != INTERIOR:
                return refuse(info, NOT_A_PAGE, -1)
            count = big_endian_2(page + 3)
            first = 12 + 2 * count
            if first > usable:
                return refuse(info, TOO_MANY_CELLS, -1)
            if count == 0:
                return refuse(info, EMPTY_PAGE, -1)
            memset(used, 0, usable)
            for cell in range(count + 1):
                at = 8  # the position of the last child
                key = most[index]
                if cell < count:
                    at = big_endian_2(page + 12 + 2 * cell)
                    if at < first or at + 5 > usable:
                        return refuse(info, CELL_OUTSIDE, -1)
                    stop = varint(page, at + 4, usable, &key)
                    if stop < 0:
                        return refuse(info, CELL_OUTSIDE, -1)
                    if not cover(used, at, stop):
                        return refuse(info, OVERLAP, -1)
                child = big_endian_4(page + at)
                if child < 2 or child > page_count or child == lock_page:
                    return refuse(info, NO_SUCH_PAGE, -1)
                if seen[child]:
                    return refuse(info, USED_TWICE, -1)
                seen[child] = 1
                out[written] = <uint32_t>child
                out_most[written] = key
                written += 1
            if not space_is_sound(page, first, usable, used):
                return refuse(info, BAD_SPACE, -1)
    return written


cdef inline int64_t local_bytes(int64_t size, int64_t usable) noexcept nogil:
    cdef int64_t most = usable - 35, least, local
    if size <= most:
        return size
    least = (usable - 12) * 32 // 255 - 23
    local = least + (size - least) % (usable - 4)
    return local if local <= most else least


def local_size(int64_t size, int64_t usable):
    """Bytes of a record of `size` bytes that are in its leaf page; the rest is on overflow pages (section 1.6).

    `usable` is the bytes of a page without the reserved ones, at least 480.
    """
    if usable < MIN_USABLE:
        raise ValueError(f"a page has at least {MIN_USABLE} usable bytes, not {usable}")
    return local_bytes(size, usable)


cpdef Py_ssize_t cells(
    const uint8_t[::1] buf,
    Py_ssize_t pages,
    Py_ssize_t page_size,
    Py_ssize_t usable,
    bint alone,
    const int64_t[::1] most,
    int64_t[::1] start,
    int64_t[::1] size,
    int64_t[::1] rowid,
    int64_t[::1] overflow,
    int64_t[::1] info,
) except? -1:
    """The positions of the records of leaf pages; returns how many there are, or -1 if a page is invalid (see `info`).

    Args:
        buf: The pages, one after the other.
        pages: How many.
        page_size: Bytes of a page.
        usable: Bytes of a page without the reserved ones; at least 480.
        alone: Whether there is one page, which is the root of its table; only such a page may be empty.
        most: The largest row number that each page may have; the next page has larger ones only.
        start: Out: the start of each record in `buf`; space for `pages * ((usable - 8) // 6)`, as in the next three.
        size: Out: the bytes of the whole record.
        rowid: Out: the row number.
        overflow: Out: the first overflow page, or 0.
        info: Out: the error, and the index of the page. In and out: `info[2]`, the last row number, and `info[3]`,
            whether there is one.
    """
    check_pages(buf.shape[0], pages, page_size, usable)
    cdef const uint8_t* page
    cdef Py_ssize_t index, cell, count, begin, first, room, at, stop, lowest, written = 0
    cdef bint in_a_row
    cdef int64_t length = 0, row = 0, more, last = info[2]
    cdef bint long_record, has_last = info[3] != 0
    cdef uint8_t used[65536]
    with nogil:
        for index in range(pages):
            page = &buf[index * page_size]  # with `usable` bytes, as `check_pages` checked
            info[1] = index
            if page[0] != LEAF:
                return refuse(info, NOT_A_PAGE, -1)
            count = big_endian_2(page + 3)
            if count > (usable - 8) // 6:
                return refuse(info, TOO_MANY_CELLS, -1)
            if count == 0 and not alone:
                return refuse(info, EMPTY_PAGE, -1)
            first = 8 + 2 * count
            room = usable - first
            lowest = usable
            in_a_row = True
            for cell in range(count):
                begin = big_endian_2(page + 8 + 2 * cell)
                if begin < first or begin >= usable:
                    return refuse(info, CELL_OUTSIDE, -1)
                at = varint(page, begin, usable, &length)
                if at >= 0:
                    at = varint(page, at, usable, &row)
                if at < 0:
                    return refuse(info, CELL_OUTSIDE, -1)
                if length < 0 or length > MAX_RECORD:
                    return refuse(info, RECORD_TOO_LARGE, -1)
                long_record = length > usable - 35
                stop = at + (local_bytes(length, usable) + 4 if long_record else length)
                if stop > usable:
                    return refuse(info, CELL_TOO_LARGE, -1)
                more = big_endian_4(page + stop - 4) if long_record else 0
                if long_record and more < 2:
                    return refuse(info, NO_SUCH_PAGE, -1)
                room -= stop - begin
                if room < 0:
                    return refuse(info, OVERLAP, -1)
                # rows that were appended are adjacent, each before the previous one
                in_a_row = in_a_row and max(stop, begin + 4) == lowest
                lowest = begin
                if has_last and row <= last:
                    return refuse(info, OUT_OF_ORDER, -1)
                last = row
                has_last = True
                start[written] = index * page_size + at
                size[written] = length
                rowid[written] = row
                overflow[written] = more
                written += 1
            if not (in_a_row and lowest == big_endian_2(page + 5) and big_endian_2(page + 1) == 0 and page[7] == 0):
                memset(used, 0, usable)
                for cell in range(count):
                    begin = big_endian_2(page + 8 + 2 * cell)
                    at = varint(page, varint(page, begin, usable, &length), usable, &row)
                    stop = at + (local_bytes(length, usable) + 4 if length > usable - 35 else length)
                    if max(stop, begin + 4) > usable or not cover(used, begin, max(stop, begin + 4)):
                        return refuse(info, OVERLAP, -1)
                if not space_is_sound(page, first, usable, used):
                    return refuse(info, BAD_SPACE, -1)
            if has_last and last > most[index]:
                return refuse(info, OUT_OF_ORDER, -1)
            if count or not alone:
                last = most[index]
                has_last = True
    info[2] = last
    info[3] = has_last
    return written


cdef inline int64_t value_size(int64_t serial) noexcept nogil:
    """Bytes of a value of a serial type; negative for one that does not exist, or that SQLite reserves (section
    2.1)."""
    if serial >= 12:
        return (serial - 12) >> 1
    if serial <= 4:
        return serial
    if serial >= 10:
        return -1
    if serial >= 8:
        return 0
    return 6 if serial == 5 else 8


# By serial type, as branches on it are hard to predict: the size of a value, and the operations that make a number of
# eight bytes
cdef int8_t SIZES[0x80]
cdef uint8_t SHIFTS[10]
cdef int64_t MASKS[10]
# By what a column accepts: the serial types, a bit for each of 0 to 14, and bit 15 for 15 and above
cdef uint16_t ACCEPTED[6]


cdef void fill_tables() noexcept:
    cdef int64_t serial, kind
    for serial in range(0x80):
        SIZES[serial] = <int8_t>value_size(serial)
    for serial in range(10):
        SHIFTS[serial] = <uint8_t>min(64 - 8 * SIZES[serial], 63)
        MASKS[serial] = -1 if SIZES[serial] > 0 else 0
    # A column of integers accepts no floats, and only text accepts bytes: SQLite must convert, or reject, everything
    # else
    for kind in range(INT8, FLOAT64):
        ACCEPTED[kind] = 0x3FF & ~(1 << 7)
    ACCEPTED[FLOAT64] = 0x3FF
    ACCEPTED[BYTES] = 0xF001


fill_tables()


cdef inline Py_ssize_t serial_type(
    const uint8_t* data, Py_ssize_t at, Py_ssize_t end, int64_t* serial, int64_t* length
) noexcept nogil:
    """The serial type in a record's header at `at` and the bytes of its value, negative for an invalid type; returns
    the next position."""
    serial[0] = data[at]
    if serial[0] < 0x80:
        length[0] = SIZES[serial[0]]
        return at + 1
    at = varint(data, at, end, serial)
    length[0] = value_size(serial[0]) if at >= 0 else -1
    return at


cdef inline int64_t number(const uint8_t* data, Py_ssize_t at, Py_ssize_t total, int64_t serial) noexcept nogil:
    """The number of serial type 0 to 9: 0 for a null, an integer, or the bits of a float.

    Its bytes are in `data`, which has `total` bytes.
    """
    cdef uint64_t bits = 0
    cdef Py_ssize_t i
    if at + 8 <= total:
        bits = big_endian_8(data + at)
    else:
        for i in range(SIZES[serial]):
            bits |= <uint64_t>data[at + i] << (56 - 8 * i)
    return ((<int64_t>bits >> SHIFTS[serial]) & MASKS[serial]) | (serial == 9)


cdef inline int64_t float_bits(double value) noexcept nogil:
    cdef int64_t bits
    memcpy(&bits, &value, 8)
    return bits


# The columns of `fields` of `decode`
cdef enum:
    OUTPUT = 0
    HAS_DEFAULT = 1
    NOT_NULL = 2
    KIND = 3
    BEGIN = 4
    BITS_BEGIN = 5
    FIELD_COLUMNS = 6


cpdef Py_ssize_t decode(
    const uint8_t[::1] buf,
    const int64_t[::1] start,
    const int64_t[::1] size,
    const int64_t[::1] rowid,
    Py_ssize_t low,
    Py_ssize_t high,
    const int64_t[:, ::1] fields,
    int64_t rowid_kind,
    Py_ssize_t rowid_begin,
    Py_ssize_t first_row,
    int64_t[:, ::1] text_at,
    int64_t[:, ::1] text_size,
    int64_t[::1] nulls,
    int64_t[::1] info,
    int8_t[::1] out8,
    int16_t[::1] out16,
    int32_t[::1] out32,
    int64_t[::1] out64,
    uint8_t[::1] bits,
) except? -1:
    """Write the wanted values of the records `low` to `high` into columns; returns how many records were written.

    If these are fewer than `high - low`, the next record is invalid or a `SURPRISE` (see `info`).

    Args:
        buf: The bytes with the records.
        start: The start of each record.
        size: The bytes of each record.
        rowid: The row number of each record.
        low: The first record to write.
        high: One past the last.
        fields: For each column of the table, shape (fields, 6): the output column that it goes to, or -1; whether it
            has a default; whether it may not be null; what the output accepts (`INT8` to `BYTES`); where it begins, in
            items of its type (for `BYTES`: its row in `text_at`); the byte at which its validity bits begin in `bits`.
        rowid_kind: What the column of row numbers accepts, or -1 for no such column.
        rowid_begin: Where it begins, in items of its type.
        first_row: The row of the columns to write first.
        text_at: Out: the start of the bytes of each value in `buf`; shape (text columns, records), counted from `low`.
        text_size: Out: their number; 0 for a null.
        nulls: In and out: nulls of each column.
        info: Out: the error, and the record.
        out8: Out: the memory of all columns, as 8-bit integers; the next four are the same memory as other types.
        out16: As 16-bit integers.
        out32: As 32-bit integers.
        out64: As 64-bit integers, or the bits of floats.
        bits: As bytes; validity bits are set on entry, and cleared for nulls.
    """
    cdef const uint8_t* data = &buf[0] if buf.shape[0] else NULL
    cdef const int64_t* step
    cdef Py_ssize_t total = buf.shape[0], columns = fields.shape[0], wanted = 0, steps
    cdef Py_ssize_t record, field, row, at, end, head, head_end, here, value_at, place
    cdef int64_t header = 0, serial = 0, length = 0, kind, value
    if fields.shape[1] != FIELD_COLUMNS:
        raise ValueError(f"a field has {FIELD_COLUMNS} numbers, not {fields.shape[1]}")
    for field in range(columns):
        if fields[field, OUTPUT] >= 0:
            wanted = field + 1
            if not INT8 <= fields[field, KIND] <= BYTES:
                raise ValueError(f"no column takes {fields[field, KIND]}")
    steps = wanted + 1 if rowid_kind >= 0 else wanted
    if not -1 <= rowid_kind <= FLOAT64:
        raise ValueError(f"no column of row numbers takes {rowid_kind}")
    with nogil:
        for record in range(low, high):
            row = first_row + record - low
            info[1] = record
            at = start[record]
            length = size[record]
            if at < 0 or at > total or length < 0 or length > total - at:
                return refuse(info, BAD_VALUES, record - low)
            end = at + length
            # From here on 0 <= at <= head <= head_end <= value_at <= end <= total
            head = varint(data, at, end, &header)
            if head < 0 or header < head - at or header > end - at:
                return refuse(info, BAD_HEADER, record - low)
            head_end = at + header
            value_at = head_end
            # The row number comes last, as if it were one more field
            for field in range(steps):
                if field < wanted:
                    here = value_at
                    step = &fields[field, 0]  # has `FIELD_COLUMNS` numbers, checked above
                    serial = 0
                    length = 0
                    if head < head_end:
                        head = serial_type(data, head, head_end, &serial, &length)
                        if length < 0 or length > end - here:
                            return refuse(info, BAD_HEADER if length < 0 else BAD_VALUES, record - low)
                        value_at += length
                    elif step[HAS_DEFAULT]:
                        if step[OUTPUT] >= 0:
                            return refuse(info, SURPRISE, record - low)
                        continue
                    if serial == 0 and step[NOT_NULL]:
                        return refuse(info, NULL_VALUE, record - low)
                    if step[OUTPUT] < 0:
                        continue
                    kind = step[KIND]
                    if not (ACCEPTED[kind] >> min(serial, 15)) & 1:
                        return refuse(info, SURPRISE, record - low)
                    value = 0
                    if kind == BYTES:
                        text_at[step[BEGIN], record - low] = here
                        text_size[step[BEGIN], record - low] = length
                    else:
                        value = number(data, here, total, serial)
                    # SQLite reads a NaN as NULL
                    if serial == 0 or (serial == 7 and (value & INT64_MAX) > (<int64_t>0x7FF << 52)):
                        bits[step[BITS_BEGIN] + (row >> 3)] &= <uint8_t>(0xFF ^ (1 << (row & 7)))
                        nulls[step[OUTPUT]] += 1
                        value = 0
                    place = step[BEGIN] + row
                else:
                    kind = rowid_kind
                    serial = 6
                    value = rowid[record]
                    place = rowid_begin + row
                if kind == INT64:
                    out64[place] = value
                elif kind == FLOAT64:
                    out64[place] = value if serial == 7 else float_bits(<double>value)
                elif kind == INT32:
                    if value != <int32_t>value:
                        return refuse(info, SURPRISE, record - low)
                    out32[place] = <int32_t>value
                elif kind == INT16:
                    if value != <int16_t>value:
                        return refuse(info, SURPRISE, record - low)
                    out16[place] = <int16_t>value
                elif kind == INT8:
                    if value != <int8_t>value:
                        return refuse(info, SURPRISE, record - low)
                    out8[place] = <int8_t>value
            # the fields after the last wanted one only have to fit into the record
            for field in range(wanted, columns):
                if head >= head_end:
                    if fields[field, NOT_NULL] and not fields[field, HAS_DEFAULT]:
                        return refuse(info, NULL_VALUE, record - low)
                    continue
                head = serial_type(data, head, head_end, &serial, &length)
                if length < 0 or length > end - value_at:
                    return refuse(info, BAD_HEADER if length < 0 else BAD_VALUES, record - low)
                if serial == 0 and fields[field, NOT_NULL]:
                    return refuse(info, NULL_VALUE, record - low)
                value_at += length
            # SQLite ignores fields for which the table has no column
            if head == head_end and value_at != end:
                return refuse(info, BAD_VALUES, record - low)
    return high - low


cpdef bint gather(
    const uint8_t[::1] buf,
    const int64_t[::1] at,
    const int64_t[::1] size,
    Py_ssize_t count,
    int32_t[::1] offsets,
    Py_ssize_t to,
    uint8_t[::1] data,
) except? -1:
    """Copy `count` values out of `buf`, one after the other, into an Arrow string column; returns whether all of them
    are ASCII.

    Args:
        buf: The bytes with the values.
        at: The start of each value.
        size: The bytes of each.
        count: The number of values.
        offsets: In and out: the column's offsets; `offsets[to]` is where the first value goes, and those after it are
            written.
        to: The row of the column to write first.
        data: Out: the column's bytes, with space for all; fewer than 2**31.
    """
    cdef Py_ssize_t i, begin, length, first = offsets[to], place = first, limit = buf.shape[0], room = data.shape[0]
    cdef const uint8_t* copied
    cdef uint8_t high = 0
    if first < 0:
        raise IndexError("the offset is negative")
    with nogil:
        for i in range(count):
            begin = at[i]
            length = size[i]
            if begin < 0 or length < 0 or length > limit - begin or length > room - place:
                with gil:
                    raise IndexError(
                        f"value {i} of {length} bytes at {begin}: not in {limit} bytes, or no room in {room - place}")
            if length > 0:
                memcpy(&data[place], &buf[begin], length)
                place += length
            offsets[to + i + 1] = <int32_t>place
        if place > first:
            copied = &data[first]  # up to `place`, which the loop above has checked
            for i in range(place - first):
                high |= copied[i]
    return high < 0x80
