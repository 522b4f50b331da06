"""A flame graph: the nested ranges of many threads and ranks, those with the same chain of names added up."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alltrace.run.rank import Piece, Rank
from alltrace.tiles.cancel import WANTED, Token
from alltrace.tiles.events import EventReader
from alltrace.tiles.tracks import integers, intervals
from alltrace.trace.arrays import Int64
from alltrace.trace.names import name_id
from alltrace.trace.nesting import nest

KINDS = ("ranges", "operators", "stacks")
"""What a flame graph may be of: all ranges that the program pushed, PyTorch's operators among them, Python
functions."""

MOST_NODES = 3000
_OPERATOR = name_id("cpu_op")
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Nested(NamedTuple):
    """Nested intervals of a rank: arrays of n, by row."""

    start: Int64  # int64, aligned ns
    end: Int64  # int64
    thread: Int64  # int64
    name: Int64  # int64 ids
    parent: Int64  # int64, the place in these arrays of the one that encloses it; -1 for none
    depth: Int64  # int64, 0 for those without a parent


# `start`: from, aligned ns; time outside is not counted.
class Flame:
    """Sums by chain of names, over as many ranks as are added."""

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        self._parts: list[tuple[NDArray[Any], ...]] = []

    def add(self, nested: Nested, threads: Collection[int] | None = None) -> None:
        """Count the intervals of a rank, each by its part within the time; only of `threads`, if given."""
        keep = (nested.start < self._end) & (nested.end > self._start)
        if threads is not None:
            keep &= np.isin(nested.thread, np.array(sorted(threads), np.int64))
        if not keep.any():
            return
        length = np.where(keep, np.minimum(nested.end, self._end) - np.maximum(nested.start, self._start), 0)
        has = keep & (nested.parent >= 0)
        inner = np.zeros(len(length), np.int64)
        np.add.at(inner, nested.parent[has], length[has])
        path, above = _paths(nested)
        keys, first, which = np.unique(path[keep], return_index=True, return_inverse=True)
        at = np.flatnonzero(keep)[first]
        sums = []
        # those of several domains may overlap, so their total can be longer than the enclosing interval
        for values in (length, np.maximum(length - inner, 0), keep.astype(np.int64)):
            total = np.zeros(len(keys), np.int64)
            np.add.at(total, which, values[keep])
            sums.append(total)
        self._parts.append((keys, above[at], nested.name[at], *sums))

    def nodes(self) -> dict[str, Any]:
        """The sums as a tree."""
        # Returns lists by node, a parent before its children and the longest child first: `name` (ids), `parent`
        # (number of the node, -1 for none), `total_ns`, `self_ns`, `count`; and `left_out`, how many of the shortest
        # are omitted.
        if not self._parts:
            return {"name": [], "parent": [], "total_ns": [], "self_ns": [], "count": [], "left_out": 0}
        path, above, name, *values = (np.concatenate([p[i] for p in self._parts]) for i in range(6))
        keys, first, which = np.unique(path, return_index=True, return_inverse=True)
        sums = []
        for value in values:
            total = np.zeros(len(keys), np.int64)
            np.add.at(total, which, value)
            sums.append(total)
        above, name, total = above[first], name[first], sums[0]
        parent = np.searchsorted(keys, above)
        parent = np.where((parent < len(keys)) & (keys[np.minimum(parent, len(keys) - 1)] == above), parent, -1)
        largest = np.argsort(-total, kind="stable")[:MOST_NODES]
        children: dict[int, list[int]] = {}
        among = set(largest.tolist())
        for node in largest.tolist():
            up = int(parent[node])
            children.setdefault(up if up in among else -1, []).append(node)
        order: list[int] = []
        number: dict[int, int] = {}
        stack = list(reversed(children.get(-1, [])))
        while stack:
            node = stack.pop()
            number[node] = len(order)
            order.append(node)
            stack.extend(reversed(children.get(node, [])))
        return {
            "name": name[order].tolist(),
            "parent": [number.get(int(parent[n]), -1) for n in order],
            **{key: values[order].tolist() for key, values in zip(("total_ns", "self_ns", "count"), sums, strict=True)},
            "left_out": len(keys) - len(order),
        }


def _paths(nested: Nested) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """A key of each interval's chain of names, and that of its parent, 0 for none."""
    path = _mixed(np.zeros(len(nested.name), np.uint64), nested.name)
    above = np.zeros(len(path), np.uint64)
    for depth in range(1, int(nested.depth.max(initial=0)) + 1):
        own = np.flatnonzero((nested.depth == depth) & (nested.parent >= 0))
        above[own] = path[nested.parent[own]]
        path[own] = _mixed(above[own], nested.name[own])
    return path, above


def _mixed(above: NDArray[np.uint64], names: Int64) -> NDArray[np.uint64]:
    mixed = (above ^ (above >> np.uint64(29))) * _MIX + names.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _MIX
    return np.maximum(mixed ^ (mixed >> np.uint64(28)), np.uint64(1))  # 0 means none


def nested_in(reader: EventReader, rank: int, kind: str, start: int, end: int, token: Token = WANTED) -> Nested | None:
    """The nested intervals of a rank that overlap [start, end), aligned ns; None if it has none."""
    stored = reader.rank(rank)
    if kind == "stacks":
        parts = _decoded(reader, stored, "frames", start, end, token)
        return _nested(parts) if parts else None
    parts = _decoded(reader, stored, "ranges", start, end, token)
    if kind == "operators":
        parts = [tuple(a[p[4] == _OPERATOR] for a in p) for p in parts]
    return _nested(parts) if parts else None


def _decoded(
    reader: EventReader, stored: Rank, table: str, start: int, end: int, token: Token
) -> list[tuple[NDArray[Any], ...]]:
    parts = []
    for piece in stored.pieces(table):
        if (piece.start_ns is None or piece.start_ns < end) and (piece.end_ns is None or piece.end_ns >= start):
            token.check()

            def make(piece: Piece = piece) -> tuple[NDArray[Any], ...]:
                return _columns(reader, stored, table, piece)

            part = reader.cached((stored.rank, table, piece.group, "nested"), make, lambda p: sum(a.nbytes for a in p))
            inside = (part[0] < end) & (part[1] > start)
            parts.append(part if inside.all() else tuple(a[inside] for a in part))
    return [p for p in parts if len(p[0])]


def _columns(reader: EventReader, stored: Rank, table: str, piece: Piece) -> tuple[NDArray[Any], ...]:
    more = ["domain", "kind"] if table == "ranges" else []
    rows = stored.piece(table, piece.group, ["start", "end", "thread", "name", *more])
    starts, ends = intervals(rows, reader.run.span_ns[1] if table == "ranges" else None)
    thread, name = integers(rows, "thread"), integers(rows, "name")
    if not more:
        return starts, ends, thread, name, np.zeros(len(starts), np.int64)
    pushed = rows.column("kind").combine_chunks()
    words = pushed.dictionary.to_pylist()
    nests = pushed.indices.fill_null(-1).to_numpy(zero_copy_only=False) == (
        words.index("pushpop") if "pushpop" in words else -2
    )
    domain = integers(rows, "domain")
    return tuple(a if nests.all() else a[nests] for a in (starts, ends, thread, name, domain))


def _nested(parts: Sequence[tuple[NDArray[Any], ...]]) -> Nested:
    start, end, thread, name, _ = (np.concatenate([p[i] for p in parts]) for i in range(5))
    depth, parent = nest(thread, start, end)
    return Nested(start, end, thread, name, parent, depth)
