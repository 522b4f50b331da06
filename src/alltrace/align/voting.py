"""Which differences between the times of two ranks pile up, in machine code: the votes, and how sharp a pile is."""

from __future__ import annotations

from typing import Any

from alltrace.trace.jit import plain_kernel

_F = "float64[::1]"
_I = "int64[::1]"
_I32 = "int32[::1]"


@plain_kernel(f"void({_F}, {_F}, {_I}, {_I}, float64, float64, {_I32})")
def tally(first: Any, second: Any, low: Any, high: Any, least: Any, per_ns: Any, votes: Any) -> None:
    """Counts the differences first[k] - second[i], with low[i] <= k < high[i], by bins.

    Args:
        first: Times that can be partners.
        second: Times that vote.
        low: The first partner of each.
        high: The one behind its last.
        least: No difference is smaller.
        per_ns: Bins of a unit of time.
        votes: Filled with the number in each bin; 0 before.
    """
    for i in range(second.size):
        shift = second[i] + least
        for k in range(low[i], high[i]):
            votes[int((first[k] - shift) * per_ns)] += 1


@plain_kernel(f"void({_I32}, int64, {_I}, {_I})")
def summed(fine: Any, fines: Any, out_votes: Any, out_sharp: Any) -> None:
    """For each bin the votes in its fine bins, and the most in one of them and the next."""
    for at in range(out_votes.size):
        votes = 0
        sharp = 0
        for k in range(at * fines, (at + 1) * fines):
            votes += fine[k]
            following = fine[k + 1] if k + 1 < fine.size else 0
            sharp = max(sharp, fine[k] + following)
        out_votes[at] = votes
        out_sharp[at] = sharp


@plain_kernel(f"int64({_F}, {_F}, {_I}, {_I}, float64, float64, boolean[::1], {_F})")
def gathered(first: Any, second: Any, low: Any, high: Any, least: Any, per_ns: Any, wanted: Any, out: Any) -> Any:
    """Writes those of the same differences whose bin is `wanted` into `out`; returns how many there are."""
    count = 0
    for i in range(second.size):
        shift = second[i] + least
        for k in range(low[i], high[i]):
            if wanted[int((first[k] - shift) * per_ns)]:
                out[count] = first[k] - second[i]
                count += 1
    return count


@plain_kernel(f"void({_F}, {_I}, {_I}, {_F}, {_F}, {_I}, {_F}, {_F})")
def sharpest(values: Any, begin: Any, count: Any, widths: Any, worths: Any, reach: Any, out_worth: Any, out_middle: Any) -> None:
    """For each part of the sorted `values` what its sharpest pile is worth, and the median of that pile.

    Args:
        values: Numbers, each part ascending.
        begin: Where each part begins.
        count: How many it has.
        widths: The widths of piles.
        worths: What one number within each width is worth.
        reach: Room for a number of each width.
        out_worth: Filled with the most that a part's pile is worth.
        out_middle: Filled with its median.
    """
    for part in range(begin.size):
        stop = begin[part] + count[part]
        best = -1e300
        first = begin[part]
        last = first
        reach[:] = begin[part]
        for at in range(begin[part], stop):
            for w in range(widths.size):
                limit = values[at] + widths[w]
                while reach[w] < stop and values[reach[w]] <= limit:
                    reach[w] += 1
                worth = (reach[w] - at) * worths[w]
                if worth > best:
                    best = worth
                    first = at
                    last = reach[w]
        middle = first + (last - first) // 2
        out_worth[part] = best
        out_middle[part] = values[middle]
        if (last - first) % 2 == 0:
            out_middle[part] = (values[middle - 1] + values[middle]) / 2


@plain_kernel(f"int64({_F}, float64, {_I})")
def apart(values: Any, distance: Any, out: Any) -> Any:
    """Writes into `out` the places of the values that are further than `distance` from all before that are; returns how many."""
    count = 0
    for i in range(values.size):
        alone = True
        for k in range(count):
            if abs(values[i] - values[out[count - 1 - k]]) <= distance:
                alone = False
                break
        if alone:
            out[count] = i
            count += 1
    return count
