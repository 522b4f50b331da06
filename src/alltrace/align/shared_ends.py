"""How one rank's clock runs against another's where an unknown part of their operations is shared.

Without names of communicators a stream may carry operations of several, and two ranks share the operations of one. Ends of the
shared ones differ by the clocks' offset to within microseconds; others, of groups that work in step, differ by tens of microseconds
more, at the same offset or shifted by whole steps. So what counts is a sharp peak of differences over its surroundings, followed
over the whole run: n coincidences where chance would give m are worth ``n log(n / m) - (n - m)`` (the scan statistic of Poisson
counts).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from alltrace.align.pairwise_clock_fit import ClockLine, Ends, Vote, ends_of, nearest_ends, offset_votes
from alltrace.core import fits as core

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_WIDTHS_NS = (500.0, 1_500.0, 5_000.0, 15_000.0)
_AROUND_NS = 60_000.0
"""Half the width of a peak's surroundings."""
_MOST_RATE = 1e-4
"""Clocks of two hosts differ by no more."""
_MOST_SAMPLES = 2_048
_MOST_SLOPES = 100
_LEAST_SPAN_NS = 1e8
"""A rate shows only over a tenth of a second."""
_TRIED = 4
_LEAST = 4
_LEAST_WORTH = 14.0
_SURE_WORTH = 60.0
_CLEAR = 1.3
_SHARP_NS, _UNSHARP = 4_000.0, 0.5
_MOST_KINDS = 4
_MOST = 0.5
_SCALE_FLOOR_NS = 200.0


class _Peak(NamedTuple):
    """A line through many differences: its score, the value at the middle, the slope, and the width of the peak, ns."""

    worth: float
    centre: float
    slope: float
    width: float


def relate_part(first: Ends, second: Ends, window_ns: float | None, *, rate: bool = True) -> ClockLine | None:
    """The line of the second rank's clock against the first's, or None if no part of their ends coincides.

    Args:
        first: Ends of the first rank.
        second: Ends of the second.
        window_ns: How far the offset can be from 0; None for any.
        rate: Whether the clocks can run at different rates: clocks of one host do not.
    """
    found = possible_lines(first, second, window_ns, rate=rate)
    return found[0][1] if found else None


def possible_lines(first: Ends, second: Ends, window_ns: float | None, *, rate: bool = True) -> list[tuple[float, ClockLine]]:
    """What each line is worth on which a part of the ends coincides, the best first, with its certainty; see `relate_part`."""
    found: list[tuple[float, ClockLine]] = []
    for one, other in _kinds(first, second):
        found += _lines(one, other, window_ns, rate=rate)
        found.sort(key=lambda f: -f[0])
        if found and found[0][0] >= _SURE_WORTH and found[0][1].share > _MOST and _rival(found) < found[0][0] / _CLEAR:
            break
    if found:
        certainty = min(float(np.clip(3.0 * (1.0 - _rival(found) / found[0][0]), 0.0, 1.0)), found[0][0] / _SURE_WORTH)
        found[0] = found[0][0], replace(found[0][1], certainty=certainty)
    return found


def _kinds(first: Ends, second: Ends) -> Iterator[tuple[Ends, Ends]]:
    """The ends of each key that both have, those with most first, and all of them: one kind may be shared and others not."""
    if not (len(first.time) and len(second.time)):
        return
    keys = np.intersect1d(first.keys, second.keys, assume_unique=True)
    if len(keys) > 1:
        many = [min(int((e.key == k).sum()) for e in (first, second)) for k in keys.tolist()]
        for at in np.argsort(np.negative(many), kind="stable")[:_MOST_KINDS].tolist():
            if many[at] >= _LEAST:
                one, other = (ends_of(e.time[e.key == keys[at]], e.key[e.key == keys[at]]) for e in (first, second))
                yield one, other
    if len(keys):
        yield first, second


def _lines(first: Ends, second: Ends, window_ns: float | None, *, rate: bool) -> list[tuple[float, ClockLine]]:
    """What each line is worth on which a part of the ends coincides."""
    found: list[tuple[float, ClockLine]] = []
    for place in (0.5, 0.2, 0.8):
        votes = offset_votes(first, second, window_ns, place, _MOST_RATE if rate else 0.0)
        for vote in _promising(votes):
            line = _followed(first, second, vote, rate=rate)
            if line is not None and line[0] >= _LEAST_WORTH:
                found.append(line)
        found.sort(key=lambda f: -f[0])
        if found and found[0][0] >= _SURE_WORTH and _rival(found) < found[0][0] / _CLEAR:
            break
    return found


def _rival(found: list[tuple[float, ClockLine]]) -> float:
    """What the best line of another offset is worth."""
    best = found[0][1]
    far = (w for w, c in found[1:] if abs(c.offset_ns + c.slope * (best.middle_ns - c.middle_ns) - best.offset_ns) > _AROUND_NS)
    return max(far, default=0.0)


