"""The tables of docs/accuracy.md, which the benchmarks write."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def write_table(page: Path, name: str, lines: Sequence[str]) -> None:
    """Put `lines` between `<!-- table: NAME -->` and `<!-- end of table -->`; the previous text is removed.

    Raises:
        SystemExit: The page cannot be read or written, or lacks these marks.
    """
    before, after = around_table(page, name)
    text = "\n".join(lines)
    try:
        page.write_text(f"{before}\n{text}\n\n{after}", encoding="utf-8")
    except OSError as error:
        raise SystemExit(f"{page}: {error.strerror}; name a page that can be written") from error


def around_table(page: Path, name: str) -> tuple[str, str]:
    """The text of the page up to the table of this name, and after it, with its marks; errors as of `write_table`."""
    begin, end = f"<!-- table: {name} -->\n", "<!-- end of table -->"
    try:
        before, opened, after = page.read_text(encoding="utf-8").partition(begin)
    except OSError as error:
        raise SystemExit(f"{page}: {error.strerror}; name a page that can be read and written") from error
    _, closed, rest = after.partition(end)
    if not opened or not closed:
        raise SystemExit(
            f"{page}: expected the line {begin.strip()} and below it {end}; found none; write them where it goes"
        )
    return f"{before}{begin}", f"{closed}{rest}"
