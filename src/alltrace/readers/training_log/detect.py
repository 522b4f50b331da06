"""Whether a file is the log of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LOOK_LINES = 50_000


def is_training_log(path: Path) -> bool:
    """Whether one of the first lines of the file, unpacked, is a step's line of a framework that is known."""
    from alltrace.readers.text import TextLog
    from alltrace.readers.training_log.formats import parse

    with TextLog(path) as log:
        for number, line in enumerate(log.lines()):
            if parse(line.decode("utf-8", "replace")) is not None:
                return True
            if number >= _LOOK_LINES:
                break
    return False
