"""The cost of slowness: the time of a run divided by that of an ideal one, by kind of operation and by worker.

The measures of ByteDance's what-if analysis (Understanding Stragglers in Large Model Training Using What-if Analysis,
OSDI'25): S = T / T_ideal; S_x where only x keeps its own durations; M_x the share of the slowdown that goes when x
alone becomes ideal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.trace.arrays import Flags

Evaluate = Callable[["NDArray[Any]"], float]
"""The time of the run under given durations."""


def slowdown(evaluate: Evaluate, actual: NDArray[Any], ideal: NDArray[Any]) -> float:
    """S: the time under `actual` durations over that under `ideal` ones; 1 if the ideal takes no time."""
    best = evaluate(ideal)
    return evaluate(actual) / best if best else 1.0


def slowdown_by(
    evaluate: Evaluate, actual: NDArray[Any], ideal: NDArray[Any], labels: NDArray[Any]
) -> dict[Any, float]:
    """S of each label: the slowdown that remains when only its operations keep their own durations."""
    best = evaluate(ideal)
    slowdowns = {}
    for label in np.unique(labels).tolist():
        slowdowns[label] = evaluate(np.where(labels == label, actual, ideal)) / best if best else 1.0
    return slowdowns


def share_recovered(evaluate: Evaluate, actual: NDArray[Any], ideal: NDArray[Any], fixed: Flags) -> float:
    """M: the share of the slowdown that goes when the operations in `fixed` become ideal; 0 without any slowdown."""
    now, best = evaluate(actual), evaluate(ideal)
    return (now - evaluate(np.where(fixed, ideal, actual))) / (now - best) if now != best else 0.0


def worst(scores: dict[Any, float]) -> list[Any]:
    """The labels with the highest scores, 3 % of them, at least one; of equals the lowest label first."""
    count = -(-3 * len(scores) // 100)
    return sorted(scores, key=lambda label: (-scores[label], label))[:count]
