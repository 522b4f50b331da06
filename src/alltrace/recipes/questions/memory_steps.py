"""Memory of each device from step to step: allocated at start, end and peak, and what outlives the next step.

A block that is allocated in a step and still exists after the end of the next one is not an activation: it is a
parameter, a state of the optimizer, or a leak. If memory grows in every step, a note reports it and names the
operator that allocated most of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.allocations import (
    ALLOCATIONS,
    MEMORY,
    POOL,
    Pool,
    RankSteps,
    owners_of,
    pool_notes,
    pools_of,
    steps_of,
    with_labels,
)
from alltrace.recipes.analysis.device_intervals import GPU, device_rows
from alltrace.recipes.analysis.operator_sums import FRAMES, RANGES, Nodes, Program
from alltrace.recipes.base import Answer, Chart, Options, Part, Question, RunFacts
from alltrace.run.rank import Rank
from alltrace.trace import columns as col

_LEAST_STEPS = 3


COLUMNS: col.Columns = (
    col.RANK,
    GPU,
    MEMORY,
    POOL,
    col.whole("step", "number of the step"),
    col.size("start_bytes", "allocated size at its start"),
    col.size("end_bytes", "allocated size at its end"),
    col.size("growth_bytes", "end_bytes less start_bytes"),
    col.size("peak_bytes", "largest allocated size in the step"),
    col.size("peak_reserved_bytes", "largest size that the allocator reserved in the step; null if unknown"),
    col.whole("allocations", "blocks allocated in the step"),
    col.size("handed_out_bytes", "total size of these blocks"),
    col.size(
        "outlived_bytes",
        "size of those still allocated at the end of the next step; null for the last step or without addresses",
    ),
    col.text("outlived_by", "the operator that allocated most of these bytes; null if there are none"),
)


def _map(rank: Rank, _options: Options) -> Any:
    steps, pools = steps_of(rank), pools_of(rank)
    if not len(steps.start) or not pools:
        return pa.Table.from_pylist([])
    nodes = Program.of(rank).nodes("operator")
    return pa.Table.from_pylist([row for pool in pools for row in _rows(pool, steps, nodes)])


def _merge(parts: Sequence[Part], run: RunFacts, _options: Options) -> Answer:
    rows = with_labels(device_rows(parts, run))
    notes = [*pool_notes([(r["rank"], r) for r in rows]), *_growing(rows)]
    if parts and not rows:
        notes.append("no steps were found in the run")
    table = col.table_of(rows, COLUMNS)
    return Answer(table, COLUMNS, tuple(notes))


def _rows(pool: Pool, steps: RankSteps, nodes: Nodes) -> Iterator[dict[str, Any]]:
    owner = owners_of(nodes, pool)
    first = np.searchsorted(pool.time, steps.start, "left")
    last = np.searchsorted(pool.time, steps.end, "left")
    freed = np.where(pool.partner >= 0, pool.time[pool.partner], np.iinfo(np.int64).max)
    for n, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        start = int(pool.allocated[low - 1]) if low else pool.before
        own = np.arange(low, high)
        handed_out = own[pool.size[own] >= 0]
        row: dict[str, Any] = {"outlived_bytes": None, "outlived_by": None}
        if n + 1 < len(steps.start) and pool.addressed:
            outlived = handed_out[freed[handed_out] >= steps.end[n + 1]]
            by = np.zeros(len(nodes.names) + 1, np.int64)
            np.add.at(by, owner[outlived], pool.size[outlived])
            row["outlived_bytes"] = int(pool.size[outlived].sum())
            if row["outlived_bytes"]:
                row["outlived_by"] = [*nodes.names, None][int(by.argmax())]
        end = int(pool.allocated[high - 1]) if high else pool.before
        reserved = int(pool.reserved[own].max()) if len(own) else int(pool.reserved[max(low - 1, 0)])
        yield {
            **pool.facts(),
            "step": int(steps.number[n]),
            "start_bytes": start,
            "end_bytes": end,
            "growth_bytes": end - start,
            "peak_bytes": max(start, int(pool.allocated[own].max(initial=start))),
            "peak_reserved_bytes": reserved if reserved > 0 else None,
            "allocations": len(handed_out),
            "handed_out_bytes": int(pool.size[handed_out].sum()),
            **row,
        }


def _growing(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The devices on which every step but the first, which makes states, ends with more than it began with."""
    devices: dict[tuple[int, str, str | None], list[Mapping[str, Any]]] = {}
    for row in rows:
        devices.setdefault((row["rank"], row["memory"], row["gpu"]), []).append(row)
    for (rank, memory, _), own in devices.items():
        later = own[1:]
        if len(later) >= _LEAST_STEPS and all(row["growth_bytes"] > 0 for row in later):
            grown = sum(row["growth_bytes"] for row in later)
            by: dict[str, int] = {}
            for row in later:
                if row["outlived_by"]:
                    by[row["outlived_by"]] = by.get(row["outlived_by"], 0) + row["outlived_bytes"]
            most = f", most of it allocated by {max(by, key=lambda n: (by[n], n))}" if by else ""
            yield (
                f"rank {rank}: memory of {memory} grows in each of {len(later)} steps, by "
                f"{grown / len(later) / 1e6:,.3f} MB a step{most}: a leak, if no step keeps something on purpose"
            )


QUESTION = Question(
    "memory-steps",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables={"allocations": ALLOCATIONS, "ranges": RANGES, "frames": FRAMES},
    requires=("allocations",),
    chart=Chart("lines", "step", ("peak_bytes", "end_bytes"), "pool", title="Memory from step to step"),
    clock="aligned",
    important=("rank", "step", "peak_bytes", "growth_bytes"),
)
