"""Opens a Paraver trace that alltrace wrote as canonical tables: its kernels, copies, calls and ranges, at their times.

What the format does not carry stays null: contexts, sequence numbers of collectives on the host, thread ids. Names are
labels: one line, without control characters; calls have lost their version. For two pieces of work that begin together
on one stream, it does not state which call launched which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.core import paraver as core
from alltrace.core.paraver import CHANGES, PUNCTUAL
from alltrace.readers.base import Report
from alltrace.readers.paraver import labels as ev
from alltrace.readers.paraver.identity import TABLES, Facts, beside, look_at, report_of
from alltrace.readers.paraver.labels import EventType
from alltrace.readers.paraver.parsing import Lines, read_lines
from alltrace.readers.spool import NameIds, Pass, SpooledReader, dictionary_tables, strict
from alltrace.trace import schema
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.mpi_sizes import message_of_buffers

# The one pass over a Paraver trace of ours: every interval into its table, on disk.

CALL_SLOT, LAST_WORK = 0, 4
_KEPT = {
    ev.MEMORY_BYTES: "bytes", ev.GRAPH_ID: "graph", ev.GRAPH_EXEC: "graph_exec", ev.MPI_SENT: "sent",
    ev.MPI_RECEIVED: "received", ev.CORRELATION: "correlation",
    **{number: column for number, (column, _) in ev.GEOMETRY.items()},
}  # fmt: skip
"""Types that go with others, and what their values are."""
_NVTX = "NVTX "
_DEFAULT = f"NVTX {ev.DEFAULT_DOMAIN}"
_DEPTHS = range(ev.DEPTH, ev.NIC_METRICS)

_OPEN = 1 << 12
_GPU = ("kernels", "copies", "graphs")
_MOST = {"int32": 2**31 - 1, "int64": 2**63 - 1}
_COPIES = {label: kind for kind, (_, label) in ev.COPIES.items()}


class Parsed(Pass):
    """A trace with its rows read, table by table."""

    def __init__(self, path: Path, facts: Facts, advance: Callable[[int], None]) -> None:
        self._facts = facts
        self._names = NameIds()
        self._known = _slots_of(ev.read_pcf(beside(path, ".pcf")))
        self._devices: dict[tuple[int, int], int] = {}
        self._streams = [t.ordinal is not None for t in facts.threads]
        self._device_of = np.full(len(facts.threads), -1, np.int64)
        tasks = np.array([t.task for t in facts.threads], np.int64)
        self._tasks = tasks
        self._first = np.searchsorted(tasks, np.arange(len(facts.ranks) + 1)).astype(np.int64)
        super().__init__(advance)
        with self._filled():
            self._read(path)

    def _read(self, path: Path) -> None:
        tables = self._known
        slots = tables.slots
        threads = len(self._facts.threads)
        heads, waiting = np.full((threads, len(slots)), -1, np.int64), np.full((threads, 2), -1, np.int64)
        places = _places(_OPEN)
        depths = np.zeros((threads, len(slots)), np.int64)
        counters = np.zeros(4, np.int64)
        kinds = np.array([s.kind for s in slots], np.int64)
        for lines in read_lines(path)[1]:
            self._note_devices(lines)
            out = np.full((len(lines.values) // 2 + 1, core.OTHERS + len(_KEPT)), -1, np.int64)
            counters[core.ROWS] = 0
            line = 0
            while True:
                line = core.pair(
                    line, lines.values, lines.offsets, lines.wrong, self._first, tables.types, tables.slot_of, kinds,
                    tables.place_of, heads, waiting, depths, places, out, counters, ev.LENGTH, CALL_SLOT, LAST_WORK,
                    ev.TAG_KERNEL,
                )  # fmt: skip
                if line == len(lines.wrong):
                    break
                more = _places(len(places), len(places))
                more[-1, core.OPEN_BELOW] = counters[core.FREE]
                counters[core.FREE] = len(places)
                places = np.concatenate((places, more))
            self._keep(out[: counters[core.ROWS]])

    def _note_devices(self, lines: Lines) -> None:
        """On which GPU each stream is, by the first record of it."""
        sizes = np.diff(lines.offsets)
        rows = lines.offsets[:-1][(sizes >= 8) & ~lines.wrong]
        kind, cpu, task, thread = (lines.values[rows + n] for n in (0, 1, 3, 4))
        whole = (
            (kind <= 2)
            & (cpu > 0)
            & (cpu <= len(self._facts.cpus))
            & (task > 0)
            & (task < len(self._first))
            & (thread > 0)
        )
        at = self._first[task[whole] - 1] + thread[whole] - 1
        cpu = cpu[whole]
        inside = at < len(self._tasks)
        places, first = np.unique(at[inside], return_index=True)
        for place, number in zip(places.tolist(), cpu[inside][first].tolist(), strict=True):
            ordinal = self._facts.threads[place].ordinal
            if ordinal is not None and self._device_of[place] < 0:
                self._device_of[place] = self._devices.setdefault((number, ordinal), len(self._devices))

    def _device(self, places: Int64) -> Int64:
        for place in np.unique(places[self._device_of[places] < 0]).tolist():
            ordinal = self._facts.threads[place].ordinal
            self._device_of[place] = self._devices.setdefault(
                (0, -1 if ordinal is None else ordinal), len(self._devices)
            )
        devices: Int64 = self._device_of[places]
        return devices

    def _keep(self, rows: Int64) -> None:
        for number in np.unique(rows[:, core.SLOT]).tolist():
            slot = self._known.slots[number]
            mine = np.ascontiguousarray(rows[rows[:, core.SLOT] == number].T)
            self._spool.append(slot.table, strict(slot.table, self._columns(slot, mine)))

    def _columns(self, slot: _Slot, rows: Int64) -> dict[str, Any]:
        places = rows[core.THREAD]
        values, inverse = np.unique(rows[core.VALUE], return_inverse=True)
        texts = [slot.values.get(v, f"value {v}") for v in values.tolist()]
        details = {name: rows[core.OTHERS + n] for n, name in enumerate(_KEPT.values())}
        columns: dict[str, Any] = {"process": self._tasks[places]}
        if slot.table == "marks":
            columns["time"] = rows[core.BEGIN]
        else:
            columns |= {"start": rows[core.BEGIN], "end": rows[core.END]}
        if slot.table in (*_GPU, "api"):
            columns["correlation"] = _known(
                np.where(details["correlation"] > 0, details["correlation"], rows[core.CALL]), 1
            )
        if slot.table in _GPU:
            columns["device"] = self._device(places)
            streams = np.array([-1 if t.stream is None else t.stream for t in self._facts.threads], np.int64)
            columns["stream"] = _known(streams[places])
        else:
            columns["thread"] = places
        if slot.table == "copies":
            columns["kind"] = (
                pa.array([_COPIES.get(t, "unknown") for t in texts]).dictionary_encode().take(pa.array(inverse))
            )
            columns["bytes"] = _known(details["bytes"])
        elif slot.table == "graphs":
            columns |= {c: _known(details[c]) for c in ("graph", "graph_exec")}
        else:
            ids = [None if t == ev.NO_NAME else self._names.add(t) for t in texts]
            names = pa.array(ids, pa.int64()).take(pa.array(inverse))
            columns["name"] = names
            if slot.table == "kernels":
                columns["short_name"] = names
                columns |= {
                    c: _known(details[c], most=_MOST[schema.TABLES["kernels"].column(c).type])
                    for c, _ in ev.GEOMETRY.values()
                }
            word = self._word(slot, texts)
            if word is not None:
                columns["kind"] = pa.array(word).dictionary_encode().take(pa.array(inverse))
        if slot.table == "ranges" and slot.word is not None:
            columns["domain"] = pa.array(np.full(len(places), self._names.add(slot.word)))
        if slot.table == "mpi":
            size = message_of_buffers(integers(columns["name"], -1), details["sent"], details["received"])
            columns |= {
                "bytes": _known(size),
                "sent_bytes": _known(details["sent"]),
                "recv_bytes": _known(details["received"]),
            }
        return columns

    @staticmethod
    def _word(slot: _Slot, texts: list[str]) -> list[str] | None:
        """The `kind` of rows with these names."""
        if slot.table == "api":
            return ["driver" if t[:2] == "cu" and t[2:3].isupper() else "runtime" for t in texts]
        if slot.table == "ranges":
            return ["pushpop" if slot.kind == core.CHANGES else "startend"] * len(texts)
        if slot.table == "mpi":
            return ["start-wait" if slot.word == "p2p" and "Wait" in t else slot.word or "other" for t in texts]
        return [slot.word or "other"] * len(texts) if slot.table == "openacc" else None

    def dictionaries(self) -> dict[str, Any]:
        """The dictionaries of all rows."""
        facts = self._facts
        processes = [{"process": n, "pid": pid} for n, (_, pid) in enumerate(facts.ranks)]
        threads = [
            {"thread": place, "process": t.task, "name": self._names.add(t.name) if t.name else None}
            for place, t in enumerate(facts.threads)
            if not self._streams[place]
        ]
        streams = [{"process": t.task, "stream": t.stream} for t in facts.threads if t.stream is not None]
        devices = [
            {"device": row, "ordinal": max(ordinal, 0), "gpu": max(cpu - 1, 0), "uuid": self._uuid(cpu)}
            for (cpu, ordinal), row in self._devices.items()
        ]
        return dictionary_tables(
            {"processes": processes, "threads": threads, "streams": streams, "devices": devices}, self._names
        )

    def _uuid(self, cpu: int) -> str | None:
        """What the trace calls a GPU, less its host's name."""
        if not 0 < cpu <= len(self._facts.cpus):
            return None
        label = self._facts.cpus[cpu - 1]
        host = next(
            (h for h in sorted(set(self._facts.hosts), key=len, reverse=True) if label.startswith(f"{h}.")), None
        )
        name = label if host is None else label[len(host) + 1 :]
        return None if name.startswith("ordinal ") or name == "no GPU" else name


