"""Reports of Nsight Compute that a command line names, and the source files of their kernels."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from alltrace.readers.ncu.listing import Listings
    from alltrace.recipes.ncu.tables import Profiled
    from alltrace.trace.kernel_code import Listing
    from alltrace.trace.launches import Launch, NcuReport

_MOST_BYTES = 64 << 20


def read_reports(
    paths: Sequence[Path], *, detail: bool = False, listings: Listings | None = None
) -> tuple[list[list[Profiled]], list[str]]:
    """The launches of each report, and what a reader should know of them."""
    # A report's name is its file's name, or its path if two files have the same name. `detail`: Whether sections,
    # results of rules and values of instances are read too. `listings`: Lists the instructions of each launch, which
    # needs `detail`; None if they are not wanted.
    from alltrace.readers.ncu.read import read_report
    from alltrace.recipes.ncu.tables import Profiled
    from alltrace.trace.errors import printable

    called = [p.name for p in paths]
    reports = []
    notes = []
    for path in paths:
        report = read_report(path, detail=detail)
        name = printable(path.name if called.count(path.name) == 1 else str(path))
        reports.append([Profiled(name, launch, _listing(report, launch, listings)) for launch in report.launches])
        notes += [f"{name}: {warning}" for warning in report.warnings]
    return reports, notes


def _listing(report: NcuReport, launch: Launch, listings: Listings | None) -> Listing | None:
    if listings is None or not report.version:  # a printed page has no code
        return None
    return listings.of(launch, None if launch.code is None else report.codes.get(launch.code))


def source_texts(folders: Sequence[Path]) -> Callable[[str], Sequence[str] | None]:
    """Finds the text of a source file by the path that a report calls it."""
    # A report's path is only compared, never opened: of the files with the same name below the folders, the one with
    # the path that shares the longest end with it is used. `folders`: Folders of the user's.
    by_name: dict[str, list[Path]] = {}
    for folder in folders:
        for place, _, files in os.walk(folder):
            for name in files:
                by_name.setdefault(name, []).append(Path(place, name))
    texts: dict[str, Sequence[str] | None] = {}

    def lines(called: str) -> Sequence[str] | None:
        if called not in texts:
            wanted = PurePosixPath(called.replace("\\", "/"))
            path = max(by_name.get(wanted.name, ()), key=lambda p: _alike(p.parts, wanted.parts), default=None)
            texts[called] = None
            if path is not None and path.stat().st_size <= _MOST_BYTES:
                texts[called] = path.read_text(encoding="utf-8", errors="backslashreplace").splitlines()
        return texts[called]

    return lines


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many last parts two paths share."""
    count = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if a != b:
            break
        count += 1
    return count
