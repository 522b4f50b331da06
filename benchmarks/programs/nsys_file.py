"""Writes what Nsight Systems would have exported of an execution: an SQLite file for each rank."""

from __future__ import annotations

import json
import random
import sqlite3
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.programs.machine import Recorded, Timeline
    from benchmarks.programs.model import Program
    from benchmarks.programs.training import Lowered

_VM = 1 << 48
_EPOCH_NS = 1_790_000_000_000_000_000
_DOMAIN = 1
_SCHEMAS = {"collective": 16_777_223, "message": 16_777_226, "plain": 16_777_220, "init": 16_777_227}

_DDL = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "META_DATA_CAPTURE": "name TEXT NOT NULL, value TEXT",
    "ANALYSIS_DETAILS": (
        "globalVid INTEGER NOT NULL, duration INTEGER NOT NULL, startTime INTEGER NOT NULL, stopTime INTEGER NOT NULL"
    ),
    "TARGET_INFO_SYSTEM_ENV": (
        "globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, nameEnum INTEGER NOT NULL, value TEXT NOT NULL"
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


class _Report:
    """One rank's export, in memory until all is written."""

    def __init__(self, program: Program, lowered: Lowered, rank: int) -> None:
        self.program = program
        self.lowered = lowered
        self.rank = rank
        grid = program.grid
        self.host = grid.host_of(rank)
        self.local = rank % (grid.ranks // grid.hosts)
        chance = random.Random(program.seed * 1_000_003 + rank)
        shared = random.Random(program.seed)
        self.hides_devices = shared.random() < 0.3  # each process sees one GPU, which it calls 0
        self.launcher = shared.choice(("torchrun", "slurm", "open mpi", "name only"))
        self.registered = shared.random() < 0.5
        self.inits = shared.random() < 0.4
        self.host_names = shared.choice(("node{:03d}", "gpu-{:d}.cluster", "nid{:06d}"))
        self.pid = 20_000 + 1_000 * self.host + 37 * self.local + chance.randrange(30)
        self.process = _VM | self.pid << 24
        self.threads = (self.process | self.pid, self.process | self.pid + 211)
        self.device = 0 if self.hides_devices else self.local
        self.begun_ns = -int(chance.uniform(2e9, 9e9))
        clock = program.view.clocks[self.host]
        self.rate = 1.0 + clock.drift
        jump = clock.jump_ns if self.local % 2 else 0
        self.utc_ns = _EPOCH_NS + int(self.begun_ns * self.rate) + clock.offset_ns + jump
        self.strings: dict[str, int] = {}
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _DDL}

    def at(self, true_ns: int) -> int:
        """A true time on this report's clock, in ns since its session began."""
        return int((true_ns - self.begun_ns) * self.rate)

    def text(self, value: str) -> int:
        """The id of a string."""
        return self.strings.setdefault(value, len(self.strings) + 16)

    def fill(self, recorded: Recorded, window_ns: int) -> None:
        """Take all that began in the capture window, which begins at a true time."""
        self._about(recorded)
        self._kernels(recorded, window_ns)
        at, process, device = self.at, self.process, self.device
        for start, end, stream, direction, size, memory, correlation in recorded.copies:
            if start >= window_ns:
                host_kind = 1 if memory == "pinned" else 0
                kinds = (host_kind, 2) if direction == "HtoD" else (2, host_kind)
                self.rows["CUPTI_ACTIVITY_KIND_MEMCPY"].append(
                    (at(start), at(end), device, 1, None, stream, correlation, process, size, _COPY_KINDS[direction], None, *kinds)
                    + (None,) * 7
                )
        launch = _LAUNCHES.get(self.program.style, "cudaLaunchKernel_v7000")
        for start, end, name, thread, correlation in recorded.calls:
            if start >= window_ns:
                name = launch if name == "cudaLaunchKernel_v7000" else name
                driver = int(name.startswith("cu") and not name.startswith("cuda"))
                self.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append(
                    (at(start), at(end), driver, self.threads[thread], correlation, self.text(name), 0, None)
                )
        for start, end, kind, stream, correlation in recorded.waits:
            if start >= window_ns:
                number = 4_294_967_295 if stream < 0 else stream
                kinds = (4 if kind == "context" else 3, 4_294_967_295)
                self.rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"].append(
                    (at(start), at(end), device, 1, None, number, correlation, process, *kinds)
                )
        for start, end, text, domain, payload, thread in recorded.ranges:
            if start >= window_ns:
                if domain == "NCCL":
                    self._nccl(start, end, text, payload, self.threads[thread])
                else:
                    self._range(start, end, text, self.threads[thread])
        for start, end, name, thread in recorded.osrt:
            if start >= window_ns:
                self.rows["OSRT_API"].append((at(start), at(end), 27, self.threads[thread], self.text(name), 0, 0, 0))
        self._mpi(recorded, window_ns)

    def _kernels(self, recorded: Recorded, window_ns: int) -> None:
        at, process, device = self.at, self.process, self.device
        kinds = [(self.text(k.name), self.text(k.short), k) for k in self.lowered.kernels]
        whole = self.program.view.graphs == "whole"
        for start, end, stream, number, correlation, work, _, node in recorded.kernels:
            if start < window_ns or (node and whole):
                continue
            name, short, kernel = kinds[number]
            blocks = max(1, round(kernel.blocks * work))
            self.rows["CUPTI_ACTIVITY_KIND_KERNEL"].append(
                (
                    *(at(start), at(end), device, 1, None, stream, correlation, process, name, short, None, 1, 0),
                    *(kernel.registers, blocks, 1, 1, kernel.threads, 1, 1, 0, 0, 0, 0, correlation, 32_768, node or None, 0),
                )
            )
        if whole:
            for start, end, stream, correlation, size in recorded.graphs:
                if start >= window_ns:
                    self.rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"].append(
                        (at(start), at(end), device, 1, None, stream, correlation, process, size, size + 1)
                    )

    def _range(self, start: int, end: int, text: str, thread: int, **more: Any) -> None:
        named = (None, self.text(text)) if self.registered else (text, None)
        payload = (None,) * 7 + (more.get("json"), more.get("binary"))
        self.rows["NVTX_EVENTS"].append(
            (self.at(start), self.at(end), 59, None, None, None, named[0], thread, None, named[1], more.get("domain"), *payload)
        )

    def _nccl(self, start: int, end: int, operation: str, payload: tuple[int, int], thread: int) -> None:
        """The ranges of a call of NCCL; sends and receives issued together are a group, launched by its end."""
        index, size = payload
        members = self.program.communicators[index].ranks
        place = members.index(self.rank)
        if operation == "SendRecv" and len(members) == 2 and self.program.communicators[index].role != "cp":
            sends = (place == 0) == (self.program.communicators[index].role == "forward")
            self._nccl_range(start, end, "ncclSend" if sends else "ncclRecv", index, size, 1 - place, thread)
            return
        if operation not in ("SendRecv", "AllToAll"):
            self._nccl_range(start, end, f"nccl{operation}", index, size, None, thread)
            return
        if operation == "SendRecv":
            calls = [("ncclSend", (place + 1) % len(members), size), ("ncclRecv", (place - 1) % len(members), size)]
        else:
            calls = [(name, peer, size // len(members)) for peer in range(len(members)) for name in ("ncclSend", "ncclRecv")]
        took = max(1, (end - start) // (4 * len(calls)))
        for number, (name, peer, part) in enumerate(calls):
            self._nccl_range(start + number * took, start + (number + 1) * took, name, index, part, peer, thread)
        self._nccl_range(start + len(calls) * took, end, "ncclGroupEnd", index, 0, None, thread)

    def _nccl_range(self, start: int, end: int, name: str, index: int, size: int, peer: int | None, thread: int) -> None:
        more: dict[str, Any] = {"domain": _DOMAIN}
        identifier = self.program.communicators[index].identifier
        mode = self.program.view.nccl
        reduces = name in ("ncclAllReduce", "ncclReduceScatter")
        if name == "ncclGroupEnd":
            pass
        elif mode == "json":
            told: dict[str, Any] = {"NCCL communicator ID": identifier, "Message size [bytes]": size}
            told |= {"Reduction operation": "Sum"} if reduces else {"Peer rank": peer} if peer is not None else {}
            more["json"] = json.dumps(told)
        elif mode == "binary":
            schema = _SCHEMAS["collective" if reduces else "message" if peer is not None else "plain"]
            body = struct.pack("<QQ", identifier, size) + struct.pack("<ii", 0 if peer is None else peer, 0)
            more["binary"] = (struct.pack("<QQQQ", _DOMAIN, schema, len(body), len(body) + 32) + body).hex().upper()
        elif mode == "bytes":
            more["json"] = json.dumps({"Message size [bytes]": size})
        self._range(start, end, name, thread, **more)

    def _mpi(self, recorded: Recorded, window_ns: int) -> None:
        if not self.program.mpi:
            return
        thread = self.threads[0]
        self.rows["MPI_RANKS"].append((thread, self.rank))
        for index, link in enumerate(self.program.communicators):
            if self.rank in link.ranks:
                place, everyone = link.ranks.index(self.rank), ",".join(map(str, link.ranks))
                self.rows["MPI_COMMUNICATORS"].append(
                    (self.rank, self.at(0), 140_000_000_000 + 64 * index, 0, place, len(link.ranks), None, None, everyone)
                )
        for start, end, name, index, size in recorded.mpi:
            if start >= window_ns:
                total = size * len(self.program.communicators[index].ranks)
                self.rows["MPI_COLLECTIVES_EVENTS"].append(
                    (self.at(start), self.at(end), thread, self.text(name), 140_000_000_000 + 64 * index, None, total, total, None)
                )

    def _about(self, recorded: Recorded) -> None:
        program, rows, view = self.program, self.rows, self.program.view
        version = view.schema.split(".")
        export = {"EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems", "EXPORT_SCHEMA_VERSION": view.schema}
        export |= dict(zip(("EXPORT_SCHEMA_VERSION_MAJOR", "EXPORT_SCHEMA_VERSION_MINOR"), version, strict=False))
        rows["META_DATA_EXPORT"] += export.items()
        size, local_size = program.grid.ranks, program.grid.ranks // program.grid.hosts
        launchers: dict[str, dict[str, Any]] = {
            "torchrun": {"RANK": self.rank, "LOCAL_RANK": self.local, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": local_size},
            "slurm": {"SLURM_PROCID": self.rank, "SLURM_LOCALID": self.local, "SLURM_NTASKS": size},
            "open mpi": {"OMPI_COMM_WORLD_RANK": self.rank, "OMPI_COMM_WORLD_LOCAL_RANK": self.local, "OMPI_COMM_WORLD_SIZE": size},
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
        last = self.at(max((k[1] for k in recorded.kernels), default=0))
        rows["ANALYSIS_DETAILS"].append((_VM, last - 400_000_000, 400_000_000, last))
        gpu = _GPUS[1 if program.style in ("hopper", "compiled") else 2 if program.style == "volta" else 0]
        for device in range(local_size):
            uuid = f"{program.seed & 0xFFFFFFFF:08x}-{self.host:04x}-4a5b-8c1d-{device:012x}"
            bus = f"0000:{16 + 9 * device:02x}:00.0"
            name, memory, bandwidth, clock, processors, major, minor = gpu
            rows["TARGET_INFO_GPU"].append(
                (_VM, device, name, bus, memory, bandwidth, clock, processors, uuid, device, major, minor)
            )
            if device == self.local:
                rows["TARGET_INFO_CUDA_DEVICE"].append((device, self.device, self.pid, uuid, processors))
        rows["PROCESSES"].append((self.process, self.pid, "python3.11"))
        for number, thread in enumerate(self.threads):
            rows["ThreadNames"].append((self.text("python3" if not number else "pt_autograd_0"), 10, thread))
        if view.nccl != "none":
            self._nccl_domain()

    def _nccl_domain(self) -> None:
        begin = self.at(self.begun_ns + 1_500_000_000)
        rows = self.rows["NVTX_EVENTS"]
        rows.append((begin, None, 75, None, None, None, "NCCL", self.threads[0], None, None, _DOMAIN, *(None,) * 9))
        if self.program.view.nccl == "binary":
            for schema in _SCHEMAS.values():
                entries = [(18, "NCCL communicator ID", None), (22, "Message size [bytes]", 8)]
                entries += [(5, "Peer rank", 16)] if schema == _SCHEMAS["message"] else []
                entries += [(16_777_232, "Reduction operation", 16)] if schema == _SCHEMAS["collective"] else []
                if schema == _SCHEMAS["init"]:
                    entries = [entries[0], (5, "No. of ranks", 8), (5, "Rank", 12), (5, "CUDA device", 16)]
                self.rows["NVTX_PAYLOAD_SCHEMA_ENTRIES"] += [
                    (_DOMAIN, schema, number, None, kind, name, None, None, offset)
                    for number, (kind, name, offset) in enumerate(entries)
                ]
        elif self.program.view.nccl == "json" and self.inits:
            for index, link in enumerate(self.program.communicators):
                if self.rank in link.ranks:
                    told = {
                        "NCCL communicator ID": link.identifier,
                        "No. of ranks": len(link.ranks),
                        "Rank": link.ranks.index(self.rank),
                        "CUDA device": self.local,
                    }
                    start = self.begun_ns + 1_600_000_000 + index * 1_000_000
                    self._range(start, start + 900_000, "ncclCommInitRank", self.threads[0], domain=_DOMAIN, json=json.dumps(told))

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


def write_reports(program: Program, lowered: Lowered, timeline: Timeline, folder: Path) -> list[Path]:
    """Write the reports of all ranks that have one into a folder.

    Args:
        program: The program.
        lowered: Its instructions, with all causes.
        timeline: Their execution, recorded.
        folder: Where to.

    Returns:
        The files, in the order of ranks.
    """
    ends = {step: max(rank[step] for rank in timeline.ends) for step in range(program.steps)}
    late = dict(program.view.late)
    written = []
    for rank, recorded in enumerate(timeline.recorded or ()):
        if rank in program.view.missing:
            continue
        window_ns = -(1 << 62)
        if rank in late:
            step, part = divmod(late[rank], 1)
            window_ns = int(ends[int(step) - 1] + part * (ends[int(step)] - ends[int(step) - 1]))
        report = _Report(program, lowered, rank)
        report.fill(recorded, window_ns)
        path = folder / f"{program.view.naming.format(rank)}.sqlite"
        report.write(path)
        written.append(path)
    return written


def events_of(recorded: Sequence[Recorded]) -> int:
    """The most events of a rank."""
    return max(
        len(r.kernels) + len(r.copies) + len(r.graphs) + len(r.calls) + len(r.ranges) + len(r.osrt) + len(r.mpi) + len(r.waits)
        for r in recorded
    )
