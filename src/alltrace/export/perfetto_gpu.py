"""Work of GPUs as the events that Perfetto has for it, so the viewer shows its own tracks of GPUs and their queues.

Field numbers are from Perfetto's `gpu_render_stage_event.proto`, `gpu_info.proto`, `interned_data.proto`,
`gpu_track_event.proto` (`gpu_correlation` is 3000) and `gpu_interned_data.proto` (`compute_kernels` is 1000,
`compute_arg_names` 1001). What the events of a rank refer to by number is in one packet ahead of them, on a sequence of
packets of the rank's own.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from alltrace.export.columns import numbers
from alltrace.export.names import NameCodes
from alltrace.export.perfetto_messages import FLOW_BITS, field, sizes, utf8, varint
from alltrace.export.record_bytes import VARINT, Pool, Records, Template, rows_alike
from alltrace.export.selection import Selection
from alltrace.export.slices import Slices, base_labels
from alltrace.export.tracks import Tracks
from alltrace.run.manifest import Device
from alltrace.trace.arrays import Int64

SEQUENCE = 2
"""The sequence of packets of rank 0; the sequences of the other ranks follow."""
_QUEUE_BITS = 24
_CLEARED, _NEEDED = 1, 2
_OTHER, _COMPUTE = 0, 2
_CUDA, _HIP = 4, 5
_OF_AMD = re.compile(r"\bAMD\b|Instinct|Radeon|\bMI\d{3}|\bgfx\d", re.IGNORECASE)
_STAGES = (("kernels", "kernel", _COMPUTE), ("copies", "copy", _OTHER), ("graphs", "graph", _COMPUTE))
_GRID, _BLOCK = (tuple(f"{what}_{axis}" for axis in "xyz") for what in ("grid", "block"))
_ARGUMENTS = (
    ("registers", "registers_per_thread"),
    ("static_shared_memory", "shared_mem_static"),
    ("dynamic_shared_memory", "shared_mem_dynamic"),
)
_OTHERS = 1 << FLOW_BITS - 1
_UUID = re.compile(r"(?:GPU-)?([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32})")
DETAILS = (*_GRID, *_BLOCK, *(column for column, _ in _ARGUMENTS))
"""Columns of `kernels` in addition to those of all slices."""


class GpuEvents:
    """The GPU events of a rank, on a separate sequence of packets."""

    def __init__(self, selection: Selection, tracks: Tracks, pid: int, pool: Pool, names: NameCodes) -> None:
        self._pool, self._names, self._rank, self._pid = pool, names, tracks.rank, pid
        self._streams = len(tracks.threads)
        numbered = {device.identity: n for n, device in enumerate(_devices(selection))}
        devices = {d.device: numbered[d.identity] for d in tracks.rank.devices}
        self._gpus = np.array([devices.get(device, 0) for device, _ in tracks.streams], np.int64)
        # viewers may distinguish queues of all ranks by these numbers
        first = len(_STAGES) + 1 + (tracks.rank.rank << _QUEUE_BITS)
        labels = base_labels(tracks)[len(tracks.threads) :]
        self._queues = {
            first + n: f"rank {tracks.rank.rank} {label}" for n, label in enumerate(labels[: len(tracks.streams)])
        }
        self._kernels: dict[int, int] = {}
        self._texts: set[int] = set()
        self._launched: set[int] = set()
        self._others = 0
        self._templates: dict[Any, Template] = {}

    def records(self, part: Slices) -> list[tuple[Int64, Records]]:
        at = part.bases - self._streams
        stage = next(n for n, (table, *_) in enumerate(_STAGES) if table == part.table) + 1
        self._texts.update(np.unique(part.names).tolist())
        constant = np.ones(len(part.starts), np.int64)
        fields: list[tuple[int, Int64]] = [
            (1, self._ids(part)),
            (2, part.ends - part.starts),
            (5, constant * (self._rank.rank + 1)),
            (11, self._gpus[at]),
            (13, np.array(list(self._queues), np.int64)[at]),
            (14, constant * stage),
            (20, part.names + 1),
        ]
        if part.table != "kernels" or part.rows is None:
            return [(np.arange(len(part.starts)), self._packets(part.starts, fields, [], [], []))]
        full = self._names.of(numbers(part.rows, "name"))
        self._kernels.update(zip(full.tolist(), part.names.tolist(), strict=True))
        fields.append((19, full + 1))
        records = []
        details = {name: numbers(part.rows, name) for name in DETAILS}
        there = [np.all([details[n] >= 0 for n in three], axis=0) for three in (_GRID, _BLOCK)]
        there += [details[column] >= 0 for column, _ in _ARGUMENTS]
        for (grid, block, *present), rows in rows_alike(there):
            own = [(number, values[rows]) for number, values in fields]
            arguments = [(n + 1, details[c][rows]) for n, (c, _) in enumerate(_ARGUMENTS) if present[n]]
            three = [
                [details[n][rows] for n in names] if has else [] for names, has in ((_GRID, grid), (_BLOCK, block))
            ]
            records.append((rows, self._packets(part.starts[rows], own, three[0], three[1], arguments)))
        return records

    def _ids(self, part: Slices) -> Int64:
        """An id for each event: the flow of its launch for the first work of a launch, else one that no launch has."""
        base = self._rank.rank + 1 << FLOW_BITS
        launches = np.full(len(part.starts), -1, np.int64) if part.launches is None else part.launches
        first = np.zeros(len(launches), np.bool_)
        first[np.unique(launches, return_index=True)[1]] = True
        first &= (launches >= 0) & ~np.isin(launches, np.array(sorted(self._launched), np.int64))
        self._launched.update(launches[first].tolist())
        other = self._others
        self._others += int((~first).sum())
        return np.where(first, base + launches, base + _OTHERS + other + np.cumsum(~first) - 1)

    def _packets(
        self,
        times: Int64,
        fields: Sequence[tuple[int, Int64]],
        grid: Sequence[Int64],
        block: Sequence[Int64],
        arguments: Sequence[tuple[int, Int64]],
    ) -> Records:
        launch, form_of_launch, inside = _launch(grid, block, arguments, len(times))
        inner = np.zeros(len(times), np.int64)
        form: list[Any] = []
        columns: list[Any] = []
        for number, values in fields:
            key = varint(number << 3)
            inner = inner + len(key) + sizes(values)
            form += [key, VARINT]
            columns.append(values)
        if form_of_launch:
            key = varint(21 << 3 | 2)
            inner = inner + len(key) + sizes(inside) + inside
            form += [key, VARINT, *form_of_launch]
            columns += [inside, *launch]
        head = field(10, SEQUENCE + self._rank.rank) + field(13, _NEEDED) + varint(53 << 3 | 2)
        outer = 1 + sizes(times) + len(head) + sizes(inner) + inner
        shape = (tuple(n for n, _ in fields), len(grid), len(block), tuple(n for n, _ in arguments))
        template = self._templates.get(shape)
        if template is None:
            whole = [varint(1 << 3 | 2), VARINT, varint(8 << 3), VARINT, head, VARINT, *form]
            template = self._templates[shape] = Template(self._pool, whole)
        return template.records(len(times), outer, times, inner, *columns)

    def head(self) -> bytes:
        """The packet ahead of the rank's events: what they refer to by number."""
        names = b"".join(
            field(24, field(1, n + 1) + field(2, utf8(name)) + field(4, category))
            for n, (_, name, category) in enumerate(_STAGES)
        )
        names += b"".join(
            field(24, field(1, n) + field(2, utf8(label)) + field(4, _COMPUTE)) for n, label in self._queues.items()
        )
        api = _HIP if any(_OF_AMD.search(d.name or "") for d in self._rank.devices) else _CUDA
        names += field(23, field(1, self._rank.rank + 1) + field(2, self._pid) + field(3, api))
        names += b"".join(
            field(2, field(1, code + 1) + b"\x12" + self._pool.piece(code)) for code in sorted(self._texts)
        )
        names += b"".join(field(1001, field(1, n + 1) + field(2, utf8(name))) for n, (_, name) in enumerate(_ARGUMENTS))
        for full, short in sorted(self._kernels.items()):
            kernel = field(1, full + 1) + b"\x12" + self._pool.piece(short) + b"\x1a" + self._pool.piece(full)
            names += field(1000, kernel)
        return field(1, field(10, SEQUENCE + self._rank.rank) + field(12, names) + field(13, _CLEARED))


