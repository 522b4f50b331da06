"""The JSON of Chrome's trace viewer: a process per rank, a thread per track, arrows to work and across ranks.

The format: "Trace Event Format" of the Catapult project. Times are in microseconds with three decimals, so nanoseconds
are kept. Threads are numbered from 1, as 0 is the idle thread in viewers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from alltrace.align.aligned import Aligned
from alltrace.export.arguments import Value
from alltrace.export.atomic_output import Draft
from alltrace.export.names import NameCodes
from alltrace.export.parts import piece_of, write_parts
from alltrace.export.rank_records import RankRecords, WrittenRank, rank_records
from alltrace.export.record_bytes import INT, MICROSECONDS, TEXT, Pool, Template, rows_alike
from alltrace.export.selection import Selection
from alltrace.export.slices import Flow, SliceMaker, Slices, Written, base_labels, counters_of, table_of
from alltrace.export.sorted_records import Sorter
from alltrace.export.tracks import Tracks, launches_of
from alltrace.export.viewer_tracks import ViewerTracks, process_ids
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64
from alltrace.trace.schema import DICTIONARIES, TABLES
from alltrace.trace.slice_arguments import VIEWER_VERSION

_HEAD = '{"displayTimeUnit":"ns","otherData":{"exported_by":"alltrace",%s,"ranks":[%s]},"traceEvents":['
_TAIL = b"\n]}\n"
_PLACES = 64


def export_chrome(
    selection: Selection,
    path: Path,
    *,
    aligned: Aligned | None = None,
    most_bytes: int | None = None,
    jobs: int | None = None,
) -> Written:
    """Write the trace, in the order of time."""
    # `path`: the file; compressed when its name ends in `.gz`. `aligned`: the alignment, for arrows between the members
    # of a collective; None for none. `most_bytes`: the size (uncompressed) after which another file is begun; None for
    # one file. Returns the files, and how many slices there are. Raises `InputError`: the run is damaged, or a file
    # cannot be written; nothing is left then.
    with Draft(path) as draft, Sorter(draft.folder / "records") as sorter:
        pids = process_ids(selection)
        heads: list[dict[str, Any]] = []
        ranks: list[bytes] = []
        slices = beside = 0
        for records in rank_records(selection, _Writer, draft.folder, aligned, jobs):
            heads += _metadata(records, pids[records.tracks.rank.rank])
            slices, beside = slices + records.slices, beside + records.beside
            ranks.append(records.head)
            sorter.take(records.runs)
        about = _members(_about(selection, in_parts=most_bytes is not None))
        head = (
            _HEAD % (about, b",".join(ranks).decode())
            + ",".join("\n" + json.dumps(h, separators=(",", ":")) for h in heads)
        ).encode()
        files = write_parts(
            draft, path, sorter.blocks(piece_of(most_bytes)), head=head, tail=_TAIL, most_bytes=most_bytes
        )
        return Written(files, slices, beside)


def _metadata(records: RankRecords, pid: int) -> list[dict[str, Any]]:
    rank = records.tracks.rank
    about: dict[str, Any] = {"ph": "M", "pid": pid}
    host = f"pid {rank.pids[0]} on {rank.host}" if rank.pids else f"on {rank.host}"
    events = [
        {**about, "name": "process_name", "args": {"name": records.tracks.process_name}},
        {**about, "name": "process_labels", "args": {"labels": host}},
        {**about, "name": "process_sort_index", "args": {"sort_index": rank.rank}},
    ]
    labels = base_labels(records.tracks)
    for place, (number, track) in enumerate(records.placed):
        label = f"{labels[track.base]} {track.label}".rstrip() + (f" ({track.lane + 1})" if track.lane else "")
        events.append({**about, "tid": number + 1, "name": "thread_name", "args": {"name": label}})
        events.append({**about, "tid": number + 1, "name": "thread_sort_index", "args": {"sort_index": place}})
    return events


def _members(values: Mapping[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"))[1:-1]


def _about(selection: Selection, *, in_parts: bool) -> dict[str, Any]:
    """What reading back needs of all ranks: its version, whether more files follow, UTC at time 0, ranks."""
    run, manifest = selection.run, selection.run.manifest
    zero = None if manifest.zero_utc_ns is None else manifest.zero_utc_ns + run.origin_ns + selection.zero_ns
    size = 1 + max((*(r.rank for r in run.ranks), *manifest.missing_ranks), default=-1)
    return {"version": VIEWER_VERSION, "in_parts": in_parts, "utc_ns": zero, "world_size": size}


def _rank(selection: Selection, tracks: Tracks, viewer_tracks: ViewerTracks, pid: int) -> dict[str, Any]:
    """What reading back needs of a rank: host, dictionaries, each track's table and thread, or device and stream."""
    rank = selection.run.rank(tracks.rank.rank)
    where = [[t] for t in tracks.threads] + [[*pair] for pair in tracks.streams]
    return {
        "rank": tracks.rank.rank,
        "pid": pid,
        "host": tracks.rank.host,
        "collectives": bool(tracks.rank.rows.get("collectives")),
        "tracks": [[table_of(t.label), *where[t.base]] for t in viewer_tracks.tracks],
        **{name: _dictionary(rank, name) for name in DICTIONARIES if name != "names" and rank.has(name)},
    }


def _dictionary(rank: Rank, name: str) -> list[dict[str, Any]]:
    table = rank.table(name)
    for column in TABLES[name].name_columns():
        table = table.set_column(table.column_names.index(column), column, rank.texts(table.column(column)))
    return [{c: v for c, v in row.items() if v is not None} for row in table.to_pylist()]


