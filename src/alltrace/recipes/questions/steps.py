"""The training steps: when each begins and ends on every rank, on the host and on the device.

Steps are found by ranges that name them: `step 12`, `iteration 12`, `train_step`, and what PyTorch, Lightning,
DeepSpeed, JAX, TensorFlow, TensorRT-LLM, vLLM and SGLang call them. Of nested ranges, those that each contain one
optimizer step count, otherwise the outermost. If only optimizers are named, each ends a step; without names, the period
of the kernel sequence is used. A rank that repeats itself by micro-batches has the steps of the others.

A warm-up step is one at the beginning that takes longer than the others, by more than these differ, from the end of the
step before on the device to its own; a checkpoint step copies far more to the host than others, or has a range that
says so. Of vLLM, SGLang, TensorRT-LLM and ATOM a step is an iteration, with what the names of their ranges say of its
batch; where a step has several iterations, these are added.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.align.step_names import MIXED, Iteration, iteration_of
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts
from alltrace.run.overlay import STEPS
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.arrays import integers
from alltrace.trace.number_text import counted

_OWN = (col.whole("step", "number of the step, equal on all ranks"), col.text("kind", "step, warm-up or checkpoint"))
_ROWS = (
    col.RANK,
    col.text("host", "host"),
    *_OWN,
    col.ns("start_ns", "start on the host, aligned"),
    col.ns("end_ns", "end on the host"),
    col.ns("duration_ns", "from start to end on the host"),
    col.ns("device_start_ns", "first start of its device work, or of its host's in a run without any"),
    col.ns("device_end_ns", "last end of that work"),
    col.ns("device_span_ns", "from device_start_ns to device_end_ns"),
    col.text("source", "how the step was found: range, kernels or collectives"),
    col.text("phase", "for a server of language models: prefill, decode, mixed, or another mode in its range names"),
    col.whole("requests", "requests in the batch, for a server of language models"),
    col.whole("prefill_requests", "requests in prefill"),
    col.whole("query_tokens", "computed tokens: the sum of the query lengths of all requests"),
    col.whole("kv_tokens", "sum of the lengths of keys and values of all requests"),
)
_SUMMARY = (
    *_OWN,
    col.rank("ranks", "number of ranks that have the step"),
    col.ns("duration_ns", "exact median of its duration on the host over ranks"),
    col.rank("slowest_rank", "the rank with the longest duration on the host; the lowest if several are equal"),
    col.ns("slowest_ns", "its duration"),
    col.ns("spread_ns", "from the shortest to the longest duration over ranks"),
    col.ns("device_span_ns", "exact median of its span on the device over ranks that have work in it"),
    col.ns("start_spread_ns", "from the first rank's start to the last one's, on the aligned clock"),
)

_BATCH = ("phase", "requests", "prefill_requests", "query_tokens", "kv_tokens")


CHART = Chart("lines", "step", ("duration_ns",), "rank", title="Duration of each step on each rank")


def _columns(options: Options) -> col.Columns:
    return _SUMMARY if options["per_step"] else _ROWS


def _chart(options: Options) -> Chart | None:
    if not options["per_step"]:
        return CHART
    return Chart("lines", "step", ("duration_ns", "slowest_ns"), title="Median and slowest rank of each step")


def _map(rank: Rank, _options: Options) -> Any:
    """What names of ranges say of the batches of the rank's steps; the alignment has the steps themselves."""
    kinds = [("step", pa.int64()), *((c, pa.string() if c == "phase" else pa.int64()) for c in _BATCH)]
    return pa.Table.from_pylist(_batches(rank), pa.schema(kinds))


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    steps = run.alignment.steps if run.alignment is not None else STEPS.arrow_schema().empty_table()
    numbers = [p.rank for p in parts]
    steps = steps.filter(pa.array(np.isin(steps.column("rank").to_numpy(), np.array(numbers, np.int64))))
    hosts = {r.rank: r.host for r in run.ranks}
    batches = {(p.rank, row["step"]): row for p in parts for row in p.table.to_pylist()}
    rows = _summary(steps) if options["per_step"] else _rows(steps, hosts, batches)
    columns = _columns(options)
    notes = (_kind_notes(steps) if rows else ["no steps were found in the run"]) if parts else []
    return Answer.of(rows, columns, tuple(notes))


