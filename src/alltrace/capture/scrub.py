"""Removes environments, command lines and program output from an export before it is shared.

nsys keeps them in four places: the row `DeviceEnvironment` of `TARGET_INFO_SYSTEM_ENV`; the rows `PROCESS_n:COMMAND`,
`ARGUMENT_n`, `WORKING_DIR` and `ENVIRONMENT_VARIABLE` of `META_DATA_CAPTURE`; the strings that `ProcessStreams` and, from 2024 on,
`ANALYSIS_FILE` refer to: the output of every process, and nsys' own configuration; and strings that no table refers to: the
environment of each process of the host that it could read, whoever started it, as assignments with a zero byte between them.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from alltrace.capture.launchers import LAUNCHERS
from alltrace.trace.errors import InputError, UsageError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

_HEAD = b"SQLite format 3\0"
_KEPT = {n for la in LAUNCHERS for n in (*la.rank, *la.local_rank, *la.world_size, *la.local_size, *la.node)}
_COMMAND = re.compile(r".*:(COMMAND|ARGUMENT_[0-9]+|WORKING_DIR(ECTORY)?)")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_REFERS = re.compile(r"^\s*[\"'`\[]?(\w+).*--\s*REFERENCES StringIds", re.MULTILINE)
_MAY_REFER = re.compile(r"\w*(id|name|text|string|symbol|module)", re.IGNORECASE)
_HOLDERS = ("ProcessStreams", "ANALYSIS_FILE")


@dataclass(frozen=True)
class Scrubbed:
    """What was found and removed.

    Attributes:
        variables: The names of the variables, never their values.
        command_words: How many words of command lines there were.
        streams: How many outputs of processes there were.
        environments: How many environments of processes there were among the strings.
    """

    variables: tuple[str, ...]
    command_words: int
    streams: int
    environments: int


def scrub(source: Path, target: Path) -> Scrubbed:
    """Write `source` to `target` without what must not be shared; variables that number ranks stay.

    Args:
        source: A SQLite export; it is not changed.
        target: The new file; written whole or not at all.

    Raises:
        InputError: `source` is no SQLite export; a `.nsys-rep` cannot be scrubbed.
        UsageError: `target` exists.
    """
    if source.suffix in (".nsys-rep", ".qdrep", ".qdstrm"):
        raise InputError(
            source,
            found="a report itself cannot be scrubbed: only Nsight Systems can write one",
            advice="export it (nsys export -t sqlite), scrub the export and share that alone",
        )
    try:
        with source.open("rb") as file:
            head = file.read(len(_HEAD))
    except OSError as error:
        raise InputError(source, found=f"it cannot be read ({error.strerror})") from error
    if head != _HEAD:
        raise InputError(source, found="it is no SQLite file", expected="an export as by `nsys export -t sqlite`")
    if target.exists():
        raise UsageError(f"{target} exists already; give another --output")
    import sqlite3

    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        try:
            shutil.copyfile(source, part)
        except OSError as error:
            raise InputError(target, found=f"it cannot be written ({error.strerror})", advice="give another --output") from error
        with closing(sqlite3.connect(part)) as database:
            database.text_factory = _text
            database.execute("PRAGMA secure_delete = ON")
            found = _clean(database)
            database.commit()
            database.execute("VACUUM")  # what was removed must not lie in pages that are free
        part.rename(target)
    except sqlite3.DatabaseError as error:
        raise InputError(source, found=f"it cannot be scrubbed ({error})", advice="export it again") from error
    finally:
        part.unlink(missing_ok=True)
    return found


def _text(value: bytes) -> str:
    return value.decode("utf-8", errors="surrogateescape")


def _clean(database: sqlite3.Connection) -> Scrubbed:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    names: set[str] = set()
    words = streams = 0
    if "TARGET_INFO_SYSTEM_ENV" in tables:
        rows = database.execute("SELECT rowid, value FROM TARGET_INFO_SYSTEM_ENV WHERE name LIKE '%Environment%'").fetchall()
        for row, value in rows:
            kept = _kept(str(value or ""), names, "[;\n\0]")
            database.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE rowid = ?", (kept, row))
    if "META_DATA_CAPTURE" in tables:
        for row, name, value in database.execute("SELECT rowid, name, value FROM META_DATA_CAPTURE").fetchall():
            if str(name).endswith("ENVIRONMENT_VARIABLE"):
                kept = _kept(str(value or ""), names, "\0")
                database.execute("UPDATE META_DATA_CAPTURE SET value = ? WHERE rowid = ?", (kept, row))
            elif _COMMAND.fullmatch(str(name)):
                words += 1
                database.execute("UPDATE META_DATA_CAPTURE SET value = '' WHERE rowid = ?", (row,))
    environments = 0
    if "StringIds" in tables:
        environments = _clean_environments(database, names)
        contents = " UNION ".join(f"SELECT contentId FROM {t}" for t in _HOLDERS if t in tables)
        if contents:
            (streams,) = database.execute(f"SELECT count(*) FROM ({contents}) WHERE contentId IS NOT NULL").fetchone()
            database.execute(f"UPDATE StringIds SET value = '' WHERE id IN ({contents})")
    return Scrubbed(tuple(sorted(names)), words, streams, environments)


def _clean_environments(database: sqlite3.Connection, names: set[str]) -> int:
    """Empty the strings that are environments; how many they were.

    Several assignments with a zero byte between them are one, wherever they are referred to. A single one may be a name that a
    program gave, such as `lr=0.1`: it stays where a table refers to it.
    """
    asked = "SELECT id, value FROM StringIds WHERE instr(CAST(value AS BLOB), X'3D')"
    suspects = {number: parts for number, value in database.execute(asked) if (parts := _assignments(str(value)))}
    single = {number for number, parts in suspects.items() if len(parts) == 1}
    if single:
        single &= _referred_to(database, single)
    for number in suspects.keys() - single:
        names.update(suspects[number])
        database.execute("UPDATE StringIds SET value = '' WHERE id = ?", (number,))
    return len(suspects) - len(single)


def _assignments(text: str) -> list[str]:
    """The names of the variables in an environment; empty for other text."""
    found = [_VARIABLE.fullmatch(part) for part in text.rstrip("\0").split("\0")]
    return [one[1] for one in found if one is not None]


def _referred_to(database: sqlite3.Connection, wanted: set[int]) -> set[int]:
    """Those of `wanted` that a column of another table refers to."""
    declared = {
        name: _REFERS.findall(text or "")
        for name, text in database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        if name not in ("StringIds", *_HOLDERS)
    }
    if not any(declared.values()):  # whoever wrote it again left the comments out: take any column that may refer
        declared = {
            name: [c for _, c, *_ in database.execute(f'PRAGMA table_info("{name}")') if _MAY_REFER.fullmatch(c)]
            for name in declared
        }
    found: set[int] = set()
    for name, columns in declared.items():
        for column in columns:
            asked = f'SELECT DISTINCT "{column}" FROM "{name}" WHERE typeof("{column}") = \'integer\''
            found |= wanted.intersection(value for (value,) in database.execute(asked))
    return found


def _kept(text: str, names: set[str], separators: str) -> str:
    """The assignments of `text` that number a rank; the names of all others are added to `names`."""
    kept = []
    for part in re.split(separators, text):
        found = _VARIABLE.fullmatch(part)
        if found is None:
            continue
        if found[1] in _KEPT and re.fullmatch(r'"?[0-9]{1,9}"?', found[2]):
            kept.append(part)
        else:
            names.add(found[1])
    return ";".join(kept)
