"""Sets aside the rows of a report that cannot be true, and gives back what can be believed of them.

Profilers write such rows: a kernel without an end gets one of days, events without a time get 0, a file is merged with
itself. A row is suspect if

* its times are not within 36 years of the report's zero, or it lasts a year (`alltrace.run.bounds`);
* it ends before it begins;
* it has no time: 0, where its table goes on with other times; or it is a kernel without a duration, as most of its
  table are;
* it is far from all others: half an hour away from the rest of its report, with at most one in a thousand rows there;
* it lasts half an hour longer than anything else begins;
* it is a call that begins 1 ms or more after what it launched or the call behind it (`alltrace.run.launch_order`);
* it is recorded twice: another row of its stream or thread has the same times and the same launch;
* it overruns: it ends more than 1 us after the third later piece of work of its stream has begun, or 10 ms after a wait
  for its stream, context or device, which began when it had begun, has ended. Work on a stream is serial. Kernels of
  graphs are not, and neither is a stream in which one in twenty rows overruns; nearby ones may overlap (dependent
  launches, 230 ns of noise between clocks of a device);
* it crosses others of its thread and domain, which ranges that are pushed and popped do not (but steps of PyTorch's
  profiler), and they cross fewer or would lose ten times as much if they ended before they crossed;
* it is on another device than most of its context, which has one;
* it is a copy of a negative size, or of over 64 kB at over 20 TB/s, ten times what any device's memory has.

The tables that questions read have the believed end of work that overruns (the start of the next, or the end of the
wait) and of ranges that cross (before they do), the device of the context, no size for copies that are too fast, and no
other suspect row. `suspects` says what the report has. A table that differs is kept as it was recorded for the reports
of Nsight Systems, which give the file's numbers. If calls share their correlation ids with many others, nothing has
one. A rank whose clock steps back, whose launches are not joined, or of which a part is lost is in doubt and not
compared with others.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from alltrace.readers.base import ReportWarning
from alltrace.run.bounds import MOST_TIME_NS, UNREACHABLE_TEXT
from alltrace.run.launch_order import LaunchOrder, launch_order
from alltrace.run.manifest import RECORDED
from alltrace.run.parquet import row_group_order
from alltrace.run.pieces import Piece
from alltrace.run.row_times import LATER, LONG_NS, OVERRUN_NS, SAMPLE, SERIAL, UNIQUE, RowTimes, times_of
from alltrace.run.writer import TableWriter
from alltrace.trace.arrays import Flags, Int64, coded, integers, is_one_of
from alltrace.trace.distinct import distinct_rows
from alltrace.trace.errors import InputError
from alltrace.trace.nesting import NestingSweep
from alltrace.trace.schema import EVENT_TABLES, TABLES

FAR_NS = 1800 * 10**9
_FEW_SHARE = 1000
_ALWAYS_FEW = 3
_DEVICE_WAIT = "(?:cuda|hip)DeviceSynchronize|cuCtxSynchronize"
_NOT_SERIAL_SHARE = 0.05
_BITS = 40  # where the process begins in a process and correlation id as one number

_LOST_SHARE = 0.05  # without more of its work a rank does not show when it waits

_SMALL_BYTES = 64 << 10
_MOST_BYTES_PER_NS = 20_000


_REASONS = (
    "unreachable",
    "backward",
    "no time",
    "far",
    "too long",
    "late",
    "repeated",
    "overrun",
    "crossing",
    "device",
    "size",
)
UNREACHABLE, BACKWARD, TIMELESS, FAR, LONG, LATE, REPEATED, OVERRUN, CROSSING, DEVICE, SIZE = range(
    1, len(_REASONS) + 1
)
_TEXTS = {
    BACKWARD: "rows of `{table}` that end before they start",
    TIMELESS: "rows of `{table}` without a time or a duration",
    FAR: "rows of `{table}` far from the time of all others",
    LONG: "rows of `{table}` that last half an hour longer than anything else begins",
    LATE: "rows of `{table}` that begin 1 ms or more after what they launched, or after the call behind them",
    REPEATED: "rows of `{table}` that are recorded twice",
    OVERRUN: "rows of `{table}` that end after later work of their stream has begun, or a wait for them has ended",
    CROSSING: "rows of `{table}` that cross others of their thread",
    DEVICE: "rows of `{table}` on another device than their context",
    SIZE: "copies of an impossible size, or faster than any memory",
}
SUSPECT_TEXTS = tuple(text.format(table=name) for text in (UNREACHABLE_TEXT, *_TEXTS.values()) for name in EVENT_TABLES)
"""How the warnings about suspect rows begin."""
_UNJOINED = (
    "rows of `{table}` whose correlation ids come again and again, so launches are not joined with what they ran"
)
_LACKED = {
    ("kernels", "kind"): "kernels without a name, so of unknown kind",
    ("kernels", "stream"): "kernels without a stream",
    ("copies", "bytes"): "copies without a size",
}
_EITHER = "pairs of ranges of a thread that cross, of which either may be wrong"
_LAUNCHED = ("kernels", "copies", "graphs", "syncs", "api")
_SHORTEST_CALL_NS, _SHORT_KERNEL_NS = 25, 1000
"""No CUDA call takes less under a profiler, as a median; in us, and so 1 ms, many kernels take less than 1000."""
_MANY = 50

PROFILER_STEP = "ProfilerStep#[0-9]{1,15}$"
"""A step of PyTorch's profiler: it ends where the program calls `step`, which may be within a range."""

