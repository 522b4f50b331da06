"""Kernels with the calls that launched them, for the two reports of launch and execution times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.stats.cuda import kernel_columns, launches
from alltrace.recipes.analysis.lookups import column, look_up

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from alltrace.recipes.base import RankTables

KERNEL_TABLE = ("start", "end", "process", "device", "correlation", "name", "short_name", "mangled_name")
API_TABLE = ("start", "end", "process", "thread", "correlation", "name")


def executions(rank: RankTables, options: Mapping[str, Any], more: Sequence[str] = ()) -> tuple[Any, Any]:
    """The kernels with a known launch, together with their phases.

    Args:
        rank: The rank's tables.
        options: The options of the report.
        more: Further columns of `kernels` wanted.

    Returns:
        Rows of `kernels`; and a table of as many rows: `api_start`, `api_ns`, `queue_ns` (from the end of the call to the start
        of the kernel, null if the kernel started before), `kernel_start`, `kernel_ns`, `total_ns` (from the start of the call
        to the end of the call or the kernel, whichever is later), `api` (name id), `pid`, `tid`, `device` (CUDA ordinal).
    """
    wanted = ["start", "end", "process", "device", "correlation", *kernel_columns(options), *more]
    kernels, api = (_ended(rank.table(t, columns)) for t, columns in (("kernels", list(dict.fromkeys(wanted))), ("api", API_TABLE)))
    kernel, call = launches(kernels, api)
    kernels, api = _taken(kernels, kernel), _taken(api, call)
    api_start, api_end = column(api, "start").to_numpy(), column(api, "end").to_numpy()
    start, end = column(kernels, "start").to_numpy(), column(kernels, "end").to_numpy()
    queue = start - api_end
    phases = pa.table(
        {
            "api_start": api_start,
            "api_ns": api_end - api_start,
            "queue_ns": pa.array(queue, mask=queue < 0),
            "kernel_start": start,
            "kernel_ns": end - start,
            "total_ns": np.maximum(api_end, end) - api_start,
            "api": column(api, "name"),
            "pid": look_up(rank.table("processes"), "pid", column(api, "process")),
            "tid": look_up(rank.table("threads"), "tid", column(api, "thread")),
            "device": pc.cast(look_up(rank.table("devices"), "ordinal", column(kernels, "device")), pa.int64()),
        }
    )
    return kernels, phases


def _taken(table: Any, rows: NDArray[np.int64]) -> Any:
    """The rows of a table in another order, or itself where these are all of them as they are."""
    if len(rows) == table.num_rows and (rows == np.arange(len(rows))).all():
        return table
    return table.take(pa.array(rows))


def _ended(events: Any) -> Any:
    """The events with a known end; a damaged report lacks the end of others."""
    ends = events.column("end")
    return events.filter(ends.is_valid()) if ends.null_count else events
