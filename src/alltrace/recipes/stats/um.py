"""Unified memory: bytes migrated and pages faulted at each address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.stats.base import RANK, with_rank
from alltrace.recipes.stats.cuda import column, durations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Part, RankTables

TABLES = {"copies": ("start", "end", "kind", "bytes", "address"), "page_faults": ("kind", "address", "count")}
SUMS = ("htod", "dtoh", "took_ns", "cpu", "gpu")
_SCHEMA = pa.schema([(name, pa.int64()) for name in ("address", *SUMS)])


def activity(rank: RankTables) -> Any:
    """The unified-memory activity of a rank by virtual address.

    Returns:
        `address` (null where the source has none), `htod` and `dtoh` (bytes migrated), `took_ns` (time of these migrations), `cpu`
        and `gpu` (page faults); each null where there was none.
    """
    copies = rank.table("copies", TABLES["copies"])
    kind = column(copies, "kind").cast(pa.string())
    faults = rank.table("page_faults", TABLES["page_faults"])
    fault = column(faults, "kind").cast(pa.string())
    size, took, count = column(copies, "bytes"), durations(copies), column(faults, "count")
    parts = []
    for name, word in (("htod", "UvmHtoD"), ("dtoh", "UvmDtoH")):
        moved = pa.table({"address": column(copies, "address"), name: size, "took_ns": took})
        parts.append(moved.filter(pc.equal(kind, word)))
    for name in ("cpu", "gpu"):
        faulted = pa.table({"address": column(faults, "address"), name: pc.fill_null(count, 1)})
        parts.append(faulted.filter(pc.equal(fault, name)))
    return _summed([pa.table([_or_null(p, f.name) for f in _SCHEMA], schema=_SCHEMA) for p in parts], ["address"])


def together(parts: Sequence[Part], options: Mapping[str, Any]) -> Any:
    """The activity of all ranks by address, and by rank (first column `rank`) where that is asked for."""
    by_rank = bool(options.get("by_rank"))
    tables = [with_rank(part) if by_rank else part.table for part in parts if part.table.num_rows]
    keys = [RANK, "address"] if by_rank else ["address"]
    empty = pa.schema([(name, pa.int64()) for name in (*keys, *SUMS)]).empty_table()
    return _summed(tables, keys) if tables else empty


def summed(table: Any, keys: Sequence[str]) -> Any:
    """The activity summed by `keys`, or as a whole without keys; with the lowest and highest address (`low`, `high`)."""
    aggregates = [*((name, "sum") for name in SUMS), ("address", "min"), ("address", "max")]
    found = table.group_by(list(keys), use_threads=False).aggregate(aggregates)
    return found.select([*keys, *(f"{name}_{how}" for name, how in aggregates)]).rename_columns([*keys, *SUMS, "low", "high"])


def hexadecimal(addresses: Any) -> Any:
    """`0x7F0000001000` for each address, null for null; a negative one is the unsigned number of the same 64 bits."""
    return pa.array([None if a is None else f"0x{a & 0xFFFFFFFFFFFFFFFF:X}" for a in addresses.to_pylist()], pa.string())


def _summed(tables: Sequence[Any], keys: list[str]) -> Any:
    found = pa.concat_tables(tables).group_by(keys, use_threads=False).aggregate([(name, "sum") for name in SUMS])
    return found.select([*keys, *(f"{name}_sum" for name in SUMS)]).rename_columns([*keys, *SUMS])


def _or_null(table: Any, name: str) -> Any:
    return column(table, name) if name in table.column_names else pa.nulls(table.num_rows, pa.int64())
