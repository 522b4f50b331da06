"""Records clocks, power and temperature of a node's GPUs next to its reports, where `alltrace import` finds them."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alltrace.capture.guard import PASSED_ON
from alltrace.capture.processes import send, started_at
from alltrace.trace.errors import UsageError
from alltrace.trace.gpu_log_words import LOG_ENDING, OFFSET_SUFFIX, QUERY

_EVERY_S = 1
_ENDS_S = 2.0
_POLL_S = 0.05


def gpu_log_command() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise UsageError("nvidia-smi is not on PATH")
    return [program, f"--query-gpu={QUERY}", "--format=csv", f"--loop={_EVERY_S}"]


@contextmanager
def recording(command: list[str] | None, log: Path) -> Iterator[None]:
    """Run `command` until the block ends, its output in `log`; a file next to it has the clock's offset to UTC."""
    # `command`: the result of `gpu_log_command`; None for no log.
    if command is None:
        yield
        return
    log.with_name(log.name + OFFSET_SUFFIX).write_text(time.strftime("%z") + "\n", encoding="ascii")
    files = [
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    pid = os.posix_spawn(
        command[0],
        command,
        dict(os.environ),
        file_actions=files,
        setsigmask=PASSED_ON - {signal.SIGTERM},
        setsigdef=[signal.SIGPIPE],
    )
    began = started_at(pid)
    try:
        yield
    finally:
        until = time.monotonic() + _ENDS_S
        number = signal.SIGTERM
        while began is not None and started_at(pid) == began and time.monotonic() < until + _ENDS_S:
            send(pid, number)
            time.sleep(_POLL_S)
            number = signal.SIGKILL if time.monotonic() > until else signal.SIGTERM


def gpu_log_path(folder: Path, job: str, host: str) -> Path:
    return folder / f"{job}_on_{host}{LOG_ENDING}"
