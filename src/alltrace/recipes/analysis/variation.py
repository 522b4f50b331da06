"""How values of ranks and steps vary: with the rank, with another rank in each step, or at random.

Values are ratios, (ranks, steps), each by what is usual in its step, so that a step which is longer for all counts as
any other. A rank's level is the median over steps, so that single steps do not make it. A rank is persistently above
the others where its level exceeds the lower quartile of all levels in most steps, and by more than chance and the usual
differences between ranks explain: the standard error of a median, by the pooled deviation within ranks (MAD), and the
spread of the levels below their median. For normal values the largest of n is at about sqrt(2 ln n) deviations, so the
bound grows with the number of ranks.

What is left is split in two by Otsu's method (the split with the largest variance between the parts). Parts that are
far apart (Ashman, Bird and Zepf 1994: D = sqrt(2) |m1 - m2| / sqrt(s1^2 + s2^2); a normal distribution has 2.7 to 4.5,
by the place of the split) are ordinary and slow steps. Slow steps that mostly belong to few ranks are those ranks'; of
ever other ranks they rotate.
"""

from dataclasses import dataclass

import numpy as np

from alltrace.trace.arrays import Flags, Floats

_NORMAL = 1.4826  # a normal distribution's deviation by its median absolute deviation

_MEDIAN_ERROR = 1.2533  # the ratio of the standard errors of the median and of the mean of normal values, sqrt(pi / 2)

_MOSTLY = 0.7  # a persistent rank has more than half of its excess in this share of the steps

_MANY = 8
"""With this many ranks, a few that differ between steps do not affect the usual value or the deviation."""

_FAR = 5.0  # ashman's D from which two parts are apart

_MOST_SLOW = 0.5  # slow steps are at most this share of all

_OWNED = 0.75  # slow steps belong to the ranks that have this share of them, if these are few

_FEW = 0.25
_LEAST_STEPS = 3


@dataclass(frozen=True)
class Variation:
    values: Floats  # the values by what is usual in their step and over all ranks: 1 is usual, (ranks, steps)
    level: Floats  # of each rank its median over steps; NaN if nothing is known
    least: float  # what exceeds 1 by less may be chance
    noise: float  # deviation within ranks from step to step; NaN if there is one step only
    persistent: Flags  # which ranks exceed the others in most steps
    sometimes: Flags  # which ranks exceed them in some steps, where others do not
    slow: Flags  # which values of other ranks are far above the rest, (ranks, steps)
    between: float  # share of the variance that is between ranks (intraclass correlation), 0 to 1

    @property
    def rotates(self) -> bool:
        """Whether another rank is slow in each step, in half of the steps at least."""
        return bool(self.slow.any() and self.slow.any(axis=0).mean() >= _MOST_SLOW)


def variation(ratios: Floats, least: float, *, spread: bool = True) -> Variation:
    """How `ratios` (ranks, steps) vary, which are proportional to what is compared; NaN if not known."""
    # of few ranks one would be the quartile itself, and vary in no step
    values = by_step(ratios, mean=len(ratios) < _MANY)
    measured = ~np.isnan(values)
    some = measured.any(axis=1)
    level = np.full(len(values), np.nan)
    none = np.zeros(len(values), np.bool_)
    level[some] = np.nanmedian(values[some], axis=1)
    usual = np.percentile(level[some], 25, method="lower") if some.sum() > 1 else 0.0
    if not usual:  # ranks of which most have none of it are not compared
        return Variation(values, level, np.inf, np.nan, none, none, np.zeros(values.shape, np.bool_), 0.0)
    values, level = values / usual, level / usual
    noise = _noise(values - level[:, None], measured)
    bound = _bound(int(some.sum()))
    count = np.maximum(measured.sum(axis=1), 1)
    chance = bound * _MEDIAN_ERROR * np.nan_to_num(noise) / np.sqrt(count)
    if spread:
        chance = np.maximum(chance, bound * _spread(level[some]))
    needed = np.maximum(chance, least)
    excess = np.nan_to_num(level - 1, nan=-1.0)
    often = (values - 1 > excess[:, None] / 2).sum(axis=1) >= _MOSTLY * count
    persistent = (excess > needed) & often
    slow = _apart(np.where(persistent[:, None], np.nan, values), least)
    sometimes = _owners(slow) if persistent.sum() + 1 < some.sum() else none
    slow = slow & ~sometimes[:, None]
    return Variation(values, level, float(np.median(needed)), noise, persistent, sometimes, slow, _between(values))


