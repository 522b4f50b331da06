"""Ranks and jobs that change in time: slower from a step on, or again and again.

A rank's ratio to the fastest in a step is compared with its own in other steps. It has two levels if the split of its
steps in two, by time or by size, has parts that are far apart; a rank that is always slow has one.
"""

from dataclasses import dataclass

import numpy as np

from alltrace.recipes.analysis.variation import best_split
from alltrace.trace.arrays import Flags, Floats

_FEWEST_STEPS = 5  # from this number of steps on, a change is distinguished from chance

_FEWEST_TO_GROW = 8  # from this number of steps on, steady growth is

_AT_THE_END = 2  # a device that is slower from a step on is so in this many steps at least

_SURE = 4.0
"""The parts of a rank's steps differ if their means are this many of their standard errors apart, and what the largest
of all splits of all ranks reaches by chance."""

_MOSTLY = 0.8  # this share of the steps of each part is on its side of the middle between the parts

_ALREADY_SLOW = 0.5
"""A rank whose better steps are slower than the peers by this share of the change or more is slow all the time, too."""

_BEGUN = 4.0  # a value is above what it was by this many deviations

_ALONE = 6.0  # a single step is not like its neighbors from this number of deviations on

_NORMAL = 1.4826


@dataclass(frozen=True)
class Throttled:
    """A rank with two paces."""

    row: int  # the place of the rank
    slow: Flags  # the steps in which it is slower, (steps)
    factor: float  # how many times as long its work takes in them
    lasts: bool  # whether these are all steps from the first of them on


def throttled(values: Floats, least: float) -> list[Throttled]:
    """The ranks that are slower in some steps; `values`: ratios to the fastest (ranks, steps), NaN if unknown."""
    changes = []
    count = max(int((~np.isnan(values)).sum()), 2)
    needed = _SURE + float(np.sqrt(2 * np.log(count)))
    compared = (~np.isnan(values)).sum(axis=1) > 1
    usual = float(np.percentile(np.nanstd(values[compared], axis=1), 50, method="lower")) if compared.any() else 0.0
    for row, own in enumerate(values):
        there = np.flatnonzero(~np.isnan(own))
        if len(there) < _FEWEST_STEPS:
            continue
        for lasts in (True, False):
            slow = _split(own[there], least, needed, usual, by_time=lasts)
            if slow is None:
                continue
            steps = np.zeros(len(own), np.bool_)
            steps[there[slow]] = True
            changes.append(Throttled(row, steps, float(own[steps].mean() / own[there[~slow]].mean()), lasts))
            break
    return changes


def later_part(values: Floats, least: float) -> Flags | None:
    """The steps from one on in which values are larger, or grow, single ones aside; None if they do not change."""
    if len(values) < _FEWEST_STEPS or np.isnan(values).any():
        return None
    needed = _SURE + float(np.sqrt(2 * np.log(len(values))))
    smooth = _without_single_steps(values)
    late = _split(smooth, least, needed, 0.0, by_time=True)
    late = _growing(smooth, least, needed) if late is None else late
    # single steps may be long, but most of those before are not, a first one that starts up aside
    if late is None or not _apart(values[1:], late[1:], (smooth[late].mean() + smooth[~late].mean()) / 2):
        return None
    # what grows has begun to before half of it is there
    early = smooth[~late][: max(int((~late).sum()) // 2, 1)]
    usual = float(np.median(early))
    above = smooth > usual + max(_BEGUN * _NORMAL * float(np.median(np.abs(early - usual))), least / 2)
    begins = len(smooth) - int(np.cumprod(above[::-1]).sum())
    late[begins:] = True
    return late


def _apart(values: Floats, above: Flags, middle: float) -> bool:
    """Whether most values of either part are on its side of the middle."""
    right = (values > middle) == above
    return all(right[part].sum() >= _MOSTLY * part.sum() for part in (above, ~above))


def _without_single_steps(values: Floats) -> Floats:
    """The values; those far from both neighbors are the median with these, and of the first with the next two."""
    beside = np.concatenate((values[2:3], values, values[-3:-2]))
    middle = np.median(np.column_stack((beside[:-2], beside[1:-1], beside[2:])), axis=1)
    # second differences have six times the variance of the values, and none of steady growth
    usual = _NORMAL * float(np.median(np.abs(np.diff(values, 2)))) / np.sqrt(6)
    return np.where(np.abs(values - middle) > _ALONE * usual, middle, values)


def _growing(values: Floats, least: float, needed: float) -> Flags | None:
    """The steps from the one on after which values grow steadily; None if they do not."""
    if len(values) < _FEWEST_TO_GROW:
        return None
    steps = np.arange(len(values), dtype=np.float64)
    best: tuple[float, int, float, float] | None = None
    for onset in range(1, len(values) - _AT_THE_END):
        grown = np.maximum(steps - onset, 0.0)
        centered = grown - grown.mean()
        spread = float(centered @ centered)
        slope = float(centered @ values) / spread
        left = values - values.mean() - slope * centered
        squares = float(left @ left)
        if best is None or squares < best[0]:
            best = squares, onset, slope, spread
    if best is None:
        return None
    squares, onset, slope, spread = best
    error = float(np.sqrt(squares / max(len(values) - 3, 1) / spread))
    if slope * (len(values) - 1 - onset) / 2 <= least or slope < needed * error:
        return None
    return steps > onset


def _split(values: Floats, least: float, needed: float, usual: float, *, by_time: bool) -> Flags | None:
    """Which values are in the slower of two parts, later or larger; None without two. `usual`: a rank's deviation."""
    order = np.arange(len(values)) if by_time else np.argsort(values, kind="stable")
    ordered = values[order]
    low, before, after, squares = best_split(ordered, _AT_THE_END)
    high, change = len(values) - low, after - before
    within = squares[-1] - low * before**2 - high * after**2
    deviation = max(float(np.sqrt(max(within, 0.0) / max(len(values) - 2, 1))), usual)
    error = deviation * np.sqrt(1 / low + 1 / high)
    if change <= least or change < needed * error or before - 1 >= _ALREADY_SLOW * change:
        return None
    if not _apart(ordered, np.arange(len(values)) >= low, (before + after) / 2):
        return None
    if not by_time and (high > low or change < needed * deviation):  # sorted values differ by order alone
        return None
    slow = np.zeros(len(values), np.bool_)
    slow[order[low:]] = True
    return slow
