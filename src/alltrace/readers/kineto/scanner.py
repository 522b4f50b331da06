"""The loops that take events apart, compiled: from the bytes of `traceEvents` to one row of integers per event.

No event becomes a Python object. Numbers are written as they are, times in thousandths of the text's unit, so that not a
nanosecond is lost to a float; strings are interned on the spot and written as codes. What is not a field is skipped by its
brackets and quotes alone, so `NaN` and escapes that JSON does not know do no harm.

Every position is checked against the end of the buffer before a byte is read.
"""

# mypy: disable-error-code="no-any-return"
# (integers of NumPy's types, which the compiler needs to be told, are to mypy not what is declared)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy import int64, uint64

from alltrace.trace.jit import plain_kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Longs = NDArray[np.int64]
    Rows = NDArray[np.int64]

_U8, _I64, _U64 = "uint8[::1]", "int64[::1]", "uint64[::1]"
_ROWS = "int64[:, ::1]"
_PLACE = "UniTuple(int64, 2)"

MORE, CLOSED, FULL, BROKEN = 0, 1, 2, 3
"""Why `scan` stopped: the event at the position goes on past the buffer; the array ended; no room; the event is no JSON."""

NOTHING = -(2**63)
"""What a field holds that the event lacks."""

NUMBER, TIME, TEXT, RAW, TRIPLE, INSIDE = 0, 1, 2, 3, 4, 5
"""How a field's value is written: as an integer, in thousandths, as the code of a string, as the code of a value's JSON text, as
three integers in three columns; `INSIDE` is the object with the arguments."""

_MOST_TEXTS_OF_AN_EVENT = 32
_FNV_START, _FNV_PRIME = 14695981039346656037, 1099511628211
ROW_COUNT, TEXT_COUNT, NEW_COUNT = 0, 1, 2
"""Places in `state`: rows written, strings interned in all, strings interned since the caller last took them."""


def fingerprint(text: bytes) -> int:
    """The hash (FNV-1a, 64 bits) that the scanner knows a key or string by."""
    value = _FNV_START
    for byte in text:
        value = ((value ^ byte) * _FNV_PRIME) & (2**64 - 1)
    return value


@plain_kernel(f"int64({_U8}, int64, int64)")
def blank(buf: Bytes, at: int, end: int) -> int:
    """The first place from `at` on that is not white space."""
    place, stop = uint64(at), uint64(end)  # a place without a sign is read without a look whether it counts from the end
    while place < stop and (buf[place] == 32 or buf[place] == 10 or buf[place] == 13 or buf[place] == 9):
        place += uint64(1)
    return int64(place)


@plain_kernel(f"int64({_U8}, int64, int64)")
def _quote(buf: Bytes, at: int, end: int) -> int:
    """Where the string whose text begins at `at` ends: its closing quote, or -1."""
    place, stop = uint64(at), uint64(end)
    while place < stop:
        byte = buf[place]
        if byte == 34:
            return int64(place)
        place += uint64(2) if byte == 92 else uint64(1)
    return -1


@plain_kernel(f"int64({_U8}, int64, int64)")
def skip_value(buf: Bytes, at: int, end: int) -> int:
    """The place after the value at `at`, or -1 where it does not end before `end`, or -2 where there is none."""
    if at >= end:
        return -1
    byte = buf[at]
    if byte == 34:
        at = _quote(buf, at + 1, end)
        return -1 if at < 0 else at + 1
    if byte == 123 or byte == 91:
        depth = 0
        while at < end:
            byte = buf[at]
            if byte == 34:
                at = _quote(buf, at + 1, end)
                if at < 0:
                    return -1
            elif byte == 123 or byte == 91:
                depth += 1
            elif byte == 125 or byte == 93:
                depth -= 1
                if depth == 0:
                    return at + 1
            at += 1
        return -1
    start = at
    while at < end:
        byte = buf[at]
        if byte == 44 or byte == 125 or byte == 93 or byte <= 32:
            return at if at > start else -2
        if byte == 34 or byte == 58 or byte == 123 or byte == 91:
            return -2
        at += 1
    return -1


@plain_kernel(f"uint64({_U8}, int64, int64)")
def _hash(buf: Bytes, at: int, end: int) -> int:
    value = uint64(_FNV_START)
    for place in range(uint64(at), uint64(end)):
        value = (value ^ uint64(buf[place])) * uint64(_FNV_PRIME)
    return value


