"""NCCL Inspector's files of a run's job: its ranks' operations, as the table `inspector` and as calls.

    logs/inspector.parquet      the operations of all ranks (`INSPECTOR`)

A file is of the rank that has its host and process id. If the run has no process of any file, the rank in the largest
communicator decides. Operations of verbose files have times; in the order of their calls they are joined with the
operations of the trace, as the calls in NCCL's logs are (`alltrace.align.log_join`).
"""

import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from alltrace.run.log_files import read_files, short_host
from alltrace.run.manifest import Manifest, RankRecord
from alltrace.trace.errors import InputError, path_text
from alltrace.trace.nccl_words import OPERATIONS
from alltrace.trace.number_text import counted, number_ranges
from alltrace.trace.schema import Column, Table

INSPECTOR = Table(
    "inspector",
    "One operation of one rank that NCCL Inspector recorded, from files that were imported with the reports.",
    (
        Column("rank", "int32", None, "rank"),
        Column("communicator", "text", None, "the communicator's id"),
        Column("description", "text", None, "what the program calls it"),
        Column("group_rank", "int64", None, "the rank in the communicator"),
        Column("group_size", "int64", None, "ranks of the communicator"),
        Column("op", "enum", None, "operation"),
        Column(
            "sequence",
            "int64",
            None,
            "number among the calls of the operation on the communicator; of a message, of the rank",
        ),
        Column("peer", "int64", None, "the peer of a message"),
        Column("bytes", "int64", "bytes", "size of the message, as NCCL counts it"),
        Column("duration_ns", "int64", "ns", "how long it took, in whole microseconds"),
        Column("timing_source", "enum", None, "where that comes from: kernel_gpu, kernel_cpu or collective_cpu"),
        Column("algorithm", "enum", None, "NCCL's algorithm"),
        Column("protocol", "enum", None, "NCCL's protocol"),
        Column(
            "start", "time", "ns", "begin of its first channel by the host's clock; null if the file is not verbose"
        ),
        Column("end", "time", "ns", "end of its last channel, likewise"),
    ),
    (),
    None,
)
FILE = "inspector.parquet"

_NS = ("start", "end", "called")


class _File(NamedTuple):
    """A file that was read: its process, its rank in the largest communicator, and where its operations are."""

    path: str
    host: str
    pid: int
    size: int
    rank: int
    operations: int
    timed: int
    dropped: int
    unread: int
    mixed: int
    table: Path


