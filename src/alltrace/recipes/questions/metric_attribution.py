"""Sampled GPU metrics by kernel or range: the mean of each metric while its work ran on the GPU.

A sample is the mean over the time since the one before it; it counts by the time of the work in that time. Where
samples are missing nothing is known: `coverage_percent` says how much of the work they describe. A kernel shorter than
the period shares its samples with its neighbours; `pure_value` is from samples that describe that work alone. A range's
work is what was launched inside it. Samples of a rank's GPU count whichever report of its host has them: most often one
report samples all GPUs of a host. `gpu_metric_util_sum` counts samples with a time stamp inside, as nsys does.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.device_intervals import GPU, device_rows
from alltrace.recipes.analysis.lookups import texts_of
from alltrace.recipes.analysis.metric_samples import samplings
from alltrace.recipes.analysis.nvtx_projection import SPAN_COLUMNS, Spans, launch_spans, on_one_line, projection
from alltrace.recipes.analysis.range_sums import stems_of
from alltrace.recipes.analysis.sampled import GPU_READS
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, Reads, RunFacts
from alltrace.run.collecting import in_pieces
from alltrace.run.launch_matching import CALLS, match_launches
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.arrays import integers
from alltrace.trace.intervals import Merged, by_track, merge

_WORK = ("start", "end", "process", "device", "correlation")

COLUMNS: col.Columns = (
    col.RANK,
    GPU,
    col.text("name", "kernel, by its short name, or range"),
    col.text("metric", "metric, with the profiler's name"),
    col.real(
        "value", "its mean over the work, weighted by time, in the metric's unit, which is usually percent", decimals=2
    ),
    col.ns("work_ns", "time in which at least one piece of the work ran"),
    col.ns("covered_ns", "part of work_ns that samples cover"),
    col.percent("coverage_percent", "covered_ns as a share of work_ns"),
    col.whole("samples", "samples that cover any of it"),
    col.whole("pure_samples", "samples that cover nothing else"),
    col.real("pure_value", "mean of the pure samples; null without any", decimals=2),
)

READS: Reads = {
    "gpu_metrics": GPU_READS,
    "kernels": (*_WORK, "name", "short_name"),
    "copies": _WORK,
    "api": CALLS,
    "ranges": SPAN_COLUMNS,
}

NEEDED = (("gpu_metrics",), ("kernels",))


def _map(rank: Rank, options: Options) -> Any:
    sampled = samplings(rank)
    rows = []
    if not sampled:
        return pa.table({})
    for name, device, work in (
        _ranges(rank, options["top"]) if options["by"] == "range" else _kernels(rank, options["top"])
    ):
        for sampling in sampled:
            if sampling.device != device or not work.total_ns:
                continue
            weights = sampling.weights(work)
            same = {
                "name": name, "device": device, "work_ns": work.total_ns, "covered_ns": weights.covered_ns,
                "samples": int((weights.covered > 0).sum()), "pure_samples": int(weights.pure.sum()),
            }  # fmt: skip
            for metric, values in sampling.values.items():
                pure = float(values[weights.pure].mean()) if weights.pure.any() else None
                rows.append({**same, "metric": metric, "value": weights.mean(values), "pure_value": pure})
    return pa.Table.from_pylist(rows)


def _merge(parts: Sequence[Part], run: RunFacts, _options: Options) -> Answer:
    rows = device_rows(parts, run)
    for row in rows:
        row["coverage_percent"] = 100 * row["covered_ns"] / row["work_ns"]
    notes = []
    if parts and not rows:
        notes.append("no device has both samples and such work")
    unknown = sum(row["covered_ns"] == 0 for row in rows)
    if unknown:
        notes.append(f"{unknown} of {len(rows)} rows have no value, because no sample describes their work")
    return Answer.of(rows, COLUMNS, tuple(notes))


def _longest(every: list[tuple[str, int, Merged]], top: int) -> list[tuple[str, int, Merged]]:
    """Those with most time, at most `top` of each device; all for 0."""
    ordered = sorted(every, key=lambda f: (f[1], -f[2].total_ns, f[0]))
    longest: list[tuple[str, int, Merged]] = []
    for name, device, work in ordered:
        if not top or sum(d == device for _, d, _ in longest) < top:
            longest.append((name, device, work))
    return longest


def _kernels(rank: Rank, top: int) -> list[tuple[str, int, Merged]]:
    """When each kernel ran on each device."""
    table = rank.table("kernels", ("start", "end", "device", "name", "short_name"))
    start, end, device, name, short = (
        integers(table.column(c), -1) for c in ("start", "end", "device", "name", "short_name")
    )
    return _longest(_by_name(rank, np.where(short == -1, name, short), device, start, end), top)


def _by_name(rank: Rank, name: Any, device: Any, start: Any, end: Any) -> list[tuple[str, int, Merged]]:
    order = np.lexsort((start, name, device))
    texts = texts_of(rank, name)
    return [
        (texts[n], d, merge(start[order[at]], end[order[at]])) for (d, n), at in by_track(device[order], name[order])
    ]


def _ranges(rank: Rank, top: int) -> list[tuple[str, int, Merged]]:
    """When work launched in ranges of each name ran on each device; of the `top` names with the longest extents."""
    table = launch_spans(rank)
    work = pa.concat_tables([rank.table(t, _WORK) for t in ("kernels", "copies")])
    start, end, process, device, correlation = (integers(work.column(c), -1) for c in _WORK)
    calls = match_launches(in_pieces(rank, "api", CALLS), process, correlation)
    spans, call_start, call_end = on_one_line(table, calls.thread, calls.start, calls.end)
    rows_of, names = stems_of(rank, integers(table.column("name"), -1))
    call_of_pair = calls.call_of_pair()
    by_name: list[tuple[str, int, Merged]] = []
    for name in _names(rank, top):
        rows = np.flatnonzero(rows_of == names.index(name))
        inside = Spans(spans.start[rows], spans.end[rows], spans.length[rows]).contain(call_start, call_end)
        pieces = np.unique(calls.op[inside[call_of_pair]])
        order = pieces[np.lexsort((start[pieces], device[pieces]))]
        by_name += [(name or "", d, merge(start[order[at]], end[order[at]])) for (d,), at in by_track(device[order])]
    return _longest(by_name, top)


def _names(rank: Rank, top: int) -> list[str | None]:
    """Names of ranges with work, those with the longest extents on the GPU first."""
    projected = projection(rank)
    at, names = stems_of(rank, integers(projected.ranges.column("name"), -1))
    extent = np.zeros(len(names), np.int64)
    np.add.at(extent, at, projected.last - projected.first)
    order = sorted(range(len(names)), key=lambda n: (-extent[n], names[n] or ""))
    return [names[n] for n in (order[:top] if top else order)]


QUESTION = Question(
    "metric-attribution",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables=READS,
    requires=lambda options: (*NEEDED, *((("ranges",), ("api",)) if options["by"] == "range" else ())),
    options=(
        Option("by", str, "kernel", "what the metrics are attributed to", ("kernel", "range")),
        Option("top", int, 20, "maximum number of kernels or ranges per rank, by decreasing time; 0 for all", least=0),
    ),
    chart=Chart("bars", "name", ("value",), "metric", "rank"),
    clock="one",
    host_samples=True,
    important=("name", "metric", "value", "rank", "coverage_percent"),
)
