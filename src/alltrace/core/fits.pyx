"""Medians, as fits of clocks need them: of times in float64 nanoseconds."""

from libc.stdint cimport int64_t

cdef Py_ssize_t SHORT = 12  # values that are sorted by insertion


cdef double select_median(double[::1] values, Py_ssize_t count) except? -1 nogil:
    """The median of the first `count` values, of which there is at least one; reorders them (Hoare's selection,
    1961)."""
    cdef Py_ssize_t wanted = count // 2, low = 0, high = count - 1, i, j
    cdef double a, b, c, pivot, upper, lower
    while high - low > SHORT:
        a = values[low]
        b = values[(low + high) // 2]
        c = values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i = low
        j = high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                a = values[i]
                values[i] = values[j]
                values[j] = a
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            low = wanted
            high = wanted
    for i in range(low + 1, high + 1):
        a = values[i]
        j = i
        while j > low and values[j - 1] > a:
            values[j] = values[j - 1]
            j -= 1
        values[j] = a
    upper = values[wanted]
    if count % 2 == 1:
        return upper
    lower = values[0]
    for i in range(1, wanted):
        if values[i] > lower:
            lower = values[i]
    return (lower + upper) / 2


def median(double[::1] values, Py_ssize_t count):
    """The median of the first `count` values, the mean of the two in the middle if `count` is even; reorders the
    values.

    Raises:
        IndexError: `count` is less than 1, or more than there are values.
    """
    cdef double middle
    if count < 1:
        raise IndexError(f"{count} values have no median")
    with nogil:
        middle = select_median(values, count)
    return middle


def medians(const double[::1] values, const int64_t[::1] first, double[::1] room, double[::1] out):
    """The median of each run of values; that of an empty run is 0.

    Args:
        values: The values, run by run.
        first: r + 1 positions, at which the runs begin.
        room: Scratch space, one value for each of the longest run.
        out: The r medians.
    """
    cdef Py_ssize_t i, j, low, count
    with nogil:
        for i in range(out.shape[0]):
            low = first[i]
            count = first[i + 1] - low
            for j in range(count):
                room[j] = values[low + j]
            out[i] = select_median(room, count) if count > 0 else 0.0
