"""Alignment of two sequences within a band: n operations of a trace and m calls of a log.

Column k of row i is the pair of operation i and call j = i + first + k - band; a band of `band` to each side has 2 *
band + 1 columns. `match_scores` gives the score of a match, and each skipped operation or call costs 0.7, except
operations before the first call and after the last one, and calls before the first operation. Arrays named `out` are
written to.
"""

from libc.math cimport fabs, isnan
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef double SKIP = -0.7
cdef double NEVER = -1e9  # the score of an impossible match
cdef double POSSIBLE = -5e8  # scores above this belong to possible matches
cdef double SAME = 1e-9  # scores that differ by less count as equal


def match_scores(
    const int64_t[::1] ops,
    const int64_t[::1] sizes,
    const double[::1] durations,
    const int64_t[::1] lanes,
    const int64_t[::1] call_ops,
    const int64_t[::1] call_sizes,
    const int64_t[::1] kinds,
    const double[::1] kind_durations,
    const int64_t[::1] kind_lanes,
    Py_ssize_t first,
    double alike,
    double[:, ::1] out,
):
    """The score of each match within the band.

    Args:
        ops: Operation numbers, n.
        sizes: Sizes, -1 if unknown.
        durations: Logarithms of durations, NaN if unknown.
        lanes: Streams, -1 if unknown.
        call_ops: Operation numbers of the calls, m.
        call_sizes: Their sizes.
        kinds: Kind of each call.
        kind_durations: For each kind, the usual logarithm of its durations, NaN if unknown.
        kind_lanes: For each kind, its usual stream, -1 if unknown.
        first: The call that is expected at the first operation.
        alike: How far apart the logarithms of equal durations are, above 0.
        out: n x (2 * band + 1).
    """
    cdef Py_ssize_t i, j, k, calls = call_ops.shape[0], width = out.shape[1], band = out.shape[1] // 2
    cdef int64_t kind
    cdef double score
    with nogil:
        for i in range(out.shape[0]):
            for k in range(width):
                j = i + first + k - band
                out[i, k] = NEVER
                if j < 0 or j >= calls or ops[i] != call_ops[j]:
                    continue
                score = 1.0
                if sizes[i] >= 0 and call_sizes[j] >= 0:
                    score += 0.5 if sizes[i] == call_sizes[j] else -1.0
                kind = kinds[j]
                if not isnan(kind_durations[kind]) and not isnan(durations[i]):
                    score += 0.5 - min(fabs(durations[i] - kind_durations[kind]) / alike, 2.0) * 0.5
                if kind_lanes[kind] >= 0 and lanes[i] >= 0:
                    score += 0.1 if kind_lanes[kind] == lanes[i] else -2.0
                out[i, k] = score


def prefix_scores(const double[:, ::1] scores, Py_ssize_t calls, Py_ssize_t first, double[:, ::1] out):
    """The best score of the first i operations and the calls before j, for each i and k.

    A step that skips an operation comes from column k + 1 of the row before; a step that skips a call from column k -
    1.

    Args:
        scores: What matches score, n x (2 * band + 1).
        calls: The number m of calls.
        first: The call that is expected at the first operation.
        out: (n + 1) x (2 * band + 2).
    """
    cdef Py_ssize_t i, j, k, width = scores.shape[1], band = scores.shape[1] // 2
    cdef double best
    cdef bint outside
    with nogil:
        for i in range(out.shape[0]):
            for k in range(width + 1):
                j = i + first + k - band
                outside = j <= 0 or j >= calls
                best = 0.0 if i == 0 else NEVER
                if i > 0 and k < width:
                    best = max(best, out[i - 1, k] + scores[i - 1, k])
                    best = max(best, out[i - 1, k + 1] + (0.0 if outside else SKIP))
                elif i > 0 and outside:
                    best = max(best, 0.0)
                if i > 0 and k > 0:
                    best = max(best, out[i, k - 1] + (0.0 if j <= 0 or j > calls else SKIP))
                out[i, k] = best


