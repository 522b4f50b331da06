"""Removes environments, command lines, program output and other processes from an export before it is shared.

nsys keeps them in these places: the row `DeviceEnvironment` of `TARGET_INFO_SYSTEM_ENV`; the rows `PROCESS_n:COMMAND`,
`ARGUMENT_n`, `WORKING_DIR` and `ENVIRONMENT_VARIABLE` of `META_DATA_CAPTURE`; the strings that `ProcessStreams` and,
from 2024 on, `ANALYSIS_FILE` refer to: the output of every process, and nsys' own configuration; and strings that no
table refers to: the environment of each process of the host that it could read, of any user, as assignments with a zero
byte between them; and `PROCESSES` and `ThreadNames`, with the names of all processes of the host. No string stays that
no table refers to. Of the payloads of NVTX events, those of NCCL stay (`scrub_payloads`).
"""

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from alltrace.capture.launchers import LAUNCHERS
from alltrace.capture.scrub_payloads import clean_payloads
from alltrace.trace.errors import InputError, UsageError, printable
from alltrace.trace.nsys_payloads import EXPORT, payload_switches
from alltrace.trace.scratch import scratch_folder

_HEAD = b"SQLite format 3\0"
KEPT_VARIABLES = {n for la in LAUNCHERS for n in (*la.rank, *la.local_rank, *la.world_size, *la.local_size, *la.node)}
_COMMAND = re.compile(r".*:(COMMAND|ARGUMENT_[0-9]+|WORKING_DIR(ECTORY)?)")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_REFERS = re.compile(r"^\s*[\"'`\[]?(\w+).*--\s*REFERENCES StringIds", re.MULTILINE)
_MAY_REFER = re.compile(r"\w*(id|name|text|string|symbol|module)", re.IGNORECASE)
_HOLDERS = ("ProcessStreams", "ANALYSIS_FILE")
REPORTS = (".nsys-rep", ".qdrep")
_EXPORT_LIMIT_S = 3600
_PID_BITS = 24  # of a global thread id, below which is the thread
_ANY_PROCESS = (
    "PROCESSES",
    "ThreadNames",
    "SCHED_EVENTS",
)  # also describe processes that have nothing to do with the job
_NVTX_TEXTS = (34, 59, 60, 70, 71)  # marks and ranges; domains and categories keep their names
_NCCL = "NCCL"


@dataclass(frozen=True)
class Scrubbed:
    variables: tuple[str, ...]  # the names of the variables, never their values
    command_words: int  # how many words of command lines there were
    streams: int  # how many outputs of processes there were
    environments: int  # how many environments of processes there were among the strings
    processes: int = 0  # how many processes without an event of the job had a name
    strings: int = 0  # how many strings were there that nothing refers to
    texts: int = 0  # how many different texts of ranges and marks there were, if these were to be dropped
    payloads: int = 0  # how many ranges and marks had a payload, or fields of one, that are not NCCL's

    def __str__(self) -> str:
        texts = f", {self.texts} texts of ranges" if self.texts else ""
        payloads = f", {self.payloads} payloads" if self.payloads else ""
        variables = f" ({printable(' '.join(self.variables))})" if self.variables else ""
        return (
            f"removed {len(self.variables)} variables{variables}, {self.command_words} words of command lines, "
            f"{self.streams} outputs, {self.environments} environments of processes of the host, "
            f"names of {self.processes} other processes, {self.strings} strings that nothing refers to{texts}{payloads}"
        )


