"""The innermost NVTX range of each thread and domain over time, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from alltrace.core.paraver import innermost
from alltrace.trace.arrays import Int64

_DEPTH = 32


def changes(blocks: Iterable[tuple[Int64, ...]]) -> Iterator[tuple[Int64, Int64, Int64, Int64]]:
    """The changes of the innermost range; changes of a group arrive in order, those of several groups mixed.

    `blocks`: int64 arrays: starts, negative ends, groups (a thread's ranges of one domain) and values of ranges, in
    the order of the first two. A range that outlasts the one around it is taken to end with it. Yields int64
    arrays: groups, times, the value of the innermost range from then on (0 outside of all), how many are open.
    """
    places: dict[int, int] = {}
    depths, stops, outer = np.zeros(0, np.int64), np.zeros((0, _DEPTH), np.int64), np.zeros((0, _DEPTH), np.int64)
    for starts, ends, groups, values in blocks:
        unique, inverse = np.unique(groups, return_inverse=True)
        own = np.array([places.setdefault(g, len(places)) for g in unique.tolist()], np.int64)[inverse]
        more = len(places) - len(depths)
        depths = np.append(depths, np.zeros(more, np.int64))
        stops, outer = (np.pad(a, ((0, more), (0, 0))) for a in (stops, outer))
        out: Any = [np.empty(2 * len(starts) + int(depths.sum()), np.int64) for _ in range(4)]
        row, count = innermost(0, own, starts, -ends, values, depths, stops, outer, 0, *out)
        while row < len(starts):
            stops, outer = (np.pad(a, ((0, 0), (0, a.shape[1]))) for a in (stops, outer))
            row, count = innermost(row, own, starts, -ends, values, depths, stops, outer, count, *out)
        names = np.array(list(places), np.int64)
        own, times, tops, deep = (o[:count] for o in out)
        yield names[own], times, tops, deep
    for group, place in places.items():
        open_ = np.arange(depths[place] - 1, -1, -1)
        under = np.where(open_ > 0, outer[place, np.maximum(open_ - 1, 0)], 0)
        yield np.full(len(open_), group, np.int64), stops[place, open_], under, open_
