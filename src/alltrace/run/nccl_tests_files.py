"""The output of nccl-tests as a table, for questions that hold a run against it."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from alltrace.run.log_files import read_files
from alltrace.run.nccl_logs import expand
from alltrace.trace.errors import InputError
from alltrace.trace.nccl_words import standard_datatype

_OPS = {
    "allreduce": "AllReduce", "allgather": "AllGather", "reducescatter": "ReduceScatter", "alltoall": "AllToAll",
    "broadcast": "Broadcast", "bcast": "Broadcast", "reduce": "Reduce", "gather": "Gather", "scatter": "Scatter",
    "sendrecv": "SendRecv",
}  # fmt: skip


def read_tests_table(names: str) -> Any:
    """The rows of all runs in some files of nccl-tests.

    `names`: files, folders and patterns, with commas between them. Returns a `pyarrow.Table` with `run`, `op` (null
    for a program that is not known), `ranks` (of a group), `size_bytes` (as nccl-tests counts it), `datatype`,
    `time_ns` and `busbw_gb_per_s` (out of place, or in place where only that was measured). Raises `InputError`: a
    file cannot be read, or none has a table.
    """
    import pyarrow as pa

    from alltrace.readers.nccl_tests.read import read_tests

    files = read_files(read_tests, expand([n.strip() for n in names.split(",") if n.strip()])).require_any().results
    rows = []
    for file in files:
        for run in file.runs:
            groups = [group for _rank, group, *_rest in run.ranks]
            ranks = max((groups.count(g) for g in set(groups)), default=None)
            plain = (run.program or "").lower().removesuffix("_perf").replace("_", "").replace("-", "")
            for row in run.rows:
                half = row.out_of_place or row.in_place
                if half is None or half.time_us <= 0:
                    continue
                rows.append(
                    {
                        "run": PurePath(file.path).name if len(file.runs) == 1 else f"{PurePath(file.path).name}#{run.number}",
                        "op": _OPS.get(plain),
                        "ranks": ranks,
                        "size_bytes": row.size,
                        "datatype": standard_datatype(row.datatype or ""),
                        "time_ns": half.time_us * 1e3,
                        "busbw_gb_per_s": half.busbw,
                    }
                )
    if not rows:
        raise InputError(
            names, found="no table of nccl-tests in it", expected="the output of all_reduce_perf or another program of nccl-tests"
        )
    fields = [
        ("run", pa.string()),
        ("op", pa.string()),
        ("ranks", pa.int64()),
        ("size_bytes", pa.int64()),
        ("datatype", pa.string()),
    ]
    return pa.Table.from_pylist(rows, pa.schema([*fields, ("time_ns", pa.float64()), ("busbw_gb_per_s", pa.float64())]))
