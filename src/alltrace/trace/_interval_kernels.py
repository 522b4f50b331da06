"""The compiled interval kernels; only those that are asked for are loaded."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.trace import _sweeps, jit

if TYPE_CHECKING:
    from numpy.typing import NDArray

_I = "int64[::1]"
_R = "Array(int64, 1, 'C', readonly=True)"
_B = "Array(boolean, 1, 'C', readonly=True)"
_U = "uint64[::1]"


def _merge_sorted(
    starts: NDArray[np.int64], ends: NDArray[np.int64], out_starts: NDArray[np.int64], out_ends: NDArray[np.int64]
) -> int:
    """Merge intervals sorted by start, those of no length left out; how many there are, or -1 where they are not sorted."""
    count = 0
    previous = np.int64(-(2**63))
    for i in range(len(starts)):
        start = starts[i]
        end = ends[i]
        if start < previous:
            return -1
        previous = start
        if end <= start:
            continue
        if count > 0 and start <= out_ends[count - 1]:
            out_ends[count - 1] = max(out_ends[count - 1], end)
        else:
            out_starts[count] = start
            out_ends[count] = end
            count += 1
    return count


def _intersect(
    a_starts: NDArray[np.int64],
    a_ends: NDArray[np.int64],
    b_starts: NDArray[np.int64],
    b_ends: NDArray[np.int64],
    out_starts: NDArray[np.int64],
    out_ends: NDArray[np.int64],
) -> int:
    """The intersection of two merged sets; how many intervals it has, at most the sum of both."""
    i = j = count = 0
    while i < len(a_starts) and j < len(b_starts):
        start = max(a_starts[i], b_starts[j])
        end = min(a_ends[i], b_ends[j])
        if start < end:
            out_starts[count] = start
            out_ends[count] = end
            count += 1
        if a_ends[i] < b_ends[j]:
            i += 1
        else:
            j += 1
    return count


def _overlap(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    m_starts: NDArray[np.int64],
    m_ends: NDArray[np.int64],
    covered: NDArray[np.uint64],
    out: NDArray[np.int64],
) -> bool:
    """How much of each interval the merged set covers; False where the intervals are not sorted by start."""
    most = np.uint64(2**63 - 1)
    covered[0] = 0
    for k in range(len(m_starts)):
        covered[k + 1] = covered[k] + (np.uint64(m_ends[k]) - np.uint64(m_starts[k]))
    at = 0
    previous = np.int64(-(2**63))
    count = len(m_starts)
    for i in range(len(starts)):
        start = starts[i]
        end = ends[i]
        if start < previous:
            return False
        previous = start
        while at < count and m_ends[at] <= start:
            at += 1
        if end <= start or at == count or m_starts[at] >= end:
            out[i] = 0
            continue
        # Find the first merged interval that starts at `end` or later: double the step, then bisect.
        step = 1
        low = at
        while low + step < count and m_starts[low + step] < end:
            low += step
            step *= 2
        high = min(low + step, count)
        low += 1
        while low < high:
            middle = (low + high) // 2
            if m_starts[middle] < end:
                low = middle + 1
            else:
                high = middle
        last = low - 1
        length = covered[low] - covered[at]
        if start > m_starts[at]:
            length -= np.uint64(start) - np.uint64(m_starts[at])
        if m_ends[last] > end:
            length -= np.uint64(m_ends[last]) - np.uint64(end)
        out[i] = np.int64(min(length, most))
    return True


_KERNELS: dict[str, tuple[str, Any]] = {
    "merge_sorted": (f"int64({_R}, {_R}, {_I}, {_I})", _merge_sorted),
    "intersect": (f"int64({_R}, {_R}, {_R}, {_R}, {_I}, {_I})", _intersect),
    "overlap": (f"boolean({_R}, {_R}, {_R}, {_R}, {_U}, {_I})", _overlap),
    "nest": (f"void({_B}, {_R}, {_R}, {_R}, int64, {_I}, {_I}, {_I}, {_I}, {_I}, {_I}, {_I})", _sweeps.nest),
    "innermost": (f"void({_R}, {_R}, {_R}, {_R}, {_R}, {_R}, {_I}, {_I}, {_I}, {_I}, {_I}, {_I})", _sweeps.innermost),
    "enclosing": (f"void({_R}, {_R}, {_R}, {_R}, {_R}, {_R}, {_I}, {_I}, {_I}, {_I}, {_I})", _sweeps.enclosing),
}


@lru_cache
def kernel(name: str) -> Any:
    """The compiled kernel of that name; only those that are asked for are loaded."""
    signature, function = _KERNELS[name]
    return jit.plain_kernel(signature)(function)
