"""A run whose import has not finished, or never will: the part that is committed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from alltrace.run.checksums import RankFiles
from alltrace.run.json_files import read_json
from alltrace.run.manifest import NAMES, RANK_RECORD, RANKS, RankRecord, rank_folder, rank_from_json, read_manifest
from alltrace.run.names import Names
from alltrace.run.overlay import Overlay, unaligned
from alltrace.run.store import Run
from alltrace.trace.errors import AlltraceError


class PartialRun(Run):
    """The ranks that are there of a run still being imported, at one moment. Otherwise as `Run`, not aligned."""

    def __init__(self, path: str | Path) -> None:
        self.path: Path = Path(path)
        manifest = read_manifest(self.path)
        note = "this run is still being imported, or its import was stopped: only the ranks imported so far are shown"
        ranks = _committed(self.path)
        self._manifest = unaligned(manifest.with_ranks(ranks))
        if not manifest.complete:
            self._manifest = replace(self._manifest, notes=(*self._manifest.notes, note))
        self._imported = self._manifest
        self.overlay: Overlay | None = None
        self.alignment: Any = None
        self.members = None
        self.devices_run = (None,)  # without all of its ranks, nobody knows what its devices are
        self.files: RankFiles = RankFiles(self.path)
        self._names = Names(self.name_files)

    def name_files(self) -> Iterator[Path]:
        """The names of each existing rank; the names of the whole run are written last."""
        for record in self._manifest.ranks:
            files = self.files.of(record)
            if files.has(NAMES):
                yield files.path(NAMES)


def _committed(run: Path) -> list[RankRecord]:
    """The ranks with an existing folder and record."""
    ranks = []
    for folder in sorted((run / RANKS).glob("rank=*")):
        try:
            rank = rank_from_json(read_json(folder / RANK_RECORD)["rank"])
        except (AlltraceError, KeyError, TypeError, ValueError):
            continue  # being removed or of another version: not there yet
        if folder.name == Path(rank_folder(rank.rank)).name:
            ranks.append(rank)
    return ranks
