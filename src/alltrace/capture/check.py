"""Is there a report, and is it whole? The exit code of nsys does not show: it is 0 when its agent was killed, too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from alltrace.trace.side_file_words import NUMBERED

_HEAD = b"NVIDIA Tegra Profiler Report"
_TAIL = b"[END]"
ENDINGS = {"nsys": ".nsys-rep", "ncu": ".ncu-rep"}


class Found(NamedTuple):
    whole: tuple[Path, ...]  # the reports that are whole
    faults: tuple[tuple[Path, str], ...]  # each report that is not, with what is wrong with it


def report_fault(path: Path) -> str | None:
    """What is wrong with a report, in a few words; None if it is whole."""
    # A `.nsys-rep` begins with a line that names the profiler and ends with `[END]` after its directory; one that is
    # still being written, or was cut, does not.
    try:
        with path.open("rb") as file:
            head = file.read(len(_HEAD))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(_TAIL)))
            tail = file.read()
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    if not size:
        return "it is empty"
    if path.name.endswith(ENDINGS["ncu"]):
        return None if head.startswith(b"NVR") else "it does not start like a report of Nsight Compute"
    if not head.startswith(b"NVIDIA"):
        return "it does not start like a report of Nsight Systems"
    if head == _HEAD and tail != _TAIL:
        return f"it is cut off after {size} bytes"
    return None


def find_reports(report: Path) -> Found:
    """The reports of one rank: `report` itself, those that nsys numbered (`NAME.1.nsys-rep`), and those of windows."""
    ending = report.suffix
    stem = report.name[: -len(ending)]
    try:
        names = sorted(p for p in report.parent.iterdir() if p.name.endswith(ending))
    except OSError:
        names = []
    mine = [p for p in names if p.name == report.name or NUMBERED.sub("", p.name[: -len(ending)]) == stem]
    faults = [(p, report_fault(p)) for p in mine]
    return Found(
        tuple(p for p, fault in faults if fault is None), tuple((p, fault) for p, fault in faults if fault is not None)
    )
