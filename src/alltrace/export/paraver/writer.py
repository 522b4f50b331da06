"""Writes a run as a Paraver trace: .prv (or .prv.gz), .pcf and .row, and configurations next to it."""

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from alltrace.export.atomic_output import Draft
from alltrace.export.columns import UNKNOWN, numbers
from alltrace.export.paraver.lines import Form
from alltrace.export.paraver.pcf import pcf_text
from alltrace.export.paraver.records import RecordWriter
from alltrace.export.paraver.survey import Survey
from alltrace.export.paraver.task import Task
from alltrace.export.parts import write_parts
from alltrace.export.selection import Selection, SentSelection
from alltrace.export.sorted_rows import RowSorter
from alltrace.export.tasks import results_of
from alltrace.export.tracks import Tracks, tracks_of
from alltrace.readers.paraver import labels as ev
from alltrace.readers.paraver.labels import Profile, label_of
from alltrace.run.manifest import RankRecord
from alltrace.run.sorted_runs import KeptRuns
from alltrace.trace.arrays import Int64
from alltrace.trace.errors import UsageError, printable


# Messages: over all ranks, the k-th send of a pair and tag is met by the k-th receive.
class Ends(NamedTuple):
    """n sends, or n receives."""

    # int64 array (4, n): what a send and its receive have in common: source, destination, communicator, and MPI's tag
    keys: Int64
    objects: Int64  # n objects
    starts: Int64
    ends: Int64
    sizes: Int64  # n sizes, bytes


def joined(parts: Iterable[Ends]) -> Ends:
    none = Ends(np.empty((4, 0), np.int64), *[np.empty(0, np.int64)] * 4)
    return Ends(*(np.concatenate(columns, axis=-1) for columns in zip(none, *parts, strict=True)))


def pair(sends: Ends, receives: Ends) -> tuple[Int64, Int64]:
    both = np.concatenate((sends.keys, receives.keys), axis=1)
    if not both.shape[1]:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    codes = np.unique(both, axis=1, return_inverse=True)[1].reshape(-1)
    count = len(sends.starts)
    one = codes[:count] << 32 | _turns(codes[:count], sends.starts)
    other = codes[count:] << 32 | _turns(codes[count:], receives.starts)
    _, at, to = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    return at, to


def _turns(codes: Int64, times: Int64) -> Int64:
    """The index of each row among those with its code, in the order of time."""
    order = np.lexsort((times, codes))
    turns = np.empty(len(codes), np.int64)
    turns[order] = np.arange(len(codes)) - np.searchsorted(codes[order], codes[order])
    return turns


MOST_OBJECTS = 65_535
"""Paraver numbers its objects with 16 bits."""

_SENDS, _RECEIVES = ("Send", "SendRecv"), ("Recv", "SendRecv")


@dataclass(frozen=True)
class Written:
    files: tuple[Path, ...]
    tasks: int  # ranks
    threads: int
    states: int  # state records
    events: int  # event records
    communications: int  # communication records


