"""What the rules on copies and fills share: each with the call that launched it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.nsys.base import Cell
from alltrace.recipes.stats.cuda import MEMORY_LABELS, column, launches, look_up, numbers

if TYPE_CHECKING:
    from alltrace.recipes.base import RankTables

READS = {
    "copies": (
        "start", "end", "process", "device", "context", "green_context", "stream", "correlation", "kind", "bytes", "src_kind",
        "dst_kind", "src_device", "dst_device",
    ),
    "api": ("start", "process", "correlation", "name"),
}  # fmt: skip
PLACE = (
    Cell("Bytes", "bytes", "Size."),
    Cell("PID", "int", "Process id."),
    Cell("Device ID", "int", "CUDA ordinal of the GPU."),
    Cell("Context ID", "int", "CUDA context."),
    Cell("Green Context ID", "int", "CUDA green context."),
    Cell("Stream ID", "int", "CUDA stream."),
    Cell("API Name", "text", "Call that launched it."),
)
TIMES = (Cell("Duration", "ns", "How long it took on the GPU."), Cell("Start", "ns", "When it began."))


def launched(rank: RankTables) -> Any:
    """The copies and fills of a rank whose call is known: the columns of READS, and `call`, what launched it.

    One row each: where several rows of calls have its correlation id in its process, such as one for each version of a function's
    name, the first to start counts.
    """
    copies = rank.table("copies", READS["copies"])
    api = rank.table("api", READS["api"])
    copy, call = launches(copies, api)
    order = np.lexsort((call, numbers(api, "start")[call], copy))
    copy, call = copy[order], call[order]
    first = np.flatnonzero(np.diff(copy, prepend=-1))
    found = copies.take(pa.array(copy[first]))
    return found.append_column("call", rank.texts(column(api, "name").take(pa.array(call[first]))))


def like(names: Any, start: str) -> Any:
    """Whether each name begins with `start`, whatever the case; null is not."""
    return pc.fill_null(pc.starts_with(names, start, ignore_case=True), fill_value=False)


def is_async(names: Any) -> Any:
    """Whether each name of a call has `Async` in it."""
    return pc.fill_null(pc.match_substring(names, "Async", ignore_case=True), fill_value=False)


def is_kind(table: Any, name: str, *kinds: str) -> Any:
    """Whether a column of words is one of `kinds`; null is not."""
    return pc.is_in(column(table, name).cast(pa.string()), value_set=pa.array(kinds))


def place(rank: RankTables, found: Any) -> dict[str, Any]:
    """The columns of TIMES and PLACE for rows of `launched`."""
    green = column(found, "green_context").cast(pa.int64())
    return {
        "Duration": pc.subtract(column(found, "end"), column(found, "start")),
        "Start": column(found, "start"),
        "Bytes": column(found, "bytes"),
        "PID": look_up(rank.table("processes", ["process", "pid"]), "pid", column(found, "process")),
        "Device ID": look_up(rank.table("devices", ["device", "ordinal"]), "ordinal", column(found, "device")),
        "Context ID": column(found, "context").cast(pa.int64()),
        "Green Context ID": pc.if_else(pc.equal(green, 0), None, green),  # 0 is the whole context
        "Stream ID": column(found, "stream"),
        "API Name": column(found, "call"),
    }


def memory(found: Any, name: str) -> Any:
    """What nsys calls the kind of memory in a column of words."""
    words = column(found, name).cast(pa.string()).dictionary_encode()
    labels = pa.array([MEMORY_LABELS.get(w, w) for w in words.dictionary.to_pylist()], pa.string())
    return labels.take(words.indices)
