"""The window of steps that a process must record, from its variables."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

from alltrace.capture.variables import STEPS, WINDOW_TIMES


def window_given() -> tuple[int, int] | None:
    """The first step and the one after the last; None if none were named."""
    match = re.fullmatch(r"([0-9]{1,12}):([0-9]{1,12})", os.environ.get(STEPS, ""))
    return (int(match[1]), int(match[2])) if match else None


def note_time(word: str) -> None:
    """Write down that the window begins or ends now (`begin`, `end`), if that is wanted."""
    path = os.environ.get(WINDOW_TIMES)
    if path:
        # pathlib would be a further import
        with suppress(OSError), open(path, "a", encoding="ascii") as file:  # noqa: PTH123
            file.write(f"{word} {time.time_ns()}\n")
