"""The process, threads and devices that a trace's events are of."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.core.kineto import NOTHING
from alltrace.readers.kineto.events import Block
from alltrace.readers.kineto.names import Names
from alltrace.trace.distinct import distinct
from alltrace.trace.schema import TABLES

_MOST_ORDINALS = 1 << 20
MOST_DEVICES = 1 << 10


class Entities:
    """Numbers threads and devices as they come up; one process, whatever ids events have. `before`: numbers in use."""

    def __init__(self, pid: int, process: int = 0, before: "Entities | None" = None) -> None:
        self._pid = pid
        self._process = process
        self.free_devices: Iterator[int] = count() if before is None else before.free_devices
        self.free_threads: Iterator[int] = count() if before is None else before.free_threads
        self._properties: dict[int, dict[str, Any]] = {}
        self._devices: dict[int, int] = {}
        self._threads: dict[int, int] = {}
        self._thread_names: dict[tuple[int, int], str] = {}
        self._process_name = ""

    def describe(self, properties: Any) -> None:
        """Take what `deviceProperties` says of the devices, those without events included."""
        for row, about in enumerate(properties if isinstance(properties, list) else []):
            ordinal = about.get("id", row) if isinstance(about, dict) else None
            if isinstance(ordinal, int) and not isinstance(ordinal, bool) and 0 <= ordinal < _MOST_ORDINALS:
                self._properties.setdefault(ordinal, about)
                _row(self._devices, ordinal, self.free_devices)

    def device_ids(self, pids: Any) -> Any:
        """The ordinals that Kineto's ids of processes of device work are; `NOTHING` for the id of the process."""
        return np.where(((pids == self._pid) & (pids > 0)) | (pids >= MOST_DEVICES), NOTHING, pids)

    def devices(self, ordinals: Any) -> Any:
        """Rows of `devices`, null if the events name none."""
        missing = (ordinals < 0) | (ordinals >= _MOST_ORDINALS)
        return pa.array(
            _rows(self._devices, self.free_devices, np.where(missing, 0, ordinals), missing),
            mask=missing if missing.any() else None,
        )

    def threads(self, pids: Any, tids: Any) -> Any:
        """Rows of `threads`, null if the events name none, or are of no process (the profiler's own have -1)."""
        missing = (tids == NOTHING) | (pids == NOTHING) | (pids < 0)
        return pa.array(
            _rows(self._threads, self.free_threads, np.where(missing, 0, tids), missing),
            mask=missing if missing.any() else None,
        )

    def note_names(self, block: Block, known: Names) -> None:
        """Remember what the metadata events of a block call the process and its threads."""
        about = known.classes("metadata", _metadata, block["name"])
        for row in np.flatnonzero((about > 0) & (block["label"] != NOTHING)).tolist():
            pid, tid = int(block["pid"][row]), int(block["tid"][row])
            label = known.text(int(block["label"][row])).strip()
            if about[row] == 1 and pid == self._pid:
                self._process_name = label
            elif about[row] == 2:
                # Kineto writes `thread 542 (python3)` for the thread that the system calls python3
                head = f"thread {tid} ("
                own = label.startswith(head) and label.endswith(")")
                self._thread_names[pid, tid] = label[len(head) : -1] if own else label

    def tables(self, known: Names) -> dict[str, Any]:
        """The dictionaries `processes`, `threads` and `devices`."""
        process = {
            "process": self._process,
            "pid": self._pid,
            "name": known.add(self._process_name) if self._process_name else None,
        }
        threads = []
        for tid, row in self._threads.items():
            label = self._thread_names.get((self._pid, tid))
            threads.append(
                {"thread": row, "process": self._process, "tid": tid, "name": known.add(label) if label else None}
            )
        devices = [
            _device(row, ordinal, self._properties.get(ordinal, {}), known) for ordinal, row in self._devices.items()
        ]
        tables = {"processes": [process], "threads": threads, "devices": devices}
        return {name: pa.Table.from_pylist(rows, schema=TABLES[name].arrow_schema()) for name, rows in tables.items()}


def _metadata(name: str) -> int:
    return {"process_name": 1, "thread_name": 2}.get(name, 0)


def _rows(numbered: dict[int, int], free: Iterator[int], values: Any, missing: Any) -> Any:
    kinds, places = distinct(values)
    seen = set(values[~missing].tolist()) if missing.any() else None
    rows = [_row(numbered, v, free) if seen is None or v in seen else 0 for v in kinds.tolist()]
    return np.array(rows, np.int32)[places]


def _row(numbered: dict[int, int], value: int, free: Iterator[int]) -> int:
    if value not in numbered:
        numbered[value] = next(free)
    return numbered[value]


def _device(row: int, ordinal: int, about: dict[str, Any], known: Names) -> dict[str, Any]:
    warp, threads = _number(about, "warpSize"), _number(about, "maxThreadsPerMultiprocessor")
    name, uuid = _text(about, "name"), _text(about, "uuid")
    return {
        "device": row,
        "ordinal": ordinal,
        "gpu": ordinal,
        "uuid": uuid or None,
        "name": known.add(name) if name else None,
        "sm_count": _number(about, "numSms"),
        "memory_bytes": _number(about, "totalGlobalMem"),
        "compute_major": _number(about, "computeMajor"),
        "compute_minor": _number(about, "computeMinor"),
        "max_warps_per_sm": threads // warp if warp and threads else None,
        "max_registers_per_sm": _number(about, "regsPerMultiprocessor"),
        "max_shared_memory_per_sm": _number(about, "sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"),
    }


def _text(about: dict[str, Any], key: str) -> str:
    """A text of the metadata, without halves of surrogate pairs, which JSON can write and no other text can hold."""
    value = about.get(key)
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else ""


def _number(about: dict[str, Any], *keys: str) -> int | None:
    value = next((about[k] for k in keys if k in about), None)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return None
    return value if value < (2**63 if keys == ("totalGlobalMem",) else 2**31) else None
