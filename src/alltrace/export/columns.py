"""Columns of event tables as arrays, for all exports."""

from typing import Any

import numpy as np

from alltrace.trace.arrays import Int64, integers

HOST_TABLES = ("api", "ranges", "marks", "mpi", "ucx", "osrt", "syscalls", "openacc", "openmp")
GPU_TABLES = ("kernels", "copies", "graphs")

UNKNOWN = -1
"""Marks a null thread, device, stream or name."""


def numbers(table: Any, column: str, null: int = UNKNOWN) -> Int64:
    return integers(table.column(column), null)


def words(table: Any, column: str) -> tuple[Int64, list[str]]:
    """A column of words as codes, `UNKNOWN` for null, and the words."""
    column_ = table.column(column).combine_chunks()
    indices = column_.indices.fill_null(UNKNOWN) if column_.null_count else column_.indices
    return indices.to_numpy(zero_copy_only=False).astype(np.int64), column_.dictionary.to_pylist()


def call_keys(processes: Int64, correlations: Int64) -> Int64:
    """One number for a process and a correlation; a call and its work share it."""
    keys: Int64 = (processes + 1) << np.int64(40) | (correlations & ((1 << 40) - 1))
    return keys
