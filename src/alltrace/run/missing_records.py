"""Records that a profiler lost: launches without kernel, kernels without launch, graphs without work.

A launch and what it ran carry one correlation id in a process. If one of the two is there and the other is not, a
record is missing, unless the edge of the capture explains it: work that was launched before the capture began, and work
that was still queued when it ended. Launches that failed, and those that only became nodes of a graph, ran nothing.

When a missing kernel ran is not known. It ran after its launch began, after the work before it on its stream, and
before the work after it; the stream is unknown too. So the time in which it may have run reaches from the earliest to
the latest of what the streams allow, and questions about idle devices leave that time out (`Rank.unrecorded`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.readers.base import ReportWarning
from alltrace.run.manifest import MissingRecords
from alltrace.run.pieces import Piece
from alltrace.trace.arrays import Flags, Int64, integers, is_true

KERNELS = "kernels"
LAUNCHES = "launches"
GRAPHS = "graphs"
TEXTS = {
    KERNELS: (
        "kernel launches without a record of their kernel; the time in which these kernels may have run is not judged"
    ),
    LAUNCHES: "kernels without a record of their launch, although other launches of that time have one",
    GRAPHS: (
        "launches of CUDA graphs without a record of what they ran; the time in which that may have run is not judged "
        "(trace them with --cuda-graph-trace=node)"
    ),
}
"""The text about each kind of missing records, before their number."""

_ALONE = "kernels that are nodes of CUDA graphs, as their rows say, although a call for a single kernel launched them"

_TOUCHED = {KERNELS: ("kernels",), LAUNCHES: ("api",), GRAPHS: ("kernels", "graphs")}

_LAUNCH = re.compile(r"^(?:cuda|cu|hip)\w*Launch\w*Kernel|^cudaLaunch(?:_\w+)?$|^cuLaunchGrid")
_GRAPH = re.compile(r"^(?:cuda|cu|hip)GraphLaunch")
_BEGIN = re.compile(r"^(?:cuda|cu|hip)StreamBeginCapture")
_END = re.compile(r"^(?:cuda|cu|hip)StreamEndCapture")
_ALL_DONE = re.compile(r"^(?:cuda|hip)DeviceSynchronize|^(?:cu|hip)CtxSynchronize")

_FEW_BLOCKS = 3
_FEW_SHARE = 0.001
"""Losses in more places than this, of more than this share of all launches, are spread: of any stream, at any time."""

_ID = ("process", "correlation")
_NO_NODE = np.iinfo(np.int64).min
_BITS = 40
"""Where the process begins in a process and correlation id as one number."""

_PLACES = 16  # how many places in a table of ids cost as much as the search for one

_LATE_NS = 10_000_000  # what is launched this long after the last device work can still be queued as the capture ends


class Missing(NamedTuple):
    """What is missing in a rank's tables."""

    records: tuple[MissingRecords, ...] = ()  # the kinds of missing records
    # when work of which no record is there may have run: ascending (start, end), in the time of the rank's files
    unrecorded: tuple[tuple[int, int], ...] = ()
    warnings: tuple[ReportWarning, ...] = ()  # what answers must say


def missing_records(piece: Piece) -> Missing:
    """What is missing in the tables of a rank."""
    rows, end_ns = piece.rows, piece.end_ns
    if not rows.get("api") or end_ns is None or (rows.get("kernel_counters") and not rows.get("kernels")):
        return Missing()  # a profiler that measures counters has no kernels with them
    named = _Named.of(piece)
    alone = _nodes_alone(piece, named)
    of_kernels = (_joined(part) for part in piece.parts("kernels", _ID)) if rows.get("kernels") else ()
    if not len(named.like(_GRAPH)) and _sums(named.launches(piece)) == _sums(of_kernels):
        return Missing(warnings=alone)
    kernels = _ids(piece, ("kernels",))
    calls = _Calls.of(piece, named)
    if calls is None:
        return Missing(warnings=alone)
    others = _ids(piece, ("copies", "graphs"))
    calls = calls.of_processes(np.unique(np.concatenate((kernels, others)) >> _BITS))
    recorded = _is_in(calls.id, kernels)
    recorded[calls.graph] |= _is_in(calls.id[calls.graph], others)
    records, spans = [], []
    if not recorded.all():
        work = _Work.of(piece)
        lost = _lost(piece, calls, recorded, others, work)
        # what was set aside has a record, but nobody knows when it ran
        aside = _is_in(calls.id, _ids(piece, ("suspects",)))
        for what, rows_of in ((KERNELS, ~calls.graph), (GRAPHS, calls.graph)):
            mine = lost & rows_of & ~aside
            if mine.any():
                number = len(np.unique(calls.id[mine]))
                of = len(np.unique(calls.id[rows_of]))
                place = _place(calls, mine, recorded)
                records.append(
                    MissingRecords(what, number, of, int(calls.start[mine].min()), int(calls.start[mine].max()), place)
                )
        if lost.any():
            spans = _unrecorded(calls, lost, ~lost, work, end_ns)
    unlaunched = _unlaunched(piece, kernels)
    records += unlaunched
    warnings = tuple(ReportWarning(TEXTS[r.what], _TOUCHED[r.what], r.number) for r in records)
    return Missing(tuple(records), tuple(spans), warnings + alone)