def by_step(values: Floats, *, mean: bool = False) -> Floats:
    """The values by what is usual in their step: the lower quartile of the ranks, of few the least; or the mean."""
    there = ~np.isnan(values).all(axis=0)
    ratios = np.full(values.shape, np.nan)
    if there.any():
        measured = values[:, there]
        usual = np.nanmean(measured, axis=0) if mean else np.nanpercentile(measured, 25, axis=0, method="lower")
        ratios[:, there] = measured / np.where(usual > 0, usual, np.nan)
    return ratios


def _bound(ranks: int) -> float:
    """Deviations above the lower quartile that the largest of this many normal values usually stays below."""
    return 3.2 + float(np.sqrt(2 * np.log(max(ranks, 2))))


def _noise(deviations: Floats, measured: Flags) -> float:
    """The pooled deviation within ranks; a rank's median, or the mean of few, takes one degree of freedom."""
    counts = measured.sum(axis=1)
    if counts.max(initial=0) < 2:
        return float("nan")
    steps = float(np.mean(counts[counts > 1]))
    own = deviations[(counts > 1)[:, None] & measured]
    if len(counts) >= _MANY:
        deviation = _NORMAL * np.median(np.abs(own))
    else:
        ranks = int((counts > 1).sum())
        deviation = np.sqrt(np.mean(own**2) * ranks / max(ranks - 1, 1))
    return float(deviation * np.sqrt(steps / (steps - 1)))


def _spread(levels: Floats) -> float:
    """The deviation of levels, from those below their median: half of the ranks may be slow."""
    middle = np.percentile(levels, 50, method="lower")
    return float(_NORMAL * np.median(middle - levels[levels <= middle]))


def _apart(values: Floats, least: float) -> Flags:
    """Which values are far above the others; none if they are not in two parts."""
    there = np.flatnonzero(~np.isnan(values))
    far_above = np.zeros(values.size, np.bool_)
    measured = values.ravel()[there]
    if len(measured) < 4:
        return far_above.reshape(values.shape)
    order = np.argsort(measured, kind="stable")
    ordered = measured[order] - 1
    low, below, above, squares = best_split(ordered)
    high = len(ordered) - low
    spread = (squares[low - 1] / low - below**2) + ((squares[-1] - squares[low - 1]) / high - above**2)
    far = above - below > least and np.sqrt(2) * (above - below) >= _FAR * np.sqrt(max(spread, 0.0))
    if far and high <= _MOST_SLOW * len(ordered):
        far_above[there[order[low:]]] = True
    return far_above.reshape(values.shape)


def best_split(values: Floats, last: int = 1) -> tuple[int, float, float, Floats]:
    """How many values come before the split with the largest variance between its parts, of which the later is larger.

    And the means of both parts, and the sums of squares up to each value. `last`: The least number of values after it.
    """
    low = np.arange(1, len(values) - last + 1)
    high, total = len(values) - low, np.cumsum(values)
    before, after = total[low - 1] / low, (total[-1] - total[low - 1]) / high
    at = int(np.where(after > before, low * high * (after - before) ** 2, -1.0).argmax())
    return at + 1, before[at], after[at], np.cumsum(values**2)


def _owners(slow: Flags) -> Flags:
    """The few ranks that nearly all slow steps belong to; none if they are many."""
    counts = slow.sum(axis=1)
    order = np.argsort(-counts, kind="stable")
    covered = np.cumsum(counts[order])
    none = np.zeros(len(counts), np.bool_)
    if not covered[-1]:
        return none
    few = int(np.searchsorted(covered, _OWNED * covered[-1])) + 1
    # ranks with as many slow steps as the last of them belong to them too
    mine: Flags = counts >= max(counts[order[few - 1]], _LEAST_STEPS)
    return mine if counts[mine].sum() >= _OWNED * covered[-1] and mine.sum() <= max(_FEW * len(counts), 1) else none


def _between(values: Floats) -> float:
    """The intraclass correlation (Shrout and Fleiss 1979, ICC(1)) of ranks with at least two steps."""
    rows = values[(~np.isnan(values)).sum(axis=1) > 1]
    if len(rows) < 2:
        return 0.0
    counts = (~np.isnan(rows)).sum(axis=1)
    steps = float(counts.mean())
    means = np.nanmean(rows, axis=1)
    between = steps * float(np.var(means, ddof=1))
    within = float(np.nansum((rows - means[:, None]) ** 2) / (counts - 1).sum())
    whole = between + (steps - 1) * within
    return float(np.clip((between - within) / whole, 0, 1)) if whole else 0.0
