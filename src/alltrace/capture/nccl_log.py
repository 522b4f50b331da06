"""The log of NCCL of a profiled rank: requested with variables, and cut to the windows of steps afterwards.

NCCL reads its variables when it starts, so it writes its whole log. What grows with the steps are records of calls:
outside the windows they are dropped. What describes communicators, of the topology and of trouble stays, whenever it
was written.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from alltrace.capture.identity import safe
from alltrace.capture.plan import Plan, Request
from alltrace.capture.selection import expand
from alltrace.capture.variables import WINDOW_TIMES
from alltrace.trace.side_file_words import ROLE

SUBSYSTEMS = "INIT,ENV,COLL,P2P,NET,GRAPH,TUNING,NVLS"
"""The logged subsystems, if the user does not set them."""
STAMPS = {"NCCL_DEBUG_TIMESTAMP_LEVELS": "ALL", "NCCL_DEBUG_TIMESTAMP_FORMAT": "[%F %T.%6f] "}
"""The variables for the local time on every line; NCCL 2.26 and later know them."""
_STAMP = re.compile(rb"\[([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6})\] ")
_CALL = re.compile(rb": opCount [0-9a-f]+ | Bytes -> | NCCL CALL | NCCL TRACE ")
_TIMES_FILE = "window-times"


class _UnlimitedError(Exception):
    """Why a log stays whole."""


class NcclLog(NamedTuple):
    # variables for NCCL, and the one with the place where the program writes the times of its windows
    variables: Mapping[str, str]
    times: Path  # where it does
    pattern: str  # the names of its files, for `glob`
    before: Mapping[str, int]  # the files that were there before, with the times of their last change in ns
    limited: bool  # whether only windows are kept
    armed: bool  # whether there may be no window

    def finish(self, me: str, say: Callable[[str], None]) -> None:
        """Cut this run's files to the windows; says of each that stays whole why."""
        if not self.limited:
            return
        windows = window_times(self.times)
        with suppress(OSError):
            self.times.unlink(missing_ok=True)
        for path, changed in _changes(self.pattern).items():
            if self.before.get(path) == changed:
                continue
            if not windows and not self.armed:
                say(f"{me}: {path} is kept whole: the program reached no step of the window")
                continue
            try:
                limit(Path(path), windows)
            except _UnlimitedError as why:
                say(f"{me}: {path} is kept whole: {why}")
            except OSError as error:
                say(f"{me}: {path} is kept whole: it cannot be rewritten ({error.strerror})")


def nccl_log(request: Request, plan: Plan, folder: Path, private: Path, environment: Mapping[str, str]) -> NcclLog:
    """The log of this rank, in `folder`; an inactive one if no log is requested."""
    times = private / _TIMES_FILE
    if not request.nccl_log:
        return NcclLog({}, times, "", {}, limited=False, armed=False)
    job = expand("{job}", "--job", plan.who, environment, request.job).replace("/", "-")
    role = safe(environment.get(ROLE, ""))
    stem = str(folder.absolute() / f"{job}{role and '_' + role}_rank{plan.who.rank}_nccl")
    level = environment.get("NCCL_DEBUG", "").upper()
    pattern = f"{glob.escape(stem)}.*.log"
    limited = request.nsys.steps is not None or request.nsys.armed
    variables = {
        "NCCL_DEBUG": level if level in ("INFO", "TRACE") else "INFO",
        "NCCL_DEBUG_SUBSYS": environment.get("NCCL_DEBUG_SUBSYS") or SUBSYSTEMS,
        "NCCL_DEBUG_FILE": f"{stem.replace('%', '%%')}.%h.%p.log",
        **STAMPS,
        **({WINDOW_TIMES: str(times)} if limited else {}),
    }
    return NcclLog(variables, times, pattern, _changes(pattern), limited, request.nsys.armed)


def window_times(path: Path) -> list[tuple[int, int | None]]:
    """When each window began and ended, in ns since the epoch; None for one that ended with the program."""
    windows: list[tuple[int, int | None]] = []
    with suppress(OSError, ValueError):
        for line in path.read_text(encoding="ascii").splitlines():
            word, at = line.split()
            if word == "begin":
                windows.append((int(at), None))
            elif windows:
                windows[-1] = (windows[-1][0], int(at))
    return windows


def limit(path: Path, windows: Sequence[tuple[int, int | None]]) -> int:
    """Drop the records of calls outside the windows from a log, write their number at its end; returns the number."""
    # `path`: the log; its lines have the times of `STAMPS`.
    spans = [(_local(begin), b"~" if end is None else _local(end)) for begin, end in windows]
    if any(begin > end for begin, end in spans):
        raise _UnlimitedError("the clock was set back")
    part, dropped = path.with_name(f".{path.name}.part"), 0
    try:
        with path.open("rb") as source, part.open("wb") as target:
            for line in source:
                if _CALL.search(line):
                    stamp = _STAMP.match(line)
                    if stamp is None:
                        raise _UnlimitedError("its lines have no times, which NCCL 2.26 and later write")
                    if not any(begin <= stamp[1] <= end for begin, end in spans):
                        dropped += 1
                        continue
                target.write(line)
            if dropped:
                target.write(b"alltrace: %d records of calls outside the recorded steps are left out\n" % dropped)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return dropped


def _local(at_ns: int) -> bytes:
    seconds, rest_ns = divmod(at_ns, 1_000_000_000)  # as one float they would not be exact
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}.{rest_ns // 1000:06d}".encode()


def _changes(pattern: str) -> dict[str, int]:
    times = {}
    for path in sorted(glob.glob(pattern)):  # noqa: PTH207  the folder's name may have any letters
        with suppress(OSError):
            times[path] = os.stat(path).st_mtime_ns  # noqa: PTH116
    return times