def _nodes_alone(piece: Piece, named: "_Named") -> tuple[ReportWarning, ...]:
    """A warning about kernels of graphs that calls for single kernels launched."""
    if not piece.rows.get("kernels") or piece.nulls("kernels", "graph_node") == piece.rows["kernels"]:
        return ()
    launched = _is_in(_ids(piece, ("kernels",)), np.concatenate(list(named.launches(piece))))
    alone = np.count_nonzero(launched & (piece.numbers("kernels", "graph_node", _NO_NODE) != _NO_NODE))
    return (ReportWarning(_ALONE, ("kernels",), int(alone)),) if alone else ()


class _Named(NamedTuple):
    """The names of a rank's calls: their ids, and the text of each."""

    ids: list[int]
    texts: list[str | None]

    @classmethod
    def of(cls, piece: Piece) -> "_Named":
        """The names of the calls of a rank."""
        ids = piece.distinct("api", "name").drop_null()
        return cls(ids.to_pylist(), piece.names.texts(ids).to_pylist())

    def like(self, *patterns: re.Pattern[str]) -> pa.Array:
        """The ids of names that one of the patterns matches."""
        named = zip(self.ids, self.texts, strict=True)
        return pa.array([i for i, text in named if text and any(p.match(text) for p in patterns)], pa.int64())

    def rows(self, pattern: re.Pattern[str], calls: pa.Table) -> Int64:
        """The rows of calls with a matching name."""
        return np.flatnonzero(is_true(pc.is_in(calls.column("name"), value_set=self.like(pattern))))

    def launches(self, piece: Piece) -> Iterator[Int64]:
        """The ids of calls that launch single kernels, some at a time."""
        for part in piece.parts("api", ["name", *_ID]):
            yield _joined(part)[self.rows(_LAUNCH, part)]


class _Calls(NamedTuple):
    """Calls that launched kernels or graphs, by start; arrays of n."""

    id: Int64  # process and correlation id as one number
    process: Int64
    start: Int64
    end: Int64
    graph: Flags  # whether it launched a graph
    # starts, ascending, and ends of calls that wait for all work of a process, by process
    done: Mapping[int, tuple[Int64, Int64]]

    @classmethod
    def of(cls, piece: Piece, named: _Named) -> "_Calls | None":
        """The launches of a rank that succeeded; None if there are none."""
        if not len(named.like(_LAUNCH, _GRAPH)):
            return None
        named_so = named.like(_LAUNCH, _GRAPH, _BEGIN, _END, _ALL_DONE)
        parts = piece.parts("api", ["process", "thread", "correlation", "start", "end", "return_value", "name"])
        table = pa.concat_tables([part.filter(pc.is_in(part.column("name"), value_set=named_so)) for part in parts])
        kernel, graph = named.rows(_LAUNCH, table), named.rows(_GRAPH, table)
        value = {c: integers(table.column(c), -1) for c in ("process", "thread", "correlation", "start", "end")}
        failed = integers(table.column("return_value"), 0) != 0
        row = np.concatenate((kernel, graph))
        row = row[(value["correlation"][row] > 0) & ~failed[row]]
        row = row[np.lexsort((value["end"][row], value["start"][row]))]
        row = row[~_inside(*(value[c][row] for c in ("thread", "start", "end")))]
        row = row[~_captured(value, row, named.rows(_BEGIN, table), named.rows(_END, table))]
        waits = named.rows(_ALL_DONE, table)
        waits = waits[np.argsort(value["start"][waits], kind="stable")]
        process = value["process"]
        done = {
            int(p): (value["start"][waits][process[waits] == p], value["end"][waits][process[waits] == p])
            for p in np.unique(process[row])
        }
        return cls(_joined(table)[row], process[row], value["start"][row], value["end"][row], np.isin(row, graph), done)

    def of_processes(self, recorded: Int64) -> "_Calls":
        """Without the calls of processes that have no device work while others of the rank have: in another report.

        An example is a trace of how CUDA graphs were captured, next to one of their replays.
        """
        there = np.isin(self.process, recorded)
        if there.all() or not there.any():
            return self
        return _Calls(
            self.id[there], self.process[there], self.start[there], self.end[there], self.graph[there], self.done
        )


