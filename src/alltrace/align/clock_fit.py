"""Fits clocks to the ends of synchronising operations, and says how far the fit may be off.

All members leave a synchronising operation at about the same time, however late each arrived. "About" is 1 to 100
microseconds on real machines: in part at random, and in part always the same for a rank and kind of operation, which no
number of operations averages out. So the fit has two layers. Ends are compared with the median end of their instance
and averaged by cell, which is one member of one block; a block has the operations of one communicator that last
similarly long. Then the cells' means are fitted: ``mean = level of the block + offset of the clock + what the cell is
always late + noise``, by least squares weighed by the variance of the last two, which is estimated from cells on one
clock. Slopes of cells over time give rates likewise. The levels are eliminated, and the equations are solved by
conjugate gradients without their matrix (Hestenes and Stiefel 1952).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from alltrace.align.constants import MAD_TO_SIGMA as MAD_TO_SIGMA
from alltrace.align.constants import OUTLIER_SIGMAS
from alltrace.align.disjoint_sets import DisjointSets
from alltrace.core import fits as core
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import distinct_rows, folded, run_starts

_BATCHES = 16
"""Parts of a run, by time, whose means tell noise that changes slowly from a cell's own lateness."""
_STEPS = 512
_ROUNDS = 16
SETTLED_NS = 1.0


@dataclass(frozen=True)
class Ends:
    """The members of synchronising operations, sorted by block and instance."""

    rank: Int64  # place in the list of ranks
    start: Floats  # stamped, ns; likewise `end`
    end: Floats
    instance: Int64  # from 0
    first: Int64  # n + 1 positions, at which the members of each instance begin
    cell: Int64
    block: Int64  # of each cell; blocks and cells ascend together
    rank_of_cell: Int64  # place of its rank
    role: Int64  # its member in its communicator: cells of one role differ in how long operations last
    like: Int64  # of each cell: blocks with as many members and operations as long
    numbers: Int64  # of each instance its number in the evidence

    @cached_property
    def by_cell(self) -> tuple[Int64, Int64]:
        """The members sorted by cell, and where those of each cell begin."""
        order = np.argsort(self.cell, kind="stable")
        return order, np.searchsorted(self.cell[order], np.arange(len(self.block) + 1))

    def by_rank(self, ranks: int) -> tuple[Int64, Int64]:
        """The members sorted by rank, and where those of each of the ranks begin."""
        order = np.argsort(self.rank, kind="stable")
        return order, np.searchsorted(self.rank[order], np.arange(ranks + 1))

    def only(self, wanted: Flags) -> Ends:
        """The same without the members that are not wanted, and without instances of a single one of them."""
        alone = np.bincount(self.instance[wanted], minlength=len(self.first) - 1) < 2
        wanted = wanted & ~alone[self.instance]
        instances, instance = np.unique(self.instance[wanted], return_inverse=True)
        first = np.searchsorted(instance, np.arange(len(instances) + 1))
        rank, start, end, cell = self.rank[wanted], self.start[wanted], self.end[wanted], self.cell[wanted]
        whole = replace(self, rank=rank, start=start, end=end, instance=instance, first=first, cell=cell)
        return replace(whole, numbers=self.numbers[instances])


