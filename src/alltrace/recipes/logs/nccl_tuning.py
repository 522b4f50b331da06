"""Which algorithm and protocol NCCL chose for which size."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from alltrace.recipes.base import Answer
from alltrace.recipes.logs.nccl import NcclOptions, refuse_a_choice
from alltrace.recipes.logs.nccl_topology import communicator_names
from alltrace.run.nccl_logs import NcclLogs
from alltrace.trace import columns as col

COLUMNS = (
    col.text("communicator", "The communicator; null if the log does not show it"),
    col.text("op", "The operation; empty in NCCL 2.20 to 2.22, which do not print it"),
    col.size("bytes", "The size of the call"),
    col.text("algorithm", "TREE, RING, NVLS, ..., or the kernel's name if NCCL prints that"),
    col.text("protocol", "LL, LL128 or SIMPLE; empty if a kernel is named"),
    col.whole("channels", "Channels used, from NCCL 2.24 on"),
    col.whole("choices", "How often it was chosen; only rank 0 of a communicator prints it"),
)


def answer(logs: NcclLogs, options: NcclOptions) -> Answer:
    """One row per communicator, operation, size and choice, by size."""
    refuse_a_choice("tuning", options)
    chosen: Counter[tuple[str | None, str, int, str, str, int | None]] = Counter()
    for log, part in enumerate(logs.parts):
        name = communicator_names(logs, log)
        for (process, number, op, size, algorithm, protocol, channels), times in part.records.tuning.items():
            chosen[name(process, number), op, size, algorithm, protocol, channels] += times
    order = sorted(chosen, key=lambda k: (k[0] or "", k[1], k[2], k[3], k[4], k[5] or 0))
    table = pa.table(
        {
            "communicator": pa.array([k[0] for k in order], pa.string()),
            "op": pa.array([k[1] for k in order], pa.string()),
            "bytes": pa.array([k[2] for k in order], pa.int64()),
            "algorithm": pa.array([k[3] for k in order], pa.string()),
            "protocol": pa.array([k[4] for k in order], pa.string()),
            "channels": pa.array([k[5] for k in order], pa.int64()),
            "choices": pa.array([chosen[k] for k in order], pa.int64()),
        }
    )
    notes = list(logs.notes)
    if not order:
        notes.append("no record describes choices; log with NCCL_DEBUG_SUBSYS=INIT,TUNING and NCCL 2.20 or later")
    return Answer(table, COLUMNS, tuple(notes))
