"""How far fitted clocks may be off: half of the interval that holds the truth with a probability of `COVERAGE`.

The variance of what a cell is always late is estimated from cells of one unit, as a share of the scatter of their ends;
with few of these it is assumed to be as large as the scatter. A member is taken to be late alike in all operations of
its communicator, so that only different members average out. Then random cells are fitted like the real ones. No clock
is further off than the law allows: no member of a synchronising operation ends before the last one has started.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alltrace.align.clock_fit import Cells, Clocks, Ends, Sums, levels, over, robust_levels
from alltrace.align.clock_sharing import Units
from alltrace.align.constants import COVERAGE, OUTLIER_SIGMAS, WRONG_SHARE
from alltrace.align.disjoint_sets import DisjointSets
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import distinct, distinct_rows, rows_by, run_starts

_DRAWS, _DRAWS_AT_ONCE, _DRAWS_OF_STUDENT = 128, 16, 1 << 16
_ROUNDS = 8
_ASSUMED = 4
"""How many cells the assumption that a cell is always late by as much as its ends scatter is worth."""


@dataclass(frozen=True)
class Lateness:
    """What the fitted cells are late, as variances, ns^2."""

    always: Floats  # of what a cell is always late
    noise: Floats  # of the rest
    sigmas: float  # how many standard errors the interval has to each side

    @property
    def weight(self) -> Floats:
        return 1.0 / (self.always + self.noise)


def lateness(cells: Cells, rows: NDArray[np.intp], units: Units, components: int, ahead_ns: Floats) -> Lateness:
    """What the cells in `rows`, which are fitted, are late; `components` parts of them are not connected."""
    scatter, noise, block, like = cells.scatter[rows], cells.noise[rows], cells.block[rows], cells.like[rows]
    unit, (roles, role) = units.of_rank[cells.rank[rows]], distinct(cells.role[rows])
    # communicators are roles that blocks connect
    sets = DisjointSets(len(roles), distinct_rows(role[np.searchsorted(block, block)], role)[0].T.tolist())
    freedom = max(len(roles) - len(np.unique(sets.labels())) - len(np.unique(unit)) + components, 0)
    of_block, of_unit, of_like, share = Sums(block), Sums(unit), Sums(like), np.ones(len(rows))
    # a member has a cell for each length of operations, and may be late alike in all: these are one observation
    cell_freedom = max(len(rows) - len(np.unique(block)) - len(np.unique(unit)) + components, freedom, 1)
    worth = freedom / cell_freedom
    for _ in range(_ROUNDS if len(rows) else 0):
        weight = 1.0 / (share * scatter + noise)
        left = units.offsets(cells, rows, weight, ahead_ns)[1]
        # as far as the fit, which is robust, was moved
        square = np.square(np.minimum(np.abs(left), OUTLIER_SIGMAS)) / (weight * scatter)
        # blocks that are alike have their own share, as far as their cells do not decide the offsets themselves
        seen, own = (
            worth * of_like(v)
            for v in (square, (1.0 - weight / of_unit(weight)[unit]) * (1.0 - weight / of_block(weight)[block]))
        )
        shares = over(seen, own)
        order = np.argsort(shares)
        reached = np.cumsum(own[order])
        typical = float(shares[order][np.searchsorted(reached, reached[-1] / 2)])  # the median, which none alone moves
        typical = (freedom * typical + _ASSUMED * max(typical, 1.0)) / (freedom + _ASSUMED)
        share = ((seen + _ASSUMED * typical) / (own + _ASSUMED))[like]
        share = np.maximum(share - noise / scatter, 0.0)
    return Lateness(share * scatter, noise, _student(freedom + _ASSUMED))


def offset_errors(
    cells: Cells,
    rows: NDArray[np.intp],
    units: Units,
    late: Lateness,
    against: Callable[[Floats], Floats],
    together: Int64,
) -> tuple[Floats, Floats]:
    """Half of the interval of each rank's offset, ns, and of the median of the ranks that are `together` with it.

    `against` makes offsets (r, k) relative.
    """
    unit, role = units.of_rank[cells.rank[rows]], distinct(cells.role[rows])[1]
    free = np.ones(units.count, np.bool_)
    groups = rows_by(together).values()

    def fitted(rng: np.random.Generator, columns: int) -> Floats:
        always = rng.standard_normal((int(role.max()) + 1, columns))[role]
        values = np.sqrt(late.always)[:, None] * always + np.sqrt(late.noise)[:, None] * rng.standard_normal(
            (len(rows), columns)
        )
        own = against(levels(cells.block[rows], unit, late.weight, values, free)[units.of_rank])
        middle = np.empty_like(own)
        for its in groups:
            middle[its] = np.median(own[its], axis=0)
        return np.concatenate((own, middle))

    own, middle = np.split(late.sigmas * _deviation(fitted), 2)
    return own, middle


def rate_errors(cells: Cells, rows: NDArray[np.intp], clock: Int64, free: Flags) -> Floats:
    """Half of the interval of the rate of each clock."""
    block, of_row = cells.block[rows], clock[cells.rank[rows]]
    weight = 1.0 / cells.slope_noise[rows]
    # slopes of one clock may differ by more than noise
    left = robust_levels(block, of_row, weight, cells.slope[rows], free)[1]
    freedom = max(len(rows) - len(np.unique(block)) - int(free[np.unique(of_row)].sum()), 0)
    excess = max(float(np.square(left).sum() + 1) / (freedom + 1), 1.0)

    def fitted(rng: np.random.Generator, columns: int) -> Floats:
        return levels(
            block, of_row, weight, rng.standard_normal((len(rows), columns)) * np.sqrt(excess / weight)[:, None], free
        )

    return _student(freedom + 1) * _deviation(fitted)


def errors_over_time(offset: Floats, before: Floats, after: Floats) -> Floats:
    """Half of the interval that a clock is within over a time, if its offset in between and its rate are independent.

    `before` and `after` are what half of the interval of the rate makes of the time before and after.
    """
    one, other = np.random.default_rng(2).standard_normal((2, _DRAWS_AT_ONCE * _DRAWS))
    one, other = one / np.quantile(np.abs(one), COVERAGE), other / np.quantile(np.abs(other), COVERAGE)
    both, of = np.unique(np.stack((offset, before, after)), axis=1, return_inverse=True)
    at_worst = [
        np.quantile(np.maximum(np.abs(its * one - early * other), np.abs(its * one + late * other)), COVERAGE)
        for its, early, late in both.T.tolist()
    ]
    errors: Floats = np.array(at_worst)[of.reshape(-1)]
    return errors


def _deviation(fitted: Callable[[np.random.Generator, int], Floats]) -> Floats:
    """The standard deviation of the rows of `fitted`, which makes so many columns at random, about 0."""
    rng = np.random.default_rng(1)
    squares = [np.square(fitted(rng, _DRAWS_AT_ONCE)).sum(axis=1) for _ in range(_DRAWS // _DRAWS_AT_ONCE)]
    deviation: Floats = np.sqrt(np.sum(squares, axis=0) / _DRAWS)
    return deviation


def _student(freedom: int) -> float:
    """How many standard errors `COVERAGE` of Student's distribution are within."""
    return float(np.quantile(np.abs(np.random.default_rng(0).standard_t(freedom, _DRAWS_OF_STUDENT)), COVERAGE))