def scrub(
    source: Path,
    target: Path,
    *,
    drop_texts: bool = False,
    keep_payloads: bool = False,
    nsys: Callable[[], Path] | None = None,
    words: Callable[[str], str] | None = None,
) -> Scrubbed:
    """Write `source` to `target` without what must not be shared; variables that number ranks stay."""
    # `source`: a SQLite export, or a report, which is exported first; it is not changed. `drop_texts`: write `range 1`
    # and so on instead of the texts of NVTX ranges and marks, but for those of NCCL. `keep_payloads`: keep all payloads
    # of NVTX events, whatever the program put there, instead of NCCL's alone. `nsys`: returns the nsys that exports a
    # report; None if none may run. `words`: replaces in a text what must not be shared, such as names of hosts; None to
    # leave the texts that stay as they are.
    if source.suffix in REPORTS and nsys is not None:
        with scratch_folder("alltrace-scrub-") as folder:
            export = export_report(source, nsys(), Path(folder))
            return scrub(export, target, drop_texts=drop_texts, keep_payloads=keep_payloads, words=words)
    if source.suffix in (*REPORTS, ".qdstrm"):
        raise InputError(
            source,
            found="a report itself cannot be scrubbed: only Nsight Systems can write one",
            advice=f"export it ({EXPORT}), scrub the export and share that alone",
        )
    try:
        with source.open("rb") as file:
            head = file.read(len(_HEAD))
    except OSError as error:
        raise InputError.cannot_be("read", source, error) from error
    if head != _HEAD:
        raise InputError(source, found="it is not an SQLite file", expected="an export as by `nsys export -t sqlite`")
    if target.exists():
        raise UsageError(f"{target} already exists; give another --output")
    import sqlite3

    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        try:
            shutil.copyfile(source, part)
        except OSError as error:
            raise InputError.cannot_be("written", target, error, advice="give another --output") from error
        with closing(sqlite3.connect(part)) as database:
            database.text_factory = _text
            database.execute("PRAGMA secure_delete = ON")
            scrubbed = _clean(database, drop_texts=drop_texts, keep_payloads=keep_payloads)
            if words is not None:
                _replace(database, words)
            database.commit()
            database.execute("VACUUM")  # what was removed must not be in pages that are free
        part.rename(target)
    except sqlite3.DatabaseError as error:
        raise InputError.cannot_be("scrubbed", source, error, advice="export it again") from error
    finally:
        part.unlink(missing_ok=True)
    return scrubbed


def export_report(report: Path, nsys: Path, folder: Path) -> Path:
    """The export of a report, in a folder for this user alone."""
    target = folder / "export.sqlite"
    command = [str(nsys), "export", "--type=sqlite", "--force-overwrite=true", f"--output={target}"]
    command += [*payload_switches(nsys), str(report.resolve())]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=_EXPORT_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(report, found=f"{nsys} cannot export it ({error})") from error
    if done.returncode or not target.is_file():
        message = " ".join((done.stderr or done.stdout).split())[:300]
        raise InputError(
            report, found=f"{nsys} cannot export it ({message})", advice="export it with the version that wrote it"
        )
    return target


def _text(value: bytes) -> str:
    return value.decode("utf-8", errors="surrogateescape")


def _clean(database: sqlite3.Connection, *, drop_texts: bool, keep_payloads: bool) -> Scrubbed:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    names: set[str] = set()
    words = streams = 0
    if "TARGET_INFO_SYSTEM_ENV" in tables:
        rows = database.execute(
            "SELECT rowid, value FROM TARGET_INFO_SYSTEM_ENV WHERE name LIKE '%Environment%'"
        ).fetchall()
        for row, value in rows:
            assignments = _rank_assignments(str(value or ""), names, "[;\n\0]")
            database.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE rowid = ?", (assignments, row))
    if "META_DATA_CAPTURE" in tables:
        for row, name, value in database.execute("SELECT rowid, name, value FROM META_DATA_CAPTURE").fetchall():
            if str(name).endswith("ENVIRONMENT_VARIABLE"):
                assignments = _rank_assignments(str(value or ""), names, "\0")
                database.execute("UPDATE META_DATA_CAPTURE SET value = ? WHERE rowid = ?", (assignments, row))
            elif _COMMAND.fullmatch(str(name)):
                words += 1
                database.execute("UPDATE META_DATA_CAPTURE SET value = '' WHERE rowid = ?", (row,))
    processes = _clean_processes(database, tables)
    payloads = texts = 0
    if "NVTX_EVENTS" in tables:
        if not keep_payloads:
            payloads = clean_payloads(database, tables, _of_nccl(database, tables))
        if drop_texts:
            texts = _drop_texts(database, tables)
    environments = strings = 0
    if "StringIds" in tables:
        environments = _clean_environments(database, names)
        contents = " UNION ".join(f"SELECT contentId FROM {t}" for t in _HOLDERS if t in tables)
        if contents:
            (streams,) = database.execute(f"SELECT count(*) FROM ({contents}) WHERE contentId IS NOT NULL").fetchone()
            database.execute(f"UPDATE StringIds SET value = '' WHERE id IN ({contents})")
        strings = _clean_strings(database)
    return Scrubbed(tuple(sorted(names)), words, streams, environments, processes, strings, texts, payloads)


