"""When a rank is slower than others: always, from a step on, or sometimes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alltrace.recipes.analysis.change_in_time import throttled, to_fastest
from alltrace.recipes.analysis.variation import variation
from alltrace.trace.arrays import Flags, Floats

ALWAYS, SINCE, SOMETIMES = "always", "from a step on", "sometimes"

_LEAST = 0.01
"""A rank is slower if it takes this share of a step longer."""


@dataclass(frozen=True)
class Slower:
    """When one rank is slower."""

    when: str  # `ALWAYS`, `SINCE` or `SOMETIMES`
    steps: Flags  # in which steps, (steps)
    slowdown: float  # how many times as long it takes in them as the fastest quarter of the ranks
    excess_ns: int  # what it takes longer in them, summed


def slower_steps(own_ns: Floats) -> dict[int, Slower]:
    """The ranks, by their place, that take longer by themselves than others, in the steps that all ranks have, if there are any.

    `own_ns`: What each rank takes in each step without waiting for others, (ranks, steps); NaN if it lacks the step.
    """
    has_time = ~np.isnan(own_ns)
    every = has_time[has_time.any(axis=1)].all(axis=0)
    own_ns = np.where(every | ~every.any(), own_ns, np.nan)
    values = to_fastest(own_ns)
    when = {change.row: (SINCE if change.lasts else SOMETIMES, change.slow) for change in throttled(values, _LEAST)}
    left = own_ns.copy()
    left[list(when)] = np.nan
    steady = variation(left, _LEAST)
    for row in range(len(own_ns)):
        if steady.persistent[row]:
            when[row] = ALWAYS, ~np.isnan(own_ns[row])
        elif steady.sometimes[row] or steady.slow[row].any():
            when[row] = SOMETIMES, steady.slow[row] | (steady.sometimes[row] & (steady.values[row] > 1 + steady.least))
    slower = {}
    for row, (how, steps) in when.items():
        excess = own_ns[row, steps] * (1 - 1 / values[row, steps])
        slower[row] = Slower(how, steps, float(np.median(values[row, steps])), int(np.nansum(excess)))
    return slower
