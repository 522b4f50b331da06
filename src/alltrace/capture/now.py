"""Requests a window of steps from an armed job."""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from alltrace.capture.armed import Window
from alltrace.capture.control import holds, read_control, write_control
from alltrace.capture.variables import ARMED_FOLDER, ARMED_RANK, HEARD_RANK, REQUEST, WINDOW
from alltrace.trace.errors import InputError, UsageError

_LOOK_EVERY_S = 0.2


def find_armed(folder: Path, job: str | None) -> Path:
    """The folder for requests to the armed job that writes its reports into `folder`."""
    base = folder / ARMED_FOLDER
    jobs = sorted(p.name for p in base.iterdir() if p.is_dir()) if base.is_dir() else []
    if not jobs:
        raise InputError(
            folder, found="no job was armed with this folder", advice="start the job with `alltrace capture arm -o DIR`"
        )
    if job is None and len(jobs) > 1:
        raise UsageError(f"several jobs were armed with {folder}: {', '.join(jobs)}; choose one with --job")
    if job is not None and job not in jobs:
        raise UsageError.unknown("armed job", job, jobs)
    return base / (job or jobs[0])


def seen(control: Path) -> tuple[list[int], int]:
    """The armed ranks that see the folder from `find_armed`, and how many were armed; the same number if unknown."""
    ranks, count = [], 0
    for path in control.glob(f"{ARMED_RANK}*"):
        with suppress(OSError, ValueError):
            count = max(count, int(path.read_text(encoding="ascii")))
            ranks.append(int(path.name.removeprefix(ARMED_RANK)))
    return sorted(ranks), max(count, len(ranks))


def _written(control: Path, name: str, fields: dict[str, Any]) -> int:
    """Write a file of `control` with the next number; returns the number."""
    numbers = [content["id"] for name in (REQUEST, WINDOW) if (content := read_control(str(control / name)))]
    number = max(numbers, default=0) + 1
    try:
        write_control(str(control / name), {"id": number, **fields})
    except OSError as error:
        raise InputError.cannot_be("written", control, error) from error
    return number


def name_steps(
    control: Path, first: int, steps: int, ranks: Sequence[tuple[int, int]] | None, *, wait_s: float
) -> tuple[Window, list[int]]:
    """Have the ranks that see a folder record these steps; for nodes that share none, run the same on each."""
    # `ranks`: the first and the last rank of each span; None for all. The window, and the ranks that record it.
    spans = None if ranks is None else [list(s) for s in ranks]
    here = [rank for rank in seen(control)[0] if holds(spans, rank)]
    if not here:
        raise InputError(
            control, found="none of the chosen ranks is on a node that sees it", advice="ask on their nodes"
        )
    number = _written(control, WINDOW, {"first": first, "end": first + steps, "ranks": spans, "answer": True})
    until = time.monotonic() + wait_s
    while True:
        replies = {rank: read_control(str(control / f"{HEARD_RANK}{rank}")) for rank in here}
        heard = {
            rank: one["at"]
            for rank, one in replies.items()
            if one and one["id"] >= number and isinstance(one.get("at"), int)
        }
        if len(heard) == len(here) or time.monotonic() > until:
            break
        time.sleep(_LOOK_EVERY_S)
    late = [rank for rank, at in heard.items() if at > first]
    if late:
        raise InputError(
            control,
            found=f"{len(late)} of {len(here)} ranks received step {first} too late, at step {max(heard.values())}",
            expected="a step that no rank reaches within the next seconds",
            advice="give a larger --at on all nodes",
        )
    silent = [str(rank) for rank in here if rank not in heard]
    if silent:
        raise InputError(
            control,
            found=f"{'rank' if len(silent) == 1 else 'ranks'} {', '.join(silent)} did not answer within {wait_s:g} s",
            expected="running ranks that call `alltrace.instrument.steps`",
            advice="if their steps are long, give a longer --wait",
        )
    return Window(number, first, first + steps), here


def ask(control: Path, steps: int, ranks: Sequence[tuple[int, int]] | None, *, lead_s: float, wait_s: float) -> Window:
    spans = None if ranks is None else [list(s) for s in ranks]
    number = _written(control, REQUEST, {"steps": steps, "ranks": spans, "lead_s": lead_s})
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        reply = read_control(str(control / WINDOW)) or {}
        begin, end = reply.get("first"), reply.get("end")
        if reply.get("id", 0) >= number and isinstance(begin, int) and isinstance(end, int):
            return Window(reply["id"], begin, end)
        time.sleep(_LOOK_EVERY_S)
    here, count = seen(control)
    raise InputError(
        control,
        found=f"the job did not answer within {wait_s:g} s",
        expected="a running job that calls `alltrace.instrument.steps`",
        advice="if its steps are long, give a longer --wait"
        + (
            f"; only {len(here)} of {count} ranks see this folder: give the steps with --at on each node"
            if len(here) < count
            else ""
        ),
    )
