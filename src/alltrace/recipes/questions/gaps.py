"""The longest times in which a device did nothing, with the work that ended before and the work that started after.

A gap is between two pieces of work of one device: kernels, copies and graphs of all its streams. Time before the first
and after the last is not a gap, and time with possibly lost records is not either.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.device_intervals import GPU, device_rows
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, Reads, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.intervals import gaps, merge, overlap_ns

_SOURCES = {"kernels": "name", "copies": "kind", "graphs": None}

COLUMNS: col.Columns = (
    col.RANK,
    GPU,
    col.ns("start_ns", "start of the gap on the run's aligned clock"),
    col.ns("duration_ns", "its length"),
    col.text("before", "the last work that ended before it"),
    col.text("after", "the first work that started after it"),
)

READS: Reads = {
    "kernels": ("start", "end", "device", "name"),
    "copies": ("start", "end", "device", "kind"),
    "graphs": ("start", "end", "device"),
}


def _map(rank: Rank, options: Options) -> Any:
    start, end, device, labels, codes = _work(rank)
    rows: list[dict[str, Any]] = []
    unrecorded = rank.unrecorded()
    for number in np.unique(device).tolist():
        on = np.flatnonzero(device == number)
        open_ = gaps(merge(start[on], end[on]))
        recorded = overlap_ns(open_.starts, open_.ends, unrecorded) == 0
        long = np.flatnonzero(recorded & (open_.durations_ns >= max(options["min_ns"], 1)))
        if options["rows"]:
            long = long[np.argsort(-open_.durations_ns[long], kind="stable")][: options["rows"]]
        # of pieces that end or start together the longest is named, so that no order of rows matters
        by_end, by_start = on[np.lexsort((-start[on], end[on]))], on[np.lexsort((-end[on], start[on]))]
        last = by_end[np.searchsorted(end[by_end], open_.starts[long], "right") - 1]
        first = by_start[np.searchsorted(start[by_start], open_.ends[long], "left")]
        rows += [
            {"device": number, "start_ns": s, "duration_ns": d, "before": labels[codes[b]], "after": labels[codes[a]]}
            for s, d, b, a in zip(
                open_.starts[long].tolist(), open_.durations_ns[long].tolist(), last, first, strict=True
            )
        ]
    rows.sort(key=lambda g: (-g["duration_ns"], g["start_ns"]))
    return pa.Table.from_pylist(rows[: options["rows"] or None])


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    rows = device_rows(parts, run)
    rows.sort(key=lambda g: (-g["duration_ns"], g["start_ns"], g["rank"]))
    notes = (
        ()
        if rows or not parts
        else (f"no device was idle for {options['min_ns']:,} ns or more between two pieces of work",)
    )
    return Answer.of(rows[: options["rows"] or None], COLUMNS, notes)


def _work(rank: Rank) -> tuple[Any, Any, Any, list[str | None], Any]:
    """All GPU work of a rank: starts, ends, devices, and a label each as a code into a list."""
    starts, ends, devices, codes = [], [], [], []
    labels: list[str | None] = []
    for name, column in _SOURCES.items():
        table = rank.table(name, READS[name])
        starts.append(pc.fill_null(table.column("start"), 0).to_numpy())
        ends.append(pc.fill_null(table.column("end"), 0).to_numpy())
        devices.append(pc.fill_null(table.column("device"), -1).to_numpy())
        if column is None or not table.num_rows:
            codes.append(np.full(table.num_rows, len(labels)))
            labels.append("CUDA graph")
            continue
        encoded = table.column(column).combine_chunks()
        encoded = encoded if column == "kind" else encoded.dictionary_encode()
        words = encoded.dictionary if column == "kind" else rank.texts(encoded.dictionary)
        codes.append(encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False) + len(labels))
        labels += [*(f"copy {w}" if column == "kind" else w for w in words.to_pylist()), None]
    return np.concatenate(starts), np.concatenate(ends), np.concatenate(devices), labels, np.concatenate(codes)


QUESTION = Question(
    "gaps",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables=READS,
    options=(
        Option("min_ns", int, 100_000, "shortest gap to list, in ns", least=0),
        Option("rows", int, 50, "how many gaps to list, the longest first; 0 for all", least=0),
    ),
    chart=Chart("scatter", "start_ns", ("duration_ns",), "rank", detail="after", title="Idle times of devices"),
    clock="one",
    of_hosts=True,
    important=("rank", "duration_ns", "before", "after", "start_ns"),
)