def _promising(votes: list[Vote]) -> list[Vote]:
    """The offsets with the sharpest peaks, and those that most ends vote for, which may be of groups that work in step."""
    surprise = [_surprise(v.differences) for v in votes]
    by_surprise = sorted(range(len(votes)), key=lambda i: -surprise[i])
    by_worth = sorted(range(len(votes)), key=lambda i: -votes[i].worth)
    return [votes[i] for i in dict.fromkeys((*by_surprise[:_TRIED], *by_worth[:_TRIED]))]


def _surprise(differences: Floats) -> float:
    """What the sharpest peak of sorted differences is worth."""
    return max(core.sharpest_window(differences[None], width, _AROUND_NS)[1] for width in _WIDTHS_NS)


def _followed(first: Ends, second: Ends, vote: Vote, *, rate: bool) -> tuple[float, ClockLine] | None:
    """The sharp line through an offset that was voted for, followed from the clump over the whole run, and what it is worth."""
    middle, offset, slope = (vote.begin_ns + vote.end_ns) / 2, vote.offset_ns, 0.0
    reach = max((vote.end_ns - vote.begin_ns) / 2, 1e6)
    whole = max(second.time[-1] - middle, middle - second.time[0], 1e6)
    loose = _MOST_RATE if rate else 0.0
    widths: tuple[float, ...] = _WIDTHS_NS[1:]
    while True:
        rows = np.arange(*np.searchsorted(second.time, (middle - reach, middle + reach + 1)))
        if len(rows) > _MOST_SAMPLES:
            rows = rows[np.linspace(0, len(rows) - 1, _MOST_SAMPLES).astype(np.int64)]
        x = second.time[rows] - middle
        expected = second.time[rows] + offset + slope * x
        rest = nearest_ends(first, second.key[rows], expected) - expected
        near = np.abs(rest) <= _AROUND_NS + loose * np.abs(x)
        x, rest = x[near], rest[near]
        peak = _peak(x, rest, loose, reach, widths) if len(x) >= _LEAST else None
        if peak is None:
            return None
        more, steeper = _line(x, rest, peak, rate=rate)
        offset, slope = offset + more, slope + steeper
        if reach >= whole:
            break
        loose = min(4 * peak.width / reach, loose)
        reach = min(reach * 4, whole)
        widths = _WIDTHS_NS
    rest = rest - more - steeper * x
    worth, width = peak.worth, peak.width
    for narrower in [w for w in _WIDTHS_NS if w < width]:  # the shared ones among those of groups in step
        sharp = _peak(x, rest, width / whole if rate else 0.0, whole, (narrower,), 8 * narrower)
        if sharp is not None and sharp.worth >= _LEAST_WORTH:
            more, steeper = _line(x, rest, sharp, rate=rate)
            offset, slope, rest, width = offset + more, slope + steeper, rest - more - steeper * x, narrower
            worth += sharp.worth
            break
    if width > _SHARP_NS:  # groups in step that share nothing, at this offset or another
        worth *= _UNSHARP
    near = np.abs(rest) <= 2 * width
    scale = max(1.4826 * float(np.median(np.abs(rest[near]))), _SCALE_FLOOR_NS) if near.any() else width
    low, high = first.time[0] - offset, first.time[-1] - offset
    chance = int(((second.time >= low - 1e6) & (second.time <= high + 1e6)).sum() * len(rows) / len(second.time))
    count = int((np.abs(rest) <= 3 * scale).sum())
    return worth, ClockLine(offset, slope, middle, scale, count, min(count / max(chance, count, 1), 1.0), 1.0)


def _peak(
    x: Floats, rest: Floats, loose: float, reach: float, widths: tuple[float, ...], around_ns: float = _AROUND_NS
) -> _Peak | None:
    """The sharpest peak of the differences less a slope of at most `loose`; None if nothing is one."""
    best = _Peak(0.0, 0.0, 0.0, 0.0)
    for width in widths:
        steps = min(int(np.ceil(2 * loose * reach / width)), _MOST_SLOPES)
        slopes = np.arange(-steps, steps + 1) * (loose / max(steps, 1))
        at, worth, middle = core.sharpest_window(np.sort(rest - slopes[:, None] * x, axis=1), width, around_ns)
        if worth > best.worth:
            best = _Peak(worth, middle, float(slopes[at]), width)
    return best if best.worth > 0.0 else None


def _line(x: Floats, rest: Floats, peak: _Peak, *, rate: bool) -> tuple[float, float]:
    """Offset and slope of a straight line through the points near a peak: least squares, or the median without a slope."""
    close = np.abs(rest - peak.centre - peak.slope * x) <= peak.width
    x, y = x[close], rest[close]
    if not rate or len(x) < 2 * _LEAST or np.ptp(x) < _LEAST_SPAN_NS:
        return float(np.median(y - peak.slope * x)) if len(x) else peak.centre, peak.slope
    middle, level = float(x.mean()), float(y.mean())
    x = x - middle
    slope = float(x @ (y - level) / (x @ x))
    return level - slope * middle, slope
