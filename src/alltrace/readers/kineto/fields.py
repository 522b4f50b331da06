"""Which members of an event are read, under which names profilers wrote them over the years, and where the scanner puts them."""

from __future__ import annotations

from typing import Any

import numpy as np

from alltrace.readers.kineto.scanner import INSIDE, NUMBER, RAW, TEXT, TIME, TRIPLE, fingerprint

_EVENT: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("ph", TEXT, ("ph",)),
    ("cat", TEXT, ("cat",)),
    ("name", TEXT, ("name",)),
    ("pid", NUMBER, ("pid",)),
    ("tid", NUMBER, ("tid",)),
    ("ts", TIME, ("ts",)),
    ("dur", TIME, ("dur",)),
)
_ARGUMENTS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("external", NUMBER, ("External id", "external id")),
    ("correlation", NUMBER, ("correlation",)),
    ("device", NUMBER, ("device",)),
    ("context", NUMBER, ("context",)),
    ("stream", NUMBER, ("stream",)),
    ("bytes", NUMBER, ("bytes",)),
    ("registers", NUMBER, ("registers per thread",)),
    ("shared", NUMBER, ("shared memory",)),
    ("grid", TRIPLE, ("grid",)),
    ("block", TRIPLE, ("block",)),
    ("graph", NUMBER, ("graph id",)),
    ("graph_node", NUMBER, ("graph node id",)),
    ("event", NUMBER, ("wait_on_cuda_event_id", "cuda_event_id")),
    ("label", TEXT, ("name",)),
    ("kind", TEXT, ("kind",)),
    ("dims", RAW, ("Input Dims", "Input dims")),
    ("types", RAW, ("Input type",)),
    ("values", RAW, ("Concrete Inputs",)),
    ("hierarchy", TEXT, ("Module Hierarchy",)),
    ("stack", TEXT, ("Call stack",)),
    ("autograd", NUMBER, ("Sequence number",)),
    ("collective", TEXT, ("Collective name",)),
    ("dtype", TEXT, ("dtype",)),
    ("in_count", NUMBER, ("In msg nelems", "In msg size")),
    ("out_count", NUMBER, ("Out msg nelems", "Out msg size")),
    ("group_size", NUMBER, ("Group size", "Group Size")),
    ("group", TEXT, ("Process Group Name",)),
    ("members", TEXT, ("Process Group Ranks",)),
    ("sequence", NUMBER, ("Seq", "seq", "Sequence Number")),
    ("source", NUMBER, ("Src Rank",)),
    ("target", NUMBER, ("Dst Rank",)),
    ("rank", NUMBER, ("Rank",)),
    ("root", NUMBER, ("Root", "Root Rank")),
)
_SLOTS = 128


def _placed() -> dict[str, int]:
    at: dict[str, int] = {}
    place = 0
    for name, kind, _ in (*_EVENT, *_ARGUMENTS):
        at[name] = place
        place += 3 if kind == TRIPLE else 1
    return at


COLUMNS = _placed()
"""Field to its row in the scanner's table; `grid` and `block` take three."""

ROWS = sum(3 if kind == TRIPLE else 1 for _, kind, _ in (*_EVENT, *_ARGUMENTS))


def key_tables() -> tuple[Any, Any, Any]:
    """The scanner's `keys`, `kinds` and `columns`."""
    keys, kinds, columns = np.zeros(2 * _SLOTS, np.uint64), np.zeros(2 * _SLOTS, np.int64), np.zeros(2 * _SLOTS, np.int64)

    def put(level: int, key: str, kind: int, column: int) -> None:
        value = fingerprint(key.encode())
        slot = value & (_SLOTS - 1)
        while keys[level * _SLOTS + slot]:
            slot = (slot + 1) & (_SLOTS - 1)
        at = level * _SLOTS + slot
        keys[at], kinds[at], columns[at] = value, kind, column

    put(0, "args", INSIDE, 0)
    for level, fields in enumerate((_EVENT, _ARGUMENTS)):
        for name, kind, known_as in fields:
            for key in known_as:
                put(level, key, kind, COLUMNS[name])
    return keys, kinds, columns
