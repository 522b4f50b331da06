"""Perfetto's trace format: a process per rank, a track per thread and stream, counters, flows to work and ranks.

Perfetto ends the last begun slice of a track first, so that slices of one track must nest. A slice that crosses another
one is on a further track of the same name and parent, which the viewer shows as one.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.align.aligned import Aligned
from alltrace.export.atomic_output import Draft
from alltrace.export.columns import GPU_TABLES, numbers
from alltrace.export.names import NameCodes
from alltrace.export.parts import piece_of, write_parts
from alltrace.export.perfetto_gpu import GpuEvents, gpu_info
from alltrace.export.perfetto_messages import (
    BEGIN,
    COUNTER,
    END,
    FLOW_BITS,
    INSTANT,
    Event,
    PerfettoForm,
    field,
    packet,
    utf8,
)
from alltrace.export.rank_records import RankRecords, WrittenRank, rank_records
from alltrace.export.record_bytes import Pool, Template, rows_alike
from alltrace.export.selection import Selection
from alltrace.export.slices import COUNTER_SCALE, Flow, SliceMaker, Slices, Written, base_labels, counters_of
from alltrace.export.sorted_records import Sorter
from alltrace.export.tracks import Launches, Tracks, launches_of
from alltrace.export.viewer_tracks import ViewerTracks, process_ids, thread_ids
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import UsageError, printable

_END_FIRST, _NO_LENGTH, _BEGIN_LATER = 0, 1, 2
_PLACES = 64
_TRACK_BITS = 24
_MOST_TRACKS = _FIRST_COUNTER = 1 << 22
_FIRST_THREAD = 1 << 23
_CLOCK = "BOOTTIME"  # the default for track events that name none
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_NAME = 60


def export_perfetto(
    selection: Selection,
    path: Path,
    *,
    aligned: Aligned | None = None,
    most_bytes: int | None = None,
    jobs: int | None = None,
    gpu_events: bool = False,
) -> Written:
    """Write the trace, in the order of time."""
    # `path`: the file; compressed when its name ends in `.gz`. `aligned`: the alignment, for flows between the members
    # of a collective; None for none. `most_bytes`: the size (uncompressed) after which another file is begun; None for
    # one file. `gpu_events`: whether the work of GPUs is written as Perfetto's GPU events (`perfetto_gpu`) and not as
    # slices of tracks. Returns the files, and how many slices there are. Raises `InputError`: the run is damaged, or a
    # file cannot be written; nothing is left then.
    with Draft(path) as draft:
        return _export(selection, draft, path, aligned, most_bytes, jobs, gpu_events=gpu_events)


def _export(
    selection: Selection,
    draft: Draft,
    path: Path,
    aligned: Aligned | None,
    most_bytes: int | None,
    jobs: int | None,
    *,
    gpu_events: bool,
) -> Written:
    with Sorter(draft.folder / "records") as sorter:
        head = gpu_info(selection) if gpu_events else b""
        pids, taken = process_ids(selection), set[int]()
        slices = beside = 0
        writer = partial(_Writer, gpu_events=gpu_events)
        for records in rank_records(selection, writer, draft.folder, None if gpu_events else aligned, jobs):
            head += _descriptors(records, pids[records.tracks.rank.rank], taken, gpu_events=gpu_events) + records.head
            slices, beside = slices + records.slices, beside + (0 if gpu_events else records.beside)
            sorter.take(records.runs)
        files = write_parts(draft, path, sorter.blocks(piece_of(most_bytes)), head=head, most_bytes=most_bytes)
        return Written(files, slices, beside)


def export_by_host(
    selection: Selection,
    path: Path,
    *,
    aligned: Aligned | None = None,
    jobs: int | None = None,
    gpu_events: bool = False,
) -> Written:
    """Write an archive with a trace for each host and Perfetto's manifest, which makes each host a machine."""
    # All times are on the run's aligned clock already, and the manifest states it: version 1 of `perfetto_manifest`,
    # which Perfetto reads since 58.2. Flows go between tracks of one host. `path`: the archive, `NAME.tar`. `aligned`:
    # as in `export_perfetto`. `jobs`: likewise. `gpu_events`: likewise. Returns the archive, and how many slices there
    # are. Raises `UsageError`: the name does not end so. Raises `InputError`: the run is damaged, or a file cannot be
    # written; nothing is left then.
    if path.suffix != ".tar":
        raise UsageError(
            f"-o is {path}; expected a name that ends in .tar, because each host's trace goes into an archive"
        )
    hosts = list(dict.fromkeys(r.host for r in selection.ranks))
    names = [f"{n:04}-{_UNSAFE.sub('_', host)[:_LONGEST_NAME]}.pftrace" for n, host in enumerate(hosts)]
    slices = beside = 0
    with Draft(path) as draft, tarfile.open(draft.file(path), "w") as archive:
        manifest = json.dumps(_manifest(selection, hosts, names), indent=1).encode()
        about = tarfile.TarInfo("perfetto_manifest.json")
        about.size = len(manifest)
        archive.addfile(about, io.BytesIO(manifest))
        for host, name in zip(hosts, names, strict=True):
            own = replace(selection, ranks=tuple(r for r in selection.ranks if r.host == host))
            with Draft(draft.folder / name) as part:
                written = _export(own, part, part.path, aligned, None, jobs, gpu_events=gpu_events)
                slices, beside = slices + written.slices, beside + written.beside
            with (draft.folder / name).open("rb") as file:
                about = tarfile.TarInfo(name)
                about.size = (draft.folder / name).stat().st_size
                archive.addfile(about, file)
            (draft.folder / name).unlink()
    return Written([path], slices, beside)


