"""The dictionary that an export holds ready: CUDA streams."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from alltrace.readers.nsys.entities import Entities
from alltrace.readers.nsys.small import small_rows, whole
from alltrace.readers.nsys.source import RawSource
from alltrace.readers.nsys.strings import Strings
from alltrace.trace.schema import TABLES


def stream_table(source: RawSource, entities: Entities, strings: Strings) -> Any:
    """The dictionary `streams`: the streams of the processes that rows refer to."""
    rows_by_pid = entities.rows_by_pid()
    names: dict[tuple[Any, ...], str] = {}
    for pid, context, stream, name in small_rows(
        source, "TARGET_INFO_NVTX_CUDA_STREAM", "processId", "contextId", "streamId", "name"
    ):
        names.setdefault((whole(pid), whole(context), whole(stream)), name)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for *numbers, priority, flag in small_rows(
        source, "TARGET_INFO_CUDA_STREAM", "processId", "contextId", "streamId", "priority", "flag"
    ):
        pid, context, stream = map(whole, numbers)
        if pid not in rows_by_pid or stream is None:
            continue
        name = names.get((pid, context, stream))
        rows.setdefault(
            (pid, context, stream),
            {
                "process": rows_by_pid[pid],
                "context": _small(context),
                "stream": stream,
                "priority": _small(priority),
                "flag": _small(flag),
                "name": strings.add(str(name)) if name else None,
            },
        )
    return pa.Table.from_pylist(list(rows.values()), schema=TABLES["streams"].arrow_schema())


def _small(value: Any) -> int | None:
    number = whole(value)
    return number if number is not None and -(2**31) <= number < 2**31 else None
