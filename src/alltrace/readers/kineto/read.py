"""Opens a trace of the PyTorch profiler as canonical tables, in one pass and bounded memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from alltrace.readers.base import Report, ReportProcess, ReportWarning
from alltrace.readers.kineto.identity import (
    EXPECTED,
    OF_CAPTURE,
    TABLES,
    is_of_capture,
    look_at_all,
    look_at_head,
    processes_of,
    report_of,
)
from alltrace.readers.kineto.parsed import Parsed
from alltrace.trace.errors import InputError
from alltrace.trace.schema import EVENT_TABLES

_BYTES_OF_AN_EVENT = 250
_PACKED = 15


class KinetoReader:
    """A trace of the PyTorch profiler, opened; see `alltrace.readers.base.ReportReader`."""

    def __init__(self, path: Path, known: Sequence[ReportProcess] = ()) -> None:
        self._path = path
        self._facts = look_at_head(path)
        if len(known) > 1:
            self._facts = look_at_all(path, self._facts)
        self._parsed: Parsed | None = None

    @cached_property
    def report(self) -> Report:
        """The identity of the trace; looks at more of it than opening does."""
        facts = look_at_all(self._path, self._facts)
        if facts.merged:
            self._facts = facts
        return report_of(self._path, facts)

    def _pass(self) -> Parsed:
        if self._parsed is None:
            from alltrace.readers.kineto.parsed import Parsed

            self._parsed = Parsed(self._path, self._facts, processes_of(self._path, self._facts))
        return self._parsed

    def stream(self, tables: Collection[str]) -> Iterator[tuple[str, Any]]:
        """The rows of the wanted canonical tables; see `ReportReader.stream`."""
        filled = OF_CAPTURE if is_of_capture(self._path) else TABLES
        for table in (t for t in EVENT_TABLES if t in tables and t in filled):
            for batch in self._pass().batches(table):
                yield table, batch

    def dictionaries(self) -> dict[str, Any]:
        """The dictionaries of what was streamed; see `ReportReader.dictionaries`."""
        return self._pass().dictionaries()

    def warnings(self) -> tuple[ReportWarning, ...]:
        """What the pass over the whole trace found; see `ReportReader.warnings`."""
        return self._pass().warnings()

    def rows_estimate(self, tables: Collection[str]) -> int:
        """About how many rows `stream` will give, by the size of the file."""
        return estimated_rows(self._path) if any(t in TABLES for t in tables) else 0

    def close(self) -> None:
        """Release the trace, and remove what was made to read it."""
        if self._parsed is not None:
            self._parsed.close()
            self._parsed = None


def estimated_rows(path: Path) -> int:
    """About how many events a trace has, by the size of its file."""
    return path.stat().st_size * (1 if path.name.lower().endswith(".json") else _PACKED) // _BYTES_OF_AN_EVENT


def open_report(path: Path, known: Sequence[ReportProcess] = ()) -> KinetoReader:
    """Open a trace; `known`: its processes, if opened before and merged. Raises `InputError`: damaged, or no trace."""
    try:
        return KinetoReader(path, known)
    except OSError as error:
        raise InputError(path, found=f"it cannot be read ({error.strerror})", expected=EXPECTED) from error
