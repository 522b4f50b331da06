"""What the recipes share that cut the run's time into bins, equal on all ranks: heat maps of use and of sampled values.

Bins are equally long, the last as short as it must be. A cell is about the part of its bin in which the rank was recorded, and is
null if it was not. nsys begins the first bin where the capture began; here it begins with the run's first event, or where
`--start` or `--filter-time` says. The overlap of intervals with bins is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from alltrace.nvidia.filters import given_filters
from alltrace.nvidia.nsys.base import FILE, FILE_CELL, Cell, NsysRecipe, files
from alltrace.recipes.analysis.lookups import column, look_up
from alltrace.recipes.base import Chart, Option
from alltrace.recipes.execution.shared_tables import once
from alltrace.trace.arrays import integers, is_one_of
from alltrace.trace.intervals import Merged, by_track, merge
from alltrace.trace.kernel_rules import NOT_COMPUTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts
    from alltrace.trace.arrays import Int64

BINS = Option("bins", int, 30, "Number of bins of the run's time.", least=1, most=100_000)
START_CELL = Cell("Duration", "ns", "Start of the bin.")
_BINNING = "binning"


@dataclass(frozen=True)
class Binning:
    """How time is cut.

    Attributes:
        edges: int64 array of b + 1 ascending edges, ns.
        extents: When each rank was recorded: its first event's start and its last one's end, ns.
        origins: What is taken from the times of a rank first; nothing if it is not named.
    """

    edges: Int64
    extents: Mapping[int, tuple[int, int]]
    origins: Mapping[int, int] = field(default_factory=dict)

    def covered(self, rank: int) -> Int64:
        """How much of each bin the rank was recorded in, ns: int64 array of b."""
        if rank not in self.extents:
            return np.diff(self.edges)
        start, end = self.extents[rank]
        inside: Int64 = np.clip(self.edges, start, max(start, end))
        covered: Int64 = inside[1:] - inside[:-1]
        return covered


def binning(options: Mapping[str, Any]) -> Binning:
    """How time is cut, of the options that `HeatMap.prepared` gave."""
    found: Binning = options[_BINNING]
    return found


def equal_bins(start: int, end: int, bins: int) -> Int64:
    """The edges of at most `bins` bins of one length, the last as short as it must be: int64 array, ns."""
    span = max(end - start, 1)
    length = -(-span // bins)
    count = -(-span // length)
    return np.array([min(start + i * length, start + span) for i in range(count + 1)], np.int64)


class HeatMap(NsysRecipe):
    """Values of bins of time.

    Attributes:
        labels: The columns, between the values and `File`, that identify rows of a rank.
        values: The columns of values, one per bin each.
        settings: Its options other than `--bins`.
    """

    own: ClassVar[tuple[Option, ...]]
    results: ClassVar[Mapping[str, tuple[Cell, ...]]]
    chart: ClassVar[Chart | None]
    labels: ClassVar[tuple[Cell, ...]] = ()
    values: ClassVar[tuple[Cell, ...]]
    settings: ClassVar[tuple[Option, ...]] = ()
    on_one_clock = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Compose options, columns and the picture."""
        if hasattr(cls, "values"):
            cls.own = (BINS, *cls.settings)
            cls.results = {"analysis": (START_CELL, *cls.values, *cls.labels, FILE_CELL)}
            cls.chart = Chart("heatmap", "Duration", tuple(c.title for c in cls.values), FILE)
        super().__init_subclass__(**kwargs)

    def prepared(self, options: Mapping[str, Any], run: RunFacts) -> Mapping[str, Any]:
        """The options with the bins, from the run's span or the filter by time."""
        filters = given_filters(options)
        first, last = run.span_ns
        start = first if filters.start is None else filters.start
        end = last if filters.end is None else filters.end
        extents = {}
        for record in run.ranks:
            if record.start_ns is not None and record.end_ns is not None:
                clock = run.clock(record)
                extents[record.rank] = clock.apply_one(record.start_ns), clock.apply_one(record.end_ns)
        return {**options, _BINNING: Binning(equal_bins(start, end, options["bins"]), extents)}

    def series(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """The rows of a rank: for each its labels by title, and by title of each value a float64 array with a number per bin.

        A number that is not known is NaN.
        """
        raise NotImplementedError

    def map_rank(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """A row per device, process or adapter, with lists of the bins' values."""
        rows = list(self.series(rank, options))
        kinds = [
            *((c.title, pa.string() if c.kind == "text" else pa.int64()) for c in self.labels),
            *((c.title, pa.list_(pa.float64())) for c in self.values),
        ]
        return pa.table({title: pa.array([row[title] for row in rows], kind) for title, kind in kinds})

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """A row per bin, for each row of each rank."""
        if not parts:
            return self.answer({})
        begins = binning(options).edges[:-1]
        called = files(run)
        whole = pa.concat_tables([part.table for part in parts])
        rows = np.repeat(np.arange(whole.num_rows), len(begins))
        columns: dict[str, Any] = {START_CELL.title: np.tile(begins, whole.num_rows)}
        for cell in self.labels:
            columns[cell.title] = column(whole, cell.title).take(pa.array(rows))
        for cell in self.values:
            value = column(whole, cell.title).flatten().to_numpy(zero_copy_only=False)
            columns[cell.title] = pa.array(value, mask=np.isnan(value))
        names = [called[part.rank] for part in parts for _ in range(part.table.num_rows)]
        columns[FILE] = pa.array(names, pa.string()).take(pa.array(rows))
        return self.answer({"analysis": columns}, clock_notes(run))


def clock_notes(run: RunFacts) -> tuple[str, ...]:
    """The clock of several hosts' times, if collectives determine it; otherwise the alignment has its own note."""
    clocks = run.manifest.clocks
    if len(clocks) < 2 or not any(c.evidence for c in clocks):
        return ()
    residuals = [c.residual_ns for c in clocks if c.residual_ns is not None]
    error = f", to within about {max(residuals) / 1000:,.1f} us" if residuals else ""
    return (f"the times of {len(clocks)} hosts are on one clock, determined from shared collectives{error}",)


def percent(time: Int64, rank: RankTables, options: Mapping[str, Any]) -> NDArray[np.float64]:
    """100 * the time in each bin / the part of the bin in which the rank was recorded; NaN if it was not."""
    covered = binning(options).covered(rank.rank)
    result: NDArray[np.float64] = np.divide(100.0 * time, covered, out=np.full(len(time), np.nan), where=covered > 0)
    return result


@dataclass(frozen=True)
class Kernels:
    """The kernels of one process on one device.

    Attributes:
        process: The process' row in the rank's `processes`; -1 if not known.
        device: The device's row in the rank's `devices`; -1 if not known.
        pid: The process' id.
        ordinal: The device's CUDA ordinal.
        start: Starts, ns.
        end: Ends.
        communicates: Which of them communicate, by the kernel rules.
    """

    process: int
    device: int
    pid: int | None
    ordinal: int | None
    start: Int64
    end: Int64
    communicates: NDArray[np.bool_]

    @property
    def merged(self) -> Merged:
        """When at least one of them runs."""
        return merge(self.start, self.end)


KERNELS_READS = ("start", "end", "process", "device", "kind")


def kernels_by_device(rank: RankTables) -> list[Kernels]:
    """The rank's kernels for each process and device, by these."""

    def make() -> list[Kernels]:
        table = rank.table("kernels", KERNELS_READS)
        start, end, process, device = (integers(table.column(c), -1) for c in ("start", "end", "process", "device"))
        communicates = is_one_of(table.column("kind"), NOT_COMPUTE)
        order = np.lexsort((end, start, device, process))
        process, device, start, end = (v[order] for v in (process, device, start, end))
        communicates = communicates[order]
        pids = _looked_up(rank, "processes", ("process", "pid"), process)
        ordinals = _looked_up(rank, "devices", ("device", "ordinal"), device)
        return [
            Kernels(owner, gpu, pids[owner], ordinals[gpu], start[rows], end[rows], communicates[rows])
            for (owner, gpu), rows in by_track(process, device)
        ]

    return once(rank, "kernels by device", make)


def _looked_up(rank: RankTables, table: str, columns: tuple[str, str], values: Int64) -> dict[int, int | None]:
    distinct = np.unique(values)
    found = look_up(rank.table(table, columns), columns[1], pa.array(distinct)).to_pylist()
    return dict(zip(distinct.tolist(), found, strict=True))


def host_intervals(rank: RankTables, table: str) -> dict[int, Merged]:
    """When each process of a rank is in a call of `mpi` or `ucx`, by the process' row."""

    def make() -> dict[int, Merged]:
        calls = rank.table(table, ["start", "end", "process"])
        calls = calls.filter(calls.column("end").is_valid()) if calls.column("end").null_count else calls
        start, end, process = (integers(calls.column(c), -1) for c in ("start", "end", "process"))
        return {int(p): merge(start[process == p], end[process == p]) for p in np.unique(process)}

    return once(rank, ("host intervals", table), make)
