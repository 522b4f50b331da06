"""Operators of PyTorch, modules or named ranges: host and GPU time, self and total, and work, over all ranks.

GPU work belongs to the operator around the call that launched it: its own time goes to the innermost one, total time to
all those around it. Kernels of a replayed CUDA graph belong to the operators around their launches in the capture,
where the trace has it. Total times count an operator within another of the same row once. Operations and bytes follow
from the shapes of matrix products, convolutions and attention, if shapes were recorded; entries around these operators
have the sum of the outermost ones inside.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.graph_captures import notes_on_replays
from alltrace.recipes.analysis.launched_work import TABLES
from alltrace.recipes.analysis.operator_sums import FRAMES, RANGES, WHOLE, sums_of
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.number_text import counted

_SUMS = (*WHOLE, "backward_gpu_ns", "flops", "timed_flops", "timed_gpu_ns", "sized_flops", "moved_bytes")
_KEYS = ("name", "shapes")
_WHAT = {
    "operator": "operators (a trace of the PyTorch profiler has them)",
    "operator-shape": "operators (a trace of the PyTorch profiler has them)",
    "module": "modules (a trace of the PyTorch profiler has them when it was taken with with_stack or with_modules)",
    "range": "named ranges",
    "stack": "operators with stacks (a trace of the PyTorch profiler has them when it was taken with with_stack)",
}

COLUMNS: col.Columns = (
    col.text("name", "operator, path of modules, range, or stack, the outermost first"),
    col.text("shapes", "shapes of the inputs; null unless grouped by shape, or if they were not recorded"),
    col.whole("ranks", "ranks that called it"),
    col.whole("calls", "calls"),
    col.ns("cpu_total_ns", "time in it on the host"),
    col.ns("cpu_self_ns", "part of cpu_total_ns outside of nested entries; includes CUDA calls"),
    col.ns("gpu_total_ns", "summed duration of the kernels, copies and fills launched inside"),
    col.ns("gpu_self_ns", "part of gpu_total_ns launched outside of nested entries"),
    col.percent("gpu_self_percent", "gpu_self_ns as a share of the summed duration of all GPU work"),
    col.whole("gpu_operations", "kernels, copies and fills launched inside"),
    col.ns(
        "backward_gpu_ns",
        "GPU time of the backward pass of the operators called inside; null if the trace has no operator numbers",
    ),
    col.real("flops", "floating-point operations by shape; null if no formula applies", "FLOP", 0),
    col.real("tflop_per_s", "flops divided by GPU time, over the calls that have both", "TFLOP/s", 1),
    col.size("least_bytes", "least bytes moved: every operand read once, the result written once"),
    col.real(
        "flop_per_byte",
        "arithmetic intensity: flops divided by least_bytes, over the calls that have both",
        "FLOP/byte",
        1,
    ),
)


def _map(rank: Rank, options: Options) -> Any:
    """The rank's sums by name and shapes, and a last row without name for all its GPU work."""
    return sums_of(rank, options["by"])


def _merge(parts: Sequence[Part], _run: RunFacts, options: Options) -> Answer:
    if not parts:
        return Answer.of((), COLUMNS)
    whole = pa.concat_tables([p.table for p in parts])
    total, inside = sum(whole.column("all_gpu_ns").drop_null().to_pylist()), 0
    listed = _wide(whole.filter(pc.is_null(whole.column("all_gpu_ns"))))
    grouped = listed.group_by(list(_KEYS), use_threads=False).aggregate(
        [("calls", "count"), *((c, "sum") for c in _SUMS)]
    )
    crossed = int(pc.sum(listed.column("crossed")).as_py() or 0)
    replayed, joined = (sum(whole.column(c).drop_null().to_pylist()) for c in ("replayed_ns", "joined_ns"))
    rows = []
    for row in grouped.to_pylist():
        sums = {c: int(row[f"{c}_sum"]) if isinstance(row[f"{c}_sum"], Decimal) else row[f"{c}_sum"] for c in _SUMS}
        inside += sums["gpu_self_ns"]
        rows.append(
            {
                "name": row["name"],
                "shapes": row["shapes"],
                "ranks": row["calls_count"],
                **{c: sums[c] for c in (*WHOLE, "backward_gpu_ns", "flops")},
                "gpu_self_percent": 100 * sums["gpu_self_ns"] / total if total else None,
                "tflop_per_s": _ratio(sums["timed_flops"], sums["timed_gpu_ns"], 1e-3),
                "least_bytes": sums["moved_bytes"],
                "flop_per_byte": _ratio(sums["sized_flops"], sums["moved_bytes"]),
            }
        )
    rows.sort(key=lambda r: (-r["gpu_total_ns"], -r["cpu_total_ns"], r["name"] or "", r["shapes"] or ""))
    return Answer.of(
        rows[: options["top"] or None],
        COLUMNS,
        (*_notes(options, rows, total, inside, crossed), *notes_on_replays(replayed, joined)),
    )


def _wide(table: Any) -> Any:
    """The table with its integers as decimals, since sums may exceed 64 bits."""
    wide = pa.decimal128(38, 0)
    return table.cast(pa.schema([f.with_type(wide) if f.type == pa.int64() else f for f in table.schema]))


def _notes(
    options: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], total: int, inside: int, crossed: int
) -> list[str]:
    if not rows:
        return [f"no rank has {_WHAT[options['by']]}"]
    notes = []
    if total > inside:
        what = "operators" if options["by"] in ("operator", "operator-shape", "stack") else f"{options['by']}s"
        notes.append(
            f"{100 * (total - inside) / total:.1f} % of the GPU time was launched outside of all {what}, or its call is"
            " not known"
        )
    if crossed:
        calls = counted(crossed, "call has", "calls have")
        notes.append(
            f"{calls} others of the kind inside that overlap and together last longer: no time of its own is left"
        )
    if options["top"] and len(rows) > options["top"]:
        notes.append(f"{options['top']} of {len(rows)} rows are shown (--top)")
    return notes


def _ratio(above: float | None, below: float | None, scale: float = 1.0) -> float | None:
    return above * scale / below if above is not None and below else None


QUESTION = Question(
    "operators",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables={"ranges": RANGES, "frames": FRAMES, **TABLES},
    requires=("ranges",),
    options=(
        Option(
            "by",
            str,
            "operator",
            "what a row is: an operator, an operator with the shapes of its inputs, a module of the model, a named "
            "range, or the Python stack that called operators",
            tuple(_WHAT),
        ),
        Option("top", int, 50, "maximum number of rows, by decreasing GPU time; 0 for all", least=0),
    ),
    chart=Chart("bars", "name", ("gpu_self_ns", "cpu_self_ns")),
    important=("name", "gpu_self_ns", "gpu_self_percent", "gpu_total_ns", "calls"),
)
