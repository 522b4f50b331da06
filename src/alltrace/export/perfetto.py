"""Perfetto's trace format: a process per rank, a track per thread and stream, counters, flows from calls to work and across ranks.

The messages are written by hand, in columns: field numbers are those of Perfetto's `trace_packet.proto`,
`track_descriptor.proto` and `track_event.proto`. Perfetto wants slices of a track to nest; where kernels of one stream overlap, the
viewer ends the last begun first.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from alltrace.export.atomic_output import Draft
from alltrace.export.external_sort import Sorter
from alltrace.export.names import NameCodes
from alltrace.export.parts import piece_of, write_parts
from alltrace.export.record_bytes import FIXED64, TEXT, VARINT, Pool, Template
from alltrace.export.slices import COUNTER_SCALE, counters_of, flows_across, slices_of, track_labels
from alltrace.export.tracks import GPU_TABLES, Launches, Tracks, launches_of, numbers, tracks_of
from alltrace.trace.errors import UsageError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from alltrace.align.aligned import Aligned
    from alltrace.export.selection import Selection
    from alltrace.export.slices import Flow, Slices
    from alltrace.trace.arrays import Int64

_SEQUENCE = 1
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_END_FIRST, _NO_LENGTH, _BEGIN_LATER = 0, 1, 2
_PLACES = 4
_TRACK_BITS = 20
_FIRST_COUNTER = 1 << 19
_FLOW_BITS = 40
_CLOCK = "BOOTTIME"  # that of track events which name none
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_NAME = 60


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes(found) + bytes([number])


def field(number: int, value: int | bytes) -> bytes:
    """A field of a message: a number, or bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return varint(len(data)) + data


def _sizes(numbers: Any) -> Int64:
    """The bytes of each number as a varint."""
    sizes = np.ones(np.shape(numbers), np.int64)
    for bits in range(7, 63, 7):
        sizes += np.asarray(numbers) >= np.int64(1) << bits
    return sizes


def export_perfetto(
    selection: Selection, path: Path, *, aligned: Aligned | None = None, most_bytes: int | None = None
) -> tuple[list[Path], int]:
    """Write the trace, in the order of time.

    Args:
        selection: What to write.
        path: The file; compressed when its name ends in `.gz`.
        aligned: The alignment, for flows between the members of a collective; None for none.
        most_bytes: The size (uncompressed) after which another file is begun; None for one file.

    Returns:
        The files, and the number of slices.

    Raises:
        InputError: The run is damaged, or a file cannot be written; nothing is left then.
    """
    with Draft(path) as draft:
        return _export(selection, draft, path, aligned, most_bytes)


def _export(
    selection: Selection, draft: Draft, path: Path, aligned: Aligned | None, most_bytes: int | None
) -> tuple[list[Path], int]:
    with Sorter(draft.folder / "records") as sorter:
        tracks = {r.rank: tracks_of(selection, r) for r in selection.ranks}
        flows = dict(flows_across(selection, aligned, tracks)) if aligned is not None else {}
        writer = _Writer(selection, sorter)
        head = b""
        for rank, own in tracks.items():
            writer.rank(own, flows.get(rank))
            head += _descriptors(own, writer.counters(rank))
        return write_parts(draft, path, sorter.blocks(piece_of(most_bytes)), head=head, most_bytes=most_bytes), writer.slices


