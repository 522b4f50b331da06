"""Ranks that a user states, before all other evidence: `--rank-from REGEX`, or `ranks.csv` next to the reports."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from alltrace.readers.base import Report
from alltrace.run.host_paths import exists
from alltrace.run.identity import BY_FILE, BY_OPTION, report_stem
from alltrace.trace.errors import InputError, UsageError, path_text, printable
from alltrace.trace.user_pattern import UserPattern

_FOLDERS_UP = 3
_MOST_BYTES = 64 << 20
_NUMBER = re.compile(r"[0-9]{1,7}")
_COLUMNS = ("file", "rank", "host", "local_rank")
_LISTED = 20


class StatedRank(NamedTuple):
    """What a user says of a report: its rank, and its host and number on it if they are stated; and where."""

    rank: int
    host: str | None
    local_rank: int | None
    source: str


class _Row(NamedTuple):
    """A row of a `ranks.csv`: its line, the file that it names, and what it states."""

    line: int
    file: str
    stated: StatedRank


def stated_ranks(reports: Sequence[Path], rank_from: str | None) -> tuple[dict[Path, StatedRank], tuple[str, ...]]:
    """The ranks that a user states of some reports, and what is said of rows that name no file.

    Raises `UsageError`: `rank_from` is not a valid expression with a group `rank`, or matches no report. Raises
    `InputError`: a `ranks.csv` cannot be read, or gives a report a rank that cannot be.
    """
    stated, notes = _in_files(reports)
    if rank_from is not None:
        stated.update(_by_expression(reports, rank_from))
    return stated, notes


def with_stated_ranks(
    reports: Sequence[Report | None], paths: Sequence[Path], rank_from: str | None
) -> tuple[list[Report | None], tuple[str, ...]]:
    """The reports as if they said of themselves what the user does, and notes; errors as of `stated_ranks`."""
    stated, notes = stated_ranks(paths, rank_from)
    several = [r for r, p in zip(reports, paths, strict=True) if r is not None and p in stated and len(r.processes) > 1]
    for report in several[:_LISTED]:
        notes += (
            f"{path_text(report.path)}: it has {len(report.processes)} processes, so no rank can be stated for it",
        )
    pairs = zip(reports, paths, strict=True)
    return [r and with_stated_rank(r, stated.get(p)) for r, p in pairs], notes


def with_stated_rank(report: Report, stated: StatedRank | None) -> Report:
    """The report as if it said of itself what the user does; one of several processes keeps what it says of each."""
    if stated is None or len(report.processes) > 1:
        return report
    processes = tuple(
        p._replace(mpi_rank=None, rank_hint=stated.rank, rank_hint_source=stated.source) for p in report.processes
    )
    environment = dict(report.environment)
    if stated.local_rank is not None:
        environment["LOCAL_RANK"] = str(stated.local_rank)
    return report._replace(processes=processes, environment=environment, host=stated.host or report.host)


def _by_expression(reports: Sequence[Path], text: str) -> dict[Path, StatedRank]:
    pattern = UserPattern(BY_OPTION, text)
    if "rank" not in pattern.names:
        raise UsageError(
            f"{BY_OPTION} is {text!r}; expected a group for the rank, and a name for each group: (?P<rank>\\d+)"
        )
    stated = {}
    for path, match in zip(reports, pattern.groups([path.as_posix() for path in reports]), strict=True):
        if match is None:
            continue
        number = match["rank"] or ""
        if not _NUMBER.fullmatch(number):
            raise UsageError(
                f"{BY_OPTION} finds {number!r} as the rank of {path.name}; expected a number below 10,000,000"
            )
        stated[path] = StatedRank(int(number), None, None, BY_OPTION)
    if not stated:
        raise UsageError(f"{BY_OPTION} is {text!r}, which matches none of {len(reports)} reports, such as {reports[0]}")
    return stated


def _in_files(reports: Sequence[Path]) -> tuple[dict[Path, StatedRank], tuple[str, ...]]:
    """What the nearest `ranks.csv`, up to two folders above, says of each report, and of rows that name no file."""
    files: dict[Path, Mapping[str, _Row]] = {}
    stated = {}
    used = set()
    for path in reports:
        folder = path.absolute().parent
        for above in (folder, *folder.parents)[:_FOLDERS_UP]:
            if above not in files:
                files[above] = _read(above / BY_FILE)
            # a report may have been packed or exported since
            key = next((k for k in (_normal(path), _unpacked(path)) if k in files[above]), None)
            if key is not None:
                used.add((above, files[above][key].line))
                stated[path] = files[above][key].stated
                break
    absent = {
        (above, row.line): f"{path_text(str(above / BY_FILE))}: line {row.line} states rank {row.stated.rank} of "
        f"{printable(row.file)}, which is not there"
        for above, rows in files.items()
        for row in rows.values()
        if (above, row.line) not in used and not exists(above / row.file)
    }
    more = [f"and {len(absent) - _LISTED} more rows name files that are not there"] if len(absent) > _LISTED else []
    return stated, (*list(absent.values())[:_LISTED], *more)


def _normal(path: Path) -> str:
    return os.path.normpath(path.absolute())


def _unpacked(path: Path) -> str:
    """The path of a report without what ends its name."""
    return os.path.normpath(path.absolute().with_name(report_stem(path.name) or path.name))


def _read(path: Path) -> Mapping[str, _Row]:
    """The rows of a `ranks.csv` by their files, relative to its folder, and by names without what ends them."""
    try:
        if not path.is_file():
            return {}
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(path, found="it is larger than 64 MB", expected="a line for each report: file,rank")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        expected = "text with a line for each report: file,rank"
        raise InputError.cannot_be("read", path, error, expected=expected) from error
    import csv

    rows = csv.DictReader(text.splitlines())
    columns = [c.strip() for c in rows.fieldnames or ()]
    rows.fieldnames = columns
    if not {"file", "rank"} <= set(columns) <= set(_COLUMNS):
        problem = f"its first line is {','.join(columns)!r}"
        raise InputError(path, found=problem, expected="file,rank and, optionally, host,local_rank")
    stated: dict[str, _Row] = {}
    for row in rows:
        file, rank = (row["file"] or "").strip(), (row["rank"] or "").strip()
        local = (row.get("local_rank") or "").strip()
        if not file or not _NUMBER.fullmatch(rank) or (local and not _NUMBER.fullmatch(local)):
            raise InputError(
                path,
                found=f"line {rows.line_num} is {','.join(map(str, row.values()))!r}",
                expected="a file and numbers",
            )
        row_rank = StatedRank(
            int(rank), (row.get("host") or "").strip() or None, int(local) if local else None, BY_FILE
        )
        its = _Row(rows.line_num, file, row_rank)
        if stated.setdefault(_normal(path.parent / file), its).stated != row_rank:
            raise InputError(path, found=f"line {rows.line_num} gives {file} another rank than a line before")
    return {**{_unpacked(path.parent / row.file): row for row in stated.values()}, **stated}