def export_paraver(
    selection: Selection,
    path: Path,
    *,
    ids: str = "extrae",
    fold_streams: bool = False,
    details: bool = False,
    demangled: bool = False,
    base_pcf: Path | None = None,
    cfgs: bool = False,
    jobs: int | None = None,
) -> Written:
    """Write the trace, its records in the order of time."""
    # `path`: `NAME.prv` or `NAME.prv.gz`; `NAME.pcf`, `NAME.row` and `NAME-cfgs` are written next to it. `ids`: the
    # numbering of event types: `extrae` or `nsys2prv`. `fold_streams`: one thread for all streams of a device.
    # `details`: also the geometry and the correlation of each launch. `demangled`: name kernels with their template
    # arguments and parameters. `base_pcf`: a .pcf with values of names to keep, so that traces can be compared. `cfgs`:
    # write configurations next to the trace.
    stem = path.name.removesuffix(".gz").removesuffix(".prv")
    if not path.name.endswith((".prv", ".prv.gz")) or not stem:
        raise UsageError(f"-o is {path}; expected a name that ends in .prv or .prv.gz")
    profile = ev.PROFILES[ids]
    tracks = [_tracks(selection, r, fold_streams) for r in selection.ranks]
    resources = _resources_of(tracks)
    survey = Survey(selection, profile, demangled=demangled, details=details, base=base_pcf)
    with Draft(path) as draft, RowSorter(draft.folder / "records", 2) as sorter:
        named = [resources.objects(n) for n in range(len(tracks))]
        writer = RecordWriter(sorter, [o for task in named for o in task])
        first = np.cumsum([0, *(len(task) for task in named)])
        objects = [np.arange(*first[n : n + 2]) for n in range(len(tracks))]
        sent = SentSelection(selection)
        task = _RankTask(sent, survey, profile, int(first[-1]), draft.folder.absolute(), details, demangled)
        packed = results_of(task, list(zip(tracks, objects, strict=True)), sent, jobs, draft.folder)
        for mine, part in zip(objects, packed, strict=True):
            sorter.take(part.runs)
            writer.lines.take(mine, part.shapes)
            writer.types |= part.types
            for what, count in part.counts.items():
                writer.counts[what] += count
        _messages(selection, writer, objects, tracks)
        beside = {suffix: path.with_name(stem + suffix) for suffix in (".row", ".pcf")}
        draft.file(beside[".row"]).write_text(resources.row_text(), encoding="utf-8")
        draft.file(beside[".pcf"]).write_text(pcf_text(survey.events, profile), encoding="utf-8")
        head = resources.header(survey.end_ns, time.strftime("%d/%m/%Y at %H:%M")) + _about(selection)
        write_parts(draft, path, writer.text(), head=head.encode())
        files = [path, *beside.values()]
        if cfgs:
            from alltrace.export.paraver.cfgs import write_cfgs

            files.append(write_cfgs(draft, path.with_name(f"{stem}-cfgs"), survey.events, profile, writer.types))
        threads = sum(resources.threads(t) for t in tracks)
        return Written(tuple(files), len(tracks), threads, **writer.counts)


def _tracks(selection: Selection, rank: RankRecord, fold_streams: bool) -> Tracks:
    tracks = tracks_of(selection, rank, fold_streams=fold_streams)
    has_adapters = "nic_metrics" in selection.tables and selection.run.has(rank, "nic_metrics")
    return replace(tracks, metered=[UNKNOWN, *tracks.metered]) if has_adapters else tracks


def _about(selection: Selection) -> str:
    from alltrace import __version__

    lines = [f"{ev.ABOUT}{__version__}: {printable(str(selection.run.path.name))}"]
    lines += [
        ev.TASK.format(task=n, rank=r.rank, pid=r.pids[0] if r.pids else n) for n, r in enumerate(selection.ranks, 1)
    ]
    lines += [
        f"# clock of {printable(c.host)}: offset {c.offset_ns} ns, drift {c.drift_ppm:.6g} ppm, evidence {c.evidence}"
        for c in selection.run.manifest.clocks
    ]
    return "\n".join([*lines, ""])


def _communications(writer: RecordWriter, messages: list[tuple[bool, Ends]]) -> None:
    """Messages, each a send or a receive: from the start of the send to the end of the receive."""
    sends, receives = (joined(e for s, e in messages if s is wanted) for wanted in (True, False))
    at, to = pair(sends, receives)
    if not len(at):
        return
    sent, received = sends.starts[at], receives.ends[to]
    tags = np.where(sends.keys[3][at] == UNKNOWN, ev.TAG_NCCL, sends.keys[3][at])
    writer.communications(
        sends.objects[at], (sent, sent), receives.objects[to], (received, received), sends.sizes[at], tags
    )


