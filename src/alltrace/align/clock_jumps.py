"""Finds a step of a host's clock in the middle of a run: what its ends are late by changes at once and stays changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from alltrace.align.clock_fit import Block, Fit, Units, corrected, residuals
from alltrace.core import fits as core
from alltrace.trace.distinct import rows_by

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from alltrace.align.clock_fit import Floats

_BINS = 48
_LEAST_ENDS = 24
_LEAST_BINS = 8
_LEAST_SIDE = 2
_LEAST_NS = 3_000.0
_SIGMAS = 8.0
_EXPLAINED = 0.4
"""A step may leave at most this share of the variance that a line leaves."""


@dataclass(frozen=True)
class Jump:
    """A step of a host's clock.

    Attributes:
        host: Place of the host.
        at_ns: When, in stamped time.
        step_ns: How much further ahead its clock is after it.
        keep_after: Whether the evidence after it is the larger part.
    """

    host: int
    at_ns: float
    step_ns: float
    keep_after: bool

    def measured(self, blocks: Sequence[Block], units: Units, fitted: Fit) -> Jump:
        """The same with the size that it has by clocks that were fitted without its shorter side."""
        return replace(self, step_ns=_size(blocks, units, fitted, self))


def find_jump(blocks: Sequence[Block], units: Units, fitted: Fit, known: Collection[int]) -> Jump | None:
    """The clearest step of a host's clock; None if there is none.

    Args:
        blocks: The evidence.
        units: What was unknown.
        fitted: The clocks found so far.
        known: Hosts with a known step.
    """
    best: tuple[float, Jump] | None = None
    for host, (times, values) in _series(blocks, units, fitted).items():
        if host in known or len(times) < _LEAST_ENDS:
            continue
        found = _split(times, values)
        if found is None:
            continue
        at, step, after = found
        # of equal steps the later host's is used, because clocks are relative to the first
        if best is None or abs(step) >= 0.8 * best[0]:
            best = abs(step), Jump(host, at, step, after)
    return best[1] if best else None


def _series(blocks: Sequence[Block], units: Units, fitted: Fit) -> dict[int, tuple[Floats, Floats]]:
    """Time and lateness of each host's ends relative to those of other hosts, by time."""
    hosts, times, values = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0)]
    for block in blocks:
        host = units.host_of_rank[block.ranks]
        if (host == host[0]).all():
            continue
        hosts.append(np.broadcast_to(host, block.present.shape)[block.present])
        times.append(block.ends[block.present])
        values.append(residuals(block, units, fitted.c, fitted.b, fitted.t0)[block.present])
    host, time, value = np.concatenate(hosts), np.concatenate(times), np.concatenate(values)
    order = np.lexsort((time, host))
    return {h: (time[order[rows]], value[order[rows]]) for h, rows in rows_by(host[order]).items()}


def _split(times: Floats, values: Floats) -> tuple[float, float, bool] | None:
    """Where the values step: the time, the step and whether the larger part is after it; None if a line does as well."""
    bins = min(_BINS, max(_LEAST_BINS, len(times) // 10))
    edges = np.linspace(0, len(times), bins + 1).astype(np.int64)
    spans = list(pairwise(edges.tolist()))
    middle = np.array([core.median(values[a:b].copy(), b - a) for a, b in spans])
    at = np.array([core.median(times[a:b].copy(), b - a) for a, b in spans])
    spread = np.median([core.median(np.abs(values[a:b] - m), b - a) for (a, b), m in zip(spans, middle, strict=True)])
    # a running median of three keeps a step and drops a bin that outliers took
    middle[1:-1] = np.median(np.stack([middle[:-2], middle[1:-1], middle[2:]]), axis=0)
    x = (at - at[0]) / max(at[-1] - at[0], 1.0)
    line = np.stack([np.ones(bins), x], axis=1)
    without = float(_left(line[None], middle)[0][0])
    splits = np.arange(_LEAST_SIDE, bins - _LEAST_SIDE + 1)
    designs = np.empty((len(splits), bins, 3))
    designs[:, :, :2], designs[:, :, 2] = line, np.arange(bins) >= splits[:, None]
    every, coefficients = _left(designs, middle)
    best = int(every.argmin())
    left, step = float(every[best]), float(coefficients[best, 2])
    if left > _EXPLAINED * without or abs(step) < max(_LEAST_NS, _SIGMAS * float(spread)):
        return None
    split = best + _LEAST_SIDE
    # between the last bin before and the first after, where the ends themselves step
    a, b = int(edges[split - 1]), int(edges[min(split + 1, bins)])
    half = np.sign(step) * (values[a:b] - (middle[split - 1] + middle[split]) / 2) > 0
    before = np.concatenate(([0], np.cumsum(half)))
    after = np.concatenate((np.cumsum((~half)[::-1])[::-1], [0]))
    cut = a + int(np.argmin(before + after))
    cut = min(max(cut, 1), len(times) - 1)
    return float(times[cut]), step, len(times) - cut > cut


def _left(designs: Floats, values: Floats) -> tuple[Floats, Floats]:
    """For each of d designs (d, n, k) what its fit by least squares leaves of n values, and the k coefficients."""
    coefficients = np.linalg.pinv(designs) @ values
    return np.abs(values - (designs @ coefficients[:, :, None])[:, :, 0]).sum(axis=1) + 1e-9, coefficients


def _size(blocks: Sequence[Block], units: Units, fitted: Fit, jump: Jump) -> float:
    """How far the host's ends step relative to those of only the other hosts; a median of all would hide a part of it."""
    before, after = [np.empty(0)], [np.empty(0)]
    for block in blocks:
        own = units.host_of_rank[block.ranks] == jump.host
        rows = block.present[:, own].any(axis=1) & block.present[:, ~own].any(axis=1)
        if not rows.any():
            continue
        times = np.where(block.present, corrected(block, units, fitted.c, fitted.b, fitted.t0), np.nan)[rows]
        ahead = np.nanmedian(times[:, own], axis=1) - np.nanmedian(times[:, ~own], axis=1)
        when = np.nanmedian(np.where(block.present, block.ends, np.nan)[rows][:, own], axis=1)
        before.append(ahead[when < jump.at_ns])
        after.append(ahead[when >= jump.at_ns])
    first, second = np.concatenate(before), np.concatenate(after)
    return float(np.median(second) - np.median(first)) if len(first) and len(second) else jump.step_ns
