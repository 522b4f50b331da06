"""Lanes: the lines within a track that its intervals are drawn on, so that none covers another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.core import tiles as core

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
    found = np.empty(len(starts), np.int8)
    core.assign_lanes(starts, ends, np.full(MOST_LANES, np.iinfo(np.int64).min, np.int64), found)
    return found