def _messages(selection: Selection, writer: RecordWriter, objects: list[Int64], tracks: list[Tracks]) -> None:
    """Sends and receives between ranks, if both are known with their peers; without an end one ends where it starts.

    A message of MPI is received when the call has ended that completes its receive. Without a name of its communicator
    its peers are ranks of the job.
    """
    import pyarrow as pa

    columns = ["start", "end", "device", "stream", "communicator", "op", "peer", "group_rank", "bytes", "tag", "thread"]
    rows: list[tuple[int, Int64, list[str]]] = []
    world = {(UNKNOWN, own.rank.rank): number for number, own in enumerate(tracks)}
    for number, own in enumerate(tracks):
        for batch in selection.batches(own.rank, "collectives", [*columns, "api_start", "api_end"]):
            values = np.stack([numbers(batch, c) for c in columns])
            of_host = batch.column("start").is_null().to_numpy()
            for place, name in enumerate(("api_start", "api_end")):
                values[place] = np.where(of_host, numbers(batch, name), values[place])
            values[1] = np.maximum(values[0], values[1])
            for communicator, group_rank in np.unique(values[[4, 7]], axis=1).T.tolist():
                if group_rank >= 0 and communicator != UNKNOWN:
                    world[communicator, group_rank] = number
            ops, inverse = np.unique(values[5], return_inverse=True)
            texts = selection.run.texts(pa.array(ops)).to_pylist()
            moves = np.array([t in (*_SENDS, *_RECEIVES) for t in texts])[inverse] & (values[6] >= 0)
            moves &= ((values[2] >= 0) & (values[4] != UNKNOWN)) | (of_host & (values[9] >= 0))
            rows.append((number, values[:, moves], [texts[i] for i in inverse[moves].tolist()]))
    messages: list[tuple[bool, Ends]] = []
    for number, values, words in rows:
        task = np.full(values.shape[1], number, np.int64)
        own = tracks[number]
        places = np.where(values[9] >= 0, own.of_threads(values[10]), own.of_streams(values[2], values[3]))
        peers = np.array([world.get((c, p), -1) for c, p in values[[4, 6]].T.tolist()], np.int64)
        for sends, wanted in ((True, _SENDS), (False, _RECEIVES)):
            at = np.flatnonzero(np.array([w in wanted for w in words], bool) & (places >= 0) & (peers >= 0))
            pairs = (task[at], peers[at]) if sends else (peers[at], task[at])
            start, end = (values[i][at] - selection.zero_ns for i in (0, 1))
            keys, sizes = np.stack((*pairs, *values[[4, 9]][:, at])), np.maximum(values[8][at], 0)
            messages.append((sends, Ends(keys, objects[number][places[at]], start, end, sizes)))
    _communications(writer, messages)


class _PackedTask(NamedTuple):
    runs: list[KeptRuns]
    shapes: list[tuple[int, Form]]  # their shapes, by number
    counts: dict[str, int]  # how many states, events and communications there are
    types: set[int]  # the types of the events


@dataclass(frozen=True)
class _RankTask:
    """Packs the lines of single ranks; goes to each process once."""

    sent: SentSelection  # what is exported
    survey: Survey  # the values of names
    profile: Profile  # the numbers of types
    objects: int  # how many objects the trace has
    folder: Path  # where to put the lines
    details: bool  # also the geometry and correlation of launches
    demangled: bool  # whether kernels have their full name

    def __call__(self, item: tuple[Tracks, Int64], advance: Callable[[int], None]) -> _PackedTask:
        tracks, objects = item
        # a task may run again elsewhere while what is left of its first worker still writes
        name = f"rank-{tracks.rank.rank}-{platform.node()}-{os.getpid()}"
        scratch = self.folder / f"{name}-sorting"
        scratch.mkdir(exist_ok=True)
        try:
            with RowSorter(self.folder / name, 2) as sorter:
                writer = RecordWriter(sorter, self.objects)
                task = Task(
                    self.sent.selection, tracks, objects, self.survey, self.profile, writer, scratch,
                    details=self.details, demangled=self.demangled,
                )  # fmt: skip
                task.write()
                advance(1)
                return _PackedTask(sorter.keep(), writer.lines.shapes, writer.counts, writer.types)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@dataclass(frozen=True)
