"""Per operation, count, datatype and bytes: how often that call was made."""

from __future__ import annotations

import pyarrow as pa

from alltrace.recipes.base import Answer, Chart
from alltrace.recipes.logs.nccl import NcclOptions, payload_bytes, size_rows, whole_numbers
from alltrace.run.nccl_logs import NcclLogs
from alltrace.trace import columns as col

COLUMNS = (
    col.text("op", "The operation"),
    col.whole("count", "Elements in the call's count: one rank's share for AllGather, ReduceScatter, AlltoAll"),
    col.text("datatype", "The type; NCCL up to 2.21 prints AllGather and Broadcast as int8 with the count in bytes"),
    col.size("bytes", "Count times the bytes of the datatype, exact; null for an unknown datatype"),
    col.whole("group_size", "Ranks of the communicator"),
    col.size("payload_bytes", "The size as nccl-tests counts it: bytes, times the ranks if the count is one rank's share"),
    col.whole("calls", "Calls over all ranks"),
    col.size("total_bytes", "Bytes times calls, exact"),
)
CHART = Chart("scatter", "bytes", ("calls",), "op", title="Calls by size", log_x=True, log_y=True)


def answer(logs: NcclLogs, options: NcclOptions) -> Answer:
    """One row per operation, count, datatype, bytes and group size; most bytes first."""
    calls: dict[tuple[str, int, str, int | None, int | None], int] = {}
    for row in size_rows(logs, options):
        key = row.op, row.count, row.datatype, row.bytes, logs.members[row.member].nranks
        calls[key] = calls.get(key, 0) + row.calls
    order = sorted(calls, key=lambda k: (-(k[3] or 0) * calls[k], k[0], k[1], k[2], k[4] or 0))
    table = pa.table(
        {
            "op": pa.array([k[0] for k in order], pa.string()),
            "count": pa.array([k[1] for k in order], pa.int64()),
            "datatype": pa.array([k[2] for k in order], pa.string()),
            "bytes": whole_numbers([k[3] for k in order]),
            "group_size": pa.array([k[4] for k in order], pa.int64()),
            "payload_bytes": whole_numbers([payload_bytes(k[0], k[3], k[4]) for k in order]),
            "calls": pa.array([calls[k] for k in order], pa.int64()),
            "total_bytes": whole_numbers([None if k[3] is None else k[3] * calls[k] for k in order]),
        }
    )
    return Answer(table, COLUMNS, logs.notes, chart=CHART)
