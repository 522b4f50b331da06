"""The tracks of a rank: the content of one line of the timeline, and the columns that define it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.trace.errors import UsageError
from alltrace.trace.intervals import by_track
from alltrace.trace.kernel_rules import NOT_COMPUTE

SUMMARY = "summary"
"""The key of the track that shows what all devices of a rank did."""

CLASSES = ("compute", "communication", "copy", "api", "range", "mpi", "host", "collective")
"""What a slice is, by code."""

COMPUTE, COMMUNICATION_CODE, COPY, API, RANGE, MPI, HOST, COLLECTIVE = range(len(CLASSES))


@dataclass(frozen=True)
class Source:
    table: str
    group: str  # first part of its tracks' keys; tables with the same group share tracks
    track: tuple[str, ...]  # the columns that identify the track of a row
    name: str  # the column of names, or of words or numbers used as names
    code: int  # the class of its slices; kernels have a class by their kind
    # whether its rows are moments, each of which lasts until the next one on its track (see `spans`)
    moments: bool = False


_GPU = ("process", "device", "stream")

SOURCES: dict[str, Source] = {
    s.table: s
    for s in (
        Source("kernels", "gpu", _GPU, "short_name", COMPUTE),
        Source("copies", "gpu", _GPU, "kind", COPY),
        Source("graphs", "gpu", _GPU, "graph", COMPUTE),
        Source("collectives", "collectives", ("communicator",), "op", COLLECTIVE),
        Source("ranges", "ranges", ("thread",), "name", RANGE),
        Source("api", "api", ("thread",), "name", API),
        Source("mpi", "mpi", ("thread",), "name", MPI),
        Source("ucx", "ucx", ("thread",), "name", MPI),
        Source("osrt", "osrt", ("thread",), "name", HOST),
        Source("syscalls", "syscalls", ("thread",), "name", HOST),
        Source("openacc", "openacc", ("thread",), "name", HOST),
        Source("openmp", "openmp", ("thread",), "name", HOST),
        Source("samples", "samples", ("thread",), "symbol", HOST, moments=True),
        Source("sched", "sched", ("thread",), "cpu", HOST, moments=True),
    )
}
"""The tables with intervals, in the order in which their tracks are shown."""


@dataclass(frozen=True)
class Samples:
    table: str
    group: str  # first part of its tracks' keys
    track: tuple[str, ...]  # the columns that identify the track of a row
    time: str  # the column of times
    value: str = "value"  # the column of values
    holds: bool = False  # whether a value holds until the next one

    def read(self, table: Any) -> tuple[NDArray[Any], NDArray[Any], list[NDArray[Any]]]:
        """Of rows of the table, all its rows where a value holds: times, values, and the columns of tracks."""
        if not self.holds:
            # NaN for a sample without a value
            worth = table.column(self.value).to_numpy().astype(np.float64, copy=False)
            return integers(table, self.time), worth, [integers(table, c) for c in self.track]
        events = table
        if self.table == "memory":
            events = table.filter(pc.is_in(table.column("memory").cast(pa.string()), pa.array(_ON_DEVICES)))
        sign = np.where(pc.equal(events.column("kind").cast(pa.string()), "free").to_numpy(), -1, 1)
        times, change = integers(events, self.time), sign * np.maximum(integers(events, "bytes"), 0)
        columns = [integers(events, c) for c in self.track]
        order = np.argsort(times, kind="stable")
        total = np.zeros(len(times))
        for _, rows in by_track(*(c[order] for c in columns)):
            own = order[rows]
            stated = integers(events, self.value)[own] if self.table == "allocations" else None
            if stated is not None and not events.column(self.value).take(own).null_count:
                total[own] = stated
                continue
            sums = np.cumsum(change[own])
            total[own] = sums - min(0, int(sums.min()))  # blocks from before the capture that are freed
        return times, total, columns

    @property
    def reads(self) -> list[str]:
        more = ["kind", "memory", "bytes"] if self.holds else []
        return list(dict.fromkeys([self.time, *self.track, self.value, *more]))


def moved(
    rows: tuple[NDArray[Any], NDArray[Any], list[NDArray[Any]]], places: Mapping[int, int]
) -> tuple[NDArray[Any], NDArray[Any], list[NDArray[Any]]]:
    """The samples of the devices in `places`, from `Samples.read`, with these devices."""
    times, values, (device, *more) = rows
    devices = sorted(places)
    own_rows = np.isin(device, devices)
    own = np.array([places[d] for d in devices], np.int64)[np.searchsorted(devices, device[own_rows])]
    return times[own_rows], values[own_rows], [own, *(column[own_rows] for column in more)]


SAMPLES: dict[str, Samples] = {
    s.table: s
    for s in (
        Samples("gpu_metrics", "metric", ("device", "metric"), "time"),
        Samples("nic_metrics", "nic", ("nic", "metric"), "start"),
        Samples("switch_metrics", "switch", ("guid", "metric"), "start"),
        Samples("generic_metrics", "generic", ("source", "metric"), "time"),
        Samples("allocations", "allocations", ("device",), "time", "allocated_bytes", holds=True),
        Samples("memory", "memory", ("device",), "time", "bytes", holds=True),
    )
}
"""The tables of samples."""

_ON_DEVICES = ("device", "array", "managed", "device-static", "managed-static")
_ALL: tuple[Source | Samples, ...] = (*SOURCES.values(), *SAMPLES.values())

GROUPS = frozenset(s.group for s in _ALL)
"""The groups of tracks."""


def tables_of(group: str) -> list[str]:
    return [s.table for s in _ALL if s.group == group]


def key_of(group: str, values: Any) -> str:
    """The key of a track: its group and the values of its columns, -1 for null."""
    return "/".join([group, *(str(int(v)) for v in values)])


def parse_key(key: str) -> tuple[str, tuple[int, ...]]:
    """The group and the values of a track's key. Raises `UsageError`: it is not a key of a track."""
    group, *rest = key.split("/")
    widths = {len(s.track) for s in _ALL if s.group == group}
    try:
        values = tuple(int(v) for v in rest)
    except ValueError:
        values = ()
    if key != SUMMARY and (len(values) not in widths or not all(-(1 << 63) <= v < 1 << 63 for v in values)):
        raise UsageError(f"unknown track {key!r}; expected a key such as gpu/0/0/7")
    return group, values


