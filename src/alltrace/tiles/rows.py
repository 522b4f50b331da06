"""One row of a rank's table: its values, its track, its name."""

from typing import Any

from alltrace.run.rank import Rank
from alltrace.tiles.tracks import SOURCES, key_of
from alltrace.trace.errors import UsageError
from alltrace.trace.schema import TABLES


def row_of(stored: Rank, table: str, row: int) -> dict[str, Any]:
    """The values of a row, 0-based, by column; names are ids. Raises `UsageError`: the table or row does not exist."""
    if table not in SOURCES and table != "syncs":
        raise UsageError.unknown("table with events", table, SOURCES)
    for piece in stored.pieces(table):
        if piece.first_row <= row < piece.first_row + piece.rows:
            columns = list(TABLES[table].column_names)
            values: dict[str, Any] = (
                stored.piece(table, piece.group, columns).slice(row - piece.first_row, 1).to_pylist()[0]
            )
            return values
    raise UsageError(f"rank {stored.rank} has no row {row} in {table}")


def track_of(table: str, values: dict[str, Any]) -> str:
    """The key of a row's track; empty if its table is not drawn."""
    source = SOURCES.get(table)
    return (
        "" if source is None else key_of(source.group, (-1 if values[c] is None else values[c] for c in source.track))
    )


def plain_row(stored: Rank, table: str, values: dict[str, Any], zero: int) -> dict[str, Any]:
    """The values of a row without those that are null; ids of names as text, times from the run's first event."""
    import pyarrow as pa

    kinds = {c.name: c.type for c in TABLES[table].columns}
    ids = [v for c, v in values.items() if kinds[c] == "name" and v is not None]
    texts = dict(zip(ids, stored.texts(pa.array(ids, pa.int64())).to_pylist(), strict=True)) if ids else {}
    plain: dict[str, Any] = {}
    for column, value in values.items():
        if value is None:
            continue
        kind = kinds[column]
        plain[column] = texts.get(value) if kind == "name" else value - zero if kind == "time" else value
        if isinstance(value, bytes):
            plain[column] = value[:256].hex()
    if values.get("start") is not None and values.get("end") is not None:
        plain["duration_ns"] = max(values["end"] - values["start"], 0)
    return plain


def called(table: str, plain: dict[str, Any]) -> str:
    if table == "kernels":
        return str(plain.get("short_name") or plain.get("name") or "kernel")
    if table == "sched":
        return f"CPU {plain['cpu']}" if "cpu" in plain else "some CPU"
    return str(
        plain.get(SOURCES[table].name) if table in SOURCES and plain.get(SOURCES[table].name) is not None else table
    )
