"""MPI's communicators: who is in them, which of them a call is on, and so the size of its message.

A handle belongs to one process, and may be used again after the communicator was freed. A communicator that was made
by splitting is recorded with the world rank of its first member and that rank's count of communicators, which all
members share. Of a copy only its parent is recorded: the n-th copy of a communicator is the n-th on all its members.
"""

from collections import Counter
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.readers.nsys.columns import record_batch
from alltrace.readers.nsys.entities import TID_BITS, Entities
from alltrace.readers.nsys.small import small_rows, whole
from alltrace.readers.nsys.source import RawSource
from alltrace.trace.arrays import integers
from alltrace.trace.mpi_sizes import message_bytes
from alltrace.trace.names import name_id
from alltrace.trace.schema import TABLES

_COLUMNS = (
    "rank", "timestamp", "commHandle", "parentHandle", "localRank", "size", "groupRoot", "groupRootUid", "commUid",
    "members",
)  # fmt: skip
_NONE = -1
_ALWAYS = -(2**62)


class Communicators:
    """The communicators of an export; `ranks`: MPI_COMM_WORLD's rank by global id without the thread bits."""

    def __init__(self, source: RawSource, entities: Entities, ranks: dict[int, int]) -> None:
        self._source = source
        self._entities = entities
        self._ranks = ranks

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        """A row for each, in order of rank and creation, with `since`: the time from which its handle means it."""
        process_of_rank: dict[int | None, int] = {}
        for key, rank in self._ranks.items():
            process_of_rank.setdefault(rank, self._entities.process_row(key << TID_BITS))
        recorded = [
            dict(zip(_COLUMNS, values, strict=True))
            for values in small_rows(self._source, "MPI_COMMUNICATORS", *_COLUMNS)
        ]
        numbers = [{c: whole(row[c]) for c in _COLUMNS[:-1]} | {"members": row["members"]} for row in recorded]
        numbers.sort(key=lambda r: (_or(r["rank"], _NONE), _or(r["timestamp"], _ALWAYS)))
        latest: dict[tuple[Any, Any], dict[str, Any]] = {}
        copies: Counter[tuple[Any, str]] = Counter()
        rows: list[dict[str, Any]] = []
        for row in numbers:
            again = (row["rank"], row["commHandle"]) in latest
            parent = latest.get((row["rank"], row["parentHandle"]), {})
            identity = _identity(row, parent, copies)
            uid = row["commUid"]
            if uid is None and identity not in (None, "world"):
                uid = name_id(f"mpi {identity}")
            one = {
                "communicator": -1 - len(rows) if again else row["commHandle"],
                "uid": uid,
                "group_rank": _small(_or(row["localRank"], parent.get("group_rank"))),
                "size": _small(_or(row["size"], parent.get("size"))),
                "parent": parent.get("communicator", row["parentHandle"]),
                "members": None if row["members"] is None else str(row["members"]),
                "process": process_of_rank.get(row["rank"]),
                "handle": row["commHandle"],
                "since": _or(row["timestamp"], _ALWAYS) if again else _ALWAYS,
                "identity": identity,
            }
            latest[row["rank"], row["commHandle"]] = one
            rows.append(one)
        return rows

    def table(self) -> Any:
        """The dictionary `communicators`."""
        schema = TABLES["communicators"].arrow_schema()
        return pa.Table.from_pylist([{c: row[c] for c in schema.names} for row in self._rows], schema=schema)

    def completed(self, calls: Any) -> Any:
        """A batch of `mpi` with its communicators and the sizes of the messages of collectives."""
        collective = pc.any(pc.equal(calls.column("kind").cast("string"), "collective")).as_py()
        if not collective and not any(row["communicator"] != row["handle"] for row in self._rows):
            return calls
        columns = dict(zip(calls.schema.names, calls.columns, strict=True))
        handle = integers(calls.column("communicator"), _NONE)
        row = self._rows_of(handle, integers(calls.column("process"), _NONE), integers(calls.column("start"), 0))
        known = row >= 0
        again = known & (self._numbers("communicator")[row] != handle)
        if again.any():
            columns["communicator"] = pa.array(
                np.where(again, self._numbers("communicator")[row], handle), mask=handle == _NONE
            )
        if collective:
            ranks, place = (np.where(known, self._numbers(c)[row], _NONE) for c in ("size", "group_rank"))
            sent, received = (integers(calls.column(c), _NONE) for c in ("sent_bytes", "recv_bytes"))
            size = message_bytes(integers(calls.column("name"), _NONE), sent, received, ranks, place)
            columns["bytes"] = pa.array(size, mask=size < 0)
        return record_batch("mpi", columns, calls.num_rows)

    def _numbers(self, column: str) -> Any:
        """A column of the rows and, at the end, -1 for a communicator that is not recorded."""
        return np.array([*(_or(row[column], _NONE) for row in self._rows), _NONE], np.int64)

    def _rows_of(self, handle: Any, process: Any, start: Any) -> Any:
        """The row of each call's communicator, the last of its handle before the call; -1 if it is not recorded."""
        count = len(self._rows)
        keys = [
            np.concatenate((self._numbers(column)[:-1], own))
            for column, own in (("process", process), ("handle", handle), ("since", start))
        ]
        is_call = np.arange(len(keys[0])) >= count
        order = np.lexsort((is_call, keys[2], keys[1], keys[0]))
        before = np.maximum.accumulate(np.where(is_call[order], _NONE, np.arange(len(order))))
        row = np.full(len(order), _NONE, np.int64)
        row[order] = np.where(before < 0, _NONE, order[np.maximum(before, 0)])
        at = row[count:]
        return np.where((at >= 0) & (keys[0][at] == process) & (keys[1][at] == handle), at, _NONE)


def _identity(row: dict[str, Any], parent: dict[str, Any], copies: Counter[tuple[Any, str]]) -> str | None:
    """What names a communicator on all its members; None if nothing does."""
    if not row["parentHandle"]:
        return "world"
    if row["groupRoot"] is not None and row["groupRootUid"] is not None:
        return f"group {row['groupRootUid']} of rank {row['groupRoot']}"
    if row["size"] is not None or not parent.get("identity"):
        return None
    copies[row["rank"], parent["identity"]] += 1
    return f"copy {copies[row['rank'], parent['identity']]} of {parent['identity']}"


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


def _small(value: int | None) -> int | None:
    return value if value is not None and -(2**31) <= value < 2**31 else None