def integers(table: Any, column: str) -> NDArray[Any]:
    """A column of an Arrow table as int64, -1 if it is null."""
    values = table.column(column)
    if values.null_count:
        values = pc.fill_null(values, pa.scalar(-1, values.type))
    numbers: NDArray[Any] = values.to_numpy().astype(np.int64, copy=False)
    return numbers


def intervals(table: Any, open_end: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """`start` and `end` of rows as int64; a missing end is `open_end` or the start, and no end is before its start."""
    starts_column, ends_column = table.column("start"), table.column("end")
    if "api_start" in table.column_names:  # a communication operation of which only the call is known
        starts_column = pc.coalesce(starts_column, table.column("api_start"))
        ends_column = pc.coalesce(ends_column, table.column("api_end"), starts_column)
    starts = (pc.fill_null(starts_column, 0) if starts_column.null_count else starts_column).to_numpy()
    if ends_column.null_count:
        ends_column = (
            pc.coalesce(ends_column, starts_column) if open_end is None else pc.fill_null(ends_column, open_end)
        )
    ends = (pc.fill_null(ends_column, 0) if ends_column.null_count else ends_column).to_numpy()
    return starts, np.maximum(starts, ends)


def spans(
    source: Source, table: Any, open_end: int | None = None, following: Any = None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_] | None]:
    """When rows start and end, and which of them are shown, None for all: int64 arrays and a bool array of n."""
    # A CPU sample lasts until the next one of its thread, twice the median of that at most. A thread that was scheduled
    # runs until its next event; what took it from its CPU is not shown. `table`: a `pyarrow.Table` of n rows; moments
    # are sorted by track and time. `following`: for moments, the row after the table's last one, if there is one.
    if not source.moments:
        return *intervals(table, open_end), None
    times, threads = integers(table, "time"), integers(table, "thread")
    after = np.append(times[1:], 0 if following is None else integers(following, "time"))[: len(times)]
    same = np.append(threads[1:], -2 if following is None else integers(following, "thread"))[: len(times)] == threads
    gaps = np.maximum(after - times, 0)
    if source.table == "sched":
        starts = pc.fill_null(table.column("scheduled_in"), False).to_numpy()
        return times, times + np.where(same, gaps, 0), starts
    usual = int(np.median(gaps[same])) if same.any() else 0
    return times, times + np.where(same, np.minimum(gaps, 2 * usual), usual), None


def codes_of(source: Source, table: Any) -> NDArray[Any]:
    """The class of each row, as in `CLASSES`: int8 array."""
    if source.table != "kernels":
        return np.full(table.num_rows, source.code, np.int8)
    kinds = table.column("kind").combine_chunks()
    if not len(kinds):
        return np.zeros(0, np.int8)
    words = kinds.dictionary.to_pylist()
    table_of = np.array([COMMUNICATION_CODE if w in NOT_COMPUTE else COMPUTE for w in words] + [COMPUTE], np.int8)
    numbers = kinds.indices.fill_null(len(words)) if kinds.null_count else kinds.indices  # filling copies
    codes: NDArray[Any] = table_of[numbers.to_numpy(zero_copy_only=False)]
    return codes


def columns_for(source: Source, *, names: bool) -> list[str]:
    if source.moments:
        more = ["scheduled_in"] if source.table == "sched" else []
        return list(dict.fromkeys(["time", *source.track, *more, *([source.name] if names else [])]))
    columns = ["start", "end", *source.track]
    if source.table == "kernels":
        columns += ["kind", *(["name"] if names else [])]
    if source.table == "collectives":
        columns += ["api_start", "api_end"]
    return list(dict.fromkeys([*columns, *([source.name] if names else [])]))
