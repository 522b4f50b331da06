"""What nccl-tests measured for an operation, to hold the operations of a run against."""

from __future__ import annotations

from math import exp, log
from statistics import median
from typing import Any

_FAR = 2.0  # the bandwidth at the largest measured size is used up to this many times that size


def expected_ns(tests: Any, op: str, ranks: int, size: int) -> float | None:
    """The median time of an operation, ns: measured, or on the line between neighbours (logarithmic); None beyond."""
    times: dict[int, list[float]] = {}
    for row in tests.to_pylist():
        if row["op"] == op and row["ranks"] == ranks and row["size_bytes"] > 0:
            times.setdefault(row["size_bytes"], []).append(row["time_ns"])
    sizes = sorted(times)
    if size in times:
        return float(median(times[size]))
    below, above = [s for s in sizes if s < size], [s for s in sizes if s > size]
    if below and above:
        low, high = below[-1], above[0]
        share = (log(size) - log(low)) / (log(high) - log(low))
        return exp((1 - share) * log(median(times[low])) + share * log(median(times[high])))
    if below and size <= _FAR * below[-1]:
        return float(median(times[below[-1]])) * size / below[-1]
    return None