def _places(count: int, first: int = 0) -> Int64:
    """Free places, each linked to the one after it."""
    places = np.full((count, core.OPEN_OTHERS + len(_KEPT)), -1, np.int64)
    places[:-1, core.OPEN_BELOW] = np.arange(first + 1, first + count)
    return places


def _known(values: Int64, least: int = 0, most: int = 2**63 - 1) -> Any:
    """Numbers as an Arrow array, those below `least` or above `most` as null."""
    return pa.array(values, mask=(values < least) | (values > most))


@dataclass(frozen=True)
class _Slot:
    """One kind of interval."""

    table: str  # the table its rows belong to
    word: str | None = None  # what the row's `kind` is, or its domain; None if the name determines it or there is none
    values: dict[int, str] = field(default_factory=dict)  # the label of each value
    kind: int = 0  # of intervals 0, else `PUNCTUAL` or `CHANGES` of `alltrace.core.paraver`


@dataclass(frozen=True)
class _Slots:
    """The slots of a trace, and for each known type, ascending, its slot and its place among `KEPT`, -1 for none."""

    slots: tuple[_Slot, ...]
    types: NDArray[np.int64]
    slot_of: NDArray[np.int64]
    place_of: NDArray[np.int64]


def _slots_of(events: Iterable[EventType]) -> _Slots:
    """The slots of a trace with these types; types that are not known are left out."""
    labels = {n: (ev.our_label(label), ev.our_values(label, e.values)) for e in events for n, label in e.types.items()}
    named = {label: n for n, (label, _) in labels.items()}
    wanted = [
        (ev.CALL, "api", None), (ev.KERNEL, "kernels", None), (named.get("NCCL kernel", -1), "kernels", None),
        (ev.MEMORY_OP, "copies", None), (named.get("CUDA graph", -1), "graphs", None),
        (ev.MPI_P2P, "mpi", "p2p"), (ev.MPI_COLLECTIVE, "mpi", "collective"), (ev.MPI_REST, "mpi", "other"),
        (ev.OPENACC_OTHER, "openacc", "other"), (ev.OPENACC_DATA, "openacc", "data"),
        (ev.OPENACC_LAUNCH, "openacc", "launch"), (ev.OPENMP, "openmp", None), (ev.OSRT, "osrt", None),
        (ev.UCX, "ucx", None), (ev.SYSCALL, "syscalls", None), (ev.RANGE_STARTEND, "ranges", None),
        (ev.MARK, "marks", None),
    ]  # fmt: skip
    slots = [
        _Slot(table, word, labels.get(n, ("", {}))[1], PUNCTUAL if n == ev.MARK else 0) for n, table, word in wanted
    ]
    slot_of = {n: slot for slot, (n, _, _) in enumerate(wanted) if n >= 0}
    for number, (label, values) in labels.items():
        if label.startswith(_NVTX) and number not in slot_of and number not in _DEPTHS:
            slot_of[number] = len(slots)
            slots.append(_Slot("ranges", label.removeprefix(_NVTX) if label != _DEFAULT else None, values, CHANGES))
    place_of = {number: place for place, number in enumerate(_KEPT)}
    types = sorted({*slot_of, *place_of})
    return _Slots(
        tuple(slots),
        np.array(types, np.int64),
        np.array([slot_of.get(n, -1) for n in types], np.int64),
        np.array([place_of.get(n, -1) for n in types], np.int64),
    )


class ParaverReader(SpooledReader):
    """A Paraver trace of ours, opened; see `alltrace.readers.base.ReportReader`."""

    plain, packing, event_bytes = ".prv", 6, 130

    def __init__(self, path: Path) -> None:
        super().__init__(path, TABLES)
        self._facts = look_at(path)
        self.report: Report = report_of(path, self._facts)

    def _read(self) -> Parsed:
        return Parsed(self._path, self._facts, self.advance)


def open_report(path: Path) -> ParaverReader:
    """Open a trace with its .pcf and .row. Raises `InputError`: it is damaged, not by alltrace, or not complete."""
    return ParaverReader(path)
