"""The scanner of trace events: from the bytes of a JSON array to one row of integers per event.

No event becomes a Python object. Numbers are written as they are, times in thousandths of the text's unit, because a
float would lose nanoseconds; strings are interned during the scan and written as codes. Values that are not a field are
skipped by their brackets and quotes alone, so `NaN` and escapes that are not valid JSON are accepted.

The bytes are untrusted. The public functions check once that `[at, end)` is within the buffer, and take a pointer; from
there on every read of `buf[at]` follows a comparison of `at` with `end`.
"""

cimport cython
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t

from alltrace.core.fnv cimport fnv, fnv_add

cpdef enum:
    # Why `scan` stopped: the event at the position continues past the buffer; the array ended; no space left; the event
    # is not JSON.
    MORE
    CLOSED
    FULL
    BROKEN

cpdef enum:
    # How a field's value is written: as an integer; in thousandths; as the code of a string; as the code of a value's
    # JSON text; as three integers in three rows; as an integer, or IDENTITIES minus the code of a string that is none.
    # INSIDE marks the object that contains the arguments.
    NUMBER
    TIME
    TEXT
    RAW
    TRIPLE
    IDENTITY
    INSIDE

NOTHING = INT64_MIN
IDENTITIES = -(1 << 40)
cdef int64_t TEXTS_BELOW = IDENTITIES

cdef enum:
    CUT = -1  # a value or string that does not end before `end`
    NO_JSON = -2
    KEY_SLOTS = 128  # per level, a power of two
    FIRST_SLOTS = 65536  # for strings, a power of two
    MOST_NEW = 16384  # new strings of one scan
    MOST_TEXTS_OF_AN_EVENT = 32

# ten times this plus one digit fits into 64 bits
cdef int64_t LARGEST_WITH_ROOM = 900000000000000000LL


cdef const uint8_t *checked(const uint8_t[::1] buf, Py_ssize_t at, Py_ssize_t end) except? NULL:
    """A pointer to the bytes; NULL if `end` is 0."""
    if at < 0 or end > buf.shape[0]:
        raise IndexError(f"the bytes from {at} to {end} are not all among the {buf.shape[0]} of the buffer")
    return &buf[0] if end > 0 else NULL


