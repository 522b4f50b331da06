"""One rank as a task of a Paraver trace: its events, states and communications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from alltrace.core.paraver import OWNER_SHIFT, QUERY_SHIFT, TRACK_SHIFT, innermost, strongest
from alltrace.export.columns import UNKNOWN, call_keys, numbers, words
from alltrace.export.paraver.records import RecordWriter
from alltrace.export.paraver.survey import Survey
from alltrace.export.selection import Selection
from alltrace.export.sorted_rows import RowSorter
from alltrace.export.tracks import Intervals, Tracks, intervals_of
from alltrace.readers.paraver import labels as ev
from alltrace.readers.paraver.labels import Profile
from alltrace.trace.arrays import Int64
from alltrace.trace.kernel_rules import NOT_COMPUTE
from alltrace.trace.mpi_sizes import buffer_bytes

Columns = tuple[Int64, Int64, Int64, Int64]

STRONGEST_FIRST = (
    ev.MPI_RECEIVE, ev.MPI_SEND, ev.MPI_WAIT, ev.MPI_ISEND, ev.MPI_IRECEIVE, ev.MPI_SENDRECV, ev.MPI_OTHER, ev.RUNNING,
    ev.SYNCHRONISATION, ev.GROUP, ev.MEMORY,
)  # fmt: skip
"""Where intervals overlap, the first of these is the state:
compute hides communication, and that hides copies."""

STATES = (*STRONGEST_FIRST, ev.IDLE)
"""The states, by strength."""

_STRENGTHS = np.full(64, -1, np.int64)
_STRENGTHS[list(STATES)] = np.arange(len(STATES))


# `points`: where to sort, of three columns.
class StateBuilder:
    """Takes the intervals of one task in any order and returns the state of each thread, and what waits waited for."""

    def __init__(self, points: RowSorter) -> None:
        self._points = points

    def add(self, tracks: Int64, starts: Int64, ends: Int64, states: Int64) -> None:
        """Add n intervals with their states; intervals with a negative state or without length are ignored."""
        rows = np.flatnonzero((states >= 0) & (ends > starts) & (tracks >= 0))
        codes = tracks[rows] << TRACK_SHIFT | _STRENGTHS[states[rows]] << 1
        self._points.add(starts[rows], codes | 1, 0)
        self._points.add(ends[rows], codes, 0)

    def ask(self, tracks: Int64, since: Int64, until: Int64, owners: Int64) -> None:
        """Ask for the last end on each track from `since` to `until`; `owners` are the tracks that waited for it."""
        self._points.add(until, tracks << TRACK_SHIFT | 1 << QUERY_SHIFT | owners << OWNER_SHIFT, since)

    def sweep(self, background: list[int], end_ns: int) -> Iterator[tuple[Columns, Columns]]:
        """The states from 0 to the end, without gaps, and the answers to the queries, block by block."""
        # `background`: for each track the state of what no interval covers. Yields int64 arrays: tracks, starts, ends,
        # states as places in `STATES`; and tracks, the last ends on them, the ends of the waits and their tracks.
        count = len(background)
        rest = _STRENGTHS[np.array(background, np.int64)]
        open_ = np.zeros((count, len(STRONGEST_FIRST)), np.int64)
        since, states, ended = np.zeros(count, np.int64), rest.copy(), np.full(count, -1, np.int64)
        for times, codes, more in self._points.blocks():
            out: Any = [np.empty(len(times), np.int64) for _ in range(6)]
            changed, answered = strongest(times, codes, more, end_ns, rest, open_, since, states, ended, *out)
            tracks, starts, ends, shown = (c[:changed] for c in out[:4])
            rows, last = (c[:answered] for c in out[4:])
            queries = codes[rows]
            owners = queries >> OWNER_SHIFT & 0xFFFF
            yield (tracks, starts, ends, shown), (queries >> TRACK_SHIFT, last, times[rows], owners)
        left, none = np.full(count, end_ns, np.int64), np.empty(0, np.int64)
        yield (np.arange(count), since, left, states), (none, none, none, none)


def state_of_call(name: str) -> int:
    """The state of a host thread in a CUDA call, -1 for one that only launches."""
    if "ynchronize" in name:
        return ev.SYNCHRONISATION
    return ev.MEMORY if "emcpy" in name or "emset" in name else -1


def state_of_mpi(name: str, kind: str) -> int:
    if kind == "collective":
        return ev.GROUP
    if kind == "start-wait" or "Wait" in name:
        return ev.MPI_WAIT
    states = {
        "MPI_Send": ev.MPI_SEND, "MPI_Recv": ev.MPI_RECEIVE, "MPI_Isend": ev.MPI_ISEND, "MPI_Irecv": ev.MPI_IRECEIVE,
        "MPI_Sendrecv": ev.MPI_SENDRECV, "MPI_Probe": ev.MPI_RECEIVE,
    }  # fmt: skip
    return states.get(name, ev.MPI_OTHER)


_WORK, _WAIT = 1 << 60, 1 << 61  # later than any call starts
_REMAINDERS = 1 << 22  # correlations count up, so this many are distinct

_DEPTH = 32

_HOST_TYPES = {"openmp": ev.OPENMP, "osrt": ev.OSRT, "ucx": ev.UCX, "syscalls": ev.SYSCALL}
_ACC_TYPES = {"data": ev.OPENACC_DATA, "launch": ev.OPENACC_LAUNCH}
_MPI_TYPES = {"p2p": ev.MPI_P2P, "start-wait": ev.MPI_P2P, "collective": ev.MPI_COLLECTIVE}
_LARGEST = 9e15
_DOMAIN_BITS = 32


# `objects`: the objects of the tracks, by number. `survey`: the values of names. `profile`: the numbers of types.
# `writer`: where the records go. `folder`: where to sort what does not fit in memory. `details`: also the geometry and
# correlation of launches. `demangled`: whether kernels have their full name.
class Task:
    """Writes the records of one rank."""

    def __init__(
        self,
        selection: Selection,
        tracks: Tracks,
        objects: Int64,
        survey: Survey,
        profile: Profile,
        writer: RecordWriter,
        folder: Path,
        *,
        details: bool = False,
        demangled: bool = False,
    ) -> None:
        self._selection, self._tracks, self._objects = selection, tracks, objects
        self._survey, self._profile, self._writer = survey, profile, writer
        self._details, self._kernel_name = details, "name" if demangled else "short_name"
        self._folder = folder

    def write(self) -> None:
        """Write all of the rank but what needs other ranks."""
        if not len(self._tracks):
            return
        self._host()
        self._ranges()
        self._marks()
        self._collectives()
        self._metrics()
        with RowSorter(self._folder / "states", 3) as points:
            self._states = StateBuilder(points)
            with RowSorter(self._folder / "calls", 5) as rows:
                self._joined = _CallJoin(rows)
                self._kernels()
                self._copies()
                self._graphs()
                self._waits()
                self._calls()
                self._join()
            self._mpi()
            self._write_states()

    def _parts(self, table: str, columns: list[str]) -> Any:
        return intervals_of(self._selection, self._tracks, table, columns)

    def _of(self, tracks: Int64) -> Int64:
        return self._objects[tracks]

    def _kernels(self) -> None:
        geometry = [c for c, _ in ev.GEOMETRY.values()] if self._details else []
        for part in self._parts("kernels", [self._kernel_name, "kind", "process", "correlation", *geometry]):
            codes, names = words(part.rows, "kind")
            communicates = np.array([*(n in NOT_COMPUTE for n in names), False])[codes]
            values = self._survey.values["kernels"].of(numbers(part.rows, self._kernel_name))
            more: list[tuple[int, Any]] = []
            if self._details:
                more = [(n, numbers(part.rows, c, 0)) for n, (c, _) in ev.GEOMETRY.items()]
                more.append((ev.CORRELATION, numbers(part.rows, "correlation", 0)))
            types = (ev.KERNEL, self._profile.nccl)
            kinds = communicates.astype(np.int64)
            self._writer.intervals(self._of(part.tracks), part.starts, part.ends, types, values, more, kinds=kinds)
            self._states.add(part.tracks, part.starts, part.ends, np.where(communicates, ev.GROUP, ev.RUNNING))
            self._launched(part, None, ev.TAG_KERNEL)

    def _copies(self) -> None:
        for part in self._parts("copies", ["kind", "bytes", "process", "correlation"]):
            codes, kinds = words(part.rows, "kind")
            unknown = ev.COPIES["unknown"][0]
            values = np.array([*(ev.COPIES.get(k, (unknown,))[0] for k in kinds), unknown], np.int64)[codes]
            sizes = np.maximum(numbers(part.rows, "bytes"), 0)
            more = [(ev.MEMORY_BYTES, sizes)]
            if self._details:
                more.append((ev.CORRELATION, numbers(part.rows, "correlation", 0)))
            self._writer.intervals(self._of(part.tracks), part.starts, part.ends, ev.MEMORY_OP, values, more)
            self._states.add(part.tracks, part.starts, part.ends, np.full(len(part.tracks), ev.MEMORY, np.int64))
            self._launched(part, sizes, ev.TAG_COPY)

    def _graphs(self) -> None:
        for part in self._parts("graphs", ["graph", "graph_exec", "process", "correlation"]):
            executables = numbers(part.rows, "graph_exec")
            more = [(ev.GRAPH_ID, numbers(part.rows, "graph", 0)), (ev.GRAPH_EXEC, np.maximum(executables, 0))]
            values = self._survey.values["graphs"].of(executables)
            self._writer.intervals(self._of(part.tracks), part.starts, part.ends, self._profile.graph, values, more)
            self._states.add(part.tracks, part.starts, part.ends, np.full(len(part.tracks), ev.RUNNING, np.int64))
            self._launched(part, None, ev.TAG_KERNEL)

    def _launched(self, part: Intervals, sizes: Int64 | None, tag: int) -> None:
        sizes = np.zeros(len(part.starts), np.int64) if sizes is None else sizes
        self._joined.work(*self._call(part.rows), part.starts, part.tracks, sizes, tag)

    @staticmethod
    def _call(rows: Any) -> tuple[Int64, Int64]:
        return numbers(rows, "process"), numbers(rows, "correlation")

    def _waits(self) -> None:
        for batch in self._selection.batches(
            self._tracks.rank, "syncs", ["device", "stream", "process", "correlation"]
        ):
            streams = self._tracks.of_streams(numbers(batch, "device"), numbers(batch, "stream"))
            self._joined.waits(*self._call(batch), np.where(numbers(batch, "stream") == UNKNOWN, -1, streams))

    def _join(self) -> None:
        """Communications from the calls to what they launched: sent at a call's start, gone at its end; also waits."""
        for (logical, gone, callers, arrives, tracks, sizes, tags), (
            starts,
            ends,
            owners,
            streams,
        ) in self._joined.pairs():
            physical = np.maximum(np.minimum(gone, arrives), logical)
            sent, received = (logical, physical), (arrives, arrives)
            self._writer.communications(self._of(callers), sent, self._of(tracks), received, sizes, tags)
            self._states.ask(streams, starts, ends, owners)

    def _calls(self) -> None:
        import pyarrow as pa

        calls = self._survey.values["api"]
        texts = self._selection.run.texts(pa.array(calls.ids)).to_pylist()
        states = np.array([state_of_call(t or "") for t in texts], np.int64)
        for part in self._parts("api", ["name", "process", "correlation"]):
            self._joined.calls(*self._call(part.rows), part.starts, part.ends, part.tracks)
            places = calls.places(numbers(part.rows, "name"))
            more = [(ev.CORRELATION, numbers(part.rows, "correlation", 0))] if self._details else ()
            self._host_intervals(part, ev.CALL, calls.values[places], states[places], more)

    def _host_intervals(
        self,
        part: Intervals,
        types: Any,
        values: Int64,
        states: Int64 | None,
        more: Any = (),
        kinds: Int64 | None = None,
    ) -> None:
        tracks, starts, ends = part.tracks, part.starts, part.ends
        if not np.all(starts[1:] > starts[:-1]):  # of intervals that start together the outer one begins first
            order = np.lexsort((-ends, starts))
            tracks, starts, ends, values = tracks[order], starts[order], ends[order], values[order]
            more = [(n, v[order]) for n, v in more]
            kinds = None if kinds is None else kinds[order]
        self._writer.intervals(self._of(tracks), starts, ends, types, values, more, kinds=kinds)
        if states is not None:
            self._states.add(part.tracks, part.starts, part.ends, states)

    def _mpi(self) -> None:
        import pyarrow as pa

        for part in self._parts("mpi", ["name", "kind", "bytes", "sent_bytes", "recv_bytes"]):
            ids = numbers(part.rows, "name")
            codes, kinds = words(part.rows, "kind")
            kinds = [*kinds, "other"]
            unique, inverse = np.unique(ids, return_inverse=True)
            names = [t or "" for t in self._selection.run.texts(pa.array(unique)).to_pylist()]
            pairs, which = np.unique(np.stack((inverse, codes)), axis=1, return_inverse=True)
            states = np.array([state_of_mpi(names[n], kinds[k]) for n, k in pairs.T.tolist()], np.int64)[
                which.reshape(-1)
            ]
            types = [_MPI_TYPES.get(k, ev.MPI_REST) for k in kinds]
            grouped = np.array([t == ev.MPI_COLLECTIVE for t in types])[codes]
            values = self._survey.values["mpi"].of(ids)
            size, *counted = (numbers(part.rows, c) for c in ("bytes", "sent_bytes", "recv_bytes"))
            sent, received = buffer_bytes(ids, size, *counted)
            for chosen, more in ((~grouped, ()), (grouped, ((ev.MPI_SENT, sent), (ev.MPI_RECEIVED, received)))):
                rows = np.flatnonzero(chosen)
                some = Intervals(None, part.tracks[rows], part.starts[rows], part.ends[rows])
                extra = [(n, sizes[rows]) for n, sizes in more]
                self._host_intervals(some, types, values[rows], states[rows], extra, codes[rows] % len(types))

    def _host(self) -> None:
        for table, number in _HOST_TYPES.items():
            for part in self._parts(table, ["name"]):
                self._host_intervals(part, number, self._survey.values[table].of(numbers(part.rows, "name")), None)
        for part in self._parts("openacc", ["name", "kind"]):
            codes, kinds = words(part.rows, "kind")
            types = [*(_ACC_TYPES.get(k, ev.OPENACC_OTHER) for k in kinds), ev.OPENACC_OTHER]
            values = self._survey.values["openacc"].of(numbers(part.rows, "name"))
            self._host_intervals(part, types, values, None, kinds=codes % len(types))

    def _ranges(self) -> None:
        with RowSorter(self._folder / "ranges", 4) as nested:
            for part in self._parts("ranges", ["name", "domain", "kind"]):
                codes, kinds = words(part.rows, "kind")
                nests = np.array([*(k == "pushpop" for k in kinds), False])[codes]
                values = self._survey.values["ranges"].of(numbers(part.rows, "name"))
                domains = self._survey.domains.of(numbers(part.rows, "domain"))
                other = np.flatnonzero(~nests)
                self._writer.intervals(
                    self._of(part.tracks[other]), part.starts[other], part.ends[other], ev.RANGE_STARTEND, values[other]
                )
                groups = part.tracks << _DOMAIN_BITS | domains
                nested.add(part.starts[nests], -part.ends[nests], groups[nests], values[nests])
            for groups, times, tops, depths in _changes(nested.blocks()):
                at = groups & (1 << _DOMAIN_BITS) - 1
                types = [(number, ev.DEPTH + p) for p, number in enumerate(self._survey.range_types)]
                self._writer.points(self._of(groups >> _DOMAIN_BITS), times, types, tops, [depths], kinds=at)

    def _marks(self) -> None:
        for batch in self._selection.batches(self._tracks.rank, "marks", ["time", "thread", "name"]):
            tracks = self._tracks.of_threads(numbers(batch, "thread"))
            times = numbers(batch, "time") - self._selection.zero_ns
            self._writer.points(
                self._of(tracks), times, ev.MARK, self._survey.values["ranges"].of(numbers(batch, "name"))
            )

    def _collectives(self) -> None:
        columns = ["start", "end", "device", "stream", "op", "bytes", "count", "sequence"]
        for batch in self._selection.batches(self._tracks.rank, "collectives", columns):
            starts, ends = numbers(batch, "start"), numbers(batch, "end")
            tracks = self._tracks.of_streams(numbers(batch, "device"), numbers(batch, "stream"))
            on_device = (
                batch.column("device").is_valid().to_numpy() & batch.column("end").is_valid().to_numpy() & (tracks >= 0)
            )
            rows = np.flatnonzero(on_device)
            zero = self._selection.zero_ns
            payload = ((ev.NCCL_BYTES, "bytes"), (ev.NCCL_COUNT, "count"), (ev.NCCL_SEQUENCE, "sequence"))
            more = [(n, numbers(batch, c, 0)[rows]) for n, c in payload]
            values = self._survey.values["collectives"].of(numbers(batch, "op"))[rows]
            start = starts[rows] - zero
            end = np.maximum(ends[rows] - zero, start)
            self._writer.intervals(self._of(tracks[rows]), start, end, ev.NCCL_OP, values, more)

    def _metrics(self) -> None:
        """Samples of metrics, each from the sample before it to its own time, which is what a sampler averages over."""
        before: dict[tuple[int, int], int] = {}
        zero = self._selection.zero_ns
        for batch in self._selection.batches(self._tracks.rank, "gpu_metrics", ["device", "metric", "time", "value"]):
            devices, metrics = numbers(batch, "device"), numbers(batch, "metric")
            times = numbers(batch, "time") - zero
            tracks = self._tracks.of_metered(devices)
            shown = np.flatnonzero(tracks >= 0)
            devices, metrics, times, tracks = devices[shown], metrics[shown], times[shown], tracks[shown]
            if not len(shown):
                continue
            new = np.append(True, (devices[1:] != devices[:-1]) | (metrics[1:] != metrics[:-1]))
            since = np.append(times[0], times[:-1])
            for row in np.flatnonzero(new).tolist():
                begin = before.get((int(devices[row]), int(metrics[row])))
                if begin is None:  # the first sample lasted as long as the second
                    alone = row + 1 == len(new) or new[row + 1]
                    begin = int(times[row] if alone else 2 * times[row] - times[row + 1])
                since[row] = begin
            for row in np.flatnonzero(np.append(new[1:], True)).tolist():
                before[int(devices[row]), int(metrics[row])] = int(times[row])
            values = batch.column("value").to_numpy()[shown]
            self._samples(tracks, np.maximum(since, 0), self._survey.metrics.of(metrics), values)
        for batch in self._selection.batches(self._tracks.rank, "nic_metrics", ["start", "metric", "value"]):
            tracks = self._tracks.of_metered(np.full(batch.num_rows, UNKNOWN, np.int64))
            starts = numbers(batch, "start") - zero
            self._samples(
                tracks, starts, self._survey.nic.of(numbers(batch, "metric")), batch.column("value").to_numpy()
            )

    def _samples(self, tracks: Int64, times: Int64, types: Int64, values: Any) -> None:
        values = values.astype(np.float64) * (10**ev.PRECISION if self._profile.exact else 1)
        rows = np.flatnonzero(np.isfinite(values))
        whole = np.rint(np.clip(values[rows], -_LARGEST, _LARGEST)).astype(np.int64)
        unique, kinds = np.unique(types[rows], return_inverse=True)
        self._writer.points(self._of(tracks[rows]), times[rows], [(t,) for t in unique.tolist()], whole, kinds=kinds)

    def _write_states(self) -> None:
        background = [ev.RUNNING] * len(self._tracks.threads) + [ev.IDLE] * len(self._tracks.streams)
        for (tracks, starts, ends, states), (streams, gone, until, owners) in self._states.sweep(
            background, self._survey.end_ns
        ):
            self._writer.states(self._of(tracks), starts, ends, states, STATES)
            self._writer.communications(
                self._of(streams), (gone, gone), self._of(owners), (until, until), 0, ev.TAG_WAIT
            )


