"""Waits for CUDA events: which call recorded the event, which calls wait for it, and the work of the streams on both sides."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from alltrace.run.rank import Rank
from alltrace.tiles.rows import called, plain_row, row_of, track_of
from alltrace.tiles.tracks import integers

MOST_WAITS = 64
_WORK = ("kernels", "copies", "graphs")


def event_waits(stored: Rank, values: dict[str, Any], zero: int) -> dict[str, Any]:
    """How an API call relates to waits for CUDA events, if the profiler states which call recorded the event.

    `values`: the row of `api`, as `row_of` returns it. `zero`: when the run starts, aligned ns. Returns of a call
    that waits, `awaits`: `event` (id), `stream` (that the event was recorded on), `record` (the call), and of a
    process with one device `before` (the last work of that stream that was launched before the record) and `behind`
    (the first work of the waiting stream that was launched after the wait), each None if there is none. Of a call
    that recorded an event, `waited_by`: the calls that wait for it, the first 64. A call is `rank`, `table`, `row`,
    `track`, `columns`, work is `table`, `row`, `track`, `name`, `start`, `end`.
    """
    own, process = values.get("correlation"), values.get("process")
    facts: dict[str, Any] = {}
    if not own or not stored.has("syncs"):
        return facts
    waiting: list[int] = []
    for piece in stored.pieces("syncs"):
        if piece.end_ns is not None and piece.end_ns < values["start"]:
            continue
        columns = ["process", "correlation", "record_correlation", "record_stream", "stream", "device", "event"]
        table = stored.piece("syncs", piece.group, columns)
        record = integers(table, "record_correlation")
        here = (record > 0) & (integers(table, "process") == (-1 if process is None else process))
        waiting += integers(table, "correlation")[here & (record == own)].tolist()
        for at in np.flatnonzero(here & (integers(table, "correlation") == own)).tolist()[:1]:
            wait = table.slice(at, 1).to_pylist()[0]
            calls = _calls(stored, process, {wait["record_correlation"]}, zero)
            if calls:
                facts["awaits"] = {"event": wait["event"], "stream": wait["record_stream"], "record": calls[0]}
                facts["awaits"] |= _work_around(stored, wait, zero)
    if waiting:
        facts["waited_by"] = _calls(stored, process, set(sorted(waiting)[:MOST_WAITS]), zero)
    return facts


def _calls(stored: Rank, process: int | None, correlations: Collection[int], zero: int) -> list[dict[str, Any]]:
    """The API calls of a process with these correlations, by start; of nested ones the outer."""
    rows: dict[int, tuple[int, int]] = {}
    for piece in stored.pieces("api"):
        table = stored.piece("api", piece.group, ["process", "correlation", "start"])
        correlation, starts = integers(table, "correlation"), integers(table, "start")
        same = np.isin(correlation, list(correlations)) & (integers(table, "process") == (-1 if process is None else process))
        for at in np.flatnonzero(same).tolist():
            place = int(starts[at]), piece.first_row + at
            number = int(correlation[at])
            rows[number] = min(rows.get(number, place), place)
    calls = []
    for _, row in sorted(rows.values()):
        values = row_of(stored, "api", row)
        call = {"rank": stored.rank, "table": "api", "row": row, "track": track_of("api", values)}
        calls.append(call | {"columns": plain_row(stored, "api", values, zero)})
    return calls


def _work_around(stored: Rank, wait: dict[str, Any], zero: int) -> dict[str, Any]:
    """`before` and `behind` of a wait; with several devices, the device of the event is unknown."""
    if len(stored.record.devices) > 1:
        return {"before": None, "behind": None}
    return {
        "before": _work(stored, wait, wait["record_stream"], wait["record_correlation"], zero, last=True),
        "behind": _work(stored, wait, wait["stream"], wait["correlation"], zero, last=False),
    }


def _work(stored: Rank, wait: dict[str, Any], stream: Any, correlation: int, zero: int, *, last: bool) -> dict[str, Any] | None:
    """The last work of a stream that was launched before a call, or the first after it."""
    best: tuple[int, str, int] | None = None
    process = -1 if wait["process"] is None else wait["process"]
    for table in _WORK if stream is not None else ():
        for piece in stored.pieces(table):
            low, high = stored.bounds(table, piece.group, "stream")
            if low is not None and high is not None and not low <= stream <= high:
                continue
            rows = stored.piece(table, piece.group, ["process", "stream", "correlation"])
            launched = integers(rows, "correlation")
            own = (integers(rows, "stream") == stream) & (integers(rows, "process") == process)
            own &= (launched > 0) & (launched < correlation if last else launched > correlation)
            if not own.any():
                continue
            at = np.flatnonzero(own)
            place = int(at[np.argmax(launched[at]) if last else np.argmin(launched[at])])
            candidate = (int(launched[place]), table, piece.first_row + place)
            if best is None or (candidate > best if last else candidate < best):
                best = candidate
    if best is None:
        return None
    _, table, row = best
    values = row_of(stored, table, row)
    plain = plain_row(stored, table, values, zero)
    times = {"start": plain["start"], "end": plain.get("end", plain["start"])}
    return {"table": table, "row": row, "track": track_of(table, values), "name": called(table, plain)} | times