def _batches(rank: Rank) -> list[dict[str, Any]]:
    """Of each step with iterations of a server what their names say; of nested ones the outermost counts."""
    steps = rank.shared("steps")
    if steps is None or not steps.num_rows:
        return []
    ranges = rank.table("ranges", ("start", "end", "name"))
    ids, place = np.unique(integers(ranges.column("name")), return_inverse=True)
    iterations_of = [iteration_of(name) if name else None for name in rank.texts(pa.array(ids, pa.int64())).to_pylist()]
    chosen = np.flatnonzero(np.array([s is not None for s in iterations_of], np.bool_)[place.ravel()])
    start, end = (integers(ranges.column(c))[chosen] for c in ("start", "end"))
    order = np.lexsort((-end, start))
    by_step: dict[int, list[Iteration]] = {}
    times = steps.sort_by("start")
    number, first, last = (times.column(c).to_pylist() for c in ("step", "start", "end"))
    covered = None
    for row in order.tolist():
        if covered is not None and end[row] <= covered:
            continue
        covered = int(end[row])
        at = int(np.searchsorted(first, start[row], "right")) - 1
        iteration = iterations_of[place.ravel()[chosen[row]]]
        if at >= 0 and start[row] < last[at] and iteration is not None:
            by_step.setdefault(number[at], []).append(iteration)
    return [{"step": step, **_added(iterations)} for step, iterations in by_step.items()]


def _added(iterations: Sequence[Iteration]) -> dict[str, Any]:
    """The iterations of a step together; null if one does not say."""
    phases = {i.phase for i in iterations}
    sums = {
        name: None if any(getattr(i, name) is None for i in iterations) else sum(getattr(i, name) for i in iterations)
        for name in ("requests", "prefill_requests", "query_tokens", "kv_tokens")
    }
    return {"phase": phases.pop() if len(phases) == 1 else MIXED, **sums}


def _rows(
    steps: Any, hosts: Mapping[int, str], batches: Mapping[tuple[int, int], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    rows = []
    for row in steps.to_pylist():
        first, last = row["device_start"], row["device_end"]
        rows.append(
            {
                **batches.get((row["rank"], row["step"]), {}),
                **{c: row[c] for c in ("rank", "step", "kind", "source")},
                "host": hosts[row["rank"]],
                "start_ns": row["start"],
                "end_ns": row["end"],
                "duration_ns": row["end"] - row["start"],
                "device_start_ns": first,
                "device_end_ns": last,
                "device_span_ns": None if first is None else last - first,
            }
        )
    return sorted(rows, key=lambda r: (r["rank"], r["step"]))


def _summary(steps: Any) -> list[dict[str, Any]]:
    by_step: dict[int, list[dict[str, Any]]] = {}
    for row in steps.to_pylist():
        by_step.setdefault(row["step"], []).append(row)
    summary = []
    for step in sorted(by_step):
        rows = sorted(by_step[step], key=lambda r: r["rank"])
        durations = [r["end"] - r["start"] for r in rows]
        spans = [r["device_end"] - r["device_start"] for r in rows if r["device_start"] is not None]
        slowest = max(durations)
        starts = [r["start"] for r in rows]
        summary.append(
            {
                "step": step,
                "kind": rows[0]["kind"],
                "ranks": len(rows),
                "duration_ns": _median(durations),
                "slowest_rank": rows[durations.index(slowest)]["rank"],
                "slowest_ns": slowest,
                "spread_ns": slowest - min(durations),
                "device_span_ns": _median(spans) if spans else None,
                "start_spread_ns": max(starts) - min(starts),
            }
        )
    return summary


def _median(values: Sequence[int]) -> int:
    """The middle value, or the mean of the two middle ones, rounded down."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def _kind_notes(steps: Any) -> list[str]:
    kinds: dict[str, set[int]] = {}
    for step, kind in zip(steps.column("step").to_pylist(), steps.column("kind").to_pylist(), strict=True):
        kinds.setdefault(kind, set()).add(step)
    return [
        f"{counted(len(kinds[kind]), f'{kind} step')}, the first of them step {min(kinds[kind])}"
        for kind in ("warm-up", "checkpoint")
        if kind in kinds
    ]


QUESTION = Question(
    "steps",
    __doc__,
    _columns,
    _map,
    _merge,
    tables={"ranges": ("start", "end", "name"), "kernels": ("start", "end", "name")},
    options=(Option("per_step", bool, False, "one row per step over all ranks: median, slowest rank, spread"),),
    chart=_chart,
    clock="aligned",
    important=("rank", "step", "duration_ns", "kind", "device_span_ns", "start_ns"),
)
