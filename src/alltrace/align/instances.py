"""Which operations are one instance: those with equal communicator and token that end together on one clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_ROUNDS = 64
_LONGEST_RUN = 3


def clusters(
    group: NDArray[np.int64],
    token: NDArray[np.int64],
    rank: NDArray[np.int64],
    end: NDArray[np.float64],
    gap_ns: NDArray[np.float64],
) -> NDArray[np.int64]:
    """The number of the cluster of each operation: equal group and token, ends no further apart than a gap, no rank twice.

    A cluster with a rank twice is cut at its widest gap until there is none.

    Args:
        group: What must be equal (communicator and component).
        token: Likewise.
        rank: Rank.
        end: Aligned end, ns.
        gap_ns: The widest gap, for each operation.
    """
    count = len(end)
    order = np.lexsort((end, token, group))
    g, t, r, e = group[order], token[order], rank[order], end[order]
    cut = np.ones(count, np.bool_)
    spacing = np.full(count, np.inf)
    if count > 1:
        same = (g[1:] == g[:-1]) & (t[1:] == t[:-1])
        spacing[1:] = np.where(same, e[1:] - e[:-1], np.inf)
        cut[1:] = spacing[1:] > gap_ns[order][1:]
    for _ in range(_MOST_ROUNDS):
        number = np.cumsum(cut) - 1
        twice = _with_a_rank_twice(number, r)
        if not twice.any():
            break
        inside = np.flatnonzero(twice[number] & ~cut)
        widest = np.full(int(number[-1]) + 1, -1.0)
        np.maximum.at(widest, number[inside], spacing[inside])
        cut[inside[spacing[inside] >= widest[number[inside]]]] = True
    result = np.empty(count, np.int64)
    result[order] = np.cumsum(cut) - 1
    return result


def _with_a_rank_twice(number: NDArray[np.int64], rank: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each cluster whether a rank is in it twice; clusters are contiguous."""
    count = int(number[-1]) + 1 if len(number) else 0
    result = np.zeros(count, np.bool_)
    if len(number) < 2:
        return result
    order = np.lexsort((rank, number))
    n, r = number[order], rank[order]
    again = (n[1:] == n[:-1]) & (r[1:] == r[:-1])
    result[n[1:][again]] = True
    return result


def filled(
    number: NDArray[np.int64],
    group: NDArray[np.int64],
    token: NDArray[np.int64],
    rank: NDArray[np.int64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    overlap_ns: float,
) -> NDArray[np.bool_]:
    """Assign single operations to an instance that lacks their rank, in `number`; returns which were assigned.

    The instance must have the same group and token and be between the instances of the rank's operations before and after, which
    must have one, and the intervals must share `overlap_ns` or half of the shorter: this finds operations with a wrong recorded
    end. One that follows at once does not share as much. If several instances match, none is used.
    """
    placed = np.zeros(len(number), np.bool_)
    clusters_of = int(number.max(initial=-1)) + 1
    size = np.bincount(number, minlength=clusters_of)
    single = size[number] == 1
    if not single.any():
        return placed
    latest, earliest = np.full(clusters_of, -np.inf), np.full(clusters_of, np.inf)
    np.maximum.at(latest, number, start)  # the last arrival
    np.minimum.at(earliest, number, end)  # the first end
    middle = np.bincount(number, end, minlength=clusters_of) / np.maximum(size, 1)
    width = int(rank.max()) + 1
    has = set((number * width + rank).tolist())
    before, after, between = _neighbours(group, rank, start, middle[number], ~single)
    heads = np.zeros(clusters_of, np.int64)
    heads[number] = np.arange(len(number))
    kind = pair(group, token)
    by_kind = np.lexsort((middle, kind[heads]))
    kinds, middles = kind[heads][by_kind], middle[by_kind]
    for i in np.flatnonzero(single).tolist():
        own = int(number[i])
        if size[own] != 1 or not between[i]:
            continue
        low, high = np.searchsorted(kinds, (kind[i], kind[i] + 1)).tolist()
        first = low + int(np.searchsorted(middles[low:high], start[i]))
        fits: list[int] = []
        for at in range(first, high):
            other = int(by_kind[at])
            if latest[other] > end[i] and earliest[other] > end[i]:
                break
            if other == own or size[other] == 0 or other * width + int(rank[i]) in has:
                continue
            shared = min(earliest[other], end[i]) - max(latest[other], start[i])
            shortest = min(earliest[other] - latest[other], end[i] - start[i])
            if shared >= min(overlap_ns, shortest / 2) and before[i] < middle[other] < after[i]:
                fits.append(other)
        # another operation that is alone is a place only where no instance is one
        fits = [f for f in fits if size[f] > 1] or fits
        if len(fits) == 1:
            other = fits[0]
            number[i] = other
            size[own], size[other] = 0, size[other] + 1
            has.add(other * width + int(rank[i]))
            latest[other], earliest[other] = max(latest[other], start[i]), min(earliest[other], end[i])
            placed[i] = True
    return placed


def pair(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for each pair of two that are not negative, which sorts like the pair."""
    numbers: NDArray[np.int64] = first * (int(second.max(initial=0)) + 1) + second
    return numbers


def _neighbours(
    group: NDArray[np.int64],
    rank: NDArray[np.int64],
    start: NDArray[np.float64],
    middle: NDArray[np.float64],
    sure: NDArray[np.bool_],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """For each operation the time of the instances of the same rank and group before and after it that are sure.

    And whether it is among few in a row that are not sure.
    """
    order = np.lexsort((start, rank, group))
    lane = np.concatenate(([True], (group[order][1:] != group[order][:-1]) | (rank[order][1:] != rank[order][:-1])))
    number = np.cumsum(lane)
    known = sure[order]
    place = np.arange(len(order))
    times = middle[order]
    if len(order) < 2:
        return np.full(len(order), -np.inf), np.full(len(order), np.inf), np.zeros(len(order), np.bool_)
    last = np.maximum.accumulate(np.where(known, place, -1))
    last = np.concatenate(([-1], last[:-1]))
    reverse = np.minimum.accumulate(np.where(known, place, len(order))[::-1])[::-1]
    following = np.concatenate((reverse[1:], [len(order)]))
    before, after = np.full(len(order), -np.inf), np.full(len(order), np.inf)
    good = (last >= 0) & (number[np.maximum(last, 0)] == number)
    before[order[good]] = times[last[good]]
    inner = np.minimum(following, len(order) - 1)
    good = (following < len(order)) & (number[inner] == number)
    after[order[good]] = times[inner[good]]
    # how many in a row are not sure; at the ends of a sequence only one may be
    run = np.full(len(order), _LONGEST_RUN + 1)
    left, right = before[order] > -np.inf, after[order] < np.inf
    run[left & right] = (following - last - 1)[left & right]
    edge = np.concatenate((lane[1:], [True]))
    at_end = (left & ~right & edge & (place - last == 1)) | (right & ~left & lane & (following - place == 1))
    run[at_end] = 1
    between = np.empty(len(order), np.bool_)
    between[order] = run <= _LONGEST_RUN
    return before, after, between
