"""Joins what several reports gave one rank (capture ranges, a restarted profiler) into one set of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from alltrace.run.manifest import NAMES
from alltrace.run.parquet import row_group_order
from alltrace.run.writer import TableWriter
from alltrace.trace.schema import DICTIONARIES, EVENT_TABLES, TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_ROW_OF = {
    "process": "processes",
    "thread": "threads",
    "end_thread": "threads",
    "device": "devices",
    "src_device": "devices",
    "dst_device": "devices",
}
"""Columns that are rows of a dictionary, which every report numbers for itself."""

_IDENTITY = {"processes": ("pid", "source_id"), "threads": ("source_id", "tid"), "devices": ("uuid", "bus_id", "ordinal")}
_KEY = {"processes": "process", "threads": "thread", "devices": "device"}


def join_pieces(
    parts: Sequence[tuple[Path, int, Mapping[str, int]]], output: Path, spill: Path
) -> tuple[dict[str, int], int | None, int | None, int | None, set[int]]:
    """Join the tables of `parts` into the folder `output`.

    Args:
        parts: For each report its folder of tables, what its times are shifted by (ns), and its row counts; in time order.
        output: The folder to make.
        spill: A folder for temporary files.

    Returns:
        Row count of each table, first start, last end, where open ranges are taken to end (all in ns), and the devices with work.
    """
    import pyarrow.parquet as pq

    output.mkdir(parents=True)
    maps, dictionaries = _join_dictionaries([folder for folder, _, _ in parts])
    for name, table in dictionaries.items():
        if table.num_rows:
            pq.write_table(
                table, output / (NAMES if name == "names" else f"{name}.parquet"), compression="zstd", store_schema=False
            )
    rows: dict[str, int] = {}
    starts: list[int] = []
    ends: list[int] = []
    latest: int | None = None
    devices: set[int] = set()
    for name in ("marks", *(t for t in EVENT_TABLES if t != "marks")):
        present = [(i, folder, shift) for i, (folder, shift, counts) in enumerate(parts) if counts.get(name)]
        if not present:
            continue
        writer = TableWriter(TABLES[name], output / f"{name}.parquet", spill)
        schema = TABLES[name].arrow_schema()
        enums = [c.name for c in TABLES[name].columns if c.type == "enum"]
        try:
            for i, folder, shift in present:
                with pq.ParquetFile(folder / f"{name}.parquet", read_dictionary=enums) as file:
                    for batch in file.iter_batches(row_groups=row_group_order(file.metadata)):
                        moved = _move(batch, name, shift, maps[i]).cast(schema)
                        if name in ("ranges", "marks"):
                            latest = _later(latest, moved)
                        if name in ("kernels", "copies", "graphs", "memory"):
                            devices.update(d for d in moved.column("device").unique().to_pylist() if d is not None)
                        writer.append(moved)
            stats = writer.finish(open_end_ns=latest)
        except BaseException:
            writer.abort()
            raise
        rows[name] = stats.rows
        starts += [] if stats.first_start_ns is None else [stats.first_start_ns]
        ends += [] if stats.last_end_ns is None else [stats.last_end_ns]
    end = max(ends, default=None)
    return rows, min(starts, default=None), end, end if latest is None else latest, devices


def _later(latest: int | None, batch: Any) -> int | None:

    times = [pc.max(batch.column(c)).as_py() for c in ("start", "end", "time") if c in batch.schema.names]
    return max((t for t in (latest, *times) if t is not None), default=None)


def _move(batch: Any, name: str, shift: int, maps: Mapping[str, Any]) -> Any:
    """`batch` on the first report's time and numbering."""
    import pyarrow as pa

    for column in TABLES[name].columns:
        at = batch.schema.get_field_index(column.name)
        if column.type == "time" and shift:
            batch = batch.set_column(at, column.name, pc.add(batch.column(at), pa.scalar(shift, pa.int64())))
        elif column.name in _ROW_OF and (lookup := maps.get(_ROW_OF[column.name])) is not None:
            batch = batch.set_column(at, column.name, pc.take(lookup, batch.column(at)))
        elif column.name in ("depth", "parent"):
            batch = batch.set_column(at, column.name, pa.nulls(batch.num_rows, batch.schema.field(at).type))
    return batch


def _join_dictionaries(folders: Sequence[Path]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Per part the new number of each old one, and the joined dictionaries."""
    import pyarrow as pa

    maps: list[dict[str, Any]] = [{} for _ in folders]
    joined: dict[str, Any] = {}
    # threads and streams refer to processes, so processes come first
    for name in ("processes", "devices", "threads", *(d for d in DICTIONARIES if d not in _KEY)):
        schema = TABLES[name].arrow_schema()
        rows: list[dict[str, Any]] = []
        known: dict[tuple[Any, ...], int] = {}
        for i, folder in enumerate(folders):
            table = _read(folder, name)
            lookup: dict[int, int] = {}
            for row in table.to_pylist() if table is not None else []:
                moved = dict(row)
                if name != "processes" and "process" in moved:
                    moved["process"] = _looked_up(maps[i].get("processes"), moved["process"])
                identity = tuple(moved[c] for c in _IDENTITY.get(name, tuple(k for k in moved)))
                number = known.setdefault(identity, len(known))
                if number == len(rows):
                    if name in _KEY:
                        moved[_KEY[name]] = number
                    rows.append(moved)
                if name in _KEY:
                    lookup[row[_KEY[name]]] = number
            if name in _KEY and lookup:
                maps[i][name] = pa.array([lookup.get(n) for n in range(max(lookup) + 1)], pa.int32())
        joined[name] = pa.Table.from_pylist(rows, schema)
    return maps, joined


def _looked_up(lookup: Any, number: int | None) -> int | None:
    if lookup is None or number is None or number >= len(lookup):
        return number
    value: int | None = lookup[number].as_py()
    return value


def _read(folder: Path, name: str) -> Any:
    import pyarrow.parquet as pq

    path = folder / (NAMES if name == "names" else f"{name}.parquet")
    if not path.is_file():
        return None
    with pq.ParquetFile(path) as file:
        return file.read()