class _Work(NamedTuple):
    """What ran on the devices: arrays of n over kernels, copies and whole graphs."""

    id: Int64
    start: Int64
    end: Int64
    stream: Int64

    @classmethod
    def of(cls, piece: Piece) -> "_Work":
        """The work of a rank; `stream` numbers the streams of all its devices."""
        of_tables: list[tuple[Int64, ...]] = []
        for name in ("kernels", "copies", "graphs"):
            if piece.rows.get(name):
                start, end, device, stream = (piece.numbers(name, c, -1) for c in ("start", "end", "device", "stream"))
                of_tables.append((_ids(piece, (name,)), start, end, (device << 32) + stream))
        if not of_tables:
            none = np.empty(0, np.int64)
            return cls(none, none, none, none)
        ids, start, end, stream = (np.concatenate(parts) for parts in zip(*of_tables, strict=True))
        return cls(ids, start, end, np.unique(stream, return_inverse=True)[1].reshape(-1))


def _joined(rows: pa.Table) -> Int64:
    """Process and correlation id of rows as one number, below 0 for none; CUPTI's ids have 32 bits."""
    process, correlation = (integers(rows.column(c), -1) for c in _ID)
    known = (correlation > 0) & (process >= 0)
    joined = (process << _BITS) + correlation
    return joined if known.all() else np.where(known, joined, -1)


def _ids(piece: Piece, tables: Sequence[str]) -> Int64:
    parts = (_joined(part) for name in tables if piece.rows.get(name) for part in piece.parts(name, _ID))
    return np.concatenate([np.empty(0, np.int64), *parts])


def _sums(ids: Iterable[Int64]) -> tuple[int, ...]:
    """The number of ids, the sum of them and that of what a hash makes of them: equal for equal sets.

    That takes a tenth of the time of sorting them, and mostly nothing is missing.
    """
    sums = np.zeros(3, np.uint64)
    for some in ids:
        mixed = some.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
        mixed *= mixed
        sums += np.array([len(some), some.view(np.uint64).sum(), mixed.sum()], np.uint64)
    return tuple(sums.tolist())


def _is_in(ids: Int64, known: Int64) -> Flags:
    """Whether each id is among others: by table if they are close together, as in one process, else by search."""
    known = known[known >= 0]
    if not len(known):
        return np.zeros(len(ids), np.bool_)
    low, high = int(known.min()), int(known.max())
    if high - low < _PLACES * (len(known) + len(ids)):
        there = np.zeros(high - low + 2, np.bool_)  # the last place has none
        there[known - low] = True
        looked: Flags = there[np.where((ids >= low) & (ids <= high), ids - low, high - low + 1)]
        return looked
    if (known[1:] < known[:-1]).any():
        known = np.sort(known)
    at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    inside: Flags = known[at] == ids
    return inside


def _inside(thread: Int64, start: Int64, end: Int64) -> Flags:
    """Which calls are nested in another one of their thread; the calls are in order of start.

    The runtime's call holds the driver's, and what they launch has the id of the outer one.
    """
    nested = np.zeros(len(start), np.bool_)
    for number in np.unique(thread).tolist():
        mine = np.flatnonzero(thread == number)
        reached = np.maximum.accumulate(end[mine])
        nested[mine[1:]] = end[mine][1:] <= reached[:-1]
    return nested


def _captured(value: Mapping[str, Int64], rows: Int64, begins: Int64, ends: Int64) -> Flags:
    """Which calls are within a stream's capture into a graph, on any thread of their process."""
    captured = np.zeros(len(rows), np.bool_)
    for begin in begins.tolist():
        process, since = value["process"][begin], value["start"][begin]
        later = value["start"][ends[(value["process"][ends] == process) & (value["start"][ends] >= since)]]
        until = later.min() if len(later) else since
        captured |= (
            (value["process"][rows] == process) & (value["start"][rows] >= since) & (value["start"][rows] <= until)
        )
    return captured


def _lost(piece: Piece, calls: _Calls, recorded: Flags, others: Int64, work: _Work) -> Flags:
    """The launches with work that ran within the capture and has no record.

    Work that was still queued as the capture ended has none either. It was launched after all that has a record, while
    the device was busy, and no call waited for all work after that.
    """
    lost = ~recorded
    copied = _calls_of(piece, others)
    for process in np.unique(calls.process[lost]).tolist():
        mine = calls.process == process
        last = max(
            int(times.max(initial=-(1 << 62)))
            for times in (calls.start[mine & recorded], copied[1][copied[0] == process])
        )
        queued = np.flatnonzero(mine & lost & (calls.start > last))
        if not len(queued) or not (mine & recorded).any():
            continue
        waited = (calls.done[process][0] > calls.start[queued[0]]).any()
        ended = int(work.end.max(initial=-(1 << 62))) + _LATE_NS
        if calls.start[queued[-1]] <= ended and not waited:
            lost[queued] = False
    return lost


