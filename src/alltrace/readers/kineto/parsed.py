"""The one pass over a trace: every event into its table, on disk."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.readers.base import ReportWarning
from alltrace.readers.kineto.communication import Communication
from alltrace.readers.kineto.counters import Counters
from alltrace.readers.kineto.entities import Entities
from alltrace.readers.kineto.events import Block, Scanner
from alltrace.readers.kineto.identity import TABLES, Facts, Process
from alltrace.readers.kineto.names import Names
from alltrace.readers.kineto.tables import Tables
from alltrace.readers.kineto.text import Text
from alltrace.readers.spool import Spool, record_batch
from alltrace.trace.errors import printable

_MOST_CATEGORIES = 5


class _Process:
    """What the events of one process are made into."""

    def __init__(self, known: Names, facts: Facts, number: int, process: Process, before: Entities | None) -> None:
        self._number = number
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
        self.counters.add(block, self.tables.places["counters"], self.tables.places["launches"])

    def finish(self, metadata: dict[str, Any]) -> None:
        """Take the metadata of the whole trace, of which a merged one has that of some rank."""
        self.metadata.update(metadata)
        about = self.metadata.get("distributedInfo")
        if self._pids and isinstance(about, dict):
            self.metadata["distributedInfo"] = {**about, "rank": self._rank}
        self.entities.describe(self.metadata.get("deviceProperties"))

    def whole(self) -> Iterator[tuple[str, Any]]:
        """The tables that are made of all events together."""
        for table, batch in (("collectives", self.communication.batch()), ("kernel_counters", self.counters.batch())):
            if batch is not None:
                yield table, record_batch(table, self._owned(dict(zip(batch.schema.names, batch.columns, strict=True))))

    def _owned(self, columns: dict[str, Any]) -> dict[str, Any]:
        return {**columns, "process": np.full(len(columns["process"]), self._number, np.int32)} if self._number else columns


class Parsed:
    """A trace with its rows read, table by table."""

    def __init__(self, path: Path, facts: Facts, processes: Sequence[Process]) -> None:
        self._spool = Spool()
        try:
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
                self._unknown[category] = [a + b for a, b in zip(self._unknown.get(category, (0, 0)), counts, strict=True)]
            self._left_out = {
                "events left out because their start or duration is missing, 0 or not a number": sum(t.timeless for t in tables),
                "events left out because they begin and do not end (`ph` is B)": sum(t.begun for t in tables),
                "events that name a group of size 0; its size is that of its list of ranks": sum(t.memberless for t in tables),
            }
            if not scanner.scan.whole and not scanner.array_closed:
                self._broken = max(0, self._broken - 1)  # the last event of a trace that is cut short
            self._whole: dict[str, list[Any]] = {"collectives": [], "kernel_counters": []}
            for one in self._processes:
                one.finish(scanner.scan.metadata)  # the pass also reads the metadata after the events
                for table, batch in one.whole():
                    self._whole[table].append(batch)
                self._broken += one.counters.broken
            self._spool.finish()
        except BaseException:
            self._spool.close()
            raise

    def batches(self, table: str) -> Iterator[Any]:
        """The rows of a canonical table."""
        if table in self._whole:
            yield from self._whole[table]
            return
        for columns in self._spool.read(table):
            yield record_batch(table, columns)

    def dictionaries(self) -> dict[str, Any]:
        """The dictionaries of all rows."""
        made = [one.entities.tables(self._names) for one in self._processes]
        joined = {name: pa.concat_tables([tables[name] for tables in made]) for name in made[0]}
        return {**joined, "names": self._names.table()}

    def warnings(self) -> tuple[ReportWarning, ...]:
        """What was left out of the tables."""
        found = []
        if self._goes_on:
            text = "the file goes on after the end of its JSON: what follows is not read; make a file of each trace"
            found.append(ReportWarning(text, TABLES))
        left_out = {
            "events left out because they are not valid JSON (an escape or a quote may be at fault)": self._broken,
            **self._left_out,
        }
        found += [ReportWarning(text, TABLES, count) for text, count in left_out.items() if count]
        for category, (work, left) in heapq.nlargest(_MOST_CATEGORIES, self._unknown.items(), key=lambda item: sum(item[1])):
            of = f"events of the unknown category `{printable(category)[:80]}`" if category else "events without a category"
            if work:
                found.append(ReportWarning(f"{of}, read as kernels because they have a device and a stream", TABLES, work))
            if left:
                found.append(ReportWarning(f"{of}, left out because they have no device and no stream", TABLES, left))
        return tuple(found)

    def close(self) -> None:
        """Remove the rows."""
        self._spool.close()
