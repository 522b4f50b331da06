"""A robust line through the differences of two clocks, in machine code."""

from __future__ import annotations

from typing import Any

from alltrace.align.medians import middle
from alltrace.trace.jit import plain_kernel

_F = "float64[::1]"
_ROUNDS = 6
_MAD_TO_SIGMA = 1.4826
_OWN_NS = 50.0
_NEAR_SIGMAS, _NEAR_NS = 5.0, 1_000.0
_ENOUGH = 8
_SPAN_NS = 1e8


@plain_kernel(f"int64({_F}, {_F}, {_F}, boolean[::1], {_F})")
def _rests(x: Any, difference: Any, line: Any, chosen: Any, out: Any) -> Any:
    """Writes what remains of the chosen differences after the line into `out`; returns how many there are."""
    count = 0
    for i in range(x.size):
        if chosen[i]:
            out[count] = difference[i] - line[0] - line[1] * x[i]
            count += 1
    return count


@plain_kernel(f"boolean({_F}, {_F}, {_F}, {_F})")
def _through(x: Any, difference: Any, weight: Any, line: Any) -> Any:
    """The line of least squares through the differences of weight 1; false, and the line as it was, where they span too little."""
    count, sum_x, sum_d = 0.0, 0.0, 0.0
    low, high = 1e300, -1e300
    for i in range(x.size):
        if weight[i] > 0.0:
            low = min(low, x[i])
            high = max(high, x[i])
            count += 1.0
            sum_x += x[i]
            sum_d += difference[i]
    if high - low <= _SPAN_NS:  # a rate shows only over a tenth of a second
        return False
    mean_x, mean_d = sum_x / count, sum_d / count
    across, along = 0.0, 0.0
    for i in range(x.size):
        if weight[i] > 0.0:
            along += (x[i] - mean_x) * (x[i] - mean_x)
            across += (x[i] - mean_x) * (difference[i] - mean_d)
    line[1] = across / along
    line[0] = mean_d - line[1] * mean_x
    return True


@plain_kernel(f"boolean({_F}, {_F}, int64, boolean[::1], {_F}, {_F})")
def robust_line(x: Any, difference: Any, least: Any, close: Any, spare: Any, line: Any) -> Any:
    """Fits difference = centre + slope * x to what is close to it, in a few rounds; false without anything to fit.

    Args:
        x: Times, ns.
        difference: Differences, ns, as many.
        least: With fewer close ones a round is not believed.
        close: Filled with whether each is close to the line.
        spare: Room for as many.
        line: Centre, slope and scale (the robust standard deviation of what is close); the slope is where it begins.
    """
    count = x.size
    if count == 0:
        return False
    for i in range(count):
        spare[i] = difference[i] - line[1] * x[i]
        close[i] = True
    line[0] = middle(spare, count)
    for turn in range(_ROUNDS):
        typical = middle(spare, _rests(x, difference, line, close, spare))
        there = _rests(x, difference, line, close, spare)
        for i in range(there):
            spare[i] = abs(spare[i] - typical)
        reach = _NEAR_SIGMAS * (_MAD_TO_SIGMA * middle(spare, there) + _OWN_NS) + _NEAR_NS
        now = 0
        same = True
        for i in range(count):
            near = abs(difference[i] - line[0] - line[1] * x[i] - typical) <= reach
            same = same and near == close[i]
            spare[i] = 1.0 if near else 0.0
            now += near
        if now < least:
            break
        if now < _ENOUGH or not _through(x, difference, spare, line):
            line[0] += typical
        if same and turn > 0:
            break
        for i in range(count):
            close[i] = spare[i] > 0.0
    there = _rests(x, difference, line, close, spare)
    for i in range(there):
        spare[i] = abs(spare[i])
    line[2] = _MAD_TO_SIGMA * middle(spare, there) + _OWN_NS
    return True
