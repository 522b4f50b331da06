"""Training logs: step time and throughput, trend, change points and slow steps, runs side by side."""

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from alltrace.recipes.base import Answer, Chart
from alltrace.trace import columns as col
from alltrace.trace.errors import path_text
from alltrace.trace.number_text import counted
from alltrace.trace.spans import Span

VIEWS = ("summary", "steps")
UNITS: dict[str, str | None] = {
    "step_time_s": "s", "tflops_per_gpu": "TFLOP/s", "tokens_per_s": "1/s", "tokens_per_s_per_gpu": "1/s",
    "samples_per_s": "1/s", "memory_bytes": "bytes", "loss": None, "loss_scale": None, "grad_norm": None,
    "learning_rate": None, "global_batch": None, "mfu_percent": "%", "skipped": None,
}  # fmt: skip
SLOW_RATIO = 1.2
_SLOW_DEVIATIONS = 5.0
_NORMAL = 1.4826
_LEAST_SEGMENT = 8
_LEAST_SHIFT = 0.03
_MOST_PAIRS_OF = 1000

SUMMARY = (
    col.text("run", "The log's file"),
    col.text("metric", "The metric; its unit is in `unit`"),
    col.text("unit", "The metric's unit"),
    col.whole("steps", "Steps of the range that log it"),
    col.real("mean", "Mean over these steps"),
    col.real("median", "Median"),
    col.real("p5", "5th percentile, interpolated"),
    col.real("p95", "95th percentile"),
    col.real("p99", "99th percentile"),
    col.real("min", "The smallest"),
    col.real("max", "The largest"),
    col.percent(
        "trend_percent",
        "Change over the range by the median slope of all pairs of steps (Theil and Sen), over the median",
        None,
    ),
    col.real("ratio", "Mean divided by that of the first run with the metric"),
)
STEPS = (
    col.text("run", "The log's file"),
    col.whole("step", "The step"),
    *(col.real(name, "As logged; the mean over the ranks that printed it", unit) for name, unit in UNITS.items()),
    col.flag("slow", "Whether the step took 20 % and 5 deviations (1.4826 MAD) longer than the median of its stretch"),
    col.whole("copies", "Ranks that printed the step"),
    col.whole("line", "The line of the log, from 1"),
)
CHART = Chart("lines", "step", ("step_time_s",), "run", title="Time of each step")


def answer(logs: Sequence[Any], view: str, span: Span | None = None) -> Answer:
    """The answer to a view (`VIEWS`) of training logs; `span`: the steps, None for all."""
    names = _names(logs)
    chosen = [[s for s in log.steps if span is None or span.holds(s[0])] for log in logs]
    breaks, slow = [], []
    for name, steps in zip(names, chosen, strict=True):
        timed = [(s[0], s[1]["step_time_s"]) for s in steps if s[1].get("step_time_s", 0) > 0]
        numbers, times = np.array([t[0] for t in timed], np.int64), np.array([t[1] for t in timed], float)
        points = change_points(times)
        edges = [0, *points, len(times)]
        for before, at, after in zip(edges, edges[1:], edges[2:], strict=False):
            old, new = np.median(times[before:at]), np.median(times[at:after])
            breaks.append(
                {
                    "run": name,
                    "step": int(numbers[at]),
                    "before_s": float(old),
                    "after_s": float(new),
                    "ratio": float(new / old),
                }
            )
        for at in slow_steps(times, points):
            lo, hi = max(e for e in edges if e <= at), min(e for e in edges if e > at)
            usual = float(np.median(times[lo:hi]))
            slow.append({"run": name, "step": int(numbers[at]), "step_time_s": float(times[at]), "usual_s": usual})
    extra: dict[str, Any] = {"change_points": breaks, "slow_steps": slow}
    extra["not_understood"] = [
        {"file": path_text(g.path), "line": n + 1, "text": text} for g in logs for n, text in g.samples
    ]
    notes = _notes(logs, names, chosen)
    if view == "steps":
        flags = {(s["run"], s["step"]) for s in slow}
        rows = [
            {"run": name, "step": step, **values, "slow": (name, step) in flags, "copies": copies, "line": line + 1}
            for name, steps in zip(names, chosen, strict=True)
            for step, values, line, copies in steps
        ]
        return Answer.of(rows, STEPS, notes, extra, CHART)
    rows = _summary(names, chosen)
    return Answer.of(rows, SUMMARY, notes, extra)


def _names(logs: Sequence[Any]) -> list[str]:
    paths = [path_text(log.path) for log in logs]
    short = [PurePath(path).name for path in paths]
    return [name if short.count(name) == 1 else path for name, path in zip(short, paths, strict=True)]


