"""Where the time of each step went, as the step-time view of PyTorch's TensorBoard plugin had it.

At any moment a rank is in one class, the first that applies: a compute kernel runs on one of its devices; a
communication kernel; a copy; a fill; a call of the CUDA API is under way; the program waits for its DataLoader; an
operator runs on the host; else it is idle. So the classes sum to the step, to the nanosecond. A step lasts from its
start on the host to the start of the next one; the last one lasts to its end, and to the end of its device work. If a
step may have lost records, the classes after those of the devices are null.

Use of the devices is by time of the compute kernels that start in the step, and estimated as the profiler does:
`occupancy` of the kernels as the trace states it, `sm_efficiency` by how many multiprocessors their blocks can fill,
and the share of kernels with names that state a format of tensor cores.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from alltrace.align.step_names import step_name
from alltrace.recipes.analysis.kernel_families import FP4, FP8, HALF, TF32, TF32X3, family_of
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, Reads, RunFacts
from alltrace.run.collecting import in_pieces
from alltrace.run.rank import Rank
from alltrace.run.time_slices import time_spans
from alltrace.trace import columns as col
from alltrace.trace.arrays import Flags, Int64, coded, integers, is_one_of, is_true
from alltrace.trace.distinct import distinct
from alltrace.trace.host_patterns import WAITING
from alltrace.trace.intervals import (
    INT64_MAX,
    INT64_MIN,
    NOTHING,
    Merged,
    bin_coverage_ns,
    clip,
    exclusive,
    merge,
    union,
)
from alltrace.trace.kernel_rules import NOT_COMPUTE
from alltrace.trace.names import name_id

_CLASSES = ("kernel_ns", "communication_ns", "memcpy_ns", "memset_ns", "runtime_ns", "dataloader_ns", "cpu_ns")
_TIMES = (*_CLASSES, "idle_ns")
_HOST = ("runtime_ns", "dataloader_ns", "cpu_ns", "idle_ns")
_MEANS = ("occupancy_percent", "sm_efficiency_percent", "tensor_core_percent")
_REAL = ("filled_ns", "occupied")
_USE = ("summed_ns", "tensor_ns", "gridded_ns", "stated_ns", *_REAL)
_OPERATOR = name_id("cpu_op")
_LOADER = re.compile("|".join(p.regex for p in WAITING))
_ON_TENSOR_CORES = frozenset({HALF, TF32, TF32X3, FP8, FP4})
_KERNELS = (
    "start", "end", "device", "name", "kind", "grid_x", "grid_y", "grid_z", "occupancy_percent",
)  # fmt: skip

COLUMNS: col.Columns = (
    col.RANK,
    col.whole("step", "number of the step; null for all steps"),
    col.text("kind", "step, warm-up or checkpoint; null for all steps"),
    col.ns("span_ns", "total time; the other columns are its parts"),
    col.ns("kernel_ns", "a compute kernel runs"),
    col.ns("communication_ns", "a communication kernel runs, and no compute kernel"),
    col.ns("memcpy_ns", "a copy runs, and none of the above"),
    col.ns("memset_ns", "a fill runs, and none of the above"),
    col.ns("runtime_ns", "a call of the CUDA API is under way, and none of the above"),
    col.ns("dataloader_ns", "the program waits for its DataLoader, and none of the above"),
    col.ns("cpu_ns", "an operator runs on the host, and none of the above"),
    col.ns("idle_ns", "none of the above"),
    col.percent(
        "occupancy_percent", "mean achieved occupancy of the kernels, as the trace estimates it; null if it does not"
    ),
    col.percent(
        "sm_efficiency_percent",
        "share of the step in which a kernel runs, times the share of multiprocessors that its blocks can fill",
    ),
    col.percent(
        "tensor_core_percent", "kernels on tensor cores as a share of kernel time (FP16, BF16, TF32, FP8, FP4)"
    ),
)

_EVENTS = {
    "kernels": ("start", "end", "kind"),
    "copies": ("start", "end", "kind", "collective"),
    "graphs": ("start", "end"),
    "api": ("start", "end"),
    "ranges": ("start", "end", "domain", "name"),
}
READS: Reads = {**_EVENTS, "kernels": _KERNELS, "devices": ("device", "sm_count")}


def _map(rank: Rank, options: Options) -> Any:
    steps = _Steps.of(rank)
    if not len(steps.start):
        return pa.table({"span_ns": pa.array([], pa.int64())})
    edges = np.stack((steps.start, steps.end), axis=1).reshape(-1)
    columns: dict[str, Any] = {"span_ns": steps.end - steps.start}
    columns |= {name: np.zeros_like(steps.start) for name in (*_CLASSES, "busy_ns")}
    later = [NOTHING] * len(_CLASSES)
    for some, until in time_spans(rank, _EVENTS):
        reaching = [union(both) for both in zip(_classes(some), later, strict=True)]
        later = [clip(times, until, INT64_MAX) for times in reaching]
        classes = [clip(times, INT64_MIN, until) for times in reaching]
        for name, own in zip((*_CLASSES, "busy_ns"), (*exclusive(classes), classes[0]), strict=True):
            columns[name] += bin_coverage_ns(own, edges)[::2]
    columns |= _use(rank, steps)
    columns["left_out_ns"] = bin_coverage_ns(rank.unrecorded(), edges)[::2]
    if options["by"] == "rank":
        columns = {name: values.sum(keepdims=True) for name, values in columns.items()}
        return pa.table({"step": pa.nulls(1, pa.int64()), "kind": pa.nulls(1, pa.string()), **columns})
    return pa.table({"step": steps.number, "kind": pa.array(steps.kind, pa.string()), **columns})


def _merge(parts: Sequence[Part], _run: RunFacts, _options: Options) -> Answer:
    rows = []
    for part in parts:
        for row in part.table.to_pylist():
            filled = row["filled_ns"] / row["gridded_ns"] if row["gridded_ns"] else None
            means = (
                row["occupied"] / row["stated_ns"] if row["stated_ns"] else None,
                100 * filled * row["busy_ns"] / row["span_ns"] if filled is not None and row["span_ns"] else None,
                100 * row["tensor_ns"] / row["summed_ns"] if row["summed_ns"] else None,
            )
            idle = row["span_ns"] - sum(row[c] for c in _CLASSES)
            row |= {"rank": part.rank, "idle_ns": idle, **dict(zip(_MEANS, means, strict=True))}
            # a kernel without a record hides what the host does, or lets it seem idle
            rows.append({**row, **(dict.fromkeys(_HOST) if row["left_out_ns"] else {})})
    notes = [] if rows or not parts else ["no steps were found in the run"]
    return Answer.of(rows, COLUMNS, tuple(notes))


@dataclass(frozen=True)
class _Steps:
    number: Int64
    start: Int64
    end: Int64
    kind: list[str]

    @classmethod
    def of(cls, rank: Rank) -> Self:
        table = rank.shared("steps")
        if table is None or not table.num_rows:
            none = np.empty(0, np.int64)
            return cls(none, none, none, [])
        table = table.sort_by("start")
        number, start, end = (integers(table.column(c)) for c in ("step", "start", "end"))
        end = np.maximum(end, integers(table.column("device_end"), -(1 << 62)))
        follows = number[1:] == number[:-1] + 1
        end[:-1] = np.where(follows, start[1:], np.minimum(end[:-1], start[1:]))
        return cls(number, start, np.maximum(end, start), table.column("kind").to_pylist())


def _classes(rank: Rank) -> list[Merged]:
    """When the rank is in each class, overlaps left in."""
    kernels, copies, graphs, api, ranges = (rank.table(table, columns) for table, columns in _EVENTS.items())

    def merged(table: Any, chosen: Flags | None = None) -> Merged:
        start, end = (integers(table.column(c)) for c in ("start", "end"))
        return merge(start, end) if chosen is None else merge(start[chosen], end[chosen])

    talks, fills = is_one_of(kernels.column("kind"), NOT_COMPUTE), is_one_of(copies.column("kind"), ("memset",))
    exchanges = is_true(copies.column("collective"))
    kinds, place = np.unique(integers(ranges.column("name")), return_inverse=True)
    names = rank.texts(pa.array(kinds, pa.int64())).to_pylist()
    loads = np.array([bool(n and _LOADER.search(n)) for n in names], np.bool_)[place.ravel()]
    # PyTorch 1.8 wrote steps and optimizers as operators
    whole = np.array([bool(n and step_name(n)) for n in names], np.bool_)[place.ravel()]
    operators = (integers(ranges.column("domain")) == _OPERATOR) & ~loads & ~whole
    closed = ranges.column("start").is_valid().to_numpy() & ranges.column("end").is_valid().to_numpy()
    compute = union((merged(kernels, ~talks), merged(graphs)))
    talk = union((merged(kernels, talks), merged(copies, exchanges)))
    return [
        compute, talk, merged(copies, ~fills & ~exchanges), merged(copies, fills), merged(api),
        merged(ranges, loads & closed), merged(ranges, operators & closed),
    ]  # fmt: skip


def _use(rank: Rank, steps: _Steps) -> dict[str, Any]:
    """Of the compute kernels that start in each step: sums of their times, as they are and weighted."""
    devices = rank.table("devices", READS["devices"])
    size = {row["device"]: row["sm_count"] or 0 for row in devices.to_pylist()}
    sums = {name: np.zeros(len(steps.start), np.float64 if name in _REAL else np.int64) for name in _USE}
    for kernels in in_pieces(rank, "kernels", _KERNELS):
        start = integers(kernels.column("start"))
        length = np.maximum(integers(kernels.column("end")), start) - start
        at = np.searchsorted(steps.start, start, "right") - 1
        inside = (at >= 0) & (start < steps.end[np.maximum(at, 0)]) & ~is_one_of(kernels.column("kind"), NOT_COMPUTE)
        used, place = distinct(integers(kernels.column("device"), -1))
        multiprocessors = np.array([size.get(device, 0) for device in used.tolist()], np.float64)[place]
        blocks = np.ones(len(start))
        for axis in "xyz":
            blocks *= integers(kernels.column(f"grid_{axis}"), 0)
        gridded = (blocks > 0) & (multiprocessors > 0)
        filled = np.minimum(blocks / np.maximum(multiprocessors, 1), 1.0)
        texts, code = coded(kernels.column("name"))
        named = [bool(n) and family_of(n).precision in _ON_TENSOR_CORES for n in rank.texts(texts).to_pylist()]
        occupancy = integers(kernels.column("occupancy_percent"), -1)
        for name, values, chosen in (
            ("summed_ns", length, inside),
            ("tensor_ns", length, np.array([*named, False], np.bool_)[code]),
            ("gridded_ns", length, gridded),
            ("filled_ns", length * filled, gridded),
            ("stated_ns", length, occupancy >= 0),
            ("occupied", length.astype(np.float64) * occupancy, occupancy >= 0),
        ):
            rows = np.flatnonzero(inside & chosen)
            np.add.at(sums[name], at[rows], values[rows])
    return sums


QUESTION = Question(
    "step-time",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables=READS,
    requires=(("kernels", "copies", "graphs", "api", "ranges"),),
    options=(Option("by", str, "step", "what a row is: a step of a rank, or all steps of a rank", ("step", "rank")),),
    chart=Chart("stacked_bars", "rank", _TIMES, detail="step", title="Where the time of steps went"),
    clock="aligned",
    important=("rank", "step", "span_ns", "kernel_ns", "communication_ns", "idle_ns"),
)