def _manifest(selection: Selection, hosts: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Perfetto's description of an archive: the machine of each file, and that they share one clock."""
    files: list[dict[str, Any]] = []
    for host, name in zip(hosts, names, strict=True):
        files.append({"path": name, "machine": {"name": printable(host) or "?"}})
        if len(files) > 1:
            files[-1]["clocks"] = {"clock": _CLOCK, "sync_to": {"file": names[0], "clock": _CLOCK}, "offset_ns": 0}
    manifest: dict[str, Any] = {"version": 1, "files": files, "attributes": {"alltrace.ranks": len(selection.ranks)}}
    if names:
        manifest["trace_time"] = {"clock": _CLOCK, "file": names[0]}
    return {"perfetto_manifest": manifest}


def _uuid(rank: int, track: int = -1) -> int:
    return (rank + 1 << _TRACK_BITS) + track + 1


def _descriptors(records: RankRecords, pid: int, taken: set[int], *, gpu_events: bool) -> bytes:
    """The process of a rank, its threads, and the tracks that have slices or counters; not tracks of GPU events."""
    tracks, rank = records.tracks, records.tracks.rank
    about = f"pid {rank.pids[0]} on {rank.host}" if rank.pids else f"on {rank.host}"
    process = field(1, pid) + field(6, utf8(tracks.process_name)) + field(8, utf8(about))
    own = _uuid(rank.rank)
    descriptors = [field(1, own) + field(3, process)]
    labels = base_labels(tracks)
    for number, tid in enumerate(thread_ids(tracks, taken)):
        thread = field(1, pid) + field(2, tid) + field(5, utf8(labels[number]))
        descriptors.append(field(1, _uuid(rank.rank, _FIRST_THREAD + number)) + field(5, own) + field(4, thread))
    for number, track in records.placed:
        of_thread = 0 <= track.base < len(tracks.threads)
        if gpu_events and len(tracks.threads) <= track.base < len(tracks.threads) + len(tracks.streams):
            continue
        label = track.label if of_thread else f"{labels[track.base]} {track.label}".rstrip()
        parent = _uuid(rank.rank, _FIRST_THREAD + track.base) if of_thread else own
        descriptors.append(field(1, _uuid(rank.rank, number)) + field(2, utf8(label)) + field(5, parent))
    for label, number in records.counters.items():
        descriptors.append(field(1, _uuid(rank.rank, number)) + field(2, utf8(label)) + field(5, own) + field(8, b""))
    return b"".join(packet(field(60, each)) for each in descriptors)


class _Writer:
    def __init__(self, selection: Selection, *, gpu_events: bool) -> None:
        self._selection = selection
        self._pids = process_ids(selection) if gpu_events else None
        self._pool = Pool()
        self._form = PerfettoForm()
        self._names = NameCodes(selection.run, self._pool, self._form.text)
        self._templates: dict[Any, Template] = {}

    def rank(self, tracks: Tracks, across: Flow | None, sorter: Sorter) -> WrittenRank:
        self._sorter, self._slice_count = sorter, 0
        launches = launches_of(self._selection, tracks)
        launched = self._launched(tracks, launches)
        viewer_tracks = ViewerTracks()
        first = _uuid(tracks.rank.rank, 0)
        maker = SliceMaker(self._selection, tracks, viewer_tracks, launches, self._names, self._pool, self._form)
        gpu = self._gpu = self._gpu_of(tracks)
        for part in maker.slices():
            if gpu is not None and part.table in GPU_TABLES:
                self._slice_count += len(part.starts)
                for rows, records in gpu.records(part):
                    self._sorter.add(part.starts[rows] * _PLACES + _BEGIN_LATER, records)
                continue
            self._slices(part, first + part.tracks, self._flows(part, tracks.rank.rank, launched, across))
        if len(viewer_tracks.tracks) > _MOST_TRACKS:
            raise UsageError(
                f"rank {tracks.rank.rank} needs {len(viewer_tracks.tracks):,} tracks; export fewer tables (--only) or a"
                " window"
            )
        own: dict[str, int] = {}
        for samples in counters_of(
            self._selection, tracks, lambda label: own.setdefault(label, _FIRST_COUNTER + len(own))
        ):
            values = (samples.values / COUNTER_SCALE).view(np.int64)
            self._add(
                Event(COUNTER, values=values),
                samples.times,
                first + samples.names,
                samples.times * _PLACES + _BEGIN_LATER,
            )
        return WrittenRank(viewer_tracks, self._slice_count, own, b"" if gpu is None else gpu.head())

    def _gpu_of(self, tracks: Tracks) -> GpuEvents | None:
        if self._pids is None:
            return None
        return GpuEvents(self._selection, tracks, self._pids[tracks.rank.rank], self._pool, self._names)

    def _launched(self, tracks: Tracks, launches: Launches) -> NDArray[np.bool_]:
        launched = np.zeros(len(launches.keys) + 1, bool)
        for table in GPU_TABLES:
            for batch in self._selection.batches(tracks.rank, table, ["process", "correlation"]):
                launched[launches.find(numbers(batch, "process"), numbers(batch, "correlation"))] = True
        launched[-1] = False
        return launched

    @staticmethod
    def _flows(part: Slices, rank: int, launched: NDArray[np.bool_], across: Flow | None) -> list[Int64]:
        """Flows of slices: int64 arrays of n, -1 for none."""
        flows = []
        if part.launches is not None:
            flows.append(np.where(launched[part.launches], (rank + 1 << FLOW_BITS) + part.launches, -1))
        if part.table == "kernels" and across is not None and len(across.instances):
            at = across.places.find(part.bases, part.starts)
            flows.append(np.where(at >= 0, across.instances[at], -1))
        return flows

    def _slices(self, part: Slices, uuids: Int64, flows: list[Int64]) -> None:
        self._slice_count += 0 if part.instant else len(part.starts)
        few, many = part.arguments
        long = part.ends > part.starts
        # of slices that start together the outer one begins first
        keys = part.starts * _PLACES + np.where(
            long, _BEGIN_LATER + part.orders, _BEGIN_LATER if part.instant else _NO_LENGTH
        )
        there = [long, *(f >= 0 for f in flows), few >= 0, *(valid for _, valid in many.values())]
        for (lasting, *has), rows in rows_alike(there):
            has_few, has_many = has[len(flows)], has[len(flows) + 1 :]
            flowing = tuple(f[rows] for f, h in zip(flows, has, strict=False) if h)
            event = Event(
                INSTANT if part.instant else BEGIN,
                part.names[rows],
                part.categories[rows],
                flowing if self._gpu is None else (),
                few[rows] if has_few else None,
                tuple((name, values[rows]) for (name, (values, _)), h in zip(many.items(), has_many, strict=True) if h),
                # a flow of a call has the number of the GPU event that it launched
                work=flowing[0] if flowing and self._gpu is not None else None,
            )
            self._add(event, part.starts[rows], uuids[rows], keys[rows], ended=not lasting and not part.instant)
        rows = np.flatnonzero(long)
        self._add(Event(END), part.ends[rows], uuids[rows], part.ends[rows] * _PLACES + _END_FIRST)

    def _add(self, event: Event, times: Int64, uuids: Int64, keys: Int64, *, ended: bool = False) -> None:
        """Add n events in the order of their keys; with `ended` each is followed by its end at the same time."""
        columns, form = event.packets(times, uuids, self._pool)
        if ended:
            more, tail = Event(END).packets(times, uuids, self._pool)
            columns, form = columns + more, form + tail
        shape = (ended, *event.shape())
        template = self._templates.get(shape)
        if template is None:
            template = self._templates[shape] = Template(self._pool, form)
        self._sorter.add(keys, template.records(len(times), *columns))
