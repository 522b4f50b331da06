"""Joins what several reports gave one rank (capture ranges, a restarted profiler) into one set of tables."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.run.manifest import RECORDED
from alltrace.run.parquet import read_parquet, row_group_order
from alltrace.run.pieces import Piece, Sinks, grouped
from alltrace.run.writer import DEFAULT_MEMORY_BYTES
from alltrace.trace.schema import DICTIONARIES, EVENT_TABLES, TABLES

_ROW_OF = {
    "process": "processes",
    "thread": "threads",
    "end_thread": "threads",
    "device": "devices",
    "src_device": "devices",
    "dst_device": "devices",
}
"""Columns that are rows of a dictionary, which every report numbers for itself."""

_IDENTITY = {
    "processes": ("pid", "source_id"),
    "threads": ("source_id", "tid"),
    "devices": ("uuid", "bus_id", "ordinal"),
}
_KEY = {"processes": "process", "threads": "thread", "devices": "device"}


def join_pieces(parts: Sequence[tuple[Path, int, Mapping[str, int]]], output: Path, spill: Path) -> Piece:
    """Join the tables of `parts` (folder, shift of times in ns, row counts; in time order) into a folder."""
    output.mkdir(parents=True)
    joined = Piece(output)
    maps, dictionaries = _join_dictionaries([folder for folder, _, _ in parts])
    for name, table in dictionaries.items():
        joined.write_dictionary(name, table)
    tables = {
        n: [folder / f"{n}.parquet" if counts.get(n) else None for folder, _, counts in parts] for n in EVENT_TABLES
    }
    _join_tables(joined, tables, [shift for _, shift, _ in parts], maps, spill)
    if joined.open_end_ns is None:
        joined.open_end_ns = joined.end_ns
    if joined.rows.get("suspects"):
        recorded = Piece(output / "recorded")
        recorded.folder.mkdir()
        own = {n: [folder / f"{RECORDED}{n}.parquet" for folder, _, _ in parts] for n in EVENT_TABLES}
        wanted = {n: files for n, files in own.items() if any(file.exists() for file in files)}
        either = {
            n: [a if a.exists() else b for a, b in zip(files, tables[n], strict=True)] for n, files in wanted.items()
        }
        _join_tables(recorded, either, [shift for _, shift, _ in parts], maps, spill)
        for name in recorded.rows:
            (recorded.folder / f"{name}.parquet").rename(output / f"{RECORDED}{name}.parquet")
        recorded.folder.rmdir()
    return joined


def _join_tables(
    joined: Piece,
    tables: Mapping[str, Sequence[Path | None]],
    shifts: Sequence[int],
    maps: Sequence[Mapping[str, Any]],
    spill: Path,
) -> None:
    """Join tables, each from its file in every part, or None."""
    import pyarrow.parquet as pq

    for group in grouped(tuple(tables)):
        with Sinks({0: joined}, spill, DEFAULT_MEMORY_BYTES) as sinks:
            for name, (i, shift) in product(group, enumerate(shifts)):
                path = tables[name][i]
                if path is None:
                    continue
                enums = [c.name for c in TABLES[name].columns if c.type == "enum"]
                with pq.ParquetFile(path, read_dictionary=enums) as file:
                    for batch in file.iter_batches(row_groups=row_group_order(file.metadata)):
                        sinks.append(name, 0, _move(batch, name, shift, maps[i]).cast(TABLES[name].arrow_schema()))


def _move(batch: Any, name: str, shift: int, maps: Mapping[str, Any]) -> Any:
    """`batch` on the first report's time and numbering."""
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
    maps: list[dict[str, Any]] = [{} for _ in folders]
    joined: dict[str, Any] = {}
    # threads and streams refer to processes, so processes come first
    for name in ("processes", "devices", "threads", *(d for d in DICTIONARIES if d not in _KEY)):
        schema = TABLES[name].arrow_schema()
        rows: list[dict[str, Any]] = []
        known: dict[tuple[Any, ...], int] = {}
        for i, folder in enumerate(folders):
            path = folder / f"{name}.parquet"
            lookup: dict[int, int] = {}
            for row in read_parquet(path, schema.names).to_pylist() if path.is_file() else ():
                moved = dict(row)
                if name != "processes" and "process" in moved:
                    moved["process"] = _looked_up(maps[i].get("processes"), moved["process"])
                identity = tuple(moved[c] for c in _IDENTITY.get(name, tuple(k for k in moved)))
                number = known.setdefault(_known_as(name, moved, rows) or identity, len(known))
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


def _known_as(name: str, row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> tuple[Any, ...] | None:
    """The identity of the only row that can match one without, such as from a memory snapshot; else None."""
    if name == "processes" and row["pid"] is None:
        alike = list(rows[:1])
    elif name == "devices" and row["uuid"] is None and row["bus_id"] is None:
        alike = [other for other in rows if other["ordinal"] == row["ordinal"]]
    else:
        return None
    return tuple(alike[0][c] for c in _IDENTITY[name]) if len(alike) == 1 else None


def _looked_up(lookup: Any, number: int | None) -> int | None:
    if lookup is None or number is None or number >= len(lookup):
        return number
    value: int | None = lookup[number].as_py()
    return value
