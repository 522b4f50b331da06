"""How the clocks of two ranks differ, by the pattern of the ends of operations that both have.

Ranks of one job do the same in the same order, so the gaps between the ends of one rank return on another. Short pieces
of the first rank's ends are laid on every place of the second's; where the differences of the ends hardly vary, their
median is the offset there. A line through the offsets of many pieces gives offset and rate. How far ends scatter is
measured by the remaining differences and never assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from alltrace.align.clock_fit import MAD_TO_SIGMA
from alltrace.align.schema import NEARLY_ALL
from alltrace.trace.arrays import Flags, Floats, Int64, nearest
from alltrace.trace.distinct import rows_by, run_starts

_PIECE, _SHORT_PIECE = 16, 8
_PIECES = 16
_CERTAIN_COUNT = 16
"""A line through fewer ends is less certain."""
_PLACES, _LINES = 8, 4
"""The places of a piece that are tried, and the lines through them."""
_SOME, _OTHERS = 256, 1024
"""Of how many ends of each rank coincidences are sought."""
_CHUNK = 8192
"""Ends that a piece is compared with at once, so that the sums of squares keep their digits."""
_FASTEST = 3e-4
"""More than the rates of two clocks differ."""
_ROUNDS = 4
_PARTS, _FEWEST_OF_PART = ((0.25, 0.64, 4.0), (0.1, 0.25, 10.0)), 8
"""Shares of differences, how wide these are in a normal distribution, and how much sharper they must be."""
_DRAWN, _MOST_SHARPENED = 256, 1024
_LEAST_SCALE_NS = 200.0
_FEWEST, _MOST_KEYS = 3, 4
_STAMPS, _BY_CHANCE = 0.3, 0.25
"""How much a line costs that is ten times as far from the stamps, which are off by milliseconds; and the scatter, in
distances of successive ends, of ends that have nothing to do with each other: 0.37 and more."""
_NEARER = 1e-3
"""Of lines that fit equally, the one nearest to the stamps is tried first: the share that the farthest costs."""
_CLEARLY = 4.0
"""How much farther ends scatter at any other place where the order alone relates them."""
_GUESS = 1 / 2
"""How sure an offset is at most of which only overlap and stamps tell that it is not whole periods off."""
_LEAST_RATIO = 1 / 2
"""Von Neumann's ratio: 1.5 and more in simulated runs with any scatter, 0.1 and less between two runs of one
program."""


@dataclass(frozen=True)
class ClockLine:
    """t_first = t_second + offset + slope * (t_second - middle), for times of two ranks."""

    offset_ns: float  # at `middle_ns`, a time of the second rank
    slope: float  # relative difference of rates
    middle_ns: float
    scale_ns: float  # standard deviation of the remaining differences, robust
    count: int  # the ends it is from
    certainty: float  # 1 if no other offset fits nearly as well, down to 0 if another fits as well
    streams: tuple[int, ...] = ()  # the keys of both ranks' streams, if it is of these alone

    def ahead(self, time_ns: float) -> float:
        """The offset at a time of the second rank."""
        return self.offset_ns + self.slope * (time_ns - self.middle_ns)

    def apply(self, times: Floats) -> Floats:
        return times + self.offset_ns + self.slope * (times - self.middle_ns)

    def then(self, outer: ClockLine) -> ClockLine:
        """The second rank's relation to a third, to which `outer` relates the first: both relations composed."""
        return ClockLine(
            self.offset_ns + outer.offset_ns + outer.slope * (self.middle_ns + self.offset_ns - outer.middle_ns),
            self.slope + outer.slope + self.slope * outer.slope,
            self.middle_ns,
            math.hypot(self.scale_ns, outer.scale_ns),
            min(self.count, outer.count),
            min(self.certainty, outer.certainty),
        )

    def reversed(self) -> ClockLine:
        """The same relation, from the second rank to the first."""
        slope = -self.slope / (1.0 + self.slope)
        return replace(self, offset_ns=-self.offset_ns, slope=slope, middle_ns=self.middle_ns + self.offset_ns)


