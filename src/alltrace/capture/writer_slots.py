"""Limits how many ranks of a job write to a shared file system at once: a writing rank holds one of N files.

A dead holder blocks no other rank: its file is taken over, at once if its process is visibly gone, and
elsewhere when it has not been touched for two minutes. In a rare race two take over one file, and one more writes than should.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from alltrace.capture.processes import started_at

_STALE_S = 120.0
TOUCHED_EVERY_S = 10.0


@contextmanager
def writer_slot(folder: Path, most: int, number: int, stop: Callable[[float], bool]) -> Iterator[Callable[[], None]]:
    """Hold one of `most` slots while the block runs; yields a function to call regularly to keep it.

    Where no file can be written in the folder, nothing is limited.

    `number`: this rank's number, so that not all ranks try the same slot first.
    `stop`: waits a number of seconds; returns whether this rank must end, so it stops waiting for a slot.
    """
    mine = f"{os.uname().nodename} {os.getpid()} {started_at(os.getpid())}\n"
    slot = _take(folder, most, number, mine, stop)
    touched = time.monotonic()

    def keep() -> None:
        nonlocal touched
        if slot is not None and time.monotonic() > touched + TOUCHED_EVERY_S:
            touched = time.monotonic()
            with suppress(OSError):
                os.utime(slot)

    try:
        yield keep
    finally:
        if slot is not None and _read(slot) == mine:
            slot.unlink(missing_ok=True)


def _take(folder: Path, most: int, number: int, mine: str, stop: Callable[[float], bool]) -> Path | None:
    pause = 0.1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            for n in range(most):
                place = folder / f"writer.{(number + n) % most}"
                if _make(place, mine):
                    return place
                held_by = _read(place)
                if held_by is not None and _is_stale(place, held_by) and _remove(place, held_by) and _make(place, mine):
                    return place
            if stop(pause):
                return None
            pause = min(2.0, pause * 1.5)
    except OSError:
        return None


def _make(place: Path, mine: str) -> bool:
    try:
        handle = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(handle, mine.encode())
    finally:
        os.close(handle)
    return True


def _read(place: Path) -> str | None:
    with suppress(OSError):
        return place.read_text(encoding="utf-8", errors="replace")
    return None


def _is_stale(place: Path, held_by: str) -> bool:
    host, _, process = held_by.strip().partition(" ")
    pid, _, began = process.partition(" ")
    if host == os.uname().nodename and pid.isdecimal():
        return started_at(int(pid)) != began
    probe = place.with_name(f".clock.{os.uname().nodename}.{os.getpid()}")
    try:
        probe.touch()  # its time is from the file system's own clock
        return probe.stat().st_mtime - place.stat().st_mtime > _STALE_S
    except FileNotFoundError:
        return False
    finally:
        probe.unlink(missing_ok=True)


def _remove(place: Path, held_by: str) -> bool:
    away = place.with_name(f".stale.{os.urandom(6).hex()}")
    try:
        place.rename(away)
    except FileNotFoundError:
        return True
    if _read(away) == held_by:
        away.unlink(missing_ok=True)
        return True
    with suppress(OSError):
        os.link(away, place)  # it was taken meanwhile
    away.unlink(missing_ok=True)
    return False
