"""Which files of a run have changed since they were written, and how to make them again."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from alltrace.run.checksums import LOGS, LOGS_RECORD, CheckedFiles, checked_content, recorded
from alltrace.run.json_files import read_json
from alltrace.run.manifest import MANIFEST, RANK_RECORD, RANKS, read_manifest
from alltrace.run.overlay import ALIGN, FACTS
from alltrace.trace.errors import DamageError

TILES = "tiles"  # the folder of the page's levels of detail

OPERATIONS, PART_RECORD = "operations", "part.json"
"""The folder of what an alignment takes from each rank, a folder in it for each, and the record in that."""

DEVICES = "devices"  # the folder of the run with a rank for each device of processes that have several

FINDINGS = "findings"  # the folder of what was found in the run


class Damage(NamedTuple):
    """A file of a run that is not as it was written."""

    rank: int | None  # the rank of the file, or None
    file: str  # its path relative to the run
    found: str  # what is wrong with it
    repair: str  # how to make it again


def verify(run: Path) -> list[Damage]:
    """Read all files of a run; returns those not as written. Raises `InputError`: no run, or another version's."""
    damages = []
    reports: dict[str, str] = {}
    try:
        manifest = read_manifest(run)
    except DamageError as error:
        damages.append(Damage(None, MANIFEST, error.found, "import all reports again; intact ranks are kept"))
    else:
        files = CheckedFiles(run, manifest.files)
        damages += [
            Damage(None, name, e.found, "import all reports again; ranks are kept") for name, e in files.damaged()
        ]
        reports = {r.folder: ", ".join(manifest.reports[n].path for n in r.reports) for r in manifest.ranks}
    there = {f"{RANKS}/{p.name}" for p in (run / RANKS).glob("rank=*")}
    for folder in sorted({*reports, *there}, key=lambda name: (len(name), name)):
        number = folder.rpartition("=")[2]
        of = f" of {reports[folder]}" if folder in reports else ""
        repair = f"import all reports again; the rank{of} is read again, intact ranks are kept"
        rank = int(number) if number.isdecimal() else None
        damages += [Damage(rank, name, what, repair) for name, what in _damaged(run, folder, RANK_RECORD)]
    if (run / LOGS).is_dir():
        repair = "import all reports again, with the logs"
        damages += [Damage(None, name, what, repair) for name, what in _damaged(run, LOGS, LOGS_RECORD)]
    for folder, damaged in _derived(run).items():
        repair = f"remove the folder {folder}, which is recreated when needed"
        number = folder.rpartition("=")[2]
        damages += [Damage(int(number) if number.isdecimal() else None, name, what, repair) for name, what in damaged]
    return damages


def remove_damaged_folders(run: Path) -> None:
    """Remove damaged data that was derived from the ranks of a run, so that it is computed again."""
    for folder, damaged in _derived(run).items():
        if damaged:
            shutil.rmtree(run / folder)


def _derived(run: Path) -> dict[str, list[tuple[str, str]]]:
    """The folders of data derived from ranks on demand: the damaged files of each, and what is wrong with them."""
    by_folder = {ALIGN: list(_damaged(run, ALIGN, FACTS)) if (run / ALIGN).is_dir() else [], TILES: [], FINDINGS: []}
    # without it the part is unfinished
    for part in sorted(p.parent for p in (run / OPERATIONS).glob(f"rank=*/{PART_RECORD}")):
        name = part.relative_to(run).as_posix()
        by_folder[name] = list(_damaged(run, name, PART_RECORD))
    if (run / DEVICES / MANIFEST).is_file():
        by_folder[DEVICES] = [(f"{DEVICES}/{damage.file}", damage.found) for damage in verify(run / DEVICES)]
    for folder in (TILES, FINDINGS):
        for path in sorted((run / folder).rglob("[!.]*.*")):
            try:
                read_json(path) if path.suffix == ".json" else checked_content(path)
            except DamageError as error:
                by_folder[folder].append((path.relative_to(run).as_posix(), error.found))
    return by_folder


def _damaged(run: Path, folder: str, record: str) -> Iterator[tuple[str, str]]:
    """The damaged files of a folder, relative to the run, and what is wrong with each."""
    try:
        files = recorded(run / folder, record)
    except DamageError as error:
        yield f"{folder}/{record}", error.found
        return
    for name, damage in files.damaged():
        yield f"{folder}/{name}", damage.found
