"""The files of a pyramid: one Arrow file per rank, one for all ranks together, and the facts that make it whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from alltrace.run.checked_arrow import read_table, write_table
from alltrace.tiles.rank_tiles import TrackTiles

FACTS = "pyramid.json"
HEAT = "heat.arrow"
SCALES = b"alltrace.scales"

NO_DATA = 65535
"""In the heat map: the rank has no data at this time."""

_FACTS = ["key", "rows", "first_ns", "last_ns", "level", "first_bin"]
_BUSY = ("busy", "communication", "copy")
_SAMPLED = ("mean", "least", "most")
_RANK_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("rows", pa.int64()),
        ("first_ns", pa.int64()),
        ("last_ns", pa.int64()),
        ("level", pa.int8()),
        ("first_bin", pa.int64()),
        *((name, pa.list_(pa.int64())) for name in _BUSY),
        *((name, pa.list_(pa.float32())) for name in _SAMPLED),
    ]
)


def rank_file(rank: int) -> str:
    return f"ranks/rank={rank}.arrow"


def write_rank(path: Path, tracks: Iterable[TrackTiles], signature: str) -> None:
    rows = []
    for track in tracks:
        row: dict[str, Any] = {n: getattr(track, n) for n in _FACTS}
        sampled = len(track.values) == len(_SAMPLED) and track.values[0].dtype == np.float32
        row |= dict(zip(_SAMPLED if sampled else _BUSY, track.values, strict=False))
        rows.append(row)
    write_table(path, pa.Table.from_pylist(rows, _RANK_SCHEMA), signature)


def read_rank(path: Path) -> dict[str, TrackTiles]:
    table = read_table(path)
    lists = zip(*(_lists(table.column(n)) for n in (*_BUSY, *_SAMPLED)), strict=True)
    facts = table.select(_FACTS).to_pylist()
    return {
        f["key"]: TrackTiles(**f, values=tuple(v for v in own if v is not None))
        for f, own in zip(facts, lists, strict=True)
    }


def _lists(column: Any) -> list[NDArray[Any] | None]:
    lists: list[NDArray[Any] | None] = []
    for chunk in column.chunks:
        flat, bounds = chunk.values.to_numpy(zero_copy_only=False), chunk.offsets.to_numpy()
        valid = chunk.is_valid().to_numpy(zero_copy_only=False)
        lists += [flat[a:b] if ok else None for a, b, ok in zip(bounds[:-1], bounds[1:], valid, strict=True)]
    return lists


def as_shares(values: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Shares of 0 to 1 as the heat map has them, in 65,534ths."""
    return np.rint(np.clip(values, 0, 1) * 65534).astype(np.uint16)


def heat_table(
    ranks: list[int], shares: Mapping[str, NDArray[np.uint16]], scales: Mapping[str, list[float]]
) -> pa.Table:
    """The heat map's numbers: a row per rank and a column per metric, each a list of all bins."""
    columns: dict[str, Any] = {"rank": pa.array(ranks, pa.int32())}
    for name, values in shares.items():
        columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1), pa.uint16()), values.shape[1])
    return pa.table(columns).replace_schema_metadata({SCALES: json.dumps(dict(scales)).encode()})


def heat_arrays(table: pa.Table) -> tuple[dict[str, NDArray[np.uint16]], dict[str, list[float]]]:
    """What `heat_table` made: arrays of (ranks, bins) by metric, and the values encoded as 0 and 65534."""
    arrays = {}
    for name in table.column_names[1:]:
        column = table.column(name).combine_chunks()
        flat = column.flatten().to_numpy(zero_copy_only=False) if len(column) else np.zeros(0, np.uint16)
        arrays[name] = flat.reshape(table.num_rows, -1) if table.num_rows else np.zeros((0, 1), np.uint16)
    return arrays, json.loads((table.schema.metadata or {}).get(SCALES, b"{}"))
