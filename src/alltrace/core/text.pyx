"""Writers of text: rows of CSV, records and lines of exports; also sorting of records and rows.

Writers fill a buffer of the caller. They compare the size of each cell with the space left in the buffer before they
write it, and the bounds of a text with the array that contains it before they copy it, so they neither read nor write
out of bounds. If a bound is wrong, they raise ValueError; the content of the buffer is then undefined.

Texts are pieces of a uint8 array; piece k is the bytes from `offsets[k]` to `offsets[k + 1]`. Numbers are written in
decimal.
"""

from libc.stdint cimport INT64_MIN, int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cpdef enum:  # kinds of a column of CSV
    NUMBER = 0
    NUMBER_OR_NULL = 1
    NAME = 2
    CELL = 3

cpdef enum:  # kinds of a field of a record
    TEXT = 0
    INT = 1
    MICROSECONDS = 2
    VARINT = 3
    FIXED64 = 4

cpdef enum:  # what follows a piece of text of a Paraver line
    STOP = 0
    VALUE = 1
    LATER = 2
    NEXT = 3
    AGAIN = 4
    OBJECT = 5
    LOW = 6
    HIGH = 7
    LAST_HIGH = 8

cdef enum:
    E4 = 10000

NULL_NUMBER = INT64_MIN
"""Null in a `NUMBER_OR_NULL` column."""

cdef const char *PAIRS = (
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
    "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899"
)


cdef struct Bytes:
    uint8_t *data
    Py_ssize_t size


cdef struct Pieces:
    const uint8_t *data
    Py_ssize_t size


cdef Bytes bytes_of(uint8_t[::1] out) except *:
    cdef Bytes span
    span.data = &out[0] if out.shape[0] > 0 else NULL
    span.size = out.shape[0]
    return span


cdef Pieces pieces_of(const uint8_t[::1] text) except *:
    cdef Pieces pieces
    pieces.data = &text[0] if text.shape[0] > 0 else NULL
    pieces.size = text.shape[0]
    return pieces


cdef int refuse_room() except -1 nogil:
    with gil:
        raise ValueError("the buffer has too little room for the text")


cdef int refuse_bounds() except -1 nogil:
    with gil:
        raise ValueError("a piece of text lies outside of the texts")


cdef inline int need(Bytes out, Py_ssize_t at, Py_ssize_t size) except -1 nogil:
    """Raise ValueError unless `size` more bytes fit; the caller may then write up to that many."""
    if out.size - at < size:
        refuse_room()
    return 0


# The functions below write at `at`, and return the position after what they wrote.


cdef inline Py_ssize_t put_byte(Bytes out, Py_ssize_t at, uint8_t byte) except -1 nogil:
    need(out, at, 1)
    out.data[at] = byte
    return at + 1


cdef inline void copy(uint8_t *to, const uint8_t *source, Py_ssize_t size) noexcept nogil:
    """`memcpy`, without a call for short pieces: two copies of a fixed size, which may overlap, make any size
    between."""
    cdef uint64_t first, last
    cdef uint32_t first_half, last_half
    if size > 16:
        memcpy(to, source, size)
    elif size >= 8:
        memcpy(&first, source, 8)
        memcpy(&last, source + size - 8, 8)
        memcpy(to, &first, 8)
        memcpy(to + size - 8, &last, 8)
    elif size >= 4:
        memcpy(&first_half, source, 4)
        memcpy(&last_half, source + size - 4, 4)
        memcpy(to, &first_half, 4)
        memcpy(to + size - 4, &last_half, 4)
    else:
        while size > 0:
            size -= 1
            to[size] = source[size]


cdef inline Py_ssize_t put_piece(Bytes out, Py_ssize_t at, Pieces text, int64_t start, int64_t stop) except -1 nogil:
    """Write the bytes of `text` from `start` to `stop`."""
    if not 0 <= start <= stop <= text.size:
        refuse_bounds()
    need(out, at, stop - start)
    copy(out.data + at, text.data + start, stop - start)
    return at + stop - start


cdef inline int count_digits(uint64_t u) noexcept nogil:
    cdef int count = 1
    while u >= E4:
        u //= E4
        count += 4
    return count + (u >= 10) + (u >= 100) + (u >= 1000)


cdef inline Py_ssize_t put_number(Bytes out, Py_ssize_t at, uint64_t u) except -1 nogil:
    cdef int count = count_digits(u)
    cdef uint8_t *to = out.data + at + count
    need(out, at, count)
    while u >= 100:
        to -= 2
        memcpy(to, PAIRS + 2 * (u % 100), 2)
        u //= 100
    if u >= 10:
        memcpy(to - 2, PAIRS + 2 * u, 2)
    else:
        to -= 1
        to[0] = <uint8_t>(c"0" + u)
    return at + count


cdef inline Py_ssize_t put_signed(Bytes out, Py_ssize_t at, int64_t v) except -1 nogil:
    cdef uint64_t u = <uint64_t>v
    if v < 0:
        at = put_byte(out, at, c"-")
        u = 0 - u
    return put_number(out, at, u)