_CHANNEL = '"channelId"'
"""In the payload of a channel of NCCL's own trace: operations of several streams run at once on one thread of it."""

_CROSSING_SHARE = 0.01  # where more of the ranges cross, they are not pushed and popped
_MUCH = 10

_COPIED_COLUMNS = ("start", "end", "process", "thread", "device", "stream", "correlation", "name", "bytes")


def set_aside(piece: Piece, scratch: Path, report: str) -> None:
    """Rewrite a piece's tables with suspect rows, and warn of them. Raises `InputError`: its times are not in ns."""
    tables = {name: times for name in piece.rows if (times := times_of(piece, name)) is not None}
    _check_unit(tables, report)
    waited = _waited_ends(piece, tables)
    reasons = _suspects(piece, tables, waited)
    order = launch_order(piece, tables, {name: (why > 0) & (why < LATE) for name, why in reasons.items()})
    if order.late is not None:
        why = reasons.setdefault("api", np.zeros(len(order.late), np.int8))
        why[order.late & (why == 0)] = LATE
    ends: dict[str, Int64] = {}
    if piece.crossing and "ranges" in tables:
        crossing, ends["ranges"] = _crossing(piece, tables["ranges"], reasons.get("ranges"))
        _note(reasons, "ranges", crossing, CROSSING)
    unnamed = _say_what_lacks(piece, tables)
    piece.doubt = _doubt(tables, reasons, order, unnamed)
    for name in _LAUNCHED if order.unjoined else ():
        if name in tables:
            reasons.setdefault(name, np.zeros(tables[name].rows, np.int8))
            piece.row_warnings += (ReportWarning(_UNJOINED.format(table=name), (name,), tables[name].rows),)
    if order.back_ns:
        piece.row_warnings += (ReportWarning(f"its clock steps back by {order.back_ns / 1e6:,.1f} ms", tuple(tables)),)
    if not reasons and not piece.unreachable:
        return
    believed = ends | _believed_ends(piece, tables, reasons, waited)
    devices = {name: _devices_of_contexts(piece, name) for name, why in reasons.items() if (why == DEVICE).any()}
    spans = _believed_spans(tables, reasons, believed)  # of the tables as they are recorded
    suspects: list[pa.Table] = []
    for name, why in reasons.items():
        values = {c: v for c, v in (("end", believed.get(name)), ("device", devices.get(name))) if v is not None}
        suspects += _rewrite(piece, name, why, values, scratch, unjoined=order.unjoined)
        counts = np.bincount(why, minlength=len(_REASONS) + 1)
        piece.row_warnings += tuple(
            ReportWarning(text.format(table=name), (name,), int(counts[n])) for n, text in _TEXTS.items() if counts[n]
        )
    for name, batches in piece.unreachable.items():
        suspects += [
            _as_suspects(name, _with_possible_times(b), np.full(b.num_rows, UNREACHABLE, np.int8), None)
            for b in batches
        ]
    with TableWriter(TABLES["suspects"], piece.folder / "suspects.parquet", scratch) as writer:
        for table in suspects:
            for batch in table.to_batches():
                writer.append(batch)
        stats = writer.finish()
    piece.rows["suspects"] = stats.rows
    piece.hold("suspects", stats.whole)
    piece.start_ns = min((first for first, _last in spans), default=None)
    piece.end_ns = max((last for _first, last in spans), default=None)
    if piece.open_end_ns is not None and piece.end_ns is not None:
        piece.open_end_ns = min(piece.open_end_ns, piece.end_ns)