def _replace(database: sqlite3.Connection, words: Callable[[str], str]) -> None:
    """Replace in all texts of all tables what must not be shared."""
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for _, column, kind, *_ in database.execute(f'PRAGMA table_info("{table}")').fetchall():
            if kind.upper() in ("", "TEXT"):
                texts = database.execute(f'SELECT rowid, "{column}" FROM "{table}" WHERE typeof("{column}") = \'text\'')
                changed = [
                    (new.encode("utf-8", "surrogateescape"), row) for row, text in texts if (new := words(text)) != text
                ]
                database.executemany(f'UPDATE "{table}" SET "{column}" = CAST(? AS TEXT) WHERE rowid = ?', changed)


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [name for _, name, *_ in database.execute(f'PRAGMA table_info("{table}")')]


def _clean_processes(database: sqlite3.Connection, tables: set[str]) -> int:
    """Empty the names of processes and threads without an event; how many processes had one."""
    active: set[int] = set()
    for table in sorted(tables - set(_ANY_PROCESS)):
        for column in {"globalPid", "globalTid", "endGlobalTid"} & set(_columns(database, table)):
            query = f'SELECT DISTINCT "{column}" >> {_PID_BITS} FROM "{table}" WHERE typeof("{column}") = \'integer\''
            active.update(number for (number,) in database.execute(query))
    emptied = 0
    for table, column in (("PROCESSES", "globalPid"), ("ThreadNames", "globalTid")):
        if table not in tables or column not in _columns(database, table):
            continue
        rows = database.execute(
            f'SELECT rowid, "{column}" FROM {table} WHERE typeof("{column}") = \'integer\''
        ).fetchall()
        others = [(row,) for row, number in rows if number >> _PID_BITS not in active]
        if table == "PROCESSES":
            emptied = len(others)
            database.executemany("UPDATE PROCESSES SET name = '' WHERE rowid = ?", others)
        else:
            database.executemany("DELETE FROM ThreadNames WHERE rowid = ?", others)
    return emptied


def _text_of_event(database: sqlite3.Connection, tables: set[str]) -> str:
    """The expression for the text of a row of `NVTX_EVENTS`."""
    there = set(_columns(database, "NVTX_EVENTS"))
    registered = (
        "(SELECT value FROM StringIds WHERE id = textId)" if "textId" in there and "StringIds" in tables else "NULL"
    )
    return f"coalesce(text, {registered})" if "text" in there else registered


def _of_nccl(database: sqlite3.Connection, tables: set[str]) -> str:
    """The condition for rows of `NVTX_EVENTS` that are NCCL's: of its domain, also where its name was not recorded."""
    if not {"eventType", "domainId"} <= set(_columns(database, "NVTX_EVENTS")):
        return "FALSE"
    text = _text_of_event(database, tables)
    named = f"SELECT domainId FROM NVTX_EVENTS WHERE eventType = 75 AND {text} = '{_NCCL}'"
    return f"(coalesce(domainId, 0) IN ({named}) OR (domainId != 0 AND {text} GLOB 'nccl[A-Z]*'))"


def _drop_texts(database: sqlite3.Connection, tables: set[str]) -> int:
    """Give ranges and marks texts that say nothing, equal ones the same; how many different ones there were."""
    there = set(_columns(database, "NVTX_EVENTS"))
    if not {"text", "eventType"} <= there:
        return 0
    text = _text_of_event(database, tables)
    chosen = f"eventType IN ({', '.join(map(str, _NVTX_TEXTS))})"
    chosen += (  # collectives are known by what NCCL calls its ranges
        f" AND NOT coalesce({_of_nccl(database, tables)}, FALSE)"
    )
    distinct = [
        value for (value,) in database.execute(f"SELECT DISTINCT {text} FROM NVTX_EVENTS WHERE {chosen}") if value
    ]
    names = {value: f"range {number}" for number, value in enumerate(sorted(distinct), 1)}
    database.create_function("instead_of", 1, lambda value: names.get(value, value), deterministic=True)
    changes = [f"text = instead_of({text})", *(["textId = NULL"] if "textId" in there else [])]
    changes += [f"{column} = NULL" for column in ("jsonText", "jsonTextId", "binaryData") if column in there]
    database.execute(f"UPDATE NVTX_EVENTS SET {', '.join(changes)} WHERE {chosen}")
    return len(names)


