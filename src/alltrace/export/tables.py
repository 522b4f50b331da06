"""The canonical tables of all ranks as Parquet, CSV or Arrow files, names as text."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from alltrace.export.atomic_output import Draft, check_folder
from alltrace.export.selection import Selection, SentSelection
from alltrace.export.tasks import results_of
from alltrace.trace.schema import DICTIONARIES, TABLES, Table

FORMATS = ("parquet", "csv", "arrow")


def export_tables(selection: Selection, path: Path, form: str, *, jobs: int | None = None) -> dict[str, int]:
    """Write a folder with one file per table that has rows, all ranks in it."""
    # Each file has `rank` and `host` before the table's columns; names are text, times ns on the run's aligned clock
    # from its time 0. CSV is RFC 4180 with LF line ends; null is empty, an empty text is `""`. Arrow is the IPC file
    # format. `selection`: what to write; the dictionaries of its ranks are always whole. `path`: the folder to make; it
    # must not exist, or be empty. `jobs`: the most processes, a table each; None lets the number of rows decide.
    check_folder(path)
    names = [name for name in (*sorted(selection.tables), *DICTIONARIES) if name != "names"]
    sent = SentSelection(selection)
    with Draft(path) as draft:
        folder = draft.file(path)
        folder.mkdir()
        written = results_of(partial(_write, sent, folder.absolute(), form), names, sent, jobs, draft.folder)
        return {name: rows for name, rows in zip(names, written, strict=True) if rows}


def _write(sent: SentSelection, folder: Path, form: str, name: str, advance: Callable[[int], None]) -> int:
    """Write the file of a table; returns its number of rows."""
    selection, table, path = sent.selection, TABLES[name], folder / f"{name}.{form}"
    writer: Any = None
    rows = 0
    try:
        for batch in _all_ranks(selection, table):
            writer = writer or _writer(path, batch.schema, form)
            writer.write_table(batch)
            rows += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    advance(1)
    return rows


def _writer(path: Path, schema: Any, form: str) -> Any:
    if form == "parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(str(path), schema, compression="zstd")
    if form == "csv":
        from pyarrow import csv

        return csv.CSVWriter(str(path), schema, write_options=csv.WriteOptions(quoting_style="needed"))
    import pyarrow as pa

    return pa.ipc.new_file(str(path), schema)


def _all_ranks(selection: Selection, table: Table) -> Iterator[Any]:
    for rank in selection.ranks:
        stored = selection.run.rank(rank.rank)
        if table.name in DICTIONARIES:
            dictionary = stored.table(table.name)
            batches = iter((dictionary,) if dictionary.num_rows else ())
        else:
            batches = selection.batches(rank, table.name, table.column_names)
        for batch in batches:
            yield _readable(selection, table, rank.rank, rank.host, batch)


def _readable(selection: Selection, table: Table, rank: int, host: str, batch: Any) -> Any:
    """`batch` with its rank and host, and text for ids of names and for codes of words."""
    import pyarrow as pa

    columns: dict[str, Any] = {
        "rank": pa.repeat(pa.scalar(rank, pa.int32()), batch.num_rows),
        "host": pa.repeat(pa.scalar(host, pa.string()), batch.num_rows),
    }
    for column in table.columns:
        values = batch.column(column.name)
        if column.type == "name":
            values = selection.run.texts(values).cast(pa.string())
        elif column.type == "enum":
            values = values.cast(pa.string())
        columns[column.name] = values
    return pa.table(columns)