def export_by_host(selection: Selection, path: Path, *, aligned: Aligned | None = None) -> tuple[list[Path], int]:
    """Write an archive with a trace for each host and Perfetto's manifest, which makes each host a machine.

    All times are on the run's aligned clock already, and the manifest says so: version 1 of `perfetto_manifest`, which Perfetto
    reads since 58.2. Flows go between tracks of one host.

    Args:
        selection: What to write.
        path: The archive, `NAME.tar`.
        aligned: As that of `export_perfetto`.

    Returns:
        The archive, and the number of slices.

    Raises:
        UsageError: The name does not end so.
        InputError: The run is damaged, or a file cannot be written; nothing is left then.
    """
    if path.suffix != ".tar":
        raise UsageError(f"-o is {path}; expected a name that ends in .tar, as a trace for each host goes into an archive")
    hosts = list(dict.fromkeys(r.host for r in selection.ranks))
    names = [f"{n:04}-{_UNSAFE.sub('_', host)[:_LONGEST_NAME]}.pftrace" for n, host in enumerate(hosts)]
    slices = 0
    with Draft(path) as draft, tarfile.open(draft.file(path), "w") as archive:
        manifest = json.dumps(_manifest(selection, hosts, names), indent=1).encode()
        about = tarfile.TarInfo("perfetto_manifest.json")
        about.size = len(manifest)
        archive.addfile(about, io.BytesIO(manifest))
        for host, name in zip(hosts, names, strict=True):
            own = replace(selection, ranks=tuple(r for r in selection.ranks if r.host == host))
            with Draft(draft.folder / name) as part:
                slices += _export(own, part, part.path, aligned, None)[1]
            with (draft.folder / name).open("rb") as file:
                about = tarfile.TarInfo(name)
                about.size = (draft.folder / name).stat().st_size
                archive.addfile(about, file)
            (draft.folder / name).unlink()
    return [path], slices