def import_inspector(
    folder: Path, manifest: Manifest, paths: Sequence[Path], jobs: int | None
) -> tuple[list[tuple[str, int]], dict[int, str], tuple[str, ...]]:
    """Write the operations of the run's ranks into `folder`, and those with times as the calls of ranks without calls.

    Returns how many were taken of each file, how the files of ranks with calls were found, and what a reader must know.
    Raises `InputError`: a file cannot be read, or none is of a rank of the run.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    drafts = folder / "operations"  # in the run, which workers on other nodes see too
    drafts.mkdir()
    read = read_files(partial(_read, folder=drafts), paths, jobs).require_any()
    files = read.results
    owners, how, notes = _owners(files, manifest.ranks)
    schema = INSPECTOR.arrow_schema()
    named: dict[int, str] = {}
    with pq.ParquetWriter(folder / FILE, schema, compression="zstd") as writer:
        for rank in manifest.ranks:
            own = [pq.read_table(f.table) for f, owner in zip(files, owners, strict=True) if owner == rank.rank]
            if not own:
                continue
            table = pa.concat_tables(own)
            writer.write_table(_on_the_clock_of(table, rank).cast(schema))
            calls = folder / "calls" / f"rank={rank.rank}.parquet"
            issued = None if calls.exists() else _calls(table)
            if issued is not None and issued.num_rows:
                pq.write_table(issued, calls, compression="zstd")
                named[rank.rank] = how
    shutil.rmtree(drafts)
    if not any(f.timed for f, owner in zip(files, owners, strict=True) if owner is not None):
        notes += (
            (
                "NCCL Inspector's operations have no times, so they were not joined with the trace; "
                "NCCL_INSPECTOR_DUMP_VERBOSE=1 records them"
            ),
        )
    taken = [(f.path, f.operations if owner is not None else 0) for f, owner in zip(files, owners, strict=True)]
    return taken, named, (*read.notes, *notes)


def _read(path: str, advance: Callable[[int], None], folder: Path) -> _File:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from alltrace.readers.nccl_inspector.records import read_inspector

    file = read_inspector(path, advance)
    at, its = file.communicators, file.operations
    columns: dict[str, Any] = {
        "communicator": [_text(o.communicator) for o in its],
        "description": [_text(at[o.communicator].name) or None for o in its],
        "group_rank": [o.rank for o in its],
        "group_size": [at[o.communicator].size or None for o in its],
        "op": [_text(o.op) for o in its],
        "sequence": [o.sequence for o in its],
        "peer": [o.peer for o in its],
        "bytes": [o.bytes for o in its],
        "duration_ns": [round(1000 * o.duration_us) for o in its],
        "timing_source": [_text(o.timing) or None for o in its],
        "algorithm": [_text(o.algorithm) or None for o in its],
        "protocol": [_text(o.protocol) or None for o in its],
        "start": [o.start_ns for o in its],
        "end": [o.end_ns for o in its],
        "called": [o.called_ns for o in its],
    }
    numbers = {"group_rank", "group_size", "sequence", "peer", "bytes", "duration_ns", *_NS}
    table = pa.table({name: pa.array(v, pa.int64() if name in numbers else pa.string()) for name, v in columns.items()})
    place = folder / f"{blake2b(path.encode(), digest_size=16).hexdigest()}.parquet"
    pq.write_table(table, place, compression="zstd")
    largest = max(at.values(), key=lambda c: c.size)
    lost = sum(map(sum, file.dropped.values()))
    return _File(
        path,
        file.host,
        file.pid,
        largest.size,
        largest.rank,
        len(its),
        sum(o.end_ns is not None for o in its),
        lost,
        file.unread,
        file.mixed,
        place,
    )


def _text(value: str) -> str:
    """JSON can write half of a character, which no file of ours can hold."""
    return value.encode("utf-8", "replace").decode()


def _owners(files: Sequence[_File], ranks: Sequence[RankRecord]) -> tuple[list[int | None], str, tuple[str, ...]]:
    """The rank of the run that each file is of, how that was found, and what a reader must know.

    Raises `InputError`: no file is of a rank.
    """
    processes: dict[tuple[str, int], set[int]] = defaultdict(set)
    for rank in ranks:
        for pid in rank.pids:
            processes[short_host(rank.host), pid].add(rank.rank)
    how = "process"
    candidates = [processes.get((short_host(f.host), f.pid), set()) for f in files]
    if not any(len(f) == 1 for f in candidates):
        how = "rank"
        numbers = {r.rank for r in ranks}
        world = max(f.size for f in files)
        claimed = Counter(f.rank for f in files if f.size == world)
        candidates = [
            {f.rank} if f.size == world and claimed[f.rank] == 1 and f.rank in numbers else set() for f in files
        ]
    owners = [next(iter(f)) if len(f) == 1 else None for f in candidates]
    if not any(o is not None for o in owners):
        raise InputError(
            files[0].path if len(files) == 1 else f"{path_text(files[0].path)} and {len(files) - 1} more files",
            found="no process in it is one of the run, by host and process id or by its rank",
            expected="NCCL Inspector's files of the same job",
        )
    used = [f for f, owner in zip(files, owners, strict=True) if owner is not None]
    left, lacking = len(files) - len(used), sorted({r.rank for r in ranks} - {o for o in owners if o is not None})
    notes = []
    if how == "rank":
        notes.append(
            "NCCL Inspector's files match no process of the run by host and process id, so they were matched by rank"
        )
    if left:
        notes.append(
            f"{counted(left, 'file')} of NCCL Inspector: of a process of which the run has no report, left out"
        )
    if lacking:
        notes.append(f"NCCL Inspector's files: none of rank {number_ranges(lacking)}")
    for number, text in (
        (sum(f.dropped for f in used), "records that NCCL Inspector's buffers lost"),
        (sum(f.unread for f in used), "lines of NCCL Inspector's files that are no record, left out"),
        (sum(f.mixed for f in used), "records of other processes than the first of their file, left out"),
    ):
        if number:
            notes.append(f"{number:,} {text}")
    return owners, how, tuple(notes)


def _on_the_clock_of(table: Any, rank: RankRecord) -> Any:
    """The rows of `INSPECTOR`; without times where the rank's report does not show UTC."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in ("start", "end"):
        column = table.column(name)
        base = rank.time_base_utc_ns
        moved = pa.nulls(table.num_rows, pa.int64()) if base is None else pc.subtract(column, base)
        table = table.set_column(table.column_names.index(name), name, moved)
    for name in ("op", "timing_source", "algorithm", "protocol"):
        table = table.set_column(table.column_names.index(name), name, table.column(name).dictionary_encode())
    table = table.append_column("rank", pa.array(np.full(table.num_rows, rank.rank), pa.int32()))
    return table.select(INSPECTOR.column_names)


def _calls(table: Any) -> Any:
    """The operations that have times, as the calls of a rank (`alltrace.run.run_logs.CALLS`) in order.

    Messages of one communicator whose kernels overlap were launched together: on a stream, kernels follow each other.
    """
    import numpy as np
    import pyarrow as pa

    from alltrace.trace.arrays import integers

    numbers = {name: index for index, name in enumerate(OPERATIONS)}
    words = table.column("op").to_pylist()
    op = np.array([numbers.get(w, -1) for w in words], np.int64)
    called, start, end, peer = (integers(table.column(n), -1) for n in ("called", "start", "end", "peer"))
    issued = np.where(called > 0, called, start)
    rows = np.flatnonzero((op >= 0) & (issued > 0))
    rows = rows[np.lexsort((start[rows], issued[rows]))]
    names = table.column("communicator").combine_chunks().dictionary_encode()
    group = names.indices.to_numpy()
    launch = np.arange(len(rows), dtype=np.int64)
    before: dict[int, tuple[int, int]] = {}
    for place, row in enumerate(rows.tolist()):
        until, number = before.get(int(group[row]), (-1, -1)) if peer[row] >= 0 else (-1, -1)
        together = place > 0 and group[rows[place - 1]] == group[row] and 0 <= start[row] < until
        launch[place] = number if together else place
        if peer[row] >= 0:
            before[int(group[row])] = max(until, int(end[row])) if together else int(end[row]), int(launch[place])
        else:
            before.pop(int(group[row]), None)
    its = table.take(pa.array(rows))
    columns: dict[str, Any] = {
        "communicator": its.column("communicator"),
        "shared": pa.array(np.ones(len(rows), np.bool_)),
        "group_rank": its.column("group_rank"),
        "group_size": its.column("group_size"),
        "op": op[rows],
        "op_count": launch,
        "count": pa.nulls(len(rows), pa.int64()),
        "datatype": pa.nulls(len(rows), pa.int64()),
        "bytes": its.column("bytes"),
        "root": pa.nulls(len(rows), pa.int64()),
        "peer": its.column("peer"),
        "tid": pa.nulls(len(rows), pa.int64()),
        "time_ns": issued[rows],
    }
    return pa.table(columns)
