"""NVTX events as `ranges` and `marks`."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.nsys.columns import as_integers, record_batch, timed, words_array
from alltrace.readers.nsys.dense import unique_pairs
from alltrace.readers.nsys.entities import Entities
from alltrace.readers.nsys.mapping import find_table, missing_columns
from alltrace.readers.nsys.payload import Payloads, payload_texts
from alltrace.readers.nsys.small import raw_type, whole
from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.strings import Strings
from alltrace.trace.arrays import either, unpacked
from alltrace.trace.names import name_id, text_of_bytes

_NCCL_CALLS = (
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "Reduce",
    "Send",
    "Recv",
    "AlltoAll",
    "Gather",
    "Scatter",
)
RANGE_KINDS = ("pushpop", "startend")
_PUSHPOP = 59
_STARTEND = (60, 71)
_RANGES = (_PUSHPOP, 70, *_STARTEND)
_MARKS = (34, 65)
_THREAD_NAME = 39
_DOMAIN = 75
_TABLES = ("NVTX_EVENTS", "NVTXT_EVENTS")
_COLUMNS = (
    "start end eventType category color text globalTid endGlobalTid textId domainId uint64Value int64Value doubleValue "
    "uint32Value int32Value floatValue jsonTextId jsonText binaryData"
).split()
_HELD_ROWS = 1_000_000  # marks kept back while ranges are streamed; past it the table is read a second time


class Nvtx:
    """Streams the NVTX events of an export."""

    def __init__(self, source: RawSource, strings: Strings, entities: Entities, left_out: dict[str, int]) -> None:
        self._source = source
        self._left_out = left_out
        self._strings = strings
        self._entities = entities
        self._domains: dict[tuple[int, int], int | None] = {}
        self._scanned = False
        self._payloads = Payloads(source, strings)
        self._held: list[Any] | None = None
        self._nccl_names = pa.array([name_id(f"nccl{call}") for call in _NCCL_CALLS], pa.int64())
        self.nccl_calls = 0
        self.nccl_payloads = 0

    def tables(self) -> list[str]:
        """The tables of the export that hold NVTX events."""
        tables = [find_table(self._source.tables, t) for t in _TABLES]
        return [t for t in tables if t is not None and not missing_columns(t, self._source.tables[t])]

    def stream(self, wanted: str, *, hold_marks: bool = False) -> Iterator[Any]:
        """The batches of `ranges` or `marks`; `hold_marks`: keep the marks, which will be read next."""
        if wanted == "marks" and self._held is not None:
            yield from self._held
            self._held = None
            return
        marks: list[Any] | None = [] if hold_marks else None
        rows = 0
        for table in self.tables():
            for numbers, batch in self._batches(table):
                types, _ = unpacked(as_integers(batch.column("eventType")))
                mixed = bool((types != _PUSHPOP).any())  # mostly there is nothing else
                if mixed:
                    self._note(batch, types)
                if wanted == "ranges" and (part := self._ranges(batch, types, numbers, mixed=mixed)) is not None:
                    yield part
                if (
                    mixed
                    and (wanted == "marks" or marks is not None)
                    and (part := self._marks(batch, types)) is not None
                ):
                    if wanted == "marks":
                        yield part
                    elif marks is not None:
                        marks.append(part)
                        rows += part.num_rows
                        marks = marks if rows <= _HELD_ROWS else None
        self._held = marks

    def _batches(self, table: str) -> Iterator[tuple[Any, Any]]:
        """The events of a table, with their row numbers in it, from 1: an export numbers its rows without gaps."""
        types = self._source.tables[table]
        columns = {c: raw_type(types[c]) for c in _COLUMNS if c in types}
        if "binaryData" in columns and types["binaryData"] == "string":  # declared as text, but the values are bytes
            columns["binaryData"] = pa.binary()
        before = 0
        self._left_out.pop(table, None)  # it may be read twice
        for batch in self._source.batches(table, columns):
            numbers = pa.array(np.arange(before + 1, before + 1 + batch.num_rows, dtype=np.int64))
            before += batch.num_rows
            with_time = timed(batch.append_column("number", numbers), table, self._left_out, "start", "eventType")
            yield with_time.column("number").to_numpy(), with_time

    def _ranges(self, batch: Any, types: Any, numbers: Any, *, mixed: bool) -> Any:
        if mixed:
            keep = np.isin(types, _RANGES)
            batch, types, numbers = pc.filter(batch, pa.array(keep)), types[keep], numbers[keep]
        if not batch.num_rows:
            return None
        common = self._common(batch)
        common["start"] = as_integers(batch.column("start"))
        common["end"] = as_integers(batch.column("end")) if "end" in batch.schema.names else None
        common["source_row"] = pa.array(numbers)
        kinds = np.isin(types, _STARTEND).astype(np.int32) if mixed else np.zeros(len(types), np.int32)
        common["kind"] = words_array(kinds, RANGE_KINDS)
        self._count_nccl(common)
        if "endGlobalTid" in batch.schema.names and batch.column("endGlobalTid").null_count < batch.num_rows:
            common["end_thread"] = self._entities.thread_rows(as_integers(batch.column("endGlobalTid")))
        return record_batch("ranges", common, batch.num_rows)

    def _count_nccl(self, common: Mapping[str, Any]) -> None:
        """Count NCCL's calls, and those of them with a payload."""
        if common.get("name") is None:
            return
        calls = pc.is_in(common["name"], self._nccl_names)
        self.nccl_calls += calls.true_count
        if common.get("payload") is not None:
            self.nccl_payloads += pc.and_(calls, pc.is_valid(common["payload"])).true_count

    def _marks(self, batch: Any, types: Any) -> Any:
        keep = np.isin(types, _MARKS)
        if not keep.any():
            return None
        batch = pc.filter(batch, pa.array(keep))
        common = self._common(batch)
        common["time"] = as_integers(batch.column("start"))
        return record_batch("marks", common, batch.num_rows)

    def _common(self, batch: Any) -> dict[str, Any]:
        names = batch.schema.names
        columns: dict[str, Any] = {}
        if "globalTid" in names:
            columns["thread"] = self._entities.thread_rows(as_integers(batch.column("globalTid")))
            columns["process"] = self._entities.process_of_threads(columns["thread"])
            columns["domain"] = self._domain_names(batch)
        if "text" in names and batch.column("text").null_count < batch.num_rows:
            columns["name"] = self._strings.from_texts(batch.column("text"))
        if "textId" in names and (columns.get("name") is None or columns["name"].null_count):
            registered = self._strings.from_ids(as_integers(batch.column("textId")))
            columns["name"] = registered if columns.get("name") is None else pc.coalesce(columns["name"], registered)
        for column in ("category", "color"):
            if column in names:
                columns[column] = as_integers(batch.column(column))
        columns["payload"] = payload_texts(batch, self._strings, self._payloads)
        return columns

    def _domain_names(self, batch: Any) -> Any:
        if "domainId" not in batch.schema.names:
            return None
        domains, nothing = unpacked(as_integers(batch.column("domainId")))
        tids, lost = unpacked(as_integers(batch.column("globalTid")))
        none = domains == 0
        if not self._domains and self._scanned:
            return None
        if either(none, nothing, lost).all() and not any(d == 0 for _, d in self._domains):
            return None
        processes = tids >> 24
        # a pair of process and domain in one number; domain ids are small, and a clash of hashes would need 2^20 of
        # them
        pairs, inverse = unique_pairs(processes, domains)
        ids = np.zeros(len(pairs), np.int64)
        lacking = np.ones(len(pairs), np.bool_)
        for i, pair in enumerate(pairs):
            name = self._domain(pair)
            if name is not None:
                ids[i], lacking[i] = name, False
        return pa.array(ids[inverse], pa.int64(), mask=either(lacking[inverse], nothing, lost))

    def _domain(self, pair: tuple[int, int]) -> int | None:
        if pair not in self._domains and pair[1] != 0 and not self._scanned:
            self._scan()
        return self._domains.get(pair)

    def _scan(self) -> None:
        """Read all domain names: a file need not have them before their use."""
        self._scanned = True
        for table in self.tables():
            types = self._source.tables[table]
            columns = {
                c: raw_type(types[c]) for c in ("eventType", "globalTid", "domainId", "text", "textId") if c in types
            }
            for batch in self._source.batches(table, columns):
                self._note(batch, unpacked(as_integers(batch.column("eventType")))[0])

    def _note(self, batch: Any, types: Any) -> None:
        """Take down the domains and the threads' names that events of a batch declare."""
        for kind in (_DOMAIN, _THREAD_NAME):
            at = np.flatnonzero(types == kind)
            if not len(at):
                continue

            names = set(batch.schema.names)
            for row in pc.take(batch, pa.array(at)).to_pylist():
                text = row.get("text")
                if text is None and (text_id := whole(row.get("textId"))) is not None:
                    text = self._strings.text(text_id)
                tid = whole(row.get("globalTid"))
                if text is None or tid is None:
                    continue
                text = text_of_bytes(text) if isinstance(text, bytes) else str(text)
                if kind == _THREAD_NAME:
                    self._entities.thread_names.setdefault(tid, text)
                elif "domainId" in names and (domain := whole(row["domainId"])) is not None:
                    self._domains.setdefault((tid >> 24, domain), self._strings.add(text))
