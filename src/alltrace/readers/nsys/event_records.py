"""The call that recorded the CUDA event of a wait."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.readers.nsys.columns import as_integers, record_batch
from alltrace.readers.nsys.entities import Entities
from alltrace.readers.nsys.mapping import find_table
from alltrace.readers.nsys.small import raw_type
from alltrace.readers.nsys.source import RawSource
from alltrace.trace.arrays import integers

_COLUMNS = ("globalPid", "eventId", "correlationId", "streamId")
_NONE = -1


class EventRecords:
    """The calls that recorded CUDA events, from an export with the events' ids."""

    def __init__(self, source: RawSource, entities: Entities) -> None:
        self._source = source
        self._entities = entities
        table = find_table(source.tables, "CUPTI_ACTIVITY_KIND_CUDA_EVENT")
        self.table = table if table is not None and set(_COLUMNS) <= set(source.tables[table]) else None
        """The table of the export that they are read from; None if there is none."""

    def joined(self, waits: Any) -> Any:
        """A batch of `syncs` with `record_correlation` and `record_stream`.

        A wait refers to the last record of its event before it. CUPTI numbers the calls of a process as they begin, so
        this is the record with the largest correlation below the wait's.
        """
        if self.table is None or waits.column("event").null_count == waits.num_rows:
            return waits
        process, event, correlation, stream = self._records
        count = len(process)
        own = [integers(waits.column(c), _NONE) for c in ("process", "event", "correlation")]
        keys = [np.concatenate(pair) for pair in zip((process, event, correlation), own, strict=True)]
        is_wait = np.arange(len(keys[0])) >= count
        order = np.lexsort((is_wait, keys[2], keys[1], keys[0]))
        before = np.maximum.accumulate(np.where(is_wait[order], _NONE, np.arange(len(order))))
        last = np.full(len(order), _NONE)
        last[order] = np.where(before < 0, _NONE, order[np.maximum(before, 0)])
        last = last[count:]
        recorded = (last >= 0) & (own[1] >= 0) & (own[2] >= 0)
        at = np.where(recorded, last, 0)
        if not recorded.any():
            return waits
        recorded &= (process[at] == own[0]) & (event[at] == own[1])
        columns = dict(zip(waits.schema.names, waits.columns, strict=True))
        columns["record_correlation"] = pa.array(correlation[at], mask=~recorded)
        columns["record_stream"] = pa.array(stream[at], mask=~recorded)
        return record_batch("syncs", columns, waits.num_rows)

    @cached_property
    def _records(self) -> list[Any]:
        """Process, event, correlation and stream of each record: int64 arrays."""
        table = str(self.table)
        types = self._source.tables[table]
        parts: list[list[Any]] = [[np.zeros(0, np.int64)] for _ in _COLUMNS]
        for batch in self._source.batches(table, {c: raw_type(types[c]) for c in _COLUMNS}):
            columns = [as_integers(batch.column(c)) for c in _COLUMNS]
            columns[0] = self._entities.process_rows(columns[0])
            for part, column in zip(parts, columns, strict=True):
                part.append(integers(column, _NONE))
        return [np.concatenate(part) for part in parts]
