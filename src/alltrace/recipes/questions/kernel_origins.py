"""Which operator, module and line of the program launched each kernel, over all ranks; most time first.

They are those around the call that launched the kernel, the innermost of each kind; for the backward, module and line
are those of its forward operator. Kernels of a replayed CUDA graph have those of their launches in the capture, if the
trace has it. The line is the innermost outside of PyTorch and of libraries for it (Triton, Apex, DeepSpeed, ...), or
the innermost where there is no other. A trace has lines when it was taken with `with_stack`, modules with `with_stack`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.graph_captures import notes_on_replays
from alltrace.recipes.analysis.kernel_origins import origins_of
from alltrace.recipes.analysis.launched_work import TABLES
from alltrace.recipes.analysis.operator_sums import FRAMES, RANGES
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.distinct import distinct_rows

_KEYS = ("name", "operator", "module", "source")
_REPLAYS = ("replayed_ns", "joined_ns")


COLUMNS: col.Columns = (
    col.text("name", "kernel, without template arguments and parameters"),
    col.text("operator", "the operator that launched it; null if there is none or the call is unknown"),
    col.text("module", "the path of modules around the call"),
    col.text("source", "source line of the launch, with its function"),
    col.whole("ranks", "ranks with these launches"),
    col.whole("count", "launches"),
    col.ns("total_ns", "summed duration"),
    col.percent("time_percent", "total_ns as a share of the duration of all kernels"),
)


def _map(rank: Rank, _options: Options) -> Any:
    origins = origins_of(rank)
    kinds, place = distinct_rows(origins.name, origins.operator, origins.module, origins.line)
    count, total = (np.zeros(kinds.shape[1], np.int64) for _ in range(2))
    np.add.at(count, place, 1)
    np.add.at(total, place, origins.length)
    texts = rank.texts(pa.array(kinds[0], mask=kinds[0] == 0))
    columns = [[*names, None] for names in (origins.operators, origins.modules, origins.lines)]
    places = [
        pa.array([own[n] for n in codes.tolist()], pa.string()) for own, codes in zip(columns, kinds[1:], strict=True)
    ]
    replays = [pa.array([ns] * len(count), pa.int64()) for ns in (origins.replayed_ns, origins.joined_ns)]
    return pa.table([texts, *places, count, total, *replays], names=[*_KEYS, "count", "total_ns", *_REPLAYS])


def _merge(parts: Sequence[Part], _run: RunFacts, options: Options) -> Answer:
    tables = [p.table for p in parts if p.table.num_rows]
    if not tables:
        return Answer.of((), COLUMNS)
    # a rank may have two rows of one key, since names that differ in what is left out are one
    own = [
        t.group_by(list(_KEYS), use_threads=False).aggregate([("count", "sum"), ("total_ns", "sum")]) for t in tables
    ]
    together = pa.concat_tables(own).group_by(list(_KEYS), use_threads=False)
    rows = together.aggregate([("count_sum", "count"), ("count_sum", "sum"), ("total_ns_sum", "sum")]).to_pylist()
    whole = sum(row["total_ns_sum_sum"] for row in rows)
    answer = [
        {
            **{key: row[key] for key in _KEYS},
            "ranks": row["count_sum_count"],
            "count": row["count_sum_sum"],
            "total_ns": row["total_ns_sum_sum"],
            "time_percent": 100 * row["total_ns_sum_sum"] / whole if whole else None,
        }
        for row in rows
    ]
    answer.sort(key=lambda r: (-r["total_ns"], *(str(r[key] or "") for key in _KEYS)))
    notes = []
    if options["top"] and len(answer) > options["top"]:
        notes.append(f"{options['top']} of {len(answer)} rows are shown (--top)")
    if all(row[key] is None for row in answer for key in _KEYS[1:]):
        notes.append("no launch is in an operator or module (a trace of the PyTorch profiler has them)")
    notes += notes_on_replays(*(sum(t.column(c)[0].as_py() for t in tables) for c in _REPLAYS))
    return Answer.of(answer[: options["top"] or None], COLUMNS, tuple(notes))


QUESTION = Question(
    "kernel-origins",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables={"ranges": RANGES, "frames": FRAMES, **TABLES},
    requires=("kernels",),
    options=(Option("top", int, 50, "maximum number of rows, by decreasing time; 0 for all", least=0),),
    chart=Chart("bars", "name", ("total_ns",), "operator", title="Time of kernels by operator"),
    important=("name", "total_ns", "operator", "source", "time_percent"),
)
