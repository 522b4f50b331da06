"""Numbers in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, thing: str, things: str | None = None) -> str:
    """A number of things as text: `1 rank`, `1,024 ranks`.

    `number`: how many. `thing`: the name of one. `things`: the name of several; None for `thing` with an s.
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def number_ranges(numbers: Sequence[int]) -> str:
    """Numbers as text: `0-3, 7` for 0, 1, 2, 3, 7, in any order; `none` for none."""
    if not numbers:
        return "none"
    parts: list[list[int]] = []
    for n in sorted(numbers):
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
