"""The objects of a Paraver trace: ranks are tasks, tracks are threads, hosts are nodes, GPUs are CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alltrace.export.columns import UNKNOWN
from alltrace.export.tracks import Tracks
from alltrace.readers.paraver.labels import label_of
from alltrace.trace.errors import UsageError

MOST_OBJECTS = 65_535
"""Paraver numbers its objects with 16 bits."""


@dataclass(frozen=True)
class Resources:
    """The objects of a trace."""

    tracks: tuple[Tracks, ...]  # the tracks of each task
    hosts: tuple[str, ...]  # the nodes
    gpus: tuple[tuple[str, ...], ...]  # for each node its GPUs, by UUID or its substitute

    def header(self, end_ns: int, written: str) -> str:
        """The first line of a .prv.

        `end_ns`: the length of the trace. `written`: when it was made, as `DD/MM/YYYY at HH:MM`.
        """
        cpus = ",".join(str(len(self._cpus(g))) for g in self.gpus)
        nodes = {h: n for n, h in enumerate(self.hosts, 1)}
        tasks = ",".join(f"{self.threads(t)}:{nodes[t.rank.host]}" for t in self.tracks)
        return f"#Paraver ({written}):{end_ns}_ns:{len(self.hosts)}({cpus}):1:{len(self.tracks)}({tasks})\n"

    @staticmethod
    def threads(tracks: Tracks) -> int:
        """The threads of a task; one that has nothing still has one."""
        return max(1, len(tracks))

    def objects(self, task: int) -> list[str]:
        """For each track of a task (0-based) its `cpu:appl:task:thread`; the CPU of a host thread is not known."""
        tracks = self.tracks[task]
        devices = [None] * len(tracks.threads) + [d for d, _ in tracks.streams] + list(tracks.metered)
        return [f"{0 if d is None else self._cpu(tracks, d)}:1:{task + 1}:{n}" for n, d in enumerate(devices, 1)]

    def row_text(self) -> str:
        """The text of a .row file."""
        threads = [label for n, t in enumerate(self.tracks, 1) for label in _thread_labels(t, n)]
        cpus = [f"{label_of(h)}.{label_of(g)}" for h, gpus in zip(self.hosts, self.gpus, strict=True) for g in self._cpus(gpus)]
        levels = {
            "CPU": cpus,
            "NODE": [label_of(h) for h in self.hosts],
            "TASK": [f"rank {t.rank.rank}" for t in self.tracks],
            "THREAD": threads,
        }
        return "\n".join(f"LEVEL {level} SIZE {len(labels)}\n" + "\n".join(labels) + "\n" for level, labels in levels.items())

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


def resources_of(tracks: Sequence[Tracks]) -> Resources:
    """The objects of a trace. Raises `UsageError`: there are no ranks, or more objects than Paraver can number."""
    if not tracks:
        raise UsageError("there are no ranks to export; a Paraver trace needs at least one")
    hosts = tuple(dict.fromkeys(t.rank.host for t in tracks))
    gpus: dict[str, dict[str, None]] = {h: {} for h in hosts}
    for task in tracks:
        for device in task.rank.devices:
            gpus[task.rank.host][device.identity[1]] = None
    resources = Resources(tuple(tracks), hosts, tuple(tuple(gpus[h]) for h in hosts))
    threads = sum(resources.threads(t) for t in tracks)
    if threads > MOST_OBJECTS:
        advice = "give --ranks" if any(t.folded for t in tracks) else "give --fold-streams, or --ranks"
        raise UsageError(f"the trace would have {threads:,} threads; Paraver can number {MOST_OBJECTS:,}; {advice}")
    return resources
