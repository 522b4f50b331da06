"""What an alignment takes from each rank alone: its operations and its steps, kept until the rank is another.

So an interrupted alignment continues, and if a rank is new or changed, only that rank is read.
Comparing the ranks is cheap in relation to that.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from alltrace.align.steps import RankSteps
from alltrace.run.checksums import FILES, CheckedFiles, checksum, files_of
from alltrace.run.json_files import read_json, write_json
from alltrace.run.manifest import Manifest
from alltrace.run.parquet import write_quickly
from alltrace.run.verify import PART_RECORD
from alltrace.trace.errors import AlltraceError
from alltrace.trace.schema import TABLES

_FILE = "collectives.parquet"


class RankPart(NamedTuple):
    """The part of one rank; its operations are in a file (`part_file`)."""

    names: pa.Table  # the strings that only its operations refer to, as a table of names
    steps: RankSteps | AlltraceError | None  # or why they could not be found


def write_part(
    folder: Path, number: int, table: pa.Table, names: pa.Table, steps: RankSteps | None, source: str
) -> None:
    """Write the part of a rank, made from `source`, empty for one to compute again; its record comes last."""
    place = _place(folder, number)
    place.mkdir(parents=True, exist_ok=True)
    (place / PART_RECORD).unlink(missing_ok=True)
    write_quickly(table, place / _FILE)
    record = {
        "made_from": source,
        FILES: {_FILE: checksum(place / _FILE)},
        "names": names.to_pylist(),
        "steps": None if steps is None else _as_json(steps),
    }
    write_json(place / PART_RECORD, record, lasting=False)


def read_part(folder: Path, number: int, source: str | None = None) -> RankPart | None:
    """The part of a rank; None if there is none that is whole and made from `source` (None for any source)."""
    place = _place(folder, number)
    try:
        record = read_json(place / PART_RECORD)
        if source is not None and record["made_from"] != source:
            return None
        CheckedFiles(place, files_of(record, place / PART_RECORD)).path(_FILE)
        names = pa.Table.from_pylist(record["names"], TABLES["names"].arrow_schema())
        return RankPart(names, None if record["steps"] is None else _from_json(record["steps"]))
    except (AlltraceError, KeyError, TypeError, ValueError):
        return None


def part_file(folder: Path, number: int) -> Path:
    """The file with a rank's operations: the canonical table `collectives`, in the time of the rank's files."""
    return _place(folder, number) / _FILE


def remove_others(folder: Path, manifest: Manifest) -> None:
    ranks = {_place(folder, r.rank).name for r in manifest.ranks}
    with suppress(OSError):
        for place in folder.iterdir():
            if place.name not in ranks:
                shutil.rmtree(place, ignore_errors=True)


def _place(folder: Path, number: int) -> Path:
    return folder / f"rank={number}"


def _as_json(steps: RankSteps) -> dict[str, Any]:
    values = {f.name: getattr(steps, f.name) for f in fields(steps)}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


def _from_json(record: dict[str, Any]) -> RankSteps:
    values = {f.name: record[f.name] for f in fields(RankSteps)}
    arrays = {name: np.array(value, np.int64) for name, value in list(values.items())[2:] if value is not None}
    arrays |= {"device": arrays["device"].reshape(-1, 2), "saves": arrays["saves"].astype(np.bool_)}
    return RankSteps(**values | arrays)
