"""Finds a step of a clock in the middle of a run: what its ends are late by changes at once and stays changed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from alltrace.align.clock_fit import Clocks, Ends, late_ends, medians
from alltrace.align.constants import MAD_TO_SIGMA, OUTLIER_SIGMAS
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import rows_by

_LEAST_BINS, _BINS, _LEAST_OF_BIN, _OF_BIN = 8, 64, 4, 16
"""Of fewer ends in a bin half are sometimes outliers, so that bins are as long as there are enough of them."""


@dataclass(frozen=True)
class Jump:
    """A step of a clock, `step_ns` further ahead from the stamped time `at_ns` on."""

    clock: int
    at_ns: float
    step_ns: float
    keep_after: bool  # whether the evidence after it is the larger part

    def kept(self, ends: Ends, clock: Int64) -> Flags:
        """The ends without the clock's shorter side; among themselves the clock's ranks step together."""
        own = clock[ends.rank] == self.clock
        mixed = np.bincount(ends.instance[~own], minlength=len(ends.first) - 1)[ends.instance] > 0
        result: Flags = ~(own & mixed) | ((ends.end >= self.at_ns) == self.keep_after)
        return result

    def measured(self, ends: Ends, clocks: Clocks, clock: Int64) -> Jump:
        """The same with its size against the other clocks, by clocks that were fitted without the shorter side."""
        own = clock[ends.rank] == self.clock
        key = 2 * ends.instance + own
        order = np.argsort(key, kind="stable")
        begins = np.searchsorted(key[order], np.arange(2 * len(ends.first) - 1))
        middle = medians(clocks.true(ends.rank, ends.end)[order], begins)
        when = medians(ends.end[order], begins)[1::2]
        both = (np.diff(begins) > 0).reshape(-1, 2).all(axis=1)
        ahead, after = middle[1::2] - middle[::2], when >= self.at_ns
        if not (both & after).any() or not (both & ~after).any():
            return self
        return replace(self, step_ns=float(np.median(ahead[both & after]) - np.median(ahead[both & ~after])))


def find_jump(ends: Ends, clocks: Clocks, clock: Int64, known: Collection[int]) -> Jump | None:
    """The clearest step of a clock, by the clocks found so far, but for those with a known step."""
    of = clock[ends.rank]
    low, high = (f.reduceat(of, ends.first[:-1]) for f in (np.minimum, np.maximum))
    ends = ends.only((low < high)[ends.instance])
    # a step can leave constants between the ranks of a clock
    order, begins = ends.by_rank(len(clock))
    typical = medians(late_ends(ends, clocks)[0][order], begins)
    late = late_ends(ends, replace(clocks, ahead_ns=clocks.ahead_ns + typical))[0]
    of = clock[ends.rank]
    order = np.lexsort((ends.end, of))
    best: tuple[float, Jump] | None = None
    for number, rows in rows_by(of[order]).items():
        jump = None if number in known else step_of(ends.end[order[rows]], late[order[rows]])
        if jump is None:
            continue
        at, step, after, scatter = jump
        # of equal steps the later clock's is used, because clocks are relative to the first
        if best is None or abs(step) > best[0] - scatter:
            best = abs(step), Jump(number, at, step, after)
    return best[1] if best else None


def step_of(times: Floats, values: Floats) -> tuple[float, float, bool, float] | None:
    """Where values step: time, step, whether most are after it, scatter; None if a line does as well."""
    bins = min(_BINS, max(_LEAST_BINS, len(times) // _OF_BIN))
    if len(times) < bins * _LEAST_OF_BIN:
        return None
    edges = np.linspace(0, len(times), bins + 1).astype(np.int64)
    middle, at = medians(values, edges), medians(times, edges)
    scatter = MAD_TO_SIGMA * float(np.median(medians(np.abs(values - np.repeat(middle, np.diff(edges))), edges)))
    # a running median of three keeps a step and drops a bin that outliers took
    middle[1:-1] = np.median(np.stack([middle[:-2], middle[1:-1], middle[2:]]), axis=0)
    line = np.stack([np.ones(bins), (at - at[0]) / max(at[-1] - at[0], 1.0)], axis=1)
    splits = np.arange(2, bins - 1)
    designs = np.empty((len(splits), bins, 3))
    designs[:, :, :2], designs[:, :, 2] = line, np.arange(bins) >= splits[:, None]
    (without,), _ = _left(line[None], middle)
    every, coefficients = _left(designs, middle)
    best = int(every.argmin())
    step = float(coefficients[best, 2])
    if every[best] > without / 2 or abs(step) <= OUTLIER_SIGMAS * scatter:
        return None
    split = best + 2
    # between the last bin before and the first after, where the ends themselves step
    a, b = int(edges[split - 1]), int(edges[min(split + 1, bins)])
    half = np.sign(step) * (values[a:b] - (middle[split - 1] + middle[split]) / 2) > 0
    before = np.concatenate(([0], np.cumsum(half)))
    after = np.concatenate((np.cumsum((~half)[::-1])[::-1], [0]))
    cut = min(max(a + int(np.argmin(before + after)), 1), len(times) - 1)
    return float(times[cut]), step, len(times) - cut > cut, scatter


def _left(designs: Floats, values: Floats) -> tuple[Floats, Floats]:
    """For each of d designs (d, n, k) what its fit by least squares leaves of n values, and the k coefficients."""
    coefficients = np.linalg.pinv(designs) @ values
    return np.abs(values - (designs @ coefficients[:, :, None])[:, :, 0]).sum(axis=1) + 1, coefficients
