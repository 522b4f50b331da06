"""Runs the real nsys, which sometimes fails to start on a busy machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

_TRIES = 4


def run_nsys(nsys: Path, arguments: tuple[str, ...], folder: Path) -> None:
    """Run it in `folder`, more than once where it fails."""
    for attempt in range(_TRIES):
        done = subprocess.run(
            [str(nsys), *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode == 0:
            return
        assert attempt < _TRIES - 1, done.stderr or done.stdout
