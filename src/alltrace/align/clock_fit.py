"""Fits clocks to the ends of synchronising collectives: weighted least squares with the true ends eliminated, made robust.

All members leave a synchronising collective within microseconds of each other, however late each arrived. With x the end as rank r
stamped it, the true end of instance i is estimated by every member as ``T = x - c[unit of r] - b[host of r] * (x - t0)``, and
the weighted mean over the members eliminates it. Small communicators suffice as long as they connect. The normal equations are
solved by conjugate gradients, scaled by the diagonal, without their matrix (Hestenes and Stiefel 1952): a step is a pass over the
ends, so time grows with the ends and memory holds no more, where pairs of ranks would be a hundred million of ten thousand.

Robust: residuals against the median of the instance, weights of Tukey's biweight on the scale of each communicator (1.4826 times
the median absolute deviation), after a few rounds of absolute-value weights that find the right basin. An end can be late but never
early, so of what remains the late ones weigh less.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from alltrace.core import fits as core

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from alltrace.trace.arrays import Int64

    Floats = NDArray[np.float64]

MAD_TO_SIGMA = 1.4826
_TUKEY = 4.685
_FLOOR_NS = 20.0
"""Added to every scale, so that ends that agree exactly do not make others infinitely wrong."""
_ROUNDS_ABSOLUTE = 6
_ROUNDS = 15
_SETTLED_NS = 0.5
_LATE_WEIGHT = 0.2
_ENOUGH = 40
_RELATIVE = 1e-8
"""What a round leaves of the step that it has to make; the next one begins there."""
_MOST_STEPS = 500
_LEAST_OF_ITS_OWN = 1e-6


@dataclass
class Block:
    """The ends of one communicator's instances.

    Attributes:
        instances: Their numbers, ascending.
        ranks: Places of the members in the list of ranks.
        ends: Stamped ends in ns, instances x members; 0 if a member is missing.
        present: Where a member is there.
        weights: What the fit gave each end; 0 for those it left out.
        scale: What the fit took for a typical residual, in ns.
    """

    instances: Int64
    ranks: Int64
    ends: Floats
    present: NDArray[np.bool_]
    weights: Floats = field(default_factory=lambda: np.empty(0))
    scale: float = 0.0

    def of_two(self) -> Block | None:
        """The instances with at least two members; None without any."""
        enough = self.present.sum(axis=1) >= 2
        if enough.all():
            return self
        return Block(self.instances[enough], self.ranks, self.ends[enough], self.present[enough]) if enough.any() else None


@dataclass
class Fit:
    """Clocks that fit the blocks.

    Attributes:
        c: For each unit what its stamps are ahead at `t0`, ns; units of different components are not comparable.
        b: For each host the relative rate error of its clock.
        t0: The stamped time, ns, that `c` is of.
        scale: Typical residual of an end, ns.
        b_error: Standard error of `b`; infinite if it was fixed at 0.
    """

    c: Floats
    b: Floats
    t0: float
    scale: float
    b_error: Floats


@dataclass(frozen=True)
class Units:
    """The unknowns: one offset for each unit of ranks with the same error of their stamps, one rate for each host.

    Attributes:
        of_rank: Unit of each rank.
        host_of_rank: Host of each rank.
        component: Component of each unit; units of different components are not connected.
        cluster: Cluster of each host: hosts whose rates can be compared.
    """

    of_rank: Int64
    host_of_rank: Int64
    component: Int64
    cluster: Int64

    @property
    def count(self) -> int:
        """The number of units."""
        return len(self.component)

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return len(self.cluster)


def make_blocks(instance: Int64, communicator: Int64, rank_at: Int64, stamped: Floats) -> list[Block]:
    """One block per communicator.

    Args:
        instance: Number of the instance of each row.
        communicator: Its communicator.
        rank_at: Place of the rank in the list of ranks.
        stamped: End, ns.
    """
    blocks = []
    order = np.lexsort((rank_at, instance, communicator))
    instance, communicator, rank_at, stamped = instance[order], communicator[order], rank_at[order], stamped[order]
    cuts = np.flatnonzero(np.diff(communicator)) + 1
    for first, last in zip([0, *cuts], [*cuts, len(communicator)], strict=True):
        if first == last:
            continue
        here = slice(first, last)
        instances, row = np.unique(instance[here], return_inverse=True)
        ranks, column = np.unique(rank_at[here], return_inverse=True)
        ends = np.zeros((len(instances), len(ranks)))
        present = np.zeros(ends.shape, np.bool_)
        ends[row, column] = stamped[here]
        present[row, column] = True
        block = Block(instances, ranks, ends, present).of_two()
        if block is not None:
            blocks.append(block)
    return blocks


def fit(blocks: list[Block], units: Units, drifting: NDArray[np.bool_], start: Fit | None = None) -> Fit:
    """The clocks that fit `blocks`; leaves weights and scales in the blocks.

    Args:
        blocks: The evidence.
        units: What is unknown.
        drifting: The hosts with a rate that is not fixed at 0.
        start: Where to begin; None for nothing known.
    """
    t0 = start.t0 if start else _middle(blocks)
    c = start.c.copy() if start else np.zeros(units.count)
    b = start.b.copy() if start else np.zeros(units.hosts)
    b[~drifting] = 0.0
    for block in blocks:
        block.weights = block.present.astype(np.float64)
    first_tukey = 0 if start else _ROUNDS_ABSOLUTE
    span_s = max((float(np.ptp(bl.ends[bl.present])) for bl in blocks), default=0.0) / 1e9
    equations = _Equations(blocks, units, t0)
    free_b = drifting & _not_first(units.cluster)
    for turn in range(_ROUNDS):
        if turn or start:
            _reweigh(blocks, units, c, b, t0, tukey=turn >= first_tukey)
        equations.weigh(blocks)
        step_c, step_b = equations.solved(free_b, c, b)
        c += step_c
        b += step_b
        moved = max(np.abs(step_c).max(initial=0.0), np.abs(step_b).max(initial=0.0) * 1e9 * max(span_s, 1e-9))
        if turn > first_tukey and moved < _SETTLED_NS:
            break
    error = equations.rate_errors(free_b)
    _reweigh(blocks, units, c, b, t0, tukey=True)
    everything = np.concatenate([np.abs(residuals(bl, units, c, b, t0)[bl.present]) for bl in blocks]) if blocks else np.empty(0)
    scale = MAD_TO_SIGMA * core.median(everything, len(everything)) if len(everything) else 0.0
    return Fit(c, b, t0, scale, error)


def corrected(block: Block, units: Units, c: Floats, b: Floats, t0: float) -> Floats:
    """The true end, less a constant, by each member's clock."""
    rates = b[units.host_of_rank[block.ranks]]
    times = block.ends - c[units.of_rank[block.ranks]]
    if rates.any():
        times -= rates * (block.ends - t0)
    return times


