"""Ranks that a user states, before all other evidence: `--rank-from REGEX`, or a file `ranks.csv` in the folder of the reports."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from alltrace.readers.base import Report
from alltrace.trace.errors import InputError, UsageError
from alltrace.trace.user_pattern import UserPattern

FILE = "ranks.csv"
OPTION = "--rank-from"
STATED = (OPTION, FILE)
"""How a number was found that a user stated."""

_FOLDERS_UP = 3
_MOST_BYTES = 64 << 20
_NUMBER = re.compile(r"[0-9]{1,7}")
_COLUMNS = ("file", "rank", "host", "local_rank")


class StatedRank(NamedTuple):
    """What a user says of a report: its rank, and its host and number on it if they are stated; and where (`STATED`)."""

    rank: int
    host: str | None
    local_rank: int | None
    source: str


def stated_ranks(reports: Sequence[Path], rank_from: str | None) -> dict[Path, StatedRank]:
    """The ranks that a user states of some reports.

    `rank_from`: A regular expression with a group `rank`, searched in the paths; None without one.
    Raises `UsageError`: the expression is not valid, has no such group, or matches no report. Raises `InputError`:
    a `ranks.csv` cannot be read, or gives a report a rank that cannot be.
    """
    stated = _in_files(reports)
    if rank_from is not None:
        stated.update(_by_expression(reports, rank_from))
    return stated


def with_stated_ranks(reports: Sequence[Report | None], paths: Sequence[Path], rank_from: str | None) -> list[Report | None]:
    """The reports as if they said of themselves what the user does; for `rank_from` and errors see `stated_ranks`."""
    stated = stated_ranks(paths, rank_from)
    return [report and with_stated_rank(report, stated.get(path)) for report, path in zip(reports, paths, strict=True)]


def with_stated_rank(report: Report, stated: StatedRank | None) -> Report:
    """The report as if it said of itself what the user does; one of several processes keeps what it says of each."""
    if stated is None or len(report.processes) > 1:
        return report
    processes = tuple(p._replace(mpi_rank=None, rank_hint=stated.rank, rank_hint_source=stated.source) for p in report.processes)
    environment = dict(report.environment)
    if stated.local_rank is not None:
        environment["LOCAL_RANK"] = str(stated.local_rank)
    return report._replace(processes=processes, environment=environment, host=stated.host or report.host)


def _by_expression(reports: Sequence[Path], text: str) -> dict[Path, StatedRank]:
    pattern = UserPattern(OPTION, text)
    if "rank" not in pattern.names:
        raise UsageError(f"{OPTION} is {text!r}; expected a group for the rank, and a name for each group: (?P<rank>\\d+)")
    stated = {}
    for path, match in zip(reports, pattern.groups([path.as_posix() for path in reports]), strict=True):
        if match is None:
            continue
        number = match["rank"] or ""
        if not _NUMBER.fullmatch(number):
            raise UsageError(f"{OPTION} finds {number!r} as the rank of {path.name}; expected a number below 10,000,000")
        stated[path] = StatedRank(int(number), None, None, OPTION)
    if not stated:
        raise UsageError(f"{OPTION} is {text!r}, which matches none of {len(reports)} reports, such as {reports[0]}")
    return stated


def _in_files(reports: Sequence[Path]) -> dict[Path, StatedRank]:
    """What the nearest `ranks.csv` says of each report, in its folder or up to two folders above."""
    files: dict[Path, Mapping[str, StatedRank]] = {}
    stated = {}
    for path in reports:
        folder = path.absolute().parent
        for above in (folder, *folder.parents)[:_FOLDERS_UP]:
            if above not in files:
                files[above] = _read(above / FILE)
            row = files[above].get(path.absolute().relative_to(above).as_posix())
            if row is not None:
                stated[path] = row
                break
    return stated


def _read(path: Path) -> Mapping[str, StatedRank]:
    """The rows of a `ranks.csv` by file, which is relative to its folder; empty if there is none."""
    try:
        if not path.is_file():
            return {}
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(path, found="it is larger than 64 MB", expected="a line for each report: file,rank")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            path, found=f"it cannot be read ({error})", expected="text with a line for each report: file,rank"
        ) from error
    rows = csv.DictReader(text.splitlines())
    columns = [c.strip() for c in rows.fieldnames or ()]
    rows.fieldnames = columns
    if not {"file", "rank"} <= set(columns) <= set(_COLUMNS):
        problem = f"its first line is {','.join(columns)!r}"
        raise InputError(path, found=problem, expected="file,rank and, optionally, host,local_rank")
    stated: dict[str, StatedRank] = {}
    for row in rows:
        file, rank = (row["file"] or "").strip(), (row["rank"] or "").strip()
        local = (row.get("local_rank") or "").strip()
        if not file or not _NUMBER.fullmatch(rank) or (local and not _NUMBER.fullmatch(local)):
            raise InputError(
                path, found=f"line {rows.line_num} is {','.join(map(str, row.values()))!r}", expected="a file and numbers"
            )
        row_rank = StatedRank(int(rank), (row.get("host") or "").strip() or None, int(local) if local else None, FILE)
        if stated.setdefault(file, row_rank) != row_rank:
            raise InputError(path, found=f"line {rows.line_num} gives {file} another rank than a line before")
    return stated
