"""The logs of a run's job, stored with its ranks: NCCL's calls and operations, printed steps, and samples of the GPUs.

    logs/calls/rank=7.parquet   the calls of a rank in the order of its log (`CALLS`)
    logs/steps.parquet          the steps of the job (`PRINTED_STEPS`)
    logs/ranks.json             how the log of each rank was found
    logs/near_cpus.parquet      the CPUs near the GPU of each rank (`NEAR_CPUS`)
    logs/logs.json              the checksums of these files
    logs/gpu_log.parquet        samples of each rank's GPU (`alltrace.run.gpu_logs`)
    logs/inspector.parquet      operations that NCCL Inspector recorded (`alltrace.run.inspector_logs`)

What calls and steps are joined to is found by `alltrace.align`; nothing of that is decided here.
"""

import shutil
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from alltrace.run.checksums import FILES, LOGS, LOGS_RECORD, checksums, log_files
from alltrace.run.gpu_logs import import_gpu_logs
from alltrace.run.inspector_logs import import_inspector
from alltrace.run.json_files import read_json, write_json
from alltrace.run.log_files import expand, no_steps, read_files, short_host
from alltrace.run.manifest import LogRecord, Manifest, RankRecord
from alltrace.run.nccl_logs import NEAR_CPUS, NcclLogs, log_folder, read_nccl_logs
from alltrace.run.parquet import read_parquet
from alltrace.trace.errors import path_text
from alltrace.trace.nccl_words import DATATYPES, OPERATIONS, POINT_TO_POINT, ROOTED

CALLS = (
    "communicator", "shared", "group_rank", "group_size", "op", "op_count", "count", "datatype", "bytes", "root",
    "peer", "tid", "time_ns",
)  # fmt: skip
"""Columns of a rank's calls: `op` is the position in `OPERATIONS` and `datatype` NCCL's number; the others are as in
the view `calls` of `logs nccl`. `shared` is whether the communicator has the same name on all its ranks."""
PRINTED_STEPS = ("step", "time_ns", "step_time_s")

PRINTED_FILE = "steps.parquet"
_RANKS = "ranks.json"
_RANKS_AT_ONCE = 128
_FROM_CALL = 4


class JobLogs(NamedTuple):
    """The logs of a job: files, folders and patterns."""

    nccl: Sequence[str] = ()
    training: Sequence[str] = ()
    gpu: Sequence[str] = ()
    gpu_offset_ns: int | None = None  # how far their local times are ahead of UTC; None if unknown
    # regular expressions for the lines of steps in training logs; if there are any, other forms are not searched
    patterns: Sequence[str] = ()
    inspector: Sequence[str] = ()  # files of NCCL Inspector

    @property
    def paths(self) -> list[str]:
        """All of them."""
        return [*self.nccl, *self.training, *self.gpu, *self.inspector]


def import_logs(
    output: Path, manifest: Manifest, logs: JobLogs, jobs: int | None
) -> tuple[tuple[LogRecord, ...], tuple[str, ...]]:
    """Read the logs of a job and keep in the run what can be joined with it; what was kept before is replaced.

    Returns the logs, and what a reader must know. Raises `InputError`: a log cannot be read, or has nothing of its
    kind. Raises `UsageError`: the local times of a GPU log could be of several zones.
    """
    place, draft = output / LOGS, output / "ranks" / f".{LOGS}"
    shutil.rmtree(draft, ignore_errors=True)
    records: list[LogRecord] = []
    notes: list[str] = []
    if logs.paths:
        (draft / "calls").mkdir(parents=True)
        ranks: dict[int, str] = {}
        if logs.nccl:
            ranks, more = _import_nccl(draft, manifest, expand(logs.nccl), jobs, records)
            notes += more
        if logs.inspector:
            taken, named, more = import_inspector(draft, manifest, expand(logs.inspector), jobs)
            records += [_record(path, "inspector", operations) for path, operations in taken]
            ranks |= named
            notes += more
        if logs.nccl or ranks:
            write_json(draft / _RANKS, {str(r): how for r, how in ranks.items()})
        if logs.training:
            notes += _import_training(draft, expand(logs.training), logs.patterns, jobs, records)
        if logs.gpu:
            taken, more = import_gpu_logs(draft, manifest, expand(logs.gpu), logs.gpu_offset_ns, jobs)
            records += [_record(path, "gpu", samples) for path, samples in taken]
            notes += more
    shutil.rmtree(place, ignore_errors=True)
    if records:
        write_json(draft / LOGS_RECORD, {FILES: checksums(draft, LOGS_RECORD)})
        draft.rename(place)
    return tuple(records), tuple(notes)


