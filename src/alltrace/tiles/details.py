"""All about one event: its columns, the call that launched it, the ranges around it, its part in a collective."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from alltrace.align.aligned import Aligned
from alltrace.run.rank import Rank
from alltrace.run.store import Run
from alltrace.tiles.events import EventReader
from alltrace.tiles.rows import called, plain_row, row_of, track_of
from alltrace.tiles.tracks import SOURCES, integers, key_of
from alltrace.tiles.waits import Certainty
from alltrace.trace.errors import UsageError

_MOST_WAITS = 64
_WORK = ("kernels", "copies", "graphs")

MOST_MEMBERS = 16384
_GPU_TABLES = ("kernels", "copies", "graphs", "syncs")


def event_details(reader: EventReader, rank: int, table: str, row: int) -> dict[str, Any]:
    """What is known of one event."""
    # `table`: a table with intervals. `row`: the row of the rank's table, 0-based. Returns `columns` (the event's
    # values by column, names as text, times in ns from the run's first event), `track`, and where there are such:
    # `call` (the API call that launched it), `ranges` (those open around it on the calling thread, outermost first),
    # `collective` (its row in `collectives`), and of API calls `launched` (the work), `awaits` and `waited_by` (waits
    # for CUDA events). Raises `UsageError`: the rank, table or row does not exist.
    stored = reader.rank(rank)
    zero = reader.run.span_ns[0]
    values = row_of(stored, table, row)
    columns = plain_row(stored, table, values, zero)
    details: dict[str, Any] = {
        "rank": rank,
        "host": stored.host,
        "table": table,
        "row": row,
        "track": track_of(table, values),
        "name": called(table, columns),
        "columns": columns,
    }
    thread, moment = values.get("thread"), values.get("start")
    if SOURCES.get(table) is not None and SOURCES[table].moments:
        moment = values["time"]
        for events in reader.window(rank, table, moment, moment + 1):
            for at in np.flatnonzero(events.row == row).tolist():
                details["span"] = {"start": int(events.start[at]) - zero, "end": int(events.end[at]) - zero}
    if table in _GPU_TABLES:
        call = _call_of(stored, values)
        if call is not None:
            number, facts = call
            details["call"] = {
                "rank": rank,
                "table": "api",
                "row": number,
                "columns": plain_row(stored, "api", facts, zero),
            }
            details["call"]["track"] = track_of("api", facts)
            thread, moment = facts["thread"], facts["start"]
    elif table == "api":
        details["launched"] = _launched_by(stored, values, zero)
        details |= _event_waits(stored, values, zero)
    if thread is not None and moment is not None:
        details["ranges"] = _ranges_around(reader, rank, thread, moment, zero, but=row if table == "ranges" else None)
    operation = row if table == "collectives" else _operation_of(stored, table, values)
    if operation is not None:
        details["collective"] = operation
    return details


def _call_of(stored: Rank, values: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """The API call that launched a piece of device work, and its row: same process and correlation; the outer one."""
    if not values.get("correlation"):  # 0 belongs to work without a launch
        return None
    best: tuple[int, int, int] | None = None
    for piece in stored.pieces("api"):
        if piece.start_ns is not None and values["start"] is not None and piece.start_ns > values["start"]:
            continue
        table = stored.piece("api", piece.group, ["process", "correlation", "start"])
        same = integers(table, "correlation") == values["correlation"]
        if values.get("process") is not None:
            same &= integers(table, "process") == values["process"]
        for at in np.flatnonzero(same).tolist():
            start = table.column("start")[at].as_py()
            if best is None or start < best[0]:
                best = (start, piece.first_row + at, piece.group)
    return None if best is None else (best[1], row_of(stored, "api", best[1]))


def _launched_by(stored: Rank, values: dict[str, Any], zero: int) -> list[dict[str, Any]]:
    """The device work that a call launched: table, row, track, start and end of each; without an end none."""
    work: list[dict[str, Any]] = []
    if not values.get("correlation"):
        return work
    for table in _GPU_TABLES[:3]:
        for piece in stored.pieces(table):
            if piece.end_ns is not None and piece.end_ns < values["start"]:
                continue
            columns = ["start", "end", "process", "device", "stream", "correlation"]
            rows = stored.piece(table, piece.group, columns)
            same = integers(rows, "correlation") == values["correlation"]
            same &= integers(rows, "process") == (-1 if values.get("process") is None else values["process"])
            for at in np.flatnonzero(same).tolist()[:64]:
                facts = rows.slice(at, 1).to_pylist()[0]
                start, end = facts["start"], facts["start"] if facts["end"] is None else facts["end"]
                place = {"table": table, "row": piece.first_row + at, "track": track_of(table, facts)}
                work.append(place | {"start": start - zero, "end": end - zero})
    return work[:64]


def _ranges_around(
    reader: EventReader, rank: int, thread: int, moment: int, zero: int, *, but: int | None
) -> list[dict[str, Any]]:
    """The ranges of a thread that are open at a moment, outermost first."""
    key = key_of("ranges", (thread,))
    ranges = []
    for events in reader.window(rank, "ranges", moment, moment + 1):
        if events.key == key:
            texts = reader.texts(events.name)
            for i in range(len(events)):
                start, end, row = int(events.start[i]), int(events.end[i]), int(events.row[i])
                if start <= moment < end and row != but:
                    name = texts.get(int(events.name[i]), "")
                    ranges.append({"row": row, "name": name, "start": start - zero, "end": end - zero, "track": key})
    return sorted(ranges, key=lambda r: (r["start"], -r["end"]))


def _operation_of(stored: Rank, table: str, values: dict[str, Any]) -> int | None:
    """The row of `collectives` that a kernel or range is part of: both start together on device or host."""
    if table not in ("kernels", "ranges", "mpi"):
        return None
    start, device, stream = values.get("start"), values.get("device"), values.get("stream")
    for piece in stored.pieces("collectives"):
        rows = stored.piece("collectives", piece.group, ["start", "api_start", "device", "stream"])
        if table == "kernels":
            same = (integers(rows, "start") == start) & (integers(rows, "stream") == (-1 if stream is None else stream))
            same &= integers(rows, "device") == (-1 if device is None else device)
        else:
            same = integers(rows, "api_start") == start
        at = np.flatnonzero(same)
        if len(at):
            return piece.first_row + int(at[0])
    return None


def instance_of(reader: EventReader, rank: int, row: int) -> dict[str, Any] | None:
    """The instance that a rank's operation belongs to: every member's arrival, wait and end."""
    # `row`: the row of its `collectives`. Returns `instance`, `communicator`, `last_rank` (the lowest of those that
    # arrived last), `last_arrival`, `end`, and `members`: `rank`, `row`, `start`, `end`, `wait_ns`, in ns from the
    # run's first event; None if the operation was not matched. A member waits from its arrival to the last, or to its
    # own end where that is earlier. In an operation with a root only those wait that need others, and `last_rank` is
    # whom they need. A wait is `certain` from its `least_ns` on, which is what the clocks may be off, None if that is
    # not known. `perhaps_last` are the ranks with an arrival that the clocks cannot distinguish from the last one,
    # including the last rank; all if no order is known.
    overlay = reader.run.overlay
    if overlay is None:
        return None
    import duckdb

    from alltrace.run.sql_views import as_pattern

    connection = duckdb.connect(":memory:")
    try:
        rows = connection.execute(
            "WITH mine AS (SELECT instance FROM read_parquet($path) WHERE rank = $rank AND row = $row LIMIT 1) SELECT"
            ' m.instance, communicator, rank, row, "start", "end" FROM read_parquet($path) m JOIN mine USING'
            f" (instance) ORDER BY rank LIMIT {MOST_MEMBERS}",
            {"path": as_pattern(str(overlay.files.path("members.parquet"))), "rank": rank, "row": row},
        ).fetchall()
    except duckdb.Error:  # the alignment was removed meanwhile
        return None
    finally:
        connection.close()
    if not rows:
        return None
    zero = reader.run.span_ns[0]
    clocks = {r.rank: reader.run.clock(r) for r in reader.run.ranks}
    members = [
        {"rank": m, "row": r, "start": clocks[m].apply_one(s) - zero, "end": clocks[m].apply_one(e) - zero}
        for _, _, m, r, s, e in rows
        if m in clocks
    ]
    last = max(m["start"] for m in members)
    last_rank = min(m["rank"] for m in members if m["start"] == last)
    clock = Certainty(overlay)
    needs = _needs(reader.run, rows[0][0]) if overlay.facts.get("rooted") else {}
    if needs:
        last_rank = max(needs.values())[1]
    for member in members:
        wait = max(min(last, member["end"]) - member["start"], 0)
        member["wait_ns"] = needs.get((member["rank"], member["row"]), (wait, last_rank))[0]
        member["least_ns"] = clock.least_ns(member["rank"], last_rank)
        member["certain"] = member["rank"] != last_rank and clock.is_fact(member["wait_ns"], member["rank"], last_rank)
    return {
        "instance": rows[0][0],
        "communicator": rows[0][1],
        "last_rank": last_rank,
        "perhaps_last": [
            m["rank"]
            for m in members
            if m["rank"] == last_rank
            or m["start"] == last
            or not clock.is_fact(last - m["start"], m["rank"], last_rank)
        ],
        "last_arrival": last,
        "end": max(m["end"] for m in members),
        "members": members,
    }


def _needs(run: Run, instance: int) -> dict[tuple[int, int], tuple[int, int]]:
    """How long each member of an instance, by its rank and row, waits, and for which rank."""
    import pyarrow.compute as pc

    table = Aligned(run).members
    table = table.filter(pc.equal(table.column("instance"), instance))
    rank, row, wait, awaited = (table.column(c).to_pylist() for c in ("rank", "row", "wait_ns", "awaited_rank"))
    return dict(zip(zip(rank, row, strict=True), zip(wait, awaited, strict=True), strict=True))


def neighbour(reader: EventReader, rank: int, table: str, row: int, *, forward: bool) -> dict[str, Any] | None:
    """The next or previous event of the same name on the same track: its row, start and end; None if there is none."""
    # Raises `UsageError`: the rank, table or row does not exist.
    if table not in SOURCES:
        raise UsageError.unknown("table with events", table, SOURCES)
    stored = reader.rank(rank)
    values = row_of(stored, table, row)
    key, zero = track_of(table, values), reader.run.span_ns[0]
    here = int(next((values[c] for c in ("start", "api_start", "time") if values.get(c) is not None), 0))
    start, end = (here, 1 << 62) if forward else (-(1 << 62), here + 1)
    name: int | None = None
    best: tuple[int, int, int] | None = None
    for events in reader.window(rank, table, here, here + 1):
        own = np.flatnonzero(events.row == row)
        if len(own):
            name = int(events.name[own[0]])
    for events in reader.window(rank, table, start, end):
        if events.key != key or name is None:
            continue
        # the row number orders those that start together, or one would lead to the next and back
        equal = (events.start == here) & (events.row > row if forward else events.row < row)
        same = (events.name == name) & (equal | (events.start > here if forward else events.start < here))
        if not same.any():
            continue
        chosen = events.take(same)
        order = np.lexsort((chosen.row, chosen.start))
        at = int(order[0] if forward else order[-1])
        candidate = (int(chosen.start[at]), int(chosen.row[at]), int(chosen.end[at]))
        if best is None or (candidate < best if forward else candidate > best):
            best = candidate
    if best is None:
        return None
    return {"rank": rank, "table": table, "row": best[1], "track": key, "start": best[0] - zero, "end": best[2] - zero}


def _event_waits(stored: Rank, values: dict[str, Any], zero: int) -> dict[str, Any]:
    """How an API call relates to waits for CUDA events, if the profiler states which call recorded the event."""
    # `values`: the row of `api`, as `row_of` returns it. `zero`: when the run starts, aligned ns. Returns of a call
    # that waits, `awaits`: `event` (id), `stream` (that the event was recorded on), `record` (the call), and of a
    # process with one device `before` (the last work of that stream that was launched before the record) and `behind`
    # (the first work of the waiting stream that was launched after the wait), each None if there is none. Of a call
    # that recorded an event, `waited_by`: the calls that wait for it, the first 64. A call is `rank`, `table`, `row`,
    # `track`, `columns`, work is `table`, `row`, `track`, `name`, `start`, `end`.
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
        facts["waited_by"] = _calls(stored, process, set(sorted(waiting)[:_MOST_WAITS]), zero)
    return facts


def _calls(stored: Rank, process: int | None, correlations: Collection[int], zero: int) -> list[dict[str, Any]]:
    """The API calls of a process with these correlations, by start; of nested ones the outer."""
    rows: dict[int, tuple[int, int]] = {}
    for piece in stored.pieces("api"):
        table = stored.piece("api", piece.group, ["process", "correlation", "start"])
        correlation, starts = integers(table, "correlation"), integers(table, "start")
        same = np.isin(correlation, list(correlations)) & (
            integers(table, "process") == (-1 if process is None else process)
        )
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


def _work(
    stored: Rank, wait: dict[str, Any], stream: Any, correlation: int, zero: int, *, last: bool
) -> dict[str, Any] | None:
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