class Ends(NamedTuple):
    """Ends of operations of one rank, by time, ns."""

    time: Floats
    key: Int64  # must be equal of two that can be one instance
    number: Int64  # the same on all ranks, -1 without one

    def of(self, keys: Int64) -> Ends:
        return self.take(np.isin(self.key, keys))

    def take(self, rows: Flags | slice) -> Ends:
        return Ends(self.time[rows], self.key[rows], self.number[rows])


def relate(first: Ends, second: Ends, *, rate: bool = True) -> ClockLine | None:
    """The line of the second rank's clock against the first's, if their ends show one; `rate`: rates can differ."""
    keys = np.intersect1d(first.key, second.key)
    first, second = first.of(keys), second.of(keys)
    if not len(keys) or min(len(first.time), len(second.time)) < _FEWEST:
        return None
    numbered = _numbered(first, second)
    if numbered is not None:
        line = _fitted(*numbered, rate=rate)
        return line if _of_one_run(*numbered, line) else None
    if _equal_order(first, second):
        line = _fitted(first.time, second.time, rate=rate)
        if _of_one_run(first.time, second.time, line):
            return line
    relation = _related(first, second, rate=rate)
    if relation is None:
        return None
    partner, near = nearest_ends(first, second, relation[1])
    return relation[1] if _of_one_run(partner[near], second.time[near], relation[1]) else None


