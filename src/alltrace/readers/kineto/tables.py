"""Makes batches of the canonical tables from blocks of events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.core.kineto import NOTHING
from alltrace.readers.kineto import categories, names
from alltrace.readers.kineto.entities import Entities
from alltrace.readers.kineto.events import Block
from alltrace.trace.distinct import distinct_rows

_VALUED = ("conv", "attention", "attn")
"""Parts of names of operators that keep arguments other than tensors: strides, groups, whether a mask is causal."""
_PAYLOAD = (
    ("dims", "Input Dims", False), ("types", "Input type", False), ("values", "Concrete Inputs", False),
    ("hierarchy", "Module Hierarchy", True), ("stack", "Call stack", True), ("strides", "Input Strides", False),
)  # fmt: skip
"""Field, name in the payload, and whether it is a string there; the others are JSON values."""

_INT32 = (-(2**31), 2**31 - 1)
_NO_STREAM = 0xFFFF_FFFF


class Tables:
    """Turns blocks into batches with the columns that a trace can fill; `timeless`: events left out for lack of a time.

    `unknown`: by category that is not known, events read as device work, and not read. `places`: where in the last
    block its kernels, calls that may have launched some, operators, annotations and counters of kernels are.
    """

    def __init__(
        self,
        known: names.Names,
        entities: Entities,
        zero_ns: int,
        first_ns: int | None = None,
        *,
        by_external: bool = False,
    ) -> None:
        self.timeless: int = 0
        self.begun: int = 0
        self.memberless: int = 0
        self.unknown: dict[str, list[int]] = {}
        self.places: dict[str, Any] = {}
        self._names = known
        self._entities = entities
        self._zero_ns = zero_ns
        self._first_ns = NOTHING if first_ns is None else first_ns
        self._by_external = by_external
        self._payloads: dict[tuple[int, ...], str | None] = {}
        self._domains = {categories.OPERATOR: known.add("cpu_op"), categories.PYTHON: known.add("python_function")}

    def batches(self, block: Block) -> Iterator[tuple[str, dict[str, Any]]]:
        """The rows of each table, as columns, of the events of a block that are intervals."""
        role = self._names.classes("role", names.role, block["cat"], categories.OTHER)
        phase = self._names.classes("ph", lambda t: "?XB".find(t), block["ph"])
        whole = phase == 1
        self.begun += int(((phase == 2) & (role != categories.OTHER)).sum())
        self.memberless += int((block["group_size"] == 0).sum())
        self._entities.note_names(block, self._names)
        role = np.where(whole, role, categories.OTHER)
        odd = np.flatnonzero(whole & (role == categories.OTHER))
        odd = odd[self._names.classes("unknown", lambda t: int(categories.is_unknown(t)), block["cat"][odd]) == 1]
        if len(odd):
            role = self._with_unknown(block, role, odd)
        modules = role == categories.PYTHON
        if modules.any():
            chosen = self._names.classes("module", names.is_module, np.where(modules, block["name"], NOTHING)) == 1
            role = np.where(modules & ~chosen, categories.FRAME, role)
        timeless = (role != categories.OTHER) & ((block["ts"] <= self._first_ns) | (block["dur"] == NOTHING))
        if timeless.any():
            self.timeless += int(timeless.sum())
            role = np.where(timeless, categories.OTHER, role)
        self.places = {
            "kernels": np.flatnonzero(role == categories.KERNEL),
            "launches": np.flatnonzero((role == categories.RUNTIME) | (role == categories.DRIVER)),
            "operators": np.flatnonzero(role == categories.OPERATOR),
            "annotations": np.flatnonzero(role == categories.ANNOTATION),
            "counters": np.flatnonzero(role == categories.COUNTERS),
        }
        blocks = np.flatnonzero(block["size"] != NOTHING)
        blocks = blocks[self._names.classes("memory", lambda t: int(t == "[memory]"), block["name"][blocks]) == 1]
        if len(blocks):
            untimed = block["ts"][blocks] <= self._first_ns
            self.timeless += int(untimed.sum())
            yield "allocations", self._allocations(Picked(block, blocks[~untimed]))
        for table, roles in (
            ("kernels", (categories.KERNEL,)),
            ("copies", (categories.COPY, categories.FILL)),
            ("api", (categories.RUNTIME, categories.DRIVER)),
            ("syncs", (categories.WAIT,)),
            ("ranges", (categories.ANNOTATION, categories.OPERATOR, categories.PYTHON)),
            ("frames", (categories.FRAME,)),
            ("overheads", (categories.OVERHEAD,)),
        ):
            rows = np.flatnonzero(np.isin(role, roles))
            if len(rows):
                yield table, getattr(self, f"_{table}")(Picked(block, rows), role[rows])

    def _with_unknown(self, block: Block, role: Any, rows: Any) -> Any:
        """The roles; events of unknown categories with a device and a stream are kernels, and are counted."""
        work = (block["device"][rows] >= 0) & (block["stream"][rows] != NOTHING)
        for code in np.unique(block["cat"][rows]).tolist():
            own = block["cat"][rows] == code
            counts = self.unknown.setdefault("" if code == NOTHING else self._names.text(code), [0, 0])
            counts[0] += int((own & work).sum())
            counts[1] += int((own & ~work).sum())
        role = role.copy()
        role[rows[work]] = categories.KERNEL
        return role

    def _times(self, events: Picked) -> dict[str, Any]:
        start = events["ts"] - self._zero_ns
        return {"start": start, "end": start + events["dur"]}

    def _on_gpu(self, events: Picked) -> dict[str, Any]:
        stream = _or(events["stream"], events["tid"])
        return {
            **self._times(events),
            "process": np.zeros(events.count, np.int32),
            "device": self._entities.devices(_or(events["device"], self._entities.device_ids(events["pid"]))),
            "context": narrow(events["context"]),
            "stream": masked(stream, (stream < 0) | (stream >= _NO_STREAM)),
            "correlation": whole(self._correlation(events)),
        }

    def _correlation(self, events: Picked) -> Any:
        """What joins work with the call that launched it."""
        return _or(events["correlation"], events["external"]) if self._by_external else events["correlation"]

    def _on_host(self, events: Picked) -> dict[str, Any]:
        return {
            **self._times(events),
            "process": np.zeros(events.count, np.int32),
            "thread": self._entities.threads(events["pid"], events["tid"]),
        }

    def _kernels(self, events: Picked, _role: Any) -> dict[str, Any]:
        sizes = {
            f"{what}_{axis}": narrow(events.at(what, n)) for what in ("grid", "block") for n, axis in enumerate("xyz")
        }
        return {
            **self._on_gpu(events),
            "name": self._names.ids(events["name"]),
            "short_name": self._names.short_ids(events["name"]),
            **sizes,
            "registers": narrow(events["registers"]),
            "shared_memory": narrow(events["shared"]),
            "occupancy_percent": narrow(events["occupancy"]),
            # 0 is what the profiler writes if there is no graph
            "graph_node": masked(events["graph_node"], events["graph_node"] <= 0),
            "graph": masked(events["graph"], events["graph"] <= 0),
        }

    def _copies(self, events: Picked, role: Any) -> dict[str, Any]:
        called = events["name"]
        kind = self._names.classes("copy", names.copy_kind, called, names.COPY_KINDS.index("unknown"))
        kind = np.where(role == categories.FILL, names.COPY_KINDS.index("memset"), kind)
        return {
            **self._on_gpu(events),
            "kind": words(kind, names.COPY_KINDS),
            "bytes": whole(events["bytes"]),
            "src_kind": words(self._names.classes("from", names.from_memory, called, -2), names.MEMORY_KINDS),
            "dst_kind": words(self._names.classes("to", names.to_memory, called, -2), names.MEMORY_KINDS),
            "graph_node": masked(events["graph_node"], events["graph_node"] <= 0),
        }

    def _api(self, events: Picked, role: Any) -> dict[str, Any]:
        return {
            **self._on_host(events),
            "correlation": whole(self._correlation(events)),
            "name": self._names.ids(events["name"]),
            "kind": words((role == categories.DRIVER).astype(np.int64), ("runtime", "driver")),
        }

    def _syncs(self, events: Picked, _role: Any) -> dict[str, Any]:
        kind = self._names.classes("sync", names.sync_kind, events["name"], names.SYNC_KINDS.index("unknown"))
        return {
            **self._on_gpu(events),
            "kind": words(kind, names.SYNC_KINDS),
            "event": masked(events["event"], events["event"] < 0),
            "record_correlation": masked(events["record"], events["record"] < 0),
            "record_stream": masked(events["record_stream"], events["record_stream"] < 0),
        }

    def _ranges(self, events: Picked, role: Any) -> dict[str, Any]:
        domain = np.zeros(events.count, np.int64)
        for of, key in self._domains.items():
            domain[role == of] = key
        return {
            **self._on_host(events),
            "domain": pa.array(domain, mask=role == categories.ANNOTATION),
            "name": self._names.ids(events["name"]),
            "kind": words(np.zeros(events.count, np.int64), ("pushpop",)),
            "payload": self._payload(events),
            "sequence": masked(events["autograd"], events["autograd"] < 0),
            "source_row": events.numbers,
        }

    def _frames(self, events: Picked, _role: Any) -> dict[str, Any]:
        return {**self._on_host(events), "name": self._names.ids(events["name"])}

    def _allocations(self, events: Picked) -> dict[str, Any]:
        size, kind, known = events["size"], events["device_type"], len(names.MEMORIES)
        other = (kind < 0) | (kind >= known)
        # a device that has no name here keeps its number, if it has one that can be
        numbers = np.unique(kind[other & (kind != NOTHING)]).tolist()
        kinds = (*names.MEMORIES, *(f"device {n}" for n in numbers))
        place = np.where(other, known + np.searchsorted(np.array(numbers, np.int64), kind), kind)
        return {
            "time": events["ts"] - self._zero_ns,
            "process": np.zeros(events.count, np.int32),
            "thread": self._entities.threads(events["pid"], events["tid"]),
            "device": self._entities.devices(np.where(kind == 0, -1, events["device_id"])),
            "memory": words(np.where(kind == NOTHING, -1, place), kinds),
            "kind": words((size < 0).astype(np.int64), ("allocate", "free")),
            "bytes": np.abs(size),
            "address": masked(events["address"], events["address"] <= 0),
            "allocated_bytes": masked(events["allocated"], events["allocated"] < 0),
            "reserved_bytes": masked(events["reserved"], events["reserved"] < 0),
            "source_row": events.numbers,
        }

    def _overheads(self, events: Picked, _role: Any) -> dict[str, Any]:
        return {
            **self._times(events),
            "process": np.zeros(events.count, np.int32),
            "thread": self._entities.threads(events["pid"], events["tid"]),
            "name": self._names.ids(events["name"]),
        }

    def _payload(self, events: Picked) -> Any:
        """What operators were called with, as JSON: shapes, types, strides, some arguments, module and stack."""
        given = [events[field] for field, _, _ in _PAYLOAD]
        if all((values == NOTHING).all() for values in given):
            return pa.nulls(events.count, pa.string())
        valued = self._names.classes("valued", lambda t: int(any(w in t for w in _VALUED)), events["name"]) == 1
        given[2] = np.where(valued, given[2], NOTHING)
        kinds, places = distinct_rows(*given)
        texts: list[str | None] = []
        for kind in kinds.T.tolist():
            key = tuple(kind)
            if key not in self._payloads:
                members = [self._member(*field, code) for field, code in zip(_PAYLOAD, key, strict=True)]
                written = ", ".join(m for m in members if m)
                self._payloads[key] = f"{{{written}}}" if written else None
            texts.append(self._payloads[key])
        return pa.array(texts, pa.string()).take(pa.array(places))

    def _member(self, _field: str, name: str, quoted: bool, code: int) -> str:
        """One member of a payload; empty if the event has none."""
        text = self._names.text(code) if code != NOTHING else ""
        if not text:
            return ""
        return f'"{name}": {json.dumps(text, ensure_ascii=False) if quoted else text}'


class Picked:
    """Some of the events of a block."""

    def __init__(self, block: Block, rows: Any) -> None:
        self._block = block
        self._rows = rows
        self.count = len(rows)

    def __getitem__(self, name: str) -> Any:
        return self._block[name][self._rows]

    def at(self, name: str, part: int) -> Any:
        """One number of a field with several."""
        return self._block.values[self._block.columns[name] + part][self._rows]

    def only(self, chosen: Any) -> Picked:
        """Those that an array of truths chooses."""
        return Picked(self._block, self._rows[chosen])

    @property
    def numbers(self) -> Any:
        """Their numbers in the trace, from 1."""
        return self._rows + self._block.first


def _or(values: Any, others: Any) -> Any:
    """The values, and the others where an event lacks them."""
    missing = values == NOTHING
    return np.where(missing, others, values) if missing.any() else values


def masked(values: Any, missing: Any) -> Any:
    """An Arrow array, null where values are missing."""
    return pa.array(values, mask=missing if missing.any() else None)


def whole(values: Any) -> Any:
    """An int64 array, null if the events lack the field."""
    return masked(values, values == NOTHING)


def narrow(values: Any) -> Any:
    """An int32 array, null if the events lack the field or it does not fit."""
    missing = (values < _INT32[0]) | (values > _INT32[1])
    return masked(np.where(missing, 0, values).astype(np.int32), missing)


def words(places: Any, known: tuple[str, ...]) -> Any:
    """An array of words by their places in `known`, null if negative."""
    missing = places < 0
    indices = pa.array(places.astype(np.int32), mask=missing if missing.any() else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array(known, pa.string()))
