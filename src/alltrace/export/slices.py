"""What viewers of timelines draw, the same for all of them: slices, marks, counters and flows, as columns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from alltrace.align.aligned import Aligned
from alltrace.export.arguments import Arguments, Form, Operations, Places, arguments_of, columns_of
from alltrace.export.columns import GPU_TABLES, HOST_TABLES, UNKNOWN, numbers, words
from alltrace.export.names import NameCodes
from alltrace.export.record_bytes import Pool
from alltrace.export.selection import Selection
from alltrace.export.tracks import Intervals, Launches, Tracks, intervals_of
from alltrace.export.viewer_tracks import ViewerTracks
from alltrace.trace.arrays import Flags, Int64

COUNTER_SCALE = 1000
"""A counter's value is a whole number of this fraction."""

_LARGEST = 9e15
_NAMES = {"kernels": "short_name", "copies": "kind", "graphs": "graph"}
_FURTHER = {"api": ["kind", "correlation"], "ranges": ["kind"], **{t: ["correlation"] for t in GPU_TABLES}}
_LABELS = {
    "kernels": "", "copies": "copies", "graphs": "graphs", "api": "CUDA API", "mpi": "MPI", "ucx": "UCX",
    "osrt": "OS runtime", "syscalls": "system calls", "openacc": "OpenACC", "openmp": "OpenMP",
}  # fmt: skip
_RANGES, _STARTEND = "ranges", "start/end ranges"


class Written(NamedTuple):
    files: list[Path]
    slices: int  # how many slices they have
    beside: int  # how many of these crossed others and are on a further track


@dataclass(frozen=True)
class Slices:
    """n slices of one table, or n marks."""

    table: str
    bases: Int64  # n threads or streams, by their numbers in the rank's tracks
    tracks: Int64  # n numbers of the viewer's tracks
    starts: Int64  # n starts, ns from the zero of the selection
    ends: Int64
    orders: Int64  # int64 array of n: how many slices of the track that start with this one hold it
    names: Int64  # n numbers in the pool
    categories: Int64  # n numbers in the pool
    arguments: Arguments
    # int64 array of n rows of the rank's launches, -1 for none: a call's own, or the launch of the work's call
    launches: Int64 | None = None
    instant: bool = False  # whether these are marks
    rows: Any = None  # the rows of the kernels' slices


def table_of(label: str) -> str:
    """The table of the slices of a track with this label; `startend` for start/end ranges, which are among `ranges`."""
    tables = {shown: table for table, shown in _LABELS.items()}
    return "startend" if label.startswith(_STARTEND) else tables.get(label, _RANGES)


def base_labels(tracks: Tracks) -> list[str]:
    """The names of the threads, streams and metered devices of a rank."""
    threads = [tracks.names.get(t) or ("thread ?" if t == UNKNOWN else f"thread {t}") for t in tracks.threads]
    streams = []
    for device, stream in tracks.streams:
        shown = "all streams" if tracks.folded else f"stream {'?' if stream == UNKNOWN else stream}"
        streams.append(f"{tracks.gpu(device)} {shown}")
    return threads + streams + [f"{tracks.gpu(d)} metrics" for d in tracks.metered]


