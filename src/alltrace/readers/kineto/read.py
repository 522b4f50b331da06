"""Opens a trace of the PyTorch profiler as canonical tables, in one pass and bounded memory."""

import heapq
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.core.kineto import NOTHING
from alltrace.readers.base import Report, ReportProcess, ReportWarning
from alltrace.readers.kineto.communication import Communication
from alltrace.readers.kineto.entities import Entities
from alltrace.readers.kineto.events import Block, Scanner
from alltrace.readers.kineto.identity import (
    EXPECTED,
    OF_CAPTURE,
    TABLES,
    Facts,
    Process,
    is_of_capture,
    look_at_all,
    look_at_head,
    processes_of,
    report_of,
)
from alltrace.readers.kineto.names import Names
from alltrace.readers.kineto.tables import Tables, whole
from alltrace.readers.spool import Pass, Spool, SpooledReader, chosen_rows, record_batch
from alltrace.readers.text import Text
from alltrace.trace.errors import InputError, printable

# The one pass over a trace: every event into its table, on disk.

# Counters of kernels, as CUPTI's range profiler measures them: one event per kernel, with metrics as arguments. The
# profiler knows the order of these kernels and not their times: it divides the capture evenly among them
# (`CuptiRangeProfiler.cpp` in pytorch/kineto). If one device was measured and as many calls launched kernels, the calls
# have the times.

_FIELDS = ("ts", "pid", "name", "arguments")


class Counters:
    """Collects these events, which `batch` joins with the calls that launch kernels; `broken`: unreadable arguments."""

    def __init__(self, known: Names, entities: Entities, zero_ns: int) -> None:
        self.broken: int = 0
        self._names = known
        self._entities = entities
        self._zero_ns = zero_ns
        self._kernels: list[Any] = []

    def add(self, block: Block, counters: Any) -> None:
        """Take what a block has: the indexes of these events."""
        if len(counters):
            self._kernels.append(np.stack([block[f][counters] for f in _FIELDS]))

    def batch(self, calls: Iterable[dict[str, Any]]) -> Any:
        """The rows of `kernel_counters`; None if the trace has no such event. `calls`: those that may launch some."""
        if not self._kernels:
            return None
        kernels = _sorted(dict(zip(_FIELDS, np.concatenate(self._kernels, axis=1), strict=True)))
        count = len(kernels["ts"])
        its = chosen_rows(calls, lambda some: self._names.classes("launches", launches_kernel, some["name"]) == 1)
        launches = None if its is None else _sorted(its)
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
            values = json.loads(self._names.text(code), strict=False) if code != NOTHING else None
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            self.broken += 1
            return []
        return [
            (name.encode("utf-8", "replace").decode(), float(value))
            for name, value in values.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf
        ]


def launches_kernel(call: str) -> int:
    """1 for a call that launches one kernel, like `cudaLaunchKernel` and `cuLaunchKernelEx`."""
    return int("Launch" in call and "Kernel" in call and "HostFunc" not in call and "MultiDevice" not in call)


def _sorted(events: dict[str, Any]) -> dict[str, Any]:
    order = np.argsort(events["ts"], kind="stable")
    return {name: values[order] for name, values in events.items()}


_MOST_CATEGORIES = 5
_LAUNCH_FIELDS = ("ts", "dur", "pid", "tid", "correlation", "external", "name")


class _Process:
    """What the events of one process are made into."""

    def __init__(self, known: Names, facts: Facts, number: int, process: Process, before: Entities | None) -> None:
        self._number = number
        self._launches = f"launches of {number}"
        self._pids = process.pids
        self.metadata = {**facts.metadata}
        self._own_pids = np.array([facts.own_pids.get(pid, pid) for pid in process.pids], np.int64)
        self._rank = process.rank
        self.entities = Entities(process.pid, number, before)
        self.communication = Communication(known, self.entities, facts.zero_ns, self.metadata)
        self.counters = Counters(known, self.entities, facts.zero_ns)
        self.tables = Tables(known, self.entities, facts.zero_ns, facts.first_time_ns, by_external=facts.by_external)

    def add(self, block: Block, spool: Spool) -> None:
        if self._pids:
            rows = np.flatnonzero(np.isin(block["pid"], self._pids))
            block = Block(block.values[:, rows], block.first)
            block["pid"][:] = self._own_pids[np.searchsorted(self._pids, block["pid"])]
        for table, columns in self.tables.batches(block):
            spool.append(table, self._owned(columns))
        self.communication.add(block, self.tables.places)
        self.counters.add(block, self.tables.places["counters"])
        if len(launches := self.tables.places["launches"]):  # any of them may be what a later kernel is joined with
            spool.append(self._launches, {field: block[field][launches] for field in _LAUNCH_FIELDS})

    def finish(self, metadata: dict[str, Any]) -> None:
        """Take the metadata of the whole trace, of which a merged one has that of some rank."""
        self.metadata.update(metadata)
        about = self.metadata.get("distributedInfo")
        if self._pids and isinstance(about, dict):
            self.metadata["distributedInfo"] = {**about, "rank": self._rank}
        self.entities.describe(self.metadata.get("deviceProperties"))

    def whole(self, spool: Spool) -> Iterator[tuple[str, Any]]:
        """The tables that are made of all events together."""
        for table, of in (("collectives", self.communication), ("kernel_counters", self.counters)):
            if (batch := of.batch(spool.read(self._launches))) is not None:
                yield table, record_batch(table, self._owned(dict(zip(batch.schema.names, batch.columns, strict=True))))
        spool.remove(self._launches)

    def _owned(self, columns: dict[str, Any]) -> dict[str, Any]:
        return (
            {**columns, "process": np.full(len(columns["process"]), self._number, np.int32)}
            if self._number
            else columns
        )