def _equal_order(first: Ends, second: Ends) -> bool:
    """Whether both have the same keys in the same order, and a piece of them fits nowhere else nearly as well."""
    count, length = len(first.time), min(_PIECE, len(first.time) // 2)
    if length < _FEWEST or count != len(second.time) or (first.key != second.key).any():
        return False
    for begin in (0, (count - length) // 2, count - length):
        variance = np.maximum(_variances(first.time[begin : begin + length], second.time), _LEAST_SCALE_NS**2)
        if _CLEARLY**2 * variance[begin] <= np.delete(variance, begin).min():
            return True
    return False


def _of_one_run(first: Floats, second: Floats, line: ClockLine) -> bool:
    """Whether partners' differences vary from one to the next as over all, as where ranks wait for each other.

    Between two runs of one program they wander, since each run takes its own time for every step (von Neumann's ratio:
    2 if differences are independent). A clock that was set once parts them in two.
    """
    order = np.argsort(second, kind="stable")
    left = (first - line.apply(second))[order]
    left = left[np.abs(left) <= 4.0 * line.scale_ns]
    if len(left) < _CERTAIN_COUNT:
        return True
    change = np.diff(left)
    parts = np.split(left, [int(np.abs(change).argmax()) + 1])
    over_all = sum(float(np.square(part - part.mean()).sum()) for part in parts)
    from_one_to_next = sum(float(np.square(np.diff(part)).sum()) for part in parts)
    return min(map(len, parts)) < _FEWEST or from_one_to_next >= _LEAST_RATIO * over_all


def relate_streams(first: Ends, second: Ends, *, rate: bool = True) -> ClockLine | None:
    """The same for ranks that may share the messages of a stream, of which both have as many; keys are streams."""
    lines = []
    for one in np.unique(first.key).tolist():
        for other in np.unique(second.key).tolist():
            its, theirs = first.take(first.key == one), second.take(second.key == other)
            if len(its.time) == len(theirs.time):
                line = relate(its, theirs._replace(key=its.key), rate=rate)
                lines += [] if line is None else [replace(line, streams=(one, other))]
    return min(lines, key=lambda line: line.scale_ns, default=None)


def relate_partly(first: Ends, second: Ends, *, rate: bool = True) -> ClockLine | None:
    """The same for ranks that may share the operations of some keys, or some of the operations of a key.

    The ends of each key are related on their own, and the sharpest relation counts.
    """
    keys, counts = np.unique(second.key, return_counts=True)
    of_key = [first.of(keys[i : i + 1]) for i in range(len(keys))]
    order = np.argsort(
        [-min(len(its.time), many) for its, many in zip(of_key, counts.tolist(), strict=True)], kind="stable"
    )
    best: tuple[float, ClockLine] | None = None
    for i in order[:_MOST_KEYS].tolist():
        its = of_key[i], second.of(keys[i : i + 1])
        if min(len(e.time) for e in its) < _FEWEST:
            break
        relation = _related(*its, rate=rate)
        if relation is not None and (best is None or relation[0] < best[0]):
            best = relation[0], _sharpened(*its, relation[1], rate=rate)
    return None if best is None else best[1]


def _related(first: Ends, second: Ends, *, rate: bool) -> tuple[float, ClockLine] | None:
    """The line that explains ends of equal keys best, and its cost."""
    fitted = [_refined(first, second, *line, rate=rate) for line in _lines(first, second, rate=rate)]
    least = NEARLY_ALL * max(len(first.time), len(second.time))
    if all(line is None or line.count < least for line in fitted):
        fitted += [_refined(first, second, *line, rate=rate) for line in _coincidences(first, second)]
    ranked = sorted(
        ((_cost(line, first, second), i, line) for i, line in enumerate(fitted) if line is not None),
        key=lambda r: (r[0].all, r[1]),
    )
    if not ranked:
        return None
    cost, _, best = ranked[0]
    if best.scale_ns > _BY_CHANCE * np.ptp(second.time) / len(second.time):
        return None
    apart = spacing(second) / 2
    rivals = [its for its, _, line in ranked[1:] if abs(line.offset_ns - best.offset_ns) > apart]
    repeats = [_cost(line, first, second) for line in _repeats(first, second, best, apart)]
    every = [its for its in (*rivals, *repeats) if 2 * its.shared >= cost.shared]
    by_ends = max(
        _surely(cost.sharpest, [its.sharpest for its in every]), _surely(cost.usual, [its.usual for its in every])
    )
    # what overlap and stamps alone tell of steps that are alike is no more than a guess
    sure = max(by_ends, min(_surely(cost.all, [its.all for its in rivals]), _GUESS))
    few = enough(best.count)
    return cost.all - math.log(few), replace(best, certainty=sure * few)


def enough(count: float) -> float:
    """How certain a line can be at most that is through so many ends."""
    return min(count / _CERTAIN_COUNT, 1.0)


def _surely(cost: float, others: Sequence[float]) -> float:
    """How sure a line is by its cost and those of others, from 0 to 1, which it is without any."""
    return float(np.clip(2.0 * (1.0 - math.exp(cost - min(others))), 0.0, 1.0)) if others else 1.0


def _repeats(first: Ends, second: Ends, best: ClockLine, apart_ns: float) -> list[ClockLine]:
    """The lines through other places at which the middle of the first rank's ends fits: periods of steps away."""
    length = min(max(min(len(first.time), len(second.time)) // 2, _FEWEST), _PIECE)
    begin = (len(first.time) - length) // 2
    piece = first.time[begin : begin + length]
    there = _places(piece, first.key[begin : begin + length], second)
    lines = [
        ClockLine(float(np.median(piece - times)), best.slope, float(times.mean()), 0.0, length, 0.0) for times in there
    ]
    ahead = [line.offset_ns - best.offset_ns - best.slope * (line.middle_ns - best.middle_ns) for line in lines]
    return [line for line, ns in zip(lines, ahead, strict=True) if abs(ns) > apart_ns][:2]


def spacing(ends: Ends) -> float:
    """The usual distance of successive ends, ns."""
    return float(np.median(np.diff(ends.time))) if len(ends.time) > 1 else math.inf


class _Cost(NamedTuple):
    """How badly a line explains ends."""

    all: float  # logarithm of the scatter of their sharpest part, and what it lacks: overlap, nearness to the stamps
    sharpest: float  # that logarithm alone
    usual: float  # the mean logarithm of their distances
    shared: int  # the ends that have a partner


def _cost(line: ClockLine, first: Ends, second: Ends) -> _Cost:
    partner, near = nearest_ends(first, second, line)
    left = np.abs(partner[near] - line.apply(second.time[near])) + _LEAST_SCALE_NS
    sharpest, usual = (
        (float(np.log(np.quantile(left, 0.3))), float(np.log(left).mean())) if near.any() else (math.inf, math.inf)
    )
    share = float(near.sum()) / max(len(first.time), len(second.time))
    lacking = 4.0 * (1.0 - min(share, 1.0)) + _STAMPS * math.log10(1.0 + abs(line.offset_ns) / 1e6)
    return _Cost(sharpest + lacking, sharpest, usual, int(near.sum()))


def _numbered(first: Ends, second: Ends) -> tuple[Floats, Floats] | None:
    """Ends of equal key and number, None if they are too few for a line."""
    pairs = []
    for ends in (first, second):
        told = ends.number >= 0
        pair = ends.key[told] * (1 << 40) + ends.number[told] % (1 << 40)
        number, index, many = np.unique(pair, return_index=True, return_counts=True)
        pairs.append((number[many == 1], ends.time[told][index[many == 1]]))
    _, one, other = np.intersect1d(pairs[0][0], pairs[1][0], assume_unique=True, return_indices=True)
    return None if len(one) < _FEWEST else (pairs[0][1][one], pairs[1][1][other])


def _lines(first: Ends, second: Ends, *, rate: bool) -> list[tuple[float, float, float]]:
    """Lines that several pieces agree on, the best first: (offset, slope, middle)."""
    time, offset, spread, piece = [], [], [], []
    number = 0
    for some, others, many, length in _sets(first, second):
        begins = np.unique(np.linspace(0, len(some.time) - length, many).astype(np.int64))
        for begin in begins.tolist():
            part = slice(begin, begin + length)
            there = _places(some.time[part], some.key[part], others)
            difference = some.time[part] - there
            time.append(there.mean(axis=1))
            offset.append(np.median(difference, axis=1))
            spread.append(np.maximum(difference.std(axis=1), _LEAST_SCALE_NS))
            piece.append(np.full(len(there), number))
            number += 1
    at, ahead, width, of = (np.concatenate(column) for column in (time, offset, spread, piece))
    if not len(at):
        return []
    good = np.argsort(width, kind="stable")[: 8 * _PIECES]
    through: list[int] = []
    slopes: list[float] = []
    for i in good.tolist():
        rest = good[of[good] != of[i]][:_PIECES] if rate else good[:0]
        apart = at[rest] - at[i]
        slope = np.divide(ahead[rest] - ahead[i], apart, out=np.full(len(rest), np.inf), where=apart != 0.0)
        slopes += [0.0, *slope[np.abs(slope) < _FASTEST].tolist()]
        through += [i] * (len(slopes) - len(through))
    lines = list(zip(ahead[through].tolist(), slopes, at[through].tolist(), strict=True))
    error = np.abs(ahead - ahead[through, None] - np.array(slopes)[:, None] * (at - at[through, None]))
    wide = width + width[through, None]
    late = np.where(error < 3.0 * wide, error / (8.0 * wide), np.inf)
    ratio = width / width.min()
    weights = [_weights(sharp - late, of) for sharp in (1.0 / (1.0 + np.log(ratio)), 1.0 / ratio)]
    # pieces that fit are many if ends scatter, and few but much sharper if operations were lost
    far = np.abs([offset for offset, _, _ in lines])
    rankings = np.array(weights) * (1.0 - _NEARER * far / (far.max() + 1.0))
    return _distinct(
        [[lines[i] for i in np.argsort(-w, kind="stable").tolist()] for w in rankings], spacing(second) / 2
    )


def _sets(first: Ends, second: Ends) -> Iterator[tuple[Ends, Ends, int, int]]:
    """From which ends pieces are taken, how many, and how long.

    Long pieces show the offset however far ends scatter, short ones where operations were lost, and those of the key
    that most ends have where operations of several keys end in another order on the second rank.
    """
    shortest = min(len(first.time), len(second.time))
    yield first, second, _PIECES, min(_PIECE, shortest)
    if shortest > _PIECE:
        yield first, second, _PIECES, _SHORT_PIECE
    keys, counts = np.unique(second.key, return_counts=True)
    if len(keys) > 1:
        most = keys[counts.argmax() : counts.argmax() + 1]
        some, others = first.of(most), second.of(most)
        if min(len(some.time), len(others.time)) > _SHORT_PIECE:
            yield some, others, _PIECES, _SHORT_PIECE


def _coincidences(first: Ends, second: Ends) -> list[tuple[float, float, float]]:
    """Lines at which most ends coincide: of stages of a pipeline each has other neighbours too."""
    middles = ((ends, most, max((len(ends.time) - most) // 2, 0)) for ends, most in ((first, _SOME), (second, _OTHERS)))
    some, others = (ends.take(slice(begin, begin + most)) for ends, most, begin in middles)
    # a stage of a pipeline has half of its messages with either neighbour
    many = int(NEARLY_ALL / 2 * min(len(some.time), len(others.time)))
    if many < _FEWEST_OF_PART:
        return []
    apart = np.sort((some.time[:, None] - others.time)[some.key[:, None] == others.key])
    if len(apart) <= many:
        return []
    width = apart[many - 1 :] - apart[: len(apart) - many + 1]
    best = np.argpartition(width, min(_SOME, len(width) - 1))[:_SOME]
    best = best[np.argsort(width[best], kind="stable")]
    middle = float(others.time.mean())
    lines = [(offset, 0.0, middle) for offset in apart[best + many // 2].tolist()]
    return _distinct([lines], spacing(second) / 2)


def _weights(sharpness: Floats, piece: Int64) -> Floats:
    """How much pieces, which ascend, speak for each line (l, n); each counts once."""
    heads = run_starts(piece)
    weights = np.zeros((len(sharpness), int(piece[-1]) + 1))
    weights[:, piece[heads]] = np.maximum(np.maximum.reduceat(sharpness, heads, axis=1), 0.0)
    total: Floats = weights.sum(axis=1)
    return total


def _distinct(
    rankings: Sequence[list[tuple[float, float, float]]], apart_ns: float
) -> list[tuple[float, float, float]]:
    """The first lines of each ranking in turn that are not close to one before."""
    chosen: list[tuple[float, float, float]] = []
    for most, ranking in enumerate(rankings, 1):
        for offset, slope, middle in ranking:
            if len(chosen) == most * _LINES // len(rankings):
                break
            if all(abs(offset + slope * (m - middle) - o) > apart_ns for o, _, m in chosen):
                chosen.append((offset, slope, middle))
    return chosen


def _places(time: Floats, key: Int64, second: Ends) -> Floats:
    """The ends of the second rank at the places where a piece fits best: an array of places x ends."""
    m, n = len(time), len(second.time)
    ahead = np.abs(time[0] - second.time[: n - m + 1])
    variance = np.maximum(_variances(time, second.time), _LEAST_SCALE_NS**2) * (
        1.0 + _NEARER * ahead / (ahead.max() + 1.0)
    )
    best = np.argpartition(variance, min(4 * _PLACES, len(variance) - 1))[: 4 * _PLACES]
    rows = best[np.argsort(variance[best])][:, None] + np.arange(m)
    return np.asarray(second.time[rows[(second.key[rows] == key).all(axis=1)][:_PLACES]], np.float64)


def _variances(time: Floats, times: Floats) -> Floats:
    """The variance of the differences of a piece at each place of the second rank's ends, ns^2."""
    m, n = len(time), len(times)
    centred = time - time.mean()
    own = float(np.square(centred).mean())
    variance = np.empty(n - m + 1)
    for begin in range(0, n - m + 1, _CHUNK):
        part = times[begin : begin + _CHUNK + m - 1]
        part = part - part[0]
        sums = np.concatenate(([0.0], np.cumsum(part)))
        squares = np.concatenate(([0.0], np.cumsum(np.square(part))))
        mean = (sums[m:] - sums[:-m]) / m
        spread = (squares[m:] - squares[:-m]) / m - np.square(mean)
        variance[begin : begin + len(mean)] = spread + own - 2.0 * np.correlate(part, centred, "valid") / m
    return variance


def _refined(first: Ends, second: Ends, offset: float, slope: float, middle: float, *, rate: bool) -> ClockLine | None:
    """The line after it was fitted to the nearest ends of equal key."""
    line = ClockLine(offset, slope, middle, math.inf, 0, 1.0)
    for _ in range(2):
        partner, near = nearest_ends(first, second, line)
        if near.sum() < _FEWEST:
            return None
        line = _fitted(partner[near], second.time[near], rate=rate)
    return line


def nearest_ends(first: Ends, second: Ends, line: ClockLine) -> tuple[Floats, Flags]:
    """For each end of the second rank the nearest of the first with its key, and whether that is mutual."""
    times = line.apply(second.time)
    partner, mutual = np.full(len(times), np.nan), np.zeros(len(times), np.bool_)
    for key, mine in rows_by(second.key).items():
        theirs = first.time[first.key == key]
        if len(theirs):
            at = nearest(theirs, times[mine])
            partner[mine] = theirs[at]
            mutual[mine] = nearest(times[mine], theirs)[at] == np.arange(len(mine))
    return partner, mutual


def _fitted(first: Floats, second: Floats, *, rate: bool) -> ClockLine:
    """The robust line through ends of both ranks, with a rate where the evidence shows one."""
    middle = float(second.min() + second.max()) / 2
    x, y = second - middle, first - second
    steady = _weighted(x, y, rate=False)
    line = steady
    if rate:
        offset, slope, scale = _weighted(x, y, rate=True)
        error = 2.0 * scale / math.sqrt(max(float(np.square(x - x.mean()).sum()), 1.0))
        sharper = len(x) * math.log(steady[2] / scale) > math.log(len(x))
        if sharper and 3.0 * error < abs(slope) < _FASTEST:
            line = offset, slope, scale
    offset, slope, scale = line
    near = np.abs(y - offset - slope * x) <= 4.0 * scale
    return ClockLine(offset, slope, middle, scale, int(near.sum()), 1.0)


def _sharpened(first: Ends, second: Ends, line: ClockLine, *, rate: bool) -> ClockLine:
    """The line through the part of the ends that lies much closer to one than all do: the operations that both share.

    It is the line with the least quantile of the distances (Rousseeuw 1984), of those through two ends each.
    """
    partner, near = nearest_ends(first, second, line)
    second_ns, first_ns = second.time[near], partner[near]
    x, left = second_ns - line.middle_ns, first_ns - line.apply(second_ns)
    draw = np.random.default_rng(len(x))
    some = draw.choice(len(x), _MOST_SHARPENED, replace=False) if len(x) > _MOST_SHARPENED else np.arange(len(x))
    one, other = draw.integers(0, len(some), (2, _DRAWN if rate else 0))
    apart = x[some[one]] - x[some[other]]
    slopes = np.divide(left[some[one]] - left[some[other]], apart, out=np.zeros(len(one)), where=apart != 0.0)
    slopes = np.concatenate(([0.0], slopes[np.abs(slopes) < _FASTEST]))
    turned = left[some] - slopes[:, None] * x[some]
    ordered = np.sort(turned, axis=1)
    for share, of_normal, much in _PARTS:
        many = int(share * len(some))
        if many < _FEWEST_OF_PART:
            break
        width = ordered[:, many - 1 :] - ordered[:, : len(some) - many + 1]
        best, at = np.unravel_index(width.argmin(), width.shape)
        scale = float(width[best, at]) / of_normal
        if scale < line.scale_ns / much:
            middle = float(ordered[best, at : at + many].mean())
            close = np.abs(left - slopes[best] * x - middle) <= 4.0 * (scale + _LEAST_SCALE_NS)
            sharp = _fitted(first_ns[close], second_ns[close], rate=rate)
            return replace(sharp, certainty=line.certainty)
    return line


def _weighted(x: Floats, y: Floats, *, rate: bool) -> tuple[float, float, float]:
    """Offset, slope and scale of a line by weighted least squares, with less weight for what is far."""
    slope = float(_theil(x, y)) if rate else 0.0
    offset = float(np.median(y - slope * x))
    for _ in range(_ROUNDS):
        left = y - offset - slope * x
        scale = _scale(left - np.median(left))
        weight = 1.0 / (1.0 + np.square(left / (2.0 * scale)))
        total = weight.sum()
        cx, cy = (weight * x).sum() / total, (weight * y).sum() / total
        across = (weight * np.square(x - cx)).sum()
        if rate and across > 0.0:
            slope = float((weight * (x - cx) * (y - cy)).sum() / across)
        offset = float(cy - slope * cx)
    left = y - offset - slope * x
    return offset, slope, _scale(left)


def _theil(x: Floats, y: Floats) -> float:
    """The median slope between the first and the second half."""
    half = len(x) // 2
    apart = x[half : 2 * half] - x[:half]
    slopes = np.divide(y[half : 2 * half] - y[:half], apart, out=np.zeros(half), where=apart != 0.0)
    return float(np.median(slopes)) if half else 0.0


def _scale(left: Floats) -> float:
    return MAD_TO_SIGMA * float(np.median(np.abs(left))) + 1.0
