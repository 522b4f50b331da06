"""What `file_access_sum` says about files by name: by file, process, host and NVTX range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.filters import pattern_of
from alltrace.nvidia.nsys.base import Cell
from alltrace.nvidia.report import RANK
from alltrace.recipes.analysis.lookups import column, look_up, texts_of
from alltrace.recipes.analysis.nvtx_projection import innermost_ranges
from alltrace.trace.arrays import integers
from alltrace.trace.grouping import group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import RankTables, RunFacts
    from alltrace.trace.arrays import Int64

ACCESS_READS = ("start", "end", "process", "thread", "file", "access", "kind", "bytes")
_SMALL_BYTES = 4096
_MOST_SHARE = 0.5
_KINDS = ("read", "write", "open", "close", "other")
_NUMBERS = ("calls", "bytes", "took", "small")
_SCHEMA = pa.schema(
    [
        ("what", pa.string()), ("name", pa.int64()), ("pid", pa.int64()), ("kind", pa.string()),
        *((n, pa.int64()) for n in _NUMBERS),
    ]
)  # fmt: skip
_CELLS = (
    Cell("Reads", "int", "Calls that read."),
    Cell("Writes", "int", "Calls that write."),
    Cell("Opens", "int", "Calls that open."),
    Cell("Closes", "int", "Calls that close."),
    Cell("Bytes Read", "bytes", "Bytes read."),
    Cell("Bytes Written", "bytes", "Bytes written."),
    Cell("Avg Read Size", "mean_bytes", "Bytes per call that reads; null without any."),
    Cell("Avg Write Size", "mean_bytes", "Bytes per call that writes; null without any."),
    Cell("Small Calls", "int", f"Calls that moved 1 to {_SMALL_BYTES - 1} bytes."),
    Cell("Read Time", "ns", "Durations of the calls that read, together."),
    Cell("Write Time", "ns", "The same of those that write."),
    Cell("Other Time", "ns", "The same of all others."),
    Cell("Total Time", "ns", "All of these."),
)
_FILES = Cell("Files", "int", "Files that were accessed.")
ACCESS_RESULTS: dict[str, tuple[Cell, ...]] = {
    "file_access": (
        Cell("Path", "text", "The file."),
        Cell("Pattern", "text", "read-only, write-only, mixed, or no data where nothing was read or written."),
        Cell("Ranks", "int", "Ranks that accessed it."),
        *_CELLS,
    ),
    "process_access": (Cell("Rank", "int", "Rank."), Cell("PID", "int", "Process id."), _FILES, *_CELLS),
    "host_access": (Cell("Host", "text", "Host."), Cell("Ranks", "int", "Its ranks that access files."), _FILES, *_CELLS),
    "range_access": (Cell("Range", "text", "Innermost NVTX range; null outside of all."), *_CELLS),
}


def access_rows(rank: RankTables, options: Mapping[str, Any]) -> Any:
    """What a rank's accesses add up to, by file, process and kind, and by range and kind if requested."""
    table = rank.table("file_accesses", ACCESS_READS)
    pattern = pattern_of("--ignore", options["ignore"])
    if pattern is not None and table.num_rows:
        texts = texts_of(rank, integers(table.column("file"), -1))
        left = pa.array([i for i, t in texts.items() if i != -1 and pattern.search(t)], pa.int64())
        table = table.filter(pc.invert(pc.is_in(table.column("file"), value_set=left)))
    if not table.num_rows:
        return _SCHEMA.empty_table()
    kind = pc.fill_null(column(table, "kind").cast(pa.string()), "other")
    pid = look_up(rank.table("processes", ["process", "pid"]), "pid", table.column("process").combine_chunks())
    found = [_added("file", table, column(table, "file"), pid.cast(pa.int64()), kind)]
    if options["per_nvtx"]:
        places = [integers(table.column(c), -1) for c in ("thread", "start", "end")]
        # a thread that is not known is in no range
        names = innermost_ranges(rank, np.maximum(places[0], 0), *places[1:])
        names = pc.if_else(pa.array(places[0] >= 0), names, pa.scalar(None, pa.int64()))
        found.append(_added("range", table, names, pa.nulls(table.num_rows, pa.int64()), kind))
    return pa.concat_tables(found)


def _added(what: str, table: Any, name: Any, pid: Any, kind: Any) -> Any:
    size = integers(table.column("bytes"))
    data = np.isin(np.asarray(kind.to_pylist(), object), ("read", "write"))
    took = integers(table.column("end")) - integers(table.column("start"))
    took[table.column("end").is_null().to_numpy()] = 0
    numbers = {
        "calls": np.ones(len(size), np.int64),
        "bytes": np.where(data, np.maximum(size, 0), 0),
        "took": np.maximum(took, 0),
        "small": (data & (size > 0) & (size < _SMALL_BYTES)).astype(np.int64),
    }
    each = pa.table({"name": name, "pid": pid, "kind": kind, **numbers})
    sums = each.group_by(["name", "pid", "kind"], use_threads=False).aggregate([(n, "sum") for n in _NUMBERS])
    sums = sums.select(["name", "pid", "kind", *(f"{n}_sum" for n in _NUMBERS)])
    return sums.add_column(0, "what", pa.array([what] * sums.num_rows, pa.string())).rename_columns(_SCHEMA.names).cast(_SCHEMA)


def _sums(codes: Int64, values: Int64, count: int) -> Int64:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, codes, values)
    return sums