def write_csv_rows(
    const int8_t[::1] kinds,
    const int64_t[:, ::1] values,
    const uint8_t[::1] names,
    const int64_t[::1] name_offsets,
    const uint8_t[::1] texts,
    uint8_t[::1] out,
):
    """Write n rows of CSV, one line each; returns the bytes written. The empty cell of a single column is written as
    `""`.

    `kinds` has the kind of each of the c columns. `values` (c, n + 1) has the numbers of a column; for `NAME`, the
    piece of `names` of each row, negative for null; for `CELL`, the start of each cell in `texts`, and the end of the
    last one. For other kinds the last value is not read.
    """
    cdef Bytes written = bytes_of(out)
    cdef Pieces all_names = pieces_of(names), all_texts = pieces_of(texts)
    cdef Py_ssize_t row, column, begun, at = 0, columns = kinds.shape[0]
    cdef int64_t value
    cdef int8_t kind
    with nogil:
        for row in range(values.shape[1] - 1):
            begun = at
            for column in range(columns):
                if column > 0:
                    at = put_byte(written, at, c",")
                kind = kinds[column]
                value = values[column, row]
                if kind == NUMBER:
                    at = put_signed(written, at, value)
                elif kind == NUMBER_OR_NULL:
                    if value != INT64_MIN:
                        at = put_signed(written, at, value)
                elif kind == NAME:
                    if value >= 0:
                        at = put_piece(written, at, all_names, name_offsets[value], name_offsets[value + 1])
                else:
                    at = put_piece(written, at, all_texts, value, values[column, row + 1])
            if columns == 1 and at == begun:
                at = put_byte(written, at, c'"')
                at = put_byte(written, at, c'"')
            at = put_byte(written, at, c"\n")
    return at


