"""Every call: one row per record."""

from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.base import Answer, Chart, View
from alltrace.recipes.logs.nccl import NcclOptions, check_ranks, datatype_bytes, datatype_name, rank_of, reduction_name
from alltrace.recipes.logs.nccl_steps import FROM_CALL, StepFinder
from alltrace.run.nccl_logs import NcclLogs
from alltrace.trace import columns as col
from alltrace.trace.errors import path_text
from alltrace.trace.nccl_words import OPERATIONS, PER_RANK_SHARE, POINT_TO_POINT, ROOTED

COLUMNS = (
    col.whole("rank", "The caller's rank in the communicator, from the INIT line of the same process and communicator"),
    col.whole(
        "global_rank",
        "The rank of its process in the job: from the communicator of all processes, else from the launcher's prefix",
    ),
    col.Column("communicator", "enum", None, "The communicator: its commId if the log has one"),
    col.whole("group_size", "Ranks of the communicator"),
    col.whole("sequence", "The index of the call among the caller's calls on this communicator in the log, from 0"),
    col.Column("op", "enum", None, "The operation"),
    col.whole("op_count", "NCCL's opCount, which counts launches: all calls of a group have the same"),
    col.whole("count", "Elements in the call's count"),
    col.Column("datatype", "enum", None, "The type"),
    col.size("bytes", "Count times the bytes of the datatype, exact"),
    col.size("payload_bytes", "As nccl-tests counts a size: times the ranks if the count is one rank's share"),
    col.Column(
        "redop", "enum", None, "The reduction, `user` for one that the program defines; null for operations without one"
    ),
    col.whole("root", "The root of Broadcast, Reduce, Gather and Scatter"),
    col.whole("peer", "The peer of Send and Recv"),
    col.whole("step", "The step: from the next step line in the log; null after the last one"),
    col.ns("time_ns", "When the line was written, since 1970: by its time zone, or read as UTC without one"),
    col.Column("host", "enum", None, "The host"),
    col.whole("pid", "The process id"),
    col.whole("tid", "The thread id"),
    col.whole("device", "The CUDA ordinal in the line's brackets"),
    col.text("stream", "The stream's pointer; null if the record was cut before it"),
    col.Column("log", "enum", None, "The log's file"),
    col.whole("line", "The line in it, from 1"),
    col.Column("state", "enum", None, "`whole`, `cut` after the required fields, or `rejoined` from two pieces"),
)
CHART = Chart("scatter", "time_ns", ("bytes",), "op", title="Size of each call", log_y=True)
_REDUCING = ("AllReduce", "ReduceScatter", "Reduce")
_MASK = (1 << 64) - 1
_HOUR_NS = 3_600_000_000_000
_ABOUT_NS = 120_000_000_000


def answer(logs: NcclLogs, options: NcclOptions) -> Answer:
    """A row per call in the order of the logs; the table is in a file, so memory does not limit it."""
    if logs.calls_to is None:
        raise ValueError("the view of calls needs the calls one by one")
    check_ranks(logs, options)
    schema = col.schema_of(COLUMNS)
    path = logs.calls_to / "answer.arrow"
    rows = _Rows(logs, options)
    with pa.ipc.new_file(str(path), schema) as writer:
        for log, batch in logs.calls():
            part = rows.make(log, batch, schema)
            if part.num_rows:
                writer.write_batch(part)
    # the mapping goes away with the last reference to the table
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    notes = list(logs.notes)
    if rows.hours:
        notes.append(
            f"the clock of {rows.hours} processes went back by an hour, as summer time ends: an hour was added from"
            " there on"
        )
    return Answer(table, COLUMNS, tuple(notes), chart=CHART)


