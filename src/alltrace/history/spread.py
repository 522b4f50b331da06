"""Limits from the spread of earlier values, which a few odd ones among them do not move."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

LEAST_VALUES = 5
"""With fewer values the spread is unknown."""

SPREADS = 4.0
"""A value is unusual if it is this many spreads away from the median."""

_NORMAL = 1.4826
_SMALL_SAMPLE = {5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}


class Usual(NamedTuple):
    """The usual range: the median of earlier values, and the bounds of their spread."""

    median: float
    low: float
    high: float


def usual(values: Sequence[float], least_margin: float, spreads: float = SPREADS) -> Usual | None:
    """The median of `values` and the bounds around it; None of fewer than `LEAST_VALUES`."""
    # The spread is the median distance from the median (MAD), scaled to the standard deviation of normal values, with
    # the factors of Croux and Rousseeuw (1992), Time-efficient algorithms for two highly robust estimators of scale,
    # for few values. `least_margin`: how far the bounds are from the median at least.
    count = len(values)
    if count < LEAST_VALUES:
        return None
    median = statistics.median(values)
    distance = statistics.median(abs(v - median) for v in values)
    scale = _NORMAL * _SMALL_SAMPLE.get(count, count / (count - 0.8)) * distance
    margin = max(spreads * scale, least_margin)
    return Usual(median, median - margin, median + margin)
