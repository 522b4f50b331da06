"""Sweeps over the intervals of a view: what devices did in each bin, and the lanes on which intervals are drawn.

Intervals are half-open, in int64 nanoseconds, as two arrays of equal length, sorted by start.
"""

from libc.stdint cimport int8_t, int64_t, uint64_t

cdef uint64_t MOST_SPAN_NS = (1 << 62) - 1


def add_exclusive_time(
    const int64_t[::1] starts,
    const int64_t[::1] ends,
    const int8_t[::1] kinds,
    int64_t first,
    int64_t last,
    int level,
    int64_t[::1] reach,
    int64_t[:, ::1] out,
):
    """Add, by bins, the time that each kind covers and no kind before it does.

    Between two starts the kinds follow each other in their order, each up to its latest end so far.

    Args:
        starts: Starts, ascending.
        ends: Ends.
        kinds: Number of the kind of each interval.
        first: Begin of the first bin, ns.
        last: Time from here on does not count; at most 2**62 - 1 ns after `first`.
        level: The width of a bin is two to this power, in ns; 0 to 62.
        reach: Scratch space, one end per kind.
        out: Kinds x bins, ns.

    Raises:
        ValueError: `level` or `last` is out of range.
        IndexError: A kind does not exist, or the bins end before `last`.
    """
    cdef Py_ssize_t i, k, place, count = starts.shape[0]
    cdef int8_t kind
    cdef int64_t at, until, end, edge
    if not 0 <= level <= 62:
        raise ValueError(f"level {level} is not from 0 to 62")
    if last < first or <uint64_t>last - <uint64_t>first > MOST_SPAN_NS:
        raise ValueError(
            f"the bins would go from {first} to {last} ns; expected 0 to 2**62 - 1 ns from one to the other")
    with nogil:
        for i in range(reach.shape[0]):
            reach[i] = first
        for i in range(count):
            kind = kinds[i]
            if ends[i] > starts[i]:
                reach[kind] = max(reach[kind], ends[i])
            at = max(starts[i], first)
            until = last
            if i + 1 < count:
                until = min(starts[i + 1], last)
            for k in range(out.shape[0]):
                end = min(reach[k], until)
                while at < end:
                    # `at` is not before `first`; unsigned, because the last bin may end after the largest int64
                    place = <Py_ssize_t>((<uint64_t>at - <uint64_t>first) >> level)
                    edge = first + <int64_t>min(<uint64_t>end - <uint64_t>first, <uint64_t>(place + 1) << level)
                    out[k, place] += edge - at
                    at = edge


def assign_lanes(const int64_t[::1] starts, const int64_t[::1] ends, int64_t[::1] free_from, int8_t[::1] out_lanes):
    """Put each interval on the first free lane, or on the last lane if none is free.

    Args:
        starts: Starts, ascending.
        ends: Ends.
        free_from: For each of at most 128 lanes, the time from which it is free; kept from call to call.
        out_lanes: The lane of each interval.
    """
    cdef Py_ssize_t i, lane, last = free_from.shape[0] - 1
    with nogil:
        for i in range(starts.shape[0]):
            lane = 0
            while lane < last and free_from[lane] > starts[i]:
                lane += 1
            out_lanes[i] = <int8_t>lane
            free_from[lane] = max(free_from[lane], ends[i])
