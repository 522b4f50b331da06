"""Reads one log of NCCL, in one pass and in constant memory.

The calls go to an Arrow file, or are counted by size as they come; everything else is small and stays in memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alltrace.core.nccl_log import ABSENT, FIELDS, put, put_communicator, scan, word_hash
from alltrace.readers.nccl_log.lines import CarefulPath
from alltrace.readers.nccl_log.records import CommunicatorEvent, Records
from alltrace.readers.text import TextLog
from alltrace.trace.nccl_words import OPERATIONS

# Communicators over time: a pointer is used again after its communicator is destroyed, so a pointer is not a
# communicator.

_LINE, _COMM, _NRANKS = FIELDS.index("line"), FIELDS.index("communicator"), FIELDS.index("nranks")


@dataclass
class Instance:
    """One rank's end of one communicator, from its INIT to its end."""

    process: int  # number of its process in the log
    pointer: int  # the pointer that the process prints for it
    rank: int | None = None  # its rank in the communicator, from the INIT line; None if the log has none
    nranks: int | None = None  # the number of ranks, from the INIT line or the calls
    comm_id: str | None = None  # what is equal on all its ranks, as NCCL prints it from 2.18 on
    function: str | None = None  # the call that made it
    parent: str | None = None  # the pointer that it was split from
    device: int | None = None  # the CUDA ordinal
    bus_id: str | None = None  # the device's bus id, as printed
    nodes: int | None = None  # nodes, local_ranks, local_rank: where NCCL placed it
    local_ranks: int | None = None
    local_rank: int | None = None
    begin_line: int | None = None  # the line of its INIT
    complete: bool = False


class Instances:
    """Keeps the instance of each communicator pointer; `communicators`: process and pointer of each number so far."""

    def __init__(self, communicators: Sequence[tuple[int, int]]) -> None:
        self.all: list[Instance] = []
        self._communicators = communicators
        self._current = np.full(1024, -1, np.int64)

    def assign(self, rows: Any, events: Sequence[CommunicatorEvent]) -> Any:
        """The instance of each row of calls, which are in the order of lines, given the events among those lines."""
        while self._current.size < len(self._communicators):
            self._current = np.concatenate([self._current, np.full(self._current.size, -1, np.int64)])
        numbers = rows[:, _COMM]
        touched: dict[int, list[CommunicatorEvent]] = {}
        for event in events:
            if event.communicator >= 0 and event.what != "timings":
                touched.setdefault(event.communicator, []).append(event)
        out = self._current[numbers]
        for number, its in touched.items():
            mine = np.flatnonzero(numbers == number)
            lines = rows[mine, _LINE]
            done = 0
            for event in its:
                upto = int(np.searchsorted(lines, event.line))
                if upto > done:
                    out[mine[done:upto]] = self._implicit(number, rows[mine[done], _NRANKS])
                    done = upto
                self._apply(number, event)
            if done < mine.size:
                out[mine[done:]] = self._implicit(number, rows[mine[done], _NRANKS])
        if (out < 0).any():
            for number in np.unique(numbers[out < 0]):
                mine = (numbers == number) & (out < 0)
                out[mine] = self._implicit(int(number), rows[np.argmax(mine), _NRANKS])
        return out

    def _implicit(self, number: int, nranks: int) -> int:
        """The current instance of a pointer that is used, made if no INIT was seen."""
        index = int(self._current[number])
        if index < 0:
            index = self._new(number, Instance(*self._communicators[number]))
        instance = self.all[index]
        if instance.nranks is None and nranks != ABSENT:
            instance.nranks = int(nranks)
        return index

    def _new(self, number: int, instance: Instance) -> int:
        self.all.append(instance)
        self._current[number] = len(self.all) - 1
        return len(self.all) - 1

    def _apply(self, number: int, event: CommunicatorEvent) -> None:
        current = int(self._current[number])
        instance = self.all[current] if current >= 0 else None
        if event.what.startswith("Init"):
            rank = int(event.fields["rank"])
            goes_on = (
                instance is not None
                and instance.begin_line is not None
                and not instance.complete
                and instance.rank == rank
            )
            if event.what == "Init START" or instance is None or not goes_on:
                instance = Instance(*self._communicators[number], begin_line=event.line)
                self._new(number, instance)
            instance.complete = event.what == "Init COMPLETE"
            _fill(instance, event.fields)
        elif event.what == "placement":
            if instance is None or instance.complete:
                instance = Instance(*self._communicators[number], begin_line=event.line)
                self._new(number, instance)
            _fill(instance, event.fields)
        elif instance is not None and event.what in ("Destroy COMPLETE", "Abort COMPLETE"):
            self._current[number] = -1


def _fill(instance: Instance, fields: dict[str, str]) -> None:
    numbers = {
        "rank": "rank",
        "nranks": "nranks",
        "cuda": "device",
        "nodes": "nodes",
        "local_ranks": "local_ranks",
        "local_rank": "local_rank",
    }
    for key, name in numbers.items():
        if key in fields:
            setattr(instance, name, int(fields[key]))
    instance.comm_id = fields.get("id") or fields.get("id2") or instance.comm_id
    instance.function = fields.get("func") or instance.function
    instance.bus_id = fields.get("bus") or instance.bus_id
    if fields.get("parent", "(nil)") != "(nil)":
        instance.parent = fields["parent"]


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
        """Release the careful path, which refers to this reading: 6 MB would stay until garbage is collected."""
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
        new = pa.table(
            [*(pa.array(rows[:, n]) for n in range(len(SIZE_KEYS))), np.ones(len(rows), np.int64)], names=names
        )
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
