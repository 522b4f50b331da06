"""The JSON of Chrome's trace viewer: a process per rank, a thread per track, arrows from calls to work and across ranks.

The format: "Trace Event Format" of the Catapult project. Times are in microseconds with three decimals, so nanoseconds are kept.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.export.atomic_output import Draft
from alltrace.export.external_sort import Sorter
from alltrace.export.names import NameCodes
from alltrace.export.parts import piece_of, write_parts
from alltrace.export.record_bytes import INT, MICROSECONDS, TEXT, Pool, Template
from alltrace.export.slices import counters_of, flows_across, slices_of, track_labels
from alltrace.export.tracks import launches_of, tracks_of

if TYPE_CHECKING:
    from pathlib import Path

    from alltrace.align.aligned import Aligned
    from alltrace.export.selection import Selection
    from alltrace.export.tracks import Tracks

_HEAD = b'{"displayTimeUnit":"ns","traceEvents":['
_TAIL = b"\n]}\n"


def export_chrome(
    selection: Selection, path: Path, *, aligned: Aligned | None = None, most_bytes: int | None = None
) -> tuple[list[Path], int]:
    """Write the trace, in the order of time.

    Args:
        selection: What to write.
        path: The file; compressed when its name ends in `.gz`.
        aligned: The alignment, for arrows between the members of a collective; None for none.
        most_bytes: The size (uncompressed) after which another file is begun; None for one file.

    Returns:
        The files, and the number of slices.

    Raises:
        InputError: The run is damaged, or a file cannot be written; nothing is left then.
    """
    with Draft(path) as draft, Sorter(draft.folder / "records") as sorter:
        writer = _Writer(selection, sorter)
        heads: list[dict[str, Any]] = []
        known = {}
        for rank in selection.ranks:
            tracks = known[rank.rank] = tracks_of(selection, rank)
            writer.rank(tracks)
            heads += _metadata(tracks)
        if aligned is not None:
            writer.across(aligned, known)
        head = _HEAD + ",".join("\n" + json.dumps(h, separators=(",", ":")) for h in heads).encode()
        blocks = sorter.blocks(piece_of(most_bytes))
        return write_parts(draft, path, blocks, head=head, tail=_TAIL, most_bytes=most_bytes), writer.slices


def _metadata(tracks: Tracks) -> list[dict[str, Any]]:
    rank = tracks.rank
    about: dict[str, Any] = {"ph": "M", "pid": rank.rank, "tid": 0}
    found = [
        {**about, "name": "process_name", "args": {"name": f"rank {rank.rank} ({rank.host})"}},
        {**about, "name": "process_sort_index", "args": {"sort_index": rank.rank}},
    ]
    for number, label in enumerate(track_labels(tracks)):
        found.append({**about, "tid": number, "name": "thread_name", "args": {"name": label}})
        found.append({**about, "tid": number, "name": "thread_sort_index", "args": {"sort_index": number}})
    return found


class _Writer:
    def __init__(self, selection: Selection, sorter: Sorter) -> None:
        self.slices = 0
        self._selection = selection
        self._sorter = sorter
        self._pool = Pool()
        self._names = NameCodes(selection.run, self._pool, json.dumps)
        where: list[str | int] = [',"pid":', INT, ',"tid":', INT, ',"ts":', MICROSECONDS]
        slice_: list[str | int] = [',\n{"ph":"X"', *where, ',"dur":', MICROSECONDS, ',"name":', TEXT, ',"cat":', TEXT]
        self._slice = Template(self._pool, [*slice_, "}"])
        self._sized = Template(self._pool, [*slice_, ',"args":{"bytes":', INT, "}}"])
        self._mark = Template(self._pool, [',\n{"ph":"i","s":"t"', *where, ',"name":', TEXT, ',"cat":"marks"}'])
        arrow: list[str | int] = [*where, ',"name":', TEXT, ',"cat":', TEXT, ',"id":"', TEXT, INT, ".", INT, '"', TEXT, "}"]
        self._arrow = Template(self._pool, [',\n{"ph":', TEXT, *arrow])
        self._counter = Template(
            self._pool,
            [',\n{"ph":"C","pid":', INT, ',"ts":', MICROSECONDS, ',"name":', TEXT, ',"args":{"value":', MICROSECONDS, "}}"],
        )

    def rank(self, tracks: Tracks) -> None:
        """Add all that is on the tracks of a rank."""
        number = tracks.rank.rank
        launches = launches_of(self._selection, tracks)
        zero = self._selection.zero_ns
        arrows = 0
        for part in slices_of(self._selection, tracks, launches, self._names, self._pool, json.dumps):
            cat = self._pool.add(json.dumps(part.category))
            count = len(part.starts)
            if part.instant:
                self._sorter.add(part.starts, self._mark.records(count, number, part.tracks, part.starts, part.names))
                continue
            self.slices += count
            columns = (number, part.tracks, part.starts, part.ends - part.starts, part.names, cat)
            sized = part.sizes is not None
            records = self._sized.records(count, *columns, part.sizes) if sized else self._slice.records(count, *columns)
            self._sorter.add(part.starts, records)
            if part.launches is None or part.category == "api":
                continue
            drawn = np.flatnonzero((part.launches >= 0) & (part.tracks >= 0))
            calls = part.launches[drawn]
            serial = arrows + np.arange(len(drawn))
            arrows += len(drawn)
            sent = launches.starts[calls] - zero
            self._arrows("s", number, launches.tracks[calls], sent, "launch", number, serial)
            self._arrows("f", number, part.tracks[drawn], part.starts[drawn], "launch", number, serial)
        for counter in counters_of(self._selection, tracks, lambda label: self._pool.add(json.dumps(label))):
            times = counter.times
            self._sorter.add(times, self._counter.records(len(times), number, times, counter.names, counter.values))

    def across(self, aligned: Aligned, known: dict[int, Tracks]) -> None:
        """Add arrows between the members of each collective."""
        for rank, flow in flows_across(self._selection, aligned, known):
            for phase, which in (("s", flow.first), ("t", ~flow.first & ~flow.last), ("f", flow.last & ~flow.first)):
                at = np.flatnonzero(which)
                tracks, starts = flow.tracks[at], flow.starts[at]
                self._arrows(phase, rank, tracks, starts, "collective", -1, flow.instances[at])

    def _arrows(self, phase: str, rank: int, tracks: Any, times: Any, kind: str, group: int, serial: Any) -> None:
        texts = (json.dumps(phase), json.dumps(kind), "c" if group < 0 else "", ',"bp":"e"' if phase != "s" else "")
        ph, name, prefix, bound = map(self._pool.add, texts)
        records = self._arrow.records(len(times), ph, rank, tracks, times, name, name, prefix, max(group, 0), serial, bound)
        self._sorter.add(times, records)