def residuals(block: Block, units: Units, c: Floats, b: Floats, t0: float) -> Floats:
    """What each end is later than the median of its instance, ns; 0 if a member is missing."""
    found = np.empty(block.ends.shape)
    ahead, rate = c[units.of_rank[block.ranks]], b[units.host_of_rank[block.ranks]]
    core.residuals(block.ends, block.present, ahead, rate, t0, np.empty(len(block.ranks)), found)
    return found


def _middle(blocks: list[Block]) -> float:
    count = sum(int(b.present.sum()) for b in blocks)
    # around the first end, so that the sum loses no nanoseconds
    base = float(blocks[0].ends[blocks[0].present][0]) if blocks else 0.0
    return base + sum(float((b.ends[b.present] - base).sum()) for b in blocks) / max(count, 1)


def _reweigh(blocks: list[Block], units: Units, c: Floats, b: Floats, t0: float, *, tukey: bool) -> None:
    found = [residuals(block, units, c, b, t0) for block in blocks]
    overall: float | None = None
    for block, residual in zip(blocks, found, strict=True):
        own = np.abs(residual[block.present])
        # too few rows to estimate their own scale
        if len(own) >= _ENOUGH:
            block.scale = _scale(own)
        else:
            if overall is None:
                overall = _scale(np.concatenate([np.abs(r[bl.present]) for bl, r in zip(blocks, found, strict=True)]))
            block.scale = overall
        block.weights = _weights(residual, block.present, block.scale, tukey=tukey)


def _weights(residual: Floats, present: NDArray[np.bool_], scale: float, *, tukey: bool) -> Floats:
    """The weight of each end, 1/ns^2; 0 if a member is missing.

    It is Tukey's biweight, 0 from `_TUKEY` scales on and less where the end is late, or one over the absolute residual.
    """
    if tukey:
        square = np.square(residual / (_TUKEY * scale))
        weight = np.square(1.0 - square) * np.where(residual > 0.0, _LATE_WEIGHT, 1.0)
        weight[~(present & (square < 1.0))] = 0.0
    else:
        weight = 1.0 / np.maximum(np.abs(residual) / scale, 1.0)
        weight[~present] = 0.0
    weight /= scale * scale
    return weight


def _scale(size: Floats) -> float:
    """The robust scale of absolute residuals, which are reordered."""
    return MAD_TO_SIGMA * (core.median(size, len(size)) if len(size) else 0.0) + _FLOOR_NS


