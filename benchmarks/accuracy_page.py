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
    begin, end = f"<!-- table: {name} -->\n", "<!-- end of table -->"
    try:
        before, opened, after = page.read_text(encoding="utf-8").partition(begin)
        _, closed, rest = after.partition(end)
        if not opened or not closed:
            raise SystemExit(
                f"{page}: expected the line {begin.strip()} and below it {end}; found none; write them where it goes"
            )
        text = "\n".join(lines)
        page.write_text(f"{before}{begin}\n{text}\n\n{closed}{rest}", encoding="utf-8")
    except OSError as error:
        raise SystemExit(f"{page}: {error.strerror}; name a page that can be read and written") from error
