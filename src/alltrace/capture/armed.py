"""In the training process: receives a window requested while the job runs, and agrees with all ranks when it begins."""

import os
import re
import sys
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from alltrace.capture.control import holds, read_control, write_control
from alltrace.capture.identity import find_identity
from alltrace.capture.variables import ARMED, HEARD_RANK, LEADS, REQUEST, RULE, WINDOW, WINDOWS_FILE
from alltrace.trace.errors import UsageError

_LOOK_EVERY_S = 1.0
_LEAD_S = 3.0
_LEAD_STEPS = 2
_MEMORY = 64
_LEAST_KNOWN = 10
_RULE = re.compile(r"\s*step_time\s*>\s*([0-9]+(?:\.[0-9]+)?)\s*(\*\s*median|ms|s)\s*")


class Window(NamedTuple):
    """A window that was agreed on: the steps `first` to `end - 1`."""

    id: int
    first: int
    end: int


class Rule(NamedTuple):
    """The rule by which a window starts without a request."""

    bound: float  # what a step's time is compared with: seconds, or a multiple of the median
    relative: bool  # whether it is a multiple of the median of the steps before


def parse_rule(text: str) -> Rule:
    """The rule that a text such as `step_time > 1.3 * median`, `step_time > 2 s` or `step_time > 150 ms` says."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--when is {text!r}; expected a rule such as 'step_time > 1.3 * median', 'step_time > 2 s' or 'step_time >"
            " 150 ms'"
        )
    value, unit = float(match[1]), match[2]
    return Rule(value / 1000 if unit == "ms" else value, unit.startswith("*"))


# The first of the recorded ranks reads the request, and answers with a step that is two steps or three seconds ahead,
# whichever is longer, so that every rank has read the answer before.
class Watch:
    """Checks, once per step and at most once a second, whether a window was requested."""

    def __init__(self, folder: str, *, leads: bool, rule: str = "") -> None:
        self._request = os.path.join(folder, REQUEST)  # noqa: PTH118  pathlib would be a further import
        self._window = os.path.join(folder, WINDOW)  # noqa: PTH118
        self._folder = folder
        self._leads = leads
        self._rank = find_identity(os.environ, os.uname().nodename).rank
        self._asked = self._heard = 0
        self._look_at = 0.0
        self._last: float | None = None
        self._times: deque[float] = deque(maxlen=_MEMORY)
        self._rule: Rule | None = None
        self._rule_steps = self._rule_left = 0
        if rule and leads:
            steps, most, text = rule.split(" ", 2)
            self._rule, self._rule_steps, self._rule_left = parse_rule(text), int(steps), int(most)

    def step(self, at: int) -> Window | None:
        """A step has ended, and step `at` begins; returns an agreed window, once."""
        now = monotonic()
        took = None if self._last is None else now - self._last
        self._last = now
        slow = False
        if took is not None and self._leads:
            slow = self._rule is not None and self._rule_left > 0 and self._is_slow(took)
            self._times.append(took)
        if now < self._look_at and not slow:
            return None
        self._look_at = now + _LOOK_EVERY_S
        if self._leads:
            self._answer(at, slow=slow)
        window = read_control(self._window)
        if window is None or window["id"] <= self._heard:
            return None
        self._heard = window["id"]
        first, end = window.get("first"), window.get("end")
        if not isinstance(first, int) or not isinstance(end, int) or not holds(window.get("ranks"), self._rank):
            return None
        if window.get("answer") is True:
            self._reply(window["id"], at)
        if at >= end:
            late = f"rank {self._rank} received window {window['id']}, steps {first} to {end - 1}, at step {at}"
            sys.stderr.write(f"alltrace: {late}; nothing is recorded\n")
        elif first < at:
            late = f"rank {self._rank} received window {window['id']}, steps {first} to {end - 1}, at step {at}"
            sys.stderr.write(f"alltrace: {late}; it is recorded from here\n")
        return Window(window["id"], max(first, at), end) if at < end else None

    def forget_time(self) -> None:
        """Take the time of the step that ends next for none: a window has begun or ended in it."""
        self._last = None

    def _is_slow(self, took: float) -> bool:
        if self._rule is None or len(self._times) < _LEAST_KNOWN:
            return False
        return took > self._rule.bound * (_median(self._times) if self._rule.relative else 1.0)

    def _reply(self, number: int, at: int) -> None:
        """Confirm to the requester of the steps that this rank received them at step `at`."""
        with suppress(OSError):  # then the requester reports that this rank did not answer
            write_control(os.path.join(self._folder, f"{HEARD_RANK}{self._rank}"), {"id": number, "at": at})  # noqa: PTH118

    def _answer(self, at: int, *, slow: bool) -> None:
        """Announce when the window begins that was requested, or that the rule triggers."""
        request = read_control(self._request)
        if request is not None and request["id"] > self._asked:
            steps, lead_s = request.get("steps"), request.get("lead_s")
            ranks = request.get("ranks")
        elif slow:
            request = {"id": max(self._asked, self._heard) + 1}
            steps, lead_s, ranks = self._rule_steps, _LEAD_S, None
            self._rule_left -= 1
            self._times.clear()
        else:
            return
        if not isinstance(steps, int) or steps < 1:
            return
        lead = lead_s if isinstance(lead_s, (int, float)) and 0 < lead_s < 1e6 else _LEAD_S
        step_s = _median(self._times) if self._times else 0.1
        first = at + max(_LEAD_STEPS, int(lead / max(step_s, 1e-6)) + 1)
        self._asked = request["id"]
        try:
            write_control(self._window, {"id": request["id"], "first": first, "end": first + steps, "ranks": ranks})
        except OSError as error:
            sys.stderr.write(f"alltrace: {self._window}: {error.strerror}; no window is recorded\n")


def armed_watch() -> Watch | None:
    folder = os.environ.get(ARMED)
    return Watch(folder, leads=bool(os.environ.get(LEADS)), rule=os.environ.get(RULE, "")) if folder else None


def note_window(window: Window) -> None:
    """Write down, for the wrapper, which window has been recorded."""
    folder = os.environ.get("TMPDIR")
    if folder:
        with open(os.path.join(folder, WINDOWS_FILE), "a", encoding="ascii") as file:  # noqa: PTH118, PTH123
            file.write(f"{window.id} {window.first} {window.end}\n")


def _median(times: Iterable[float]) -> float:
    """The upper median; `statistics` would be a further import of every program."""
    ordered = sorted(times)
    return ordered[len(ordered) // 2]
