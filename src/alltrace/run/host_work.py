"""The work of a host where nothing ran on a device: what its main thread does, and when it communicates.

Programs on CPUs (MPI codes, PyTorch with Gloo) have no kernels. Questions about work then get rows in their place: the
main thread is a stream, what it computes are pieces of class `host`, and its communication is what kernels of NCCL are
on a device. Where a framework records its operators, the thread computes while they run; pauses up to `SILENCE_NS`
between them are the interpreter's. Without operators it computes whenever it does not communicate, as in the
efficiencies of POP. Waits for data, and calls of the operating system that wait, are no work. Time off the CPU is none
either, where scheduling was recorded.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.trace import host_patterns as patterns
from alltrace.trace.arrays import Flags, Int64, coded, integers, is_one_of, is_true
from alltrace.trace.communication_kernels import COLLECTIVE, P2P
from alltrace.trace.intervals import Merged, containing, difference, intersection, merge, union
from alltrace.trace.kernel_rules import HOST
from alltrace.trace.mpi_kinds import COLLECTIVES, exchanges, is_call
from alltrace.trace.names import name_id
from alltrace.trace.schema import TABLES

SILENCE_NS = 1_000_000
"""A time of this length without any record of a thread is a pause; shorter ones are the program's pace."""

_OPERATORS = name_id("cpu_op")
MAIN_STREAM = 0
_OTHERS = 1  # the streams of the main thread, and of the first thread that communicates for it

_LATE_RECORD_NS = 2_000_000
"""A thread that waits for Gloo goes on up to 1.4 ms before the operation's record ends (PyTorch 2.13, 4 processes)."""