def ends_of(instance: Int64, communicator: Int64, rank: Int64, start: Floats, end: Floats) -> Ends:
    """The ends of instances with at least two members, stamped, ns; `rank` is a place in the list of ranks.

    A rank may be several members, such as a process with several devices.
    """
    several = np.unique(instance, return_counts=True)[1]
    order = np.lexsort((rank, instance))[np.repeat(several, several) > 1]
    instance, communicator, rank = instance[order], communicator[order], rank[order]
    start, end = start[order], end[order]
    heads = run_starts(instance)
    which = np.repeat(np.arange(len(heads)), np.diff(np.append(heads, len(instance))))
    same = np.concatenate(([False], (np.diff(rank) == 0) & (np.diff(instance) == 0)))
    place = np.arange(len(rank))
    occurrence = place - np.maximum.accumulate(np.where(same, 0, place))
    member = distinct_rows(rank, occurrence)[1]
    size = np.log2(np.maximum(np.minimum.reduceat(end - start, heads), 1.0)).astype(np.int64) // 2
    kinds, kind = distinct_rows(communicator[heads], size)
    number = np.bincount(kind)
    by_number = np.argsort(number, kind="stable")
    commonest = np.empty(int(communicator.max(initial=-1)) + 1, np.int64)
    commonest[kinds[0][by_number]] = by_number
    # too few on their own may all be as one of the others rarely is
    size = kinds[1][np.where(number[kind] < _BATCHES, commonest[communicator[heads]], kind)]
    # instances with most of their communicator have one level; others have one for each set of members
    whole = np.bincount(distinct_rows(communicator, member)[0][0], minlength=len(commonest))[communicator[heads]]
    mark = np.random.default_rng(0).integers(1, 1 << 62, int(member.max(initial=-1)) + 1)
    members = np.where(2 * np.diff(np.append(heads, len(rank))) > whole, 0, np.add.reduceat(mark[member], heads))
    blocks, block = distinct_rows(communicator[heads], size, members)
    length = blocks[1]
    numbers = instance[heads]
    order = np.lexsort((which, block[which]))
    rank, start, end, member, block = rank[order], start[order], end[order], member[order], block[which][order]
    which = which[order]
    heads = run_starts(which)
    cells, cell = distinct_rows(block, member)
    rank_of = np.empty(cells.shape[1], np.int64)
    rank_of[cell] = rank
    role = distinct_rows(blocks[0][cells[0]], cells[1])[1]
    first = np.append(heads, len(rank))
    instance = np.repeat(np.arange(len(heads)), np.diff(first))
    like = distinct_rows(np.bincount(cells[0]), length)[1][cells[0]]
    return Ends(rank, start, end, instance, first, cell, cells[0], rank_of, role, like, numbers[which[heads]])


@dataclass(frozen=True)
class Cells:
    """What the ends of each cell are later than the median of their instance; arrays by cell; variances in ns^2."""

    block: Int64
    rank: Int64
    role: Int64
    like: Int64
    late_ns: Floats  # mean, without outliers, at `time_ns`; NaN without ends
    slope: Floats  # growth of it with time
    time_ns: Floats  # mean time of its ends after the time of the fit
    scatter: Floats  # of a single end in blocks that are alike
    noise: Floats  # of `late_ns`, without what is always the same
    slope_noise: Floats  # infinite without a slope

    def between(self, part: Int64, *, sloped: bool = False) -> NDArray[np.intp]:
        """The cells of blocks with ranks of several parts; if `sloped`, those with a slope."""
        usable = np.isfinite(self.slope_noise if sloped else self.late_ns)
        block, of, blocks = self.block[usable], part[self.rank[usable]], int(self.block.max(initial=-1)) + 1
        low, high = folded(np.minimum, block, of, blocks, len(part)), folded(np.maximum, block, of, blocks, -1)
        return np.flatnonzero(usable & (low < high)[self.block])

    def joined(self, rows: NDArray[np.intp], part: Int64, count: int | None = None) -> Int64:
        """For each part, of which each rank has one, the lowest of those that blocks of some cells connect it with."""
        count = int(part.max(initial=-1)) + 1 if count is None else count
        block, of = self.block[rows], part[self.rank[rows]]
        first = folded(np.minimum, block, of, int(self.block.max(initial=-1)) + 1, count)
        return DisjointSets(count, distinct_rows(first[block], of)[0].T.tolist()).labels()


