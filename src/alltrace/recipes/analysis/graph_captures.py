"""Kernels of replayed graphs, and the calls that launched them while the graph was captured.

A replay is one call that starts many kernels. The operators, modules and lines of the program were around the launches
of the capture, which ran nothing by themselves. If a trace has both, kernel and launch are joined by their order: nodes
of a graph are numbered as they are made, which is the order of the launches.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from alltrace.recipes.analysis.launched_work import KERNEL, GpuWork
from alltrace.recipes.execution.shared_tables import once
from alltrace.run.collecting import in_pieces, whole_columns
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Flags, Int64, integers
from alltrace.trace.distinct import distinct, rows_by

_OTHER, _BEGIN, _END, _LAUNCH, _REPLAY = range(5)
_ROLES = (
    (_BEGIN, re.compile(r"(cuda|cu|hip)(Thread)?StreamBeginCapture")),
    (_END, re.compile(r"(cuda|cu|hip)(Thread)?StreamEndCapture")),
    (_REPLAY, re.compile(r"(cuda|cu|hip)GraphLaunch")),
    (_LAUNCH, re.compile(r"(cuda|cu|hip)\w*Launch\w*Kernel")),
)
_BLIT = re.compile(r"__amd_rocclr_(copy|fill)")
"""Kernels by which ROCm fills and copies: a capture has calls that fill and copy in their place, and no launch."""

_PLACE = {"start": -1, "end": -1, "thread": -1, "process": -1, "name": 0}
_LEAST_PIECES = 4
"""A model that is captured in pieces has at least this many graphs; with fewer, the order may be one of batch sizes."""


class Replays(NamedTuple):
    """What a rank's replays are, if its trace has a capture as well."""

    # the rank's work; kernels of replays have the launches of the capture for their calls, as far as these are known
    work: GpuWork
    joined: Flags  # which of the work these are
    replayed_ns: int  # the time of kernels that were replayed; 0 if the trace has no capture
    joined_ns: int  # of that, the time of kernels with a known launch


def notes_on_replays(replayed_ns: int, joined_ns: int) -> list[str]:
    """How much of the time of replays counts for the launches of the capture; nothing if no trace has a capture."""
    if not replayed_ns:
        return []
    share = f"{100 * joined_ns / replayed_ns:.1f} %"
    return [f"{share} of the GPU time of replayed graphs counts where the capture launched it, joined by order"]


def replays_of(rank: Rank, work: GpuWork) -> Replays:
    """The work of a rank with kernels of replays joined to the launches of the capture.

    A capture and replays are joined if they have as many kernels, no other capture has, and all replays of that size
    run kernels of the same names in the same order. For graphs of one size, such as those of a model's layers, the
    order decides: see `order_of`. Otherwise the graph of a replay is unknown.
    """
    return once(rank, "replays", lambda: _replays_of(rank, work))


def _replays_of(rank: Rank, work: GpuWork) -> Replays:
    names_of_pieces = [piece.column("name").unique() for piece in in_pieces(rank, "api", ("name",))]
    kinds = pa.chunked_array(names_of_pieces, pa.int64()).unique()
    if not {_BEGIN, _END, _REPLAY} <= {_role(text) for text in rank.texts(kinds).to_pylist()}:
        return Replays(work, np.zeros(len(work.call), np.bool_), 0, 0)
    api = dict(zip(_PLACE, whole_columns(rank, ("api",), _PLACE), strict=True))
    named, place = distinct(api["name"])
    role = np.array([_role(text) for text in rank.texts(pa.array(named)).to_pylist()], np.int64)[place]
    launched = np.zeros(len(role), np.bool_)
    launched[work.calls["row"]] = True
    captures = _captures(api, role, launched)
    rows = np.flatnonzero((work.kind == KERNEL) & (work.call >= 0))
    rows = rows[role[work.of_calls("row", rows)] == _REPLAY]
    names, which = distinct(work.name[rows])
    blit = np.array(
        [bool(text and _BLIT.match(text)) for text in rank.texts(pa.array(names, pa.int64())).to_pylist()], np.bool_
    )
    rows = rows[~blit[which]] if len(rows) else rows
    replays = _in_order(rank, work, rows)
    sizes = [len(c) for c in captures]
    in_turn = sorted(replays, key=lambda own: int(work.of_calls("start", own[:1])[0]))
    ordered = order_of(sizes, [len(own) for own in in_turn])
    of_capture: dict[int, list[Int64]] = {}
    for own, at in zip(in_turn, ordered, strict=True):
        capture = sizes.index(len(own)) if sizes.count(len(own)) == 1 else at
        if capture is not None:
            of_capture.setdefault(capture, []).append(own)
    call = work.call.copy()
    first = len(work.calls["row"]) + np.cumsum([0, *sizes])
    joined = np.zeros(len(call), np.bool_)
    for capture, its in of_capture.items():
        if all(np.array_equal(work.name[own], work.name[its[0]]) for own in its):
            for own in its:
                call[own] = np.arange(first[capture], first[capture + 1])
                joined[own] = True
    length = work.end - work.start
    launches = np.concatenate([np.empty(0, np.int64), *captures])
    of_captures = {"row": launches, **{column: api[column][launches] for column in ("thread", "start", "end")}}
    calls = {column: np.concatenate((values, of_captures[column])) for column, values in work.calls.items()}
    return Replays(replace(work, call=call, calls=calls), joined, int(length[rows].sum()), int(length[joined].sum()))