def _summary(names: list[str], chosen: list[list[Any]]) -> list[dict[str, Any]]:
    rows = []
    first: dict[str, float] = {}
    for metric, unit in UNITS.items():
        for name, steps in zip(names, chosen, strict=True):
            points = [(s[0], s[1][metric]) for s in steps if metric in s[1]]
            if not points:
                continue
            values = np.array([v for _s, v in points], float)
            mean = float(values.mean())
            base = first.setdefault(metric, mean)
            p5, p50, p95, p99 = np.percentile(values, [5, 50, 95, 99]).tolist()
            slope = trend(np.array([s for s, _v in points], float), values)
            length = points[-1][0] - points[0][0]
            rows.append(
                {
                    "run": name,
                    "metric": metric,
                    "unit": unit,
                    "steps": len(points),
                    "mean": mean,
                    "median": p50,
                    "p5": p5,
                    "p95": p95,
                    "p99": p99,
                    "min": float(values.min()),
                    "max": float(values.max()),
                    "trend_percent": 100 * slope * length / p50 if p50 else None,
                    "ratio": mean / base if base else None,
                }
            )
    return rows


def trend(steps: Any, values: Any) -> float:
    """The median slope over all pairs of points, of at most 1,000 of them evenly spaced.

    Source: P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, 1968.
    """
    if len(values) < 2:
        return 0.0
    if len(values) > _MOST_PAIRS_OF:
        keep = np.linspace(0, len(values) - 1, _MOST_PAIRS_OF).astype(int)
        steps, values = steps[keep], values[keep]
    a, b = np.triu_indices(len(values), 1)
    return float(np.median((values[b] - values[a]) / (steps[b] - steps[a])))


def change_points(values: Any) -> list[int]:
    """Positions of permanent changes of level, by binary segmentation of means on values clipped to the usual range.

    A change is accepted if it lowers the sum of squares by more than 6 variances times the logarithm of the length, and
    the level by 3 % or more. The variance is that of differences of neighbors, so that the changes do not affect it.
    """
    n = len(values)
    if n < 2 * _LEAST_SEGMENT:
        return []
    differences = np.abs(np.diff(values))
    sigma = _NORMAL * float(np.median(differences)) / np.sqrt(2) or 1e-9 * float(np.median(values)) + 1e-30
    points: list[int] = []
    waiting = [(0, n)]
    while waiting:
        lo, hi = waiting.pop()
        if hi - lo < 2 * _LEAST_SEGMENT:
            continue
        part = values[lo:hi]
        low, high = np.percentile(part, [5, 95])
        part = np.clip(part, low - 3 * sigma, high + 3 * sigma)
        total = np.cumsum(part)
        k = np.arange(_LEAST_SEGMENT, len(part) - _LEAST_SEGMENT + 1)
        left, right = total[k - 1] / k, (total[-1] - total[k - 1]) / (len(part) - k)
        gain = k * (len(part) - k) / len(part) * (left - right) ** 2
        best = int(np.argmax(gain))
        at = int(k[best])
        before, after = float(np.median(part[:at])), float(np.median(part[at:]))
        if gain[best] > 6 * sigma**2 * np.log(n) and abs(after - before) > _LEAST_SHIFT * min(before, after):
            points.append(lo + at)
            waiting += [(lo, lo + at), (lo + at, hi)]
    return sorted(points)


def slow_steps(values: Any, points: Sequence[int]) -> list[int]:
    """Positions of values far above the median of their stretch between change points."""
    positions = []
    edges = [0, *points, len(values)]
    for n, lo in enumerate(edges[:-1]):
        hi = edges[n + 1]
        part = values[lo:hi]
        if len(part) < 3:
            continue
        middle = float(np.median(part))
        deviation = _NORMAL * float(np.median(np.abs(part - middle)))
        limit = max(SLOW_RATIO * middle, middle + _SLOW_DEVIATIONS * deviation)
        positions += [lo + int(at) for at in np.flatnonzero(part > limit)]
    return positions


def _notes(logs: Sequence[Any], names: list[str], chosen: list[list[Any]]) -> tuple[str, ...]:
    notes = []
    for log, name, steps in zip(logs, names, chosen, strict=True):
        kinds = Counter(log.frameworks)
        kinds_text = ", ".join(f"{counted(n, 'line')} of {kind}" for kind, n in kinds.most_common()) or "no step's line"
        steps_text = (
            f"{counted(len(steps), 'step')} in the range; {counted(log.not_understood, 'record')} not understood"
        )
        notes.append(f"{name}: {counted(log.lines, 'line')}, {kinds_text}; {steps_text}")
        for metric, numbers in sorted(log.not_finite.items()):
            among = sorted(numbers.intersection(step for step, *_rest in steps))
            if among:
                notes.append(
                    f"{name}: {metric} is nan or infinite in {counted(len(among), 'step')}, first in step {among[0]}"
                )
        if log.restarts:
            notes.append(
                f"{name}: the steps went back {counted(log.restarts, 'time')}, as after a restart; the later values"
                " count"
            )
        if log.smoothed:
            notes.append(f"{name}: step times are from a progress bar, which shows moving averages")
        if log.damage:
            notes.append(f"{name}: {log.damage}")
    return tuple(notes)
