"""Fits clocks to the ends of synchronising collectives: weighted least squares with the true ends eliminated, made robust.

All members leave a synchronising collective within microseconds of each other, however late each arrived. With x the end as rank r
stamped it, the true end of instance i is estimated by every member as ``T = x - c[unit of r] - b[host of r] * (x - t0)``, and
the weighted mean over the members eliminates it. Per communicator that is a matrix (instances x members); its normal equations
need the members of that communicator only, so small communicators suffice as long as they connect.

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


@dataclass
class Block:
    """The ends of one communicator's instances.

    Attributes:
        instances: Their numbers, ascending.
        ranks: Places of the members in the list of ranks.
        ends: Stamped ends in ns, instances x members; 0 where a member is missing.
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
        b_error: Standard error of `b`; infinite where it was held at 0.
    """

    c: Floats
    b: Floats
    t0: float
    scale: float
    b_error: Floats


@dataclass(frozen=True)
class Units:
    """What is unknown: one offset for each unit of ranks whose stamps have one error, one rate for each host.

    Attributes:
        of_rank: Unit of each rank.
        host_of_rank: Host of each rank.
        component: Component of each unit; units of different components are connected by nothing.
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
        drifting: The hosts whose rate is not held at 0.
        start: Where to begin; None for nothing known.
    """
    t0 = start.t0 if start else _middle(blocks)
    c = start.c.copy() if start else np.zeros(units.count)
    b = start.b.copy() if start else np.zeros(units.hosts)
    b[~drifting] = 0.0
    for block in blocks:
        block.weights = block.present.astype(np.float64)
    first_tukey = 0 if start else _ROUNDS_ABSOLUTE
    error = np.full(units.hosts, np.inf)
    span_s = max((float(np.ptp(bl.ends[bl.present])) for bl in blocks), default=0.0) / 1e9
    for turn in range(_ROUNDS):
        if turn or start:
            _reweigh(blocks, units, c, b, t0, tukey=turn >= first_tukey)
        step_c, step_b, error = _solve(blocks, units, drifting, c, b, t0)
        c += step_c
        b += step_b
        moved = max(np.abs(step_c).max(initial=0.0), np.abs(step_b).max(initial=0.0) * 1e9 * max(span_s, 1e-9))
        if turn > first_tukey and moved < _SETTLED_NS:
            break
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
    """What each end is later than the median of its instance, ns; 0 where a member is missing."""
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
        # too few rows tell no scale of their own
        if len(own) >= _ENOUGH:
            block.scale = _scale(own)
        else:
            if overall is None:
                overall = _scale(np.concatenate([np.abs(r[bl.present]) for bl, r in zip(blocks, found, strict=True)]))
            block.scale = overall
        block.weights = _weights(residual, block.present, block.scale, tukey=tukey)


def _weights(residual: Floats, present: NDArray[np.bool_], scale: float, *, tukey: bool) -> Floats:
    """The weight of each end, 1/ns^2; 0 where a member is missing.

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


def _solve(
    blocks: list[Block], units: Units, drifting: NDArray[np.bool_], c: Floats, b: Floats, t0: float
) -> tuple[Floats, Floats, Floats]:
    """One step of the normal equations: what to add to `c` and `b`, and the standard error of `b`."""
    n, m = units.count, units.hosts
    with_drift = bool(drifting.any())
    a_cc, y_c = np.zeros((n, n)), np.zeros(n)
    a_cb, a_bb, y_b = np.zeros((n, m)), np.zeros((m, m)), np.zeros(m)
    for block in blocks:
        own, unit = np.unique(units.of_rank[block.ranks], return_inverse=True)
        hosts, host = np.unique(units.host_of_rank[block.ranks], return_inverse=True)
        ahead, rate = c[units.of_rank[block.ranks]], b[units.host_of_rank[block.ranks]]
        n_own, n_hosts = len(own), len(hosts)
        of_c, of_b = np.zeros(n_own), np.zeros(n_hosts)
        cc, cb, bb = np.zeros((n_own, n_own)), np.zeros((n_own, n_hosts)), np.zeros((n_hosts, n_hosts))
        core.add_normal_equations(
            block.ends, block.weights, unit, host, ahead, rate, t0, with_drift,
            np.empty(len(block.ranks)), np.zeros(n_own), np.zeros(n_hosts), cc, cb, bb, of_c, of_b,
        )  # fmt: skip
        y_c[own] += of_c
        a_cc[np.ix_(own, own)] += cc
        if with_drift:
            y_b[hosts] += of_b
            a_cb[np.ix_(own, hosts)] += cb
            a_bb[np.ix_(hosts, hosts)] += bb
    free_c = _not_first(units.component)
    free_b = drifting & _not_first(units.cluster) if with_drift else np.zeros(m, np.bool_)
    matrix = np.block(
        [
            [a_cc[np.ix_(free_c, free_c)], a_cb[np.ix_(free_c, free_b)]],
            [a_cb[np.ix_(free_c, free_b)].T, a_bb[np.ix_(free_b, free_b)]],
        ]
    )
    right = np.concatenate((y_c[free_c], y_b[free_b]))
    step_c, step_b, error = np.zeros(n), np.zeros(m), np.full(m, np.inf)
    if not len(right):
        return step_c, step_b, error
    # a unit or host whose evidence was all left out keeps what it has; scaling makes ns and ns/s comparable
    root = np.sqrt(np.maximum(np.diag(matrix), 1e-30))
    scaled = matrix / root[:, None] / root[None, :] + 1e-10 * np.eye(len(right))
    found = np.linalg.solve(scaled, right / root) / root
    free = int(free_c.sum())
    step_c[free_c] = found[:free]
    step_b[free_b] = found[free:] / 1e9
    if free_b.any():
        variance = np.diag(np.linalg.inv(scaled))[free:] / root[free:] ** 2
        error[free_b] = np.sqrt(np.maximum(variance, 0.0)) / 1e9
    return step_c, step_b, error


def _not_first(component: Int64) -> NDArray[np.bool_]:
    """All but the first of each component, which the others are measured against."""
    free = np.ones(len(component), np.bool_)
    free[np.unique(component, return_index=True)[1]] = False
    return free
