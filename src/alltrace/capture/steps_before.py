"""How long steps took before the window of a capture, by the host's clock: what captured steps are compared with.

A launch returns before the work is done, so the host can be ahead of the device by some steps, and single steps are not
reliable. So the steps are measured in groups, and the median of the groups' means is the time of a step.
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from time import perf_counter_ns

from alltrace.trace.step_time_mark import StepTimeMark

_WARM_UP = 3
"""The first steps of a process are slow by themselves."""
_LEAST = 8
_MOST = 1024
_STRETCHES = 8
_NORMAL, _OF_A_MEDIAN = 1.4826, 1.2533


class StepsBefore:
    """Stamps of the last thousand steps of this process that were not captured."""

    __slots__ = ("_stamps", "_warm_up")

    def __init__(self) -> None:
        self._stamps = array("q")
        self._warm_up = _WARM_UP

    def ended(self) -> None:
        if self._warm_up:
            self._warm_up -= 1
            return
        self._stamps.append(perf_counter_ns())
        if len(self._stamps) > 2 * _MOST:
            del self._stamps[:_MOST]

    def forget(self) -> None:
        """What comes next does not follow what came before, as after a window."""
        del self._stamps[:]
        self._warm_up = 1

    def mark(self) -> StepTimeMark | None:
        """How long they took; None if they are too few."""
        stamps = self._stamps[-_MOST:]
        count = len(stamps) - 1
        if count < _LEAST:
            return None
        cuts = [count * n // _STRETCHES for n in range(_STRETCHES + 1)]
        means = sorted((stamps[b] - stamps[a]) / (b - a) for a, b in pairwise(cuts))
        middle = _median(means)
        spread = _NORMAL * _median(sorted(abs(mean - middle) for mean in means))
        return StepTimeMark(count, round(middle), round(_OF_A_MEDIAN * spread / _STRETCHES**0.5))


def _median(values: list[float]) -> float:
    """The median of ascending values; `statistics` would be a further import of every program."""
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
