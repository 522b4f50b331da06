"""Where the time of a step went: every moment belongs to one phase, so the times of phases add up to the step.

Where the process uses a GPU by PyTorch, a launch returns before the work is done, so moments are events on the current stream. They
are read when they have come, at the end of a later step, and nothing ever waits for them.

By the host's clock, what a thread waits for a processor while it could run (Linux's `schedstat`) is a part of no phase: other
programs cause it, and it would hide what the phases take.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from alltrace.trace.step_records import BY_DEVICE, INCOMPLETE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOST_OPEN = 64
"""Steps with events that have not come; of more, the oldest are lost."""


class EndedStep(NamedTuple):
    """A step whose times are known."""

    step: int  # its number
    begin_ns: int  # when it began, ns since 1970
    seconds: list[float]  # the time in each phase, `other` first, in s
    cpu_wait_s: float  # how long its thread waited for a processor, in no phase
    last: int  # the phase in which it ended
    flags: int  # of a record


class HostSpans:
    """Moments by the host's clock, of the thread that calls `begin`."""

    def __init__(self, phases: int) -> None:
        self._phases = phases
        self._file = -1
        self.begin()

    def begin(self) -> None:
        """A step begins now."""
        if self._file >= 0:
            os.close(self._file)
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._file = -1
        self._waited_ns = self._cpu_wait_ns()
        self._since = perf_counter()
        self.phase = 0
        self._start()

    def _start(self) -> None:
        self._seconds = [0.0] * self._phases
        self._begin_ns = time_ns()
        self._last = 0
        self._cpu_wait_s = 0.0

    def _cpu_wait_ns(self) -> int:
        return int(os.pread(self._file, 64, 0).split()[1]) if self._file >= 0 else 0

    def turn(self, phase: int) -> None:
        """The phase that the rank is in ends, and another one begins."""
        waited_ns, now = self._cpu_wait_ns(), perf_counter()
        elapsed = now - self._since
        waited = (waited_ns - self._waited_ns) / 1e9
        if waited > elapsed:  # it waited between the two clocks: the rest is of the next phase
            waited_ns, waited = self._waited_ns + int(1e9 * elapsed), elapsed
        self._seconds[self.phase] += elapsed - waited
        self._cpu_wait_s += waited
        self._since, self._waited_ns = now, waited_ns
        self._last = phase or self._last
        self.phase = phase

    def ended(self, step: int) -> Iterator[EndedStep]:
        """The step ends and the next one begins; the steps whose times are known now."""
        self.turn(0)
        yield EndedStep(step, self._begin_ns, self._seconds, self._cpu_wait_s, self._last, 0)
        self._start()


class DeviceSpans:
    """Moments by events on a stream, which `make` creates."""

    def __init__(self, phases: int, make: Callable[[], Any]) -> None:
        self._phases = phases
        self._make = make
        self._free: list[Any] = []
        self._open: deque[tuple[int, int, int, Any, list[tuple[int, Any]]]] = deque()
        self._lost = 0
        self.begin()

    def begin(self) -> None:
        """A step begins now."""
        self._first = self._stamp()
        self._marks: list[tuple[int, Any]] = []
        self._begin_ns = time_ns()
        self.phase = self._last = 0

    def _stamp(self) -> Any:
        event = self._free.pop() if self._free else self._make()
        event.record()
        return event

    def turn(self, phase: int) -> None:
        """The phase that the rank is in ends, and another one begins."""
        self._marks.append((self.phase, self._stamp()))
        self._last = phase or self._last
        self.phase = phase

    def ended(self, step: int) -> Iterator[EndedStep]:
        """The step ends and the next one begins; the steps before it whose events have come by now."""
        while self._open and all(event.query() for _, event in self._open[0][4]):
            number, begin_ns, last, before, marks = self._open.popleft()
            seconds = [0.0] * self._phases
            for phase, event in marks:
                seconds[phase] += before.elapsed_time(event) / 1000
                self._free.append(before)
                before = event
            yield EndedStep(number, begin_ns, seconds, 0.0, last, BY_DEVICE | (INCOMPLETE if self._lost else 0))
            self._lost = 0
        self.turn(0)
        self._open.append((step, self._begin_ns, self._last, self._first, self._marks))
        self._first = self._marks[-1][1]
        self._marks, self._begin_ns, self._last = [], time_ns(), 0
        if len(self._open) > _MOST_OPEN:
            self._open.popleft()
            self._lost += 1


def spans_of(phases: int) -> HostSpans | DeviceSpans:
    """By the clock that shows the work of this process."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return HostSpans(phases)
    return DeviceSpans(phases, lambda: torch.cuda.Event(enable_timing=True))
