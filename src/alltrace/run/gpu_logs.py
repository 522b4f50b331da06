"""The GPU logs of a run's job: their samples by the rank that uses the GPU, as the table `gpu_log`.

    logs/gpu_log.parquet        the samples of all ranks (`GPU_LOG`)

A GPU is known by its UUID. Logs that only have indices or bus ids belong to a host: the one that the log or its file
name names, or the only one. `nvidia-smi` writes local times; their offset to UTC comes from the caller, from a file
next to the log (`FILE.utc-offset`, as `date +%z` prints it), or from the offset at which the samples match the reports.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.trace.errors import InputError, UsageError, path_text
from alltrace.trace.gpu_log_words import LOG_ENDING, OFFSET_SUFFIX
from alltrace.trace.number_text import counted, number_ranges
from alltrace.trace.schema import Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from alltrace.readers.gpu_log.read import GpuLog
    from alltrace.readers.gpu_log.sample import Gpu
    from alltrace.run.manifest import Device, Manifest, RankRecord

GPU_LOG = Table(
    "gpu_log",
    "One sample of the clocks, power and temperature of a rank's GPU, from a log that was imported with the reports.",
    (
        Column("rank", "int32", None, "rank"),
        Column("time", "time", "ns", "the moment"),
        Column("device", "int32", None, "row of the rank's `devices`"),
        Column("sm_clock_mhz", "float64", "MHz", "clock of the multiprocessors"),
        Column("memory_clock_mhz", "float64", "MHz", "clock of the memory"),
        Column("power_w", "float64", "W", "power drawn"),
        Column("temperature_c", "float64", "C", "temperature"),
        Column(
            "event_reasons",
            "int64",
            None,
            "why clocks are lower than they could be: the bits of NVML's clock event reasons",
        ),
    ),
    (),
    "time",
)
FILE = "gpu_log.parquet"

_OFFSET = re.compile(r"\s*(?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-9]{2})\s*", re.ASCII)
_QUARTER_NS = 900 * 10**9
_QUARTERS = range(-12 * 4, 14 * 4 + 1)  # zones go from UTC-12 to UTC+14, in quarters of an hour

_AT_ONCE = 16  # how many logs are read in parallel and kept in memory

_AROUND_NS = 10**10  # samples from this time before a rank's first event to this time after its last one are kept

_WRITTEN_NS = 60 * 10**9  # the longest time between the last sample in a file and the last write to it


def parse_utc_offset(text: str, option: str = "--gpu-log-utc-offset") -> int:
    """How far a local time such as `+01:00`, `-0730` or `Z` is ahead of UTC, ns. Raises `UsageError`: no offset."""
    if text.strip() in ("Z", "UTC"):
        return 0
    match = _OFFSET.fullmatch(text)
    minutes = int(match["hours"]) * 60 + int(match["minutes"]) if match else 9999
    if match is None or int(match["minutes"]) > 59 or minutes > 14 * 60:
        raise UsageError(
            f"{option} is {text[:40]!r}; expected how far local time is ahead of UTC, such as +01:00 or -0730"
        )
    return (-1 if match["sign"] == "-" else 1) * minutes * 60 * 10**9


def logs_beside(reports: Sequence[str]) -> list[str]:
    """The GPU logs that were recorded with the reports, in the folders that are among `reports`."""
    return sorted(
        str(p)
        for folder in reports
        if "://" not in folder and Path(folder).is_dir()
        for p in Path(folder).glob(f"*{LOG_ENDING}")
    )


def import_gpu_logs(
    folder: Path, manifest: Manifest, paths: Sequence[Path], offset_ns: int | None, jobs: int | None
) -> tuple[list[tuple[str, int]], tuple[str, ...]]:
    """Write the samples of the run's GPUs into `folder`; returns how many were taken of each log, and notes.

    `offset_ns`: how far local times are ahead of UTC, ns; None to use a file next to each log, or the times. Raises
    `InputError`: a log cannot be read, or joined. Raises `UsageError`: its times could be of several zones.
    """
    import pyarrow.parquet as pq

    from alltrace.readers.gpu_log.read import read_gpu_log
    from alltrace.run.log_files import FilesRead, read_files

    taken, notes = [], []
    known: set[int] = set()
    schema = GPU_LOG.arrow_schema()
    users = _Users(manifest)
    files = [p for p in paths if p.suffix != OFFSET_SUFFIX]
    errors: list[InputError] = []

    def logs() -> Iterator[GpuLog]:
        for n in range(0, len(files), _AT_ONCE):
            read = read_files(read_gpu_log, files[n : n + _AT_ONCE], jobs)
            errors.extend(read.errors)
            yield from read.results

    with pq.ParquetWriter(folder / FILE, schema, compression="zstd") as writer:
        for log in logs():
            owners = users.of(log)
            ahead, how = _ahead_ns(log, owners, offset_ns)
            tables = [_rows(log, rank, device, gpu, ahead) for gpu, rank, device in owners]
            rows = [t for t in tables if t is not None and t.num_rows]
            if not rows:
                raise InputError(
                    log.path,
                    found="none of its samples were taken during the capture of its GPUs' ranks",
                    advice=(
                        "give the log of the same job; if its time zone was guessed wrong, give --gpu-log-utc-offset"
                    ),
                )
            for table in rows:
                writer.write_table(table.cast(schema))
            known |= {rank.rank for _gpu, rank, _device in owners}
            taken.append((log.path, sum(t.num_rows for t in rows)))
            notes += _notes(log, how)
    notes += FilesRead(taken, errors).require_any().notes
    without = sorted({r.rank for r in manifest.ranks} - known)
    if without:
        notes.append(f"the GPU logs have no samples for the GPUs of rank {number_ranges(without)}")
    return taken, tuple(notes)


def _notes(log: GpuLog, how: str) -> list[str]:
    name = path_text(log.path)
    notes = [f"{name}: {how}"] if how else []
    if log.bad_lines:
        notes.append(f"{name}: {counted(log.bad_lines, 'line')} left out that could not be read ({log.first_bad})")
    return [*notes, *([f"{name}: {log.damage}"] if log.damage else [])]


class _Users:
    def __init__(self, manifest: Manifest) -> None:
        self._hosts = manifest.hosts
        self._by_uuid: dict[str, list[tuple[RankRecord, Device]]] = {}
        self._by_host: dict[str, list[tuple[RankRecord, Device]]] = {}
        for rank in manifest.ranks:
            for device in rank.devices:
                self._by_host.setdefault(rank.host, []).append((rank, device))
                if device.uuid is not None:
                    self._by_uuid.setdefault(_uuid(device.uuid), []).append((rank, device))

    def of(self, log: GpuLog) -> list[tuple[int, RankRecord, Device]]:
        """For each GPU of the log, by row, the ranks that use it, with the device.

        Raises `InputError`: None of the log's GPUs is one of the run's.
        """
        users = []
        for row, gpu in enumerate(log.gpus):
            if gpu.uuid is not None:
                users += [(row, r, d) for r, d in self._by_uuid.get(_uuid(gpu.uuid), ())]
                continue
            here = self._by_host.get(_host_of(log, gpu, self._hosts) or "", [])
            if gpu.bus_id is not None:
                users += [(row, r, d) for r, d in here if d.bus_id is not None and _bus_id(d.bus_id) == gpu.bus_id]
            elif gpu.number is not None:
                places = _by_index(here, {g.number for g in log.gpus})
                users += [(row, r, d) for r, d in here if places.get(d.identity) == gpu.number]
        if not users:
            raise InputError(
                log.path,
                found=f"none of its {counted(len(log.gpus), 'GPU')} matches a GPU in the reports",
                expected="GPUs of the job, identified by UUID",
                advice="record the log with uuid; if it has only indices, put the host's name in the file name",
            )
        return users


def _uuid(text: str) -> str:
    """A UUID, whether or not it begins with `GPU-`."""
    return text.lower().removeprefix("gpu-")


def _bus_id(text: str) -> str:
    domain, _, place = text.lower().rpartition(":")
    domain, _, bus = domain.rpartition(":")
    return f"{int(domain or '0', 16):04x}:{bus}:{place}" if re.fullmatch("[0-9a-f]{0,8}", domain) else text


def _host_of(log: GpuLog, gpu: Gpu, hosts: Sequence[str]) -> str | None:
    """The host with the GPUs of the log; None if unknown."""
    if gpu.host is not None:
        named = [h for h in hosts if h.partition(".")[0] == gpu.host.partition(".")[0]]
        return named[0] if len(named) == 1 else None
    words = Path(log.path).name.lower()
    named = [
        h for h in hosts if re.search(rf"(?<![a-z0-9]){re.escape(h.partition('.')[0].lower())}(?![a-z0-9])", words)
    ]
    if named:
        return named[0] if len(named) == 1 else None
    return hosts[0] if len(hosts) == 1 else None


def _by_index(here: Sequence[tuple[RankRecord, Device]], indices: set[int | None]) -> dict[tuple[str, str], int]:
    """The number that `nvidia-smi` gives each GPU of a host: by bus id, if the run uses all of the log; else none."""
    by_bus = {_bus_id(d.bus_id): d.identity for _, d in here if d.bus_id is not None}
    gpus = {d.identity for _, d in here}
    if len(by_bus) != len(gpus) or indices != set(range(len(gpus))):
        return {}
    return {by_bus[bus]: n for n, bus in enumerate(sorted(by_bus))}


def _ahead_ns(log: GpuLog, owners: Sequence[tuple[int, RankRecord, Device]], stated_ns: int | None) -> tuple[int, str]:
    """How far the log's times are ahead of UTC, ns, and a note where that was inferred.

    Raises `UsageError`: several time zones match, or the file next to the log has none.
    """
    if not log.local:
        return 0, ""
    if stated_ns is not None:
        return stated_ns, ""
    beside = Path(f"{log.path}{OFFSET_SUFFIX}")
    if beside.is_file():
        return parse_utc_offset(beside.read_bytes()[:40].decode("ascii", "replace").strip(), path_text(str(beside))), ""
    first, last = int(log.time_ns.min()), int(log.time_ns.max())
    spans = {s for _, r, _ in owners if (s := _span_utc_ns(r)) is not None}
    able = [
        q * _QUARTER_NS
        for q in _QUARTERS
        if any(first - q * _QUARTER_NS <= e and last - q * _QUARTER_NS >= s for s, e in spans)
    ]
    if len(able) > 1:
        written = Path(log.path).stat().st_mtime_ns
        able = [a for a in able if 0 <= written - (last - a) <= _WRITTEN_NS] or able
    if len(able) > 1:
        raise UsageError(
            f"{path_text(log.path)} has local times, which fit the reports in {len(able)} time zones; give"
            f" --gpu-log-utc-offset, such as +01:00, or a file {path_text(beside.name)} with the output of `date +%z`"
            " on the node"
        )
    if not able:
        return 0, ""
    return able[0], f"its local times are taken as UTC{_offset_text(able[0])}, which fits the reports"


def _offset_text(ahead_ns: int) -> str:
    minutes = abs(ahead_ns) // (60 * 10**9)
    return f"{'-' if ahead_ns < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _span_utc_ns(rank: RankRecord) -> tuple[int, int] | None:
    """First and last event of a rank by its host's UTC; None if its report does not say."""
    if rank.time_base_utc_ns is None or rank.start_ns is None or rank.end_ns is None:
        return None
    return rank.time_base_utc_ns + rank.start_ns, rank.time_base_utc_ns + rank.end_ns


def _rows(log: GpuLog, rank: RankRecord, device: Device, gpu: int, ahead_ns: int) -> Any:
    """The samples of one GPU as rows of `GPU_LOG` in the time of the rank's files; None without UTC."""
    import numpy as np
    import pyarrow as pa

    span = _span_utc_ns(rank)
    if span is None or rank.time_base_utc_ns is None:
        return None
    utc = log.time_ns - ahead_ns
    rows = np.flatnonzero((log.gpu == gpu) & (utc >= span[0] - _AROUND_NS) & (utc <= span[1] + _AROUND_NS))
    values = {name: v[rows] for name, v in log.values.items()}
    columns: dict[str, Any] = {
        "rank": pa.array(np.full(len(rows), rank.rank), pa.int32()),
        "time": pa.array(utc[rows] - rank.time_base_utc_ns, pa.int64()),
        "device": pa.array(np.full(len(rows), device.device), pa.int32()),
    }
    for name, samples in values.items():
        nothing = np.isnan(samples)
        filled = np.where(nothing, 0, samples)
        columns[name] = pa.array(filled.astype(np.int64) if name == "event_reasons" else filled, mask=nothing)
    return pa.table({name: columns[name] for name in GPU_LOG.column_names})
