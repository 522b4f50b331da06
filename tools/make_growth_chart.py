"""Draws how the stages grow with the ranks from the table in `docs/benchmarks.md`: `python tools/make_growth_chart.py`.

A line for each row of the first table with numbers of ranks as columns and CPU seconds at the start of cells; both axes
are logarithmic, so that the slope of a line is the power next to its name.
"""

from __future__ import annotations

import re
from math import ceil, floor, log10
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
CHART = ROOT / "docs" / "images" / "growth.svg"

_COLORS = ("#095f8c", "#df4c29", "#3fb0b3", "#7d5ba4", "#cd6d0a", "#b74c82", "#6dc286")
_TEXT, _FAINT, _GRID = "#22272e", "#57606a", "#e3e6ea"
_LEFT, _TOP, _WIDTH, _HEIGHT, _RIGHT = 56, 40, 420, 300, 250
_APART = 15
_RANKS = re.compile(r"([\d,]+) ranks")
_SECONDS = re.compile(r"([\d,.]+) CPU s")

Series = dict[str, list[float | None]]


def growth_table(text: str) -> tuple[list[int], Series, dict[str, str]]:
    """The table of growth in a page.

    Returns:
        The numbers of ranks; for each stage its CPU seconds, None if a cell has none; and its power as it is written.
    """
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.endswith("| power |") and len(_RANKS.findall(line)) > 2)
    head = [cell.strip() for cell in lines[begin].strip("|").split("|")]
    columns = [i for i, cell in enumerate(head) if _RANKS.fullmatch(cell)]
    ranks = [int(_RANKS.fullmatch(head[i])[1].replace(",", "")) for i in columns]  # type: ignore[index]
    stages: Series = {}
    powers: dict[str, str] = {}
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        found = [_SECONDS.match(cells[i]) for i in columns]
        stage = cells[0].replace("`", "")
        stages[stage] = [None if m is None else float(m[1].replace(",", "")) for m in found]
        powers[stage] = cells[head.index("power")]
    return ranks, stages, powers


def growth_chart(ranks: list[int], stages: Series, powers: dict[str, str]) -> str:
    """The chart as SVG, with a name next to the end of each line."""
    known = [s for values in stages.values() for s in values if s is not None]
    low, high = floor(log10(min(known))), ceil(log10(max(known)))
    first, last = log10(ranks[0]), log10(ranks[-1])

    def x_of(count: float) -> float:
        return _LEFT + _WIDTH * (log10(count) - first) / (last - first)

    def y_of(seconds: float) -> float:
        return _TOP + _HEIGHT * (high - log10(seconds)) / (high - low)

    size = _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + 44
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" font-family="sans-serif"'
            ' font-size="12">'
        ),
        f'<rect width="{size[0]}" height="{size[1]}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="22" fill="{_TEXT}">CPU seconds of each stage, one process</text>',
    ]
    for power in range(low, high + 1):
        y = y_of(10**power)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_GRID}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{_FAINT}">{10**power:g}</text>')
    for count in ranks:
        x = x_of(count)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_TOP + _HEIGHT}" stroke="{_GRID}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle" fill="{_FAINT}">{count:,}</text>'
        )
    parts.append(
        f'<text x="{_LEFT + _WIDTH / 2:.1f}" y="{size[1] - 8}" text-anchor="middle" fill="{_FAINT}">ranks</text>'
    )
    # as steep as work that grows with the ranks and no faster
    begin, end = 10.0**low * 2, 10.0**low * 2 * ranks[-1] / ranks[0]
    parts.append(
        f'<line x1="{x_of(ranks[0]):.1f}" y1="{y_of(begin):.1f}" x2="{x_of(ranks[-1]):.1f}" y2="{y_of(end):.1f}" '
        f'stroke="{_FAINT}" stroke-dasharray="4 4"/>'
    )
    ends = []
    for color, (stage, values) in zip(_COLORS, stages.items(), strict=False):
        points = [(x_of(r), y_of(s)) for r, s in zip(ranks, values, strict=True) if s is not None]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in points]
        ends.append((points[-1][1], color, f"{stage}: {powers[stage]}"))
    ends.append((y_of(end), _FAINT, "as the ranks: 1.00"))
    y = -1.0e9
    for at, color, label in sorted(ends):
        y = max(at + 4, y + _APART)
        parts.append(f'<text x="{_LEFT + _WIDTH + 14}" y="{y:.1f}" fill="{color}">{label}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Write the chart."""
    CHART.write_text(growth_chart(*growth_table(PAGE.read_text())))


if __name__ == "__main__":
    main()
