"""The window of steps that a process was told to record, from its variables."""

from __future__ import annotations

import os
import re

from alltrace.capture.variables import STEPS


def window_given() -> tuple[int, int] | None:
    """The first step and the one after the last; None where none were named."""
    found = re.fullmatch(r"([0-9]{1,12}):([0-9]{1,12})", os.environ.get(STEPS, ""))
    return (int(found[1]), int(found[2])) if found else None
