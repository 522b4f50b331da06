"""The contents of a report other than events: session, host, processes, devices, environment, secrets."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from alltrace.synth.identity import Identity
from alltrace.synth.nsys_schema import PRODUCTS
from alltrace.synth.recording import Recording
from alltrace.synth.scenario import Environment, Scenario
from alltrace.synth.simulate import SimulatedRun
from alltrace.synth.timeline import Names, Timeline

_Facts: TypeAlias = "tuple[tuple[str, ...], list[tuple[object, ...]]]"

_VM = 1
_GLOBAL_VM = _VM << 48
_CONTEXT = 1
_NULL_STREAM = 7
_SECRET_NAMES = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "DATABASE_PASSWORD")

# H100 as nsys describes it; columns that differ between devices are filled in below.
GPU_FACTS: dict[str, object] = {
    "name": "NVIDIA H100 80GB HBM3", "isDiscrete": 1, "l2CacheSize": 52_428_800, "totalMemory": 85_045_084_160,
    "memoryBandwidth": 3_352_320_000_000, "clockRate": 1_980_000_000, "smCount": 132, "luid": 0, "chipName": "GH100",
    "ctxswDevPath": "", "ctrlDevPath": "", "revision": 161, "nodeMask": 0, "constantMemory": 65_536, "maxIPC": 4,
    "maxRegistersPerBlock": 65_536, "maxShmemPerBlock": 49_152, "maxShmemPerBlockOptin": 232_448,
    "maxShmemPerSm": 233_472, "maxRegistersPerSm": 65_536, "threadsPerWarp": 32, "asyncEngines": 3, "maxWarpsPerSm": 64,
    "maxBlocksPerSm": 32, "maxThreadsPerBlock": 1_024, "maxBlockDimX": 1_024, "maxBlockDimY": 1_024, "maxBlockDimZ": 64,
    "maxGridDimX": 2_147_483_647, "maxGridDimY": 65_535, "maxGridDimZ": 65_535, "computeMajor": 9, "computeMinor": 0,
    "smMajor": 9, "smMinor": 0,
}  # fmt: skip


# `identity`: the rank's identity. `file_name`: the report's file or folder name. `recording`: what it has of what
# happened; everything by default.
class Report:
    """One rank of a simulated run as nsys would report it."""

    def __init__(
        self, run: SimulatedRun, identity: Identity, file_name: str, recording: Recording | None = None
    ) -> None:
        self.run = run
        self._recording = recording
        self.identity = identity
        self.file_name = file_name
        self.strings: Names = Names()
        self.strings.number("")

    @property
    def rank(self) -> int:
        return self.identity.rank

    @property
    def scenario(self) -> Scenario:
        return self.run.scenario

    @property
    def environment(self) -> Environment:
        return self.run.scenario.environment

    @property
    def timeline(self) -> Timeline:
        recorded = self._recording.timeline if self._recording else None
        return self.run.timelines[self.rank] if recorded is None else recorded

    @property
    def complaints(self) -> tuple[str, ...]:
        return self._recording.complaints if self._recording else ()

    @property
    def newer(self) -> bool:
        return self.environment.schema != "3.7.2"

    @property
    def global_pid(self) -> int:
        """The process number as nsys extends it: machine in bits 48 to 55, process in bits 24 to 47."""
        return _GLOBAL_VM | (self.identity.pid << 24)

    @cached_property
    def global_tids(self) -> NDArray[np.int64]:
        return np.array([self.global_pid | self.identity.pid & 0xFFFFFF, self.global_pid | self.identity.autograd_tid])

    @property
    def nccl_domain(self) -> int:
        """The number of NCCL's NVTX domain, which differs between processes."""
        return 1 + self.rank % 3

    @property
    def mpi_handle(self) -> int:
        """A communicator handle, a pointer of the process."""
        return 0x7F00_0000_0000 + (self.identity.pid << 12)

    def text_ids(self, used: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each name of the timeline its number in `StringIds`; 0 for names not in `used`."""
        numbers = np.zeros(len(self.timeline.names.texts), np.int64)
        texts = self.timeline.names.texts
        for name in used.tolist():
            numbers[name] = self.strings.number(texts[name])
        return numbers

    @cached_property
    def secrets(self) -> dict[str, str]:
        """Made-up credentials by name, if the scenario wants them."""
        if not self.environment.secrets:
            return {}
        rng = np.random.default_rng((self.scenario.seed, 8, self.rank))
        return {name: f"synthetic-secret-{rng.bytes(12).hex()}" for name in _SECRET_NAMES}


def fact_tables(report: Report) -> dict[str, _Facts]:
    tables: dict[str, _Facts] = {
        "TARGET_INFO_SYSTEM_ENV": _system(report),
        "TARGET_INFO_SESSION_START_TIME": _session(report),
        "ANALYSIS_DETAILS": _analysis(report),
        "PROCESSES": _processes(report),
        "ThreadNames": _threads(report),
        "TARGET_INFO_GPU": _gpus(report),
        "TARGET_INFO_CUDA_CONTEXT_INFO": _contexts(report),
        "TARGET_INFO_CUDA_STREAM": _streams(report),
        "META_DATA_CAPTURE": (("name", "value"), _capture(report)),
        "META_DATA_EXPORT": (("name", "value"), _export(report)),
    }
    if report.newer and report.environment.device_table:
        tables["TARGET_INFO_CUDA_DEVICE"] = _cuda_devices(report)
    # the older exporter keeps them to itself
    if report.complaints and report.newer:
        tables["DIAGNOSTIC_EVENT"] = _complaints(report)
    if report.secrets:
        tables["ProcessStreams"] = _output(report)
    if report.environment.rank_source == "mpi":
        tables["MPI_RANKS"] = (("globalTid", "rank"), [(int(report.global_tids[0]), report.rank)])
        tables["MPI_COMMUNICATORS"] = _mpi_communicators(report)
    return tables


def _system(report: Report) -> _Facts:
    visible = "".join(f";{name}={value}" for name, value in report.secrets.items())
    facts = (
        ("CpuCores", 1, "96"),
        ("CpuArchitecture", 3, "x86_64"),
        ("NvDriverVersion", 205, "580.95.05"),
        ("HardwarePlatform", 600, "x86_64"),
        ("OsDescription", 605, "Ubuntu 22.04.5 LTS"),
        ("DeviceEnvironment", 610, f"NCCL_DEBUG=WARN{visible}"),
        ("CudaDriverVersion", 611, "13000"),
        ("Hostname", 619, report.identity.host_name),
        ("KernelVersion", 882, "5.15.0-1062"),
    )
    columns = ("globalVid", "devStateName", "name", "nameEnum", "value")
    return columns, [(_GLOBAL_VM, "Local (CLI)", name, number, value) for name, number, value in facts]


def _iso(utc_ns: int) -> str:
    return datetime.fromtimestamp(utc_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _session(report: Report) -> _Facts:
    stamp = report.identity.utc_stamp_ns
    columns: tuple[str, ...] = ("utcEpochNs", "utcTime", "localTime")
    row: tuple[object, ...] = (stamp, _iso(stamp), _iso(stamp))
    if report.newer:
        return (*columns, "systemClockNs"), [(*row, report.identity.system_clock_ns)]
    return columns, [row]


def _stop_ns(report: Report) -> int:
    return int(report.identity.stamps(np.array([report.timeline.bounds[1]]))[0]) + 50_000_000


def _analysis(report: Report) -> _Facts:
    # in the newer schema the start is on the machine's clock, in the older one a fraction of a second
    start = report.identity.system_clock_ns if report.newer else 480_000_000
    stop = _stop_ns(report)
    duration = stop if report.newer else stop - start
    return ("globalVid", "duration", "startTime", "stopTime"), [(_GLOBAL_VM, duration, start, start + duration)]


def _processes(report: Report) -> _Facts:
    others = ((1, "systemd"), (612, "slurmd"), (900, "nsys"))
    rows: list[tuple[object, ...]] = [(_GLOBAL_VM | (pid << 24), pid, name) for pid, name in others]
    return ("globalPid", "pid", "name"), [*rows, (report.global_pid, report.identity.pid, "python3")]


def _threads(report: Report) -> _Facts:
    names = ("python3", "pt_autograd_0")
    rows = [
        (report.strings.number(name), 20, tid) for name, tid in zip(names, report.global_tids.tolist(), strict=True)
    ]
    return ("nameId", "priority", "globalTid"), [*rows]


def _gpus(report: Report) -> _Facts:
    columns = ("vmId", "id", "busLocation", "pwGpuId", "uuid", "cuDevice", *GPU_FACTS)
    rows: list[tuple[object, ...]] = []
    for index, uuid in enumerate(report.identity.device_uuids):
        bus = f"0000:{0x1B + 17 * index:02x}:00.0"
        rows.append((_GLOBAL_VM, index, bus, index, uuid, index, *GPU_FACTS.values()))
    return columns, rows


def _cuda_devices(report: Report) -> _Facts:
    identity = report.identity
    seen = (
        [(identity.device, 0)]
        if report.environment.visible_devices
        else [(index, index) for index in range(len(identity.device_uuids))]
    )
    columns = ("gpuId", "cudaId", "pid", "uuid", "numMultiprocessors")
    return columns, [(gpu, cuda, identity.pid, identity.device_uuids[gpu], 132) for gpu, cuda in seen]


def _contexts(report: Report) -> _Facts:
    columns = ("nullStreamId", "hwId", "vmId", "processId", "deviceId", "contextId")
    return columns, [(_NULL_STREAM, 0, _VM, report.identity.pid, report.identity.ordinal, _CONTEXT)]


def _streams(report: Report) -> _Facts:
    line = report.timeline
    used = np.unique(
        np.concatenate([rows["stream"] for rows in (line.kernels, line.copies, line.memsets, line.graphs)])
    )
    columns = ("streamId", "hwId", "vmId", "processId", "contextId", "priority", "flag")
    rows: list[tuple[object, ...]] = []
    for stream in used.tolist():
        null = stream == _NULL_STREAM
        rows.append((stream, 0, _VM, report.identity.pid, _CONTEXT, 0 if null else -5, 3 if null else 2))
    return columns, rows


def _complaints(report: Report) -> _Facts:
    columns = ("timestamp", "timestampType", "source", "severity", "text", "globalPid")
    host_time, analysis, warning = 2, 3, 2
    return columns, [
        (_stop_ns(report), host_time, analysis, warning, text, report.global_pid) for text in report.complaints
    ]


def _output(report: Report) -> _Facts:
    path = report.strings.number(f"/run/nsight_systems/streams/pid_{report.identity.pid}_stdout.log")
    lines = "".join(f"loaded {name}={value}\n" for name, value in report.secrets.items())
    return ("globalPid", "filenameId", "contentId"), [(report.global_pid, path, report.strings.number(lines))]


def _mpi_communicators(report: Report) -> _Facts:
    columns = ("rank", "timestamp", "commHandle", "parentHandle", "localRank", "size")
    begin = int(report.identity.stamps(np.array([report.timeline.bounds[0]]))[0])
    return columns, [(report.rank, begin, report.mpi_handle, 0, report.rank, report.scenario.layout.ranks)]


def _capture(report: Report) -> list[tuple[object, ...]]:
    layout, environment, identity = report.scenario.layout, report.environment, report.identity
    variables: dict[str, str] = {"HOME": "/home/user", "NCCL_DEBUG": "WARN"}
    if environment.rank_source == "environment":
        variables |= {
            "RANK": str(report.rank),
            "LOCAL_RANK": str(identity.local_rank),
            "WORLD_SIZE": str(layout.ranks),
            "LOCAL_WORLD_SIZE": str(layout.ranks_per_host),
            "GROUP_RANK": str(identity.host),
            "MASTER_ADDR": "node001",
            "MASTER_PORT": "29500",
        }
    if environment.visible_devices:
        variables["CUDA_VISIBLE_DEVICES"] = str(identity.device)
    variables |= report.secrets
    arguments = ["train.py", "--steps", str(report.scenario.steps)]
    if report.secrets:
        arguments.append(f"--api-key={report.secrets['WANDB_API_KEY']}")
    return [
        ("DEVICE_ID", "Local (CLI)"),
        ("CAPTURE_EVENT_TYPE", "NvtxEvents"),
        ("CAPTURE_EVENT_TYPE", "Cuda"),
        ("DEVICE_DISPLAY_NAME", identity.host_name),
        ("CUDA_GRAPH_TRACE_OPTIONS:MODE", "Graph" if len(report.timeline.graphs) else "Node"),
        ("PROCESS_0:COMMAND", "python3"),
        *((f"PROCESS_0:ARGUMENT_{place}", text) for place, text in enumerate(arguments)),
        ("PROCESS_0:WORKING_DIR", "/home/user/train"),
        ("PROCESS_0:COLLECT_NVTX_TRACE", "true"),
        ("PROCESS_0:COLLECT_CUDA_TRACE", "true"),
        *(("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"') for name, value in sorted(variables.items())),
    ]


def _export(report: Report) -> list[tuple[object, ...]]:
    version = report.environment.schema
    product = PRODUCTS[version]
    payloads = str(report.environment.payloads).lower()
    options = [(f"EXPORT_PARAM_INCLUDE_{what}", payloads) for what in ("BLOBS", "JSON")] if report.newer else []
    parts = zip(("MAJOR", "MINOR", "MICRO"), version.split("."), strict=True)
    return [
        ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
        ("EXPORT_PRODUCT_VERSION", product),
        ("EXPORT_SCHEMA_VERSION", version),
        *((f"EXPORT_SCHEMA_VERSION_{name}", part) for name, part in parts),
        ("EXPORT_PLATFORM", "linux-desktop"),
        ("EXPORT_ARCH", "x64"),
        ("EXPORT_TIME_UTC", _iso(report.identity.utc_stamp_ns + 600 * 10**9)),
        ("EXPORT_HOST", report.identity.host_name),
        ("EXPORT_PARAM_INPUT_FILE", report.file_name.rsplit(".", 1)[0].removesuffix("_pqtdir") + ".nsys-rep"),
        ("EXPORT_PARAM_LAZY", "true"),
        ("EXPORT_PARAM_TIME_NORMALIZE", "false"),
        ("EXPORT_PARAM_TIME_SHIFT", "0"),
        *options,
    ]
