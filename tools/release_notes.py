"""Prints the part of CHANGELOG.md about one release. `python tools/release_notes.py VERSION`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def notes(version: str, text: str) -> str:
    """The part of a changelog about `version`; SystemExit with a sentence if there is none."""
    found = re.search(rf"^## \[{re.escape(version)}\].*?$\n(.*?)(?=^## \[|\Z)", text, re.MULTILINE | re.DOTALL)
    if not found or not found[1].strip():
        raise SystemExit(f"{CHANGELOG.name} has no part about {version}; name a release that it has, such as 0.2.0")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(notes(sys.argv[1], CHANGELOG.read_text(encoding="utf-8")))
