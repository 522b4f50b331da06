"""Opens a snapshot of PyTorch's allocator as the table `allocations`.

The format is defined by `torch.cuda.memory._snapshot` (torch/cuda/memory.py and torch/csrc/cuda/memory_snapshot.cpp):
`segments`, the memory that the allocator has at the end, and `device_traces`, for each device its earlier actions, with
the Python stacks of the requests. The pickle is taken apart as data (`alltrace.readers.plain_pickle`); nothing in it is
executed.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.readers.base import HeldReader, Report, ReportProcess
from alltrace.readers.plain_pickle import PickleRefusedError, decode
from alltrace.readers.spool import NameIds, dictionary_tables, record_batch
from alltrace.trace.errors import InputError

EXPECTED = "a snapshot of PyTorch's allocator (torch.cuda.memory._dump_snapshot) with a history of version 2.1 or later"
_EMPTY = "its history is empty (call torch.cuda.memory._record_memory_history before the part to record)"
POOL = "cuda snapshot"
"""The kind of memory, different from a trace's, since a trace may describe the same blocks with rounded sizes."""

_TABLE = "allocations"
_MOST_BYTES = 1 << 30
_SECOND_NS = 10**9
_MOST = 1 << 62
_GIVEN = {"alloc": 1, "free_completed": -1}
_RESERVED = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_HELD = ("active_allocated", "active_awaiting_free", "active_pending_free")


class SnapshotReader(HeldReader):
    """A snapshot, opened; see `alltrace.readers.base.ReportReader`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names = NameIds()
        content = _content(path)
        traces = content["device_traces"]
        by_device = {n: rows for n, trace in enumerate(traces) if len((rows := _rows(path, content, n, trace))["time"])}
        if not by_device:
            raise InputError(path, found=_EMPTY, expected=EXPECTED)
        self._devices, self._rows = list(by_device), list(by_device.values())
        self._zero_ns = min(int(rows["time"][0]) for rows in self._rows) // _SECOND_NS * _SECOND_NS
        process = ReportProcess(process=0, pid=0, gpu=True, device_ordinal=self._devices[0])
        self.report: Report = Report(
            path=str(path),
            format="memory-snapshot",
            profiler="PyTorch memory snapshot",
            utc_ns=self._zero_ns,
            processes=(process,),
            tables=(_TABLE,),
            companion=True,
        )

    def stream(self, tables: Collection[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of `allocations`; see `ReportReader.stream`."""
        if _TABLE not in tables:
            return
        number = 1
        for row, rows in enumerate(self._rows):
            count = len(rows["time"])
            stacks = {stack: self._names.add(stack) for stack in set(rows["stack"]) if stack}
            columns = {
                "time": rows["time"] - self._zero_ns,
                "process": np.zeros(count, np.int32),
                "device": np.full(count, row, np.int32),
                "memory": pa.array([POOL] * count).dictionary_encode(),
                "kind": pa.array(["allocate" if s > 0 else "free" for s in rows["sign"].tolist()]).dictionary_encode(),
                "bytes": rows["size"],
                "address": rows["address"],
                "allocated_bytes": rows["allocated"],
                "reserved_bytes": rows["reserved"],
                "stack": pa.array([stacks.get(s) for s in rows["stack"]], pa.int64()),
                "source_row": np.arange(number, number + count),
            }
            number += count
            yield _TABLE, record_batch(_TABLE, columns)

    def dictionaries(self) -> dict[str, pa.Table]:
        """The dictionaries of what was streamed; see `ReportReader.dictionaries`."""
        devices = [{"device": row, "ordinal": n, "gpu": n} for row, n in enumerate(self._devices)]
        return dictionary_tables({"processes": [{"process": 0}], "devices": devices}, self._names)

    def rows_estimate(self, tables: Collection[str]) -> int:
        """How many rows `stream` will give."""
        return sum(len(rows["time"]) for rows in self._rows) if _TABLE in tables else 0


