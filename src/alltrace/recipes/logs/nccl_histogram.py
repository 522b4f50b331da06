"""Calls by classes of message size, for each rank and for all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

import pyarrow as pa

from alltrace.recipes.base import Answer, Chart
from alltrace.recipes.logs.nccl import NcclOptions, rank_of, size_rows, whole_numbers
from alltrace.run.nccl_logs import NcclLogs
from alltrace.trace import columns as col
from alltrace.trace.errors import UsageError

PRESETS: dict[str, tuple[int, ...]] = {
    "four": (64 << 10, 1 << 20, 16 << 20),
    "powers": tuple(1 << n for n in range(10, 41, 2)),
}
"""Lower edges in bytes of the classes after the first. `four` is <64 KiB, 64 KiB-1 MiB, 1-16 MiB and from 16 MiB on."""

COLUMNS = (
    col.whole("rank", "The rank, or null for all ranks together"),
    col.text("process", "Its `host:pid`, or null for all"),
    col.text("op", "The operation"),
    col.size("from_bytes", "Lower bound of the size class, inclusive"),
    col.size("to_bytes", "Upper bound, exclusive; null for the last class"),
    col.whole("calls", "Calls with a size in the class"),
    col.size("total_bytes", "Their bytes, exact"),
)
CHART = Chart("histogram", "from_bytes", ("calls",), "op", title="Calls by size", where=("process", None))


def parse_edges(text: str | None) -> tuple[int, ...] | None:
    """`64K,1M,16M` as bytes (powers of 1024); None for None. Raises `UsageError`: it is not a rising list of sizes."""
    if text is None:
        return None
    edges = []
    for part in text.split(","):
        number = part.strip().upper().removesuffix("B").removesuffix("I")
        unit = {"K": 10, "M": 20, "G": 30, "T": 40}.get(number[-1:], 0)
        digits = number[:-1] if unit else number
        if not digits.isdigit() or len(digits) > 15 or not digits.isascii():
            raise UsageError(f"--edges is {text!r}; expected rising sizes such as 64K,1M,16M")
        edges.append(int(digits) << unit)
    if edges != sorted(set(edges)) or edges[0] == 0:
        raise UsageError(f"--edges is {text!r}; expected rising sizes above 0 such as 64K,1M,16M")
    return tuple(edges)


def answer(logs: NcclLogs, options: NcclOptions) -> Answer:
    """One row per rank, operation and class that has calls; the rows of all ranks together come first."""
    edges = options.edges or PRESETS[options.preset]
    calls: Counter[tuple[int | None, str | None, str, int]] = Counter()
    total: Counter[tuple[int | None, str | None, str, int]] = Counter()
    for row in size_rows(logs, options):
        if row.bytes is None:
            continue
        size_class = bisect_right(edges, row.bytes)
        process = logs.members[row.member].process
        for key in ((None, None, row.op, size_class), (rank_of(logs, row.member), process, row.op, size_class)):
            calls[key] += row.calls
            total[key] += row.bytes * row.calls
    order = sorted(calls, key=lambda k: (k[1] is not None, -1 if k[0] is None else k[0], k[1] or "", k[2], k[3]))
    lower = (0, *edges)
    table = pa.table(
        {
            "rank": pa.array([k[0] for k in order], pa.int64()),
            "process": pa.array([k[1] for k in order], pa.string()),
            "op": pa.array([k[2] for k in order], pa.string()),
            "from_bytes": pa.array([lower[k[3]] for k in order], pa.int64()),
            "to_bytes": pa.array([edges[k[3]] if k[3] < len(edges) else None for k in order], pa.int64()),
            "calls": pa.array([calls[k] for k in order], pa.int64()),
            "total_bytes": whole_numbers([total[k] for k in order]),
        }
    )
    return Answer(table, COLUMNS, logs.notes, chart=CHART)