def access_tables(whole: Any, run: RunFacts) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """The columns of `ACCESS_RESULTS`, and notes, from the rows of all ranks with `rank`."""
    if "pid" not in whole.column_names:
        return {}, ()
    files = whole.filter(pc.equal(whole.column("what"), "file")).combine_chunks()
    if not files.num_rows:
        return {}, ()
    hosts = {r.rank: r.host for r in run.ranks}
    rank = column(files, RANK)
    host = pa.array([hosts[r] for r in rank.to_pylist()], pa.string())
    path = pc.fill_null(run.texts(column(files, "name")), "")
    by_file = _summed(files, [path])
    first = by_file.pop("first")
    read, written = by_file["Reads"] > 0, by_file["Writes"] > 0
    pattern = np.select([read & written, read, written], ["mixed", "read-only", "write-only"], "no data")
    by_file |= {"Path": path.take(pa.array(first)), "Pattern": pattern, "Ranks": _distinct(path, rank, first)}
    by_process = _summed(files, [rank, column(files, "pid")])
    first = by_process.pop("first")
    owner = pa.array([f"{r} {p}" for r, p in zip(rank.to_pylist(), column(files, "pid").to_pylist(), strict=True)])
    by_process |= {"Rank": rank.take(pa.array(first)), "PID": column(files, "pid").take(pa.array(first))}
    by_process["Files"] = _distinct(owner, path, first)
    by_host = _summed(files, [host])
    first = by_host.pop("first")
    by_host |= {"Host": host.take(pa.array(first)), "Files": _distinct(host, path, first), "Ranks": _distinct(host, rank, first)}
    tables = {
        "file_access": _ordered(by_file, "Path"),
        "process_access": _ordered(by_process, "Rank", "PID", hottest=False),
        "host_access": _ordered(by_host, "Host", hottest=False),
    }
    ranges = whole.filter(pc.equal(whole.column("what"), "range")).combine_chunks()
    if ranges.num_rows:
        names = run.texts(column(ranges, "name"))
        by_range = _summed(ranges, [names])
        by_range["Range"] = names.take(pa.array(by_range.pop("first")))
        tables["range_access"] = _ordered(by_range, "Range")
    return tables, _hints(by_file)


def _summed(rows: Any, keys: Sequence[Any]) -> dict[str, Any]:
    """The numbers of `_CELLS` for each distinct key, and in `first` a row of each."""
    codes, first = group(list(keys))
    kind = np.asarray(column(rows, "kind").to_pylist(), object)
    of = {n: integers(rows.column(n)) for n in _NUMBERS}

    def added(number: str, *kinds: str) -> Int64:
        return _sums(codes, np.where(np.isin(kind, kinds), of[number], 0), len(first))

    reads, writes = added("calls", "read"), added("calls", "write")
    got, put = added("bytes", "read"), added("bytes", "write")
    times = [added("took", "read"), added("took", "write"), added("took", "open", "close", "other")]
    return {
        "first": first, "Reads": reads, "Writes": writes, "Opens": added("calls", "open"), "Closes": added("calls", "close"),
        "Bytes Read": got, "Bytes Written": put,
        "Avg Read Size": pa.array(got / np.maximum(reads, 1), mask=reads == 0),
        "Avg Write Size": pa.array(put / np.maximum(writes, 1), mask=writes == 0),
        "Small Calls": added("small", *_KINDS),
        "Read Time": times[0], "Write Time": times[1], "Other Time": times[2], "Total Time": sum(times),
    }  # fmt: skip


def _distinct(owner: Any, what: Any, first: Int64) -> Int64:
    """How many distinct values of `what` the rows of each owner have, for the owners of the rows `first`."""
    codes, _ = group([owner])
    _, some = group([owner, what])
    counts = np.bincount(codes[some], minlength=int(codes.max(initial=0)) + 1)
    found: Int64 = counts[codes[first]].astype(np.int64)
    return found


def _ordered(columns: dict[str, Any], *names: str, hottest: bool = True) -> dict[str, Any]:
    """The columns with the rows in order: by bytes and time, the most first, or by `names` alone."""
    table = pa.table(columns)
    moved = pc.add(table.column("Bytes Read"), table.column("Bytes Written"))
    table = table.append_column("moved", moved)
    heat = [("moved", "descending"), ("Total Time", "descending")] if hottest else []
    table = table.take(pc.sort_indices(table, [*heat, *((n, "ascending") for n in names)]))
    return {n: table.column(n) for n in columns}


def _hints(by_file: Mapping[str, Any]) -> tuple[str, ...]:
    """What costs more than it must, from the numbers by file."""
    notes = []
    calls, small = int((by_file["Reads"] + by_file["Writes"]).sum()), int(by_file["Small Calls"].sum())
    if calls and small > _MOST_SHARE * calls:
        share = 100.0 * small / calls
        notes.append(
            f"{share:.0f} % of the accesses to files move less than {_SMALL_BYTES} bytes; larger or buffered ones cost less time"
        )
    total, other = int(by_file["Total Time"].sum()), int(by_file["Other Time"].sum())
    if total and other > _MOST_SHARE * total:
        share = 100.0 * other / total
        notes.append(
            f"{share:.0f} % of the time in accesses to files is opening, closing and the like, and not data; fewer, larger files "
            "or handles that stay open cost a file system's metadata less"
        )
    return tuple(notes)