@plain_kernel(f"int64({_U8}, int64, int64, int64)")
def _number(buf: Bytes, at: int, end: int, digits: int) -> int:
    """The number written in `[at, end)`, times 10 to the power of `digits`, rounded; `NOTHING` where it is none that fits."""
    negative = at < end and buf[at] == 45
    if negative:
        at += 1
    first = at
    value = int64(0)
    seen = 0
    scale = digits
    point = False
    up = False
    while at < end:
        byte = buf[at]
        if byte >= 48 and byte <= 57:
            seen += 1
            if point and scale <= 0:
                if scale == 0 and byte >= 53:
                    up = True
                scale -= 1
            else:
                if value > 900000000000000000:
                    return NOTHING
                value = value * 10 + int64(byte - 48)
                if point:
                    scale -= 1
        elif byte == 46 and not point:
            point = True
        elif (byte == 101 or byte == 69) and seen > 0:
            mark = at
            at += 1
            down = at < end and buf[at] == 45
            if at < end and (buf[at] == 45 or buf[at] == 43):
                at += 1
            power = 0
            while at < end and buf[at] >= 48 and buf[at] <= 57 and power < 100:
                power = power * 10 + int64(buf[at] - 48)
                at += 1
            if at < end:
                return NOTHING
            # digits that would round the number without an exponent count with one
            value = int64(0)
            scale = digits - power if down else digits + power
            point = False
            for place in range(first, mark):
                if buf[place] == 46:
                    point = True
                elif value <= 900000000000000000:  # what stands before the point has room, see above
                    value = value * 10 + int64(buf[place] - 48)
                    if point:
                        scale -= 1
            while scale > 0 and value > 0:
                if value > 900000000000000000:
                    return NOTHING
                value *= 10
                scale -= 1
            while scale < -1 and value > 0:
                value //= 10
                scale += 1
            if scale == -1:
                value = (value + 5) // 10
            return -value if negative else value
        else:
            return NOTHING
        at += 1
    if seen == 0:
        return NOTHING
    while scale > 0:
        if value > 900000000000000000:
            return NOTHING
        value *= 10
        scale -= 1
    if up:
        value += 1
    return -value if negative else value


@plain_kernel(f"int64({_U8}, int64, int64, {_U64}, {_I64}, {_I64}, {_I64}, {_I64})")
def _intern(buf: Bytes, at: int, end: int, slots: Any, codes: Longs, new_at: Longs, new_length: Longs, state: Longs) -> int:
    """The code of the string in `[at, end)`; one that is new is noted with its place. The caller keeps a half of the slots free."""
    mask = len(slots) - 1
    # the length is mixed in, and 0 marks a slot that is free
    value = _hash(buf, at, end) ^ (uint64(end - at) * uint64(_FNV_PRIME)) | uint64(1)
    slot = int64(value >> uint64(17)) & mask
    while slots[slot] != uint64(0):
        if slots[slot] == value:
            return codes[slot]
        slot = (slot + 1) & mask
    code = state[TEXT_COUNT]
    slots[slot] = value
    codes[slot] = code
    new_at[state[NEW_COUNT]] = at
    new_length[state[NEW_COUNT]] = end - at
    state[TEXT_COUNT] += 1
    state[NEW_COUNT] += 1
    return code


@plain_kernel(f"void({_U64}, {_I64}, {_U64}, {_I64})")
def rehash(slots: Any, codes: Longs, wider: Any, wider_codes: Longs) -> None:
    """Put what is in `slots` into a table with more slots."""
    mask = len(wider) - 1
    for i in range(len(slots)):
        value = slots[i]
        if value != uint64(0):
            slot = int64(value >> uint64(17)) & mask
            while wider[slot] != uint64(0):
                slot = (slot + 1) & mask
            wider[slot] = value
            wider_codes[slot] = codes[i]


@plain_kernel(f"void({_U8}, int64, int64, int64, {_ROWS}, int64)")
def _triple(buf: Bytes, at: int, end: int, column: int, rows: Rows, row: int) -> None:
    """Write the first three numbers of the list in `[at, end)`."""
    at += 1
    for i in range(3):
        at = blank(buf, at, end)
        stop = at
        while stop < end and buf[stop] != 44 and buf[stop] != 93 and buf[stop] > 32:
            stop += 1
        rows[column + i, row] = _number(buf, at, stop, 0)
        at = blank(buf, stop, end)
        if at >= end or buf[at] != 44:
            return
        at += 1


@plain_kernel(f"void({_U8}, int64, int64, int64, int64, {_ROWS}, int64, {_U64}, {_I64}, {_I64}, {_I64}, {_I64})")
def _store(
    buf: Bytes,
    at: int,
    end: int,
    kind: int,
    column: int,
    rows: Rows,
    row: int,
    slots: Any,
    codes: Longs,
    new_at: Longs,
    new_length: Longs,
    state: Longs,
) -> None:
    """Write the value in `[at, end)` as its field says."""
    quoted = buf[at] == 34
    if kind == RAW or (kind == TEXT and not quoted):
        rows[column, row] = _intern(buf, at, end, slots, codes, new_at, new_length, state)
    elif kind == TEXT:
        rows[column, row] = _intern(buf, at + 1, end - 1, slots, codes, new_at, new_length, state)
    elif kind == TRIPLE:
        if buf[at] == 91:
            _triple(buf, at, end, column, rows, row)
    elif quoted:
        rows[column, row] = _number(buf, at + 1, end - 1, 3 if kind == TIME else 0)
    else:
        rows[column, row] = _number(buf, at, end, 3 if kind == TIME else 0)


