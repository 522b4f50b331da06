"""The one pass over a trace: every event into its table, on disk."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from alltrace.readers.base import ReportWarning
from alltrace.readers.kineto.communication import Communication
from alltrace.readers.kineto.counters import Counters
from alltrace.readers.kineto.entities import Entities
from alltrace.readers.kineto.events import Scanner
from alltrace.readers.kineto.identity import TABLES, Facts
from alltrace.readers.kineto.names import Names
from alltrace.readers.kineto.tables import Tables
from alltrace.readers.kineto.text import Text
from alltrace.readers.spool import Spool, record_batch
from alltrace.trace.errors import printable

_MOST_CATEGORIES = 5


class Parsed:
    """A trace with its rows read, table by table."""

    def __init__(self, path: Path, facts: Facts) -> None:
        pid = facts.pids.most_common(1)[0][0] if facts.pids else 0
        self._spool = Spool()
        try:
            with closing(Text(path)) as text:
                scanner = Scanner(text)
                self._names = Names(scanner.scan.texts)
                self._entities = Entities(pid)
                # the pass also reads the metadata after the events
                metadata = {**facts.metadata}
                communication = Communication(self._names, self._entities, facts.zero_ns, metadata)
                counters = Counters(self._names, self._entities, facts.zero_ns)
                tables = Tables(self._names, self._entities, facts.zero_ns, facts.first_time_ns, by_external=facts.by_external)
                for block in scanner.blocks():
                    for table, columns in tables.batches(block):
                        self._spool.append(table, columns)
                    communication.add(block, tables.places)
                    counters.add(block, tables.places["counters"], tables.places["launches"])
                self._goes_on = scanner.scan.whole and scanner.goes_on()
                metadata.update(scanner.scan.metadata)
                self._entities.describe(metadata.get("deviceProperties"))
            self._broken, self._unknown = scanner.scan.broken, tables.unknown
            self._left_out = {
                "events left out because their start or duration is missing, 0 or not a number": tables.timeless,
                "events left out because they begin and do not end (`ph` is B)": tables.begun,
                "events that name a group of size 0; its size is that of its list of ranks": tables.memberless,
            }
            if not scanner.scan.whole and not scanner.array_closed:
                self._broken = max(0, self._broken - 1)  # the last event of a trace that is cut short
            self._whole = {"collectives": communication.batch(), "kernel_counters": counters.batch()}
            self._broken += counters.broken
            self._spool.finish()
        except BaseException:
            self._spool.close()
            raise

    def batches(self, table: str) -> Iterator[Any]:
        """The rows of a canonical table."""
        if table in self._whole:
            if self._whole[table] is not None:
                yield self._whole[table]
            return
        for columns in self._spool.read(table):
            yield record_batch(table, columns)

    def dictionaries(self) -> dict[str, Any]:
        """The dictionaries of all rows."""
        made = self._entities.tables(self._names)
        made["names"] = self._names.table()
        return made

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