class _Equations:
    """The normal equations of all blocks, as the ends that they are made from.

    Args:
        blocks: The evidence.
        units: What is unknown.
        t0: The time that offsets are of, ns.
    """

    def __init__(self, blocks: list[Block], units: Units, t0: float) -> None:
        self._units, self._t0 = units, t0
        none = [np.empty(0, np.int64)]
        rank = np.concatenate([*none, *(np.broadcast_to(b.ranks, b.present.shape)[b.present] for b in blocks)])
        members = np.concatenate([*none, *(b.present.sum(axis=1) for b in blocks)])
        self._ends = np.concatenate([np.empty(0), *(b.ends[b.present] for b in blocks)])
        self._first = np.concatenate(([0], np.cumsum(members)))
        self._unit, self._host = units.of_rank[rank], units.host_of_rank[rank]
        self._weights = np.empty(len(rank))
        self._room = np.empty(len(rank))
        self._elapsed_s = (self._ends - t0) / 1e9
        self._host_of_unit = np.zeros(units.count, np.int64)
        self._host_of_unit[self._unit] = self._host

    def weigh(self, blocks: list[Block]) -> None:
        """Take the weights that the blocks have."""
        if blocks:
            np.concatenate([b.weights[b.present] for b in blocks], out=self._weights)

    def solved(self, free_b: NDArray[np.bool_], c: Floats, b: Floats) -> tuple[Floats, Floats]:
        """The corrections of `c`, and of the free values of `b`.

        Offsets are determined up to one constant of each component, which changes as little as possible; so does a unit or
        host with all evidence left out.
        """
        n, hosts = self._units.count, self._units.hosts
        right, diagonal = np.zeros(n + hosts), np.zeros(n + hosts)
        core.add_pulls(
            self._first, self._ends, self._weights, self._unit, self._host, c, b, self._t0, self._room,
            right[:n], right[n:], diagonal[:n], diagonal[n:],
        )  # fmt: skip
        # offsets are sought at the middle of what their unit has: of a clock that is far off all ends are far from `t0`, and an
        # offset there could hardly be separated from a rate
        middle = _over(_sums(self._unit, self._weights * self._elapsed_s, n), _sums(self._unit, self._weights, n))

        def at_middles(values: Floats) -> Floats:
            values[n:] -= _sums(self._host_of_unit, middle * values[:n], hosts)
            return values

        def at_t0(values: Floats) -> Floats:
            return np.concatenate((values[:n] - middle * values[n:][self._host_of_unit], values[n:]))

        far = _sums(self._host_of_unit, middle**2 * diagonal[:n], hosts)
        diagonal[n:] = np.maximum(diagonal[n:] - far, _LEAST_OF_ITS_OWN * diagonal[n:])
        free = np.concatenate((np.ones(n, np.bool_), free_b)) & (diagonal > 0.0)
        scaling = np.divide(1.0, diagonal, out=np.zeros(len(right)), where=free)
        found, left = np.zeros(len(right)), np.where(free, at_middles(right), 0.0)
        scaled = scaling * left
        along, worth = scaled.copy(), float(left @ scaled)
        enough = worth * _RELATIVE**2
        for _ in range(_MOST_STEPS):
            if worth <= enough:
                break
            product, tried = np.zeros(len(right)), at_t0(along)
            core.add_products(
                self._first, self._ends, self._weights, self._unit, self._host, tried[:n], tried[n:], self._t0, self._room,
                product[:n], product[n:],
            )  # fmt: skip
            product = np.where(free, at_middles(product), 0.0)
            bend = float(along @ product)
            if bend <= 0.0:
                break
            found += worth / bend * along
            left -= worth / bend * product
            scaled = scaling * left
            before, worth = worth, float(left @ scaled)
            along = scaled + worth / before * along
        found = at_t0(found)
        return found[:n], found[n:] / 1e9

    def rate_errors(self, free_b: NDArray[np.bool_]) -> Floats:
        """Standard error of each host's rate against that of the first of its cluster; infinite if it is fixed at 0.

        As if the two hosts shared only ends with each other, as they do if all hosts share ends. Hosts that are related through
        many others are less sure.
        """
        units, hosts = self._units, self._units.hosts
        total, across = (_sums(self._unit, self._weights * v, units.count) for v in (1.0, self._elapsed_s))
        known = _sums(self._host, self._weights * self._elapsed_s**2, hosts)
        known -= _sums(self._host_of_unit, across * _over(across, total), hosts)
        variance = np.divide(1.0, known, out=np.full(hosts, np.inf), where=known > 0.0)
        first = np.unique(units.cluster, return_index=True, return_inverse=True)
        return np.where(free_b, np.sqrt(variance + variance[first[1]][first[2]]) / 1e9, np.inf)


def _sums(at: Int64, values: Floats, count: int) -> Floats:
    """The sum of the values at each of `count` places."""
    sums: Floats = np.bincount(at, values, count).astype(np.float64)  # of nothing they would be whole numbers
    return sums


def _over(values: Floats, weights: Floats) -> Floats:
    """Values over weights; 0 if there is no weight."""
    ratio: Floats = np.divide(values, weights, out=np.zeros(len(values)), where=weights > 0.0)
    return ratio


def _not_first(component: Int64) -> NDArray[np.bool_]:
    """All but the first of each component, which the others are measured against."""
    free = np.ones(len(component), np.bool_)
    free[np.unique(component, return_index=True)[1]] = False
    return free
