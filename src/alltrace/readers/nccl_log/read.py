"""Reads one log of NCCL, in one pass and in constant memory.

The calls go to an Arrow file, or are counted by size as they come; everything else is small and stays in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alltrace.core.nccl_log import ABSENT, FIELDS, put, put_communicator, scan, word_hash
from alltrace.readers.nccl_log.instances import Instance, Instances
from alltrace.readers.nccl_log.lines import CarefulPath
from alltrace.readers.nccl_log.records import Records
from alltrace.readers.text import TextLog
from alltrace.trace.nccl_words import OPERATIONS

_LEADS = 1 << 16
_CAREFUL_AT_ONCE = 1024
_CALLS_AT_ONCE = 1 << 16
_GROUP_ROWS = 1 << 18
_MOST_LEADS = 30_000
SIZE_KEYS = ("instance", "operation", "count", "datatype", "flags")


@dataclass(frozen=True)
class Wanted:
    """What to read of a log."""

    path: str  # the log
    calls_to: str | None = None  # the Arrow file for the calls, one row each; None to count them by `SIZE_KEYS` instead
    times: bool = False  # whether to read the lines' times
    time_format: str | None = None  # their format for `strptime`, or None for the built-in ones
    careful: bool = False  # whether to read every line the careful way; for tests


@dataclass
class LogPart:
    """One log, read."""

    path: str  # the log
    records: Records  # everything but the calls
    instances: list[Instance]  # the communicators' ends; `instance` of a call is one's position here
    tokens: list[tuple[int, int, int | None]]  # process number, thread id and CUDA device of each `token` of a call
    sizes: Any  # table of `SIZE_KEYS` and `calls`, if the calls were counted; else None
    calls: int  # how many calls there are
    lines: int  # how many lines the log has
    damage: str | None  # what is wrong with the file's end, or None


def read_log(wanted: Wanted, advance: Callable[[int], None] = lambda _n: None) -> LogPart:
    """Read a log. Raises `InputError`: the file cannot be read. Raises `UsageError`: the time format is invalid."""
    reading = _Reading(wanted)
    try:
        return reading.run(advance)
    finally:
        reading.close()


class _Reading:
    def __init__(self, wanted: Wanted) -> None:
        from alltrace.readers.nccl_log.stamps import Stamp

        self._wanted = wanted
        self._records = Records()
        self._operations = np.array([word_hash(name.encode()) for name in OPERATIONS], np.uint64)
        self._lead_keys = np.zeros(_LEADS, np.uint64)
        self._lead_tokens = np.zeros(_LEADS, np.int64)
        self._leads = 0
        self._token_process = np.zeros(1024, np.int64)
        self._comm_keys = np.zeros(1 << 12, np.uint64)
        self._comm_values = np.zeros(1 << 12, np.int64)
        self._comms = np.zeros((1 << 11, 2), np.int64)
        self._comm_numbers: dict[tuple[int, int], int] = {}
        self._instances = Instances(self._records.communicators)
        stamp = Stamp(wanted.time_format) if wanted.time_format is not None and wanted.times else None
        fast = not wanted.careful and stamp is None
        self._careful = CarefulPath(
            self._records,
            self._register if fast else None,
            self._communicator,
            lambda process, pointer: (process, pointer) in self._comm_numbers,
            stamp,
        )
        self._calls_out = np.zeros((_CALLS_AT_ONCE, len(FIELDS)), np.int64)
        self._careful_out = np.zeros((_CAREFUL_AT_ONCE, 3), np.int64)
        self._lines = 0
        self._calls = 0
        self._events_done = 0
        self._sink: _Sizes | _Rows = _Sizes() if wanted.calls_to is None else _Rows(Path(wanted.calls_to))

    def run(self, advance: Callable[[int], None]) -> LogPart:
        with TextLog(Path(self._wanted.path)) as log:
            first = True
            for block, whole in log.blocks():
                if first:
                    self._careful.look_ahead(block)
                    first = False
                end = len(block) if whole else block.rfind(b"\n") + 1
                self._block(block[:end] if end < len(block) else block)
                if end < len(block):
                    self._careful.line(block[end:], self._lines, whole=False)
                    self._lines += 1
                    self._careful.finish()
                    self._take(np.zeros((0, len(FIELDS)), np.int64))
                advance(len(block))
            damage = log.damage
        self._careful.finish()
        self._take(np.zeros((0, len(FIELDS)), np.int64))
        sizes = self._sink.close()
        return LogPart(
            self._wanted.path,
            self._records,
            self._instances.all,
            self._careful.tokens,
            sizes,
            self._calls,
            self._lines,
            damage,
        )

    def close(self) -> None:
        """Release the careful path, which refers to this reading: the two, some 6 MB, would stay until Python collects garbage."""
        del self._careful

    def _block(self, block: bytes) -> None:
        data = memoryview(block)
        at = 0
        while at < len(data):
            self._make_room()
            before = len(self._comm_numbers)
            calls, careful, comms, lines, foreign, stopped = scan(
                data[at:],
                self._lines,
                self._wanted.times,
                self._operations,
                self._lead_keys,
                self._lead_tokens,
                self._token_process,
                self._comm_keys,
                self._comm_values,
                self._comms,
                before,
                self._calls_out,
                self._careful_out,
            )
            for number in range(before, comms):
                pair = int(self._comms[number, 0]), int(self._comms[number, 1])
                self._comm_numbers[pair] = number
                self._records.communicators.append(pair)
            self._records.counts["COLL"] += calls
            self._records.counts["foreign"] += foreign
            for begin, end, line in self._careful_out[:careful].tolist():
                self._careful.line(block[at + begin : at + end], line)
            self._lines += lines
            self._take(self._calls_out[:calls])
            at += stopped

    def _take(self, rows: Any) -> None:
        self._careful.settle()
        more = self._careful.rows
        if more:
            rows = np.concatenate([rows, np.array(more, np.int64)])
            rows = rows[np.argsort(rows[:, 0], kind="stable")]
            self._careful.rows = []
        events = self._records.events[self._events_done :]
        self._events_done = len(self._records.events)
        instances = self._instances.assign(rows, events)
        self._calls += len(rows)
        if len(rows):
            self._sink.add(rows, instances)

    def _make_room(self) -> None:
        used = len(self._comm_numbers)
        if used + _CALLS_AT_ONCE // 8 > self._comms.shape[0] // 2:
            self._comms = np.concatenate([self._comms, np.zeros((max(_CALLS_AT_ONCE, used), 2), np.int64)])
            self._comm_keys = np.zeros(4 * (1 << (self._comms.shape[0] - 1).bit_length()), np.uint64)
            self._comm_values = np.zeros(self._comm_keys.size, np.int64)
            for (process, pointer), number in self._comm_numbers.items():
                put_communicator(self._comm_keys, self._comm_values, process, pointer, number)

    def _communicator(self, process: int, pointer: int) -> int:
        number = self._comm_numbers.get((process, pointer))
        if number is None:
            number = len(self._comm_numbers)
            if number >= self._comms.shape[0]:
                self._make_room()
            self._comm_numbers[process, pointer] = number
            self._comms[number] = process, pointer
            self._records.communicators.append((process, pointer))
            put_communicator(self._comm_keys, self._comm_values, process, pointer, number)
        return number

    def _register(self, key: int, token: int, process: int) -> None:
        if self._leads >= _MOST_LEADS:
            return
        if token >= self._token_process.size:
            self._token_process = np.concatenate([self._token_process, np.zeros(max(1024, token), np.int64)])
        self._token_process[token] = process
        put(self._lead_keys, self._lead_tokens, key, token)
        self._leads += 1


class _Sizes:
    """Counts calls by `SIZE_KEYS`, merging as they arrive, so that memory grows only with the distinct sizes."""

    def __init__(self) -> None:
        self._waiting: list[Any] = []
        self._rows = 0
        self._table: Any = None

    def add(self, rows: Any, instances: Any) -> None:
        columns = [FIELDS.index(name) for name in SIZE_KEYS[1:]]
        self._waiting.append(np.column_stack([instances, rows[:, columns]]))
        self._rows += len(rows)
        if self._rows >= _GROUP_ROWS:
            self._merge()

    def close(self) -> Any:
        self._merge()
        return self._table

    def _merge(self) -> None:
        import pyarrow as pa

        rows = np.concatenate(self._waiting) if self._waiting else np.zeros((0, len(SIZE_KEYS)), np.int64)
        self._waiting, self._rows = [], 0
        names = [*SIZE_KEYS, "calls"]
        new = pa.table([*(pa.array(rows[:, n]) for n in range(len(SIZE_KEYS))), np.ones(len(rows), np.int64)], names=names)
        if self._table is not None:
            new = pa.concat_tables([self._table, new])
        self._table = new.group_by(list(SIZE_KEYS)).aggregate([("calls", "sum")]).rename_columns(names)


class _Rows:
    """Writes calls to an Arrow file as they arrive, so that memory is limited to one block."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._schema = pa.schema([(name, pa.int64()) for name in (*FIELDS, "instance")])
        self._writer = pa.ipc.new_file(str(path), self._schema)
        self._waiting: list[Any] = []
        self._rows = 0

    def add(self, rows: Any, instances: Any) -> None:
        self._waiting.append(np.column_stack([rows, instances]))
        self._rows += len(rows)
        if self._rows >= _CALLS_AT_ONCE:
            self._write()

    def close(self) -> None:
        self._write()
        self._writer.close()

    def _write(self) -> None:
        import pyarrow as pa

        if not self._waiting:
            return
        rows = np.concatenate(self._waiting)
        self._waiting, self._rows = [], 0
        arrays = []
        for n in range(rows.shape[1]):
            column = np.ascontiguousarray(rows[:, n])
            arrays.append(pa.array(column, mask=column == ABSENT))
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
