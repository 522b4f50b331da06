"""Facts about reports with ranks that were imported separately, each where it was recorded, before all are known.

The import of a part commits its ranks, and writes next to them what opening its reports found. The final import plans
the ranks from all parts: like an import of all reports, but without opening one. So reports may be where only their own
node sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from alltrace.readers.base import Report
from alltrace.run.json_files import read_json, write_json
from alltrace.run.manifest import ReportRecord, plain, record_from_json
from alltrace.run.report_hash import Content, is_as_it_was
from alltrace.trace.errors import AlltraceError

PARTS = ".parts"  # the folder, in a run directory, with a file for each report that was imported as a part


class Part(NamedTuple):
    """A report that was imported as a part."""

    content: Content  # what it holds
    record: ReportRecord  # what the manifest says of it; its path is absolute
    report: Report  # who it is about
    rows: int  # about how many rows it has


def write_part(run: Path, part: Part) -> None:
    """Write the record of a part of the run at `run`, after its ranks. Raises `OSError`: it cannot be written."""
    import xxhash

    folder = run / PARTS
    folder.mkdir(exist_ok=True)
    name = xxhash.xxh3_64_hexdigest(part.record.path.encode("utf-8", "surrogateescape"))
    write_json(folder / f"{name}.json", plain(part), lasting=False)


def read_parts(run: Path) -> dict[str, Part]:
    """The parts of the run at `run`, by the absolute paths of their reports; files that are damaged are passed over."""
    parts = {}
    for file in sorted((run / PARTS).glob("*.json")):
        try:
            part = record_from_json(Part, read_json(file))
        except (AlltraceError, TypeError):
            continue
        parts[part.record.path] = part
    return parts


def part_of(path: Path, parts: Mapping[str, Part]) -> Part | None:
    """The part that the report at `path` was imported as, if unchanged; perhaps one that only its node sees."""
    part = parts.get(str(path.absolute())) if parts else None
    if part is None or (path.exists() and not is_as_it_was(path, part.content)):
        return None
    return part._replace(record=part.record._replace(path=str(path)), report=part.report._replace(path=str(path)))
