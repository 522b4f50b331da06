"""Writes the lowest versions of dependencies that pyproject.toml allows, as a file of constraints for pip.

`python tools/lowest_versions.py >constraints.txt`: of what alltrace needs, and of its extras `ui` and `mcp`.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
EXTRAS = ("ui", "mcp")


def lowest(project: dict[str, object]) -> dict[str, str]:
    """The lowest version of each dependency by its name, as the project states it."""
    facts = project["project"]
    found: dict[str, str] = {}
    for line in (*facts["dependencies"], *(d for extra in EXTRAS for d in facts["optional-dependencies"][extra])):  # type: ignore[index]
        stated = re.match(r"([\w.-]+)(?:\[.*?\])?>=([\w.]+)", line)
        if stated is None:
            raise SystemExit(f"{PROJECT.name}: {line!r} has no lower bound; expected NAME>=VERSION")
        found[stated[1]] = stated[2]
    return found


if __name__ == "__main__":
    for name, version in lowest(tomllib.loads(PROJECT.read_text(encoding="utf-8"))).items():
        print(f"{name}=={version}")
