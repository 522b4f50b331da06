"""How much longer steps take while they are captured.

Steps of the training log within the capture are compared with those outside of it. Without a log, the captured steps
are compared with the program's times of earlier steps, if it counts its steps with `alltrace.instrument.steps`.
PyTorch's flight recorder has steps within and outside of the capture too (`alltrace.recipes.analysis.recorded_steps`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from alltrace.align.constants import MAD_TO_SIGMA
from alltrace.trace.arrays import Floats, Int64
from alltrace.trace.step_time_mark import PREFIX, StepTimeMark, parse_mark

LOG, PROGRAM, RECORDER = "the training log", "alltrace.instrument.steps", "the flight recorder"
_FEWEST_INSIDE, _FEWEST_OUTSIDE = 3, 5
WARM_UP = 3
_OF_A_MEDIAN = math.sqrt(math.pi / 2)
"""The ratio of the standard errors of a median and of a mean, for a normal distribution."""

_SIGMAS = 3.0


class CaptureSlowdown(NamedTuple):
    """Steps within the capture and outside of it: their medians, and how many steps these are of."""

    ratio: float  # median within over median outside
    inside_s: float
    outside_s: float
    inside: int
    outside: int
    certain: bool  # the medians differ by three standard errors or more
    source: str = LOG  # `LOG`, `PROGRAM` or `RECORDER`

    @property
    def text(self) -> str:
        change = 100 * abs(self.ratio - 1)
        longer = "longer" if self.ratio >= 1 else "shorter"
        what = f"{change:.1f} % {longer}" if self.certain else "no difference beyond their variation"
        return (
            f"according to {self.source}, the {self.inside} captured steps took {1e3 * self.inside_s:.1f} ms each and"
            f" the {self.outside} others {1e3 * self.outside_s:.1f} ms: {what}"
        )


def capture_slowdown(steps: Any, printed: Any) -> CaptureSlowdown | None:
    """Compare the steps of a run, numbered as its training log numbers them, with the others of that log.

    The first three lines of the log are left out, as first steps are slow by themselves, and so are steps of other
    kinds. None with fewer than three steps within or five outside.
    """
    if printed is None or not steps.num_rows:
        return None
    number: Int64 = printed.column("step").to_numpy()[WARM_UP:]
    took: Floats = printed.column("step_time_s").to_numpy(zero_copy_only=False).astype(np.float64)[WARM_UP:]
    own = steps.column("step").to_numpy()
    usual = np.array([kind == "step" for kind in steps.column("kind").to_pylist()], np.bool_)
    known = np.isfinite(took) & (took > 0)
    captured = np.isin(number, own)
    return compared(took[known & captured & np.isin(number, own[usual])], took[known & ~captured], LOG)


def compared(inside: Floats, outside: Floats, source: str) -> CaptureSlowdown | None:
    """Times of steps within the capture and outside; None with too few."""
    if len(inside) < _FEWEST_INSIDE or len(outside) < _FEWEST_OUTSIDE:
        return None
    within, without = float(np.median(inside)), float(np.median(outside))
    certain = abs(within - without) > _SIGMAS * float(np.hypot(_error(inside), _error(outside)))
    return CaptureSlowdown(within / without, within, without, len(inside), len(outside), certain, source)


def slowdown_by_program(steps: Any, marks: Sequence[StepTimeMark]) -> CaptureSlowdown | None:
    """Compare the steps that a run has with what the program says of those before its window.

    A step of the run lasts from its begin to that of the next one on its rank, like the host's steps that the program
    counts. None without marks, with fewer than three steps within, or where a rank's steps have gaps.
    """
    if not marks or not steps.num_rows:
        return None
    steps = steps.sort_by([("rank", "ascending"), ("start", "ascending")])
    rank, number, start = (steps.column(c).to_numpy() for c in ("rank", "step", "start"))
    usual = np.array([kind == "step" for kind in steps.column("kind").to_pylist()], np.bool_)
    follows = (rank[1:] == rank[:-1]) & (number[1:] == number[:-1] + 1) & usual[:-1]
    inside = np.diff(start)[follows] / 1e9
    count = len(np.unique(number[:-1][follows]))
    if count < _FEWEST_INSIDE:
        return None
    within = float(np.median(inside))
    without = float(np.median([m.each_ns for m in marks])) / 1e9
    outside_error = max(m.error_ns for m in marks) / 1e9
    # the host runs ahead in the first steps after the wait that begins a window, so shorter ones mean nothing
    certain = within - without > _SIGMAS * float(np.hypot(_error(inside), outside_error))
    return CaptureSlowdown(within / without, within, without, count, max(m.steps for m in marks), certain, PROGRAM)


def step_time_marks(names: Any) -> list[StepTimeMark]:
    """What ranks say of the steps before their window: of the names of a run, a table with `value`."""
    found = pc.starts_with(names.column("value"), PREFIX)
    texts = names.column("value").filter(pc.fill_null(found, False)).to_pylist()
    return [mark for mark in map(parse_mark, texts) if mark is not None]


def _error(values: Floats) -> float:
    """The standard error of a median."""
    deviation = float(np.median(np.abs(values - np.median(values))))
    return MAD_TO_SIGMA * deviation * _OF_A_MEDIAN / math.sqrt(len(values))