def _role(name: str | None) -> int:
    return next((role for role, pattern in _ROLES if name and pattern.match(name)), _OTHER)


def order_of(captured: Sequence[int], replayed: Sequence[int]) -> list[int | None]:
    """The graph of each replay, if the order of sizes determines it.

    A model that is cut into pieces has a graph for each, captured one after the other, once for each batch size, and
    replayed in that order in each pass. So captures are blocks of equal length, and replays are whole blocks, but for
    the first and the last. Equal blocks do not determine a position, and an ambiguous assignment stays open.

    Returns the number of the capture of each replay; None if it is not known.
    """
    count, nothing = len(captured), [None] * len(replayed)
    graphs: list[int | None] | None = None
    whole = False
    for length in (n for n in range(_LEAST_PIECES, count + 1) if count % n == 0):
        blocks = [tuple(captured[first : first + length]) for first in range(0, count, length)]
        if len(set(blocks)) < len(blocks):
            continue
        for way in (_blocks_from(blocks, replayed, offset) for offset in range(length)):
            if way is not None:
                whole |= way[0]
                graphs = (
                    way[1] if graphs is None else [a if a == b else None for a, b in zip(graphs, way[1], strict=True)]
                )
                if graphs.count(None) == len(graphs):
                    return list(nothing)
    return list(nothing) if graphs is None or not whole else graphs


def _blocks_from(
    blocks: Sequence[tuple[int, ...]], replayed: Sequence[int], offset: int
) -> tuple[bool, list[int | None]] | None:
    """Whether blocks from `offset` on have a whole one, and the capture of each replay; None without such blocks."""
    length = len(blocks[0])
    numbers = {block: n for n, block in enumerate(blocks)}
    head = tuple(replayed[:offset])
    ends = [n for n, block in enumerate(blocks) if block[length - offset :] == head]
    if not ends:
        return None
    captures: list[int | None] = [None] * len(replayed)
    if len(ends) == 1:
        captures[:offset] = range((ends[0] + 1) * length - offset, (ends[0] + 1) * length)
    first = offset
    while first + length <= len(replayed):
        number = numbers.get(tuple(replayed[first : first + length]))
        if number is None:
            return None
        captures[first : first + length] = range(number * length, (number + 1) * length)
        first += length
    tail = tuple(replayed[first:])
    begins = [n for n, block in enumerate(blocks) if block[: len(tail)] == tail]
    if not begins:
        return None
    if len(begins) == 1:
        captures[first:] = range(begins[0] * length, begins[0] * length + len(tail))
    return first > offset, captures


def _captures(api: Mapping[str, Int64], role: Int64, launched: Flags) -> list[Int64]:
    """The calls that launched a kernel in each capture, in order: calls of the process' threads without work."""
    start, end, thread, process = (api[column] for column in ("start", "end", "thread", "process"))
    launches = []
    for begin in np.flatnonzero(role == _BEGIN).tolist():
        ends = np.flatnonzero(
            (role == _END) & (thread == thread[begin]) & (process == process[begin]) & (start >= end[begin])
        )
        if not len(ends):
            continue
        last = int(start[ends].min())
        inside = (role == _LAUNCH) & ~launched & (process == process[begin]) & (start >= end[begin]) & (end <= last)
        rows = np.flatnonzero(inside)
        rows = rows[np.lexsort((-end[rows], start[rows], thread[rows]))]
        outer, until, of = [], -1, -1
        for row in rows.tolist():  # a driver call may be nested in its runtime call
            if thread[row] != of or start[row] >= until:
                outer.append(row)
                of, until = int(thread[row]), int(end[row])
        calls = np.array(outer, np.int64)
        launches.append(calls[np.argsort(start[calls], kind="stable")])
    return sorted((c for c in launches if len(c)), key=lambda c: int(start[c[0]]))


def _in_order(rank: Rank, work: GpuWork, rows: Int64) -> list[Int64]:
    """The kernels of each replay, in the order of their nodes; if nodes have no numbers, of their starts."""
    node = integers(rank.table("kernels", ("graph_node",)).column("graph_node"), -1)
    replays = []
    for own in rows_by(work.call[rows]).values():
        kernels = rows[own]
        nodes = node[kernels]
        key = nodes if (nodes >= 0).all() and len(np.unique(nodes)) == len(nodes) else work.start[kernels]
        replays.append(kernels[np.argsort(key, kind="stable")])
    return replays
