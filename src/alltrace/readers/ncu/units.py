"""Units as Nsight Compute prints them, in base units: ns, bytes, Hz, and per second."""

from __future__ import annotations

from functools import cache

_TIMES = {"nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_COUNTED = frozenset({"byte", "hz", "sector", "inst", "cycle", "thread", "warp", "request", "block", "flop"})


@cache
def base_factor(unit: str) -> float | None:
    """What a value in `unit` is multiplied by to be in its base unit; None for a unit that has none (a share, a count, none).

    A time is in ns, except below a fraction stroke, where it is a second; K, M, G and T are decimal.
    """
    above, stroke, below = unit.partition("/")
    over = _factor(above)
    if not stroke:
        return over
    if below in _TIMES:
        return (over or 1.0) / (_TIMES[below] / 1e9)
    # a prefix below the stroke: Nsight Compute prints 2006 %/byte as 2.006 %/Kbyte
    under = _factor(below)
    return over if under is None else (over or 1.0) * under


def _factor(unit: str) -> float | None:
    if unit in _TIMES:
        return _TIMES[unit]
    if unit[:1] in _PREFIXES and unit[1:].lower() in _COUNTED:
        return _PREFIXES[unit[0]]
    return None
