"""Readable amounts: a number with a unit that suits its size, and long names cut so that they stay distinct."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from alltrace.trace.errors import printable

_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")),
    "us": ((1e6, "s"), (1e3, "ms"), (1.0, "µs")),
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "bytes": _SIZES,
    "B": _SIZES,
    "MB": ((1e6, "TB"), (1e3, "GB"), (1.0, "MB"), (1e-3, "kB")),
    "FLOP/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s")),
    "bytes/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "bytes/s")),
}
_LONGEST = 60
_MOST_DECIMALS = 6
_LEAST_SHOWN, _MOST_SHOWN = 0.01, 1e6
"""In a column, a smaller unit is taken if the smallest number were below the one and the largest stays below the
other."""
_TAILS = (1 / 3, 1 / 2, 2 / 3, 1 / 6, 5 / 6, 0.0)
"""The shares of a name that come from its end, in the order in which they are tried."""


def scale(unit: str | None, values: Iterable[float]) -> tuple[float, str]:
    """By what numbers are divided so that they can be read, and the unit they are in then."""
    # `unit`: the unit they are in, or None. `values`: the numbers; the largest decides.
    steps = _SCALES.get(unit or "")
    if steps is None:
        return 1.0, unit or ""
    largest = max((abs(v) for v in values), default=0.0)
    for divisor, name in steps:
        if largest >= divisor:
            return divisor, name
    return next(((d, n) for d, n in steps if d == 1.0), steps[-1])


def column_scale(unit: str | None, values: Iterable[float]) -> tuple[float, str, int]:
    """How the numbers of a column are written alike: their divisor, their unit then, and the decimals."""
    # The largest number has four digits that count, and the smallest one if three decimals or a smaller unit allow it.
    sizes = [abs(v) for v in values if v and math.isfinite(v)]
    most, least = max(sizes, default=0.0), min(sizes, default=0.0)
    divisor, name = scale(unit, [float(f"{most:.4g}")])
    smaller = [step for step in _SCALES.get(unit or "", ()) if step[0] < divisor]
    while smaller and least / divisor < _LEAST_SHOWN and most / smaller[0][0] < _MOST_SHOWN:
        (divisor, name), *smaller = smaller
    if divisor == 1.0 and unit and all(v == int(v) for v in sizes):
        return divisor, name, 0
    decimals = 3 - math.floor(math.log10(most / divisor)) if most else 0
    if unit and least / divisor < _LEAST_SHOWN * 10:
        decimals = max(decimals, 3)
    return divisor, name, min(max(decimals, 0), _MOST_DECIMALS)


def text(value: object) -> str:
    """A value from a trace as a short text on one line."""
    if value is None:
        return "none"
    if isinstance(value, (list, tuple)):
        return text(", ".join(map(str, value)))
    return shortened(printable(str(value)), _LONGEST)


def shortened(shown: str, longest: int) -> str:
    """A text with its middle left out where it is too long: kernels often differ in their last words only."""
    return _without_middle(shown, longest, 1 / 3) if len(shown) > longest else shown


def told_apart(names: Sequence[str], longest: int) -> list[str]:
    """Names of limited length, with the middle left out where most of them still differ."""
    # Names that are equal at all these places keep the part after their common beginning instead. `names`: the names,
    # n; equal ones stay equal. `longest`: characters of the longest name that comes back, 4 or more. Returns the names,
    # n.
    long = sorted({name for name in names if len(name) > longest})
    if not long:
        return list(names)
    short = {name for name in names if len(name) <= longest}
    short_of: dict[str, str] = {}
    for share in _TAILS:
        tried = {name: _without_middle(name, longest, share) for name in long}
        if len({*tried.values(), *short}) > len({*short_of.values(), *short}) or not short_of:
            short_of = tried
    alike: dict[str, list[str]] = {}
    for name, cut in short_of.items():
        alike.setdefault(cut, []).append(name)
    for same in (group for group in alike.values() if len(group) > 1):
        low, high = min(same), max(same)  # what these have in common at their beginning, all have
        common = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
        head = longest // 4
        for name in same:
            rest = name[max(common - 2, head) :]
            room = longest - head - 1
            short_of[name] = f"{name[:head]}…{rest if len(rest) <= room else f'{rest[: room - 1]}…'}"
    return [short_of.get(name, name) for name in names]


def _without_middle(name: str, longest: int, tail_share: float) -> str:
    """A name of `longest` characters, of which this share comes from its end."""
    tail = int(longest * tail_share)
    return f"{name[: longest - tail - 1]}…{name[len(name) - tail :]}"


def amount(value: object, unit: str | None, digits: int = 4) -> str:
    """A value with its unit, short, for reading: `1.892 ms`, `99.10 GB/s`, `1,024`; nothing for None."""
    # `value`: the value; what is not a number is shown as text. `unit`: its unit, or None. `digits`: how many digits of
    # a number with fractions are shown.
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return text(value)
    if unit == "%":
        return f"{value:.1f} %"
    if isinstance(value, int) and unit is None:
        return str(value) if abs(value) < 10_000 else f"{value:,}"
    # what rounds up to the next unit is in that one: 999,990 ns are 1.000 ms
    divisor, name = scale(unit, [float(value), float(f"{float(value):.{digits}g}")])
    shown = value / divisor
    if abs(shown) >= 1000 or not shown or (divisor == 1.0 and isinstance(value, int)):
        number = f"{shown:,.0f}"
    else:
        number = format(shown, f"#.{digits}g" if unit else f".{digits}g").removesuffix(".")
    return f"{number} {name}" if name else number
