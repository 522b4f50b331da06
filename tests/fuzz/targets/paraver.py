"""Paraver traces: damaged .prv, .pcf and .row files, read whole."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from random import Random

from alltrace.export.paraver.writer import export_paraver
from alltrace.export.selection import select
from alltrace.readers.paraver.read import open_report
from tests.making import make_run, random_rows

_FOLDER = Path(tempfile.gettempdir())
_SUFFIXES = (".prv", ".pcf", ".row")
_BETWEEN = b"\n--- file ---\n"


def corpus() -> list[bytes]:
    """The three files of a trace, one behind the other: few rows, more rows, with details, on few and many threads."""
    draw, made = Random(1), []
    traces = (
        (3, ("kernels", "api", "ranges", "mpi"), {}),
        (8, ("kernels", "api"), {"details": True}),
        (5, ("kernels", "ranges"), {"fold_streams": True}),
        (5, ("ranges", "mpi"), {"ids": "nsys2prv"}),
    )
    for number, (rows, names, options) in enumerate(traces):
        with tempfile.TemporaryDirectory() as folder:
            tables = {table: random_rows(table, rows, draw, length=3_000) for table in names}
            run = make_run(Path(folder) / "run", dict.fromkeys(range(1 + number % 2), tables))
            export_paraver(select(run), Path(folder) / "out.prv", **options)
            made.append(_BETWEEN.join((Path(folder) / f"out{suffix}").read_bytes() for suffix in _SUFFIXES))
    return made


def run(data: bytes) -> None:
    """All tables of the trace whose files are in `data`."""
    parts = data.split(_BETWEEN, len(_SUFFIXES) - 1)
    path = _FOLDER / f"fuzz-{os.getpid()}.prv"
    for number, suffix in enumerate(_SUFFIXES):
        path.with_suffix(suffix).write_bytes(parts[number] if number < len(parts) else b"")
    reader = open_report(path)
    try:
        for _, batch in reader.stream(reader.report.tables):
            batch.validate(full=True)
        for table in reader.dictionaries().values():
            table.validate(full=True)
    finally:
        reader.close()
