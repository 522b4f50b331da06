"""A run with a rank for each device: what questions that compare ranks read where processes have several devices.

JAX and many HPC codes drive all devices of a host from one process. Its devices are members of communicators, wait for
each other and can be slow, each by itself. So a run that has such processes is written once more, into `RUN/devices`,
with a rank for each of their devices. It has what ran on the device, and what the threads did that launched it: rows of
a thread that launches to some devices are theirs, rows of all other threads belong to every device of the process.
Which of its operations are on which device follows from the process as a whole, so they are found there, and the
alignment of the run by devices begins with them.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from alltrace.align.constants import LEAST_LAUNCHED, LEAST_WORK
from alltrace.align.disjoint_sets import DisjointSets
from alltrace.align.evidence import collect
from alltrace.align.rank_parts import write_part
from alltrace.align.steps import rank_steps
from alltrace.align.store import interned
from alltrace.run.checksums import FILES, LOGS, LOGS_RECORD, checksums, write_rank_record
from alltrace.run.derived import derived, draft_of, remove
from alltrace.run.gpu_logs import FILE as GPU_LOG_FILE
from alltrace.run.gpu_logs import GPU_LOG
from alltrace.run.json_files import read_json, write_json
from alltrace.run.launch_matching import CALLS, match_launches
from alltrace.run.manifest import NAMES, RANKS, Device, RankRecord, plain, rank_folder, write_manifest
from alltrace.run.members import Member, Members
from alltrace.run.overlay import rank_signature, signature
from alltrace.run.parquet import read_parquet, write_parquet
from alltrace.run.rank import Rank
from alltrace.run.run_logs import PRINTED_FILE
from alltrace.run.store import Run
from alltrace.run.verify import DEVICES, OPERATIONS
from alltrace.run.writer import TableWriter
from alltrace.trace.arrays import Flags, integers
from alltrace.trace.distinct import rows_by
from alltrace.trace.schema import DICTIONARIES, EVENT_TABLES, TABLES

_MEMBERS = "members.json"
_LOGS = ("training", "gpu")
_LOGS_LEFT_OUT = "logs of NCCL are of processes, so what compares the devices of processes does without them"

_ROWS = 1 << 19


def by_devices(run: Run) -> Run | None:
    """The run with a rank for each device; None if each process works with one.

    Its `members` tell which device of which process each of its ranks is.
    """
    if run.devices_run is None:
        run.devices_run = (_by_devices(run.as_imported()),)
    return run.devices_run[0]


def _by_devices(imported: Run) -> Run | None:
    if all(len(record.devices) < 2 for record in imported.ranks):
        return None
    made_from = [
        signature(imported.manifest),
        plain(imported.manifest.meeting),
        [[r.rank, *(d.device for d in r.devices)] for r in imported.ranks],
    ]

    def read(place: Path, made: str) -> Run | None:
        facts = read_json(place / _MEMBERS)
        if facts["made_from"] != made:
            return None
        if not facts["members"]:
            return imported
        by_device = Run(place)
        by_device.members = Members([Member(*m) for m in facts["members"]], facts["sharing"])
        return by_device

    def make(place: Path, made: str) -> Run:
        with draft_of(place) as draft:
            _write(imported, draft, made)
            remove(place)
        by_device = read(place, made)
        assert by_device is not None  # noqa: S101  it was just written
        return by_device

    by_device = derived(imported, DEVICES, made_from, read, make, what="the run by devices")
    return None if by_device is imported else by_device


def _write(run: Run, draft: Path, made_from: str) -> None:
    """Write the run by devices into a folder; where each process works with one device, only that this is so."""
    draft.mkdir(parents=True)
    used = {record.rank: _worked_with(run, record) for record in run.ranks}
    if all(len(devices) < 2 for devices in used.values()):
        write_json(draft / _MEMBERS, {"made_from": made_from, "members": []})
        return
    members: list[Member] = []
    records: list[RankRecord] = []
    whose: dict[int, range] = {}
    sharing: list[list[int]] = []
    (draft / RANKS).mkdir()
    for record in run.ranks:
        own = used[record.rank]
        numbers = whose[record.rank] = range(len(members), len(members) + max(len(own), 1))
        if len(own) < 2:
            members.append(Member(record.rank, own[0].device if own else None, None, record.host))
            records.append(_same(run, record, draft, numbers[0]))
            continue
        members += [
            Member(record.rank, d.device, d.device if d.ordinal is None else d.ordinal, record.host) for d in own
        ]
        process = run.rank(record.rank).in_file_time()
        owners = _owners(process, {device.device: place for place, device in enumerate(own)})
        records += _apart(process, own, owners, draft, numbers)
        sharing += [[numbers[place] for place in group] for group in _sharing(owners, len(own))]
    missing = range(len(members), len(members) + len(run.manifest.missing_ranks))
    members += [Member(rank) for rank in run.manifest.missing_ranks]
    _link(run.path / NAMES, draft / NAMES)
    logs = tuple(log for log in run.manifest.logs if log.kind in _LOGS)
    _write_logs(run, draft, {(m.rank, m.device): number for number, m in enumerate(members)})
    notes = () if len(logs) == len(run.manifest.logs) else (_LOGS_LEFT_OUT,)
    manifest = replace(
        run.manifest.with_ranks(records), missing_ranks=tuple(missing), notes=notes, logs=logs, log_matches=()
    )
    write_manifest(draft, manifest)
    split = Run(draft)
    for rank, numbers in whose.items():
        if len(numbers) > 1:
            devices = [d.device for d in used[rank]]
            _write_operations(run.rank(rank).in_file_time(), devices, split, numbers)
    write_json(draft / _MEMBERS, {"made_from": made_from, "members": [list(m) for m in members], "sharing": sharing})


def _worked_with(run: Run, record: RankRecord) -> list[Device]:
    if len(record.devices) < 2:
        return list(record.devices)
    counts: Counter[int] = Counter()
    rank = run.rank(record.rank)
    for table in ("kernels", "graphs"):
        devices = integers(rank.file_table(table, ("device",)).column("device"), -1)
        counts.update(dict(zip(*(v.tolist() for v in np.unique(devices, return_counts=True)), strict=True)))
    most = max(counts.values(), default=0)
    return [d for d in record.devices if counts.get(d.device, 0) > LEAST_WORK * most]


def _link(source: Path, place: Path) -> None:
    """The same file at another place: nobody changes a file of a run."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        os.link(source, place)
        return
    shutil.copyfile(source, place)