@dataclass(frozen=True)
class Limits:
    """What the law allows: clock `one` may be ahead of clock `other` by at most `most_ns` more than by the fit."""

    one: Int64
    other: Int64
    most_ns: Floats
    broken: int  # instances, outliers among them, that break the law by the fitted clocks

    @property
    def broken_ns(self) -> float:
        """By how much the fitted clocks break the law at most."""
        return -float(self.most_ns.min(initial=0.0))

    def reach(self, origins: Flags) -> Floats:
        """How much further off each clock can be from `origins`: by the shortest path; infinite without any."""
        both = []
        for one, other in ((self.one, self.other), (self.other, self.one)):
            far = np.where(origins, 0.0, np.inf)
            for _ in origins:
                before = far.copy()
                np.minimum.at(far, one, far[other] + np.maximum(self.most_ns, 0.0))
                if (far == before).all():
                    break
            both.append(far)
        return np.maximum(*both)


def edges(ends: Ends, clocks: Clocks) -> tuple[Floats, Floats, Floats, Floats]:
    """Start and end of each member on one clock, and for each instance its last start and its first end."""
    start, end = (clocks.true(ends.rank, t) for t in (ends.start, ends.end))
    last, first = (f.reduceat(v, ends.first[:-1]) if len(v) else v for f, v in ((np.maximum, start), (np.minimum, end)))
    return start, end, last, first


