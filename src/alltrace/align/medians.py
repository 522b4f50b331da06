"""Medians in machine code, for many small or a few large sets."""

from __future__ import annotations

from typing import Any

from alltrace.trace.jit import plain_kernel

_F = "float64[::1]"
_SHORT = 12


@plain_kernel(f"float64({_F}, int64)")
def middle(values: Any, count: Any) -> Any:
    """The median of the first `count` values, at least one, which are reordered (Hoare's selection, 1961)."""
    wanted = count // 2
    low = 0
    high = count - 1
    while high - low > _SHORT:
        centre = (low + high) // 2
        a, b, c = values[low], values[centre], values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i = low
        j = high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            low = wanted
            high = wanted
    for i in range(low + 1, high + 1):
        value = values[i]
        k = i
        while k > low and values[k - 1] > value:
            values[k] = values[k - 1]
            k -= 1
        values[k] = value
    upper = values[wanted]
    if count % 2 == 1:
        return upper
    lower = values[0]
    for i in range(1, wanted):
        if values[i] > lower:
            lower = values[i]
    return (lower + upper) / 2
