"""Samples of GPUs, network adapters, switches and other samplers, and CPU samples."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.nsys.columns import as_integers, nulls, record_batch, timed
from alltrace.readers.nsys.entities import Entities
from alltrace.readers.nsys.generic import Generic
from alltrace.readers.nsys.mapping import find_table, missing_columns
from alltrace.readers.nsys.small import raw_type, small_rows, whole
from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.strings import Strings
from alltrace.trace.arrays import unpacked


class Metrics:
    """Streams the samples of an export."""

    def __init__(self, source: RawSource, strings: Strings, entities: Entities, left_out: dict[str, int]) -> None:
        self._source = source
        self._left_out = left_out
        self._strings = strings
        self._entities = entities
        self._generic = Generic(source, strings, left_out)

    def tables(self, canonical: str) -> list[str]:
        """The tables of the export that hold rows of a canonical table of metrics."""
        if canonical == "generic_metrics":
            return self._generic.tables()
        name = {
            "gpu_metrics": "GPU_METRICS",
            "nic_metrics": "NET_NIC_METRIC",
            "switch_metrics": "NET_IB_SWITCH_METRIC",
            "samples": "COMPOSITE_EVENTS",
        }[canonical]
        table = find_table(self._source.tables, name)
        return [table] if table is not None and not missing_columns(table, self._source.tables[table]) else []

    def stream(self, canonical: str) -> Iterator[Any]:
        """The batches of a canonical table of metrics."""
        if canonical == "generic_metrics":
            yield from self._generic.stream()
            return
        make = {
            "gpu_metrics": self._gpu,
            "nic_metrics": self._network,
            "switch_metrics": self._network,
            "samples": self._samples,
        }[canonical]
        for table in self.tables(canonical):
            yield from make(canonical, table)

    def _batches(self, table: str, *columns: str) -> Iterator[tuple[dict[str, Any], int]]:
        types = self._source.tables[table]
        for batch in self._source.batches(table, {c: raw_type(types[c]) for c in columns if c in types}):
            batch = timed(batch, table, self._left_out, 0)
            if batch.num_rows:
                yield dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows

    def _gpu(self, canonical: str, table: str) -> Iterator[Any]:
        names = {}
        for kind, metric, name in small_rows(
            self._source, "TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName"
        ):
            names[whole(kind), whole(metric)] = str(name)
        pairs = _Pairs(names, self._strings)
        for columns, count in self._batches(table, "timestamp", "typeId", "metricId", "value"):
            kinds, _ = unpacked(as_integers(columns["typeId"]))
            rows = {
                "time": as_integers(columns["timestamp"]),
                "device": self._gpus(kinds),
                "metric": pairs.ids(kinds, unpacked(as_integers(columns["metricId"]))[0]),
                "value": _floats(columns["value"]),
            }
            yield record_batch(canonical, rows, count)

    def _gpus(self, kinds: Any) -> Any:
        rows = np.full(256, -1, np.int32)
        gpus = kinds & 0xFF
        for gpu in np.flatnonzero(np.bincount(gpus, minlength=256)).tolist():
            rows[gpu] = self._entities.devices.row_of_gpu(gpu)
        return pa.array(rows[gpus], pa.int32())

    def _network(self, canonical: str, table: str) -> Iterator[Any]:
        names = {}
        for metrics, index, name in small_rows(
            self._source, "TARGET_INFO_NETWORK_METRICS", "metricsListId", "metricsIdx", "name"
        ):
            names[whole(metrics), whole(index)] = str(name)
        pairs = _Pairs(names, self._strings)
        adapters = self._adapters() if canonical == "nic_metrics" else {}
        for columns, count in self._batches(table, "start", "end", "globalId", "metricsListId", "metricsIdx", "value"):
            rows = {
                "start": as_integers(columns["start"]),
                "end": as_integers(columns["end"]),
                "metric": pairs.ids(
                    unpacked(as_integers(columns["metricsListId"]))[0], unpacked(as_integers(columns["metricsIdx"]))[0]
                ),
                "value": _floats(columns["value"]),
            }
            if "globalId" in columns:
                rows["guid"] = as_integers(columns["globalId"])
                if canonical == "nic_metrics":
                    rows["nic"], rows["guid"], rows["model"] = self._named(rows["guid"], adapters)
            yield record_batch(canonical, rows, count)

    def _adapters(self) -> dict[int, tuple[str, int | None, str]]:
        """Name, GUID and model of adapters by the id that samples hold: a GUID, or an id that NIC_ID_MAP explains."""
        by_nic: dict[int, tuple[str, int | None, str]] = {}
        adapters: dict[int, tuple[str, int | None, str]] = {}
        models = {i: str(label or "") for i, label in small_rows(self._source, "ENUM_NET_DEVICE_ID", "id", "label")}
        columns = ("GUID", "globalId", "nicId", "name", "deviceId")
        for guid, old, nic, name, device in small_rows(self._source, "TARGET_INFO_NIC_INFO", *columns):
            model = models.get(device, "")
            number = guid if guid is not None else old
            if nic is not None:
                by_nic[nic] = (str(name or ""), number, model)
            if number is not None:
                adapters[number] = (str(name or ""), number, model)
        for nic, global_id in small_rows(self._source, "NIC_ID_MAP", "nicId", "globalId"):
            if nic in by_nic and global_id is not None:
                adapters[global_id] = by_nic[nic]
        return adapters

    def _named(self, ids: Any, adapters: dict[int, tuple[str, int | None, str]]) -> tuple[Any, Any, Any]:
        encoded = pc.dictionary_encode(ids)
        entries = [adapters.get(i, ("", i, "")) for i in encoded.dictionary.to_pylist()]
        names = pa.array([self._strings.add(n) if n else None for n, _, _ in entries], pa.int64())
        guids = pa.array([g for _, g, _ in entries], pa.int64())
        models = pa.array([self._strings.add(m) if m else None for _, _, m in entries], pa.int64())
        at = encoded.indices
        return pc.take(names, at), pc.take(guids, at), pc.take(models, at)

    def _samples(self, canonical: str, table: str) -> Iterator[Any]:
        ids, symbols, modules = self._tops()
        for columns, count in self._batches(table, "start", "id", "cpu", "globalTid", "cpuCycles"):
            rows: dict[str, Any] = {"time": as_integers(columns["start"])}
            if "globalTid" in columns:
                rows["thread"] = self._entities.thread_rows(as_integers(columns["globalTid"]))
                rows["process"] = self._entities.process_of_threads(rows["thread"])
            if "cpu" in columns:
                rows["cpu"] = pc.cast(as_integers(columns["cpu"]), pa.int32(), safe=False)
            if "cpuCycles" in columns:
                rows["cycles"] = as_integers(columns["cpuCycles"])
            if "id" in columns and len(ids):
                numbers, _ = unpacked(as_integers(columns["id"]))
                at = np.minimum(np.searchsorted(ids, numbers), len(ids) - 1)
                lost = ids[at] != numbers
                rows["symbol"] = self._strings.from_ids(pa.array(symbols[at], mask=lost))
                rows["module"] = self._strings.from_ids(pa.array(modules[at], mask=lost))
            yield record_batch(canonical, rows, count)

    def _tops(self) -> tuple[Any, Any, Any]:
        """Ids of the call chains, ascending, and the string ids of symbol and module of their top frames."""
        parts: list[tuple[Any, Any, Any]] = []
        table = find_table(self._source.tables, "SAMPLING_CALLCHAINS")
        if table is not None and {"id", "symbol", "module", "stackDepth"} <= set(self._source.tables[table]):
            for columns, _ in self._batches(table, "id", "symbol", "module", "stackDepth"):
                depth, _ = unpacked(as_integers(columns["stackDepth"]))
                top = depth == 0
                parts.append(
                    tuple(
                        unpacked(pc.fill_null(as_integers(columns[c]), -1))[0][top] for c in ("id", "symbol", "module")
                    )
                )
        if not parts:
            empty = np.empty(0, np.int64)
            return empty, empty, empty
        ids, symbols, modules = (np.concatenate([p[i] for p in parts]) for i in range(3))
        order = np.argsort(ids, kind="stable")
        return ids[order], symbols[order], modules[order]


class _Pairs:
    """Name ids by a pair of numbers."""

    def __init__(self, names: dict[tuple[int | None, int | None], str], strings: Strings) -> None:
        self._names = names
        self._strings = strings

    def ids(self, first: Any, second: Any) -> Any:
        """The name ids of pairs; the name of a pair without a name is its second number."""
        ones, first_at = _numbered(first)
        twos, second_at = _numbered(second)
        pairs = first_at * len(twos) + second_at
        ids = np.zeros(len(ones) * len(twos), np.int64)
        for pair in np.flatnonzero(np.bincount(pairs, minlength=len(ids))).tolist():
            one, two = ones[pair // len(twos)], twos[pair % len(twos)]
            ids[pair] = self._strings.add(self._names.get((one, two), f"metric {two}"))
        return pa.array(ids[pairs])


def _numbered(values: Any) -> tuple[list[int], Any]:
    """The distinct numbers of an array, and for each element which of them it is."""
    encoded = pc.dictionary_encode(pa.array(values))
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


def _floats(values: Any) -> Any:
    return (
        pc.cast(values, pa.float64(), safe=False)
        if not pa.types.is_string(values.type)
        else nulls(len(values), pa.float64())
    )
