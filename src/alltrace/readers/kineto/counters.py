"""Counters of kernels, as CUPTI's range profiler measures them: one event per kernel, with metrics as arguments.

The profiler knows the order of these kernels and not their times: it divides the capture evenly among them
(`CuptiRangeProfiler.cpp` in pytorch/kineto). If one device was measured and as many calls launched kernels, the calls
have the times.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.core.kineto import NOTHING
from alltrace.readers.kineto.entities import Entities
from alltrace.readers.kineto.events import Block
from alltrace.readers.kineto.names import Names
from alltrace.readers.kineto.tables import whole
from alltrace.readers.spool import record_batch

_FIELDS = ("ts", "pid", "name", "arguments")
_LAUNCH_FIELDS = ("ts", "pid", "tid", "correlation")


class Counters:
    """Collects these events and the calls that launch kernels, which `batch` joins; `broken`: unreadable arguments."""

    def __init__(self, known: Names, entities: Entities, zero_ns: int) -> None:
        self.broken: int = 0
        self._names = known
        self._entities = entities
        self._zero_ns = zero_ns
        self._kernels: list[Any] = []
        self._launches: list[Any] = []

    def add(self, block: Block, counters: Any, calls: Any) -> None:
        """Take what a block has: the indexes of these events (`counters`) and of runtime and driver calls."""
        if len(counters):
            self._kernels.append(np.stack([block[f][counters] for f in _FIELDS]))
        if len(calls):
            chosen = calls[self._names.classes("launches", launches_kernel, block["name"][calls]) == 1]
            if len(chosen):
                self._launches.append(np.stack([block[f][chosen] for f in _LAUNCH_FIELDS]))

    def batch(self) -> Any:
        """The rows of `kernel_counters`; None if the trace has no such event."""
        if not self._kernels:
            return None
        kernels = _sorted(_FIELDS, self._kernels)
        count = len(kernels["ts"])
        launches = _sorted(_LAUNCH_FIELDS, self._launches) if self._launches else None
        one_device = len(np.unique(kernels["pid"])) == 1
        joined = launches is not None and one_device and len(launches["ts"]) == count
        times, thread, correlation = kernels["ts"], np.full(count, NOTHING), np.full(count, NOTHING)
        pids = np.zeros(count, np.int64)
        if joined and launches is not None:
            times, thread, correlation, pids = (launches[f] for f in ("ts", "tid", "correlation", "pid"))
        values = [self._values(code) for code in kernels["arguments"].tolist()]
        rows = np.repeat(np.arange(count), [len(v) for v in values])
        metrics = [self._names.add(metric) for own in values for metric, _ in own]
        number = np.empty(count, np.int64)
        for device in np.unique(kernels["pid"]).tolist():
            own = kernels["pid"] == device
            number[own] = np.arange(1, int(own.sum()) + 1)
        columns = {
            "time": (times - self._zero_ns)[rows],
            "process": np.zeros(len(rows), np.int32),
            "device": self._entities.devices(kernels["pid"][rows]),
            "thread": self._entities.threads(pids[rows], thread[rows]),
            "correlation": whole(correlation[rows]),
            "number": number[rows],
            "name": self._names.ids(kernels["name"][rows]),
            "metric": pa.array(metrics, pa.int64()),
            "value": pa.array([value for own in values for _, value in own], pa.float64()),
        }
        return record_batch("kernel_counters", columns)

    def _values(self, code: int) -> list[tuple[str, float]]:
        """The metrics that are numbers, in their order in the trace."""
        try:
            found = json.loads(self._names.text(code), strict=False) if code != NOTHING else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.broken += 1
            return []
        return [
            (name.encode("utf-8", "replace").decode(), float(value))
            for name, value in found.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf
        ]


def launches_kernel(call: str) -> int:
    """1 for a call that launches one kernel, like `cudaLaunchKernel` and `cuLaunchKernelEx`."""
    return int("Launch" in call and "Kernel" in call and "HostFunc" not in call and "MultiDevice" not in call)


def _sorted(fields: tuple[str, ...], parts: list[Any]) -> dict[str, Any]:
    found = np.concatenate(parts, axis=1)
    order = np.argsort(found[0], kind="stable")
    return dict(zip(fields, found[:, order], strict=True))
