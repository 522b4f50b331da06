"""The grid of a run's pyramid: bins with a power of two of nanoseconds as width, and tiles of a fixed number of bins.

Bin `i` of level `l` is `[i << l, (i + 1) << l)` ns from the run's first event, so a bin of one level is two of the
level below and bins of all tracks and ranks coincide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TILE_BINS = 512
"""Bins of a tile."""

MOST_LEVEL = 62
"""Two to this power is as long as anything that fits into 64 bits."""

MOST_SPAN_NS = (1 << 62) - 1
"""Of a run that claims to be longer, only this much is shown."""


@dataclass(frozen=True)
class Grid:
    start_ns: int  # the run's first event, aligned ns; bin 0 of every level starts here
    span_ns: int  # from there to the end of its last event
    level: int  # the level of the finest bins that are kept for all ranks

    def bins(self, level: int) -> int:
        """How many bins of `level` the run has; one at least."""
        return (max(self.span_ns, 1) - 1 >> level) + 1

    def edges(self, first: int, count: int, level: int) -> NDArray[Any]:
        """The edges of `count` bins of `level` from bin `first` on: int64 array of count + 1, ns, in the run."""
        last = (MOST_SPAN_NS >> level) + 1  # bins from here on begin after all time
        steps = np.minimum(np.arange(count + 1) + min(first, last), last).astype(np.uint64) << np.uint64(level)
        edges: NDArray[Any] = np.minimum(steps, MOST_SPAN_NS).astype(np.int64) + self.start_ns
        return edges

    def tile_span(self, level: int, index: int) -> tuple[int, int]:
        """Start and end of a tile, aligned ns."""
        width = TILE_BINS << level
        start = min(index * width, MOST_SPAN_NS)
        return self.start_ns + start, self.start_ns + min(start + width, MOST_SPAN_NS)


def level_for(span_ns: int, bins: int) -> int:
    return min(((max(span_ns, 1) - 1) // bins).bit_length(), MOST_LEVEL)


def power_of_two(number: float, least: int, most: int) -> int:
    """The largest power of two up to `number`, within bounds that are powers of two."""
    return min(max(1 << max(int(number), 1).bit_length() - 1, least), most)


def grid_of(span_ns: tuple[int, int], ranks: int, rows: int) -> Grid:
    """The grid of a run."""
    # A rank gets about one bin for 16 of its rows, 4,096 at most, and all ranks together no more than 8 million.
    # `span_ns`: first start and last end of any event, aligned. `rows`: rows of all their tables.
    start, end = span_ns
    span = min(max(end - start, 1), MOST_SPAN_NS)
    share = rows / max(ranks, 1) / 16
    most = power_of_two((8 << 20) / max(ranks, 1), 64, 4096)
    return Grid(start, span, level_for(span, power_of_two(share, 64, most)))
