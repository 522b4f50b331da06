"""What the reports of host runtimes share: statistics of calls by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import VALUE, group
from alltrace.trace.arrays import integers


def timed(calls: Any) -> Any:
    """The rows of a table with a start and an end, with the duration in ns as the column `value`."""
    calls = calls.append_column(VALUE, pc.subtract(calls.column("end"), calls.column("start")))
    return pc.filter(calls, pc.is_valid(calls.column(VALUE))) if calls.column(VALUE).null_count else calls


def whole_calls(events: Any) -> Any:
    """The MPI calls behind the rows of `mpi`: one row per call.

    A profiler writes a row for each request of a call that waits for several, and two for a send-receive. Such rows follow each
    other and have one thread, start, name and kind; the last ends when the call does.

    Args:
        events: Rows in the order of `mpi`, with `start`, `end`, `thread`, `name` and `kind`.
    """
    if not events.num_rows:
        return events
    calls, _ = group([events.column(c) for c in ("thread", "start", "name", "kind")])
    order = np.lexsort((integers(events.column("end")), calls))
    last = np.flatnonzero(np.diff(calls[order], append=-1))
    return pc.take(events, pa.array(np.sort(order[last])))
