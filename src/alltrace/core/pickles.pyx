"""Pickles of plain data in their binary forms, decoded without running anything in them."""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()

cdef enum:
    _DEEPEST = 1000


def plain_data(const uint8_t[::1] data not None):
    """The value of a pickle of protocol 2 to 5 that holds dicts, lists, tuples, texts, numbers, truth values and None.

    Returns the value and where the pickle ends in the bytes, or None if it has any other instruction, a number of more
    than 8 bytes, a key that is neither a text nor a number, is damaged, or is nested deeper than dumps are: nothing is
    known of it then.
    """
    cdef int collects = PyGC_Disable()  # the many new values are no garbage, and nothing else runs meanwhile
    try:
        return _decoded(data)
    finally:
        if collects:
            PyGC_Enable()


cdef object _decoded(const uint8_t[::1] data):
    cdef Py_ssize_t size = data.shape[0], at = 0, length, begin
    cdef uint8_t op
    cdef uint16_t two
    cdef uint32_t four
    cdef int32_t whole
    cdef bint marked
    cdef const uint8_t* bytes_at
    cdef list stack = [], memo = [], items
    cdef Py_ssize_t marks[_DEEPEST]  # where the open groups begin
    cdef Py_ssize_t depth = 0  # how many are open
    cdef dict later = {}, target
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
            if depth == _DEEPEST:
                return None
            marks[depth] = len(stack)
            depth += 1
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
            if len(stack) == (marks[depth - 1] if depth else 0):
                return None
            if op == b"q":
                if at + 1 > size:
                    return None
                four = bytes_at[at]
                at += 1
            elif op == b"r":
                if at + 4 > size:
                    return None
                memcpy(&four, bytes_at + at, 4)
                at += 4
            else:
                four = <uint32_t>(len(memo) + len(later))
            if four == len(memo):
                memo.append(stack[len(stack) - 1])
                if later:
                    later.pop(four, None)
            elif four < len(memo):
                memo[four] = stack[len(stack) - 1]
            else:  # numbers that do not count up
                later[four] = stack[len(stack) - 1]
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
            if four < len(memo):
                stack.append(memo[four])
            elif four in later:
                stack.append(later[four])
            else:
                return None
        elif op == 0x85 or op == 0x86 or op == 0x87:  # TUPLE1 to TUPLE3
            length = op - 0x84
            begin = len(stack) - length
            if begin < (marks[depth - 1] if depth else 0):
                return None
            items = stack[begin:]
            del stack[begin:]
            stack.append(tuple(items))
        elif op == b"a" or op == b"s" or op == b"e" or op == b"u":
            if op == b"a" or op == b"s":
                begin = len(stack) - (1 if op == b"a" else 2)
            elif depth:
                depth -= 1
                begin = marks[depth]
            else:
                return None
            if begin < (marks[depth - 1] if depth else 0) + 1 or not _put(stack[begin - 1], stack, begin,
                op == b"a" or op == b"e"):
                return None
            del stack[begin:]
        elif op == b"t" or op == b"l" or op == b"d":
            if not depth:
                return None
            depth -= 1
            begin = marks[depth]
            if op == b"d":
                target = {}
                if not _put(target, stack, begin, False):
                    return None
                del stack[begin:]
                stack.append(target)
            else:
                items = stack[begin:]
                del stack[begin:]
                stack.append(tuple(items) if op == b"t" else items)
        elif op == b".":
            return (stack[len(stack) - 1], at) if len(stack) and not depth else None
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


cdef bint _put(object target, list stack, Py_ssize_t begin, bint appends) except -1:
    """Add what is on the stack from a place on to a list, or as keys and values to a dict; False if it is none or a key
    is not plain."""
    cdef Py_ssize_t n, end = len(stack)
    cdef object key
    if appends:
        if type(target) is not list:
            return False
        if end - begin == 1:
            (<list>target).append(stack[begin])
        else:
            (<list>target).extend(stack[begin:])
        return True
    if type(target) is not dict or (end - begin) % 2:
        return False
    for n in range(begin, end, 2):
        key = stack[n]
        if not (type(key) is str or type(key) is int or type(key) is float or type(key) is bool or key is None):
            return False
        (<dict>target)[key] = stack[n + 1]
    return True
