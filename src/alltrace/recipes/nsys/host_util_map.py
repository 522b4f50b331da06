"""What the heat maps share of kernels and of calls of a communication library on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.recipes.nsys.base import Cell
from alltrace.recipes.nsys.heatmap import KERNELS_READS, HeatMap, binning, host_intervals, kernels_by_device, percent
from alltrace.trace.intervals import NOTHING, bin_coverage_ns, intersection, union

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alltrace.recipes.base import RankTables

_CALL_READS = ("start", "end", "process")


class HostUtilMap(HeatMap):
    """How much of the time a process has kernels on its GPUs, is in calls of a library, and both at once.

    Attributes:
        calls: The canonical table of the calls.
        word: What the column of the calls is called.
    """

    calls: ClassVar[str]
    word: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Compose the columns from the library's name."""
        if "calls" in vars(cls):
            cls.tables = {"kernels": KERNELS_READS, cls.calls: _CALL_READS}
            cls.values = (
                Cell("Kernel", "percent", "Share of the bin in which a kernel of the process runs on any GPU."),
                Cell(cls.word, "percent", f"In which a thread of the process is in a call of {cls.word}."),
                Cell("Overlap", "percent", "In which both are so."),
            )
            cls.labels = (Cell("PID", "int", "Process id."),)
        super().__init_subclass__(**kwargs)

    def without(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What the columns hold without kernels or calls."""
        zero = {"kernels": "the columns Kernel and Overlap are 0", self.calls: f"the columns {self.word} and Overlap are 0"}
        return {**super().without(options), **zero}

    def series(self, rank: RankTables, options: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """A row per process that has any of both."""
        kernels = kernels_by_device(rank)
        calls = host_intervals(rank, self.calls)
        pids = dict(
            zip(*(rank.table("processes", ["process", "pid"]).column(c).to_pylist() for c in ("process", "pid")), strict=True)
        )
        edges = binning(options).edges
        for process in sorted({k.process for k in kernels} | set(calls)):
            running = union([k.merged for k in kernels if k.process == process])
            calling = calls.get(process, NOTHING)
            sets = {"Kernel": running, self.word: calling, "Overlap": intersection(running, calling)}
            yield {
                "PID": pids.get(process),
                **{title: percent(bin_coverage_ns(merged, edges), rank, options) for title, merged in sets.items()},
            }