def open_report(path: Path) -> SnapshotReader:
    """Open a snapshot. Raises `InputError`: damaged, too large, not plain data alone, or no history with times."""
    return SnapshotReader(path)


def _content(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise InputError(
                path, found=f"it has {size:,} bytes", expected=f"a snapshot of up to {_MOST_BYTES:,} bytes"
            )
        content = decode(path.read_bytes())
    except OSError as error:
        raise InputError.cannot_be("read", path, error, expected=EXPECTED) from error
    except PickleRefusedError as error:
        raise InputError(path, found=f"its pickle was refused: {error}", expected=EXPECTED) from error
    if (
        not isinstance(content, dict)
        or not _lists(content.get("segments"))
        or not isinstance(content.get("device_traces"), list)
    ):
        raise InputError(path, found="it has no device segments and traces", expected=EXPECTED)
    if not all(_lists(trace) for trace in content["device_traces"]):
        raise InputError(path, found="its history of a device is not a list of events", expected=EXPECTED)
    return content


def _lists(value: Any) -> bool:
    """Whether it is a list of dicts."""
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _rows(path: Path, content: dict[str, Any], device: int, trace: list[dict[str, Any]]) -> dict[str, Any]:
    """What the allocator did on a device, in order of time, with its memory after each event."""
    times, changes, reserves, addresses, stacks = [], [], [], [], []
    stack_of: dict[int, str] = {}
    for event in trace:
        action = event.get("action")
        sign, reserved = _GIVEN.get(str(action), 0), _RESERVED.get(str(action), 0)
        if not sign and not reserved:
            continue
        time: Any
        size: Any
        address: Any
        time, size, address = (event.get(key) for key in ("time_us", "size", "addr"))
        if time is None:
            raise InputError(path, found="its events have no times (PyTorch before 2.1)", expected=EXPECTED)
        if not (_whole(time) and _whole(size) and isinstance(address, int)):
            raise InputError(
                path, found=f"an event {action!r} has no whole numbers as time, size and address", expected=EXPECTED
            )
        times.append(time * 1000)
        changes.append(sign * size)
        reserves.append(reserved * size)
        addresses.append(address if 0 < address < _MOST else 0)
        frames = event.get("frames")
        stacks.append(stack_of.setdefault(id(frames), _stack(frames)) if sign > 0 else "")
    order = np.argsort(np.array(times, np.int64), kind="stable")
    change, reserve = np.array(changes, np.int64)[order], np.array(reserves, np.int64)[order]
    allocated, taken = _at_the_end(content["segments"], device)
    rows = np.flatnonzero(change)
    return {
        "time": np.array(times, np.int64)[order][rows],
        "sign": np.sign(change[rows]),
        "size": np.abs(change[rows]),
        "address": np.array(addresses, np.int64)[order][rows],
        "allocated": np.maximum(allocated - (change.sum() - np.cumsum(change)), 0)[rows],
        "reserved": np.maximum(taken - (reserve.sum() - np.cumsum(reserve)), 0)[rows],
        "stack": [stacks[n] for n in order[rows].tolist()],
    }


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST // 1000


def _at_the_end(segments: list[dict[str, Any]], device: int) -> tuple[int, int]:
    """Requested bytes of the blocks in use, and bytes reserved on the device."""
    used = taken = 0
    for segment in segments:
        if segment.get("device") != device:
            continue
        taken += _size(segment, "total_size")
        blocks: Any = segment.get("blocks")
        for block in blocks if _lists(blocks) else []:
            if block.get("state") in _HELD:
                used += _size(block, "requested_size", "size")
    return min(used, _MOST), min(taken, _MOST)


def _size(about: dict[str, Any], *keys: str) -> int:
    return next((about[key] for key in keys if _whole(about.get(key))), 0)


def _stack(frames: Any) -> str:
    """The frames as traces of the profiler name them, the outermost first."""
    named = [f"{f.get('filename')}({f.get('line')}): {f.get('name')}" for f in (frames if _lists(frames) else [])]
    return ";".join(reversed(named)).encode("utf-8", "replace").decode()