def logged_calls(run: Path, rank: int) -> Any:
    """The calls of a rank (`CALLS`) as a `pyarrow.Table`; None if its log is not there."""
    path = _checked(run, f"calls/rank={rank}.parquet")
    return read_parquet(path, list(CALLS), ["communicator"]) if path is not None else None


def has_calls(run: Path) -> bool:
    """Whether there are logs with calls, which can be joined with operations."""
    files = log_files(run)
    return files is not None and files.has(_RANKS)


def found_by(run: Path) -> dict[int, str]:
    """For each rank that has calls how its log was found."""
    path = _checked(run, _RANKS)
    return {int(r): str(how) for r, how in read_json(path).items()} if path is not None else {}


def printed_steps(run: Path) -> Any:
    """The steps that the program printed (`PRINTED_STEPS`) as a `pyarrow.Table`; None if there is no training log."""
    path = _checked(run, PRINTED_FILE)
    return read_parquet(path, list(PRINTED_STEPS)) if path is not None else None


def _checked(run: Path, name: str) -> Path | None:
    """The path of one of the files, after a check that it is unchanged; None if there is none."""
    files = log_files(run)
    return files.path(name) if files is not None and files.has(name) else None


def _record(path: str, kind: str, records: int) -> LogRecord:
    from alltrace.run.report_hash import content_hash

    size, digest = content_hash(Path(path))
    return LogRecord(path, kind, size, digest, records)


def _import_nccl(
    draft: Path, manifest: Manifest, paths: Sequence[Path], jobs: int | None, records: list[LogRecord]
) -> tuple[dict[int, str], tuple[str, ...]]:
    """For each rank that has calls how its log was found, `process` or `rank`; and what a reader must know."""
    with log_folder(draft.absolute()) as folder:
        logs = read_nccl_logs(paths, calls_to=folder, times=True, jobs=jobs)
        kind = "CALL" if logs.uses_calls_of_trace else "COLL"
        records += [_record(p.path, "nccl", p.records.counts[kind]) for p in logs.parts]
        how_found, ranks, notes = ranks_of_members(logs, manifest.ranks)
        wanted = sorted(how_found)
        _write_near_cpus(logs, ranks, draft)
        for first in range(0, len(wanted), _RANKS_AT_ONCE):
            _write_calls(logs, ranks, wanted[first : first + _RANKS_AT_ONCE], draft / "calls")
    broken = [p for p in logs.parts if p.damage]
    if broken:
        others = f"; the same applies to {len(broken) - 1} more NCCL logs" if len(broken) > 1 else ""
        notes = (*notes, f"{path_text(broken[0].path)}: {broken[0].damage}{others}")
    return how_found, notes


def ranks_of_members(logs: NcclLogs, ranks: Sequence[RankRecord]) -> tuple[dict[int, str], list[int], tuple[str, ...]]:
    """The rank of each of `logs.members`, -1 for none; how each rank's log was found; and notes.

    By host and process id, or by the rank's number if the run has no known process. For containers that share both, the
    rank's number from the communicators decides.
    """
    owners: dict[tuple[str, int], set[int]] = defaultdict(set)
    for rank in ranks:
        for pid in rank.pids:
            owners[short_host(rank.host), pid].add(rank.rank)
    processes = {m.key for m in logs.members}
    global_ranks: dict[tuple[str, int, int], set[int | None]] = defaultdict(set)
    for m in logs.members:
        global_ranks[m.key].add(m.global_rank)
    mine = {}
    for process in processes:
        its = owners.get((short_host(process[0]), process[1]), set())
        if len(its) > 1 or process[2] >= 0:
            its = {r for r in its if global_ranks[process] == {r}}
        if len(its) == 1:
            mine[process] = next(iter(its))
    if mine:
        how = dict.fromkeys(mine.values(), "process")
        others = len(processes) - len(mine)
        notes = (f"NCCL's logs have {others} processes without a report in the run",) if others else ()
        return how, [mine.get(m.key, -1) for m in logs.members], notes
    numbers = {r.rank for r in ranks}
    by_number: dict[int, set[tuple[str, int, int]]] = defaultdict(set)
    for m in logs.members:
        if m.global_rank in numbers and m.global_rank is not None:
            by_number[m.global_rank].add(m.key)
    alone = {next(iter(its)): rank for rank, its in by_number.items() if len(its) == 1}
    notes = ("no process in NCCL's logs matches the run by host and process id",)
    if alone:
        notes = (
            f"{notes[0]}; {len(alone)} of them have a rank number, and are joined only if the times of their lines fit",
        )
    return dict.fromkeys(alone.values(), "rank"), [alone.get(m.key, -1) for m in logs.members], notes


