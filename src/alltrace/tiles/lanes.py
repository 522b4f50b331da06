"""Lanes: the lines within a track that its intervals are drawn on, so that none covers another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.trace.jit import load, plain_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_LANES = 24
"""What overlaps more deeply than this shares the last lane."""


def lanes_of(starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[Any]:
    """The lane of each interval, the first that is free: int8 array; nested intervals so lie below those that enclose them.

    Args:
        starts: int64 array of n ascending starts.
        ends: int64 array of n ends.
    """
    found = np.zeros(len(starts), np.int8)
    if len(starts) < 2 or bool((starts[1:] >= np.maximum.accumulate(ends)[:-1]).all()):
        return found
    _first_free(starts, ends, found, np.full(MOST_LANES, -(1 << 63), np.int64))
    return found


@plain_kernel("void(Array(int64, 1, 'C', readonly=True), Array(int64, 1, 'C', readonly=True), int8[::1], int64[::1])")
def _first_free(starts: NDArray[Any], ends: NDArray[Any], lanes: NDArray[Any], free: NDArray[Any]) -> None:
    """Put each interval on the first lane that is free; `free` says from when on each is."""
    most = len(free)
    for i in range(len(starts)):
        lane = 0
        while lane < most - 1 and free[lane] > starts[i]:
            lane += 1
        lanes[i] = lane
        free[lane] = max(free[lane], ends[i])


def warm() -> None:
    """Load the compiled loop, so that no view waits for it."""
    load(_first_free)
