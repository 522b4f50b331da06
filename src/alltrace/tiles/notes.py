"""Notes of users on a run: marks on its timeline, in a file next to it, or in the cache if the run is read-only."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alltrace.run.json_files import read_json, write_json
from alltrace.run.overlay import signature
from alltrace.run.store import Run
from alltrace.trace.cache_dir import default_folder, existing_folder, own_folder
from alltrace.trace.errors import AlltraceError, UsageError, encodable

FILE = "notes.json"
MOST_NOTES = 1000
MOST_TEXT = 2000
_MOST_RANKS = 64


# Each is an object of `id` (a number), `text`, `start` and `end` (ns from the run's start; equal for a moment) and
# `ranks` (those it is about; empty for all).
class Notes:
    """The notes of a run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def _path(self, *, write: bool) -> Path | None:
        beside = self._run.path / FILE
        name = f"{signature(self._run.manifest)}.json"
        if write:
            if os.access(self._run.path, os.W_OK):
                return beside
            folder = own_folder(default_folder()) / "notes"
            folder.mkdir(parents=True, exist_ok=True)
            return folder / name
        cache = existing_folder()
        places = [beside, *([cache / "notes" / name] if cache is not None else [])]
        return next((p for p in places if p.is_file()), None)

    def all(self) -> list[dict[str, Any]]:
        """The notes by start. Raises `AlltraceError`: the file is damaged."""
        path = self._path(write=False)
        if path is None:
            return []
        try:
            notes = list(read_json(path, "the notes on a run")["notes"])
        except (KeyError, TypeError) as error:
            raise AlltraceError(f"{path}: it does not contain notes; move it away to start again") from error
        return sorted(filter(None, map(_valid, notes)), key=lambda n: (n["start"], n["id"]))

    def add(self, note: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Add a note with an `id`; returns the notes afterwards."""
        notes, new = self.all(), _checked(note)
        unknown = sorted(set(new["ranks"]) - {r.rank for r in self._run.ranks})
        if unknown:
            raise UsageError(f"the note is about rank {unknown[0]}, which the run does not have")
        if len(notes) >= MOST_NOTES:
            raise UsageError(f"the run has {len(notes)} notes; remove some before adding more")
        return self._keep([*notes, {"id": 1 + max((n["id"] for n in notes), default=0), **new}])

    def remove(self, number: int) -> list[dict[str, Any]]:
        notes = self.all()
        if all(n["id"] != number for n in notes):
            raise UsageError(f"unknown note {number}")
        return self._keep([n for n in notes if n["id"] != number])

    def _keep(self, notes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        try:
            path = self._path(write=True)
            if path is not None:
                write_json(path, {"notes": notes})
        except OSError as error:
            raise AlltraceError(
                f"the note cannot be written ({error.strerror or error}); free some space, or copy the run"
            ) from error
        return sorted(notes, key=lambda n: (n["start"], n["id"]))


def _valid(note: Any) -> dict[str, Any] | None:
    """A note of the file; None of one that is none, such as of an earlier version."""
    try:
        return _checked(note) | {"id": int(note["id"])}
    except (AttributeError, KeyError, TypeError, ValueError, UsageError):
        return None


def _checked(note: Mapping[str, Any]) -> dict[str, Any]:
    values: list[Any] = [note.get(c) for c in ("text", "start", "end", "ranks")]
    text, start, end, ranks = values
    if not isinstance(text, str) or not text.strip() or len(text) > MOST_TEXT or not encodable(text):
        raise UsageError(
            f"the text of a note is {str(text)[:50]!r}; expected 1 to {MOST_TEXT} characters, without a NUL"
        )
    if not _is_number(start) or not _is_number(end) or start > end:
        raise UsageError(f"the times of a note are {start!r} and {end!r}; expected whole ns, the start first")
    if not isinstance(ranks, list) or len(ranks) > _MOST_RANKS or not all(map(_is_number, ranks)):
        raise UsageError(f"the ranks of a note are not a list of {_MOST_RANKS} ranks at most")
    return {"text": text.strip(), "start": start, "end": end, "ranks": sorted(set(ranks))}


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62
