"""Sweeps over sorted intervals: unions, overlaps, and which range encloses which.

Intervals are half-open, in int64 nanoseconds, as two arrays of equal length. Arrays named `out_...` and `state` are
written to. The public functions, which sort and allocate, are in `alltrace.trace.intervals` and
`alltrace.trace.nesting`.

The frontier of a nesting sweep holds the ranges that can still be the shortest enclosing one of something that starts
later. A range is removed when it has ended, or when a later one ends no earlier and is no longer. So by descending end
the durations descend as well, and the shortest range that encloses [start, end) is the last one of the frontier that
ends no earlier than `end`. For nested ranges the frontier is the stack of open ranges. Its times must be within
+-2**62, so that differences fit into 64 bits.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t


def merge_sorted(const int64_t[::1] starts, const int64_t[::1] ends, int64_t[::1] out_starts, int64_t[::1] out_ends):
    """Merge intervals sorted by start, and skip empty ones; returns how many there are, or -1 if they are not
    sorted."""
    cdef Py_ssize_t i, count = 0
    cdef int64_t start, end, previous = INT64_MIN
    cdef bint ascending = True
    with nogil:
        for i in range(starts.shape[0]):
            start = starts[i]
            end = ends[i]
            if start < previous:
                ascending = False
                break
            previous = start
            if end <= start:
                continue
            if count > 0 and start <= out_ends[count - 1]:
                out_ends[count - 1] = max(out_ends[count - 1], end)
            else:
                out_starts[count] = start
                out_ends[count] = end
                count += 1
    return count if ascending else -1


def intersect(
    const int64_t[::1] a_starts,
    const int64_t[::1] a_ends,
    const int64_t[::1] b_starts,
    const int64_t[::1] b_ends,
    int64_t[::1] out_starts,
    int64_t[::1] out_ends,
):
    """The intersection of two merged sets; returns how many intervals it has, at most as many as both together."""
    cdef Py_ssize_t i = 0, j = 0, count = 0
    cdef int64_t start, end
    with nogil:
        while i < a_starts.shape[0] and j < b_starts.shape[0]:
            start = max(a_starts[i], b_starts[j])
            end = min(a_ends[i], b_ends[j])
            if start < end:
                out_starts[count] = start
                out_ends[count] = end
                count += 1
            if a_ends[i] < b_ends[j]:
                i += 1
            else:
                j += 1
    return count


def overlap(
    const int64_t[::1] starts,
    const int64_t[::1] ends,
    const int64_t[::1] m_starts,
    const int64_t[::1] m_ends,
    uint64_t[::1] covered,
    int64_t[::1] out,
):
    """How much of each interval the merged set `m_` covers; returns False if the intervals are not sorted by start.

    `covered` is scratch space, one element more than the set has intervals: the time that the set covers before each of
    them. A result too large for int64 becomes the largest int64.
    """
    cdef Py_ssize_t i, k, at = 0, step, low, high, middle, last, count = m_starts.shape[0]
    cdef int64_t start, end, previous = INT64_MIN
    cdef uint64_t length
    cdef bint ascending = True
    with nogil:
        covered[0] = 0
        for k in range(count):
            covered[k + 1] = covered[k] + (<uint64_t>m_ends[k] - <uint64_t>m_starts[k])
        for i in range(starts.shape[0]):
            start = starts[i]
            end = ends[i]
            if start < previous:
                ascending = False
                break
            previous = start
            while at < count and m_ends[at] <= start:
                at += 1
            if end <= start or at == count or m_starts[at] >= end:
                out[i] = 0
                continue
            # find the first merged interval that starts at `end` or later: double the step, then bisect
            step = 1
            low = at
            while low + step < count and m_starts[low + step] < end:
                low += step
                step *= 2
            high = min(low + step, count)
            low += 1
            while low < high:
                middle = (low + high) // 2
                if m_starts[middle] < end:
                    low = middle + 1
                else:
                    high = middle
            last = low - 1
            length = covered[low] - covered[at]
            if start > m_starts[at]:
                length -= <uint64_t>start - <uint64_t>m_starts[at]
            if m_ends[last] > end:
                length -= <uint64_t>m_ends[last] - <uint64_t>end
            out[i] = <int64_t>min(length, <uint64_t>INT64_MAX)
    return ascending


cdef Py_ssize_t place(
    Py_ssize_t size,
    int64_t start,
    int64_t end,
    int64_t row,
    int64_t depth,
    int64_t[::1] f_start,
    int64_t[::1] f_end,
    int64_t[::1] f_row,
    int64_t[::1] f_depth,
) except -1 nogil:
    """Put a range into the frontier; returns the new size. No earlier range may start after it."""
    cdef Py_ssize_t low = size, high, shift, i
    while low > 0 and f_end[low - 1] <= end:
        low -= 1
    high = low
    while high < size and start - f_start[high] >= end - f_end[high]:
        high += 1
    shift = low + 1 - high
    if shift > 0:
        for i in range(size - 1, high - 1, -1):
            f_start[i + shift] = f_start[i]
            f_end[i + shift] = f_end[i]
            f_row[i + shift] = f_row[i]
            f_depth[i + shift] = f_depth[i]
    elif shift < 0:
        for i in range(high, size):
            f_start[i + shift] = f_start[i]
            f_end[i + shift] = f_end[i]
            f_row[i + shift] = f_row[i]
            f_depth[i + shift] = f_depth[i]
    f_start[low] = start
    f_end[low] = end
    f_row[low] = row
    f_depth[low] = depth
    return size + shift


def nest(
    const uint8_t[::1] wanted,
    const int64_t[::1] tracks,
    const int64_t[::1] starts,
    const int64_t[::1] ends,
    int64_t first_row,
    int64_t[:, ::1] frontier,
    int64_t[::1] state,
    int64_t[::1] depths,
    int64_t[::1] parents,
    uint8_t[::1] crosses,
    int64_t slack,
):
    """Depth and parent (-1 for none) of every wanted range; rows are sorted by (track, start, -end) and numbered from
    `first_row`.

    `crosses`: whether it begins in an earlier one and ends after it, each by more than `slack`.

    `frontier` has the starts, ends, rows and depths of its ranges. `state` is (size of the frontier, track). Both are
    kept from call to call; the frontier must have space for all rows of the call.
    """
    cdef int64_t[::1] f_start = frontier[0], f_end = frontier[1], f_row = frontier[2], f_depth = frontier[3]
    cdef Py_ssize_t i, at, size = state[0]
    cdef int64_t start, end, depth, track = state[1]
    with nogil:
        for i in range(starts.shape[0]):
            depths[i] = -1
            parents[i] = -1
            crosses[i] = 0
            if not wanted[i]:
                continue
            if tracks[i] != track:
                track = tracks[i]
                size = 0
            start = starts[i]
            end = ends[i]
            while size > 0 and f_end[size - 1] < start:
                size -= 1
            at = size
            while at > 0 and f_end[at - 1] < end:
                at -= 1
                if f_end[at] - start > slack and end - f_end[at] > slack and start > f_start[at]:
                    crosses[i] = 1
            depth = 0
            if at > 0:
                parents[i] = f_row[at - 1]
                depth = f_depth[at - 1] + 1
            depths[i] = depth
            size = place(size, start, end, first_row + i, depth, f_start, f_end, f_row, f_depth)
    state[0] = size
    state[1] = track


def lanes(
    const int64_t[::1] groups,
    const int64_t[::1] starts,
    const int64_t[::1] ends,
    int64_t most_together,
    int64_t[::1] first,
    int64_t[:, ::1] known,
    int64_t[:, ::1] open_,
    int64_t[::1] state,
    int64_t[::1] out_lanes,
    int64_t[::1] out_orders,
):
    """Give each interval the first lane of its group on which it crosses no other; rows of a group are sorted by
    (start, -end).

    Two intervals on a lane are disjoint, or one contains the other. `out_orders` is the number of intervals of the lane
    that start at the same time and contain the interval, fewer than `most_together`. `first` is the first lane of each
    group, -1 for none; `known` (2, lanes) the next lane of a lane's group and its innermost open interval; `open_` (4,
    intervals) ends, starts, orders and the interval below, which links the unused ones. `state` is (lanes, intervals
    ever used, first unused one). All of these are kept from call to call; `known` and `open_` must have space for all
    rows of the call.
    """
    cdef int64_t[::1] following = known[0], top = known[1]
    cdef int64_t[::1] o_end = open_[0], o_start = open_[1], o_order = open_[2], below = open_[3]
    cdef Py_ssize_t i
    cdef int64_t group, start, end, lane, last, number, order, at, count = state[0], used = state[1], unused = state[2]
    with nogil:
        for i in range(starts.shape[0]):
            group = groups[i]
            start = starts[i]
            end = ends[i]
            lane = first[group]
            last = -1
            number = 0
            order = 0
            while lane >= 0:
                at = top[lane]
                while at >= 0 and o_end[at] <= start:
                    top[lane] = below[at]
                    below[at] = unused
                    unused = at
                    at = top[lane]
                order = o_order[at] + 1 if at >= 0 and o_start[at] == start else 0
                if at < 0 or (o_end[at] >= end and order < most_together):
                    break
                last = lane
                lane = following[lane]
                number += 1
            if lane < 0:
                lane = count
                count += 1
                following[lane] = -1
                top[lane] = -1
                order = 0
                if last < 0:
                    first[group] = lane
                else:
                    following[last] = lane
            out_lanes[i] = number
            out_orders[i] = order
            if end <= start:
                continue
            if unused >= 0:
                at = unused
                unused = below[at]
            else:
                at = used
                used += 1
            o_end[at] = end
            o_start[at] = start
            o_order[at] = order
            below[at] = top[lane]
            top[lane] = at
    state[0] = count
    state[1] = used
    state[2] = unused


def innermost(
    const int64_t[::1] r_tracks,
    const int64_t[::1] r_starts,
    const int64_t[::1] r_ends,
    const int64_t[::1] q_tracks,
    const int64_t[::1] q_starts,
    const int64_t[::1] q_ends,
    int64_t[:, ::1] frontier,
    int64_t[::1] state,
    int64_t[::1] rows,
):
    """The shortest range that encloses each query, or -1; both are sorted by (track, start), the ranges then by -end.

    `frontier` is as in `nest`. `state` is (size of the frontier, track, next range, next query). The sweep stops early
    when the frontier is full: the caller enlarges it and calls again.
    """
    cdef int64_t[::1] f_start = frontier[0], f_end = frontier[1], f_row = frontier[2], f_depth = frontier[3]
    cdef Py_ssize_t i, at, size = state[0], j = state[2], first = state[3], room = f_start.shape[0]
    cdef Py_ssize_t ranges = r_starts.shape[0], queries = q_starts.shape[0]
    cdef int64_t wanted, start, end, track = state[1]
    cdef bint full = False
    with nogil:
        for i in range(first, queries):
            wanted = q_tracks[i]
            start = q_starts[i]
            end = q_ends[i]
            while j < ranges and (r_tracks[j] < wanted or (r_tracks[j] == wanted and r_starts[j] <= start)):
                if r_tracks[j] == wanted:
                    if track != wanted:
                        track = wanted
                        size = 0
                    while size > 0 and f_end[size - 1] < r_starts[j]:
                        size -= 1
                    if size == room:
                        full = True
                        break
                    size = place(size, r_starts[j], r_ends[j], j, 0, f_start, f_end, f_row, f_depth)
                j += 1
            if full:
                first = i
                break
            if track != wanted:
                track = wanted
                size = 0
            while size > 0 and f_end[size - 1] < start:
                size -= 1
            at = size
            while at > 0 and f_end[at - 1] < end:
                at -= 1
            rows[i] = f_row[at - 1] if at > 0 else -1
    state[0] = size
    state[1] = track
    state[2] = j
    state[3] = first if full else queries


def enclosing(
    const int64_t[::1] r_tracks,
    const int64_t[::1] r_starts,
    const int64_t[::1] r_ends,
    const int64_t[::1] q_tracks,
    const int64_t[::1] q_starts,
    const int64_t[::1] q_ends,
    int64_t[:, ::1] active,
    int64_t[::1] state,
    int64_t[:, ::1] out_pairs,
):
    """Every (query, range) in which the range encloses the query, by query and then by row of the range; sorted as for
    `innermost`.

    `active` has the ends and rows of the active ranges. `state` is (active ranges, track, next range, next query, pairs
    written). The sweep stops when the space for the active ranges, or for the pairs of the next query, may not suffice.
    """
    cdef int64_t[::1] a_end = active[0], a_row = active[1], out_query = out_pairs[0], out_range = out_pairs[1]
    cdef Py_ssize_t i = state[3], j = state[2], k, kept, written = 0, size = state[0], room = a_end.shape[0]
    cdef Py_ssize_t ranges = r_starts.shape[0], queries = q_starts.shape[0]
    cdef int64_t wanted, start, end, track = state[1]
    with nogil:
        while i < queries:
            wanted = q_tracks[i]
            start = q_starts[i]
            end = q_ends[i]
            if track != wanted:
                track = wanted
                size = 0
            while j < ranges and (r_tracks[j] < wanted or (r_tracks[j] == wanted and r_starts[j] <= start)):
                if r_tracks[j] == wanted:
                    while size > 0 and a_end[size - 1] < r_starts[j]:
                        size -= 1
                    if size == room:
                        break
                    a_end[size] = r_ends[j]
                    a_row[size] = j
                    size += 1
                j += 1
            kept = 0
            for k in range(size):
                if a_end[k] >= start:
                    a_end[kept] = a_end[k]
                    a_row[kept] = a_row[k]
                    kept += 1
            size = kept
            if j < ranges and r_tracks[j] == wanted and r_starts[j] <= start:
                break  # no space for the next range
            if size > out_query.shape[0] - written:
                break
            for k in range(size):
                if a_end[k] >= end:
                    out_query[written] = i
                    out_range[written] = a_row[k]
                    written += 1
            i += 1
    state[0] = size
    state[1] = track
    state[2] = j
    state[3] = i
    state[4] = written