class _JsonForm:
    def text(self, text: str) -> str:
        return json.dumps(text)

    def arguments(self, values: Mapping[str, Value]) -> str:
        return _members(values)


class _Writer:
    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._pids = process_ids(selection)
        self._pool = Pool()
        self._form = _JsonForm()
        self._names = NameCodes(selection.run, self._pool, self._form.text)
        self._where: list[str | int] = [',"pid":', INT, ',"tid":', INT, ',"ts":', MICROSECONDS]
        self._events: dict[Any, Template] = {}
        arrow: list[str | int] = [
            *self._where,
            ',"name":',
            TEXT,
            ',"cat":',
            TEXT,
            ',"id":"',
            TEXT,
            INT,
            ".",
            INT,
            '"',
            TEXT,
            "}",
        ]
        self._arrow = Template(self._pool, [',\n{"ph":', TEXT, *arrow])
        self._counter = Template(
            self._pool,
            [
                ',\n{"ph":"C","pid":',
                INT,
                ',"ts":',
                MICROSECONDS,
                ',"name":',
                TEXT,
                ',"args":{"value":',
                MICROSECONDS,
                "}}",
            ],
        )

    def rank(self, tracks: Tracks, across: Flow | None, sorter: Sorter) -> WrittenRank:
        self._sorter, self._slice_count = sorter, 0
        number = tracks.rank.rank
        pid = self._pids[number]
        launches = launches_of(self._selection, tracks)
        callers = np.full(len(launches.keys), -1, np.int64)
        viewer_tracks = ViewerTracks()
        zero = self._selection.zero_ns
        arrows = 0
        maker = SliceMaker(self._selection, tracks, viewer_tracks, launches, self._names, self._pool, self._form)
        for part in maker.slices():
            self._slices(part, pid)
            if part.table == "kernels" and across is not None:
                self._across(part, across, pid)
            if part.launches is None:
                continue
            if part.table == "api":
                drawn = np.flatnonzero(part.launches >= 0)
                callers[part.launches[drawn]] = part.tracks[drawn]
                continue
            drawn = np.flatnonzero((part.launches >= 0) & (np.append(callers, -1)[part.launches] >= 0))
            calls = part.launches[drawn]
            serial = arrows + np.arange(len(drawn))
            arrows += len(drawn)
            self._arrows("s", pid, callers[calls], launches.starts[calls] - zero, "launch", number, serial)
            self._arrows("f", pid, part.tracks[drawn], part.starts[drawn], "launch", number, serial)
        for counter in counters_of(self._selection, tracks, lambda label: self._pool.add(json.dumps(label))):
            records = self._counter.records(len(counter.times), pid, counter.times, counter.names, counter.values)
            self._sorter.add(counter.times * _PLACES, records)
        about = _rank(self._selection, tracks, viewer_tracks, pid)
        return WrittenRank(viewer_tracks, self._slice_count, {}, json.dumps(about, separators=(",", ":")).encode())

    def _slices(self, part: Slices, pid: int) -> None:
        self._slice_count += 0 if part.instant else len(part.starts)
        few, many = part.arguments
        keys = part.starts * _PLACES + part.orders  # of slices that start together the outer one comes first
        for (has_few, *has), rows in rows_alike([few >= 0, *(valid for _, valid in many.values())]):
            columns = [pid, part.tracks[rows] + 1, part.starts[rows]]
            if not part.instant:
                columns.append((part.ends - part.starts)[rows])
            columns += [part.names[rows], part.categories[rows]]
            present = [(name, values[rows]) for (name, (values, _)), h in zip(many.items(), has, strict=True) if h]
            columns += [values for _, values in present]
            if has_few:
                columns.append(few[rows])
            template = self._template(part.instant, tuple(name for name, _ in present), has_few)
            self._sorter.add(keys[rows], template.records(len(rows), *columns))

    def _template(self, instant: bool, many: tuple[str, ...], few: bool) -> Template:
        template = self._events.get((instant, many, few))
        if template is None:
            head = (
                [',\n{"ph":"i","s":"t"', *self._where]
                if instant
                else [',\n{"ph":"X"', *self._where, ',"dur":', MICROSECONDS]
            )
            arguments: list[str | int] = []
            for name in many:
                arguments += [f"{',' if arguments else ''}{json.dumps(name)}:", INT]
            if few:
                arguments += [*([","] if arguments else []), TEXT]
            tail = [',"args":{', *arguments, "}}"] if arguments else ["}"]
            form = [*head, ',"name":', TEXT, ',"cat":', TEXT, *tail]
            template = self._events[instant, many, few] = Template(self._pool, form)
        return template

    def _across(self, part: Slices, flow: Flow, pid: int) -> None:
        at = flow.places.find(part.bases, part.starts)
        rows = np.flatnonzero(at >= 0)
        first, last = flow.first[at[rows]], flow.last[at[rows]]
        for phase, which in (("s", first), ("t", ~first & ~last), ("f", last & ~first)):
            chosen = rows[which]
            self._arrows(
                phase, pid, part.tracks[chosen], part.starts[chosen], "collective", -1, flow.instances[at[chosen]]
            )

    def _arrows(self, phase: str, pid: int, tracks: Int64, times: Int64, kind: str, group: int, serial: Any) -> None:
        texts = (json.dumps(phase), json.dumps(kind), "c" if group < 0 else "", ',"bp":"e"' if phase != "s" else "")
        ph, name, prefix, bound = map(self._pool.add, texts)
        records = self._arrow.records(
            len(times), ph, pid, tracks + 1, times, name, name, prefix, max(group, 0), serial, bound
        )
        self._sorter.add(times * _PLACES + _PLACES - 1, records)
