"""Writes what Nsight Systems would have exported of an execution: an SQLite file for each process."""

from __future__ import annotations

import random
import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.programs.nccl_ranges import DOMAIN, NcclRanges, schema_entries
from benchmarks.programs.planted import Seen, Window, windows_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.programs.machine import Recorded, Timeline
    from benchmarks.programs.model import Program
    from benchmarks.programs.training import Lowered

_VM = 1 << 48
_EPOCH_NS = 1_790_000_000_000_000_000

_DDL = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "META_DATA_CAPTURE": "name TEXT NOT NULL, value TEXT",
    "ANALYSIS_DETAILS": (
        "globalVid INTEGER NOT NULL, duration INTEGER NOT NULL, startTime INTEGER NOT NULL, stopTime INTEGER NOT NULL"
    ),
    "TARGET_INFO_SYSTEM_ENV": (
        "globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, nameEnum INTEGER NOT NULL, value TEXT NOT"
        " NULL"
    ),
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_GPU": (
        "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, totalMemory INTEGER, "
        "memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, uuid TEXT, cuDevice INTEGER, computeMajor "
        "INTEGER, computeMinor INTEGER"
    ),
    "TARGET_INFO_CUDA_DEVICE": (
        "gpuId INTEGER NOT NULL, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT NOT NULL, "
        "numMultiprocessors INTEGER NOT NULL"
    ),
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    "ThreadNames": "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
        "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName "
        "INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, "
        "registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, "
        "blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT "
        "NULL, dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER "
        "NOT NULL, gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER, "
        "sharedMemoryLimitConfig INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
        "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER "
        "NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, srcDeviceId "
        "INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER, "
        "graphNodeId INTEGER, virtualAddress INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId "
        "INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
        "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, syncType "
        "INTEGER NOT NULL, eventId INTEGER NOT NULL"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
        "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, graphId INTEGER "
        "NOT NULL, graphExecId INTEGER NOT NULL"
    ),
    "NVTX_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color "
        "INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value "
        "INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL, "
        "jsonTextId INTEGER, jsonText TEXT, binaryData TEXT"
    ),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": (
        "domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL, idx INTEGER NOT NULL, flags INTEGER, type INTEGER, "
        "name TEXT, description TEXT, arrayOrUnionDetail INTEGER, offset INTEGER"
    ),
    "OSRT_API": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER "
        "NOT NULL, returnValue INTEGER NOT NULL, nestingLevel INTEGER, callchainId INTEGER NOT NULL"
    ),
    "MPI_RANKS": "globalTid INTEGER NOT NULL, rank INTEGER NOT NULL",
    "MPI_COMMUNICATORS": (
        "rank INTEGER, timestamp INTEGER, commHandle INTEGER, parentHandle INTEGER, localRank INTEGER, size INTEGER, "
        "groupRoot INTEGER, groupRootUid INTEGER, members TEXT"
    ),
    "MPI_COLLECTIVES_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER, commHandle INTEGER, rootRank "
        "INTEGER, size INTEGER, recvSize INTEGER, requestHandle INTEGER"
    ),
}
"""Tables as of schema 3.7, with fewer properties of devices; an export has those that have rows."""

_LAUNCHES = {"compiled": "cuLaunchKernel", "hopper": "cudaLaunchKernelExC_v11060"}
"""The call that launches most kernels, where it is not `cudaLaunchKernel`."""

_COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
_GPUS = (
    ("NVIDIA A100-SXM4-80GB", 85_095_874_560, 2_039_040_000_000, 1_410_000_000, 108, 8, 0),
    ("NVIDIA H100 80GB HBM3", 85_017_493_504, 3_352_320_000_000, 1_980_000_000, 132, 9, 0),
    ("Tesla V100-SXM2-32GB", 34_079_637_504, 898_048_000_000, 1_530_000_000, 80, 7, 0),
)


class _Device:
    """A device of a process: how the report numbers it, its streams, its threads and its launches."""

    def __init__(self, report: _Report, rank: int, place: int) -> None:
        program = report.program
        chance = random.Random(program.seed * 1_000_003 + rank)
        self.rank = rank
        self.context = place + 1
        self.number = 0 if report.hides_devices else report.local * program.view.devices + place
        pid = report.pid + 4 * place
        self.threads = (report.process | pid, report.process | pid + 211)
        self.place, self._devices = place, program.view.devices
        self._streams: dict[int, int] | None = {} if program.view.streams_differ else None
        self._last = chance.choice((6, 6, 12, 14, 19))
        self._chance = chance

    def stream(self, number: int) -> int:
        """The number that the report gives a stream of the program."""
        if self._streams is None:
            return number
        if number not in self._streams:
            self._last += self._chance.randint(1, 6)
            self._streams[number] = self._last
        return self._streams[number]

    def correlation(self, number: int) -> int:
        """The number that the process gives a launch onto this device."""
        return number * self._devices + self.place