def _write_logs(run: Run, draft: Path, numbers: Mapping[tuple[int, int | None], int]) -> None:
    """What the job's logs tell of all ranks, or of devices."""
    files = run.files.logs()
    if files is None:
        return
    folder = draft / LOGS
    if files.has(PRINTED_FILE):
        _link(files.path(PRINTED_FILE), folder / PRINTED_FILE)
    if files.has(GPU_LOG_FILE):
        samples = read_parquet(files.path(GPU_LOG_FILE), GPU_LOG.column_names)
        owners = zip(samples.column("rank").to_pylist(), samples.column("device").to_pylist(), strict=True)
        rank = np.array([numbers.get(owner, -1) for owner in owners], np.int32)
        samples = samples.set_column(0, "rank", pa.array(rank)).filter(pa.array(rank >= 0))
        folder.mkdir(exist_ok=True)
        write_parquet(samples.take(pa.array(np.argsort(rank[rank >= 0], kind="stable"))), folder / GPU_LOG_FILE)
    if folder.is_dir():
        write_json(folder / LOGS_RECORD, {FILES: checksums(folder, LOGS_RECORD)})


def _same(run: Run, record: RankRecord, draft: Path, number: int) -> RankRecord:
    """A process with one device, by its number."""
    renumbered = record._replace(rank=number, stamp_error_ns=0)
    files = run.files.of(record)
    for name in files.expected:
        _link(files.path(name), draft / rank_folder(number) / name)
    write_rank_record(draft / rank_folder(number), renumbered, {}, files.expected)
    return renumbered