def _say_what_lacks(piece: Piece, tables: Mapping[str, RowTimes]) -> int:
    """Count the rows without a value that others of their table have; returns how many kernels have no name."""
    counts = {}
    for (name, column), text in _LACKED.items():
        if name in tables:
            nulls = piece.nulls(name, column)
            counts[column] = nulls if column == "kind" or nulls < piece.rows[name] else 0
            if counts[column]:
                piece.row_warnings += (ReportWarning(text, (name,), counts[column]),)
    return counts.get("kind", 0)


def _check_unit(tables: Mapping[str, RowTimes], report: str) -> None:
    """Refuse times that are in a longer unit than ns, by how long calls and kernels take."""
    both = [tables[name] for name in ("api", "kernels") if name in tables and tables[name].rows >= _MANY]
    medians = [float(np.median(np.abs(t.lengths))) for t in both]
    if len(both) == 2 and medians[0] < _SHORTEST_CALL_NS and medians[1] < _SHORT_KERNEL_NS:
        raise InputError(
            report,
            found=(
                f"half of its CUDA calls take {medians[0]:,.0f} ns or less, and half of its kernels {medians[1]:,.0f}"
                " ns or less"
            ),
            expected="times in ns, in which calls take at least hundreds",
            advice="export it again; its times seem to be in us or longer units",
        )


def _doubt(
    tables: Mapping[str, RowTimes], reasons: Mapping[str, NDArray[np.int8]], order: LaunchOrder, unnamed: int
) -> str | None:
    """Why the times of a report cannot be compared with others; None if they can."""
    if order.back_ns:
        return f"its clock steps back by {order.back_ns / 1e6:,.1f} ms"
    if order.unjoined:
        return "its launches cannot be joined with what they ran"
    if "kernels" in tables and unnamed > _LOST_SHARE * tables["kernels"].rows:
        return f"{unnamed:,} of its {tables['kernels'].rows:,} kernels have no name"
    lost = sum(int(np.count_nonzero((reasons[n] > 0) & (reasons[n] < LATE))) for n in SERIAL if n in reasons)
    every = sum(tables[n].rows for n in SERIAL if n in tables)
    if lost > max(_ALWAYS_FEW, _LOST_SHARE * every):
        return f"{lost:,} of its {every:,} kernels and copies have times that cannot be true"
    return None


def _suspects(piece: Piece, tables: Mapping[str, RowTimes], waited: Mapping[str, Int64]) -> dict[str, NDArray[np.int8]]:
    """For each table with suspect rows the reason of each row, 0 for none."""
    reasons: dict[str, NDArray[np.int8]] = {}
    note = partial(_note, reasons)

    for name, times in tables.items():
        if times.backward:
            note(name, times.end < times.start, BACKWARD)
    for name, flags in _without_time(tables):
        note(name, flags, TIMELESS)
    spans = _recorded_spans(tables, reasons)
    for name, times in tables.items() if spans is not None else ():
        inside = np.zeros(times.rows, np.bool_)
        for first, last in spans or ():
            inside |= (times.start >= first) & (times.start <= last)
        note(name, ~inside, FAR)
    latest = max((_believed_starts(t, reasons.get(n))[2] for n, t in tables.items()), default=0)
    for name, times in tables.items():
        if times.end_ns > latest + FAR_NS:
            note(name, times.end > latest + FAR_NS, LONG)
        if len(times.equal):
            note(name, _repeated(piece, name, times), REPEATED)
    for name, flags in _overruns(piece, tables, reasons).items():
        note(name, flags & (tables[name].start == 0), TIMELESS)  # its end is not what is wrong
        note(name, flags, OVERRUN)
    for name, ends in waited.items():
        note(name, _flags(tables[name], tables[name].long[tables[name].long_end > ends + LONG_NS]), OVERRUN)
    for name in SERIAL:
        if name in tables and _on_several(piece, name):
            note(name, _devices_of_contexts(piece, name) != piece.numbers(name, "device", -1), DEVICE)
    if "copies" in tables:
        note("copies", _impossible_sizes(piece, tables["copies"]), SIZE)
    return reasons


