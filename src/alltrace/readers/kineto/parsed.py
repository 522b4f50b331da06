"""The one pass over a trace: every event into its table, on disk."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from alltrace.readers.kineto.communication import Communication
from alltrace.readers.kineto.entities import Entities
from alltrace.readers.kineto.events import Scanner
from alltrace.readers.kineto.names import Names
from alltrace.readers.kineto.tables import Tables
from alltrace.readers.kineto.text import Text
from alltrace.readers.spool import Spool, record_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from alltrace.readers.kineto.identity import Facts


class Parsed:
    """A trace whose rows lie ready, table by table."""

    def __init__(self, path: Path, facts: Facts) -> None:
        pid = facts.pids.most_common(1)[0][0] if facts.pids else 0
        self._spool = Spool()
        try:
            with closing(Text(path)) as text:
                scanner = Scanner(text)
                self._names = Names(scanner.scan.texts)
                self._entities = Entities(pid)
                # the pass reads what of the metadata stands behind the events as well
                metadata = {**facts.metadata}
                communication = Communication(self._names, self._entities, facts.zero_ns, metadata)
                tables = Tables(self._names, self._entities, facts.zero_ns)
                for block in scanner.blocks():
                    for table, columns in tables.batches(block):
                        self._spool.append(table, columns)
                    communication.add(block, tables.places)
                metadata.update(scanner.scan.metadata)
                self._entities.describe(metadata.get("deviceProperties"))
            self._broken, self._timeless, self._unknown = scanner.scan.broken, tables.timeless, tables.unknown
            if not scanner.scan.whole and not scanner.array_closed:
                self._broken = max(0, self._broken - 1)  # the last event of a trace that is cut short
            self._collectives = communication.batch()
            self._spool.finish()
        except BaseException:
            self._spool.close()
            raise

    def batches(self, table: str) -> Iterator[Any]:
        """The rows of a canonical table."""
        if table == "collectives":
            if self._collectives is not None:
                yield self._collectives
            return
        for columns in self._spool.read(table):
            yield record_batch(table, columns)

    def dictionaries(self) -> dict[str, Any]:
        """The dictionaries of all rows."""
        made = self._entities.tables(self._names)
        made["names"] = self._names.table()
        return made

    def warnings(self) -> tuple[str, ...]:
        """What was left out of the tables, each one sentence."""
        found = []
        if self._broken:
            found.append(f"{_events(self._broken)} no JSON (an escape or a quote may be at fault) and left out")
        if self._timeless:
            many = "one event has" if self._timeless == 1 else f"{self._timeless} events have"
            found.append(f"{many} no start or no duration (not there, or no number) and left out")
        for category, (work, left) in sorted(self._unknown.items()):
            of = f"of the category `{category}`, which is not known" if category else "without a category"
            if work:
                found.append(f"{_events(work)} {of}, with a device and a stream: read as kernels")
            if left:
                found.append(f"{_events(left)} {of}, without a device and a stream: left out")
        return tuple(found)

    def close(self) -> None:
        """Remove the rows."""
        self._spool.close()


def _events(count: int) -> str:
    return "one event is" if count == 1 else f"{count} events are"
