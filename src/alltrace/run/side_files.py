"""The file that the wrapper wrote next to a report: options that its node refused, as warnings, and its rank's role."""

import json
import re
from pathlib import Path
from typing import NamedTuple

from alltrace.readers.base import ReportWarning
from alltrace.trace.errors import printable
from alltrace.trace.side_file_words import NUMBERED, SIDE_FILE, TABLES, VERSION_KEY

_PROFILED = (".nsys-rep", ".ncu-rep")
_EXPORTS = (".sqlite", "_pqtdir")
_MOST_BYTES = 1 << 16
_LONGEST = 300
_ROLE = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Told(NamedTuple):
    """The content of a side file."""

    left_out: tuple[ReportWarning, ...] = ()  # the options that the node refused
    # what the report's rank does in a program of several groups of ranks; None if it has no role
    role: str | None = None


def side_file_of(report: Path) -> Told:
    """The side file's content for a report, or for the report of an export; empty without a side file."""
    ending = next((e for e in (*_PROFILED, *_EXPORTS) if report.name.endswith(e)), "")
    stem = report.name.removesuffix(ending)
    endings = _PROFILED if ending in _EXPORTS else (ending,)
    names = [f"{name}{e}{SIDE_FILE}" for name in dict.fromkeys((stem, NUMBERED.sub("", stem))) for e in endings]
    side = next((path for path in map(report.with_name, names) if path.is_file()), None)
    if side is None:
        return Told()
    try:
        with side.open("rb") as file:
            content = json.loads(file.read(_MOST_BYTES))
        options = (
            [(str(one["option"]), str(one["reason"])) for one in content["left_out"]]
            if content[VERSION_KEY] == 1
            else []
        )
        role = content.get("role")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        text = f"The file {printable(side.name)} next to the report, which lists what the report lacks, is damaged."
        return Told((ReportWarning(text),))
    return Told(
        tuple(
            ReportWarning(
                f"Recorded without {printable(option)[:_LONGEST]}: {printable(reason)[:_LONGEST]}.",
                TABLES.get(option, ()),
            )
            for option, reason in options
        ),
        role if isinstance(role, str) and _ROLE.fullmatch(role) else None,
    )
