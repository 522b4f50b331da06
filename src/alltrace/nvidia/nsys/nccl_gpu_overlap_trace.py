"""The recipe `nccl_gpu_overlap_trace`: what runs at the same time as each kernel, communication and computation separately."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.nsys.base import FILES, RANK_CELL, Cell, NsysRecipe, file_columns, with_filters_told
from alltrace.recipes.analysis.lookups import column, look_up
from alltrace.recipes.base import Chart, Option
from alltrace.recipes.row_stream import spilled_parts
from alltrace.trace.arrays import integers
from alltrace.trace.grouping import group
from alltrace.trace.intervals import Merged, by_track, concurrency, merge, overlap_ns
from alltrace.trace.kernel_rules import NOT_COMPUTE

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.recipes.base import Answer, Part, RankTables, RunFacts
    from alltrace.recipes.row_stream import StreamedRank
    from alltrace.trace.arrays import Int64

_OVERLAPS = (
    Cell("Communication Overlap", "percent", "Of its time, that in which another communication kernel runs on the device."),
    Cell("Compute Overlap", "percent", "Of its time, that in which another compute kernel runs on the device."),
)


class NcclGpuOverlapTrace(NsysRecipe):
    """The part of each kernel's time in which other kernels of its process run on its device: communication, and all others.

    The kernel rules decide which kernels communicate. A kernel does not overlap itself; with several others at once, each moment
    counts once.
    """

    name = "nccl_gpu_overlap_trace"
    on_one_clock = True
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"kernels": ("start", "end", "process", "device", "name", "kind")}
    own: ClassVar[tuple[Option, ...]] = (
        Option("divisor", int, 100, "The number of parts in which nsys works; no effect here.", least=1),
    )
    results: ClassVar[Mapping[str, tuple[Cell, ...]]] = {
        "grouped_trace": (
            Cell("Name", "text", "Kernel."),
            Cell("Count", "int", "How many ran."),
            *(Cell(c.title, c.kind, f"{c.doc[:-1]}, weighted by their durations.") for c in _OVERLAPS),
        ),
        "rank_trace": (
            Cell("Name", "word", "Kernel."),
            Cell("Start", "ns", "When it began."),
            Cell("End", "ns", "When it ended."),
            Cell("PID", "int", "Process id."),
            Cell("DeviceID", "int", "CUDA ordinal of the GPU."),
            *_OVERLAPS,
            RANK_CELL,
        ),
        **FILES,
    }
    chart: ClassVar[Chart | None] = Chart("bars", "Name", ("Communication Overlap", "Compute Overlap"))

    def map_rank(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The kernels by their starts, with both overlaps in ns."""
        kernels = rank.table("kernels", self.tables["kernels"])
        start, end, process, device, name = (integers(kernels.column(c), -1) for c in ("start", "end", "process", "device", "name"))
        words = column(kernels, "kind").cast(pa.string())
        talks = pc.is_in(words, value_set=pa.array(sorted(NOT_COMPUTE))).to_numpy(zero_copy_only=False)
        # a key that is the same for all only costs time
        order = np.lexsort((name, end, start, *(of for of in (device, process) if len(of) and (of != of[0]).any())))
        start, end, process, device, talks = start[order], end[order], process[order], device[order], talks[order]
        beside = {True: np.zeros(len(order), np.int64), False: np.zeros(len(order), np.int64)}
        for _, rows in by_track(process, device):
            at = np.arange(len(order))[rows]
            for of, result in beside.items():
                result[at] = _beside(start[at], end[at], talks[at] == of)
        named = column(kernels, "name").take(pa.array(order))
        found = pa.table(
            {
                "name": named, "Start": start, "End": end,
                "PID": look_up(rank.table("processes", ["process", "pid"]), "pid", pa.array(process)),
                "DeviceID": look_up(rank.table("devices", ["device", "ordinal"]), "ordinal", pa.array(device)),
                "communication": beside[True], "compute": beside[False],
            }
        )  # fmt: skip
        return found.take(pc.sort_indices(found, [("Start", "ascending"), ("End", "ascending")]))

    def stream(self, ranks: Sequence[StreamedRank], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The same; the kernels of each rank wait in a file until the sums over all are made."""
        with ExitStack() as files:
            parts = files.enter_context(spilled_parts((rank.rank, self.map(rank.whole(), options)) for rank in ranks))
            answer = self._answered([part for part in parts if part.table.num_rows], run, files)
            return with_filters_told(answer, options) if ranks else answer

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The kernels by name over all ranks, and each."""
        return self._answered(parts, run, ExitStack())

    def _answered(self, parts: Sequence[Part], run: RunFacts, files: ExitStack) -> Answer:
        """The answer; its stream takes over `files`, which hold the parts."""
        if not parts:
            return self.answer({})
        # part by part, because there is a row for each kernel of all ranks
        numbers: dict[str, int] = {}  # each name by its number
        own: list[NDArray[np.int32]] = []  # of each part the numbers of its names
        sums: dict[str, Int64] = {}
        for part in parts:
            codes, columns, called = _named(part, run)
            own.append(np.array([numbers.setdefault(text, len(numbers)) for text in called], np.int32))
            for title, values in {**columns, "Count": np.ones(len(codes), np.int64)}.items():
                found = np.zeros(len(numbers), np.int64)
                found[: len(sums.get(title, ()))] = sums.get(title, ())
                np.add.at(found, own[-1][codes], values)
                sums[title] = found
        names = pa.array(list(numbers), pa.string())
        grouped: dict[str, Any] = {"Name": names, "Count": sums["Count"]}
        grouped.update({c.title: _percent(sums[c.title], sums["took"]) for c in _OVERLAPS})
        table = pa.table(grouped)
        table = table.take(pc.sort_indices(table, [("Name", "ascending")]))

        def each(held: ExitStack) -> Generator[Mapping[str, Any], None, None]:
            with held:
                for part, number in zip(parts, own, strict=True):
                    codes, columns, _ = _named(part, run)
                    whole = part.table
                    yield {
                        "Name": pa.DictionaryArray.from_arrays(pa.array(number[codes]), names),
                        **{c: whole.column(c) for c in ("Start", "End", "PID", "DeviceID")},
                        **{c.title: _percent(columns[c.title], columns["took"]) for c in _OVERLAPS},
                        "Rank": np.full(len(codes), part.rank, np.int64),
                    }

        return self.answer(
            {
                "grouped_trace": {n: table.column(n) for n in table.column_names},
                "rank_trace": each(files.pop_all()),
                "files": file_columns(parts, run),
            }
        )


def _named(part: Part, run: RunFacts) -> tuple[Int64, dict[str, Int64], list[str]]:
    """One rank's kernels: the numbers of their names within it, how long each took and both overlaps, ns; and these names."""
    table = part.table.combine_chunks()
    codes, first = group([table.column("name")])
    texts = pc.fill_null(run.texts(table.column("name").combine_chunks().take(pa.array(first))), "")
    columns = {"took": integers(table.column("End")) - integers(table.column("Start"))}
    for cell, key in zip(_OVERLAPS, ("communication", "compute"), strict=True):
        columns[cell.title] = integers(table.column(key))
    return codes, columns, texts.to_pylist()


def _beside(start: Int64, end: Int64, of: NDArray[np.bool_]) -> Int64:
    """How much of each interval at least one other of the chosen ones covers, ns."""
    once = merge(start[of], end[of])
    depth = concurrency(start[of], end[of])
    twice = depth.counts[:-1] >= 2 if len(depth.counts) else np.zeros(0, bool)
    rows = np.flatnonzero(twice)
    several = merge(depth.times[rows], depth.times[rows + 1]) if len(rows) else Merged(start[:0], end[:0])
    # a chosen one covers itself, so another covers it if two do
    return np.where(of, overlap_ns(start, end, several), overlap_ns(start, end, once)).astype(np.int64)


def _percent(part: Int64, whole: Int64) -> NDArray[np.float64]:
    """100 * part / whole; 0 of nothing."""
    share: NDArray[np.float64] = np.divide(100.0 * part, whole, out=np.zeros(len(part)), where=whole > 0)
    return share


RECIPE = NcclGpuOverlapTrace()
