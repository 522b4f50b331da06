"""Brings a history up to date with the runs in folders; a run that it has, unchanged, is not opened again."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from alltrace.history.run_rows import rows_of, run_id
from alltrace.history.store import History, Kept
from alltrace.run.checksums import checksum
from alltrace.run.manifest import MANIFEST, is_run, read_manifest
from alltrace.run.report_hash import file_stamps
from alltrace.run.store import Run
from alltrace.trace.errors import AlltraceError, InputError, path_text, printable
from alltrace.trace.number_text import counted

_MOST_NAMED = 10


class Update(NamedTuple):
    read: tuple[str, ...]  # the runs that were read, by path
    unchanged: int  # how many were already there
    unread: tuple[str, ...]  # of each run that could not be read one sentence
    notes: tuple[str, ...]  # what else a reader must know


def find_runs(places: Sequence[str]) -> list[Path]:
    """The run directories that `places` are or hold, at any depth, by path."""
    folders: set[Path] = set()
    for place in places:
        folder = Path(place)
        if not folder.is_dir():
            what = "a file" if folder.exists() else "there is no such folder"
            raise InputError(place, found=what, expected="a run directory or a folder of them", advice="check the name")
        folders.update(_runs_in(folder.absolute()))
    if not folders:
        raise InputError(
            ", ".join(places),
            found="no run in it",
            expected="run directories",
            advice="create them with `alltrace import REPORT... -o RUN`",
        )
    return sorted(folders)


def _runs_in(folder: Path) -> Iterator[Path]:
    for place, folders, _ in os.walk(folder):
        if is_run(Path(place)):
            folders.clear()
            yield Path(place)
        folders[:] = sorted(f for f in folders if not f.startswith("."))


def update(
    history: History,
    runs: Sequence[Path],
    *,
    jobs: int | None = None,
    reading: Callable[[str], None] = lambda _path: None,
) -> Update:
    """Read those of `runs` that the history lacks, or that have changed since."""
    # `history`: the history, opened to be written. `runs`: run directories, as `find_runs` returns them. `jobs`: the
    # most processes for one run. `reading`: called with the path of each run before it is read.
    known = {entry.path: entry for entry in history.kept()}
    of_id = {entry.run_id: entry for entry in known.values()}
    read, unread, notes, unchanged = [], [], [], 0
    for run in runs:
        path = path_text(str(run))
        try:
            before = known.get(path)
            if before is not None and before.stamps == _stamps(run):
                unchanged += 1
                continue
            entry = kept_of(run)
            same = of_id.get(entry.run_id)
            if same is not None and same.path != path and is_run(Path(same.path)):
                notes.append(f"{path} has the same reports as {same.path} and counts once")
                continue
            if same is not None and same.digest == entry.digest:
                history.move(entry)
                unchanged += 1
            else:
                reading(path)
                history.put(rows_of(Run(run), jobs=jobs), entry)
                after = kept_of(run)  # aligning may have rewritten the manifest
                if after.run_id == entry.run_id:
                    entry = after
                    history.move(entry)
                read.append(path)
            of_id[entry.run_id] = entry
        except (AlltraceError, OSError) as error:
            last_read = "; it counts as last read" if known.get(path) is not None else ""
            unread.append(f"left out: {printable(str(error))}{last_read}")
    gone = [path for path in (entry.path for entry in history.kept()) if not is_run(Path(path))]
    if gone:
        more = f" and {len(gone) - _MOST_NAMED} more" if len(gone) > _MOST_NAMED else ""
        notes.append(
            f"{counted(len(gone), 'run is', 'runs are')} gone and counted as last read:"
            f" {', '.join(gone[:_MOST_NAMED])}{more}"
        )
    return Update(tuple(read), unchanged, tuple(unread), tuple(notes))


def _stamps(run: Path) -> str:
    return json.dumps(file_stamps(run / MANIFEST))


def kept_of(run: Path) -> Kept:
    """What identifies a run, from its current manifest."""
    path = path_text(str(run))
    stamps = _stamps(run)  # before the manifest is read, so that one that is written meanwhile is read again
    manifest = read_manifest(run)
    if not manifest.complete:
        raise InputError(path, found="its import has not finished", advice="run the same import again")
    return Kept(run_id(manifest), path, stamps, checksum(run / MANIFEST))
