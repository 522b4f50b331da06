"""Opens a Paraver trace that alltrace wrote as canonical tables: its kernels, copies, calls and ranges, at their times.

What the format does not carry stays null: contexts, sequence numbers of collectives on the host, thread ids. Names are labels: one
line, without control characters; calls have lost their version. For two pieces of work that begin together on one
stream, it does not state which call launched which.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from alltrace.readers.base import Report, ReportWarning
from alltrace.readers.paraver.identity import TABLES, look_at, report_of
from alltrace.readers.paraver.parsed import Parsed
from alltrace.trace.schema import EVENT_TABLES

_BYTES_OF_AN_EVENT = 130
_PACKED = 6


class ParaverReader:
    """A Paraver trace of ours, opened; see `alltrace.readers.base.ReportReader`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._facts = look_at(path)
        self.report: Report = report_of(path, self._facts)
        self._parsed: Parsed | None = None

    def _pass(self) -> Parsed:
        if self._parsed is None:
            from alltrace.readers.paraver.parsed import Parsed

            self._parsed = Parsed(self._path, self._facts)
        return self._parsed

    def stream(self, tables: Collection[str]) -> Iterator[tuple[str, Any]]:
        """The rows of the wanted canonical tables; see `ReportReader.stream`."""
        for table in (t for t in EVENT_TABLES if t in tables and t in TABLES):
            for batch in self._pass().batches(table):
                yield table, batch

    def dictionaries(self) -> dict[str, Any]:
        """The dictionaries of what was streamed; see `ReportReader.dictionaries`."""
        return self._pass().dictionaries()

    def rows_estimate(self, tables: Collection[str]) -> int:
        """About how many rows `stream` will give, by the size of the file."""
        if not any(t in TABLES for t in tables):
            return 0
        packed = self._path.name.lower().endswith(".gz")
        return self._path.stat().st_size * (_PACKED if packed else 1) // _BYTES_OF_AN_EVENT

    def warnings(self) -> tuple[ReportWarning, ...]:
        """Nothing: see `ReportReader.warnings`."""
        return ()

    def close(self) -> None:
        """Release the trace, and remove what was made to read it."""
        if self._parsed is not None:
            self._parsed.close()
            self._parsed = None


def open_report(path: Path) -> ParaverReader:
    """Open a trace with its .pcf and .row. Raises `InputError`: it is damaged, not by alltrace, or not complete."""
    return ParaverReader(path)
