"""Asks an armed job for a window of steps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from alltrace.capture.armed import Window
from alltrace.capture.control import read_control, write_control
from alltrace.capture.variables import ARMED_FOLDER, REQUEST, WINDOW
from alltrace.trace.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LOOK_EVERY_S = 0.2


def find_armed(folder: Path, job: str | None) -> Path:
    """The folder by which the armed job that writes its reports into `folder` is asked.

    Raises:
        InputError: No job was armed there.
        UsageError: Several were, and `job` names none of them.
    """
    base = folder / ARMED_FOLDER
    found = sorted(p.name for p in base.iterdir() if p.is_dir()) if base.is_dir() else []
    if not found:
        raise InputError(
            folder, found="no job was armed with its reports there", advice="start it by `alltrace capture arm -o DIR`"
        )
    if job is None and len(found) > 1:
        raise UsageError(f"several jobs were armed with their reports in {folder}: {', '.join(found)}; name one by --job")
    if job is not None and job not in found:
        raise UsageError.unknown("armed job", job, found)
    return base / (job or found[0])


def ask(control: Path, steps: int, ranks: Sequence[tuple[int, int]] | None, *, lead_s: float, wait_s: float) -> Window:
    """Ask for a window, and wait until the job has said when it begins.

    Args:
        control: The folder that `find_armed` gives.
        steps: How many steps.
        ranks: The first and the last rank of each span; None for all.
        lead_s: Seconds that the window is ahead at least.
        wait_s: Seconds that an answer is waited for.

    Raises:
        InputError: Nothing can be written there, or no answer came.
    """
    known = [told["id"] for name in (REQUEST, WINDOW) if (told := read_control(str(control / name))) is not None]
    number = max(known, default=0) + 1
    request = {"id": number, "steps": steps, "ranks": None if ranks is None else [list(s) for s in ranks], "lead_s": lead_s}
    try:
        write_control(str(control / REQUEST), request)
    except OSError as error:
        raise InputError(control, found=f"it cannot be written ({error.strerror})") from error
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        told = read_control(str(control / WINDOW))
        if told is not None and told["id"] >= number and isinstance(told.get("first"), int) and isinstance(told.get("end"), int):
            return Window(told["id"], told["first"], told["end"])
        time.sleep(_LOOK_EVERY_S)
    raise InputError(
        control,
        found=f"the job did not answer within {wait_s:g} s",
        expected="one that runs, and calls `alltrace.instrument.steps`",
        advice="where its steps are long, give a longer --wait",
    )