@plain_kernel(f"int64({_U8}, int64, int64, {_U64}, {_I64}, {_I64}, int64, {_ROWS}, int64, {_U64}, {_I64}, {_I64}, {_I64}, {_I64})")
def _event(
    buf: Bytes,
    at: int,
    end: int,
    keys: Any,
    kinds: Longs,
    columns: Longs,
    levels: int,
    rows: Rows,
    row: int,
    slots: Any,
    codes: Longs,
    new_at: Longs,
    new_length: Longs,
    state: Longs,
) -> int:
    """Write the event whose brace is at `at`; the place after it, -1 where it does not end before `end`, -2 where it is no JSON.

    `keys` are two tables of `levels` slots, for the event and for its arguments: the hash of a key, its kind, its column.
    """
    at += 1
    level = 0
    texts = 0
    while True:
        at = blank(buf, at, end)
        if at < end and buf[at] == 44:
            at = blank(buf, at + 1, end)
        if at >= end:
            return -1
        if buf[at] == 125:
            at += 1
            if level == 0:
                return at
            level = 0
            continue
        if buf[at] != 34:
            return -2
        start = at + 1
        at = _quote(buf, start, end)
        if at < 0:
            return -1
        key = _hash(buf, start, at)
        at = blank(buf, at + 1, end)
        if at >= end:
            return -1
        if buf[at] != 58:
            return -2
        at = blank(buf, at + 1, end)
        if at >= end:
            return -1
        slot = int64(key) & (levels - 1)
        base = level * levels
        while keys[base + slot] != uint64(0) and keys[base + slot] != key:
            slot = (slot + 1) & (levels - 1)
        found = keys[base + slot] == key
        if found and kinds[base + slot] == INSIDE and buf[at] == 123:
            level = 1
            at += 1
            continue
        stop = skip_value(buf, at, end)
        if stop < 0:
            return stop
        if found and kinds[base + slot] != INSIDE and texts < _MOST_TEXTS_OF_AN_EVENT:
            kind = kinds[base + slot]
            texts += kind in (TEXT, RAW)
            _store(buf, at, stop, kind, columns[base + slot], rows, row, slots, codes, new_at, new_length, state)
        at = blank(buf, stop, end)
        if at >= end:
            return -1
        if buf[at] != 44 and buf[at] != 125:
            return -2


@plain_kernel(f"{_PLACE}({_U8}, int64, int64, {_U64}, {_I64}, {_I64}, {_ROWS}, {_U64}, {_I64}, {_I64}, {_I64}, {_I64})")
def scan(
    buf: Bytes,
    at: int,
    end: int,
    keys: Any,
    kinds: Longs,
    columns: Longs,
    rows: Rows,
    slots: Any,
    codes: Longs,
    new_at: Longs,
    new_length: Longs,
    state: Longs,
) -> tuple[int, int]:
    """Write the events from `at` on, from row `state[ROW_COUNT]` on.

    Args:
        buf: The bytes.
        at: A place between two events of the array.
        end: The end of the bytes.
        keys: Hashes of the keys that are fields: those of an event, then as many slots for those of its arguments.
        kinds: How the field in each slot is written.
        columns: To which row of `rows`, the first of three for a `TRIPLE`.
        rows: One row per field and one column per event, `NOTHING` in all that no event was written to.
        slots: Hashes of the strings known so far.
        codes: Their codes.
        new_at: Where the strings lie that were interned by this call.
        new_length: Their lengths.
        state: See `ROW_COUNT`.

    Returns:
        Where it stopped and why.
    """
    levels = len(keys) // 2
    while True:
        at = blank(buf, at, end)
        while at < end and buf[at] == 44:
            at = blank(buf, at + 1, end)
        if at >= end:
            return at, int64(MORE)
        if buf[at] == 93:
            return at + 1, int64(CLOSED)
        row = state[ROW_COUNT]
        free = len(slots) // 2 - state[TEXT_COUNT]
        if row >= rows.shape[1] or min(free, len(new_at) - state[NEW_COUNT]) < _MOST_TEXTS_OF_AN_EVENT + 1:
            return at, int64(FULL)
        if buf[at] != 123:
            return at, int64(BROKEN)
        stop = _event(buf, at, end, keys, kinds, columns, levels, rows, row, slots, codes, new_at, new_length, state)
        if stop == -1:
            return at, int64(MORE)
        if stop < 0:
            rows[:, row] = NOTHING
            return at, int64(BROKEN)
        state[ROW_COUNT] += 1
        at = stop


@plain_kernel(f"int64({_U8}, int64, int64)")
def next_event(buf: Bytes, at: int, end: int) -> int:
    """Where the next event begins after one that is broken: at a brace after a brace and a comma; -1 where none does."""
    while at < end:
        if buf[at] == 125:
            after = blank(buf, at + 1, end)
            if after < end and buf[after] == 44:
                after = blank(buf, after + 1, end)
                if after < end and buf[after] == 123:
                    return after
        at += 1
    return -1
