"""Accesses to files by name, which reports taken with `--osrt-file-access=true` hold.

Events name an opened file by a number; a table of descriptors has its path and process. Both hold plain process and
thread ids, while all other tables hold global ones, of which the rest is taken from the list of processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.nsys.columns import as_integers, record_batch, timed, words_array
from alltrace.readers.nsys.entities import TID_BITS, TID_MASK, Entities, pid_of
from alltrace.readers.nsys.mapping import find_table, missing_columns
from alltrace.readers.nsys.small import raw_type, small_rows, whole
from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.strings import Strings
from alltrace.trace.arrays import either, unpacked

KINDS = ("read", "write", "open", "close", "other")
_EVENTS, _DESCRIPTORS, _TYPES = "OSRT_FILE_ACCESS_EVENTS", "OSRT_FILE_ACCESS_DESCRIPTORS", "ENUM_OSRT_FILE_ACCESS_EVENT_TYPE"
_COLUMNS = ("startedAt", "endedAt", "fileAccessId", "threadId", "eventType", "apiCallId", "bytesProcessed")
_VM = 1 << 48  # the first virtual machine of a host, as in a report that lists no processes


class Files:
    """The accesses to files of an export; `left_out`: rows without a time by its table, filled as rows are read."""

    def __init__(self, source: RawSource, strings: Strings, entities: Entities, left_out: dict[str, int]) -> None:
        self._source = source
        self._left_out = left_out
        self._strings = strings
        self._entities = entities

    def tables(self) -> list[str]:
        """The table of the export that has them, if there is one."""
        table = find_table(self._source.tables, _EVENTS)
        return [table] if table and not missing_columns(table, self._source.tables[table]) else []

    def stream(self) -> Iterator[Any]:
        """The rows of `file_accesses`, as batches."""
        for table in self.tables():
            types = self._source.tables[table]
            paths, owners = self._descriptors()
            kinds = self._kinds()
            for batch in self._source.batches(table, {c: raw_type(types[c]) for c in _COLUMNS if c in types}):
                batch = timed(batch, table, self._left_out, 0)
                if not batch.num_rows:
                    continue
                columns = {n: as_integers(c) for n, c in zip(batch.schema.names, batch.columns, strict=True)}
                access = pc.dictionary_encode(columns["fileAccessId"])
                numbers = access.dictionary.to_pylist()
                ids = self._strings.from_texts(pa.array([paths.get(n) for n in numbers], pa.string()))
                owner = pc.take(pa.array([owners.get(n) for n in numbers], pa.int64()), access.indices)
                rows: dict[str, Any] = {
                    "start": columns["startedAt"],
                    "end": columns.get("endedAt"),
                    "file": pc.take(ids, access.indices),
                    "access": columns["fileAccessId"],
                    "bytes": columns.get("bytesProcessed"),
                    "process": self._entities.process_rows(owner),
                }
                if "threadId" in columns:
                    rows["thread"] = self._entities.thread_rows(_global(owner, columns["threadId"]))
                if "apiCallId" in columns:
                    rows["name"] = self._strings.from_ids(columns["apiCallId"])
                if "eventType" in columns:
                    codes_of_types, nothing = unpacked(columns["eventType"])
                    codes = np.array([kinds.get(k, KINDS.index("other")) for k in codes_of_types.tolist()], np.int32)
                    rows["kind"] = words_array(codes, KINDS, nothing)
                yield record_batch("file_accesses", rows, batch.num_rows)

    def _descriptors(self) -> tuple[dict[int, str], dict[int, int]]:
        """The path of each access, and the global id of its process."""
        process_of: dict[int, int] = {}
        for column in ("PROCESSES", "ThreadNames"):
            for (number,) in small_rows(self._source, column, "globalPid" if column == "PROCESSES" else "globalTid"):
                if isinstance(number, int):
                    process_of.setdefault(pid_of(number), number & ~TID_MASK)
        paths: dict[int, str] = {}
        owners: dict[int, int] = {}
        for access, process, path in small_rows(self._source, _DESCRIPTORS, "fileAccessId", "processId", "filePath"):
            number, pid = whole(access), whole(process)
            if number is None or number in paths:
                continue
            paths[number] = str(path or "")
            if pid is not None:
                owners[number] = pid & ~TID_MASK if pid > TID_MASK else process_of.get(pid, _VM | pid << TID_BITS)
        return paths, owners

    def _kinds(self) -> dict[int, int]:
        """The place in `KINDS` of each number of an event's type, from what the export calls it."""
        kinds = {}
        for number, name, label in small_rows(self._source, _TYPES, "id", "name", "label"):
            text = f"{name or ''} {label or ''}".lower()
            kind = next((k for k in KINDS if k in text), "other")
            if whole(number) is not None:
                kinds[int(number)] = KINDS.index(kind)
        return kinds


def _global(processes: Any, threads: Any) -> Any:
    """Global thread ids of threads of processes; one that is global already stays."""
    owner, lost = unpacked(processes)
    thread, missing = unpacked(threads)
    ids = np.where((thread >= 0) & (thread <= TID_MASK), owner | thread, thread)
    return pa.array(ids, mask=either(lost, missing))