class _Rows:
    """Makes the rows of the answer, batch by batch; the words of a column are one list for all batches."""

    def __init__(self, logs: NcclLogs, options: NcclOptions) -> None:
        self._logs = logs
        self._options = options
        self._steps = StepFinder(logs, options.steps)
        logs.notes += self._steps.notes
        self._next = np.zeros(len(logs.members), np.int64)
        members = logs.members
        none = np.int64(-1)
        self._rank = np.array([none if m.rank is None else m.rank for m in members] or [none], np.int64)
        self._global = np.array([none if m.global_rank is None else m.global_rank for m in members] or [none], np.int64)
        self._nranks = np.array([none if m.nranks is None else m.nranks for m in members] or [none], np.int64)
        self._shown = np.array(
            [options.ranks is None or rank_of(logs, n) in options.ranks for n in range(len(members))] or [False], bool
        )
        names = sorted({m.communicator for m in members})
        hosts = sorted({p.host for part in logs.parts for p in part.records.processes})
        at = {name: n for n, name in enumerate(names)}
        self._communicator = np.array([at[m.communicator] for m in members] or [0], np.int32)
        self._words = {
            "communicator": pa.array(names, pa.string()),
            "op": pa.array(OPERATIONS, pa.string()),
            "host": pa.array(hosts, pa.string()),
            "log": pa.array([path_text(p) for p in logs.paths], pa.string()),
            "state": pa.array(["whole", "cut", "rejoined"], pa.string()),
            "datatype": pa.array([datatype_name(n) for n in range(256)], pa.string()),
            "redop": pa.array([*(reduction_name(n) for n in range(255)), "user"], pa.string()),
        }
        self._token_host, self._token_pid, self._token_tid, self._token_dev = [], [], [], []
        for part in logs.parts:
            its = [part.records.processes[p] for p, _t, _d in part.tokens]
            self._token_host.append(np.array([hosts.index(p.host) for p in its] or [0], np.int32))
            self._token_pid.append(np.array([p.pid for p in its] or [0], np.int64))
            self._token_tid.append(np.array([t for _p, t, _d in part.tokens] or [0], np.int64))
            self._token_dev.append(np.array([-1 if d is None else d for _p, _t, d in part.tokens] or [-1], np.int64))
        self._op_share = np.array([op in PER_RANK_SHARE for op in OPERATIONS])
        self._op_peer = np.array([op in POINT_TO_POINT for op in OPERATIONS])
        self._op_root = np.array([op in ROOTED for op in OPERATIONS])
        self._op_reduces = np.array([op in _REDUCING for op in OPERATIONS])
        self._clock: dict[tuple[int, int], tuple[int, int]] = {}
        self._set_back: set[tuple[int, int]] = set()

    @property
    def hours(self) -> int:
        """Processes with a clock that went back by an hour."""
        return len(self._set_back)

    def make(self, log: int, batch: Any, schema: Any) -> Any:
        its = {
            name: batch.column(name).to_numpy(zero_copy_only=False)
            for name in ("line", "token", "instance", "operation", "count", "datatype", "redop", "root", "flags")
        }
        member = np.array(self._logs.member_of[log], np.int64)[its["instance"]]
        source = ((its["flags"] & FROM_CALL) != 0) == self._logs.uses_calls_of_trace
        sequence = self._sequence(np.where(source, member, -1))
        steps = self._steps.steps(log, batch) if self._steps.any else np.full(len(batch), -1, np.int64)
        time = self._times(log, batch, its["token"])
        keep = source & self._shown[member] & self._steps.wanted(log, batch)
        if not keep.any():
            return pa.RecordBatch.from_pylist([], schema)
        op, count, datatype = its["operation"], its["count"], its["datatype"]
        size = datatype_bytes(datatype)
        sized = (size > 0) & (count <= np.iinfo(np.int64).max // np.maximum(size, 1))
        nbytes = np.where(sized, count * size, 0)
        nranks = self._nranks[member]
        share = self._op_share[op]
        paid = sized & (~share | ((nranks > 0) & (nbytes <= np.iinfo(np.int64).max // np.maximum(nranks, 1))))
        payload = np.where(share & paid, nbytes * np.maximum(nranks, 1), nbytes)
        token = its["token"]
        columns: dict[str, Any] = {
            "rank": _numbers(self._rank[member], self._rank[member] >= 0),
            "global_rank": _numbers(self._global[member], self._global[member] >= 0),
            "communicator": self._communicator[member],
            "group_size": _numbers(nranks, nranks >= 0),
            "sequence": _numbers(sequence, None),
            "op": op.astype(np.int32),
            "op_count": batch.column("op_count"),
            "count": _numbers(count, None),
            "datatype": np.clip(datatype, 0, 255).astype(np.int32),
            "bytes": _numbers(nbytes, sized),
            "payload_bytes": _numbers(payload, paid),
            "redop": pa.array(np.clip(its["redop"], 0, 255).astype(np.int32), mask=~self._op_reduces[op]),
            "root": _numbers(its["root"], self._op_root[op]),
            "peer": _numbers(its["root"], self._op_peer[op]),
            "step": _numbers(steps, steps >= 0),
            "time_ns": time,
            "host": self._token_host[log][token],
            "pid": _numbers(self._token_pid[log][token], None),
            "tid": _numbers(self._token_tid[log][token], None),
            "device": _numbers(self._token_dev[log][token], self._token_dev[log][token] >= 0),
            "stream": pa.array(
                [None if v is None else hex(v & _MASK) for v in batch.column("stream").to_pylist()], pa.string()
            ),
            "log": np.full(len(batch), log, np.int32),
            "line": _numbers(its["line"] + 1, None),
            "state": (its["flags"] & 3).astype(np.int32) % 3,
        }
        arrays = [
            (
                pa.DictionaryArray.from_arrays(pa.array(columns[f.name]), self._words[f.name])
                if f.name in self._words
                else columns[f.name]
            )
            for f in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema).filter(pa.array(keep))

    def _sequence(self, member: Any) -> Any:
        """Each call's number among the calls of its member, over all batches so far."""
        order = np.argsort(member, kind="stable")
        ordered = member[order]
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        lengths = np.diff(np.append(first, ordered.size))
        out = np.empty(member.size, np.int64)
        out[order] = (
            np.arange(ordered.size) - np.repeat(first, lengths) + np.repeat(self._next[ordered[first]], lengths)
        )
        used = ordered[first] >= 0
        self._next[ordered[first][used]] += lengths[used]
        return out

    def _times(self, log: int, batch: Any, tokens: Any) -> Any:
        """The times of a batch, with an hour added to a process's from where its local clock was set back."""
        column = batch.column("time_ns")
        if column.null_count == len(column):
            return column
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        times = column.fill_null(0).to_numpy().copy()
        processes = np.array([p for p, _t, _d in self._logs.parts[log].tokens], np.int64)[tokens]
        for process in np.unique(processes[valid]).tolist():
            mine = np.flatnonzero(valid & (processes == process))
            last, added = self._clock.get((log, process), (int(times[mine[0]]), 0))
            own = times[mine]
            back = np.diff(np.concatenate([[last], own]))
            set_back = np.flatnonzero((back < -(_HOUR_NS - _ABOUT_NS)) & (back > -(_HOUR_NS + _ABOUT_NS)))
            extra = np.full(own.size, added, np.int64)
            for at in set_back.tolist():
                extra[at:] += _HOUR_NS
                self._set_back.add((log, process))
            times[mine] = own + extra
            self._clock[log, process] = int(own[-1]), int(extra[-1])
        return pa.array(times, mask=~valid)


def _numbers(values: Any, valid: Any) -> Any:
    return pa.array(np.asarray(values, np.int64), mask=None if valid is None else ~np.asarray(valid, bool))


VIEW = View(COLUMNS, answer)