# `pool`: where texts are put that are not names. `form`: how text and arguments are written into the pool.
class SliceMaker:
    """Makes the slices and marks of a rank."""

    def __init__(
        self,
        selection: Selection,
        tracks: Tracks,
        placed: ViewerTracks,
        launches: Launches,
        names: NameCodes,
        pool: Pool,
        form: Form,
    ) -> None:
        self._selection, self._tracks, self._placed, self._launches = selection, tracks, placed, launches
        self._names, self._pool, self._form = names, pool, form
        self._operations = Operations(selection, tracks)

    def slices(self) -> Iterator[Slices]:
        """All slices and marks, table by table; calls come before what they launched."""
        for table in (*HOST_TABLES, *GPU_TABLES):
            if table == "marks":
                yield from self._marks()
                continue
            name = _NAMES.get(table, "name")
            columns = [name, *_FURTHER.get(table, []), "process", *columns_of(table)]
            for part in intervals_of(self._selection, self._tracks, table, columns):
                yield self._slices(table, _in_order(part), name)

    def _slices(self, table: str, part: Intervals, name: str) -> Slices:
        rows, owners = part.rows, numbers(part.rows, "process")
        labels, places = [_LABELS.get(table, table)], np.zeros(len(owners), np.int64)
        if table == "copies":
            named = self._by_kind(
                rows, lambda kind: "memset" if kind == "memset" else f"memcpy {kind}" if kind else "copy"
            )
            categories = self._by_kind(rows, lambda kind: "gpu_memset" if kind == "memset" else "gpu_memcpy")
        elif table == "graphs":
            graphs, inverse = np.unique(numbers(rows, "graph"), return_inverse=True)
            named = self._texts([f"graph {g}" if g >= 0 else "graph" for g in graphs.tolist()])[inverse]
            categories = np.full(len(owners), self._texts(["gpu_graph"])[0])
        else:
            named = self._names.of(numbers(rows, name))
            categories = np.full(len(owners), self._texts(["kernel" if table == "kernels" else table])[0])
        if table == "api":
            categories = self._by_kind(rows, lambda kind: f"cuda_{kind or 'runtime'}")
        elif table == "ranges":
            labels, places, categories = self._ranges(rows)
            owners = np.zeros(len(owners), np.int64)  # slices of a thread
        tracks, orders = self._placed.place(part.tracks, places, labels, owners, part.starts, part.ends)
        operations = self._operations.of(part.tracks, part.starts) if table == "kernels" else None
        of = None if operations is None else (self._operations.rows, operations)
        arguments = arguments_of(self._selection, table, rows, self._pool, self._form, of)
        launches = self._launches_of(table, part) if table in (*GPU_TABLES, "api") else None
        of_kernels = rows if table == "kernels" else None
        return Slices(
            table,
            part.tracks,
            tracks,
            part.starts,
            part.ends,
            orders,
            named,
            categories,
            arguments,
            launches,
            rows=of_kernels,
        )

    def _by_kind(self, rows: Any, text: Callable[[str | None], str]) -> Int64:
        codes, kinds = words(rows, "kind")
        return self._texts([*map(text, kinds), text(None)])[codes]

    def _launches_of(self, table: str, part: Intervals) -> Int64:
        launches = self._launches
        calls = launches.find(numbers(part.rows, "process"), numbers(part.rows, "correlation"))
        if table == "api" and len(launches.keys):  # of nested calls the outermost one is the launch
            outermost = (launches.starts[calls] - self._selection.zero_ns == part.starts) & (
                launches.tracks[calls] == part.tracks
            )
            calls = np.where(outermost, calls, -1)
        return calls

    def _ranges(self, rows: Any) -> tuple[list[str], Int64, Int64]:
        """What tracks the ranges go to, by domain and kind, and their categories."""
        domains, which, named = self._domains(rows)
        kinds, texts = words(rows, "kind")
        nest = np.array([*(t != "startend" for t in texts), True])[kinds]
        labels = [f"{kind}{f' {d}' if d else ''}" for d in named for kind in (_RANGES, _STARTEND)]
        return labels, which * 2 + ~nest, domains[which]

    def _domains(self, rows: Any) -> tuple[Int64, Int64, list[str | None]]:
        import pyarrow as pa

        ids, which = np.unique(numbers(rows, "domain"), return_inverse=True)
        names = self._selection.run.texts(pa.array(ids)).to_pylist()
        named = [None if i == UNKNOWN else n for i, n in zip(ids.tolist(), names, strict=True)]
        return self._texts([n or "user_annotation" for n in named]), which.astype(np.int64), named

    def _marks(self) -> Iterator[Slices]:
        columns = ["time", "thread", "name", *columns_of("marks")]
        for batch in self._selection.batches(self._tracks.rank, "marks", columns):
            times = numbers(batch, "time") - self._selection.zero_ns
            bases = self._tracks.of_threads(numbers(batch, "thread"))
            domains, which, named = self._domains(batch)
            labels = [f"{_RANGES}{f' {d}' if d else ''}" for d in named]
            tracks = self._placed.numbers(bases, which, labels)
            arguments = arguments_of(self._selection, "marks", batch, self._pool, self._form)
            codes = self._names.of(numbers(batch, "name"))
            none = np.zeros(len(times), np.int64)
            yield Slices("marks", bases, tracks, times, times, none, codes, domains[which], arguments, instant=True)

    def _texts(self, texts: Sequence[str]) -> Int64:
        return self._pool.add_all(map(self._form.text, texts))


