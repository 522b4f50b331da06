"""Two sequences aligned within a band, in machine code."""

from __future__ import annotations

from typing import Any

import numpy as np

from alltrace.trace.jit import kernel

_SKIP = -0.7
_NEVER = -1e9
_SAME = 1e-9


def banded(
    op: Any,
    size: Any,
    taken: Any,
    lane: Any,
    call_op: Any,
    call_size: Any,
    kind: Any,
    typical: Any,
    usual_lane: Any,
    first: int,
    band: int,
    alike: float,
    margin: float,
) -> tuple[Any, Any, float]:
    """The call of each operation, -1 without one; whether it is sure; and the score of the whole.

    A match scores 1, more where sizes, durations and lanes agree and less where they do not; skipping costs. Operations before
    the first call and behind the last cost nothing. A match is sure if every alignment in which the operation has a call of
    another kind scores less by `margin`.

    Args:
        op: Operation numbers, n.
        size: Sizes, -1 where not known.
        taken: Logarithms of durations, NaN where not known.
        lane: Streams.
        call_op: Operation numbers of the calls, m.
        call_size: Their sizes.
        kind: Kind of each call.
        typical: For each kind the usual logarithm of its durations, NaN where not known.
        usual_lane: For each kind its usual lane, -1 where not known.
        first: The call that is expected at the first operation.
        band: How far from there a match may be.
        alike: How far logarithms of equal durations are apart.
        margin: See above.
    """
    ops, sizes, times, lanes, call_ops, call_sizes, kinds, usual_times, usual_lanes = (
        np.ascontiguousarray(c) for c in (op, size, taken, lane, call_op, call_size, kind, typical, usual_lane)
    )
    worth = _worths(ops, sizes, times, lanes, call_ops, call_sizes, kinds, usual_times, usual_lanes, first, band, alike)
    ahead, behind = _sums_ahead(worth, len(call_ops), first), _sums_behind(worth, len(call_ops), first)
    call = _path(worth, ahead, len(call_ops), first)
    return call, _certain(worth, ahead, behind, call, kinds, first, margin), float(ahead[-1].max())


@kernel(
    "f8[:,::1](i8[::1], i8[::1], f8[::1], i8[::1], i8[::1], i8[::1], i8[::1], f8[::1], i8[::1], i8, i8, f8)",
)
def _worths(
    op: Any,
    size: Any,
    taken: Any,
    lane: Any,
    call_op: Any,
    call_size: Any,
    kind: Any,
    typical: Any,
    usual_lane: Any,
    first: Any,
    band: Any,
    alike: Any,
) -> Any:
    """What the match of operation i and call i + first + k - band scores."""
    n, m, width = len(op), len(call_op), 2 * band + 1
    worth = np.full((n, width), _NEVER)
    for i in range(n):
        for k in range(width):
            j = i + first + k - band
            if j < 0 or j >= m or op[i] != call_op[j]:
                continue
            score = 1.0
            if size[i] >= 0 and call_size[j] >= 0:
                score += 0.5 if size[i] == call_size[j] else -1.0
            its = kind[j]
            if not np.isnan(typical[its]) and not np.isnan(taken[i]):
                score += 0.5 - min(abs(taken[i] - typical[its]) / alike, 2.0) * 0.5
            if usual_lane[its] >= 0 and lane[i] >= 0:
                score += 0.1 if usual_lane[its] == lane[i] else -2.0
            worth[i, k] = score
    return worth


@kernel("f8[:,::1](f8[:,::1], i8, i8)")
def _sums_ahead(worth: Any, m: Any, first: Any) -> Any:
    """Best score of the first i operations and the calls before j = i + first + k - band, for each i and k.

    A step of one operation alone leads from k + 1 in the row before, a step of one call alone from k - 1.
    """
    n, width = worth.shape
    band = width // 2
    ahead = np.zeros((n + 1, width + 1))
    for i in range(n + 1):
        for k in range(width + 1):
            j = i + first + k - band
            outside = j <= 0 or j >= m
            best = 0.0 if i == 0 else _NEVER
            if i > 0 and k < width:
                best = max(best, ahead[i - 1, k] + worth[i - 1, k])
                best = max(best, ahead[i - 1, k + 1] + (0.0 if outside else _SKIP))
            elif i > 0 and outside:
                best = max(best, 0.0)
            if i > 0 and k > 0:
                best = max(best, ahead[i, k - 1] + (0.0 if j <= 0 or j > m else _SKIP))
            ahead[i, k] = best
    return ahead


@kernel("f8[:,::1](f8[:,::1], i8, i8)")
def _sums_behind(worth: Any, m: Any, first: Any) -> Any:
    """Best score of the operations from i on and the calls from j = i + first + k - band on, for each i and k."""
    n, width = worth.shape
    band = width // 2
    behind = np.zeros((n + 1, width + 1))
    for i in range(n - 1, -1, -1):
        for k in range(width, -1, -1):
            j = i + first + k - band
            best = _NEVER
            if k < width:
                best = max(best, behind[i + 1, k] + worth[i, k])
                best = max(best, behind[i, k + 1] + (0.0 if j < 0 or j >= m else _SKIP))
            outside = j <= 0 or j >= m
            if k > 0:
                best = max(best, behind[i + 1, k - 1] + (0.0 if outside else _SKIP))
            elif outside:
                best = max(best, 0.0)
            behind[i, k] = best
    return behind


@kernel("i8[::1](f8[:,::1], f8[:,::1], i8, i8)")
def _path(worth: Any, ahead: Any, m: Any, first: Any) -> Any:
    """The call of each operation on the best path, -1 without one."""
    n, width = worth.shape
    band = width // 2
    call = np.full(n, -1, np.int64)
    i, k = n, 0
    for at in range(width + 1):
        if ahead[n, at] > ahead[n, k]:
            k = at
    while i > 0:
        here = ahead[i, k]
        j = i + first + k - band
        if k < width and worth[i - 1, k] > _NEVER / 2 and abs(here - (ahead[i - 1, k] + worth[i - 1, k])) < _SAME:
            call[i - 1] = j - 1
            i -= 1
        elif k > 0 and abs(here - (ahead[i, k - 1] + (0.0 if j <= 0 or j > m else _SKIP))) < _SAME:
            k -= 1
        else:
            k = min(k + 1, width)
            i -= 1
    return call


@kernel("b1[::1](f8[:,::1], f8[:,::1], f8[:,::1], i8[::1], i8[::1], i8, f8)")
def _certain(worth: Any, ahead: Any, behind: Any, call: Any, kind: Any, first: Any, margin: Any) -> Any:
    """Whether every path on which the operation has a call of another kind scores less by `margin`."""
    n, width = worth.shape
    band = width // 2
    sure = np.zeros(n, np.bool_)
    for i in range(n):
        if call[i] < 0:
            continue
        mine, other = _NEVER, _NEVER
        for k in range(width):
            if worth[i, k] <= _NEVER / 2:
                continue
            score = ahead[i, k] + worth[i, k] + behind[i + 1, k]
            if kind[i + first + k - band] == kind[call[i]]:
                mine = max(mine, score)
            else:
                other = max(other, score)
        sure[i] = mine - other >= margin
    return sure