def gpu_info(selection: Selection) -> bytes:
    """The packet with all GPUs; their numbers in events are their places in it."""
    gpus = b"".join(field(1, _gpu(device)) for device in _devices(selection))
    return field(1, field(128, gpus) + field(10, SEQUENCE)) if gpus else b""


def _devices(selection: Selection) -> list[Device]:
    return list(
        {device.identity: device for rank in reversed(selection.ranks) for device in reversed(rank.devices)}.values()
    )[::-1]


def _launch(
    grid: Sequence[Int64], block: Sequence[Int64], arguments: Sequence[tuple[int, Int64]], count: int
) -> tuple[list[Any], list[Any], Int64]:
    """The columns, the form and the length of the launches of `count` kernels."""
    columns: list[Any] = []
    form: list[Any] = []
    inside = np.zeros(count, np.int64)
    for number, three in ((1, grid), (2, block)):
        if len(three):
            length = 3 + sum(sizes(values) for values in three)
            inside = inside + 1 + sizes(length) + length
            form += [varint(number << 3 | 2), VARINT]
            columns.append(length)
            for axis, values in enumerate(three):
                form += [varint(axis + 1 << 3), VARINT]
                columns.append(values)
    for name, values in arguments:
        head = field(1, name) + varint(4 << 3)
        length = len(head) + sizes(values)
        inside = inside + 1 + sizes(length) + length
        form += [varint(3 << 3 | 2), VARINT, head, VARINT]
        columns += [length, values]
    return columns, form, inside


def _gpu(device: Device) -> bytes:
    """A GPU in the form of `GpuInfo`: name, UUID, bus id, and its host."""
    message = field(1, utf8(device.name)) if device.name else b""
    uuid = _UUID.fullmatch(device.uuid or "")
    if uuid is not None:
        message += field(5, bytes.fromhex(uuid[1].replace("-", "")))
    message += field(7, utf8(device.bus_id)) if device.bus_id else b""
    return message + field(6, field(1, b"host") + field(2, utf8(device.host)))
