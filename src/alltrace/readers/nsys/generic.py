"""Events of other samplers (storage, EFA, network interfaces, plugins) as `generic_metrics`.

Up to schema 3.29 or so an event holds its fields as a JSON object; later exports have one row for each field.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.nsys.columns import as_integers, record_batch
from alltrace.readers.nsys.dense import unique_pairs
from alltrace.readers.nsys.mapping import find_table
from alltrace.readers.nsys.small import raw_type, small_rows, whole
from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.strings import Strings
from alltrace.trace.arrays import unpacked

_TABLE = "generic_metrics"
_GPU_SOURCE = "GpuMetrics"  # has its own table
_DEVICE_WORDS = ("device", "interface", "nic", "port", "volume", "mount", "disk", "gpu", "channel")
_LONGEST = 80
_VALUES = ("intVal", "uintVal", "floatVal", "doubleVal")


class Generic:
    """Streams the generic events of an export."""

    def __init__(self, source: RawSource, strings: Strings, left_out: dict[str, int]) -> None:
        self._source = source
        self._left_out = left_out
        self._strings = strings
        self._named: dict[tuple[int | None, str], tuple[int, int]] = {}
        self._types: dict[int, tuple[str, str]] | None = None

    def tables(self) -> list[str]:
        """The table of the export to count rows of, if it exists."""
        data = find_table(self._source.tables, "GENERIC_EVENT_DATA")
        events = find_table(self._source.tables, "GENERIC_EVENTS")
        if events is None or not {"timestamp", "typeId"} <= set(self._source.tables[events]):
            return []
        if data is not None and "genericEventId" in self._source.tables[events]:
            return [data] if {"genericEventId", "fieldIdx"} <= set(self._source.tables[data]) else []
        return [events] if "data" in self._source.tables[events] else []

    def stream(self) -> Iterator[Any]:
        """The batches of `generic_metrics`."""
        for table in self.tables():
            if "fieldIdx" in self._source.tables[table]:
                yield from self._rows_by_field(table)
            else:
                yield from self._json_rows(table)

    def _json_rows(self, table: str) -> Iterator[Any]:
        types = self._source.tables[table]
        wanted = {c: raw_type(types[c]) for c in ("timestamp", "typeId", "data")}
        for batch in self._source.batches(table, wanted, 16_384):
            times: list[int] = []
            names: list[tuple[int, int]] = []
            values: list[float] = []
            for moment, kind, data in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                time = whole(moment)
                if data is None or self._type(whole(kind))[0] == _GPU_SOURCE:
                    continue
                if time is None:
                    self._leave_out(table, 1)
                    continue
                for label, value in _numbers(data):
                    times.append(time)
                    names.append(self._names(whole(kind), label))
                    values.append(value)
            if times:
                rows = {
                    "time": pa.array(times, pa.int64()),
                    "source": pa.array([s for s, _ in names], pa.int64()),
                    "metric": pa.array([m for _, m in names], pa.int64()),
                    "value": pa.array(values, pa.float64()),
                }
                yield record_batch(_TABLE, rows, len(times))

    def _rows_by_field(self, table: str) -> Iterator[Any]:
        ids, times, kinds, untimed = self._events()
        labels = self._field_labels()
        types = self._source.tables[table]
        columns = [c for c in ("genericEventId", "fieldIdx", *_VALUES) if c in types]
        for batch in self._source.batches(table, {c: raw_type(types[c]) for c in columns}):
            by_name = dict(zip(columns, batch.columns, strict=True))
            events, _ = unpacked(pc.fill_null(as_integers(by_name["genericEventId"]), -1))
            fields, _ = unpacked(pc.fill_null(as_integers(by_name["fieldIdx"]), -1))
            self._leave_out(table, int(np.isin(events, untimed).sum()))
            if not len(ids):
                continue
            at = np.minimum(np.searchsorted(ids, events), len(ids) - 1)
            values, lacking = _values(by_name, batch.num_rows)
            keep = (ids[at] == events) & ~lacking
            at, fields, values = at[keep], fields[keep], values[keep]
            if not len(at):
                continue
            source, metric = self._names_of(kinds[at], fields, labels)
            rows = {"time": pa.array(times[at]), "source": source, "metric": metric, "value": pa.array(values)}
            yield record_batch(_TABLE, rows, len(at))

    def _names_of(self, kinds: Any, fields: Any, labels: dict[tuple[int, int], str]) -> tuple[Any, Any]:
        pairs, inverse = unique_pairs(kinds, fields)
        named = np.array([self._names(k, labels.get((k, f), f"field {f}")) for k, f in pairs], np.int64)
        return pa.array(named[inverse, 0]), pa.array(named[inverse, 1])

    def _leave_out(self, table: str, rows: int) -> None:
        if rows:
            self._left_out[table] = self._left_out.get(table, 0) + rows

    def _events(self) -> tuple[Any, Any, Any, Any]:
        """Ids (ascending), times and types of events with a time, and ids of those without; none of GPU metrics."""
        table = find_table(self._source.tables, "GENERIC_EVENTS")
        parts: list[list[Any]] = [[], [], []]
        timed: list[Any] = []
        types = self._source.tables[str(table)]
        for batch in self._source.batches(
            str(table), {c: raw_type(types[c]) for c in ("genericEventId", "timestamp", "typeId")}
        ):
            timed.append(pc.is_valid(as_integers(batch.column(1))).to_numpy(zero_copy_only=False))
            for i in range(3):
                parts[i].append(unpacked(pc.fill_null(as_integers(batch.column(i)), -1))[0])
        if not parts[0]:
            return (np.empty(0, np.int64),) * 4
        ids, times, kinds = (np.concatenate(p) for p in parts)
        gpu = [k for k in np.unique(kinds).tolist() if self._type(k)[0] == _GPU_SOURCE]
        wanted, has_time = ~np.isin(kinds, gpu), np.concatenate(timed)
        keep = wanted & has_time
        order = np.argsort(ids[keep], kind="stable")
        return ids[keep][order], times[keep][order], kinds[keep][order], ids[wanted & ~has_time]

    def _field_labels(self) -> dict[tuple[int, int], str]:
        labels: dict[tuple[int, int], str] = {}
        for kind, field, name in small_rows(
            self._source, "GENERIC_EVENT_TYPE_FIELDS", "typeId", "fieldIdx", "fieldNameId"
        ):
            text = self._strings.text(name) if whole(name) is not None else None
            if whole(kind) is not None and whole(field) is not None and text:
                labels[int(kind), int(field)] = text
        return labels

    def _names(self, kind: int | None, label: str) -> tuple[int, int]:
        """Ids of the names of source and metric."""
        ids = self._named.get((kind, label))
        if ids is None:
            source, event = self._type(kind)
            metric = f"{event}: {label}" if event else label
            ids = self._named[kind, label] = self._strings.add(_sound(source)), self._strings.add(_sound(metric))
        return ids

    def _type(self, kind: int | None) -> tuple[str, str]:
        """The names of the source and of the type of an event."""
        if self._types is None:
            sources = {
                whole(i): self._name(name, data)
                for i, name, data in small_rows(self._source, "GENERIC_EVENT_SOURCES", "sourceId", "nameId", "data")
            }
            rows = small_rows(self._source, "GENERIC_EVENT_TYPES", "typeId", "sourceId", "nameId", "data")
            self._types = {
                int(i): (sources.get(whole(s), ""), self._name(n, d)) for i, s, n, d in rows if whole(i) is not None
            }
        return self._types.get(kind if kind is not None else -1, ("", ""))

    def _name(self, name_id: Any, data: Any) -> str:
        if whole(name_id) is not None:
            return self._strings.text(name_id) or ""
        described = _parsed(data)
        return str(described.get("Name", ""))[:_LONGEST]


def _values(by_name: dict[str, Any], count: int) -> tuple[Any, Any]:
    values = np.zeros(count, np.float64)
    lacking = np.ones(count, np.bool_)
    for column in _VALUES:
        if column in by_name and by_name[column].null_count < count:
            numbers = _floats(by_name[column])
            present = pc.is_valid(numbers).to_numpy(zero_copy_only=False) & lacking
            values[present] = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)[present]
            lacking &= ~present
    return values, lacking


def _floats(values: Any) -> Any:
    """An Arrow array of numbers as it is, one of text as the numbers that it spells."""
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return values
    return pa.array([float(v) if _is_number(v) else None for v in values.to_pylist()], pa.float64())


def _sound(text: str) -> str:
    """`text` without halves of surrogate pairs, which JSON can write and no other text can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _parsed(data: Any) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (TypeError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _numbers(data: Any) -> Iterator[tuple[str, float]]:
    """The numeric fields of an event, each with the device that the event names, if it names one."""
    fields = _parsed(data)
    devices = [
        str(v)
        for k, v in fields.items()
        if any(w in k.lower() for w in _DEVICE_WORDS) and isinstance(v, str) and not _is_number(v)
    ]
    suffix = f" ({', '.join(d[:_LONGEST] for d in devices)})" if devices else ""
    for name, value in fields.items():
        if isinstance(value, bool) or not _is_number(value):
            continue
        yield f"{str(name)[:_LONGEST]}{suffix}", float(value)


def _is_number(value: Any) -> bool:
    if not isinstance(value, (int, float, str)):
        return False
    try:
        return math.isfinite(float(value))
    except (ValueError, OverflowError):
        return False
