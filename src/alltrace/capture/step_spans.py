"""Steps by the events of a device: where the process uses a GPU by PyTorch, a launch returns before the work is done.

Moments are events on the current stream. They are read when they have come, at the end of a later step, and nothing waits for them.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from alltrace.trace.step_records import BY_DEVICE, INCOMPLETE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from alltrace.core.steps import StepTimes

_MOST_OPEN = 64
"""Steps with events that have not come; of more, the oldest are lost."""


class DeviceSteps:
    """The steps of `times` by events, which `make` creates; the first begins now, with a number."""

    def __init__(self, times: StepTimes, make: Callable[[], Any], step: int) -> None:
        self._times = times
        self._make = make
        self._free: list[Any] = []
        self._open: deque[tuple[int, int, int, Any, list[tuple[int, Any]]]] = deque()
        self._lost = 0
        self._first = self._stamp()
        times.begin(step, self._stamp)

    def _stamp(self) -> Any:
        event = self._free.pop() if self._free else self._make()
        event.record()
        return event

    def end(self) -> Iterator[bool]:
        """A step ends and the next one begins; for each step before it whose events have come by now, whether it fills a window."""
        while self._open and all(event.query() for _, event in self._open[0][4]):
            number, begin_ns, last, before, marks = self._open.popleft()
            times_ns: dict[int, int] = {}
            for phase, event in marks:
                times_ns[phase] = times_ns.get(phase, 0) + round(1e6 * before.elapsed_time(event))
                self._free.append(before)
                before = event
            flags = BY_DEVICE | (INCOMPLETE if self._lost else 0)
            yield self._times.put(number, begin_ns, [times_ns.get(n, 0) for n in range(max(times_ns) + 1)], 0, last, flags)
            self._lost = 0
        step, begin_ns, last = self._times.step, self._times.begin_ns, self._times.last
        marks = self._times.end_stamped()
        self._open.append((step, begin_ns, last, self._first, marks))
        self._first = marks[-1][1]
        if len(self._open) > _MOST_OPEN:
            self._open.popleft()
            self._lost += 1


def device_events() -> Callable[[], Any] | None:
    """What makes an event of the device that this process uses; None if it uses none."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return lambda: torch.cuda.Event(enable_timing=True)
