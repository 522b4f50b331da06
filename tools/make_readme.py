"""Writes the outputs that README.md and docs/start.md show, and their pictures, from the demo's run.

`python tools/make_readme.py [--check]` A comment `<!-- output of: COMMAND -->` is followed by the output of that
command, in a block, up to the next empty line after it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
START = ROOT / "docs" / "start.md"
PICTURE = ROOT / "docs" / "images" / "breakdown.svg"
_BLOCK = re.compile(r"<!-- output of: (?P<command>.+?) -->\n(?:\n```\n(?:(?!```).*\n)*```\n)?")


def main() -> int:
    """Write README.md and the pictures; with `--check` only say whether they are up to date."""
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            made = rendered()
        finally:
            os.chdir(before)
    stale = [path for path, text in made.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not up to date; run python tools/make_readme.py")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


def rendered() -> dict[Path, str]:
    """What README.md and the pictures should be; makes the demo's run in the current folder."""
    _output("alltrace demo --output demo")
    return {**{page: fill_outputs(page.read_text(encoding="utf-8")) for page in (README, START)}, PICTURE: _picture()}


def fill_outputs(text: str) -> str:
    """`text` with the output of each command that it shows, run in the current folder."""
    return _BLOCK.sub(_filled, text)


def _filled(match: re.Match[str]) -> str:
    command = match["command"]
    output = _output(command).rstrip("\n")
    return f"<!-- output of: {command} -->\n\n```\n$ {command}\n{output}\n```\n"


def _output(command: str) -> str:
    from alltrace.cli.main import main as alltrace

    captured = io.StringIO()
    with contextlib.redirect_stdout(captured), contextlib.redirect_stderr(io.StringIO()):
        code = alltrace(shlex.split(command)[1:])
    if code != 0:
        raise SystemExit(f"{command} ended with {code}")
    return captured.getvalue()


def _picture() -> str:
    """Stacked bars of the demo's breakdown, one per rank."""
    import alltrace

    rows = alltrace.open("demo/run").recipe("breakdown").to_arrow().to_pylist()
    classes = (
        ("compute_percent", "compute", "#2f6f9f"),
        ("exposed_communication_percent", "exposed communication", "#d1603d"),
        ("exposed_copy_percent", "exposed copies", "#e2b33d"),
        ("idle_percent", "idle", "#c9ced6"),
    )
    left, top, bar, gap, width = 64, 44, 14, 6, 640
    height = top + len(rows) * (bar + gap) + 30
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 20} {height}" '
            'font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{left + width + 20}" height="{height}" fill="#ffffff"/>',
    ]
    x: float = left
    for _, label, color in classes:
        parts.append(f'<rect x="{x}" y="14" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{x + 18}" y="24" fill="#22272e">{label}</text>')
        x += 40 + 7 * len(label)
    for n, row in enumerate(rows):
        y = top + n * (bar + gap)
        parts.append(f'<text x="{left - 8}" y="{y + 11}" text-anchor="end" fill="#22272e">rank {row["rank"]}</text>')
        x = left
        for column, _, color in classes:
            length = width * (row[column] or 0) / 100
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="{bar}" fill="{color}"/>')
            x += length
    y = top + len(rows) * (bar + gap) + 14
    parts += [
        f'<text x="{left + width * share / 100:.0f}" y="{y}" text-anchor="middle" fill="#57606a">{share} %</text>'
        for share in (0, 25, 50, 75, 100)
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
