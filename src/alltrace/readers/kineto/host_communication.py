"""Collectives of process groups that work on the host (Gloo, MPI, UCC), from the ranges that their threads write.

`gloo:all_reduce` is the work itself, on a thread of the backend: it starts when the rank has arrived, and ends with the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.core.kineto import NOTHING
from alltrace.readers.kineto.entities import Entities
from alltrace.readers.kineto.names import Names
from alltrace.readers.spool import record_batch

FIELDS = ("ts", "dur", "pid", "tid", "name", "dims", "types")
_CALL = re.compile(r"(gloo|mpi|ucc):(\w+)", re.IGNORECASE)
_MESSAGES = ("Send", "Recv")
_SHARED_OUT = "ReduceScatter"
"""Its input is the whole vector, of which a rank keeps a share."""


class HostCommunication:
    """Collects these ranges for `collectives`; not sends and receives, whose ranges do not say with whom."""

    def __init__(self, known: Names, operation: Callable[[str], str | None]) -> None:
        self._names = known
        self._operation = operation
        self._calls: list[Any] = []

    def add(self, block: Any, annotations: Any) -> None:
        """Take the ranges out of a block, of which `annotations` are the places of the program's own."""
        chosen = annotations[self._names.classes("host call", self._is_call, block["name"][annotations]) == 1]
        if len(chosen):
            self._calls.append(np.stack([block[f][chosen] for f in FIELDS]))

    def _is_call(self, name: str) -> int:
        found = _CALL.fullmatch(name)
        operation = self._operation(found[2]) if found else None
        return int(operation is not None and operation not in _MESSAGES)

    def batch(
        self, entities: Entities, zero_ns: int, group_of: Callable[[str], Any], type_of: Callable[[str], tuple[str, int] | None]
    ) -> Any:
        """The rows, or None; `group_of`: the only group of a backend, `type_of`: a type's standard name and bytes."""
        if not self._calls:
            return None
        calls = dict(zip(FIELDS, np.concatenate(self._calls, axis=1), strict=True))
        codes = zip(*(calls[f].tolist() for f in FIELDS[4:]), strict=True)
        rows = [self._about(name, dims, types, group_of, type_of) for name, dims, types in codes]
        start = calls["ts"] - zero_ns
        columns = {
            "start": start,
            "end": start + calls["dur"],
            "api_start": start,
            "api_end": start + calls["dur"],
            "process": np.zeros(len(rows), np.int32),
            "thread": entities.threads(calls["pid"], calls["tid"]),
            **{name: [row[name] for row in rows] for name in rows[0]},
            "evidence": pa.array(["trace"] * len(rows)).dictionary_encode(),
        }
        for name in ("communicator", "op", "datatype"):
            columns[name] = pa.array([self._names.add(t) if t is not None else None for t in columns[name]], pa.int64())
        return record_batch("collectives", columns)

    def _about(self, name: int, dims: int, types: int, group_of: Any, type_of: Any) -> dict[str, Any]:
        found = _CALL.fullmatch(self._names.text(name))
        operation = self._operation(found[2]) if found else None
        group = group_of(found[1].lower()) if found else None
        shapes, kinds = (_list(self._names.text(code) if code != NOTHING else "") for code in (dims, types))
        known = type_of(kinds[0]) if kinds and isinstance(kinds[0], str) else None
        shape = shapes[0] if shapes and isinstance(shapes[0], list) else None
        count = prod(shape) if shape is not None and all(isinstance(n, int) and 0 <= n < 2**31 for n in shape) else None
        if operation == _SHARED_OUT or count is None or count >= 2**59:
            count = None
        return {
            "communicator": group.identity if group else None,
            "op": operation,
            "bytes": count * known[1] if known and count is not None else None,
            "count": count,
            "datatype": known[0] if known else None,
            "group_size": group.size if group else None,
        }


def _list(text: str) -> list[Any]:
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []
