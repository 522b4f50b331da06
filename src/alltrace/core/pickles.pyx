"""Pickles of plain data in their binary forms, decoded without running anything in them."""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy



def plain_data(const uint8_t[::1] data not None):
    """The value of a pickle of protocol 2 to 5 that holds dicts, lists, tuples, texts, numbers, truth values and None.

    Returns a tuple of the value alone, or None if it has any other instruction, a number of more than 8 bytes, a key that is neither a
    text nor a number, or is damaged: nothing is known of it then.
    """
    cdef Py_ssize_t size = data.shape[0], at = 0, length, begin
    cdef uint8_t op
    cdef uint16_t two
    cdef uint32_t four
    cdef int32_t whole
    cdef bint marked
    cdef const uint8_t* bytes_at
    cdef list stack = [], marks = [], items
    cdef dict memo = {}, target
    if size < 2 or data[0] != 0x80:
        return None
    bytes_at = &data[0]
    while at < size:
        op = bytes_at[at]
        at += 1
        if op == 0x80:  # PROTO
            at += 1
        elif op == 0x95:  # FRAME
            at += 8
        elif op == b"(":
            marks.append(len(stack))
        elif op == b"}":
            stack.append({})
        elif op == b"]":
            stack.append([])
        elif op == b")":
            stack.append(())
        elif op == b"N":
            stack.append(None)
        elif op == 0x88:
            stack.append(True)
        elif op == 0x89:
            stack.append(False)
        elif op == b"K":
            if at + 1 > size:
                return None
            stack.append(bytes_at[at])
            at += 1
        elif op == b"M":
            if at + 2 > size:
                return None
            memcpy(&two, bytes_at + at, 2)
            stack.append(two)
            at += 2
        elif op == b"J":
            if at + 4 > size:
                return None
            memcpy(&whole, bytes_at + at, 4)
            stack.append(whole)
            at += 4
        elif op == 0x8A:  # LONG1
            if at + 1 > size or bytes_at[at] > 8 or at + 1 + bytes_at[at] > size:
                return None
            length = bytes_at[at]
            stack.append(int.from_bytes(bytes_at[at + 1 : at + 1 + length], "little", signed=True))
            at += 1 + length
        elif op == b"G":
            if at + 8 > size:
                return None
            stack.append(_big_endian(bytes_at + at))
            at += 8
        elif op == b"X" or op == 0x8C:
            if op == b"X":
                if at + 4 > size:
                    return None
                memcpy(&four, bytes_at + at, 4)
                length = four
                at += 4
            else:
                if at + 1 > size:
                    return None
                length = bytes_at[at]
                at += 1
            if length > size - at:
                return None
            try:
                stack.append(PyUnicode_DecodeUTF8(<const char*>(bytes_at + at), length, "surrogatepass"))
            except UnicodeDecodeError:
                return None
            at += length
        elif op == b"q" or op == b"r" or op == 0x94:
            if not stack or (marks and marks[len(marks) - 1] == len(stack)):
                return None
            if op == b"q":
                if at + 1 > size:
                    return None
                memo[bytes_at[at]] = stack[len(stack) - 1]
                at += 1
            elif op == b"r":
                if at + 4 > size:
                    return None
                memcpy(&four, bytes_at + at, 4)
                memo[four] = stack[len(stack) - 1]
                at += 4
            else:
                memo[len(memo)] = stack[len(stack) - 1]
        elif op == b"h" or op == b"j":
            if op == b"h":
                if at + 1 > size:
                    return None
                four = bytes_at[at]
                at += 1
            else:
                if at + 4 > size:
                    return None
                memcpy(&four, bytes_at + at, 4)
                at += 4
            if four not in memo:
                return None
            stack.append(memo[four])
        elif op == 0x85 or op == 0x86 or op == 0x87:  # TUPLE1 to TUPLE3
            length = op - 0x84
            begin = len(stack) - length
            if begin < (marks[len(marks) - 1] if marks else 0):
                return None
            items = stack[begin:]
            del stack[begin:]
            stack.append(tuple(items))
        elif op == b"a" or op == b"s":
            length = 1 if op == b"a" else 2
            begin = len(stack) - length
            if begin < (marks[len(marks) - 1] if marks else 0) + 1:
                return None
            items = stack[begin:]
            del stack[begin:]
            if not _put(stack[len(stack) - 1], items, op == b"a"):
                return None
        elif op == b"t" or op == b"e" or op == b"u" or op == b"l" or op == b"d":
            if not marks:
                return None
            begin = marks.pop()
            items = stack[begin:]
            del stack[begin:]
            if op == b"t":
                stack.append(tuple(items))
            elif op == b"l":
                stack.append(items)
            elif op == b"d":
                target = {}
                stack.append(target)
                if not _put(target, items, False):
                    return None
            elif len(stack) <= (marks[len(marks) - 1] if marks else 0) or not _put(stack[len(stack) - 1], items, op == b"e"):
                return None
        elif op == b".":
            return (stack[len(stack) - 1],) if len(stack) and not marks else None
        else:
            return None
    return None


cdef double _big_endian(const uint8_t* place) noexcept:
    cdef uint8_t turned[8]
    cdef double value
    cdef int n
    for n in range(8):
        turned[n] = place[7 - n]
    memcpy(&value, turned, 8)
    return value


cdef bint _put(object target, list items, bint appends) except -1:
    """Add items to a list, or keys and values to a dict; False if it is none or a key is not plain."""
    cdef Py_ssize_t n
    cdef object key
    if appends:
        if type(target) is not list:
            return False
        (<list>target).extend(items)
        return True
    if type(target) is not dict or len(items) % 2:
        return False
    for n in range(0, len(items), 2):
        key = items[n]
        if not (type(key) is str or type(key) is int or type(key) is float or type(key) is bool or key is None):
            return False
        (<dict>target)[key] = items[n + 1]
    return True
