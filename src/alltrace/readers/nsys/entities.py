"""The processes, threads and devices of an export, and their dense rows."""

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.readers.nsys.dense import DenseRows
from alltrace.readers.nsys.devices import Devices
from alltrace.readers.nsys.small import small_rows, whole
from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.strings import Strings
from alltrace.trace.arrays import either, unpacked
from alltrace.trace.schema import TABLES

TID_BITS = 24
TID_MASK = (1 << TID_BITS) - 1


def pid_of(global_id: int) -> int:
    """The process id in a global thread or process id (hardware:8, VM:8, process:24, thread:24 bits)."""
    return (global_id >> TID_BITS) & TID_MASK


class Entities:
    """Numbers processes, threads and devices as rows refer to them, and describes them afterwards."""

    def __init__(self, source: RawSource, strings: Strings) -> None:
        self._source = source
        self._strings = strings
        self._processes = DenseRows()
        self._threads = DenseRows()
        self._thread_process: Any = np.empty(0, np.int32)
        self.devices: Devices = Devices(source)
        self._device_keys = DenseRows()
        self._device_of_key: Any = np.empty(0, np.int32)
        self.thread_names: dict[int, str] = {}

    def process_row(self, global_id: int) -> int:
        """The row of the process that a global thread or process id names."""
        return self._processes.row(global_id >> TID_BITS)

    def process_rows(self, global_ids: Any) -> Any:
        """Process rows (int32 Arrow array) of global thread or process ids (int64 Arrow array); null stays null."""
        numbers, nothing = unpacked(global_ids)
        return pa.array(_rows(self._processes, numbers >> TID_BITS, nothing), pa.int32(), mask=nothing)

    def thread_rows(self, global_ids: Any) -> Any:
        """Thread rows (int32 Arrow array) of global thread ids (int64 Arrow array); null stays null."""
        numbers, nothing = unpacked(global_ids)
        rows = _rows(self._threads, numbers, nothing)
        before = len(self._thread_process)
        if len(self._threads.keys) > before:
            fresh = np.array(self._threads.keys[before:], np.int64) >> TID_BITS
            self._thread_process = np.concatenate((self._thread_process, self._processes.rows(fresh)))
        return pa.array(rows, pa.int32(), mask=nothing)

    def process_of_threads(self, threads: Any) -> Any:
        """Process rows of thread rows, both int32 Arrow arrays."""
        numbers, nothing = unpacked(threads)
        if not len(self._thread_process):
            return pa.nulls(len(threads), pa.int32())
        return pa.array(self._thread_process[numbers], pa.int32(), mask=nothing)

    def device_rows(self, processes: Any, ordinals: Any) -> Any:
        """Device rows of CUDA ordinals (int64) in processes (rows, int32, or None if unknown)."""
        numbers, nothing = unpacked(ordinals)
        if processes is None:
            owner, lost = np.full(len(numbers), -1, np.int64), None
        else:
            owner, lost = unpacked(processes)
        strange = (numbers < 0) | (numbers >= 1 << 16)
        nothing = either(nothing, lost, strange if strange.any() else None)
        rows = _rows(self._device_keys, (owner.astype(np.int64) << 16) | numbers, nothing)
        for key in self._device_keys.keys[len(self._device_of_key) :]:
            pid = None if key < 0 else self.pid(key >> 16)
            row = self.devices.row(pid, key & 0xFFFF)
            self._device_of_key = np.append(self._device_of_key, np.int32(row))
        if not len(self._device_of_key):
            return pa.nulls(len(numbers), pa.int32())
        return pa.array(self._device_of_key[rows], pa.int32(), mask=nothing)

    def pid(self, process: int) -> int:
        """The process id of a process row."""
        return self._processes.keys[process] & TID_MASK

    @cached_property
    def process_names(self) -> dict[int, str]:
        """The base name of each process' program, by global process id without its thread bits."""
        names: dict[int, str] = {}
        for global_pid, name in small_rows(self._source, "PROCESSES", "globalPid", "name"):
            key = whole(global_pid)
            if key is not None and name:
                names[key >> TID_BITS] = _base_name(str(name))
        return names

    @cached_property
    def _thread_rows_of_source(self) -> list[tuple[Any, ...]]:
        return list(small_rows(self._source, "ThreadNames", "globalTid", "nameId", "priority"))

    def process_name(self, process: int) -> str:
        """The program's name of a process row, or an empty string."""
        return self.process_names.get(self._processes.keys[process], "")

    def process_table(self) -> Any:
        """The dictionary `processes`."""
        keys = self._processes.keys
        names = [self.process_name(i) for i in range(len(keys))]
        return pa.table(
            [
                pa.array(range(len(keys)), pa.int32()),
                pa.array([k & TID_MASK for k in keys], pa.int64()),
                pa.array([self._strings.add(n) if n else None for n in names], pa.int64()),
                pa.array([_signed(k << TID_BITS) for k in keys], pa.int64()),
            ],
            schema=TABLES["processes"].arrow_schema(),
        )

    def thread_table(self) -> Any:
        """The dictionary `threads`."""
        keys = self._threads.keys
        named: dict[int | None, tuple[int | None, int | None]] = {}
        for global_tid, name, priority in self._thread_rows_of_source:
            named.setdefault(whole(global_tid), (whole(name), whole(priority)))
        names: list[int | None] = []
        for key in keys:
            string_id = named.get(key, (None, None))[0]
            text = self.thread_names.get(key) if string_id is None else self._strings.text(string_id)
            names.append(self._strings.add(text) if text else None)
        priorities = [named.get(k, (None, None))[1] for k in keys]
        return pa.table(
            [
                pa.array(range(len(keys)), pa.int32()),
                pa.array(self._thread_process, pa.int32()),
                pa.array([k & TID_MASK for k in keys], pa.int64()),
                pa.array(names, pa.int64()),
                pa.array([p if p is not None and abs(p) < 2**31 else None for p in priorities], pa.int32()),
                pa.array(keys, pa.int64()),
            ],
            schema=TABLES["threads"].arrow_schema(),
        )

    def rows_by_pid(self) -> dict[int, int]:
        """The process row of each process id."""
        return {key & TID_MASK: row for row, key in reversed(list(enumerate(self._processes.keys)))}


def _base_name(command: str) -> str:
    """The program's name alone: what follows it may be arguments, and those may be secret."""
    words = command.split()
    return words[0].replace("\\", "/").rstrip("/").rpartition("/")[2] if words else ""


def _rows(dense: DenseRows, keys: Any, nothing: Any) -> Any:
    """The rows of the keys; 0 if null, without making a row for a null."""
    if nothing is None:
        return dense.rows(keys)
    rows = np.zeros(len(keys), np.int32)
    rows[~nothing] = dense.rows(keys[~nothing])
    return rows


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
