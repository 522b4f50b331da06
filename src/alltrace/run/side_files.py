"""What the wrapper wrote beside a report: the options that its node refused, as warnings of the report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from alltrace.readers.base import ReportWarning
from alltrace.trace.errors import printable
from alltrace.trace.side_file_words import NUMBERED, SIDE_FILE, TABLES, VERSION_KEY

if TYPE_CHECKING:
    from pathlib import Path

_PROFILED = (".nsys-rep", ".ncu-rep")
_EXPORTS = (".sqlite", "_pqtdir")
_MOST_BYTES = 1 << 16
_LONGEST = 300


def left_out_of(report: Path) -> tuple[ReportWarning, ...]:
    """What was left out of a report, or of the one that it is an export of; nothing where no side file tells."""
    ending = next((e for e in (*_PROFILED, *_EXPORTS) if report.name.endswith(e)), None)
    if ending is None:
        return ()
    stem = report.name[: -len(ending)]
    endings = (ending,) if ending in _PROFILED else _PROFILED
    names = [f"{name}{e}{SIDE_FILE}" for name in dict.fromkeys((stem, NUMBERED.sub("", stem))) for e in endings]
    side = next((path for path in map(report.with_name, names) if path.is_file()), None)
    if side is None:
        return ()
    try:
        with side.open("rb") as file:
            told = json.loads(file.read(_MOST_BYTES))
        options = [(str(one["option"]), str(one["reason"])) for one in told["left_out"]] if told[VERSION_KEY] == 1 else []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return (ReportWarning(f"The file {printable(side.name)} beside the report, which tells what it lacks, is damaged."),)
    return tuple(
        ReportWarning(f"Recorded without {printable(option)[:_LONGEST]}: {printable(reason)[:_LONGEST]}.", TABLES.get(option, ()))
        for option, reason in options
    )