cdef inline Py_ssize_t put_microseconds(Bytes out, Py_ssize_t at, int64_t ns) except -1 nogil:
    cdef uint64_t u = <uint64_t>ns
    cdef uint32_t rest
    if ns < 0:
        at = put_byte(out, at, c"-")
        u = 0 - u
    at = put_number(out, at, u // 1000)
    rest = <uint32_t>(u % 1000)
    need(out, at, 4)
    out.data[at] = c"."
    out.data[at + 1] = <uint8_t>(c"0" + rest // 100)
    memcpy(out.data + at + 2, PAIRS + 2 * (rest % 100), 2)
    return at + 4


cdef inline Py_ssize_t put_varint(Bytes out, Py_ssize_t at, uint64_t u) except -1 nogil:
    while u >= 128:
        at = put_byte(out, at, <uint8_t>(u & 127) | 128)
        u >>= 7
    return put_byte(out, at, <uint8_t>u)


cdef inline Py_ssize_t put_fixed64(Bytes out, Py_ssize_t at, uint64_t u) except -1 nogil:
    cdef int k
    need(out, at, 8)
    for k in range(8):
        out.data[at + k] = <uint8_t>(u >> (8 * k))
    return at + 8


def write_records(
    const int8_t[::1] kinds,
    const int64_t[::1] sources,
    const int64_t[::1] constants,
    const int64_t[:, ::1] values,
    const int64_t[::1] offsets,
    const uint8_t[::1] texts,
    int64_t[::1] lengths,
    uint8_t[::1] out,
):
    """Write n records one after the other and fill `lengths` (n) with the bytes of each; returns the bytes written.

    A record has f fields. `kinds` (f) are: `TEXT`, the number of a piece of `texts` (see `offsets`), negative for no
    text; `INT`, a decimal number; `MICROSECONDS`, ns as microseconds with three decimals; `VARINT` and `FIXED64` as in
    protobuf. `sources` (f) is the row of `values` (rows, n) from which a field takes its values, -1 for its constant,
    which is in `constants` (f).
    """
    cdef Bytes written = bytes_of(out)
    cdef Pieces all_texts = pieces_of(texts)
    cdef Py_ssize_t i, field, begun, at = 0
    cdef int64_t value
    cdef int8_t kind
    with nogil:
        for i in range(lengths.shape[0]):
            begun = at
            for field in range(kinds.shape[0]):
                kind = kinds[field]
                value = constants[field] if sources[field] < 0 else values[sources[field], i]
                if kind == TEXT:
                    if value >= 0:
                        at = put_piece(written, at, all_texts, offsets[value], offsets[value + 1])
                elif kind == INT:
                    at = put_signed(written, at, value)
                elif kind == MICROSECONDS:
                    at = put_microseconds(written, at, value)
                elif kind == VARINT:
                    at = put_varint(written, at, <uint64_t>value)
                else:
                    at = put_fixed64(written, at, <uint64_t>value)
            lengths[i] = at - begun
    return at


def gather_records(
    const uint8_t[::1] texts, const int64_t[::1] starts, const int32_t[::1] lengths, const int64_t[::1] order,
        uint8_t[::1] out
):
    """Copy records, each given by its start in `texts` and its length in bytes, into `out` in `order`."""
    cdef Bytes written = bytes_of(out)
    cdef Pieces all_texts = pieces_of(texts)
    cdef Py_ssize_t i, at = 0
    cdef int64_t start
    with nogil:
        for i in range(order.shape[0]):
            start = starts[order[i]]
            at = put_piece(written, at, all_texts, start, start + lengths[order[i]])


def columns_in_order(const int64_t[:, ::1] rows, const int64_t[::1] order, Py_ssize_t few, int64_t[:, ::1] out):
    """Rows sorted by their first two columns, written column by column; returns whether a run was too long to sort.

    `rows` is (n, k), `order` has the indices of the rows in the order of the first column, `out` (k, n) is filled. Runs
    of rows with equal first columns are sorted by the second if they have at most `few` rows.
    """
    cdef Py_ssize_t i, at, column, row, begun = 0, columns = rows.shape[1]
    cdef int64_t key, second
    cdef bint many = False
    with nogil:
        for i in range(order.shape[0]):
            row = order[i]
            key = rows[row, 0]
            second = rows[row, 1]
            if i > begun and out[0, i - 1] != key:
                begun = i
            at = i
            if i > begun and out[1, i - 1] > second:
                if i - begun >= few:
                    many = True
                else:
                    while at > begun and out[1, at - 1] > second:
                        for column in range(1, columns):
                            out[column, at] = out[column, at - 1]
                        at -= 1
            out[0, i] = key
            for column in range(1, columns):
                out[column, at] = rows[row, column]
    return many


def write_paraver_lines(
    const int64_t[:, ::1] rows,
    const int64_t[::1] order,
    Py_ssize_t first,
    const uint8_t[::1] heads,
    const int64_t[::1] head_offsets,
    Py_ssize_t objects,
    const int64_t[::1] variants,
    const int64_t[::1] steps,
    const int8_t[::1] kinds,
    const uint8_t[::1] texts,
    const int64_t[::1] text_offsets,
    uint8_t[::1] out,
    Py_ssize_t most_bytes,
    const int64_t[::1] first_shapes=None,
    const int64_t[::1] known_as=None,
):
    """Write lines of a .prv from packed rows (see `alltrace.export.paraver.lines`); returns the bytes written, and the
    next position.

    `rows` (n, 2) are keys and words, `order` their order, `first` the position in it at which to begin; the returned
    position is the one at which to continue. `heads` are the texts of objects, for each variant all `objects` of them;
    `variants` has the variant that each shape begins with, `steps` the index of its first step, `kinds` the kind of
    each step, and `texts` the text before what each step writes. No line begins after `most_bytes`.

    If `first_shapes` is given and the highest bit of a word is not set, its shape is a number that the task of its
    object assigned. `first_shapes` then has, for each object, the index in `known_as` of the task's first shape, and
    `known_as` the numbers to use.
    """
    cdef bint by_task = first_shapes is not None
    cdef Bytes written = bytes_of(out)
    cdef Pieces all_heads = pieces_of(heads), all_texts = pieces_of(texts)
    cdef Py_ssize_t row, head, begun, size, step, at = 0, i = first
    cdef int64_t time, shape
    cdef uint64_t word, value
    cdef int8_t kind
    with nogil:
        while i < order.shape[0] and at <= most_bytes:
            row = order[i]
            i += 1
            time = rows[row, 0] >> 3  # 8 keys for each time
            word = <uint64_t>rows[row, 1]
            shape = <int64_t>(word >> 48)
            value = <uint32_t>word
            head = <Py_ssize_t>(word >> 32 & 0xFFFF)
            if shape & 0x8000:
                shape &= 0x7FFF
            elif by_task:
                shape = known_as[first_shapes[head] + shape]
            head += variants[shape] * objects
            begun = at
            at = put_piece(written, at, all_heads, head_offsets[head], head_offsets[head + 1])
            at = put_signed(written, at, time)
            size = at - begun
            step = steps[shape]
            while True:
                at = put_piece(written, at, all_texts, text_offsets[step], text_offsets[step + 1])
                kind = kinds[step]
                step += 1
                if kind == STOP:
                    break
                if kind == VALUE:
                    at = put_number(written, at, value)
                elif kind == LATER:
                    at = put_signed(written, at, time + <int64_t>value)
                elif kind == NEXT:
                    at = put_signed(written, at, rows[order[i], 1])
                    i += 1
                elif kind == AGAIN:
                    need(written, at, size)
                    copy(written.data + at, written.data + begun, size)
                    at += size
                elif kind == OBJECT:
                    head = 3 * objects + <Py_ssize_t>value
                    at = put_piece(written, at, all_heads, head_offsets[head], head_offsets[head + 1])
                elif kind == LOW:
                    at = put_signed(written, at, time + <int64_t><uint32_t>rows[order[i], 1])
                else:
                    at = put_signed(written, at, time + <int64_t>(<uint64_t>rows[order[i], 1] >> 32))
                    if kind == LAST_HIGH:
                        i += 1
    return at, i