def _note(reasons: dict[str, NDArray[np.int8]], name: str, flags: Flags, reason: int) -> None:
    """Give rows of a table that have none yet a reason."""
    if flags.any():
        why = reasons.setdefault(name, np.zeros(len(flags), np.int8))
        why[flags & (why == 0)] = reason


def _flags(times: RowTimes, rows: Int64) -> Flags:
    """Which rows of a table are among some."""
    flags = np.zeros(times.rows, np.bool_)
    flags[rows] = True
    return flags


def _believed_starts(times: RowTimes, why: NDArray[np.int8] | None) -> tuple[Int64, int, int]:
    """Some of the starts of the rows of a table that are not suspect, the first one and the last one."""
    if why is None:
        return times.sample, times.first, times.last
    starts = times.start[why == 0]
    return (
        starts[:: max(1, len(starts) // SAMPLE)],
        int(starts.min(initial=MOST_TIME_NS)),
        int(starts.max(initial=-MOST_TIME_NS)),
    )


def _without_time(tables: Mapping[str, RowTimes]) -> Iterator[tuple[str, Flags]]:
    """Kernels without a duration, as most are, and rows without a time.

    These are the rows at the first moment of a report if three or more pieces of work on devices lie there, or begin
    and end at 0.
    """
    if "kernels" in tables and (kernels := tables["kernels"]).rows >= _MANY and kernels.instant > kernels.rows / 2:
        yield "kernels", kernels.end == kernels.start
    first = min((times.first for times in tables.values()), default=0)
    there = sum(tables[name].at_first for name in SERIAL if name in tables and tables[name].first == first)
    beyond = max((times.last for times in tables.values()), default=first)
    if there < _ALWAYS_FEW or beyond == first:
        some = (
            (name, t) for name, t in tables.items() if name in SERIAL and t.first <= 0 and (t.first, t.last) != (0, 0)
        )
        yield from ((name, (t.start == 0) & (t.end == 0)) for name, t in some)
    else:
        yield from ((name, times.start == first) for name, times in tables.items() if times.first == first)


def _recorded_spans(
    tables: Mapping[str, RowTimes], reasons: Mapping[str, NDArray[np.int8]]
) -> list[tuple[int, int]] | None:
    """The spans of time that rows begin in, half an hour apart, without those of few rows; None for all."""
    starts = [_believed_starts(times, reasons.get(name)) for name, times in tables.items()]
    sample = np.sort(np.concatenate([some for some, _, _ in starts] or [np.empty(0, np.int64)]))
    if not len(sample):
        return None
    low, high = min(first for _, first, _ in starts), max(last for _, _, last in starts)
    if not (np.diff(np.concatenate(([low], sample, [high]))) > FAR_NS).any():
        return None
    every = np.sort(
        np.concatenate([t.start if n not in reasons else t.start[reasons[n] == 0] for n, t in tables.items()])
    )
    edges = np.flatnonzero(np.diff(every) > FAR_NS) + 1
    first, stop = np.concatenate(([0], edges)), np.concatenate((edges, [len(every)]))
    count = stop - first
    at_once = (every[stop - 1] == every[first]) & (count > 1)
    enough = (count > max(_ALWAYS_FEW, len(every) // _FEW_SHARE)) & ~at_once
    enough[np.argmax(np.where(at_once, 0, count))] = True
    return (
        None
        if enough.all()
        else [(int(every[a]), int(every[b - 1])) for a, b in zip(first[enough], stop[enough], strict=True)]
    )


def _repeated(piece: Piece, name: str, times: RowTimes) -> Flags:
    """The rows that equal the row before them among those of the same track and start."""
    rows = np.union1d(times.equal, times.equal - 1)
    read = piece.take(name, UNIQUE[name], rows)
    same = np.ones(len(times.equal), np.bool_)
    at = np.searchsorted(rows, times.equal)
    for column in read.columns:
        codes = coded(column)[1]
        same &= codes[at] == codes[at - 1]
    return _flags(times, times.equal[same])


class _Tracks:
    """The streams of a table: where the rows of each are, and what is not serial in them."""

    def __init__(self, piece: Piece, name: str, chosen: Flags) -> None:
        columns = ["process", "device", "context", "stream"]
        self._piece, self._name = piece, name
        keys = np.stack([piece.numbers(name, c, -1) for c in columns])
        self.rows: dict[tuple[int, ...], Int64] = {}
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return
        ordered = keys[:, rows]
        if (ordered[2] != ordered[2, 0]).any():  # files are sorted without the context
            order = np.lexsort((np.arange(len(rows)), ordered[3], ordered[2], ordered[1], ordered[0]))
            rows, ordered = rows[order], ordered[:, order]
        edges = np.flatnonzero((ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) + 1
        for of_track in np.split(rows, edges):
            track = tuple(keys[:, of_track[0]].tolist())
            if track[-1] >= 0:  # work of no stream is not serial
                self.rows[track] = of_track

    def parallel(self, rows: Int64) -> Flags:
        """Which of some rows belong to a graph, or share their launch with other work: such work may overlap."""
        read = self._piece.read(self._name, ["process", "correlation", "graph_node"])
        launches = integers(read.column("process"), -1) << _BITS | integers(read.column("correlation"), 0)
        known, counts = np.unique(launches, return_counts=True)
        shared = (counts[np.searchsorted(known, launches[rows])] > 1) & (launches[rows] & ((1 << _BITS) - 1) != 0)
        of_graph: Flags = np.asarray(read.column("graph_node").is_valid().to_numpy())[rows]
        overlapping: Flags = np.logical_or(shared, of_graph)
        return overlapping


def _overruns(
    piece: Piece, tables: Mapping[str, RowTimes], reasons: Mapping[str, NDArray[np.int8]]
) -> dict[str, Flags]:
    """Work that ends after the third later work of its stream has begun."""
    overruns: dict[str, Flags] = {}
    work = {name: tables[name] for name in SERIAL if name in tables}
    if not any(times.crowded or (len(work) > 1 and len(times.long)) for times in work.values()):
        return overruns
    every = {
        name: np.ones(times.rows, np.bool_) if name not in reasons else reasons[name] == 0
        for name, times in work.items()
    }
    tracks = {name: _Tracks(piece, name, chosen) for name, chosen in every.items()}
    for name, streams in tracks.items():
        times, flags = tables[name], np.zeros(tables[name].rows, np.bool_)
        for track, rows in streams.rows.items():
            start, end = times.start[rows], times.end[rows]
            over = np.zeros(len(rows), np.bool_)
            over[:-LATER] = end[:-LATER] > start[LATER:] + OVERRUN_NS
            for other, others in tracks.items():
                if other != name and track in others.rows:
                    long = np.flatnonzero(end - start > LONG_NS)
                    over[long] |= _overruns_others(start[long], end[long], tables[other].start[others.rows[track]])
            candidates = np.flatnonzero(over)
            if len(candidates):
                candidates = candidates[~streams.parallel(rows[candidates])]
            if len(candidates) <= max(_ALWAYS_FEW, _NOT_SERIAL_SHARE * len(rows)):
                flags[rows[candidates]] = True
        if flags.any():
            overruns[name] = flags
    return overruns


def _waited_ends(piece: Piece, tables: Mapping[str, RowTimes]) -> dict[str, Int64]:
    """For work that takes long, the end of the first later wait for its stream, context or device to end.

    Nothing of a table of which more than a few rows end later: then its waits are wrong.
    """
    waited: dict[str, Int64] = {}
    work = {name: tables[name] for name in SERIAL if name in tables and len(tables[name].long)}
    waits = _waits(piece, tables) if work else []
    for name, times in work.items() if waits else ():
        read = piece.take(name, ["process", "context", "stream"], times.long)
        keys = np.stack([integers(read.column(c), -1) for c in read.column_names])
        ends = np.full(len(times.long), MOST_TIME_NS, np.int64)
        for key, begins, finishes in waits:
            own = np.flatnonzero((keys[: len(key)] == np.array(key)[:, None]).all(axis=0))
            behind = np.searchsorted(begins, times.long_start[own])
            ends[own] = np.minimum(ends[own], np.append(finishes, MOST_TIME_NS)[behind])
        if 0 < np.count_nonzero(times.long_end > ends + LONG_NS) <= max(_ALWAYS_FEW, _NOT_SERIAL_SHARE * len(ends)):
            waited[name] = ends
    return waited


def _waits(piece: Piece, tables: Mapping[str, RowTimes]) -> list[tuple[tuple[int, ...], Int64, Int64]]:
    """The waits for each stream, context and only device: whose, their starts, and the first end from each on."""
    waits: list[tuple[tuple[int, ...], Int64, Int64]] = []
    whole: list[tuple[Any, Int64, Int64]] = []
    if "syncs" in tables:
        read = piece.read("syncs", ["kind", "process", "context", "stream"])
        keys = np.stack([integers(read.column(c), -1) for c in ("process", "context", "stream")])
        for kind, width in (("stream", 3), ("context", 2)):
            of_kind = np.asarray(pc.fill_null(pc.equal(read.column("kind"), kind), fill_value=False))
            of_kind &= (keys[:width] >= 0).all(axis=0)
            whole.append((keys[:width, of_kind], tables["syncs"].start[of_kind], tables["syncs"].end[of_kind]))
    if "api" in tables and len(piece.devices) == 1 and (calls := piece.named("api", _DEVICE_WAIT)):
        named = pa.array(list(calls), pa.int64())
        parts = piece.parts("api", ["process", "start", "end", "name"])
        read = pa.concat_tables([part.filter(pc.is_in(part.column("name"), value_set=named)) for part in parts])
        process, start, end = (integers(column, -1) for column in read.columns[:3])
        whole.append((process[None], start, end))
    for keys, start, end in whole:
        for key in np.unique(keys, axis=1).T.tolist() if len(start) else ():
            own = np.flatnonzero((keys == np.array(key)[:, None]).all(axis=0) & (end > start))
            own = own[np.argsort(start[own], kind="stable")]
            waits.append((tuple(key), start[own], np.minimum.accumulate(end[own][::-1])[::-1]))
    return waits


def _overruns_others(start: Int64, end: Int64, others: Int64) -> Flags:
    """Which intervals end after the third one of `others` that begins within them."""
    third = np.searchsorted(others, start, "right") + LATER - 1
    there = third < len(others)
    begins = others[np.where(there, third, 0)] if len(others) else end
    over: Flags = np.logical_and(there, end > begins + OVERRUN_NS)
    return over


def _on_several(piece: Piece, name: str) -> bool:
    """Whether the rows of a table may be on several devices, or on none."""
    return len(piece.devices) > 1 or 0 < piece.nulls(name, "device") < piece.rows[name]


def _devices_of_contexts(piece: Piece, name: str) -> Int64:
    """The device of each row of a table: that of most rows of its context, unless more than a few are elsewhere."""
    process, context, device = (piece.numbers(name, c, -1) for c in ("process", "context", "device"))
    _, of_context = distinct_rows(process, context)
    pairs, at = distinct_rows(of_context, device)
    counts = np.bincount(at, minlength=pairs.shape[1])
    most = np.lexsort((counts, pairs[0]))[np.flatnonzero(np.diff(np.append(pairs[0], -1)))]  # of each context the last
    few = counts.sum() - counts[most].sum() <= max(_ALWAYS_FEW, _NOT_SERIAL_SHARE * counts.sum())
    return np.where(context >= 0, pairs[1][most][of_context], device) if few else device


def _crossing(piece: Piece, times: RowTimes, why: NDArray[np.int8] | None) -> tuple[Flags, Int64]:
    """The ranges that are wrong where ranges cross, as the others can be known, and the believed ends of all ranges."""
    read = piece.read("ranges", ["kind", "thread", "domain", "name", "payload", "end"], ["kind"])
    is_open = np.asarray(read.column("end").is_null())
    end = np.where(is_open, piece.open_end_ns or times.end, times.end)
    thread = integers(read.column("thread"), -1)
    nests = is_one_of(read.column("kind"), ("pushpop",)) & (thread >= 0) & (why is None or why == 0)
    steps = pa.array(piece.named("ranges", PROFILER_STEP), pa.int64())
    nests &= ~np.asarray(pc.is_in(read.column("name"), value_set=steps), np.bool_)
    # what NCCL's own trace writes of the channels of operations, of which several run at once
    channel = pc.match_substring(read.column("payload"), _CHANNEL)
    nests &= ~np.asarray(pc.fill_null(channel, False), np.bool_)
    track = distinct_rows(thread, integers(read.column("domain"), 0))[1]
    rows = np.flatnonzero(nests)
    rows = rows[np.lexsort((-end[rows], times.start[rows], track[rows]))]
    sweep = NestingSweep()
    sweep.step(np.ones(len(rows), np.bool_), track[rows], times.start[rows], end[rows])
    flags = np.zeros(len(times.start), np.bool_)
    crossed: dict[int, set[int]] = {}
    waiting = rows[sweep.crosses].tolist()
    starts, ends = times.start[rows], end[rows]
    while waiting:
        if len(crossed) > max(_MANY, _NOT_SERIAL_SHARE * len(rows)):
            return flags, times.end
        if (row := waiting.pop()) in crossed:
            continue
        first, last = times.start[row], end[row]
        over_first = (starts < first) & (ends > first + OVERRUN_NS) & (ends < last - OVERRUN_NS)
        over_last = (starts > first) & (starts < last - OVERRUN_NS) & (ends > last + OVERRUN_NS)
        crossed[row] = set(rows[(over_first | over_last) & (track[rows] == track[row])].tolist())
        waiting += crossed[row]

    def before_it_crosses(row: int) -> int:
        return min(int(times.start[o] if times.start[o] > times.start[row] else end[o]) for o in crossed[row])

    believed, unsure = times.end.copy(), 0
    while crossed:
        lost = {row: int(end[row]) - before_it_crosses(row) for row in crossed}
        worst = max(crossed, key=lambda row: (is_open[row], len(crossed[row]), -lost[row]))
        flags[worst] = (
            is_open[worst] or len(crossed[worst]) > 1 or _MUCH * lost[worst] < min(lost[o] for o in crossed[worst])
        )
        if flags[worst]:
            believed[worst] = before_it_crosses(worst)
        else:
            unsure += 1
        for other in crossed.pop(worst):
            crossed[other].discard(worst)
            if not crossed[other]:
                del crossed[other]
    if unsure:
        piece.row_warnings += (ReportWarning(_EITHER, ("ranges",), unsure),)
    few = np.count_nonzero(flags) <= max(_ALWAYS_FEW, _CROSSING_SHARE * len(rows))
    return flags & few, believed if few else times.end


def _impossible_sizes(piece: Piece, times: RowTimes) -> Flags:
    impossible = []
    for part, (start, end) in zip(piece.parts("copies", ["bytes"]), times.parts(), strict=True):
        size = integers(part.column("bytes"), 0)
        impossible.append(
            (size < 0) | ((size > _SMALL_BYTES) & (size // np.maximum(end - start, 1) > _MOST_BYTES_PER_NS))
        )
    return np.concatenate(impossible)


def _believed_ends(
    piece: Piece, tables: Mapping[str, RowTimes], reasons: Mapping[str, NDArray[np.int8]], waited: Mapping[str, Int64]
) -> dict[str, Int64]:
    """The ends of all rows of a table with work that overruns: of that, the start of the next, or the end of a wait."""
    ends: dict[str, Int64] = {}
    whose = {name: reasons.get(name, np.zeros(tables[name].rows, np.int8)) for name in SERIAL if name in tables}
    if not any((why == OVERRUN).any() for why in whose.values()):
        return ends
    tracks = {name: _Tracks(piece, name, (why == 0) | (why >= OVERRUN)) for name, why in whose.items()}
    for name, why in whose.items():
        believed = tables[name].end.copy()
        until = believed.copy()
        if name in waited:
            until[tables[name].long] = waited[name]
        for track, rows in tracks[name].rows.items():
            over = rows[why[rows] == OVERRUN]
            others = [tables[n].start[t.rows[track]] for n, t in tracks.items() if track in t.rows]
            begins = np.sort(np.concatenate(others))
            behind = np.searchsorted(begins, tables[name].start[over], "right")
            latest = np.minimum(until[over], np.append(begins, MOST_TIME_NS)[behind])
            believed[over] = np.minimum(latest, believed[over])
        if (why == OVERRUN).any():
            ends[name] = believed
    return ends


def _rewrite(
    piece: Piece, name: str, why: NDArray[np.int8], believed: Mapping[str, Int64], scratch: Path, *, unjoined: bool
) -> list[pa.Table]:
    """Write a table without what cannot be believed, keep the old one, and return its suspect rows for `suspects`.

    Without its correlation ids if it is `unjoined`.
    """
    declared, path = TABLES[name], piece.folder / f"{name}.parquet"
    recorded = path.with_name(f"{RECORDED}{path.name}")
    path.rename(recorded)
    enums = [c.name for c in declared.columns if c.type == "enum"]
    schema = declared.arrow_schema()
    suspects, first = [], 0
    with TableWriter(declared, path, scratch) as writer, pq.ParquetFile(recorded, read_dictionary=enums) as file:
        for batch in file.iter_batches(row_groups=row_group_order(file.metadata)):
            rows = slice(first, first + batch.num_rows)
            first += batch.num_rows
            reason = why[rows]
            values = {column: its[rows] for column, its in believed.items()}
            if reason.any():
                suspects.append(_as_suspects(name, batch, reason, values.get("end")))
                batch = _believable(batch, reason, values)
            if unjoined and name in _LAUNCHED:
                batch = _without(batch, "correlation")
            writer.append(batch.cast(schema))
        stats = writer.finish(open_end_ns=piece.open_end_ns)
    piece.rows[name] = stats.rows
    piece.hold(name, stats.whole)
    if not piece.rows[name]:
        path.unlink()
    return suspects


def _ends_late(reason: NDArray[np.int8]) -> Flags:
    """Which rows are believed but for their ends."""
    flags: Flags = (reason == OVERRUN) | (reason == CROSSING)
    return flags


def _without(batch: Any, column: str, rows: Flags | None = None) -> Any:
    at = batch.schema.get_field_index(column)
    field = batch.schema.field(at)
    nulls = pa.nulls(batch.num_rows, field.type)
    return batch.set_column(at, field, nulls if rows is None else pc.if_else(pa.array(rows), nulls, batch.column(at)))


def _with_possible_times(batch: Any) -> Any:
    """The batch without times that cannot be counted with."""
    for column in ("start", "end", "time"):
        if column in batch.schema.names:
            times = integers(batch.column(column))
            batch = _without(batch, column, (times < -MOST_TIME_NS) | (times > MOST_TIME_NS))
    return batch


def _believable(batch: Any, reason: NDArray[np.int8], believed: Mapping[str, Int64]) -> Any:
    """The rows of a batch that are believed, with the ends, devices and sizes that are."""
    for column, wrong in (("end", _ends_late(reason)), ("device", reason == DEVICE)):
        if wrong.any():
            at = batch.schema.get_field_index(column)
            field = batch.schema.field(at)
            values = pa.array(believed[column], pa.int64(), mask=believed[column] < 0 if column == "device" else None)
            batch = batch.set_column(at, field, pc.if_else(pa.array(wrong), values.cast(field.type), batch.column(at)))
    if (reason == SIZE).any():
        batch = _without(batch, "bytes", reason == SIZE)
    names = batch.schema.names
    if "parent" in names:  # numbers of rows are others
        batch = _without(_without(batch, "depth"), "parent")
    return batch.filter(pa.array((reason == 0) | (reason >= OVERRUN)))


def _as_suspects(name: str, batch: Any, reason: NDArray[np.int8], believed: Int64 | None) -> pa.Table:
    """The suspect rows of a batch as `suspects` has them."""
    rows = np.flatnonzero(reason)
    schema = TABLES["suspects"].arrow_schema()
    order = TABLES[name].order
    columns: dict[str, Any] = {
        "table": pa.array([name] * len(rows)),
        "reason": pa.array([_REASONS[n - 1] for n in reason[rows].tolist()]),
    }
    ends = None if believed is None else believed[rows]
    if ends is not None:
        columns["believed_end"] = pa.array(ends, pa.int64(), mask=~_ends_late(reason[rows]))
    taken = batch.take(pa.array(rows))
    for column in _COPIED_COLUMNS:
        source = order if column == "start" else column
        if source in taken.schema.names:
            columns[column] = taken.column(taken.schema.get_field_index(source))
    return pa.table({f.name: columns.get(f.name, pa.nulls(len(rows), f.type)) for f in schema}).cast(schema)


def _believed_spans(
    tables: Mapping[str, RowTimes], reasons: Mapping[str, NDArray[np.int8]], believed: Mapping[str, Int64]
) -> list[tuple[int, int]]:
    """The first start and the last end of what is believed of each table."""
    spans = []
    for name, times in tables.items():
        why = reasons.get(name)
        if why is None and name not in believed:
            spans.append((times.first, times.end_ns))
        elif (believable := np.ones(times.rows, np.bool_) if why is None else (why == 0) | (why >= OVERRUN)).any():
            spans.append((int(times.start[believable].min()), int(believed.get(name, times.end)[believable].max())))
    return spans
