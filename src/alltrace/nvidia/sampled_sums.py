"""The recipes that describe sampled values in numbers: of GPUs, network adapters and switches."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from alltrace.nvidia.cells import Cell, cells
from alltrace.nvidia.filters import pattern_of
from alltrace.nvidia.ranges import projected
from alltrace.nvidia.recipe import FILE, FILE_CELL, NsysRecipe, part_files
from alltrace.recipes.analysis.lookups import texts_of
from alltrace.recipes.analysis.nvtx_projection import PROJECTION_READS
from alltrace.recipes.analysis.sampled import GPU_READS, gpu_numbers, gpu_series, gpu_series_of_host, traffic
from alltrace.recipes.analysis.sampled import READS as TRAFFIC_READS
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Reads, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Floats, Int64, integers
from alltrace.trace.errors import UsageError
from alltrace.trace.intervals import Merged, by_track, merge

_KERNELS = ("start", "end", "device", "name")
PER_MS = 1000.0  # the profiler writes rates of adapters per millisecond


def _statistics_cells(what: str) -> tuple[Cell, ...]:
    return cells(
        "Count | int | Samples.",
        f"Mean | real | Mean of {what}.",
        "Std | real | Standard deviation of a sample (n - 1); null for one.",
        "Min | real | Smallest.",
        "Q1 | real | First quartile, linear between neighbours.",
        "Median | real | Median.",
        "Q3 | real | Third quartile.",
        "Max | real | Largest.",
    )


def _statistics(values: Floats) -> dict[str, float | int | None]:
    low, q1, median, q3, high = np.quantile(values, (0, 0.25, 0.5, 0.75, 1)).tolist()
    return {
        "Count": len(values), "Mean": float(values.mean()),
        "Std": float(values.std(ddof=1)) if len(values) > 1 else None, "Min": low, "Q1": q1, "Median": median, "Q3": q3,
        "Max": high,
    }  # fmt: skip


class RankRows(NsysRecipe):
    """Rows that each rank makes independently: values by title, all but the rank's file in the last column."""

    chart = Chart("box", "Metric", ("Min", "Q1", "Median", "Q3", "Max"))

    def __init__(
        self,
        name: str,
        doc: str,
        *,
        cells: tuple[Cell, ...],
        rows: Callable[[Rank, Options], Iterable[Mapping[str, Any]]],
        **facts: Any,
    ) -> None:
        self._cells, self._rows = cells, rows
        super().__init__(name, doc, results={"analysis": (*cells, FILE_CELL)}, **facts)

    def map_rank(self, rank: Rank, options: Options) -> Any:
        rows = list(self._rows(rank, options))
        return pa.table({c.title: pa.array([row[c.title] for row in rows], c.field().type) for c in self._cells})

    def combine(self, parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
        if not parts:
            return self.answer({})
        whole = pa.concat_tables([part.table for part in parts])
        columns = {name: whole.column(name) for name in whole.column_names}
        return self.answer({"analysis": {**columns, FILE: part_files(run, parts)}})


def _nvlink_rows(rank: Rank, options: Options) -> Iterator[Mapping[str, Any]]:
    links = [s for s in gpu_series(rank) if "nvlink" in s.metric.lower()]
    numbers = gpu_numbers(rank, sorted({s.key[0] for s in links}))
    for samples in links:
        yield {"GPU": numbers[samples.key[0]], "Metric": samples.metric} | _statistics(samples.values)


_GPU_CELLS = cells("GPU | int | Number of the GPU in nsys.", "Metric | text | Metric.")
nvlink_sum = RankRows(
    "nvlink_sum",
    """How much of its NVLink throughput each GPU used, in per cent, received and sent: the GPU metrics that name
    NVLink.

    Metrics of links that are not active can look saturated; ask only for GPUs that have links.
    """,
    tables={"gpu_metrics": GPU_READS},
    cells=(*_GPU_CELLS, *_statistics_cells("its values")),
    rows=_nvlink_rows,
)


def _network_rows(rank: Rank, options: Options) -> Iterator[Mapping[str, Any]]:
    for of in traffic(rank):
        rates = of.values * PER_MS
        total = float((rates * np.maximum(of.ends - of.starts, 0)).sum() / 1e9)
        yield {
            "Device": of.device,
            "Name": of.name,
            "GUID": of.guid,
            "Metric": of.metric,
            **_statistics(rates),
            "Total": total,
        }


ADAPTER_CELLS = cells("Device | text | NIC or Switch.", "Name | text | The adapter's name.", "GUID | text | GUID.")
network_sum = RankRows(
    "network_sum",
    """What each network adapter and InfiniBand switch sent and received, and how long it waited to send.

    Rates are per second, in bytes or ticks; the total is the rate by the time of each sample. Ranks of one host that
    each sampled the host's adapters have equal rows: do not add them up.
    """,
    tables=TRAFFIC_READS,
    cells=(
        *ADAPTER_CELLS,
        Cell(
            "Metric", "text", "Bytes Sent, Bytes Recv, Congestion (waits to send), or another metric by its own name."
        ),
        *_statistics_cells("the samples' rates, per second"),
        Cell("Total", "real", "Bytes or ticks in all."),
    ),
    rows=_network_rows,
)


class GpuMetricUtilSum(RankRows):
    """What the sampled metrics of each GPU were: over the whole run, or while kernels or the work of NVTX ranges ran.

    A sample belongs to a kernel or range if its time is inside. Without a sample there is no row: at 10 kHz most
    kernels are too short. Kernels and ranges are those of the rank with the sampled GPU, in any report of its host;
    samples of the whole run are listed with their report. `metric-attribution` weighs samples by the part of their time
    inside, which reaches shorter ones.
    """

    host_samples = True
    clock = "one"
    own: ClassVar[tuple[Option, ...]] = (
        Option("per_kernel", bool, False, "A row for each kernel by name."),
        Option(
            "per_projected_nvtx", bool, False, "A row for each NVTX range by name, while the work that it launched ran."
        ),
        Option("match_ranges", str, None, "Only kernels or ranges with a name that this regular expression matches."),
        Option(
            "longest_n", int, 100, "The number of kernels or ranges per rank, the longest first; -1 for all.", least=-1
        ),
    )

    def __init__(self) -> None:
        super().__init__(
            "gpu_metric_util_sum",
            type(self).__doc__ or "",
            tables={"gpu_metrics": GPU_READS},
            requires=("gpu_metrics",),
            cells=(
                Cell("Name", "text", "Kernel or range; null for the whole run."),
                *_GPU_CELLS,
                *_statistics_cells("its values"),
            ),
            rows=_metric_rows,
        )

    def prepared(self, options: Options, run: RunFacts) -> Options:
        if options["per_kernel"] and options["per_projected_nvtx"]:
            raise UsageError(
                "gpu_metric_util_sum takes --per-kernel or --per-projected-nvtx, but both were given; leave one out"
            )
        pattern_of("--match-ranges", options["match_ranges"])
        return super().prepared(options, run)

    def reads(self, options: Options) -> dict[str, tuple[str, ...]]:
        wanted = super().reads(options)
        more: Reads = {}
        if options["per_kernel"]:
            more = {"kernels": _KERNELS}
        elif options["per_projected_nvtx"]:
            more = {**PROJECTION_READS, "kernels": (*PROJECTION_READS["kernels"], "device")}
        for table, columns in more.items():
            wanted[table] = tuple(dict.fromkeys((*wanted.get(table, ()), *columns)))
        return wanted

    def needs(self, options: Options) -> tuple[tuple[str, ...], ...]:
        by = (
            ("kernels",)
            if options["per_kernel"]
            else ("ranges", "api", "kernels")
            if options["per_projected_nvtx"]
            else ()
        )
        return (*super().needs(options), *((t,) for t in by))


def _metric_rows(rank: Rank, options: Options) -> Iterator[Mapping[str, Any]]:
    whole = not options["per_kernel"] and not options["per_projected_nvtx"]
    series = gpu_series(rank) if whole else gpu_series_of_host(rank)
    numbers = gpu_numbers(rank, sorted({s.key[0] for s in series}))
    if whole:
        for samples in series:
            yield {"Name": None, "GPU": numbers[samples.key[0]], "Metric": samples.metric} | _statistics(samples.values)
        return
    for name, device, spans in _spans(rank, options):
        for samples in series:
            if samples.key[0] == device and len(inside := samples.values[_inside(samples.times, spans)]):
                yield {"Name": name, "GPU": numbers[device], "Metric": samples.metric} | _statistics(inside)


def _spans(rank: Rank, options: Options) -> Iterator[tuple[str, int, Merged]]:
    kernels = rank.table("kernels", _KERNELS if options["per_kernel"] else ["device"])
    device = integers(kernels.column("device"), -1)
    devices = np.unique(device)
    named = kernels if options["per_kernel"] else projected(rank)
    start, end, ids = (integers(named.column(c), -1) for c in ("start", "end", "name"))
    device = device if options["per_kernel"] else np.zeros(len(start), np.int64)
    pattern = pattern_of("--match-ranges", options["match_ranges"])
    texts = texts_of(rank, ids)
    if pattern is not None:
        chosen = np.isin(
            ids, np.array([i for i, hit in zip(texts, pattern.matches(texts.values()), strict=True) if hit], np.int64)
        )
        start, end, ids, device = start[chosen], end[chosen], ids[chosen], device[chosen]
    if options["longest_n"] >= 0:
        longest = np.lexsort((ids, device, start, start - end))[: options["longest_n"]]
        start, end, ids, device = start[longest], end[longest], ids[longest], device[longest]
    if not options["per_kernel"]:  # a range's work is on one of the rank's devices; which one is not known of each
        device = np.repeat(devices, len(ids))
        start, end, ids = (np.tile(v, len(devices)) for v in (start, end, ids))
    order = np.lexsort((start, device, ids))
    start, end, ids, device = start[order], end[order], ids[order], device[order]
    spans = [(texts[name], gpu, merge(start[rows], end[rows])) for (name, gpu), rows in by_track(ids, device)]
    yield from sorted(spans, key=lambda span: span[:2])


def _inside(times: Int64, spans: Merged) -> Flags:
    """Which times are in one of the spans, their ends included."""
    inside: Flags = np.searchsorted(spans.starts, times, "right") > np.searchsorted(spans.ends, times, "left")
    return inside


gpu_metric_util_sum = GpuMetricUtilSum()