cdef inline Py_ssize_t after_blank(const uint8_t *buf, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    while at < end and (buf[at] == c" " or buf[at] == c"\n" or buf[at] == c"\r" or buf[at] == c"\t"):
        at += 1
    return at


cdef inline Py_ssize_t closing_quote(const uint8_t *buf, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """The position of the closing quote of the string whose text begins at `at`, or CUT."""
    while at < end:
        if buf[at] == c'"':
            return at
        at += 2 if buf[at] == c"\\" else 1
    return CUT


cdef Py_ssize_t after_value(const uint8_t *buf, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """The position after the value at `at`; CUT, or NO_JSON if there is no value."""
    cdef Py_ssize_t start = at, depth = 0
    cdef uint8_t byte
    if at >= end:
        return CUT
    byte = buf[at]
    if byte == c'"':
        at = closing_quote(buf, at + 1, end)
        return CUT if at < 0 else at + 1
    if byte == c"{" or byte == c"[":
        while at < end:
            byte = buf[at]
            if byte == c'"':
                at = closing_quote(buf, at + 1, end)
                if at < 0:
                    return CUT
            elif byte == c"{" or byte == c"[":
                depth += 1
            elif byte == c"}" or byte == c"]":
                depth -= 1
                if depth == 0:
                    return at + 1
            at += 1
        return CUT
    while at < end:
        byte = buf[at]
        if byte == c"," or byte == c"}" or byte == c"]" or byte <= c" ":
            return at if at > start else NO_JSON
        if byte == c'"' or byte == c":" or byte == c"{" or byte == c"[":
            return NO_JSON
        at += 1
    return CUT


cdef int64_t number(const uint8_t *buf, Py_ssize_t at, Py_ssize_t end, int64_t digits) noexcept nogil:
    """The number written in `[at, end)`, times 10 to the power of `digits`, rounded; INT64_MIN if it is not a number or
    does not fit."""
    cdef bint negative = at < end and buf[at] == c"-"
    cdef bint point = False, up = False, down
    cdef Py_ssize_t first, mark, place, seen = 0
    cdef int64_t value = 0, scale = digits, power = 0
    cdef uint8_t byte
    if negative:
        at += 1
    first = at
    while at < end:
        byte = buf[at]
        if c"0" <= byte <= c"9":
            seen += 1
            if point and scale <= 0:
                if scale == 0 and byte >= c"5":
                    up = True
                scale -= 1
            else:
                if value > LARGEST_WITH_ROOM:
                    return INT64_MIN
                value = value * 10 + (byte - c"0")
                if point:
                    scale -= 1
        elif byte == c"." and not point:
            point = True
        elif (byte == c"e" or byte == c"E") and seen > 0:
            mark = at
            at += 1
            down = at < end and buf[at] == c"-"
            if at < end and (buf[at] == c"-" or buf[at] == c"+"):
                at += 1
            while at < end and c"0" <= buf[at] <= c"9" and power < 100:
                power = power * 10 + (buf[at] - c"0")
                at += 1
            if at < end:
                return INT64_MIN
            # parse the digits again: an exponent may shift in digits that were rounded away
            value = 0
            scale = digits - power if down else digits + power
            point = False
            for place in range(first, mark):
                if buf[place] == c".":
                    point = True
                elif value <= LARGEST_WITH_ROOM:  # digits before the point fit, see above
                    value = value * 10 + (buf[place] - c"0")
                    if point:
                        scale -= 1
            while scale > 0 and value > 0:
                if value > LARGEST_WITH_ROOM:
                    return INT64_MIN
                value *= 10
                scale -= 1
            while scale < -1 and value > 0:
                value //= 10
                scale += 1
            if scale == -1:
                value = (value + 5) // 10
            return -value if negative else value
        else:
            return INT64_MIN
        at += 1
    if seen == 0:
        return INT64_MIN
    while scale > 0:
        if value > LARGEST_WITH_ROOM:
            return INT64_MIN
        value *= 10
        scale -= 1
    if up:
        value += 1
    return -value if negative else value


def fingerprint(const uint8_t[::1] text):
    """The hash (FNV-1a, 64 bits) by which the scanner looks up a key."""
    return fnv(checked(text, 0, text.shape[0]), 0, text.shape[0])


def blank(const uint8_t[::1] buf, Py_ssize_t at, Py_ssize_t end):
    """The first position in `[at, end)` that is not white space."""
    return after_blank(checked(buf, at, end), at, end)


def skip_value(const uint8_t[::1] buf, Py_ssize_t at, Py_ssize_t end):
    """The position after the value at `at`; -1 if the value does not end before `end`, -2 if there is no value."""
    return after_value(checked(buf, at, end), at, end)


def next_event(const uint8_t[::1] buf, Py_ssize_t at, Py_ssize_t end):
    """The position of the next event after an invalid one: a brace that follows a brace and a comma; -1 if there is
    none."""
    cdef const uint8_t *data = checked(buf, at, end)
    cdef Py_ssize_t after
    with nogil:
        while at < end:
            if data[at] == c"}":
                after = after_blank(data, at + 1, end)
                if after < end and data[after] == c",":
                    after = after_blank(data, after + 1, end)
                    if after < end and data[after] == c"{":
                        break
            at += 1
    return after if at < end else -1


@cython.final
cdef class EventScanner:
    """Scans the events of one trace.

    Args:
        fields: For each key that is a field: its level (0 in an event, 1 in its arguments), the key, how its value is
            written, and the row of the table that it is written to, the first of three for a `TRIPLE`.
        whole: A category whose events have arguments of any name; these are kept as one text.
        category_row: The row that the category is written to.
        whole_row: The row that the code of that text is written to.
    """

    # by level, 0 or 1, and slot, masked by KEY_SLOTS - 1 because Cython does not check indices of C arrays; 0 marks a
    # free slot
    cdef uint64_t[2][KEY_SLOTS] keys
    cdef int64_t[2][KEY_SLOTS] kinds
    cdef int64_t[2][KEY_SLOTS] targets
    # the strings known so far: the hash in each slot, 0 if it is free, and the code
    cdef uint64_t[::1] slots
    cdef int64_t[::1] codes
    cdef Py_ssize_t texts
    # the bounds of the strings that the current scan interned
    cdef int64_t[::1] new_at
    cdef int64_t[::1] new_end
    cdef Py_ssize_t new
    cdef int64_t[:, ::1] rows
    # the category whose arguments are kept as one text: its hash and length, 0 for none
    cdef uint64_t whole_key
    cdef Py_ssize_t whole_length, category_row, whole_row

    def __cinit__(self, fields, const uint8_t[::1] whole=b"", Py_ssize_t category_row=0, Py_ssize_t whole_row=0):
        cdef Py_ssize_t level, slot
        cdef uint64_t key
        if len(fields) >= KEY_SLOTS:
            raise ValueError(f"{len(fields)} keys; expected fewer than {KEY_SLOTS}")
        for inside, name, kind, row in fields:
            level, key = 1 if inside else 0, fingerprint(name)
            slot = key & (KEY_SLOTS - 1)
            while self.keys[level][slot] != 0:
                slot = (slot + 1) & (KEY_SLOTS - 1)
            self.keys[level][slot], self.kinds[level][slot], self.targets[level][slot] = key, kind, row
        self.whole_key, self.whole_length = fingerprint(whole), whole.shape[0]
        self.category_row, self.whole_row = category_row, whole_row
        self.slots, self.codes = table(FIRST_SLOTS, "Q"), table(FIRST_SLOTS, "q")
        self.new_at, self.new_end = table(MOST_NEW, "q"), table(MOST_NEW, "q")

    def scan(self, const uint8_t[::1] buf, Py_ssize_t at, Py_ssize_t end, int64_t[:, ::1] rows, Py_ssize_t row):
        """Write the events that begin at or after `at`.

        Args:
            buf: The bytes.
            at: A position between two events of the array.
            end: The end of the bytes.
            rows: One row per field and one column per event, `NOTHING` in each element not yet written.
            row: The first event's column.

        Returns:
            The position at which it stopped, why, the column of the next event, and the new strings, in the order of
            their codes.
        """
        cdef const uint8_t *data = checked(buf, at, end)
        cdef Py_ssize_t stop, i
        cdef int why = MORE
        self.rows = rows
        self.new = 0
        if self.free() <= 2 * MOST_TEXTS_OF_AN_EVENT:
            self.widen()
        with nogil:
            while True:
                at = after_blank(data, at, end)
                while at < end and data[at] == c",":
                    at = after_blank(data, at + 1, end)
                if at >= end:
                    break
                if data[at] == c"]":
                    at += 1
                    why = CLOSED
                    break
                if row >= rows.shape[1] or min(self.free(), MOST_NEW - self.new) <= MOST_TEXTS_OF_AN_EVENT:
                    why = FULL
                    break
                if data[at] != c"{":
                    why = BROKEN
                    break
                stop = self.event(data, at, end, row)
                if stop < 0:
                    if stop == NO_JSON:
                        why = BROKEN
                        for i in range(rows.shape[0]):
                            rows[i, row] = INT64_MIN
                    break
                row += 1
                at = stop
        return at, why, row, [data[self.new_at[i]:self.new_end[i]] for i in range(self.new)]

    cdef Py_ssize_t event(self, const uint8_t *buf, Py_ssize_t at, Py_ssize_t end, Py_ssize_t row) except -3 nogil:
        """Write the event whose brace is at `at`; returns the position after it, CUT or NO_JSON."""
        cdef Py_ssize_t level = 0, texts = 0, start, stop, slot
        cdef uint64_t key
        cdef int64_t kind
        cdef bint listed, whole = False
        at += 1
        while True:
            at = after_blank(buf, at, end)
            if at < end and buf[at] == c",":
                at = after_blank(buf, at + 1, end)
            if at >= end:
                return CUT
            if buf[at] == c"}":
                at += 1
                if level == 0:
                    return at
                level = 0
                continue
            if buf[at] != c'"':
                return NO_JSON
            start = at + 1
            at = closing_quote(buf, start, end)
            if at < 0:
                return CUT
            key = fnv(buf, start, at)
            at = after_blank(buf, at + 1, end)
            if at >= end:
                return CUT
            if buf[at] != c":":
                return NO_JSON
            at = after_blank(buf, at + 1, end)
            if at >= end:
                return CUT
            slot = key & (KEY_SLOTS - 1)
            while self.keys[level][slot] != 0 and self.keys[level][slot] != key:
                slot = (slot + 1) & (KEY_SLOTS - 1)
            listed = self.keys[level][slot] == key
            kind = self.kinds[level][slot]
            if listed and kind == INSIDE and buf[at] == c"{":
                if whole and texts < MOST_TEXTS_OF_AN_EVENT:
                    stop = after_value(buf, at, end)
                    if stop < 0:
                        return stop
                    texts += 1
                    self.store(buf, at, stop, RAW, self.whole_row, row)
                level = 1
                at += 1
                continue
            stop = after_value(buf, at, end)
            if stop < 0:
                return stop
            if listed and kind != INSIDE and texts < MOST_TEXTS_OF_AN_EVENT:
                texts += kind == TEXT or kind == RAW or kind == IDENTITY
                if kind == TEXT and self.targets[level][slot] == self.category_row and self.whole_length > 0:
                    whole = stop - at == self.whole_length + 2 and fnv(buf, at + 1, stop - 1) == self.whole_key
                self.store(buf, at, stop, kind, self.targets[level][slot], row)
            at = after_blank(buf, stop, end)
            if at >= end:
                return CUT
            if buf[at] != c"," and buf[at] != c"}":
                return NO_JSON

    cdef int store(
        self, const uint8_t *buf, Py_ssize_t at, Py_ssize_t end, int64_t kind, Py_ssize_t target, Py_ssize_t row
    ) except -1 nogil:
        """Write the value in `[at, end)`, which is not empty, as its kind says."""
        cdef bint quoted = buf[at] == c'"'
        cdef int64_t value
        if quoted and kind != RAW:  # then the closing quote is the last byte
            at += 1
            end -= 1
        if kind == TEXT and not quoted and buf[at] == c"n":  # null
            return 0
        if kind == TEXT or kind == RAW:
            value = self.intern(buf, at, end)
        elif kind != TRIPLE:
            value = number(buf, at, end, 3 if kind == TIME else 0)
            if kind == IDENTITY and quoted and value == INT64_MIN:
                value = TEXTS_BELOW - self.intern(buf, at, end)
        else:
            if not quoted and buf[at] == c"[":
                self.triple(buf, at + 1, end, target, row)
            return 0
        self.rows[target, row] = value
        return 0

    cdef int triple(self, const uint8_t *buf, Py_ssize_t at, Py_ssize_t end, Py_ssize_t target,
        Py_ssize_t row) except -1 nogil:
        """Write the first three numbers of the list whose text begins at `at`."""
        cdef Py_ssize_t i, stop
        for i in range(3):
            at = after_blank(buf, at, end)
            stop = at
            while stop < end and buf[stop] != c"," and buf[stop] != c"]" and buf[stop] > c" ":
                stop += 1
            self.rows[target + i, row] = number(buf, at, stop, 0)
            at = after_blank(buf, stop, end)
            if at >= end or buf[at] != c",":
                break
            at += 1
        return 0

    cdef int64_t intern(self, const uint8_t *buf, Py_ssize_t at, Py_ssize_t end) except -1 nogil:
        """The code of the string in `[at, end)`; records the bounds of a new string, for which `scan` has left
        space."""
        cdef Py_ssize_t mask = self.slots.shape[0] - 1
        # the hash includes the length; `| 1` because 0 marks a free slot
        cdef uint64_t value = fnv(buf, at, end) ^ fnv_add(0, end - at) | 1
        cdef Py_ssize_t slot = first_slot(value, mask)
        while self.slots[slot] != 0:
            if self.slots[slot] == value:
                return self.codes[slot]
            slot = (slot + 1) & mask
        self.slots[slot] = value
        self.codes[slot] = self.texts
        self.new_at[self.new] = at
        self.new_end[self.new] = end
        self.new += 1
        self.texts += 1
        return self.codes[slot]

    cdef inline Py_ssize_t free(self) noexcept nogil:
        """How many more strings may be interned: half of the slots stay free."""
        return self.slots.shape[0] // 2 - self.texts

    cdef widen(self):
        """Quadruple the number of slots."""
        cdef Py_ssize_t size = 4 * self.slots.shape[0], i, slot
        cdef uint64_t[::1] slots = table(size, "Q")
        cdef int64_t[::1] codes = table(size, "q")
        with nogil:
            for i in range(self.slots.shape[0]):
                if self.slots[i] != 0:
                    slot = first_slot(self.slots[i], size - 1)
                    while slots[slot] != 0:
                        slot = (slot + 1) & (size - 1)
                    slots[slot] = self.slots[i]
                    codes[slot] = self.codes[i]
        self.slots, self.codes = slots, codes


cdef table(Py_ssize_t size, form):
    """`size` zeros of 64 bits."""
    return memoryview(bytearray(8 * size)).cast(form)


cdef inline Py_ssize_t first_slot(uint64_t value, Py_ssize_t mask) noexcept nogil:
    return <Py_ssize_t>(value >> 17) & mask
