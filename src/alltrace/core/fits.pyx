"""Robust fits of clocks: medians, offsets by histograms of differences, and lines.

Times are float64 nanoseconds. Functions write to arrays named `out...` and to those that a docstring calls scratch space.
"""

from libc.math cimport fabs, log
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef double MAD_TO_SIGMA = 1.4826  # of a normal distribution
cdef double LARGEST = 1e300
cdef Py_ssize_t SHORT = 12  # values that are sorted by insertion

cdef int LINE_ROUNDS = 6
cdef double LINE_FLOOR_NS = 50.0  # added to the scale of the residuals of a line
cdef double LINE_NEAR_SIGMAS = 5.0
cdef double LINE_NEAR_NS = 1_000.0
cdef Py_ssize_t LINE_LEAST_POINTS = 8  # needed to fit a slope
cdef double LINE_LEAST_SPAN_NS = 1e8  # a shorter span is too short to measure a rate


cdef double select_median(double[::1] values, Py_ssize_t count) except? -1 nogil:
    """The median of the first `count` values, of which there is at least one; reorders them (Hoare's selection, 1961)."""
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
    """The median of the first `count` values, the mean of the two in the middle if `count` is even; reorders the values.

    Raises:
        IndexError: `count` is less than 1, or more than there are values.
    """
    cdef double found
    if count < 1:
        raise IndexError(f"{count} values have no median")
    with nogil:
        found = select_median(values, count)
    return found


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


cdef Py_ssize_t line_residuals(
    const double[::1] x, const double[::1] y, const double[::1] line, const uint8_t[::1] chosen, double[::1] out
) except -1 nogil:
    """Write the residuals of the chosen points; returns how many there are."""
    cdef Py_ssize_t i, count = 0
    for i in range(x.shape[0]):
        if chosen[i]:
            out[count] = y[i] - line[0] - line[1] * x[i]
            count += 1
    return count


cdef int least_squares(const double[::1] x, const double[::1] y, const double[::1] weights, double[::1] line) except -1 nogil:
    """Fit a line by least squares to the points of weight above 0; returns 0, and leaves the line, if they span too little time."""
    cdef Py_ssize_t i
    cdef double count = 0.0, sum_x = 0.0, sum_y = 0.0, low = LARGEST, high = -LARGEST, mean_x, mean_y, across = 0.0, along = 0.0
    for i in range(x.shape[0]):
        if weights[i] > 0.0:
            low = min(low, x[i])
            high = max(high, x[i])
            count += 1.0
            sum_x += x[i]
            sum_y += y[i]
    if high - low <= LINE_LEAST_SPAN_NS:
        return 0
    mean_x = sum_x / count
    mean_y = sum_y / count
    for i in range(x.shape[0]):
        if weights[i] > 0.0:
            along += (x[i] - mean_x) * (x[i] - mean_x)
            across += (x[i] - mean_x) * (y[i] - mean_y)
    line[1] = across / along
    line[0] = mean_y - line[1] * mean_x
    return 1


def robust_line(
    const double[::1] x, const double[::1] y, Py_ssize_t least, uint8_t[::1] close, double[::1] room, double[::1] line
):
    """Fit y = centre + slope * x to the points that are close to it, in at most six rounds; returns False if there are no points.

    Args:
        x: Times, ns.
        y: Differences, ns, one per time.
        least: A round with fewer close points is discarded.
        close: Filled with whether each point is close to the line.
        room: Scratch space, one value per point.
        line: Centre, slope and scale (the robust standard deviation of the close points), ns; the slope on entry is the first guess.
    """
    cdef Py_ssize_t i, there, now, count = x.shape[0]
    cdef int turn
    cdef double typical, reach
    cdef bint near, same
    if count == 0:
        return False
    with nogil:
        for i in range(count):
            room[i] = y[i] - line[1] * x[i]
            close[i] = True
        line[0] = select_median(room, count)
        for turn in range(LINE_ROUNDS):
            typical = select_median(room, line_residuals(x, y, line, close, room))
            there = line_residuals(x, y, line, close, room)
            for i in range(there):
                room[i] = fabs(room[i] - typical)
            reach = LINE_NEAR_SIGMAS * (MAD_TO_SIGMA * select_median(room, there) + LINE_FLOOR_NS) + LINE_NEAR_NS
            now = 0
            same = True
            for i in range(count):
                near = fabs(y[i] - line[0] - line[1] * x[i] - typical) <= reach
                same = same and near == close[i]
                room[i] = 1.0 if near else 0.0
                now += near
            if now < least:
                break
            if now < LINE_LEAST_POINTS or not least_squares(x, y, room, line):
                line[0] += typical
            if same and turn > 0:
                break
            for i in range(count):
                close[i] = room[i] > 0.0
        there = line_residuals(x, y, line, close, room)
        for i in range(there):
            room[i] = fabs(room[i])
        line[2] = MAD_TO_SIGMA * select_median(room, there) + LINE_FLOOR_NS
    return True


