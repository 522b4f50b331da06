"""Paraver traces: for the export, sweeps over intervals; for the reader, lines to numbers, and begins and ends to
intervals.

Times are int64 nanoseconds. Sweeps take rows in the order of time, block by block: the caller keeps arrays that are
called persistent from call to call. Arrays named `out_...` are written to.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cpdef enum:  # bit positions in the code of a point: the track, whether it is a query, and its owner; see `strongest`
    TRACK_SHIFT = 40
    QUERY_SHIFT = 39
    OWNER_SHIFT = 16

# kinds of a slot, in addition to 0 for intervals: events without an end, and changes of the innermost range
cpdef enum:
    PUNCTUAL = 1
    CHANGES = 2

# columns of an open interval: begin, value, known end or -1, number of the call, next one below, values of other types
cpdef enum:
    OPEN_TIME = 0
    OPEN_VALUE = 1
    OPEN_END = 2
    OPEN_CALL = 3
    OPEN_BELOW = 4
    OPEN_OTHERS = 5

cpdef enum:  # columns of an interval
    SLOT = 0
    THREAD = 1
    BEGIN = 2
    END = 3
    VALUE = 4
    CALL = 5
    OTHERS = 6

cpdef enum:  # counters: the first free row, calls that launched, intervals written, ends without a begin
    FREE = 0
    CALLS = 1
    ROWS = 2
    LOST = 3

cdef enum:
    EVENT = 2
    COMMUNICATION = 3
    EVENT_NUMBERS = 8  # in an event line with one type
    COMMUNICATION_NUMBERS = 15


def innermost(
    Py_ssize_t first,
    const int64_t[::1] groups,
    const int64_t[::1] starts,
    const int64_t[::1] ends,
    const int64_t[::1] values,
    int64_t[::1] depths,
    int64_t[:, ::1] open_ends,
    int64_t[:, ::1] open_values,
    Py_ssize_t count,
    int64_t[::1] out_groups,
    int64_t[::1] out_times,
    int64_t[::1] out_values,
    int64_t[::1] out_depths,
):
    """The changes of the innermost range of each group (a thread's ranges of one domain).

    Ranges are n rows, from row `first` on: groups numbered from 0; starts, ascending, equal ones with the longest
    first; ends; values. A range that outlasts the one around it is taken to end with it. `depths` (g) is the number of
    open ranges of each group; `open_ends` and `open_values` (g, d) have their ends and values; all three are
    persistent. The outputs have space for 2n and all open ranges, and are written from `count` on: groups, times, the
    value of the innermost range from then on, 0 outside of all ranges, and the number of open ranges.

    Returns (n, or the row at which d ranges of its group are open already; the number of changes).
    """
    cdef Py_ssize_t i = first, rows = groups.shape[0], deepest = open_ends.shape[1]
    cdef int64_t group, depth, end
    with nogil:
        while i < rows:
            group = groups[i]
            depth = depths[group]
            while depth > 0 and open_ends[group, depth - 1] <= starts[i]:
                depth -= 1
                out_groups[count] = group
                out_times[count] = open_ends[group, depth]
                out_values[count] = open_values[group, depth - 1] if depth > 0 else 0
                out_depths[count] = depth
                count += 1
            depths[group] = depth
            if depth == deepest:
                break
            end = ends[i]
            if depth > 0 and open_ends[group, depth - 1] < end:
                end = open_ends[group, depth - 1]
            open_ends[group, depth] = end
            open_values[group, depth] = values[i]
            depths[group] = depth + 1
            out_groups[count] = group
            out_times[count] = starts[i]
            out_values[count] = values[i]
            out_depths[count] = depth + 1
            count += 1
            i += 1
    return i, count


def strongest(
    const int64_t[::1] times,
    const int64_t[::1] codes,
    const int64_t[::1] more,
    int64_t end,
    const int64_t[::1] rest,
    int64_t[:, ::1] open_counts,
    int64_t[::1] since,
    int64_t[::1] states,
    int64_t[::1] ended,
    int64_t[::1] out_tracks,
    int64_t[::1] out_starts,
    int64_t[::1] out_ends,
    int64_t[::1] out_states,
    int64_t[::1] out_waits,
    int64_t[::1] out_waited,
):
    """The state of each of t tracks over time, with intervals of s states that may overlap, and what each wait waited
    for.

    Points are n rows, in the order of time and code: begins, ends and queries. A code has the track, whether the point
    is a query, and its owner, or the state and, in the lowest bit, whether it begins; so a query comes after the begins
    and ends of its track and time. `more` has, for a query, the earliest end of work that can have been waited for.
    Time goes from 0 to `end`. `rest` (t) is the state of a track that no interval covers. Persistent are `open_counts`
    (t, s), the open intervals of each state, the strongest first; `since` and `states` (t), the state of each track and
    when it began; and `ended` (t), the last end of an interval, or -1. The outputs have space for n: tracks, starts,
    ends and states of states that ended, of which two in a row on a track differ; the rows of queries that have an
    answer, and the last end of an interval on their track.

    Returns (number of states that ended, number of queries that have an answer).
    """
    cdef Py_ssize_t i = 0, s, rows = times.shape[0], ended_states = 0, waits = 0
    cdef int64_t time, track, state
    with nogil:
        while i < rows:
            time = times[i]
            track = codes[i] >> TRACK_SHIFT
            if codes[i] >> QUERY_SHIFT & 1:
                if ended[track] >= more[i] and ended[track] >= 0:
                    out_waits[waits] = i
                    out_waited[waits] = ended[track]
                    waits += 1
                i += 1
                continue
            while i < rows and times[i] == time and codes[i] >> QUERY_SHIFT == 2 * track:
                state = codes[i] >> 1 & 63
                if codes[i] & 1:
                    open_counts[track, state] += 1
                else:
                    open_counts[track, state] -= 1
                    ended[track] = time
                i += 1
            if time >= end:
                continue
            state = rest[track]
            for s in range(open_counts.shape[1]):
                if open_counts[track, s] > 0:
                    state = s
                    break
            if state != states[track]:
                if time > since[track]:
                    out_tracks[ended_states] = track
                    out_starts[ended_states] = since[track]
                    out_ends[ended_states] = time
                    out_states[ended_states] = states[track]
                    ended_states += 1
                    since[track] = time
                states[track] = state
    return ended_states, waits


def overlapping(
    const int64_t[:] objects, const int64_t[:] starts, const int64_t[:] ends, int64_t[::1] last_ends, uint8_t[::1] out
):
    """Which of n intervals start before an earlier one of the same object has ended; returns how many.

    `last_ends` has the last end on each object so far, and is persistent; `out` is a boolean array of n.
    """
    cdef Py_ssize_t i, count = 0
    cdef int64_t last
    with nogil:
        for i in range(objects.shape[0]):
            last = last_ends[objects[i]]
            out[i] = starts[i] < last
            count += out[i]
            if ends[i] > last:
                last_ends[objects[i]] = ends[i]
    return count


def parse_lines(const uint8_t[::1] text, int64_t[::1] values, int64_t[::1] offsets, uint8_t[::1] wrong):
    """The numbers of n lines of a .prv; returns how many there are.

    `values` is filled with all numbers, line by line: it needs space for one per byte. `offsets` (n + 1) is filled with
    the position in `values` at which the numbers of each line start, `wrong` (n) with whether a line has anything other
    than 64-bit integers separated by colons. Empty lines and comments have no numbers.

    Raises:
        ValueError: The text does not end with a line end.
    """
    cdef Py_ssize_t at = 0, line = 0, count = 0, size = text.shape[0]
    cdef uint64_t number
    cdef int digits
    cdef bint negative, bad
    if size > 0 and text[size - 1] != c"\n":
        raise ValueError("the text does not end with a line end")
    with nogil:
        while at < size:
            offsets[line] = count
            bad = False
            if text[at] != c"#" and text[at] != c"\n":
                while True:
                    negative = text[at] == c"-"
                    if negative:
                        at += 1
                    digits = 0
                    number = 0
                    while c"0" <= text[at] <= c"9":
                        number = 10 * number + (text[at] - c"0")
                        digits += digits < 20
                        at += 1
                    # a number of 19 digits is less than 2**64
                    if digits == 0 or digits > 19 or number >> 63:
                        bad = True
                    values[count] = <int64_t>(0 - number if negative else number)
                    count += 1
                    if text[at] != c":":
                        break
                    at += 1
                if text[at] != c"\n":
                    bad = True
            while text[at] != c"\n":
                at += 1
            at += 1
            wrong[line] = bad
            line += 1
        offsets[line] = count
    return count


cdef Py_ssize_t find(const int64_t[::1] ascending, int64_t value) except? -2 nogil:
    """The index of a value, -1 if it is missing."""
    cdef Py_ssize_t low = 0, high = ascending.shape[0], middle
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low if low < ascending.shape[0] and ascending[low] == value else -1


cdef int64_t thread_of(const int64_t[::1] first_threads, int64_t task, int64_t thread) except -2 nogil:
    """The global number of a thread, from the task and thread numbers of a line, which count from 1; -1 if there is
    none."""
    if task < 1 or task >= first_threads.shape[0]:
        return -1
    if thread < 1 or thread > first_threads[task] - first_threads[task - 1]:
        return -1
    return first_threads[task - 1] + thread - 1


cdef int64_t take_place(int64_t[:, ::1] places, int64_t[::1] counters) except -1 nogil:
    """Take a free row of `places`; there must be one."""
    cdef int64_t place = counters[FREE]
    counters[FREE] = places[place, OPEN_BELOW]
    return place


cdef int free_place(int64_t place, int64_t[:, ::1] places, int64_t[::1] counters) except -1 nogil:
    places[place, OPEN_BELOW] = counters[FREE]
    counters[FREE] = place
    return 0


cdef int64_t call_at(int64_t place, int64_t time, int64_t[:, ::1] places, int64_t[::1] counters) except -2 nogil:
    """The number of the open call, from `place` down, that begins at `time`, assigned now if it has none; -1 for no
    call."""
    while place >= 0 and places[place, OPEN_TIME] != time:
        place = places[place, OPEN_BELOW]
    if place < 0:
        return -1
    if places[place, OPEN_CALL] < 0:
        counters[CALLS] += 1
        places[place, OPEN_CALL] = counters[CALLS]
    return places[place, OPEN_CALL]


cdef int launch(
    int64_t call,
    int64_t sent,
    int64_t thread,
    int64_t arrives,
    Py_ssize_t call_slot,
    Py_ssize_t last_work,
    const int64_t[:, ::1] heads,
    int64_t[:, ::1] waiting,
    int64_t[:, ::1] places,
    int64_t[::1] counters,
) except -1 nogil:
    """Record which call launched the open work that begins at `arrives`; if there is none yet, the launch waits for
    such work."""
    cdef Py_ssize_t slot
    cdef int64_t place
    cdef bint matched = False
    for slot in range(call_slot + 1, last_work + 1):
        place = heads[thread, slot]
        while place >= 0 and not matched:
            if places[place, OPEN_TIME] == arrives and places[place, OPEN_CALL] < 0:
                places[place, OPEN_CALL] = call
                matched = True
            place = places[place, OPEN_BELOW]
    if not matched and arrives >= sent:
        place = take_place(places, counters)
        places[place, OPEN_TIME] = arrives
        places[place, OPEN_CALL] = call
        places[place, OPEN_BELOW] = -1
        if waiting[thread, 0] < 0:
            waiting[thread, 0] = place
        else:
            places[waiting[thread, 1], OPEN_BELOW] = place
        waiting[thread, 1] = place
    return 0


cdef int64_t launched_by(
    int64_t thread, int64_t time, int64_t[:, ::1] waiting, int64_t[:, ::1] places, int64_t[::1] counters
) except -2 nogil:
    """The call that launched the work that begins now on a thread, -1 for none; removes launches of earlier work."""
    cdef int64_t before = -1, place = waiting[thread, 0], after, began
    while place >= 0:
        after = places[place, OPEN_BELOW]
        began = places[place, OPEN_TIME]
        if began > time:
            before = place
        else:
            if before < 0:
                waiting[thread, 0] = after
            else:
                places[before, OPEN_BELOW] = after
            if after < 0:
                waiting[thread, 1] = before
            free_place(place, places, counters)
            if began == time:
                return places[place, OPEN_CALL]
        place = after
    return -1


cpdef Py_ssize_t pair(
    Py_ssize_t first,
    const int64_t[::1] values,
    const int64_t[::1] offsets,
    const uint8_t[::1] wrong,
    const int64_t[::1] first_threads,
    const int64_t[::1] types,
    const int64_t[::1] slots,
    const int64_t[::1] kinds,
    const int64_t[::1] columns,
    int64_t[:, ::1] heads,
    int64_t[:, ::1] waiting,
    int64_t[:, ::1] depths,
    int64_t[:, ::1] places,
    int64_t[:, ::1] out,
    int64_t[::1] counters,
    int64_t length_type,
    Py_ssize_t call_slot,
    Py_ssize_t last_work,
    int64_t first_tag,
) except -1:
    """Make intervals from begins and ends; returns n, or the line for which no row is free.

    Lines are n, from line `first` on, as `parse_lines` returns them. `first_threads` has the first thread of each task,
    and last the number of threads. `types` are the known types of events, ascending; for each, `slots` has its slot, -1
    for a type that adds to events of other types, and `columns` the column for its value if it is such a type, else -1.
    `kinds` has the kind of each slot.

    Persistent are `heads` (threads, slots), the innermost open interval, -1 for none; `waiting` (threads, 2), the first
    and last of the launches whose work has not begun, -1 for none; `depths` (threads, slots), the number of open
    ranges; `places`, the open and the free rows, linked by `OPEN_BELOW`; and `counters`. `out` is filled with
    intervals; it has space for half as many as there are numbers.

    `length_type` is the type whose value is a length. `call_slot` is the slot of calls; work has the slots after it up
    to `last_work`. `first_tag` and the tag after it are those of launches.
    """
    cdef Py_ssize_t i, p, q, at, stop, index, slot, k, row, others = places.shape[1] - OPEN_OTHERS
    cdef int64_t kind, thread, other, time, call, place, value, depth, above, chosen, over
    cdef bint begins
    with nogil:
        for i in range(first, wrong.shape[0]):
            at = offsets[i]
            stop = offsets[i + 1]
            if wrong[i] or stop - at < EVENT_NUMBERS:
                continue
            kind = values[at]
            if kind != EVENT and kind != COMMUNICATION:
                continue
            thread = thread_of(first_threads, values[at + 3], values[at + 4])
            if thread < 0:
                continue
            time = values[at + 5]
            # most lines take at most two rows
            if counters[FREE] < 0 or places[counters[FREE], OPEN_BELOW] < 0:
                return i
            if kind == COMMUNICATION:
                if stop - at != COMMUNICATION_NUMBERS or not first_tag <= values[at + 14] <= first_tag + 1:
                    continue
                other = thread_of(first_threads, values[at + 9], values[at + 10])
                if other < 0:
                    continue
                call = call_at(heads[thread, call_slot], time, places, counters)
                if call >= 0:
                    launch(call, time, other, values[at + 11], call_slot, last_work, heads, waiting, places, counters)
                continue
            for p in range(at + 6, stop - 1, 2):
                index = find(types, values[p])
                if index < 0 or slots[index] < 0:
                    continue
                slot = slots[index]
                value = values[p + 1]
                begins = value != 0
                if kinds[slot] == CHANGES:
                    depth = values[p + 3] if p + 3 < stop else 0
                    begins = depth > depths[thread, slot]
                    depths[thread, slot] = depth
                if kinds[slot] == PUNCTUAL:
                    row = counters[ROWS]
                    counters[ROWS] += 1
                    out[row, SLOT] = slot
                    out[row, THREAD] = thread
                    out[row, BEGIN] = time
                    out[row, END] = time
                    out[row, VALUE] = value
                    continue
                if begins:
                    if counters[FREE] < 0:  # a line with many types; those that do not fit are skipped
                        counters[LOST] += 1
                        continue
                    place = take_place(places, counters)
                    places[place, OPEN_TIME] = time
                    places[place, OPEN_VALUE] = value
                    places[place, OPEN_END] = -1
                    places[place, OPEN_CALL] = -1
                    for k in range(others):
                        places[place, OPEN_OTHERS + k] = -1
                    for q in range(at + 6, stop - 1, 2):
                        if values[q] == length_type:
                            places[place, OPEN_END] = time + values[q + 1]
                        if q != p:
                            index = find(types, values[q])
                            if index >= 0 and columns[index] >= 0:
                                places[place, OPEN_OTHERS + columns[index]] = values[q + 1]
                    if call_slot < slot <= last_work:
                        places[place, OPEN_CALL] = launched_by(thread, time, waiting, places, counters)
                    places[place, OPEN_BELOW] = heads[thread, slot]
                    heads[thread, slot] = place
                    continue
                # end the interval with the current time as its known end, else the innermost one without a known end
                above = over = chosen = -1
                place = heads[thread, slot]
                while place >= 0:
                    if places[place, OPEN_END] == time:
                        chosen = place
                        over = above
                        break
                    if chosen < 0 and places[place, OPEN_END] < 0:
                        chosen = place
                        over = above
                    above = place
                    place = places[place, OPEN_BELOW]
                if chosen < 0:
                    counters[LOST] += 1
                    continue
                if over < 0:
                    heads[thread, slot] = places[chosen, OPEN_BELOW]
                else:
                    places[over, OPEN_BELOW] = places[chosen, OPEN_BELOW]
                row = counters[ROWS]
                counters[ROWS] += 1
                out[row, SLOT] = slot
                out[row, THREAD] = thread
                out[row, BEGIN] = places[chosen, OPEN_TIME]
                out[row, END] = time
                out[row, VALUE] = places[chosen, OPEN_VALUE]
                out[row, CALL] = places[chosen, OPEN_CALL]
                for k in range(others):
                    out[row, OTHERS + k] = places[chosen, OPEN_OTHERS + k]
                free_place(chosen, places, counters)
    return wrong.shape[0]