class Recorded(Protocol):
    """The tables of a rank as its reports have them, in the time of its files (`alltrace.run.rank.Rank`)."""

    def has(self, table: str) -> bool:
        """Whether there are rows."""

    def file_table(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns of a table; all for None."""

    def texts(self, ids: pa.Array) -> pa.Array:
        """The text of names."""


class HostWork:
    """Rows in place of the device work of one rank, in the time of its files; made when they are first read."""

    def __init__(self, rank: Recorded) -> None:
        self._rank = rank

    def table(self, name: str, columns: Sequence[str]) -> pa.Table:
        """Columns of one of `alltrace.run.rank.HOST_TABLES`."""
        whole = self._collectives if name == "collectives" else self._kernels
        return whole.select(list(columns))

    @cached_property
    def _ranges(self) -> pa.Table:
        return self._rank.file_table(
            "ranges", ("start", "end", "thread", "process", "domain", "name", "kind", "parent")
        )

    @cached_property
    def _calls(self) -> pa.Table:
        calls = self._rank.file_table("mpi", ("start", "end", "process", "thread", "name", "kind"))
        return calls.filter(pc.is_valid(calls.column("end")))

    @cached_property
    def _mpi(self) -> pa.Table:
        return self._calls.filter(pa.array(exchanges(self._calls)))

    @cached_property
    def _backends(self) -> Int64:
        """The threads that communicate for process groups, ascending."""
        return np.unique(integers(self._recorded.column("thread"), -1))

    @cached_property
    def _recorded(self) -> pa.Table:
        """The rank's communication of process groups on hosts, which other threads than the main one may do."""
        operations = self._rank.file_table("collectives", ("start", "end", "process", "thread", "device", "op"))
        return operations.filter(pa.array(_of_process_groups(operations)))

    @cached_property
    def _operations(self) -> pa.Table:
        return _with(self._recorded, end=self._done(*_times(self._recorded)))

    def _done(self, starts: Int64, ends: Int64) -> Int64:
        """When operations were done: where the main thread goes on shortly before a record ends, then."""
        of_main = integers(self._ranges.column("thread"), -1) == self._main
        operators = of_main & (integers(self._ranges.column("domain"), 0) == _OPERATORS)
        busy = merge(*(times[operators] for times in _times(self._ranges)))
        silent = busy.starts[1:] - busy.ends[:-1] >= SILENCE_NS
        resumed = np.concatenate(([np.iinfo(np.int64).min], busy.starts[1:][silent]))
        last = resumed[np.searchsorted(resumed, ends, "left") - 1]
        early = (last > starts) & (ends - last <= _LATE_RECORD_NS) & (4 * (ends - last) <= ends - starts)
        return np.where(early, last, ends)

    @cached_property
    def _main(self) -> int:
        """The thread that does most: of those that call MPI, else of those with ranges that do not communicate."""
        table = self._mpi if self._mpi.num_rows else self._ranges
        thread, length = integers(table.column("thread"), -1), _lengths(table)
        threads, of_row = np.unique(thread, return_inverse=True)
        time_ns = np.bincount(of_row, length, len(threads))
        chosen = ~np.isin(threads, self._backends) & (threads >= 0)
        return int(threads[np.where(chosen, time_ns, -1).argmax()]) if chosen.any() else -1

    def _of_main(self, name: str, columns: Sequence[str]) -> pa.Table:
        rows = self._rank.file_table(name, ("thread", *columns))
        return rows.filter(pa.array(integers(rows.column("thread"), -1) == self._main))

    @cached_property
    def _kernels(self) -> pa.Table:
        messages = ~is_call(self._mpi, COLLECTIVES)
        own = integers(self._mpi.column("thread"), -1) == self._main
        calls = _rows(
            self._mpi,
            self._mpi.column("name"),
            np.where(own, MAIN_STREAM, _OTHERS),
            np.where(messages, P2P, COLLECTIVE),
        )
        streams = self._streams(integers(self._operations.column("thread"), -1))
        words = np.full(self._operations.num_rows, COLLECTIVE)
        operations = _rows(self._operations, self._operations.column("op"), streams, words)
        rows = pa.concat_tables([calls, operations, self._pieces(calls, operations)])
        rows = rows.sort_by([("stream", "ascending"), ("start", "ascending")]).combine_chunks()
        schema = TABLES["kernels"].arrow_schema()
        columns = [
            rows.column(f.name).cast(f.type) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
            for f in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def _streams(self, threads: Int64) -> Int64:
        return np.where(threads == self._main, MAIN_STREAM, _OTHERS + np.searchsorted(self._backends, threads))

    def _pieces(self, *communication: pa.Table) -> pa.Table:
        """What the main thread computes, cut where the innermost of its ranges changes."""
        of_thread = self._ranges.filter(pa.array(integers(self._ranges.column("thread"), -1) == self._main))
        starts, ends = _times(of_thread)
        exchanged = union(
            [
                merge(*(v[integers(t.column("stream")) == MAIN_STREAM] for v in _times(t)))
                for t in communication
                if t.num_rows
            ]
        )
        operators = integers(of_thread.column("domain"), 0) == _OPERATORS
        if operators.any():
            computing = _closed(union((merge(starts[operators], ends[operators]), exchanged)))
        else:
            computing = merge(*(np.array([time], np.int64) for time in self._extent(starts, ends)))
        working = difference(computing, union((exchanged, self._waits(of_thread, starts, ends))))
        running = self._running()
        working = working if running is None else intersection(working, running)
        at, names = self._innermost()
        # another thread communicates from here on, as the main one asked it to
        begins = integers(self._operations.column("start"))
        points = np.unique(np.concatenate((working.starts, working.ends, at, begins)))
        inside = containing(working, points[:-1]) if len(points) else np.empty(0, np.int64)
        first = np.flatnonzero(inside >= 0)
        name = np.concatenate(([0], names))[np.searchsorted(at, points[first], "right")]
        joins = np.zeros(len(first), np.bool_)
        joins[1:] = (first[1:] == first[:-1] + 1) & (name[1:] == name[:-1]) & (inside[first[1:]] == inside[first[:-1]])
        joins &= ~np.isin(points[first], begins)
        heads = np.flatnonzero(~joins)
        lasts = np.append(heads[1:], len(first))[: len(heads)] - 1
        process = (
            integers(of_thread.column("process"), 0) if of_thread.num_rows else integers(self._mpi.column("process"), 0)
        )
        return pa.table(
            {
                "start": points[first[heads]],
                "end": points[first[lasts] + 1],
                "process": np.full(len(heads), process[0] if len(process) else 0, np.int32),
                "stream": np.full(len(heads), MAIN_STREAM, np.int64),
                "name": pa.array(name[heads], mask=name[heads] == 0),
                "kind": pa.array([HOST] * len(heads), pa.string()),
            }
        )

    def _extent(self, starts: Int64, ends: Int64) -> tuple[int, int]:
        """First and last moment of the main thread of which something is recorded."""
        times = np.concatenate((starts, ends, *_times(self._calls)))
        return (int(times.min()), int(times.max())) if len(times) else (0, 0)

    def _waits(self, of_thread: pa.Table, starts: Int64, ends: Int64) -> Merged:
        """When the main thread waits for data or in the operating system, or is in MPI: to start or to end it, too."""
        inside = integers(self._calls.column("thread"), -1) == self._main
        sets = [merge(*(times[inside] for times in _times(self._calls)))]
        sets += [
            self._named(
                of_thread, starts, ends, (*patterns.WAITING, *patterns.WAITING_QUEUES, *patterns.RECORDED_WAITS)
            )
        ]
        for table, wanted in (
            ("frames", patterns.WAITING_FRAMES),
            ("osrt", (*patterns.OS_READS, *patterns.OS_WAITS, *patterns.OS_SLEEPS)),
        ):
            if self._rank.has(table):
                rows = self._of_main(table, ("start", "end", "name"))
                sets.append(self._named(rows, *_times(rows), wanted))
        return union(sets)

    def _named(self, rows: pa.Table, starts: Int64, ends: Int64, wanted: tuple[patterns.Pattern, ...]) -> Merged:
        ids, code = coded(rows.column("name"))
        texts = [t or "" for t in self._rank.texts(ids).to_pylist()]
        matches = np.isin(code, patterns.matching(texts, wanted))
        return merge(starts[matches], ends[matches])

    def _running(self) -> Merged | None:
        """When the main thread has a CPU; None if that was not recorded."""
        if not self._rank.has("sched"):
            return None
        rows = self._of_main("sched", ("time", "scheduled_in"))
        if rows.num_rows < 2:
            return None
        time, begins = integers(rows.column("time")), is_true(rows.column("scheduled_in"))
        starts = begins[:-1] & (time[1:] > time[:-1])
        return merge(time[:-1][starts], time[1:][starts])

    def _innermost(self) -> tuple[Int64, Int64]:
        """The moments at which the main thread's innermost range changes, and the name from then on; 0 for none."""
        thread = integers(self._ranges.column("thread"), -1)
        nested = np.flatnonzero((thread == self._main) & is_one_of(self._ranges.column("kind"), ("pushpop",)))
        names = integers(self._ranges.column("name"), 0)
        parent = integers(self._ranges.column("parent"), -1)
        begin, end = _times(self._ranges)
        outer = np.where(parent[nested] >= 0, names[np.maximum(parent[nested], 0)], 0)
        time = np.concatenate((begin[nested], end[nested]))
        after = np.concatenate((names[nested], outer))
        # of one moment ends come first, the innermost first; then begins, the outermost first
        closes = np.repeat([False, True], len(nested))
        length = np.tile(end[nested] - begin[nested], 2)
        order = np.lexsort((np.where(closes, length, -length), ~closes, time))
        return time[order], after[order]

    @cached_property
    def _collectives(self) -> pa.Table:
        """The rank's operations as they are on the streams of its host."""
        rows = self._rank.file_table("collectives")
        end = integers(pc.coalesce(rows.column("end"), rows.column("api_end"))).copy()
        end[_of_process_groups(rows)] = integers(self._operations.column("end"))
        return _with(
            rows,
            # an operation that was only begun is there while it is waited for
            start=integers(pc.coalesce(rows.column("start"), rows.column("wait_start"), rows.column("api_start"))),
            end=end,
            stream=self._streams(integers(rows.column("thread"), -1)),
        )


def _of_process_groups(operations: pa.Table) -> Flags:
    """Which rows of `collectives` are what a thread did from its start to its end."""
    return np.asarray(pc.and_(pc.is_valid(operations.column("end")), pc.is_null(operations.column("device"))), np.bool_)


def _with(table: pa.Table, **columns: Int64) -> pa.Table:
    """The table with other values in some columns."""
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pa.array(values, table.schema.field(place).type))
    return table


def _times(table: pa.Table) -> tuple[Int64, Int64]:
    start = integers(table.column("start"))
    return start, np.maximum(start, integers(pc.coalesce(table.column("end"), table.column("start"))))


def _lengths(table: pa.Table) -> Int64:
    start, end = _times(table)
    return end - start


def _closed(sets: Merged) -> Merged:
    """The intervals with pauses that are the program's pace."""
    pace = sets.starts[1:] - sets.ends[:-1] < SILENCE_NS
    until = np.append(np.where(pace, sets.starts[1:], sets.ends[:-1]), sets.ends[-1:])
    return merge(sets.starts, until)


def _rows(table: pa.Table, name: pa.ChunkedArray, streams: Int64, kinds: NDArray[np.str_]) -> pa.Table:
    return pa.table(
        {
            "start": table.column("start"),
            "end": table.column("end"),
            "process": table.column("process"),
            "stream": pa.array(streams, pa.int64()),
            "name": name,
            "kind": pa.array(kinds.tolist(), pa.string()),
        }
    )