def _changes(blocks: Iterable[tuple[Int64, ...]]) -> Iterator[tuple[Int64, Int64, Int64, Int64]]:
    """The changes of the innermost range; changes of a group arrive in order, those of several groups mixed."""
    # `blocks`: int64 arrays: starts, negative ends, groups (a thread's ranges of one domain) and values of ranges, in
    # the order of the first two. A range that outlasts the one around it is taken to end with it. Yields int64 arrays:
    # groups, times, the value of the innermost range from then on (0 outside of all), how many are open.
    places: dict[int, int] = {}
    depths, stops, outer = np.zeros(0, np.int64), np.zeros((0, _DEPTH), np.int64), np.zeros((0, _DEPTH), np.int64)
    for starts, ends, groups, values in blocks:
        unique, inverse = np.unique(groups, return_inverse=True)
        own = np.array([places.setdefault(g, len(places)) for g in unique.tolist()], np.int64)[inverse]
        more = len(places) - len(depths)
        depths = np.append(depths, np.zeros(more, np.int64))
        stops, outer = (np.pad(a, ((0, more), (0, 0))) for a in (stops, outer))
        out: Any = [np.empty(2 * len(starts) + int(depths.sum()), np.int64) for _ in range(4)]
        row, count = innermost(0, own, starts, -ends, values, depths, stops, outer, 0, *out)
        while row < len(starts):
            stops, outer = (np.pad(a, ((0, 0), (0, a.shape[1]))) for a in (stops, outer))
            row, count = innermost(row, own, starts, -ends, values, depths, stops, outer, count, *out)
        names = np.array(list(places), np.int64)
        own, times, tops, deep = (o[:count] for o in out)
        yield names[own], times, tops, deep
    for group, place in places.items():
        open_ = np.arange(depths[place] - 1, -1, -1)
        under = np.where(open_ > 0, outer[place, np.maximum(open_ - 1, 0)], 0)
        yield np.full(len(open_), group, np.int64), stops[place, open_], under, open_