class _Resources:
    tracks: tuple[Tracks, ...]  # the tracks of each task
    hosts: tuple[str, ...]  # the nodes
    gpus: tuple[tuple[str, ...], ...]  # for each node its GPUs, by UUID or its substitute

    def header(self, end_ns: int, written: str) -> str:
        """The first line of a .prv."""
        # `end_ns`: the length of the trace. `written`: when it was made, as `DD/MM/YYYY at HH:MM`.
        cpus = ",".join(str(len(self._cpus(g))) for g in self.gpus)
        nodes = {h: n for n, h in enumerate(self.hosts, 1)}
        tasks = ",".join(f"{self.threads(t)}:{nodes[t.rank.host]}" for t in self.tracks)
        return f"#Paraver ({written}):{end_ns}_ns:{len(self.hosts)}({cpus}):1:{len(self.tracks)}({tasks})\n"

    @staticmethod
    def threads(tracks: Tracks) -> int:
        return max(1, len(tracks))

    def objects(self, task: int) -> list[str]:
        """For each track of a task (0-based) its `cpu:appl:task:thread`; the CPU of a host thread is not known."""
        tracks = self.tracks[task]
        devices = [None] * len(tracks.threads) + [d for d, _ in tracks.streams] + list(tracks.metered)
        return [f"{0 if d is None else self._cpu(tracks, d)}:1:{task + 1}:{n}" for n, d in enumerate(devices, 1)]

    def row_text(self) -> str:
        threads = [label for n, t in enumerate(self.tracks, 1) for label in _thread_labels(t, n)]
        cpus = [
            f"{label_of(h)}.{label_of(g)}"
            for h, gpus in zip(self.hosts, self.gpus, strict=True)
            for g in self._cpus(gpus)
        ]
        levels = {
            "CPU": cpus,
            "NODE": [label_of(h) for h in self.hosts],
            "TASK": [f"rank {t.rank.rank}" for t in self.tracks],
            "THREAD": threads,
        }
        return "\n".join(
            f"LEVEL {level} SIZE {len(labels)}\n" + "\n".join(labels) + "\n" for level, labels in levels.items()
        )

    @staticmethod
    def _cpus(gpus: tuple[str, ...]) -> tuple[str, ...]:
        return gpus or ("no GPU",)

    def _cpu(self, tracks: Tracks, row: int) -> int:
        device = tracks.device(row)
        if device is None:
            return 0
        node = self.hosts.index(tracks.rank.host)
        before = sum(len(self._cpus(g)) for g in self.gpus[:node])
        return before + self.gpus[node].index(device.identity[1]) + 1


def _thread_labels(tracks: Tracks, task: int) -> list[str]:
    host = "-".join(label_of(tracks.rank.host).split())
    labels = []
    for number, thread in enumerate(tracks.threads, 1):
        name = tracks.names.get(thread)
        labels.append(f"THREAD 1.{task}.{number}" + (f" ({label_of(name)})" if name else ""))
    for device, stream in tracks.streams:
        shown = "" if tracks.folded else f".S{max(stream, 0)}"
        labels.append(f"CUDA-D{tracks.ordinals.get(device, max(device, 0))}{shown}-{host}")
    labels += ["Metrics NIC" if d == UNKNOWN else f"Metrics GPU{tracks.ordinals.get(d, d)}" for d in tracks.metered]
    return labels or [f"THREAD 1.{task}.1"]


def _resources_of(tracks: Sequence[Tracks]) -> _Resources:
    """The objects of a trace. Raises `UsageError`: there are no ranks, or more objects than Paraver can number."""
    if not tracks:
        raise UsageError("there are no ranks to export; a Paraver trace needs at least one")
    hosts = tuple(dict.fromkeys(t.rank.host for t in tracks))
    gpus: dict[str, dict[str, None]] = {h: {} for h in hosts}
    for task in tracks:
        for device in task.rank.devices:
            gpus[task.rank.host][device.identity[1]] = None
    resources = _Resources(tuple(tracks), hosts, tuple(tuple(gpus[h]) for h in hosts))
    threads = sum(resources.threads(t) for t in tracks)
    if threads > MOST_OBJECTS:
        advice = "give --ranks" if any(t.folded for t in tracks) else "give --fold-streams, or --ranks"
        raise UsageError(f"the trace would have {threads:,} threads; Paraver can number {MOST_OBJECTS:,}; {advice}")
    return resources