def _write_near_cpus(logs: NcclLogs, ranks: Sequence[int], draft: Path) -> None:
    """Write `NEAR_CPUS`, if a log states any. `ranks`: the rank of each member, -1 for none."""
    cpus: dict[int, frozenset[int]] = {}
    for part, members in zip(logs.parts, logs.member_of, strict=True):
        for instance, member in zip(part.instances, members, strict=True):
            if ranks[member] >= 0 and (near := part.records.near_cpus.get(instance.process)):
                cpus[ranks[member]] = near
    rows = [{"rank": rank, "cpu": cpu} for rank, its in sorted(cpus.items()) for cpu in sorted(its)]
    if rows:
        table = pa.Table.from_pylist(rows, NEAR_CPUS.arrow_schema())
        pq.write_table(table, draft / f"{NEAR_CPUS.name}.parquet", compression="zstd")


def _write_calls(logs: NcclLogs, ranks: Sequence[int], wanted: Sequence[int], folder: Path) -> None:
    """Write the calls of some ranks, batch by batch, so that memory use is that of one batch."""
    writers: dict[int, Any] = {}
    rank_of = np.array([*ranks, -1], np.int64)
    try:
        for log, batch in logs.calls():
            members = np.array(logs.member_of[log] or [0], np.int64)[batch.column("instance").to_numpy()]
            keep = ((batch.column("flags").to_numpy() & _FROM_CALL) != 0) == logs.uses_calls_of_trace
            owner = np.where(keep, rank_of[members], -1)
            for rank in np.unique(owner[np.isin(owner, wanted)]).tolist():
                table = _calls(logs, log, batch, members, np.flatnonzero(owner == rank))
                if rank not in writers:
                    writers[rank] = pq.ParquetWriter(folder / f"rank={rank}.parquet", table.schema, compression="zstd")
                writers[rank].write_table(table)
    finally:
        for writer in writers.values():
            writer.close()


def _calls(logs: NcclLogs, log: int, batch: Any, members: Any, rows: Any) -> Any:
    its = [logs.members[m] for m in members[rows].tolist()]
    op, count, datatype, root = (batch.column(c).to_numpy()[rows] for c in ("operation", "count", "datatype", "root"))
    sizes = np.array([size for _name, size in DATATYPES] + [0], np.int64)
    each = sizes[np.where((datatype >= 0) & (datatype < len(DATATYPES)), datatype, len(DATATYPES))]
    known = (each > 0) & (count <= np.iinfo(np.int64).max // np.maximum(each, 1))
    paired = np.array([o in POINT_TO_POINT for o in OPERATIONS])[op]
    rooted = np.array([o in ROOTED for o in OPERATIONS])[op]
    tids = np.array([tid for _p, tid, _d in logs.parts[log].tokens] or [0], np.int64)
    columns: dict[str, Any] = {
        "communicator": pa.array([m.communicator for m in its], pa.string()),
        "shared": pa.array([m.identified != "alone" for m in its], pa.bool_()),
        "group_rank": pa.array([m.rank for m in its], pa.int64()),
        "group_size": pa.array([m.nranks for m in its], pa.int64()),
        "op": op,
        "op_count": batch.column("op_count").take(pa.array(rows)),
        "count": count,
        "datatype": datatype,
        "bytes": pa.array(np.where(known, count * each, 0), mask=~known),
        "root": pa.array(root, mask=~rooted),
        "peer": pa.array(root, mask=~paired),
        "tid": tids[batch.column("token").to_numpy()[rows]],
        "time_ns": batch.column("time_ns").take(pa.array(rows)),
    }
    return pa.table({name: columns[name] for name in CALLS})


def _import_training(
    draft: Path, paths: Sequence[Path], patterns: Sequence[str], jobs: int | None, records: list[LogRecord]
) -> tuple[str, ...]:
    from alltrace.readers.training_log.read import read_training

    read = read_files(partial(read_training, patterns=tuple(patterns)), paths, jobs).require_any()
    logs = read.results
    records += [_record(log.path, "training", len(log.steps)) for log in logs]
    if not any(log.steps for log in logs):
        raise no_steps(logs, patterns)
    steps: dict[int, tuple[int | None, float | None]] = {}
    for log in logs:
        for step, values, _line, _copies in log.steps:
            taken = None if log.smoothed else values.get("step_time_s")
            steps.setdefault(step, (log.stamps.get(step), taken))
    rows = sorted(steps.items())
    table = pa.table(
        {
            "step": pa.array([s for s, _ in rows], pa.int64()),
            "time_ns": pa.array([v[0] for _, v in rows], pa.int64()),
            "step_time_s": pa.array([v[1] for _, v in rows], pa.float64()),
        }
    )
    pq.write_table(table, draft / PRINTED_FILE, compression="zstd")
    return (*read.notes, *(f"{path_text(log.path)}: {log.damage}" for log in logs if log.damage))
