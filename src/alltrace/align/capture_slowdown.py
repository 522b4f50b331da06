"""How much longer steps take while they are captured: those of the training log within the capture against those outside of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FEWEST_INSIDE, _FEWEST_OUTSIDE = 3, 5
_WARM_UP = 3
_NORMAL = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""

_OF_A_MEDIAN = 1.2533
"""The standard error of a median over that of a mean, of a normal distribution."""

_SIGMAS = 3.0


class CaptureSlowdown(NamedTuple):
    """Steps within the capture and outside of it, as the training log tells their times.

    Attributes:
        ratio: Median within over median outside.
        inside_s, outside_s: These medians, s.
        inside, outside: How many steps they are of.
        certain: Whether the medians differ by three standard errors or more.
    """

    ratio: float
    inside_s: float
    outside_s: float
    inside: int
    outside: int
    certain: bool

    @property
    def text(self) -> str:
        """That in a sentence."""
        change = 100 * abs(self.ratio - 1)
        longer = "longer" if self.ratio >= 1 else "shorter"
        what = f"{change:.1f} % {longer}" if self.certain else "no difference beyond their variation"
        return (
            f"according to the training log, the {self.inside} captured steps took {1e3 * self.inside_s:.1f} ms each and the "
            f"{self.outside} others {1e3 * self.outside_s:.1f} ms: {what}"
        )


def capture_slowdown(steps: Any, printed: Any) -> CaptureSlowdown | None:
    """Compare the steps that a run has with the others of its training log.

    The first three lines of the log are left out, as first steps are slow by themselves, and so are steps of other kinds.

    Args:
        steps: The steps of the run (`alltrace.run.overlay.STEPS`), numbered as the log numbers them.
        printed: Those of the log (`alltrace.run.run_logs.PRINTED_STEPS`), or None.

    Returns:
        None with fewer than three steps within or five outside.
    """
    if printed is None or not steps.num_rows:
        return None
    number: NDArray[np.int64] = printed.column("step").to_numpy()[_WARM_UP:]
    took: NDArray[np.float64] = printed.column("step_time_s").to_numpy(zero_copy_only=False).astype(np.float64)[_WARM_UP:]
    own = steps.column("step").to_numpy()
    usual = np.array([kind == "step" for kind in steps.column("kind").to_pylist()], np.bool_)
    known = np.isfinite(took) & (took > 0)
    captured = np.isin(number, own)
    inside, outside = took[known & captured & np.isin(number, own[usual])], took[known & ~captured]
    if len(inside) < _FEWEST_INSIDE or len(outside) < _FEWEST_OUTSIDE:
        return None
    within, without = float(np.median(inside)), float(np.median(outside))
    errors = [
        _NORMAL * float(np.median(np.abs(values - np.median(values)))) * _OF_A_MEDIAN / np.sqrt(len(values))
        for values in (inside, outside)
    ]
    certain = abs(within - without) > _SIGMAS * float(np.hypot(*errors))
    return CaptureSlowdown(within / without, within, without, len(inside), len(outside), certain)