# Calls come last, as many launch nothing, and those are dropped at once. Correlation 0 belongs to work without a
# launch. Of nested calls of one correlation the outermost is used. `rows`: where to sort, of five columns.
class _CallJoin:
    """Takes work, waits for work and then calls, and joins them: which call launched, which waited."""

    def __init__(self, rows: RowSorter) -> None:
        self._rows = rows
        self._wanted = np.zeros(_REMAINDERS, np.bool_)  # which remainders of keys some work or wait has

    def calls(self, processes: Int64, correlations: Int64, starts: Int64, ends: Int64, tracks: Int64) -> None:
        """Add n calls; the work and the waits were added before."""
        keys = call_keys(processes, correlations)
        rows = np.flatnonzero(self._wanted[keys & _REMAINDERS - 1] & (correlations > 0) & (tracks >= 0))
        self._rows.add(keys[rows], starts[rows], ends[rows], tracks[rows], 0)

    def work(self, processes: Int64, correlations: Int64, starts: Int64, tracks: Int64, sizes: Int64, tag: int) -> None:
        rows = np.flatnonzero((correlations > 0) & (tracks >= 0))
        self._rows.add(self._keys(processes, correlations, rows), _WORK + tag, starts[rows], tracks[rows], sizes[rows])

    def waits(self, processes: Int64, correlations: Int64, tracks: Int64) -> None:
        rows = np.flatnonzero((correlations > 0) & (tracks >= 0))
        self._rows.add(self._keys(processes, correlations, rows), _WAIT, 0, tracks[rows], 0)

    def _keys(self, processes: Int64, correlations: Int64, rows: Int64) -> Int64:
        keys = call_keys(processes[rows], correlations[rows])
        self._wanted[keys & _REMAINDERS - 1] = True
        return keys

    def pairs(self) -> Iterator[tuple[tuple[Int64, ...], tuple[Int64, ...]]]:
        """What was joined, block by block, as int64 arrays."""
        # Yields for launches the starts, ends and tracks of the calls, starts, tracks, sizes and tags of the work; for
        # waits the starts, ends and tracks of the calls, and the tracks that they waited for.
        for keys, kinds, times, tracks, sizes in self._rows.blocks():
            number = np.arange(len(keys))
            calls = np.maximum.accumulate(np.where(np.append(True, keys[1:] != keys[:-1]), number, 0))
            has_call = kinds[calls] < _WORK
            launched = np.flatnonzero(has_call & (kinds >= _WORK) & (kinds < _WAIT))
            waited = np.flatnonzero(has_call & (kinds >= _WAIT))
            launching, waiting = calls[launched], calls[waited]
            work = (times[launched], tracks[launched], sizes[launched], kinds[launched] - _WORK)
            yield (
                (kinds[launching], times[launching], tracks[launching], *work),
                (kinds[waiting], times[waiting], tracks[waiting], tracks[waited]),
            )