@dataclass(frozen=True)
class Clocks:
    """Clocks of ranks, as far as they are known: arrays by rank."""

    ahead_ns: Floats  # at `t0`
    rate: Floats  # how much faster it runs
    t0: float  # stamped time, ns

    def true(self, rank: Int64, stamped: Floats) -> Floats:
        """Stamped times of members on one clock."""
        times = stamped - self.ahead_ns[rank]
        return times - self.rate[rank] * (stamped - self.t0) if self.rate.any() else times


def late_ends(ends: Ends, clocks: Clocks) -> tuple[Floats, Floats]:
    """What each end is later than the median of its instance, and for each instance that median, ns."""
    times = clocks.true(ends.rank, ends.end)
    middle = medians(times, ends.first)
    return times - middle[ends.instance], middle


def medians(values: Floats, first: Int64) -> Floats:
    """The median of each run of values, which begin at `first`; 0 for an empty one."""
    middles = np.empty(len(first) - 1)
    core.medians(values, first, np.empty(int(np.diff(first).max(initial=0))), middles)
    return middles


def measured(ends: Ends, clocks: Clocks) -> Cells:
    """The cells by `clocks`."""
    late, middle = late_ends(ends, clocks)
    cells, cell = len(ends.block), ends.cell
    by_cell, begins = ends.by_cell
    typical = medians(late[by_cell], begins)
    off = np.abs(late - typical[cell])
    blocks = int(ends.block.max(initial=-1)) + 1
    block = ends.block[cell]
    sigma = MAD_TO_SIGMA * medians(off, np.searchsorted(block, np.arange(blocks + 1))) + SETTLED_NS
    few = np.bincount(block[ends.first[:-1]], minlength=blocks) < _BATCHES
    if few.any():
        sigma[few] = np.maximum(sigma[few], MAD_TO_SIGMA * np.median(off))
    # of a clock that is not yet fitted all ends are far off
    own = MAD_TO_SIGMA * medians(off[by_cell], begins)
    # weights that end without a step (Beaton and Tukey 1974): with a step, the fit has no fixed point
    worth = np.square(
        np.maximum(1.0 - np.square(off / (OUTLIER_SIGMAS * np.maximum(sigma[ends.block], own)[cell])), 0.0)
    )
    # parts of equally many instances, by time
    block_of = block[ends.first[:-1]]
    order = np.lexsort((middle, block_of))
    begins = np.searchsorted(block_of, np.arange(blocks + 1))
    part = np.empty(len(order), np.int64)
    part[order] = (np.arange(len(order)) - begins[block_of]) * _BATCHES // np.maximum(np.diff(begins)[block_of], 1)
    slot = cell * _BATCHES + part[ends.instance]
    shape, slots = (cells, _BATCHES), cells * _BATCHES
    number = np.bincount(slot, worth, slots).reshape(shape)
    value, time = (
        over(np.bincount(slot, worth * v, slots).reshape(shape), number) for v in (late, ends.end - clocks.t0)
    )
    # what all members of a part of a block have in common is no matter of clocks
    of_block, of_like = Sums(ends.block), Sums(ends.like)
    value -= over(of_block(number * value), of_block(number))[ends.block]
    parts, total = (number > 0).sum(axis=1), number.sum(axis=1)
    mean, mean_time = over((number * value).sum(axis=1), total), over((number * time).sum(axis=1), total)
    apart = time - mean_time[:, None]
    square = (number * np.square(apart)).sum(axis=1)
    slope = over((number * apart * value).sum(axis=1), square)
    left = value - mean[:, None] - slope[:, None] * apart
    members = of_block(1.0 * (parts > 0))[ends.block]
    freedom = of_block(np.maximum(parts - 2, 0) * (1.0 - over(np.ones(cells), members)))
    # of a single end, with the scatter as one more value, for blocks with few parts
    noise = ((of_block((number * np.square(left)).sum(axis=1)) + np.square(sigma)) / (freedom + 1.0))[ends.block]
    # a cell of which half are outliers is no surer than they are
    usual = sigma[ends.block]
    noise *= np.where(own > OUTLIER_SIGMAS * usual, np.square(own / usual), 1.0)
    return Cells(
        ends.block,
        ends.rank_of_cell,
        ends.role,
        ends.like,
        np.where(parts > 0, mean, np.nan),
        slope,
        mean_time,
        over(of_like(np.square(sigma)[ends.block]), of_like(np.ones(cells)))[ends.like],
        over(noise, total, np.inf),
        np.where(parts > 2, over(noise, square, np.inf), np.inf),
    )