def _manifest(selection: Selection, hosts: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Perfetto's description of an archive: whose machine each file is of, and that their clocks are one."""
    files: list[dict[str, Any]] = []
    for host, name in zip(hosts, names, strict=True):
        files.append({"path": name, "machine": {"name": printable(host) or "?"}})
        if len(files) > 1:
            files[-1]["clocks"] = {"clock": _CLOCK, "sync_to": {"file": names[0], "clock": _CLOCK}, "offset_ns": 0}
    found: dict[str, Any] = {"version": 1, "files": files, "attributes": {"alltrace.ranks": len(selection.ranks)}}
    if names:
        found["trace_time"] = {"clock": _CLOCK, "file": names[0]}
    return {"perfetto_manifest": found}


def _uuid(rank: int, track: int = -1) -> int:
    return (rank + 1 << _TRACK_BITS) + track + 1


def _packet(body: bytes) -> bytes:
    return field(1, body + field(10, _SEQUENCE))


def _descriptors(tracks: Tracks, counters: dict[str, int]) -> bytes:
    rank = tracks.rank
    process = field(1, rank.rank + 1) + field(6, f"rank {rank.rank} ({rank.host})".encode("utf-8", "replace"))
    own = _uuid(rank.rank)
    found = [field(1, own) + field(3, process)]
    for number, label in enumerate(track_labels(tracks)):
        found.append(field(1, _uuid(rank.rank, number)) + field(2, label.encode("utf-8", "replace")) + field(5, own))
    for label, number in counters.items():
        about = field(1, _uuid(rank.rank, number)) + field(2, label.encode("utf-8", "replace"))
        found.append(about + field(5, own) + field(8, b""))
    return b"".join(_packet(field(60, about)) for about in found)


class _Writer:
    def __init__(self, selection: Selection, sorter: Sorter) -> None:
        self.slices = 0
        self._selection = selection
        self._sorter = sorter
        self._pool = Pool()
        self._names = NameCodes(selection.run, self._pool, _text)
        self._counters: dict[int, dict[str, int]] = {}
        self._templates: dict[tuple[int, bool, int], Template] = {}

    def counters(self, rank: int) -> dict[str, int]:
        """The counters of a rank by label, with their numbers among the tracks."""
        return self._counters.get(rank, {})

    def rank(self, tracks: Tracks, across: Flow | None) -> None:
        """Add all that is on the tracks of a rank; `across` are its members of collectives."""
        launches = launches_of(self._selection, tracks)
        launched = self._launched(tracks, launches)
        first = _uuid(tracks.rank.rank, 0)
        for part in slices_of(self._selection, tracks, launches, self._names, self._pool, _text):
            flows = self._flows(part, tracks.rank.rank, launched, across)
            self._slices(part, first + part.tracks, flows)
        own = self._counters.setdefault(tracks.rank.rank, {})
        for samples in counters_of(self._selection, tracks, lambda label: own.setdefault(label, _FIRST_COUNTER + len(own))):
            values = (samples.values / COUNTER_SCALE).view(np.int64)
            self._add(_COUNTER, samples.times, first + samples.names, None, (), _BEGIN_LATER, values)

    def _launched(self, tracks: Tracks, launches: Launches) -> NDArray[np.bool_]:
        """Which calls launched work that is in the selection."""
        found = np.zeros(len(launches.keys) + 1, bool)
        for table in GPU_TABLES:
            for batch in self._selection.batches(tracks.rank, table, ["process", "correlation"]):
                found[launches.find(numbers(batch, "process"), numbers(batch, "correlation"))] = True
        found[-1] = False
        return found

    @staticmethod
    def _flows(part: Slices, rank: int, launched: NDArray[np.bool_], across: Flow | None) -> list[Int64]:
        """Flows of slices: int64 arrays of n, -1 for none."""
        found = []
        if part.launches is not None:
            found.append(np.where(launched[part.launches], (rank + 1 << _FLOW_BITS) + part.launches, -1))
        if part.category == "kernels" and across is not None and len(across.starts):
            # one number for a start and a track, which together may need more than 64 bits
            starts = np.unique(across.starts)
            place = np.minimum(np.searchsorted(starts, part.starts), len(starts) - 1)
            width = int(max(across.tracks.max(), part.tracks.max(initial=0))) + 1
            keys = np.searchsorted(starts, across.starts) * width + across.tracks
            order = np.argsort(keys)
            wanted = np.where(starts[place] == part.starts, place * width + part.tracks, -1)
            at = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
            found.append(np.where(keys[at] == wanted, across.instances[at], -1))
        return found

    def _slices(self, part: Slices, uuids: Int64, flows: list[Int64]) -> None:
        if part.instant:
            self._add(_INSTANT, part.starts, uuids, part.names, (), _BEGIN_LATER)
            return
        self.slices += len(part.starts)
        order = np.lexsort((-part.ends, part.starts))  # of slices that start together the outer one begins first
        which = sum((f >= 0).astype(np.int64) << n for n, f in enumerate(flows)) if flows else np.zeros(len(order), np.int64)
        long = part.ends > part.starts
        for kind in range(1 << len(flows)):
            ids = [f for n, f in enumerate(flows) if kind >> n & 1]
            for lasting, place in ((True, _BEGIN_LATER), (False, _NO_LENGTH)):
                rows = order[((which == kind) & (long == lasting))[order]]
                chosen = [f[rows] for f in ids]
                self._add(_BEGIN, part.starts[rows], uuids[rows], part.names[rows], chosen, place, ended=not lasting)
        rows = np.flatnonzero(long)
        self._add(_END, part.ends[rows], uuids[rows], None, (), _END_FIRST)

    def _add(
        self,
        kind: int,
        times: Int64,
        uuids: Int64,
        names: Int64 | None,
        flows: Any,
        place: int,
        values: Any = None,
        *,
        ended: bool = False,
    ) -> None:
        """Add n events; with `ended` each is followed by its end at the same time."""
        columns, form = self._event(kind, times, uuids, names, flows, values)
        if ended:
            more, tail = self._event(_END, times, uuids, None, (), None)
            columns, form = columns + more, form + tail
        key = (kind, ended, len(flows))
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = Template(self._pool, form)
        self._sorter.add(times * _PLACES + place, template.records(len(times), *columns))

    def _event(self, kind: int, times: Int64, uuids: Int64, names: Any, flows: Any, values: Any) -> tuple[list[Any], list[Any]]:
        """The columns and the form of packets with a track event."""
        inner = 3 + _sizes(uuids)
        form: list[Any] = [varint(9 << 3) + varint(kind) + varint(11 << 3), VARINT]
        columns = [uuids]
        if names is not None:
            offsets = self._pool.arrays()[1]
            inner = inner + 2 + offsets[names + 1] - offsets[names]
            form += [varint(23 << 3 | 2), TEXT]
            columns.append(names)
        for flow in flows:
            inner = inner + 10
            form += [varint(47 << 3 | 1), FIXED64]
            columns.append(flow)
        if values is not None:
            inner = inner + 10
            form += [varint(44 << 3 | 1), FIXED64]
            columns.append(values)
        outer = 1 + _sizes(times) + 2 + 1 + _sizes(inner) + inner
        sequence = field(10, _SEQUENCE) + varint(11 << 3 | 2)
        return [outer, times, inner, *columns], [varint(1 << 3 | 2), VARINT, varint(8 << 3), VARINT, sequence, VARINT, *form]