def _apart(
    rank: Rank, devices: Sequence[Device], owners: Mapping[int, Flags], draft: Path, numbers: Sequence[int]
) -> list[RankRecord]:
    folders = [draft / rank_folder(number) for number in numbers]
    for folder in folders:
        folder.mkdir()
    places = {device.device: place for place, device in enumerate(devices)}
    rows: list[dict[str, int]] = [{} for _ in devices]
    times: list[list[int]] = [[] for _ in devices]
    for name in EVENT_TABLES:
        if not rank.has(name) or name == "suspects":
            continue
        writers = [TableWriter(TABLES[name], folder / f"{name}.parquet", draft / ".spill") for folder in folders]
        for piece in rank.batches(name, rows=_ROWS):
            for writer, mine in zip(writers, _shares(name, piece, places, owners), strict=True):
                for batch in piece.filter(pa.array(mine)).unify_dictionaries().combine_chunks().to_batches():
                    writer.append(batch)
        for place, writer in enumerate(writers):
            stats = writer.finish(rank.record.open_end_ns)
            if not stats.rows:
                (folders[place] / f"{name}.parquet").unlink()
                continue
            rows[place][name] = stats.rows
            times[place] += [t for t in (stats.first_start_ns, stats.last_end_ns) if t is not None]
    records = []
    for place, (device, number, folder) in enumerate(zip(devices, numbers, folders, strict=True)):
        for name in DICTIONARIES:
            if rank.has(name):
                table = rank.file_table(name)
                if name == "devices":  # each has the process' whole dictionaries, but only itself as a device
                    table = table.filter(pa.array(integers(table.column("device"), -1) == device.device))
                write_parquet(table, folder / f"{name}.parquet")
        record = rank.record._replace(
            rank=number, devices=(device,), rows=rows[place], stamp_error_ns=0,
            start_ns=min(times[place], default=None), end_ns=max(times[place], default=None),
        )  # fmt: skip
        write_rank_record(folder, record, {})
        records.append(record)
    return records


def _owners(rank: Rank, places: Mapping[int, int]) -> dict[int, Flags]:
    """For each thread that launches work, to which devices, by their places."""
    parts = [rank.file_table(name, ("process", "correlation", "device")) for name in ("kernels", "copies", "graphs")]
    process, correlation, device = (
        np.concatenate([integers(part.column(name), -1) for part in parts])
        for name in ("process", "correlation", "device")
    )
    launches = match_launches([rank.file_table("api", CALLS)], process, correlation)
    device, counts = device[launches.op], {}
    for thread, rows in rows_by(launches.thread[launches.call_of_pair()]).items():
        its = np.array([np.count_nonzero(device[rows] == number) for number in places])
        if its.any():
            counts[thread] = its
    return {thread: its >= LEAST_LAUNCHED * its.max() for thread, its in counts.items()}


def _sharing(owners: Mapping[int, Flags], count: int) -> list[list[int]]:
    """The places of devices to which one thread launches, of each set of these."""
    pairs = (pair for its in owners.values() for pair in pairwise(np.flatnonzero(its).tolist()))
    return [places.tolist() for places in rows_by(DisjointSets(count, pairs).labels()).values() if len(places) > 1]


def _shares(name: str, rows: pa.Table, places: Mapping[int, int], owners: Mapping[int, Flags]) -> list[Flags]:
    """Which rows of a table each device has: what is on it, what its threads did, and what is nobody's alone."""
    columns = rows.column_names
    if name == "syncs":  # a thread waits for one device or another: without the other's row it seems to wait for all
        return [np.ones(rows.num_rows, np.bool_)] * len(places)
    if "device" in columns:
        device = integers(rows.column("device"), -1)
        place = np.array([places.get(d, 0) for d in np.unique(device).tolist()], np.int64)
        of_row = place[np.unique(device, return_inverse=True)[1].reshape(-1)] if len(device) else device
        return [of_row == n for n in range(len(places))]
    if "thread" not in columns:
        return [np.ones(rows.num_rows, np.bool_)] * len(places)
    threads, at = np.unique(integers(rows.column("thread"), -1), return_inverse=True)
    every = np.ones(len(places), np.bool_)
    owned = np.array([owners.get(t, every) for t in threads.tolist()], np.bool_).reshape(-1, len(places))
    return [owned[at.reshape(-1), n] for n in range(len(places))]


def _write_operations(rank: Rank, devices: Sequence[int], split: Run, numbers: Sequence[int]) -> None:
    """What the alignment takes from each device of a process; operations of the host are the first device's."""
    table, names = interned(collect(rank))
    device = integers(table.column("device"), -1)
    others = ~np.isin(device, np.array(devices, np.int64))
    for place, (number, own) in enumerate(zip(numbers, devices, strict=True)):
        mine = (device == own) | (others if place == 0 else False)
        member = split.rank(number).in_file_time()
        made_from = rank_signature(split.manifest, member.record)
        write_part(split.path / OPERATIONS, number, table.filter(pa.array(mine)), names, rank_steps(member), made_from)