cdef inline Py_ssize_t bin_of(double place, Py_ssize_t bins) except -1 nogil:
    """The bin of a position given in bins, as an integer; a position outside of the bins is never converted."""
    if place > -1.0 and place < bins:  # false for NaN
        return <Py_ssize_t>place
    with gil:
        raise IndexError(f"a difference is in bin {place}; there are {bins}")


def count_differences(
    const double[::1] partners,
    const double[::1] times,
    const int64_t[::1] lows,
    const int64_t[::1] highs,
    double least,
    double bins_per_ns,
    int32_t[::1] out_counts,
):
    """Count the differences partners[k] - times[i], with lows[i] <= k < highs[i], by bins.

    Args:
        partners: Times, ns.
        times: Times, ns, n.
        lows: The first partner of each of `times`.
        highs: One past its last partner.
        least: The smallest possible difference, at which the first bin begins.
        bins_per_ns: One over the width of a bin.
        out_counts: The number of differences in each bin; 0 on entry.

    Raises:
        IndexError: A difference is outside of the bins, or a partner does not exist.
    """
    cdef Py_ssize_t i, k
    cdef double shift
    with nogil:
        for i in range(times.shape[0]):
            shift = times[i] + least
            for k in range(lows[i], highs[i]):
                out_counts[bin_of((partners[k] - shift) * bins_per_ns, out_counts.shape[0])] += 1


def widen_bins(const int32_t[::1] fine, Py_ssize_t factor, int64_t[::1] out_counts, int64_t[::1] out_densest):
    """Join each `factor` fine bins into one: the sum of their counts, and the largest count of one of them and the next fine bin.

    Args:
        fine: Counts of n * factor fine bins.
        factor: Fine bins per bin.
        out_counts: n sums.
        out_densest: n largest counts of two adjacent fine bins; the second may be the first of the next bin.
    """
    cdef Py_ssize_t i, k
    cdef int64_t count, densest, following
    with nogil:
        for i in range(out_counts.shape[0]):
            count = 0
            densest = 0
            for k in range(i * factor, (i + 1) * factor):
                count += fine[k]
                following = fine[k + 1] if k + 1 < fine.shape[0] else 0
                densest = max(densest, fine[k] + following)
            out_counts[i] = count
            out_densest[i] = densest


def select_differences(
    const double[::1] partners,
    const double[::1] times,
    const int64_t[::1] lows,
    const int64_t[::1] highs,
    double least,
    double bins_per_ns,
    const uint8_t[::1] wanted,
    double[::1] out,
):
    """Write those differences of `count_differences` whose bin is `wanted`, ns; returns how many there are."""
    cdef Py_ssize_t i, k, count = 0
    cdef double shift
    with nogil:
        for i in range(times.shape[0]):
            shift = times[i] + least
            for k in range(lows[i], highs[i]):
                if wanted[bin_of((partners[k] - shift) * bins_per_ns, wanted.shape[0])]:
                    out[count] = partners[k] - times[i]
                    count += 1
    return count


def all_differences(
    const double[::1] partners, const double[::1] times, const int64_t[::1] lows, const int64_t[::1] highs, double[::1] out
):
    """Write the differences of `count_differences`, of which there are as many as `out` is long.

    Raises:
        IndexError: There are more, or there is no such partner.
    """
    cdef Py_ssize_t i, k, count = 0
    with nogil:
        for i in range(times.shape[0]):
            for k in range(lows[i], highs[i]):
                out[count] = partners[k] - times[i]
                count += 1


def pile_up(
    const double[::1] values,
    double least,
    double fine_per_ns,
    Py_ssize_t factor,
    int64_t[::1] out_bins,
    int64_t[::1] out_begins,
    int64_t[::1] out_counts,
    int64_t[::1] out_densest,
):
    """What `widen_bins` counts of values in order, for the bins that have any; how many these are.

    Args:
        values: Ascending, ns, none below `least`.
        least: The first fine bin begins here.
        fine_per_ns: One over the width of a fine bin.
        factor: Fine bins of a bin.
        out_bins: The bins, ascending; all four have room for as many as there are values.
        out_begins: The place of the first value of each.
        out_counts: The number of values in each.
        out_densest: The most in a fine bin of each and the next fine bin.
    """
    cdef Py_ssize_t i, count = 0
    cdef int64_t fine, before = -2, here = 0, previous = 0, bin = -1
    with nogil:
        for i in range(values.shape[0]):
            fine = <int64_t>((values[i] - least) * fine_per_ns)
            if fine != before:
                # the last fine bin is whole now; it counts with the one before it, for the bin of that one
                previous = here if fine == before + 1 else 0
                here = 0
                before = fine
                bin = fine // factor
                if count == 0 or out_bins[count - 1] != bin:
                    out_bins[count] = bin
                    out_begins[count] = i
                    out_counts[count] = 0
                    out_densest[count] = 0
                    count += 1
            here += 1
            out_counts[count - 1] += 1
            out_densest[count - 1] = max(out_densest[count - 1], here)
            if fine % factor > 0:
                out_densest[count - 1] = max(out_densest[count - 1], previous + here)
            elif count > 1 and out_bins[count - 2] == bin - 1:
                out_densest[count - 2] = max(out_densest[count - 2], previous + here)
    return count


