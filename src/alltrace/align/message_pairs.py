"""Which ranks send each other messages, where nothing names them: the two ends of a message run at once and end together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Floats = NDArray[np.float64]

_LEAST = 3
_LEAST_SHARE = 0.05


class Lane(NamedTuple):
    """The operations of one stream of a rank that no communicator is known of, by their start.

    Attributes:
        rank: The rank.
        place: Their places in the rank's timeline.
        op: Number of the operation.
        start: Start on the common clock, ns; likewise `end`.
        exchanging: Whether they are sends, receives or both.
    """

    rank: int
    place: Numbers
    op: Numbers
    start: Floats
    end: Floats
    exchanging: bool


def message_pairs(lanes: Sequence[Lane]) -> Iterator[tuple[tuple[int, ...], float, list[tuple[int, Numbers]]]]:
    """The pairs of ranks that exchange messages: the two, how sure that is from 0 to 1, and the places of each one's operations.

    Args:
        lanes: Streams with sends and receives.
    """
    of_rank: dict[int, list[Lane]] = {}
    for lane in lanes:
        of_rank.setdefault(lane.rank, []).append(lane)
    place, start, end = {}, {}, {}
    for rank, its in of_rank.items():
        joined = [np.concatenate([getattr(lane, name) for lane in its]) for name in ("place", "start", "end")]
        order = np.argsort(joined[2], kind="stable")
        place[rank], start[rank], end[rank] = (c[order] for c in joined)
    ranks = sorted(of_rank)
    mates = {r: _mates(r, ranks) for r in ranks}
    nearest = {(r, q): _nearest(start[r], end[r], start[q], end[q]) for r in ranks for q in mates[r]}
    mate = {r: _best(r, mates[r], nearest, end) for r in ranks}
    votes: Counter[tuple[int, int]] = Counter()
    for r in ranks:
        own, other = mate[r]
        for q in np.unique(own[own >= 0]).tolist():
            mine = np.flatnonzero(own == q)
            back = mate[q][0][other[mine]] == r
            votes[min(r, q), max(r, q)] += int((back & (mate[q][1][other[mine]] == mine)).sum())
    known = {pair for pair, n in votes.items() if n / 2 >= max(_LEAST, _LEAST_SHARE * min(len(end[r]) for r in pair))}
    final = {r: _best(r, [q for q in mates[r] if (min(r, q), max(r, q)) in known], nearest, end) for r in ranks}
    for low, high in sorted(known):
        parts = [(r, place[r][final[r][0] == q]) for r, q in ((low, high), (high, low))]
        total = sum(len(p) for _, p in parts)
        if total:
            yield (low, high), min(votes[low, high] / total, 1.0), parts


def _mates(rank: int, ranks: Sequence[int]) -> list[int]:
    """The ranks that one may exchange messages with: those at the strides of a grid."""
    count = ranks[-1] + 1
    strides = {t for t in range(1, count) if count % t == 0} | {1 << k for k in range(count.bit_length())}
    return [q for q in ranks if q != rank and abs(q - rank) in strides]


def _nearest(start: Floats, end: Floats, starts: Floats, ends: Floats) -> Numbers:
    """For each operation the operation of another rank that ends nearest to it and runs at once with it, -1 without one."""
    at = np.searchsorted(ends, end)
    best = np.full(len(end), -1, np.int64)
    distance = np.full(len(end), np.inf)
    for candidate in (at - 1, at, at + 1):
        inside = np.clip(candidate, 0, len(ends) - 1)
        apart = np.abs(ends[inside] - end)
        fits = (candidate == inside) & (start <= ends[inside]) & (starts[inside] <= end) & (apart < distance)
        best[fits], distance[fits] = inside[fits], apart[fits]
    return best


def _best(
    rank: int, mates: Sequence[int], nearest: dict[tuple[int, int], Numbers], end: dict[int, NDArray[np.float64]]
) -> tuple[Numbers, Numbers]:
    """For each operation of a rank the mate with the nearest end, and which of its operations that is; -1 without one."""
    mate, other = (np.full(len(end[rank]), -1, np.int64) for _ in range(2))
    distance = np.full(len(end[rank]), np.inf)
    for q in mates:
        at = nearest[rank, q]
        apart = np.where(at >= 0, np.abs(end[q][at] - end[rank]), np.inf)
        closer = apart < distance
        mate[closer], other[closer], distance[closer] = q, at[closer], apart[closer]
    return mate, other
