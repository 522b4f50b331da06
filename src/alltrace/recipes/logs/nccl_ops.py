"""Per operation: calls and message sizes."""

from __future__ import annotations

import pyarrow as pa

from alltrace.recipes.base import Answer, Chart
from alltrace.recipes.logs.nccl import NcclOptions, size_rows, whole_numbers
from alltrace.run.nccl_logs import NcclLogs
from alltrace.trace import columns as col

COLUMNS = (
    col.text("op", "The operation, as NCCL names it"),
    col.whole("calls", "Calls over all ranks, one for each rank that calls"),
    col.size("min_bytes", "The smallest call: count times the bytes of the datatype"),
    col.real("mean_bytes", "total_bytes divided by calls", "bytes"),
    col.size("max_bytes", "The largest call"),
    col.size("total_bytes", "The sum over all calls, exact"),
    col.whole("unknown_calls", "Calls with a datatype of unknown size; no column of bytes includes them"),
)
CHART = Chart("bars", "op", ("total_bytes",), title="Bytes of each operation")


def answer(logs: NcclLogs, options: NcclOptions) -> Answer:
    """One row per operation, by total bytes."""
    groups: dict[str, list[int]] = {}
    for row in size_rows(logs, options):
        # calls of known size, smallest, largest, total, calls of unknown size
        group = groups.setdefault(row.op, [0, -1, -1, 0, 0])
        if row.bytes is None:
            group[4] += row.calls
            continue
        group[0] += row.calls
        group[1] = row.bytes if group[1] < 0 else min(group[1], row.bytes)
        group[2] = max(group[2], row.bytes)
        group[3] += row.bytes * row.calls
    order = sorted(groups, key=lambda op: (-groups[op][3], op))
    its = [groups[op] for op in order]
    table = pa.table(
        {
            "op": pa.array(order, pa.string()),
            "calls": pa.array([g[0] + g[4] for g in its], pa.int64()),
            "min_bytes": whole_numbers([g[1] if g[0] else None for g in its]),
            "mean_bytes": pa.array([g[3] / g[0] if g[0] else None for g in its], pa.float64()),
            "max_bytes": whole_numbers([g[2] if g[0] else None for g in its]),
            "total_bytes": whole_numbers([g[3] if g[0] else None for g in its]),
            "unknown_calls": pa.array([g[4] for g in its], pa.int64()),
        }
    )
    return Answer(table, COLUMNS, logs.notes, chart=CHART)