def densest_windows(
    const double[::1] values,
    const int64_t[::1] begins,
    const int64_t[::1] counts,
    const double[::1] widths,
    const double[::1] worths,
    int64_t[::1] reach,
    double[::1] out_worths,
    double[::1] out_medians,
):
    """For each part of `values`, the worth of the best window, and the median of the values in it.

    Args:
        values: Numbers, each part ascending.
        begins: Position at which each part begins.
        counts: Number of its values, at least one.
        widths: The widths of windows.
        worths: The worth of each value in a window of that width.
        reach: Scratch space, one number per width.
        out_worths: The worth of the best window of each part.
        out_medians: Its median.
    """
    cdef Py_ssize_t part, i, w, stop, first, last, middle
    cdef double best, worth, limit
    with nogil:
        for part in range(begins.shape[0]):
            stop = begins[part] + counts[part]
            best = -LARGEST
            first = begins[part]
            last = first
            for w in range(widths.shape[0]):
                reach[w] = first
            for i in range(begins[part], stop):
                for w in range(widths.shape[0]):
                    limit = values[i] + widths[w]
                    while reach[w] < stop and values[reach[w]] <= limit:
                        reach[w] += 1
                    worth = (reach[w] - i) * worths[w]
                    if worth > best:
                        best = worth
                        first = i
                        last = reach[w]
            middle = first + (last - first) // 2
            out_worths[part] = best
            out_medians[part] = values[middle]
            if (last - first) % 2 == 0:
                out_medians[part] = (values[middle - 1] + values[middle]) / 2


def pick_apart(const double[::1] values, double distance, int64_t[::1] out):
    """Write the positions of values further than `distance` from all values picked before; returns how many there are."""
    cdef Py_ssize_t i, k, count = 0
    cdef bint alone
    with nogil:
        for i in range(values.shape[0]):
            alone = True
            for k in range(count - 1, -1, -1):
                if fabs(values[i] - values[out[k]]) <= distance:
                    alone = False
                    break
            if alone:
                out[count] = i
                count += 1
    return count


cdef Py_ssize_t first_not_below(const double[::1] values, double limit) noexcept nogil:
    """The place of the first of ascending values that is not below a limit; their number if there is none."""
    cdef Py_ssize_t low = 0, high = values.shape[0], middle
    while low < high:
        middle = (low + high) // 2
        if values[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return low


def sharpest_window(const double[:, ::1] values, double width, double around):
    """Which of several rows has the sharpest peak: the fullest window, the first of equal ones, against what surrounds it.

    n values in a window where chance would give m are worth n log(n / m) - (n - m), or nothing if n is no more than m.

    Args:
        values: (rows, n): the values of each row, ascending.
        width: How wide a window is, both ends included; less than twice `around`.
        around: Chance is the density of the other values in `[middle - around, middle + around)`, for the middle of the window.

    Returns:
        The row, the first of equal ones; what its window is worth; and the window's middle.

    Raises:
        IndexError: There are no values.
    """
    cdef Py_ssize_t n = values.shape[1], row, first, last, most, at, near, best_row = 0
    cdef double reach, middle, chance, worth, best = -1.0, best_middle = 0.0
    if n < 1 or values.shape[0] < 1:
        raise IndexError("no values have no window")
    with nogil:
        for row in range(values.shape[0]):
            last = 0
            most = 0
            at = 0
            for first in range(n):
                reach = values[row, first] + width
                while last < n and values[row, last] <= reach:
                    last += 1
                if last - first > most:
                    most = last - first
                    at = first
            middle = values[row, at] + width / 2
            near = first_not_below(values[row], middle + around) - first_not_below(values[row], middle - around)
            chance = (near - most + 0.5) * width / (2 * around - width)
            worth = most * log(most / chance) - (most - chance) if most > chance else 0.0
            if worth > best:
                best = worth
                best_row = row
                best_middle = middle
    return best_row, best, best_middle