def _in_order(part: Intervals) -> Intervals:
    """The rows by their starts, of those that start together the longest first."""
    starts, ends = part.starts, part.ends
    if np.all(starts[1:] > starts[:-1]):
        return part
    order = np.lexsort((-ends, starts))
    return Intervals(part.rows.take(order), part.tracks[order], starts[order], ends[order])


@dataclass(frozen=True)
class Counters:
    """n samples of metrics of a GPU."""

    times: Int64  # n times, ns from the zero of the selection
    names: Int64  # n numbers in the pool
    values: Int64  # n values times `COUNTER_SCALE`


def counters_of(selection: Selection, tracks: Tracks, name: Callable[[str], int]) -> Iterator[Counters]:
    """The metrics of a rank's GPUs; samples without a number are left out."""
    # `name`: the number of a counter, by its label.
    import pyarrow as pa

    for batch in selection.batches(tracks.rank, "gpu_metrics", ["time", "device", "metric", "value"]):
        values = batch.column("value").to_numpy()
        values = np.where(
            np.isfinite(values), np.clip(values, -_LARGEST / COUNTER_SCALE, _LARGEST / COUNTER_SCALE), np.nan
        )
        keys = np.stack([numbers(batch, "device"), numbers(batch, "metric")])
        kinds, inverse = np.unique(keys, axis=1, return_inverse=True)
        texts = selection.run.texts(pa.array(kinds[1])).to_pylist()
        codes = np.array(
            [name(f"{tracks.gpu(d)} {t or '?'}") for d, t in zip(kinds[0].tolist(), texts, strict=True)], np.int64
        )
        valid = np.flatnonzero(~np.isnan(values))
        times = numbers(batch, "time")[valid] - selection.zero_ns
        yield Counters(
            times, codes[inverse.reshape(-1)[valid]], np.rint(values[valid] * COUNTER_SCALE).astype(np.int64)
        )


@dataclass(frozen=True)
class Flow:
    """One rank's members of matched collectives: n."""

    instances: Int64  # n instances
    places: Places  # finds a member by its stream and start
    first: Flags  # boolean array of n: the first member to arrive
    last: Flags  # boolean array of n: the last member


class Members(NamedTuple):
    """One rank's members of collectives, on a device: n."""

    instances: Int64  # n instances
    devices: Int64  # n devices
    streams: Int64  # n streams
    starts: Int64  # n starts, ns on the aligned clock
    first: Flags  # boolean array of n: the first member to arrive
    last: Flags  # boolean array of n: the last member


def members_across(selection: Selection, aligned: Aligned) -> dict[int, Members]:
    """For each rank its members of collectives of several; a flow goes along them in the order of arrival."""
    if "kernels" not in selection.tables:
        return {}
    members = aligned.members
    ranks, instances, starts = (numbers(members, c) for c in ("rank", "instance", "start"))
    devices, streams = numbers(members, "device"), numbers(members, "stream")
    wanted = np.isin(ranks, [r.rank for r in selection.ranks]) & (devices != UNKNOWN) & (streams != UNKNOWN)
    if selection.window_ns is not None:
        since, until = selection.window_ns
        wanted &= ((starts >= since) | (numbers(members, "end", since) > since)) & (starts < until)
        starts = np.maximum(starts, since)
    order = np.lexsort((ranks, starts, instances))
    order = order[wanted[order]]
    ordered = instances[order]
    edge = np.flatnonzero(np.diff(ordered)) + 1
    first, last = np.zeros(len(order), bool), np.zeros(len(order), bool)
    if len(order):
        first[np.concatenate(([0], edge))] = True
        last[np.concatenate((edge - 1, [len(order) - 1]))] = True
    linked = np.flatnonzero(~(first & last))
    linked = linked[np.argsort(ranks[order[linked]], kind="stable")]
    numbered, bounds = np.unique(ranks[order[linked]], return_index=True)
    by_rank = {}
    for rank, at in zip(numbered.tolist(), np.split(linked, bounds[1:]), strict=False):
        rows = order[at]
        by_rank[rank] = Members(instances[rows], devices[rows], streams[rows], starts[rows], first[at], last[at])
    return by_rank


def flow_of(members: Members, tracks: Tracks, zero_ns: int) -> Flow:
    places = tracks.of_streams(members.devices, members.streams)
    on = places >= 0
    starts = Places(places[on], members.starts[on] - zero_ns)
    return Flow(members.instances[on], starts, members.first[on], members.last[on])
