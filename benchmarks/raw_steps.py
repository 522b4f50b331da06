"""The time of a step from the file of a report itself, without alltrace: a second opinion on what `steps` says."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import sqlite3
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_NUMBERED = re.compile(r"(.*?)(\d+)")
_LEAST_STEPS = 3
_ALIKE = 0.95
"""The share of kernels with the same name one period later."""

Range = tuple[str, int, int, Any]
"""Name, start and end in ns, and the thread."""


def raw_step_ns(path: Path) -> float | None:
    """The mean time of a step in ns; the median of the files of a folder; None for a format or a file without steps.

    Steps are the ranges with names that differ only in a consecutive number and that cover the most time; the mean is
    from the first start to the last end. In an SQLite export without such ranges, it is the period of the kernel names
    of a process.

    Raises:
        OSError: A file cannot be read.
        ValueError: A trace is not valid JSON.
        sqlite3.Error: An export is not a valid database.
    """
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    found = [ns for ns in map(_of_file, files) if ns is not None]
    return statistics.median(found) if found else None


def _of_file(path: Path) -> float | None:
    if path.suffix == ".sqlite":
        return _of_export(path)
    if path.name.endswith((".json", ".json.gz")):
        return _of_trace(path)
    return None


def _of_trace(path: Path) -> float | None:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        trace = json.load(file)
    events = trace.get("traceEvents", []) if isinstance(trace, dict) else trace
    host = [e for e in events if e.get("ph") == "X" and not str(e.get("cat", "")).lower().startswith(("gpu", "kernel"))]
    named = [e for e in host if str(e.get("name", "")).startswith("ProfilerStep#")]
    ranges = [
        (e["name"], round(1000 * float(e["ts"])), round(1000 * (float(e["ts"]) + float(e["dur"]))), e["tid"])
        for e in named
    ]
    return numbered_step_ns(ranges)


def _of_export(path: Path) -> float | None:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if "NVTX_EVENTS" in tables:
            text = (
                'SELECT coalesce(text, value), start, "end", globalTid FROM NVTX_EVENTS LEFT JOIN StringIds ON id ='
                " textId"
            )
            ranges = connection.execute(f'{text} WHERE "end" IS NOT NULL AND coalesce(text, value) IS NOT NULL')
            found = numbered_step_ns(ranges.fetchall())
            if found is not None:
                return found
        if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables:
            return None
        kernels: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        columns = "SELECT globalPid, deviceId, demangledName, start FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start"
        for process, device, name, start in connection.execute(columns):
            kernels[process, device].append((name, start))
        periods = [ns for ns in (period_ns(own) for own in kernels.values()) if ns is not None]
        return statistics.median(periods) if periods else None
    finally:
        connection.close()


def numbered_step_ns(ranges: Iterable[Range]) -> float | None:
    """The mean time of the ranges of one thread that differ only in a number; if several, those with the most time."""
    families: dict[tuple[str, Any], list[tuple[int, int, int]]] = defaultdict(list)
    for name, start, end, thread in ranges:
        matched = _NUMBERED.fullmatch(name)
        if matched:
            families[matched[1], thread].append((start, end, int(matched[2])))
    best: tuple[int, float] | None = None
    for own in families.values():
        own.sort()
        consecutive = all(b[2] == a[2] + 1 and b[0] >= a[1] for a, b in itertools.pairwise(own))
        if len(own) < _LEAST_STEPS or not consecutive:
            continue
        covered, mean = sum(end - start for start, end, _ in own), (own[-1][1] - own[0][0]) / len(own)
        best = max(best or (0, 0.0), (covered, mean))
    return best[1] if best else None


def period_ns(kernels: Sequence[tuple[int, int]]) -> float | None:
    """The mean time from a kernel to its next period, of (name, start) in order; None without a period.

    The period is the smallest number of kernels after which 95 % of the names come again; it comes at least three
    times.
    """
    for lag in range(2, len(kernels) // _LEAST_STEPS + 1):
        pairs = len(kernels) - lag
        unlike_at_most = int((1 - _ALIKE) * pairs)
        alike_ns: list[int] = []
        for (name, start), (later, again) in zip(kernels, kernels[lag:], strict=False):
            if name == later:
                alike_ns.append(again - start)
            else:
                unlike_at_most -= 1
                if unlike_at_most < 0:
                    break
        else:
            return statistics.fmean(alike_ns)
    return None
