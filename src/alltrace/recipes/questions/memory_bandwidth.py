"""How fast copies and fills moved data, by direction, over each device's copies or over time.

The rate while copying is the bytes by the time in which at least one copy of the direction ran; the peak is the largest
sum of the rates of copies that ran at once, each at its own mean rate.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.device_intervals import GPU, device_rows
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, Reads, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.arrays import integers
from alltrace.trace.intervals import bin_coverage_ns, bin_edges, merge

COLUMNS: col.Columns = (
    col.RANK,
    GPU,
    col.text("kind", "direction, such as HtoD, or memset"),
    col.ns("start_ns", "start of the bin on the run's aligned clock"),
    col.ns("span_ns", "its length"),
    col.whole("copies", "copies that start in it"),
    col.size("moved_bytes", "bytes moved in it, spread evenly over each copy"),
    col.ns("busy_ns", "time in which at least one of them ran"),
    col.real("busy_gb_per_s", "moved_bytes divided by busy_ns", "GB/s", 3),
    col.real("span_gb_per_s", "moved_bytes divided by span_ns", "GB/s", 3),
    col.real("peak_gb_per_s", "largest total rate of concurrent copies", "GB/s", 3),
)

READS: Reads = {"copies": ("start", "end", "device", "kind", "bytes")}


def _map(rank: Rank, options: Options) -> Any:
    table = rank.table("copies", READS["copies"])
    start = integers(table.column("start"))
    end = np.maximum(integers(table.column("end")), start)
    device, size = integers(table.column("device"), -1), np.maximum(integers(table.column("bytes")), 0)
    kind = np.array(table.column("kind").cast(pa.string()).fill_null("unknown").to_pylist(), object)
    rows = []
    for number in np.unique(device).tolist():
        for direction in sorted(set(kind[device == number])):
            mine = np.flatnonzero((device == number) & (kind == direction))
            rates = _rates(start[mine], end[mine], size[mine], options["bins"])
            rows += [{"device": number, "kind": direction, **row} for row in rates]
    return pa.Table.from_pylist(rows)


def _merge(parts: Sequence[Part], run: RunFacts, _options: Options) -> Answer:
    rows = device_rows(parts, run)
    for row in rows:
        moved = row["moved_bytes"]
        row["moved_bytes"] = round(moved)
        row["busy_gb_per_s"] = moved / row["busy_ns"] if row["busy_ns"] else None
        row["span_gb_per_s"] = moved / row["span_ns"] if row["span_ns"] else None
    return Answer.of(rows, COLUMNS)


def _rates(start: Any, end: Any, size: Any, bins: int) -> Iterator[dict[str, Any]]:
    """What copies of one direction moved in each part of their time; those that took no time count at their start."""
    low, high = int(start.min()), int(end.max())
    if high <= low:
        whole = float(size.sum())
        yield {
            "start_ns": low,
            "span_ns": 0,
            "copies": len(start),
            "moved_bytes": whole,
            "busy_ns": 0,
            "peak_gb_per_s": None,
        }
        return
    edges = bin_edges(low, high, min(bins, high - low))
    long = end > start
    rate = np.where(long, size / np.maximum(end - start, 1), 0.0)
    # the rate of all copies together changes where one starts or ends; sums of floats in order of time, so no order of
    # rows matters
    points = np.concatenate((start, end))
    changes = np.concatenate((rate, -rate))
    order = np.lexsort((changes, points))
    times, first = np.unique(points[order], return_index=True)
    total = np.maximum(np.cumsum(np.add.reduceat(changes[order], first)), 0.0)
    total[-1] = 0.0
    moved = np.concatenate(([0.0], np.cumsum(total[:-1] * np.diff(times))))
    at_edges = np.interp(edges, times, moved)
    # add what the running sum loses by rounding, so that the total is exact
    at_edges *= (float(size[long].sum()) / moved[-1]) if moved[-1] else 1.0
    covered = bin_coverage_ns(merge(start, end), edges)
    place = np.minimum(np.searchsorted(edges, start, "right") - 1, len(edges) - 2)
    counts = np.bincount(place, minlength=len(edges) - 1)
    at_once = np.bincount(place[~long], size[~long].astype(np.float64), len(edges) - 1)
    at_edge = total[np.searchsorted(times, edges[:-1], "right") - 1]
    inside = np.searchsorted(times, edges, "left")
    for n in range(len(edges) - 1):
        within = total[inside[n] : inside[n + 1]]
        yield {
            "start_ns": int(edges[n]),
            "span_ns": int(edges[n + 1] - edges[n]),
            "copies": int(counts[n]),
            "moved_bytes": float(at_edges[n + 1] - at_edges[n] + at_once[n]),
            "busy_ns": int(covered[n]),
            "peak_gb_per_s": max(float(at_edge[n]), float(within.max(initial=0.0))),
        }


QUESTION = Question(
    "memory-bandwidth",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables=READS,
    requires=("copies",),
    options=(Option("bins", int, 1, "number of equal time bins per direction, one row each", least=1, most=100_000),),
    chart=Chart("lines", "start_ns", ("span_gb_per_s", "peak_gb_per_s"), "kind"),
    clock="one",
    important=("rank", "kind", "busy_gb_per_s", "moved_bytes"),
)