class Parsed(Pass):
    """A trace with its rows read, table by table."""

    def __init__(self, path: Path, facts: Facts, processes: Sequence[Process], advance: Callable[[int], None]) -> None:
        super().__init__(advance)
        with self._filled():
            with closing(Text(path)) as text:
                scanner = Scanner(text)
                self._names = Names(scanner.scan.texts)
                self._processes: list[_Process] = []
                for number, process in enumerate(processes):
                    before = self._processes[0].entities if number else None
                    self._processes.append(_Process(self._names, facts, number, process, before))
                for block in scanner.blocks():
                    for one in self._processes:
                        one.add(block, self._spool)
                self._goes_on = scanner.scan.whole and scanner.goes_on()
            self._broken = scanner.scan.broken
            tables = [one.tables for one in self._processes]
            self._unknown: dict[str, list[int]] = {}
            for category, counts in (item for one in tables for item in one.unknown.items()):
                self._unknown[category] = [
                    a + b for a, b in zip(self._unknown.get(category, (0, 0)), counts, strict=True)
                ]
            self._left_out = {
                "events left out because their start or duration is missing, 0 or not a number": sum(
                    t.timeless for t in tables
                ),
                "events left out because they begin and do not end (`ph` is B)": sum(t.begun for t in tables),
                "events that name a group of size 0; its size is that of its list of ranks": sum(
                    t.memberless for t in tables
                ),
            }
            if not scanner.scan.whole and not scanner.array_closed:
                self._broken = max(0, self._broken - 1)  # the last event of a trace that is cut short
            self._spool.finish()
            self._whole: dict[str, list[Any]] = {"collectives": [], "kernel_counters": []}
            for one in self._processes:
                one.finish(scanner.scan.metadata)  # the pass also reads the metadata after the events
                for table, batch in one.whole(self._spool):
                    self._whole[table].append(batch)
                self._broken += one.counters.broken

    def batches(self, table: str) -> Iterator[Any]:
        """The rows of a canonical table."""
        yield from self._whole.get(table) or super().batches(table)

    def dictionaries(self) -> dict[str, Any]:
        """The dictionaries of all rows."""
        tables_of = [one.entities.tables(self._names) for one in self._processes]
        joined = {name: pa.concat_tables([tables[name] for tables in tables_of]) for name in tables_of[0]}
        return {**joined, "names": self._names.table()}

    def warnings(self) -> tuple[ReportWarning, ...]:
        """What was left out of the tables."""
        warnings = []
        if self._goes_on:
            text = "the file goes on after the end of its JSON: what follows is not read; make a file of each trace"
            warnings.append(ReportWarning(text, TABLES))
        left_out = {
            "events left out because they are not valid JSON (an escape or a quote may be at fault)": self._broken,
            **self._left_out,
        }
        warnings += [ReportWarning(text, TABLES, count) for text, count in left_out.items() if count]
        for category, (work, left) in heapq.nlargest(
            _MOST_CATEGORIES, self._unknown.items(), key=lambda item: sum(item[1])
        ):
            of = (
                f"events of the unknown category `{printable(category)[:80]}`"
                if category
                else "events without a category"
            )
            if work:
                warnings.append(
                    ReportWarning(f"{of}, read as kernels because they have a device and a stream", TABLES, work)
                )
            if left:
                warnings.append(
                    ReportWarning(f"{of}, left out because they have no device and no stream", TABLES, left)
                )
        return tuple(warnings)


class KinetoReader(SpooledReader):
    """A trace of the PyTorch profiler, opened; see `alltrace.readers.base.ReportReader`."""

    def __init__(self, path: Path, known: Sequence[ReportProcess] = ()) -> None:
        super().__init__(path, OF_CAPTURE if is_of_capture(path) else TABLES)
        self._facts = look_at_head(path)
        if len(known) > 1:
            self._facts = look_at_all(path, self._facts)

    @cached_property
    def report(self) -> Report:
        """The identity of the trace; looks at more of it than opening does."""
        facts = look_at_all(self._path, self._facts)
        if facts.merged:
            self._facts = facts
        return report_of(self._path, facts)

    def _read(self) -> Parsed:
        return Parsed(self._path, self._facts, processes_of(self._path, self._facts), self.advance)


def open_report(path: Path, known: Sequence[ReportProcess] = ()) -> KinetoReader:
    """Open a trace; `known`: its processes, if opened before and merged. Raises `InputError`: damaged, or no trace."""
    try:
        return KinetoReader(path, known)
    except OSError as error:
        raise InputError.cannot_be("read", path, error, expected=EXPECTED) from error
