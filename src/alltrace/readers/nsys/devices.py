"""Which GPU a CUDA ordinal of a process is."""

import json
import re
from typing import Any, NamedTuple

import pyarrow as pa

from alltrace.readers.base import ENVIRONMENT_ALLOWED
from alltrace.readers.nsys.small import small_rows, whole
from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.strings import Strings
from alltrace.trace.schema import TABLES

# The host and the environment variables of an export.

_LONGEST_VALUE = 200
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def host_name(source: RawSource) -> str | None:
    """The name of the host, or None."""
    for name, value in small_rows(source, "TARGET_INFO_SYSTEM_ENV", "name", "value"):
        if name == "Hostname" and value and str(value).isprintable():
            return str(value)[:_LONGEST_VALUE]
    return None


def environment(source: RawSource) -> tuple[dict[str, str], int]:
    """The allow-listed variables, and how many others there are."""
    allowed: dict[str, str] = {}
    removed: set[str] = set()
    for name, value in small_rows(source, "META_DATA_CAPTURE", "name", "value"):
        if name is not None and str(name).endswith(":ENVIRONMENT_VARIABLE") and value is not None:
            _take(str(value), allowed, removed, quoted=True)
    for name, value in small_rows(source, "TARGET_INFO_SYSTEM_ENV", "name", "value"):
        if name == "DeviceEnvironment" and value:
            for part in str(value).split(";"):
                _take(part, allowed, removed, quoted=False)
    return allowed, len(removed - set(allowed))


def _take(assignment: str, allowed: dict[str, str], removed: set[str], *, quoted: bool) -> None:
    match = _ASSIGNMENT.fullmatch(assignment)
    if match is None:
        return
    name, value = match.groups()
    if quoted and len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    if name not in ENVIRONMENT_ALLOWED or len(value) > _LONGEST_VALUE or not value.isprintable():
        removed.add(name)
    else:
        allowed.setdefault(name, value)


_NUMBERS = {
    "sm_count": ("smCount", "numMultiprocessors"),
    "memory_bytes": ("totalMemory", "globalMemorySize"),
    "memory_bandwidth_bytes_per_s": ("memoryBandwidth", None),
    "clock_hz": ("clockRate", None),
    "compute_major": ("computeMajor", "computeCapabilityMajor"),
    "compute_minor": ("computeMinor", "computeCapabilityMinor"),
    "max_warps_per_sm": ("maxWarpsPerSm", "maxWarpsPerMultiprocessor"),
    "max_blocks_per_sm": ("maxBlocksPerSm", "maxBlocksPerMultiprocessor"),
    "max_registers_per_sm": ("maxRegistersPerSm", "maxRegistersPerMultiprocessor"),
    "max_shared_memory_per_sm": ("maxShmemPerSm", "maxSharedMemoryPerMultiprocessor"),
    "numa_node": ("numaNodeId", None),
}
"""Canonical column to the columns of TARGET_INFO_GPU and of TARGET_INFO_CUDA_GPU (2020)."""
_LIMITS = {c.name: 2**63 if c.type == "int64" else 2**31 for c in TABLES["devices"].columns}


class _Gpu(NamedTuple):
    gpu: int | None
    ordinal: int | None
    name: str | None
    bus_id: str | None
    uuid: str | None
    numbers: dict[str, int | None]

    @property
    def identity(self) -> tuple[str, object]:
        if self.uuid:
            return "uuid", self.uuid.lower()
        if self.bus_id:
            return "bus", self.bus_id.lower()
        return ("gpu", self.gpu) if self.gpu is not None else ("ordinal", self.ordinal)


