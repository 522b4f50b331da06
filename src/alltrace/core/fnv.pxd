"""FNV-1a, the hash of 64 bits of short texts that the scanners use; the constants are the published ones."""

from libc.stdint cimport uint8_t, uint64_t


cdef inline uint64_t fnv_start() noexcept nogil:
    """The hash of no bytes."""
    return 14695981039346656037ULL


cdef inline uint64_t fnv_add(uint64_t value, uint64_t more) noexcept nogil:
    """The hash `value` with one more byte; a wider number may replace several bytes."""
    return (value ^ more) * 1099511628211ULL


cdef inline uint64_t fnv(const uint8_t *buf, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """The hash of `buf[at:end]`, which the caller has checked to be there."""
    cdef uint64_t value = fnv_start()
    cdef Py_ssize_t place
    for place in range(at, end):
        value = fnv_add(value, buf[place])
    return value