def _clean_strings(database: sqlite3.Connection) -> int:
    """Empty the strings that no table refers to; how many there were. None if the tables do not say."""
    declared = [
        (name, column)
        for name, text in database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        for column in _REFERS.findall(text or "")
    ]
    if not declared:
        return 0
    database.execute("CREATE TEMP TABLE referred (id INTEGER PRIMARY KEY)")
    for table, column in declared:
        there = f'SELECT "{column}" FROM "{table}" WHERE typeof("{column}") = \'integer\''
        database.execute(f"INSERT OR IGNORE INTO referred {there}")
    for holder in _HOLDERS:
        if {"filenameId"} & set(_columns(database, holder)):
            database.execute(
                f'INSERT OR IGNORE INTO referred SELECT filenameId FROM "{holder}" WHERE filenameId IS NOT NULL'
            )
    rest = "value != '' AND id NOT IN (SELECT id FROM referred)"
    (count,) = database.execute(f"SELECT count(*) FROM StringIds WHERE {rest}").fetchone()
    database.execute(f"UPDATE StringIds SET value = '' WHERE {rest}")
    database.execute("DROP TABLE referred")
    return int(count)


def _clean_environments(database: sqlite3.Connection, names: set[str]) -> int:
    """Empty the strings that are environments; how many they were."""
    # Several assignments with a zero byte between them are one, in every reference. A single one may be a name that a
    # program gave, such as `lr=0.1`: it stays if a table refers to it.
    query = "SELECT id, value FROM StringIds WHERE instr(CAST(value AS BLOB), X'3D')"
    suspects = {number: parts for number, value in database.execute(query) if (parts := _assignments(str(value)))}
    single = {number for number, parts in suspects.items() if len(parts) == 1}
    if single:
        single &= _referred_to(database, single)
    for number in suspects.keys() - single:
        names.update(suspects[number])
        database.execute("UPDATE StringIds SET value = '' WHERE id = ?", (number,))
    return len(suspects) - len(single)


def _assignments(text: str) -> list[str]:
    """The names of the variables in an environment; empty for other text."""
    matches = [_VARIABLE.fullmatch(part) for part in text.rstrip("\0").split("\0")]
    return [match[1] for match in matches if match is not None]


def _referred_to(database: sqlite3.Connection, wanted: set[int]) -> set[int]:
    """Those of `wanted` that a column of another table refers to."""
    declared = {
        name: _REFERS.findall(text or "")
        for name, text in database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        if name not in ("StringIds", *_HOLDERS)
    }
    if not any(declared.values()):  # a rewritten file may lack the comments: use any column that may refer
        declared = {
            name: [c for _, c, *_ in database.execute(f'PRAGMA table_info("{name}")') if _MAY_REFER.fullmatch(c)]
            for name in declared
        }
    referred: set[int] = set()
    for name, columns in declared.items():
        for column in columns:
            query = f'SELECT DISTINCT "{column}" FROM "{name}" WHERE typeof("{column}") = \'integer\''
            referred |= wanted.intersection(value for (value,) in database.execute(query))
    return referred


def _rank_assignments(text: str, names: set[str], separators: str) -> str:
    """The assignments of `text` that number a rank; the names of all others are added to `names`."""
    assignments = []
    for part in re.split(separators, text):
        match = _VARIABLE.fullmatch(part)
        if match is None:
            continue
        if match[1] in KEPT_VARIABLES and re.fullmatch(r'"?[0-9]{1,9}"?', match[2]):
            assignments.append(part)
        else:
            names.add(match[1])
    return ";".join(assignments)