class Devices:
    """The devices that rows refer to, one row for each GPU."""

    def __init__(self, source: RawSource) -> None:
        self._source = source
        self._gpus = list(_gpus(source))
        self._by_id = {g.gpu: g for g in reversed(self._gpus) if g.gpu is not None}
        self._by_ordinal = {g.ordinal: g for g in reversed(self._gpus) if g.ordinal is not None}
        self._by_process: dict[tuple[int, int], _Gpu] = {}
        for pid, gpu in _old_gpus(source, self._gpus):
            if gpu.ordinal is not None:
                self._by_process.setdefault((pid, gpu.ordinal), gpu)
        for *numbers, uuid_value in small_rows(source, "TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid", "uuid"):
            gpu_id, ordinal, process = _fitting("gpu", numbers[0]), _fitting("ordinal", numbers[1]), whole(numbers[2])
            uuid = _text(uuid_value)
            device = next((g for g in self._gpus if uuid and g.uuid == uuid), None)
            if device is None and gpu_id is not None:
                device = self._by_id.get(gpu_id)
            if device is None and uuid:
                device = _Gpu(gpu_id, ordinal, None, None, uuid, {})
            if device is not None and ordinal is not None and process is not None:
                self._by_process.setdefault((process, ordinal), device)
        self._visible: dict[int, _Gpu] | None = None
        self._rows: dict[tuple[str, object], int] = {}
        self._listed: list[tuple[_Gpu, int | None]] = []

    def row(self, pid: int | None, ordinal: int) -> int:
        """The row of a CUDA ordinal of a process."""
        gpu = self._by_process.get((pid, ordinal)) if pid is not None else None
        gpu = gpu or self._seen().get(ordinal) or _Gpu(None, ordinal, None, None, None, {})
        return self._list(gpu, ordinal)

    def _seen(self) -> dict[int, _Gpu]:
        """The GPU of each ordinal of a process that the export has no map of."""
        if self._visible is None:
            self._visible = (
                _visible(self._source, self._gpus) if len(self._by_ordinal) > 1 else {}
            ) or self._by_ordinal
        return self._visible

    def row_of_gpu(self, gpu_id: int) -> int:
        """The row of a GPU by the profiler's own number."""
        gpu = self._by_id.get(gpu_id) or _Gpu(gpu_id, None, None, None, None, {})
        return self._list(gpu, None)

    def _list(self, gpu: _Gpu, ordinal: int | None) -> int:
        row = self._rows.setdefault(gpu.identity, len(self._listed))
        if row == len(self._listed):
            self._listed.append((gpu, ordinal))
        elif self._listed[row][1] is None and ordinal is not None:
            self._listed[row] = (gpu, ordinal)
        return row

    def table(self, strings: Strings) -> Any:
        """The dictionary `devices`."""
        rows = [
            {
                "device": row,
                "ordinal": ordinal if ordinal is not None else gpu.ordinal,
                "gpu": gpu.gpu,
                "uuid": gpu.uuid,
                "bus_id": gpu.bus_id,
                "name": strings.add(gpu.name) if gpu.name else None,
                **gpu.numbers,
            }
            for row, (gpu, ordinal) in enumerate(self._listed)
        ]
        return pa.Table.from_pylist(rows, schema=TABLES["devices"].arrow_schema())


def cpus(source: RawSource) -> Any:
    """The dictionary `cpus`: the items of `CpuInfo`; without rows where the export lacks it, or it is damaged."""
    rows: dict[int, int] = {}
    for name, value in small_rows(source, "TARGET_INFO_SYSTEM_ENV", "name", "value"):
        if name == "CpuInfo":
            try:
                items = [(whole(item["cpuid"]), whole(item["socket"])) for item in json.loads(str(value))["items"]]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            rows |= {n: socket for n, socket in items if n is not None and socket is not None and min(n, socket) >= 0}
    fitting = [{"cpu": n, "socket": socket} for n, socket in sorted(rows.items()) if max(n, socket) < 2**31]
    return pa.Table.from_pylist(fitting, schema=TABLES["cpus"].arrow_schema())


def _visible(source: RawSource, gpus: list[_Gpu]) -> dict[int, _Gpu]:
    """The GPUs of `CUDA_VISIBLE_DEVICES`, in its order; none if it names one that the host does not have.

    `cuDevice` counts all GPUs of the host, including those that the program cannot see.
    """
    visible: dict[int, _Gpu] = {}
    for place, entry in enumerate(environment(source)[0].get("CUDA_VISIBLE_DEVICES", "").split(",")):
        word = entry.strip().lower()
        if word.isascii() and word.isdigit() and len(word) < 5:
            named = [g for g in gpus if g.ordinal == int(word)]
        else:
            start = word.removeprefix("gpu-")
            named = [g for g in gpus if start != word and (g.uuid or "").lower().removeprefix("gpu-").startswith(start)]
        if len(named) != 1:
            return {}
        visible[place] = named[0]
    return visible


def _gpus(source: RawSource) -> Any:
    columns = tuple(new for new, _ in _NUMBERS.values())
    fields = ("id", "name", "busLocation", "uuid", "cuDevice", "deviceId", *columns)
    for gpu, name, bus, uuid, ordinal, old_ordinal, *numbers in small_rows(source, "TARGET_INFO_GPU", *fields):
        values = dict(zip(_NUMBERS, (_fitting(c, n) for c, n in zip(_NUMBERS, numbers, strict=True)), strict=True))
        number = _fitting("ordinal", ordinal if ordinal is not None else old_ordinal)
        yield _Gpu(_fitting("gpu", gpu), number, _text(name), _text(bus), _text(uuid), values)


def _old_gpus(source: RawSource, gpus: list[_Gpu]) -> Any:
    columns = tuple(old or new for new, old in _NUMBERS.values())
    fields = ("pid", "deviceId", "name", "pciBusId", *columns)
    for pid, ordinal, name, place, *numbers in small_rows(source, "TARGET_INFO_CUDA_GPU", *fields):
        bus = _text(place)
        gpu = next((g for g in gpus if g.bus_id and bus and g.bus_id.lower() == bus.lower()), None)
        values = dict(zip(_NUMBERS, (_fitting(c, n) for c, n in zip(_NUMBERS, numbers, strict=True)), strict=True))
        if gpu is not None:
            gpu.numbers.update({k: values.get(k) for k, v in gpu.numbers.items() if v is None})
        if whole(pid) is not None:
            yield whole(pid), gpu or _Gpu(None, _fitting("ordinal", ordinal), _text(name), bus, None, values)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _fitting(column: str, value: Any) -> int | None:
    number = whole(value)
    return number if number is not None and -_LIMITS[column] <= number < _LIMITS[column] else None
