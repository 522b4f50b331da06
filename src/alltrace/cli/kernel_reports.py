"""Reports of Nsight Compute that a command line names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from alltrace.recipes.ncu.tables import Profiled


def read_reports(paths: Sequence[Path]) -> tuple[list[list[Profiled]], list[str]]:
    """The launches of each report, and what a reader should know of them.

    A report is called by its file's name, and by its path where two files have the same.

    Raises:
        InputError: A file is no report, or cannot be read.
    """
    from alltrace.readers.ncu.read import read_report
    from alltrace.recipes.ncu.tables import Profiled
    from alltrace.trace.errors import printable

    called = [p.name for p in paths]
    reports = []
    notes = []
    for path in paths:
        report = read_report(path)
        name = printable(path.name if called.count(path.name) == 1 else str(path))
        reports.append([Profiled(name, launch) for launch in report.launches])
        notes += [f"{name}: {warning}" for warning in report.warnings]
    return reports, notes
