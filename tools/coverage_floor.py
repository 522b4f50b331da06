"""Prints the coverage of the tests, and fails where it is below the floor. `python tools/coverage_floor.py`.

It reads what `pytest --cov` has left, and what `make coverage-core` has of the compiled modules where that was run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "build" / "linetrace" / "lines.json"
FLOOR_PERCENT = 90.0


def totals(path: Path) -> dict[str, int]:
    """The totals of a report of coverage in JSON."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["totals"]
    return {
        name: int(found.get(name, 0))
        for name in ("covered_lines", "num_statements", "covered_branches", "num_branches")
    }


def percent(part: int, whole: int) -> float:
    """100 of nothing."""
    return 100.0 * part / whole if whole else 100.0


def main() -> int:
    """Print a line for each kind of module and one for all; 1 where all lines together are below the floor."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        made = subprocess.run(
            [sys.executable, "-m", "coverage", "json", "-q", "-o", str(report)], cwd=ROOT, check=False
        )
        if made.returncode:
            return made.returncode
        parts = {"Python": totals(report)}
    if CORE.is_file():
        parts["compiled"] = totals(CORE)
    parts["all"] = {name: sum(part[name] for part in parts.values()) for name in parts["Python"]}
    for what, counted in parts.items():
        lines = (
            f"{percent(counted['covered_lines'], counted['num_statements']):.1f} % of {counted['num_statements']:,}"
            " lines"
        )
        branches = (
            f"{percent(counted['covered_branches'], counted['num_branches']):.1f} % of {counted['num_branches']:,}"
            " branches"
        )
        print(f"coverage, {what}: {lines}" + (f", {branches}" if counted["num_branches"] else ""))
    if percent(parts["all"]["covered_lines"], parts["all"]["num_statements"]) < FLOOR_PERCENT:
        print(
            f"the tests run fewer than {FLOOR_PERCENT:.0f} % of all lines; `coverage report --show-missing` lists the"
            " others"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
