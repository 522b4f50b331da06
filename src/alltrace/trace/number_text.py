"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, thing: str, things: str | None = None) -> str:
    """A number of things as text: `1 rank`, `1,024 ranks`.

    Args:
        number: How many.
        thing: The name of one.
        things: The name of several; None for `thing` with an s.
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