def limits(ends: Ends, used: Flags, clocks: Clocks, clock: Int64) -> Limits:
    """The law of each instance of which all members are `used`; ranks of one `clock` move together."""
    heads, which, of = ends.first[:-1], ends.instance, clock[ends.rank]
    start, end, last, first = edges(ends, clocks)
    latest, earliest = np.zeros(len(heads), np.int64), np.zeros(len(heads), np.int64)
    for clocks_of, is_it in ((latest, start == last[which]), (earliest, end == first[which])):
        clocks_of[which[is_it]] = of[is_it]
    sound = np.bincount(which[~used], minlength=len(heads)) == 0
    # the earliest end against each start, and each end against the latest start
    one, other = np.concatenate((of, earliest[which])), np.concatenate((latest[which], of))
    most = np.concatenate((end - last[which], first[which] - start))
    chosen = np.flatnonzero(np.tile(sound[which], 2) & (one != other))
    code = one[chosen] * (int(clock.max(initial=0)) + 1) + other[chosen]
    order = np.lexsort((most[chosen], code))
    pairs = chosen[order[run_starts(code[order])]]
    return Limits(one[pairs], other[pairs], most[pairs], int((first < last).sum()))


def bounds_between(
    instance: Int64, node: Int64, direction: NDArray[np.int8], end: Floats
) -> list[tuple[float, int, int, float, int]]:
    """The bounds between all pairs of nodes with messages both ways, the tightest first (Hu et al., dPRO, 2022).

    Half their distance, two nodes, how far the second is ahead of the first in their middle, the deciding messages.

    For a message from A to B, by true time, the send ends no later than the receive, so with clocks ahead by a and b
    the difference ``b - a`` is at most (receive's end by B) - (send's end by A). The middle of both bounds is taken.

    Arrays of operations by instance, of which each is one send (direction 1) and one receive (-1); ends are by the
    node's clock, ns.
    """
    pairs = np.flatnonzero(
        (instance[1:] == instance[:-1]) & (direction[1:] == -direction[:-1]) & (node[1:] != node[:-1])
    )
    send = np.where(direction[pairs] == 1, pairs, pairs + 1)
    receive = np.where(direction[pairs] == 1, pairs + 1, pairs)
    slack = end[receive] - end[send]
    keys, at = distinct_rows(node[send], node[receive])
    most = {
        (one, other): (float(np.quantile(slack[rows], WRONG_SHARE, method="lower")), len(rows))
        for (one, other), rows in zip(keys.T.tolist(), rows_by(at).values(), strict=True)
    }
    bounds = []
    for (a, b), (upper, there) in most.items():
        if a < b and (b, a) in most:
            lower, back = -most[b, a][0], most[b, a][1]
            bounds.append((abs(upper - lower) / 2, a, b, (upper + lower) / 2, there + back))
    return sorted(bounds)