def suffix_scores(const double[:, ::1] scores, Py_ssize_t calls, Py_ssize_t first, double[:, ::1] out):
    """The best score of the operations from i on and the calls from j on, for each i and k; the last row must be 0.

    Args:
        scores: What matches score, n x (2 * band + 1).
        calls: The number m of calls.
        first: The call that is expected at the first operation.
        out: (n + 1) x (2 * band + 2).
    """
    cdef Py_ssize_t i, j, k, width = scores.shape[1], band = scores.shape[1] // 2
    cdef double best
    cdef bint outside
    with nogil:
        for i in range(scores.shape[0] - 1, -1, -1):
            for k in range(width, -1, -1):
                j = i + first + k - band
                outside = j <= 0 or j >= calls
                best = NEVER
                if k < width:
                    best = max(best, out[i + 1, k] + scores[i, k])
                    best = max(best, out[i, k + 1] + (0.0 if j < 0 or j >= calls else SKIP))
                if k > 0:
                    best = max(best, out[i + 1, k - 1] + (0.0 if outside else SKIP))
                elif outside:
                    best = max(best, 0.0)
                out[i, k] = best


def best_path(const double[:, ::1] scores, const double[:, ::1] prefix, Py_ssize_t calls, Py_ssize_t first,
    int64_t[::1] out):
    """The call of each operation on the path with the highest score, -1 for none.

    Args:
        scores: What matches score, n x (2 * band + 1).
        prefix: From `prefix_scores`.
        calls: The number m of calls.
        first: The call that is expected at the first operation.
        out: n calls; -1 on entry.
    """
    cdef Py_ssize_t i = scores.shape[0], j, k = 0, at, width = scores.shape[1], band = scores.shape[1] // 2
    cdef double here
    with nogil:
        for at in range(width + 1):
            if prefix[i, at] > prefix[i, k]:
                k = at
        while i > 0:
            here = prefix[i, k]
            j = i + first + k - band
            if k < width and scores[i - 1, k] > POSSIBLE and fabs(here - (prefix[i - 1, k] + scores[i - 1, k])) < SAME:
                out[i - 1] = j - 1
                i -= 1
            elif k > 0 and fabs(here - (prefix[i, k - 1] + (0.0 if j <= 0 or j > calls else SKIP))) < SAME:
                k -= 1
            else:
                k = min(k + 1, width)
                i -= 1


def certain_matches(
    const double[:, ::1] scores,
    const double[:, ::1] prefix,
    const double[:, ::1] suffix,
    const int64_t[::1] matches,
    const int64_t[::1] kinds,
    Py_ssize_t first,
    double margin,
    uint8_t[::1] out,
):
    """Whether every path that gives an operation a call of another kind scores less by `margin`.

    Args:
        scores: What matches score, n x (2 * band + 1).
        prefix: From `prefix_scores`.
        suffix: From `suffix_scores`.
        matches: The call of each operation, -1 for none.
        kinds: Kind of each call, m.
        first: The call that is expected at the first operation.
        margin: The least difference of the scores.
        out: n values; False on entry, and for an operation without a call.
    """
    cdef Py_ssize_t i, k, width = scores.shape[1], band = scores.shape[1] // 2
    cdef int64_t kind
    cdef double same, other, score
    with nogil:
        for i in range(scores.shape[0]):
            if matches[i] < 0:
                continue
            kind = kinds[matches[i]]
            same = NEVER
            other = NEVER
            for k in range(width):
                if scores[i, k] <= POSSIBLE:
                    continue
                score = prefix[i, k] + scores[i, k] + suffix[i + 1, k]
                if kinds[i + first + k - band] == kind:
                    same = max(same, score)
                else:
                    other = max(other, score)
            out[i] = same - other >= margin


def cheapest_path(const double[:, ::1] costs, double change, double[::1] total, int32_t[:, ::1] came, int64_t[::1] out):
    """The state at each place that makes the sum of costs and changes of state least.

    Args:
        costs: The cost of each state at each place, states x places.
        change: What another state than at the place before costs.
        total: Room for a number for each state.
        came: Room for places x states.
        out: The state at each place.
    """
    cdef Py_ssize_t s, j, states = costs.shape[0], places = costs.shape[1], best = 0, following
    cdef double least
    if places == 0:
        return
    with nogil:
        for s in range(states):
            total[s] = costs[s, 0]
            if total[s] < total[best]:
                best = s
        for j in range(1, places):
            least = total[best] + change
            following = 0
            for s in range(states):
                if total[s] <= least:
                    came[j, s] = <int32_t>s
                else:
                    came[j, s] = <int32_t>best
                    total[s] = least
                total[s] += costs[s, j]
                if total[s] < total[following]:
                    following = s
            best = following
        out[places - 1] = best
        for j in range(places - 1, 0, -1):
            best = came[j, best]
            out[j - 1] = best
