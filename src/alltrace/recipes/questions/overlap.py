"""How much of each device's communication runs while a compute kernel runs, and of its copies while any kernel runs.

`communication_ns` is the time during which at least one communication kernel runs; `overlapped_ns` the part of it under
compute, `exposed_ns` the rest. A copy is exposed when no kernel at all runs. Kernels that `breakdown` lists as
unclassified are neither compute nor communication.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from alltrace.recipes.analysis.device_intervals import GPU, TABLES, class_notes, device_activity, device_rows
from alltrace.recipes.base import Answer, Chart, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.intervals import intersection, union

_TIMES = tuple(
    "compute_ns communication_ns overlapped_ns exposed_ns copy_ns copy_overlapped_ns copy_exposed_ns".split()
)

COLUMNS: col.Columns = (
    col.RANK,
    col.text("host", "host"),
    GPU,
    col.ns("compute_ns", "at least one compute kernel runs"),
    col.ns("communication_ns", "at least one communication kernel runs"),
    col.ns("overlapped_ns", "communication and compute run at the same time"),
    col.ns("exposed_ns", "communication runs and no compute"),
    col.percent("overlap_percent", "overlapped_ns as a share of communication_ns"),
    col.ns("copy_ns", "at least one copy or fill runs"),
    col.ns("copy_overlapped_ns", "a copy and any kernel run at the same time"),
    col.ns("copy_exposed_ns", "a copy runs and no kernel"),
    col.percent("copy_overlap_percent", "copy_overlapped_ns as a share of copy_ns"),
)


def _map(rank: Rank, _options: Options) -> Any:
    rows = []
    for work in device_activity(rank):
        row: dict[str, Any] = work.facts()
        under = intersection(work.communication, work.compute).total_ns
        copied = intersection(work.copies, union((work.compute, work.communication, work.meeting))).total_ns
        talk, copy = work.communication.total_ns, work.copies.total_ns
        times = (work.compute.total_ns, talk, under, talk - under, copy, copied, copy - copied)
        rows.append(row | dict(zip(_TIMES, times, strict=True)))
    return pa.Table.from_pylist(rows)


def _merge(parts: Sequence[Part], run: RunFacts, _options: Options) -> Answer:
    rows = device_rows(parts, run)
    hosts = {r.rank: r.host for r in run.ranks}
    for row in rows:
        row["host"] = hosts[row["rank"]]
        row["overlap_percent"] = _share(row["overlapped_ns"], row["communication_ns"])
        row["copy_overlap_percent"] = _share(row["copy_overlapped_ns"], row["copy_ns"])
    return Answer.of(rows, COLUMNS, tuple(class_notes(rows)))


def _share(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


QUESTION = Question(
    "overlap",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables=TABLES,
    chart=Chart(
        "stacked_bars",
        "rank",
        ("overlapped_ns", "exposed_ns"),
        detail="gpu",
        title="Communication under compute, and exposed",
    ),
    of_hosts=True,
    important=("rank", "overlap_percent", "exposed_ns", "gpu", "host", "communication_ns"),
)