class Sums:
    """Sums of rows by key, of which there are `count` from 0 on."""

    def __init__(self, keys: Int64, count: int | None = None) -> None:
        self._count = int(keys.max(initial=-1)) + 1 if count is None else count
        self._order = None if (np.diff(keys) >= 0).all() else np.argsort(keys, kind="stable")
        self._sorted = keys if self._order is None else keys[self._order]
        self._heads = run_starts(self._sorted)

    def __call__(self, rows: NDArray[np.generic]) -> Floats:
        """The sums: of n rows, or of n rows of k columns."""
        sums = np.zeros((self._count, *rows.shape[1:]))
        if len(self._heads):
            ordered = rows if self._order is None else rows[self._order]
            sums[self._sorted[self._heads]] = np.add.reduceat(ordered, self._heads, axis=0, dtype=np.float64)
        return sums


def levels(block: Int64, unit: Int64, weight: Floats, values: Floats, free: Flags) -> Floats:
    """The x of each unit for which ``level[block] + x[unit]`` fits `values` (n, k) best; a column for each of theirs.

    Blocks ascend. A unit that is not `free` has no x. Of all answers it is the one nearest to 0, with squares weighed
    like the units.
    """
    of_block, of_unit, w = Sums(block), Sums(unit, len(free)), weight[:, None]
    total = of_block(weight)

    def pulls(rows: Floats) -> Floats:
        pull = w * rows
        pull -= w * over(of_block(pull), total[:, None])[block]
        return of_unit(pull) * free[:, None]

    diagonal = of_unit(weight * (1.0 - over(weight, total[block])))[:, None]
    left = pulls(values)
    found = np.zeros(left.shape)
    scaled = over(left, diagonal)
    along, worth = scaled.copy(), (left * scaled).sum(axis=0)
    enough = worth * 2.0**-40
    for _ in range(_STEPS):
        if (worth <= enough).all():
            break
        product = pulls(along[unit])
        stride = over(worth, (along * product).sum(axis=0))
        found += stride * along
        left -= stride * product
        scaled = over(left, diagonal)
        before, worth = worth, (left * scaled).sum(axis=0)
        along = scaled + over(worth, before) * along
    return found


def robust_levels(block: Int64, unit: Int64, weight: Floats, values: Floats, free: Flags) -> tuple[Floats, Floats]:
    """`levels` of values of which some may be far off (Huber's weights), and what it leaves, in standard errors."""
    of_block, robust, levels_by_unit, left = Sums(block), weight, np.zeros(len(free)), np.zeros(len(values))
    for _ in range(_ROUNDS):
        levels_by_unit = levels(block, unit, robust, values[:, None], free)[:, 0]
        left = values - levels_by_unit[unit]
        left -= over(of_block(robust * left), of_block(robust))[block]
        left *= np.sqrt(weight)
        before, robust = robust, weight * np.minimum(OUTLIER_SIGMAS / np.maximum(np.abs(left), SETTLED_NS), 1.0)
        if (np.abs(robust - before) <= before / _ROUNDS).all():
            break
    return levels_by_unit, left


def over(values: NDArray[np.generic], weights: NDArray[np.generic], otherwise: float = 0.0) -> Floats:
    """Values over weights; `otherwise` where there is no weight."""
    shape = np.broadcast_shapes(np.shape(values), np.shape(weights))
    result: Floats = np.full(shape, otherwise)
    np.divide(values, weights, out=result, where=np.broadcast_to(np.asarray(weights) > 0, shape))
    return result