class _Report:
    """One process' export, in memory until all is written."""

    def __init__(self, program: Program, lowered: Lowered, number: int) -> None:
        self.program = program
        self.lowered = lowered
        self.rank = number
        grid, count = program.grid, program.view.devices
        self.processes = grid.ranks // count
        self.local_size = self.processes // grid.hosts
        ranks = range(number * count, (number + 1) * count)
        self.host = grid.host_of(ranks[0])
        self.local = number % self.local_size
        chance = random.Random(program.seed * 1_000_003 + ranks[0])
        shared = random.Random(program.seed)
        self.hides_devices = shared.random() < 0.3 and count == 1  # each process sees one GPU, which it calls 0
        self.launcher = shared.choice(("torchrun", "slurm", "open mpi", "name only"))
        self.registered = shared.random() < 0.5
        self.inits = shared.random() < 0.4
        self.host_names = shared.choice(("node{:03d}", "gpu-{:d}.cluster", "nid{:06d}"))
        self.pid = 20_000 + 1_000 * self.host + 37 * self.local + chance.randrange(30)
        self.process = _VM | self.pid << 24
        self.begun_ns = -int(chance.uniform(2e9, 9e9))
        clock = program.view.clocks[self.host]
        self.rate = 1.0 + clock.drift
        jump = clock.jump_ns if self.local % 2 else 0
        stamp = chance.randint(-program.view.stamp_ns, program.view.stamp_ns)
        self.utc_ns = _EPOCH_NS + int(self.begun_ns * self.rate) + clock.offset_ns + jump + stamp
        self.strings: dict[str, int] = {}
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _DDL}
        self.devices = [_Device(self, rank, place) for place, rank in enumerate(ranks)]
        self.ranges = NcclRanges(program, lowered, self._range)
        self.seen: list[Seen] = []

    def at(self, true_ns: int) -> int:
        """A true time on this report's clock, in ns since its session began."""
        return int((true_ns - self.begun_ns) * self.rate)

    def text(self, value: str) -> int:
        """The id of a string."""
        return self.strings.setdefault(value, len(self.strings) + 16)

    def fill(self, recorded: Sequence[Recorded], windows: Sequence[Window]) -> None:
        """Take all that each device and its threads did in the window in which they were captured."""
        self._about(max((k[1] for own in recorded for k in own.kernels), default=0))
        for device, own, window in zip(self.devices, recorded, windows, strict=True):
            self._kernels(device, own, window)
            self._device_work(device, own, window)
            self._host_work(device, own, window)
            self._mpi(device, own, window)

    def _kernels(self, device: _Device, recorded: Recorded, window: Window) -> None:
        at, process, view = self.at, self.process, self.program.view
        kinds = [(self.text(k.name), self.text(k.short), k) for k in self.lowered.kernels]
        whole = view.graphs == "whole"
        for start, end, stream, number, launch, work, communicator, node, operation in recorded.kernels:
            if not window.keeps(start) or (node and whole):
                continue
            name, short, kernel = kinds[number]
            if communicator >= 0 and view.protocols_differ:
                kernel = self.ranges.kernel(device.rank, communicator, operation)
                name, short = self.text(kernel.name), self.text(kernel.short)
            blocks = max(1, round(kernel.blocks * work))
            stream, correlation = device.stream(stream), device.correlation(launch)
            place = (device.number, device.context, None, stream, correlation)
            if communicator >= 0:
                self.seen.append(Seen(self.rank, device.place, at(start), stream, communicator, operation))
            self.rows["CUPTI_ACTIVITY_KIND_KERNEL"].append(
                (
                    *(at(start), at(end), *place, process, name, short, None, 1, 0),
                    *(
                        kernel.registers,
                        blocks,
                        1,
                        1,
                        kernel.threads,
                        1,
                        1,
                        0,
                        0,
                        0,
                        0,
                        correlation,
                        32_768,
                        node or None,
                        0,
                    ),
                )
            )
        if whole:
            for start, end, stream, launch, size in recorded.graphs:
                if window.keeps(start):
                    place = (device.number, device.context, None, device.stream(stream), device.correlation(launch))
                    self.rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"].append(
                        (at(start), at(end), *place, process, size, size + 1)
                    )

    def _device_work(self, device: _Device, recorded: Recorded, window: Window) -> None:
        """Copies and waits."""
        at, process = self.at, self.process
        for start, end, stream, direction, size, memory, launch in recorded.copies:
            if window.keeps(start):
                host_kind = 1 if memory == "pinned" else 0
                kinds = (host_kind, 2) if direction == "HtoD" else (2, host_kind)
                place = (device.number, device.context, None, device.stream(stream), device.correlation(launch))
                self.rows["CUPTI_ACTIVITY_KIND_MEMCPY"].append(
                    (at(start), at(end), *place, process, size, _COPY_KINDS[direction], None, *kinds) + (None,) * 7
                )
        for start, end, kind, stream, launch in recorded.waits:
            if window.keeps(start):
                number = 4_294_967_295 if stream < 0 else device.stream(stream)
                kinds = (4 if kind == "context" else 3, 4_294_967_295)
                place = (device.number, device.context, None, number, device.correlation(launch))
                self.rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"].append((at(start), at(end), *place, process, *kinds))

    def _host_work(self, device: _Device, recorded: Recorded, window: Window) -> None:
        """Calls and ranges of the threads."""
        at = self.at
        usual = _LAUNCHES.get(self.program.style, "cudaLaunchKernel_v7000")
        for start, end, name, thread, launch in recorded.calls:
            if window.keeps(start):
                name = usual if name == "cudaLaunchKernel_v7000" else name
                driver = int(name.startswith("cu") and not name.startswith("cuda"))
                self.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append(
                    (
                        at(start),
                        at(end),
                        driver,
                        device.threads[thread],
                        device.correlation(launch),
                        self.text(name),
                        0,
                        None,
                    )
                )
        for start, end, text, domain, payload, thread in recorded.ranges:
            if window.contains(start):
                if domain == "NCCL":
                    self.ranges.write(start, end, device.rank, payload, device.threads[thread])
                else:
                    self._range(start, end, text, device.threads[thread])
        for start, end, name, thread in recorded.osrt:
            if window.contains(start):
                self.rows["OSRT_API"].append((at(start), at(end), 27, device.threads[thread], self.text(name), 0, 0, 0))

    def _range(self, start: int, end: int, text: str, thread: int, **more: Any) -> None:
        """A range; `more` has its `domain`, and of its payload `json` or `binary`."""
        named = (None, self.text(text)) if self.registered else (text, None)
        payload = (None,) * 7 + (more.get("json"), more.get("binary"))
        self.rows["NVTX_EVENTS"].append(
            (
                self.at(start),
                self.at(end),
                59,
                None,
                None,
                None,
                named[0],
                thread,
                None,
                named[1],
                more.get("domain"),
                *payload,
            )
        )

    def _mpi(self, device: _Device, recorded: Recorded, window: Window) -> None:
        if not self.program.mpi:
            return
        thread = device.threads[0]
        self.rows["MPI_RANKS"].append((thread, self.rank))
        for index, link in enumerate(self.program.communicators):
            if self.rank in link.ranks:
                place, everyone = link.ranks.index(self.rank), ",".join(map(str, link.ranks))
                self.rows["MPI_COMMUNICATORS"].append(
                    (
                        self.rank,
                        self.at(0),
                        140_000_000_000 + 64 * index,
                        0,
                        place,
                        len(link.ranks),
                        None,
                        None,
                        everyone,
                    )
                )
        for start, end, name, index, size in recorded.mpi:
            if window.contains(start):
                total = size * len(self.program.communicators[index].ranks)
                self.rows["MPI_COLLECTIVES_EVENTS"].append(
                    (
                        self.at(start),
                        self.at(end),
                        thread,
                        self.text(name),
                        140_000_000_000 + 64 * index,
                        None,
                        total,
                        total,
                        None,
                    )
                )

    def _about(self, last_ns: int) -> None:
        program, rows, view = self.program, self.rows, self.program.view
        version = view.schema.split(".")
        export = {"EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems", "EXPORT_SCHEMA_VERSION": view.schema}
        export |= dict(zip(("EXPORT_SCHEMA_VERSION_MAJOR", "EXPORT_SCHEMA_VERSION_MINOR"), version, strict=False))
        rows["META_DATA_EXPORT"] += export.items()
        size, local_size = self.processes, self.local_size
        launchers: dict[str, dict[str, Any]] = {
            "torchrun": {
                "RANK": self.rank,
                "LOCAL_RANK": self.local,
                "WORLD_SIZE": size,
                "LOCAL_WORLD_SIZE": local_size,
            },
            "slurm": {"SLURM_PROCID": self.rank, "SLURM_LOCALID": self.local, "SLURM_NTASKS": size},
            "open mpi": {
                "OMPI_COMM_WORLD_RANK": self.rank,
                "OMPI_COMM_WORLD_LOCAL_RANK": self.local,
                "OMPI_COMM_WORLD_SIZE": size,
            },
            "name only": {"HOME": "/home/user"},
        }
        shown = {k: str(v) for k, v in launchers[self.launcher].items()}
        if self.hides_devices:
            shown["CUDA_VISIBLE_DEVICES"] = str(self.local)
        rows["META_DATA_CAPTURE"] += [("PROCESS_0:ENVIRONMENT_VARIABLE", f"{k}={v}") for k, v in shown.items()]
        host = self.host_names.format(self.host + 1)
        rows["TARGET_INFO_SYSTEM_ENV"] += [(_VM, "Device", "Hostname", 1, host), (_VM, "Device", "CpuCores", 2, "96")]
        moment = datetime.fromtimestamp(self.utc_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        rows["TARGET_INFO_SESSION_START_TIME"].append((self.utc_ns, moment, moment))
        last = self.at(last_ns)
        rows["ANALYSIS_DETAILS"].append((_VM, last - 400_000_000, 400_000_000, last))
        gpu = _GPUS[1 if program.style in ("hopper", "compiled") else 2 if program.style == "volta" else 0]
        own = {d.number if not self.hides_devices else self.local: d for d in self.devices}
        for device in range(local_size * view.devices):
            uuid = f"{program.seed & 0xFFFFFFFF:08x}-{self.host:04x}-4a5b-8c1d-{device:012x}"
            bus = f"0000:{16 + 9 * device:02x}:00.0"
            name, memory, bandwidth, clock, processors, major, minor = gpu
            rows["TARGET_INFO_GPU"].append(
                (_VM, device, name, bus, memory, bandwidth, clock, processors, uuid, device, major, minor)
            )
            if device in own:
                rows["TARGET_INFO_CUDA_DEVICE"].append((device, own[device].number, self.pid, uuid, processors))
        rows["PROCESSES"].append((self.process, self.pid, "python3.11"))
        for owner in self.devices:
            for number, thread in enumerate(owner.threads):
                rows["ThreadNames"].append((self.text("python3" if not number else "pt_autograd_0"), 10, thread))
        if view.nccl != "none":
            self._nccl_domain()

    def _nccl_domain(self) -> None:
        begin = self.at(self.begun_ns + 1_500_000_000)
        rows, thread = self.rows["NVTX_EVENTS"], self.devices[0].threads[0]
        rows.append((begin, None, 75, None, None, None, "NCCL", thread, None, None, DOMAIN, *(None,) * 9))
        if self.program.view.nccl in ("binary", "names"):
            self.rows["NVTX_PAYLOAD_SCHEMA_ENTRIES"] += schema_entries()
        elif self.program.view.nccl == "json" and self.inits:
            for device in self.devices:
                self.ranges.inits(self.begun_ns + 1_600_000_000, device.rank, device.number, device.threads[0])

    def write(self, path: Path) -> None:
        """Write the file."""
        self.rows["StringIds"] = [(number, value) for value, number in self.strings.items()]
        database = sqlite3.connect(":memory:")
        for table, columns in _DDL.items():
            rows = self.rows[table]
            if rows:
                database.execute(f"CREATE TABLE {table} ({columns})")
                database.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)
        database.commit()
        path.write_bytes(database.serialize())
        database.close()


