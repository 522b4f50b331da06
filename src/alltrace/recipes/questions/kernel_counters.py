"""Counters that CUPTI's range profiler measured for each kernel of a PyTorch trace, by kernel or by operator.

Kineto records them in a separate mode (`ACTIVITY_TYPES=cuda_profiler_range`): kernels run one by one, so the trace has
their order and no times. `operator` is the innermost around the call that launched the kernel, which is found by order:
the first measured kernel belongs to the first launch, if one device was measured and there are as many kernels as
launches.
"""

import math
from collections.abc import Sequence
from itertools import groupby, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.operator_sums import FRAMES, RANGES, Program
from alltrace.recipes.analysis.range_sums import Intervals
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.arrays import integers

_COUNTERS = ("time", "thread", "number", "name", "metric", "value")
_KEYS = ("name", "metric")
_NO_CALL = "no operator is known: there are not as many launches as measured kernels, or several devices"

COLUMNS: col.Columns = (
    col.text("name", "kernel or operator; null for kernels without an operator"),
    col.text("metric", "metric, with the name in CUPTI"),
    col.whole("ranks", "ranks with these kernels"),
    col.whole("count", "kernels measured"),
    col.real("total", "sum over them, in the metric's unit; meaningless for a mean or a percentage", decimals=3),
    col.real("mean", "total divided by count", decimals=3),
    col.real("min", "smallest", decimals=3),
    col.real("max", "largest", decimals=3),
)


def _map(rank: Rank, options: Options) -> Any:
    table = rank.table("kernel_counters", _COUNTERS)
    table = table.filter(pc.and_(table.column("value").is_valid(), table.column("metric").is_valid()))
    names = rank.texts(table.column("name"))
    if options["by"] == "operator":
        names = _operators(rank, table)
    rows = pa.table([names, rank.texts(table.column("metric")), table.column("value")], names=[*_KEYS, "value"])
    sums = [("value", f) for f in ("count", "list", "min", "max")]
    groups = rows.group_by(list(_KEYS), use_threads=False).aggregate(sums)
    totals = pa.array([math.fsum(values) for values in groups.column("value_list").to_pylist()], pa.float64())
    unknown = pa.array([table.column("thread").null_count == table.num_rows] * groups.num_rows)
    return groups.drop_columns(["value_list"]).append_column("total", totals).append_column("unknown", unknown)


def _merge(parts: Sequence[Part], _run: RunFacts, options: Options) -> Answer:
    groups: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
    for part in parts:
        for row in part.table.to_pylist():
            groups.setdefault((row["name"], row["metric"]), []).append(row)
    rows = [
        {
            "name": name,
            "metric": metric,
            "ranks": len(own),
            "count": sum(r["value_count"] for r in own),
            "total": math.fsum(r["total"] for r in own),
            "min": min(r["value_min"] for r in own),
            "max": max(r["value_max"] for r in own),
        }
        for (name, metric), own in groups.items()
    ]
    for row in rows:
        row["mean"] = row["total"] / row["count"]
    rows.sort(key=lambda r: (r["metric"], -r["total"], str(r["name"] or "")))
    shown = [r for _, own in groupby(rows, key=lambda r: str(r["metric"])) for r in islice(own, options["top"] or None)]
    notes = []
    if options["by"] == "operator" and any(r["unknown"] for own in groups.values() for r in own):
        notes.append(_NO_CALL)
    if len(shown) < len(rows):
        notes.append(f"{len(shown)} of {len(rows)} rows are shown (--top)")
    return Answer.of(shown, COLUMNS, tuple(notes))


def _operators(rank: Rank, table: pa.Table) -> Any:
    nodes = Program.of(rank).nodes("operator")
    thread, time = integers(table.column("thread"), -1), integers(table.column("time"))
    key = nodes.keys_around(Intervals(thread, time, time))
    return pa.array([nodes.names[k] if k >= 0 else None for k in key.tolist()], pa.string())


QUESTION = Question(
    "kernel-counters",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables={"kernel_counters": _COUNTERS, "ranges": RANGES, "frames": FRAMES},
    requires=("kernel_counters",),
    options=(
        Option("by", str, "kernel", "how the counters are grouped", ("kernel", "operator")),
        Option(
            "top", int, 20, "maximum number of kernels or operators per metric, by decreasing value; 0 for all", least=0
        ),
    ),
    chart=Chart("bars", "name", ("total",), "metric", title="Counters of kernels"),
    important=("name", "metric", "mean", "total"),
)