def _calls_of(piece: Piece, ids: Int64) -> tuple[Int64, Int64]:
    """Process and start of the calls with some ids."""
    calls = piece.take("api", ["process", "start"], np.flatnonzero(_is_in(_ids(piece, ("api",)), ids[ids >= 0])))
    return integers(calls.column("process"), -1), integers(calls.column("start"), -1)


def _place(calls: _Calls, lost: Flags, recorded: Flags) -> str:
    """Where in the capture they are: `start`, `end`, `places` for a few, or `spread`."""
    starts = calls.start[recorded]
    first, last = calls.start[lost].min(), calls.start[lost].max()
    if not len(starts):
        return "everywhere"
    if last < starts.min():
        return "start"
    if first > starts.max():
        return "end"
    return "spread" if _is_spread(calls, lost) else "places"


def _is_spread(calls: _Calls, lost: Flags) -> bool:
    blocks = int(np.count_nonzero(lost[1:] & ~lost[:-1])) + int(lost[:1].any())
    return bool(blocks > _FEW_BLOCKS and np.count_nonzero(lost) > _FEW_SHARE * len(calls.id))


def _unrecorded(calls: _Calls, lost: Flags, recorded: Flags, work: _Work, end_ns: int) -> list[tuple[int, int]]:
    """When lost work may have run, merged and ascending."""
    spans: list[tuple[int, int]] = []
    order = np.argsort(work.id, kind="stable")
    for process in np.unique(calls.process[lost]).tolist():
        mine = np.flatnonzero((calls.process == process) & (lost | recorded))
        gone, called, returned = lost[mine], calls.start[mine], calls.end[mine]
        # the launch of each piece of work, by its index among those of the process
        at = np.searchsorted(work.id[order], calls.id[mine], "left")
        until = np.searchsorted(work.id[order], calls.id[mine], "right")
        launch = np.repeat(np.arange(len(mine)), until - at)
        piece = order[np.repeat(at - (np.cumsum(until - at) - (until - at)), until - at) + np.arange(len(launch))]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], gone, [False])).astype(np.int8)))
        blocks = (
            [(int(edges[0]), int(edges[-1]))]
            if _is_spread(calls, lost)
            else list(zip(edges[::2], edges[1::2], strict=True))
        )
        for first, behind in blocks:
            before, after = piece[launch < first], piece[launch >= behind]
            start = max(int(called[first]), _first_free(work, before))
            end = end_ns if _is_spread(calls, lost) else _last_begun(work, after, end_ns)
            waits, done = calls.done[process]
            later = np.searchsorted(waits, returned[behind - 1])
            if later < len(waits):
                end = min(end, int(done[later]))
            spans.append((start, max(start, end)))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif end > start:
            merged.append((start, end))
    return merged


def _first_free(work: _Work, pieces: NDArray[np.intp]) -> int:
    """The earliest end of the last work of a stream, among what was launched before; far back without any."""
    if not len(pieces):
        return -(1 << 62)
    ends = np.full(int(work.stream.max()) + 1, -(1 << 62))
    np.maximum.at(ends, work.stream[pieces], work.end[pieces])
    return int(ends.min())


def _last_begun(work: _Work, pieces: NDArray[np.intp], end_ns: int) -> int:
    """The latest start of the first work of a stream, of what was launched after; without any, the capture's end."""
    if not len(pieces):
        return end_ns
    starts = np.full(int(work.stream.max()) + 1, 1 << 62)
    np.minimum.at(starts, work.stream[pieces], work.start[pieces])
    return int(starts[starts < 1 << 62].max())


def _unlaunched(piece: Piece, kernels: Int64) -> list[MissingRecords]:
    """Kernels without a call, though calls with lower ids were recorded: ids of a process grow with time."""
    ids = _ids(piece, ("api",))
    lost = (kernels >= 0) & ~_is_in(kernels, ids)
    for process in np.unique(kernels[lost] >> _BITS).tolist():
        own = ids[(ids >= 0) & (ids >> _BITS == process)]
        lost &= (kernels >> _BITS != process) | (kernels > (own.min() if len(own) else kernels.max()))
    number = int(np.count_nonzero(lost))
    if not number:
        return []
    start = integers(piece.take("kernels", ["start"], np.flatnonzero(lost)).column("start"))
    return [MissingRecords(LAUNCHES, number, len(kernels), int(start.min()), int(start.max()), "places")]