class Written(NamedTuple):
    """The report of a process.

    Attributes:
        path: The file.
        rank: The process, as the job numbers it.
        host: Number of its host.
        seen: The kernels of communication in it.
        begun_ns: True time of the start of its session.
        rate: ns of its clock in a ns.
    """

    path: Path
    rank: int
    host: int
    seen: list[Seen]
    begun_ns: int
    rate: float

    def at(self, true_ns: int) -> int:
        """A true time on the report's clock, in ns since its session began."""
        return int((true_ns - self.begun_ns) * self.rate)


def write_reports(program: Program, lowered: Lowered, timeline: Timeline, folder: Path) -> list[Path]:
    """`write_all`, of which only the files are of interest."""
    return [written.path for written in write_all(program, lowered, timeline, folder)]


def write_all(program: Program, lowered: Lowered, timeline: Timeline, folder: Path) -> list[Written]:
    """Write the reports of all processes that have one into a folder; in the order of ranks.

    Args:
        program: The program.
        lowered: Its instructions, with all causes.
        timeline: Their execution, recorded.
        folder: Where to.
    """
    count = program.view.devices
    recorded = timeline.recorded or []
    windows = windows_of(program, timeline)
    written = []
    for number in range(program.grid.ranks // count):
        if number in program.view.missing:
            continue
        report = _Report(program, lowered, number)
        own = slice(number * count, (number + 1) * count)
        report.fill(recorded[own], windows[own])
        path = folder / f"{program.view.naming.format(number)}.sqlite"
        report.write(path)
        written.append(Written(path, number, report.host, report.seen, report.begun_ns, report.rate))
    return written


def events_of(recorded: Sequence[Recorded]) -> int:
    """The most events of a rank."""
    return max(
        len(r.kernels)
        + len(r.copies)
        + len(r.graphs)
        + len(r.calls)
        + len(r.ranges)
        + len(r.osrt)
        + len(r.mpi)
        + len(r.waits)
        for r in recorded
    )
