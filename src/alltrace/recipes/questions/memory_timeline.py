"""Memory of PyTorch's allocator on each device over time: the most allocated and reserved in bins of the run.

Bins are equal on all ranks, from the run's first event to its last. Each has the largest value of any moment in it, so
the peak is in one of them; bins before the first block of a device or after its last are left out.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.allocations import ALLOCATIONS, MEMORY, POOL, Pool, pool_notes, pools_of, with_labels
from alltrace.recipes.analysis.device_intervals import GPU, device_rows
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.intervals import bin_edges

COLUMNS: col.Columns = (
    col.RANK,
    GPU,
    MEMORY,
    POOL,
    col.ns("start_ns", "start of the bin on the run's aligned clock"),
    col.ns("end_ns", "its end"),
    col.size("allocated_bytes", "largest allocated size in the bin"),
    col.size("reserved_bytes", "largest size that the allocator had reserved in the bin; null if unknown"),
)


def _map(rank: Rank, options: Options) -> Any:
    first, last = options["span_ns"]
    edges = bin_edges(first, max(last, first) + 1, min(options["bins"], max(last - first, 0) + 1))
    return pa.Table.from_pylist([row for pool in pools_of(rank) for row in _bins(pool, edges)])


def _merge(parts: Sequence[Part], run: RunFacts, _options: Options) -> Answer:
    rows = with_labels(device_rows(parts, run))
    return Answer.of(rows, COLUMNS, tuple(pool_notes([(r["rank"], r) for r in rows])))


def _bins(pool: Pool, edges: Any) -> Iterator[dict[str, Any]]:
    """The bins from the first event on to the last; a moment has the value of the last event up to it."""
    place = np.clip(np.searchsorted(edges, pool.time, "right") - 1, 0, len(edges) - 2)
    used, first = np.unique(place, return_index=True)
    places = np.arange(place[0], place[-1] + 1)
    values = {}
    for name, own in (("allocated_bytes", pool.allocated), ("reserved_bytes", pool.reserved)):
        # what a bin begins with is what the event before it left
        most = own[np.searchsorted(place, places, "left") - 1]
        most[0] = own[0]
        inside = used - place[0]
        most[inside] = np.maximum(most[inside], np.maximum.reduceat(own, first))
        values[name] = most
    values["allocated_bytes"][0] = max(int(values["allocated_bytes"][0]), pool.before)
    facts = pool.facts()
    for at, allocated, reserved in zip(places.tolist(), *(v.tolist() for v in values.values()), strict=True):
        yield {
            **facts,
            "start_ns": int(edges[at]),
            "end_ns": int(edges[at + 1]),
            "allocated_bytes": allocated,
            "reserved_bytes": reserved if reserved > 0 else None,
        }


QUESTION = Question(
    "memory-timeline",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables={"allocations": ALLOCATIONS},
    options=(Option("bins", int, 240, "the number of bins into which to divide the run", least=1, most=100_000),),
    chart=Chart("lines", "start_ns", ("allocated_bytes", "reserved_bytes"), "pool", title="Memory over time"),
    clock="one",
    prepare=lambda options, run: {**options, "span_ns": run.span_ns},
    important=("rank", "start_ns", "allocated_bytes", "reserved_bytes"),
)
