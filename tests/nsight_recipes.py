"""Runs the real `nsys recipe` where one is installed: makes folders that it accepts from SQLite exports, and reads its
tables.

It reads reports (.nsys-rep) and, if they are newer, the exports next to them: `NAME.sqlite` and `NAME_pqtdir`. So an
empty report with exports next to it replaces a real one.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

UNSIGNED = frozenset({"globalTid", "globalPid", "globalVid", "endGlobalTid", "commHandle"})
# all questions in one process, because loading pandas takes longer than most answers
DRIVER = """
import json, runpy, sys, traceback
for arguments in json.load(sys.stdin):
    sys.argv = ["nsys_recipe", *arguments]
    try:
        runpy.run_module("nsys_recipe", run_name="__main__", alter_sys=True)
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
"""


def recipe_python() -> str | None:
    """A Python before 3.12 with NumPy 1, pandas before 2.2, PyArrow and psutil, which `nsys recipe` needs, if there is
    one."""
    given = os.environ.get("ALLTRACE_NSIGHT_PYTHON")
    return given if given and Path(given).is_file() else None


# what it would export from the report, were there one, although it is empty
EMPTY = {
    **{
        f"MPI_{kind}_EVENTS": ("start", "end", "globalTid", "textId")
        for kind in ("P2P", "START_WAIT", "OTHER", "COLLECTIVES")
    },
    **{
        f"CUPTI_ACTIVITY_KIND_{kind}": ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
        for kind in ("MEMCPY", "MEMSET")
    },
}


def twin(export: Path, folder: Path) -> None:
    """Put into `folder` what makes `nsys recipe` take an SQLite export for a report."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{export.stem}.nsys-rep").write_bytes(b"")
    time.sleep(0.02)  # the exports must be newer
    shutil.copyfile(export, folder / f"{export.stem}.sqlite")
    place = folder / f"{export.stem}_pqtdir"
    place.mkdir()
    for table, columns in EMPTY.items():
        pq.write_table(
            pa.table({c: pa.array([], pa.uint64() if c in UNSIGNED else pa.int64()) for c in columns}),
            place / f"{table}.parquet",
        )
    with closing(sqlite3.connect(export)) as database:
        database.text_factory = lambda text: text.decode(errors="replace")
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            declared = [(row[1], row[2].upper()) for row in database.execute(f'PRAGMA table_info("{name}")')]
            columns = list(zip(*database.execute(f'SELECT * FROM "{name}"'), strict=True)) or [()] * len(declared)
            arrays = {c: _array(c, kind, values) for (c, kind), values in zip(declared, columns, strict=True)}
            pq.write_table(pa.table(arrays), place / f"{name}.parquet")


def _array(name: str, kind: str, values: Sequence[Any]) -> Any:
    if kind.startswith("INT") and name in UNSIGNED:
        return pa.array([None if v is None else v & (2**64 - 1) for v in values], pa.uint64())
    if kind.startswith("INT"):
        return pa.array([v if isinstance(v, int) else None for v in values], pa.int64())
    if kind.startswith(("REAL", "FLOA", "DOUB")):
        return pa.array(values, pa.float64())
    return pa.array(
        [None if v is None else v.decode(errors="replace") if isinstance(v, bytes) else str(v) for v in values],
        pa.string(),
    )


def ask_nsight(
    nsys: Path, folder: Path, out: Path, questions: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, Any]]:
    """What `nsys recipe` answers.

    Args:
        nsys: The nsys.
        folder: The folder of reports.
        out: A folder to write to.
        questions: For each answer wanted, by any name, the recipe and its options.

    Returns:
        For each question the tables by name, as `pyarrow.Table`; without tables where there is no answer.
    """
    python = recipe_python()
    if python is None:
        pytest.skip("no Python for nsys recipe: set ALLTRACE_NSIGHT_PYTHON")
    packages = nsys.parent / "python" / "packages"
    (packages / "nsys_recipe" / "third_party").mkdir(exist_ok=True)  # it refuses to start without
    out.mkdir(parents=True)
    arguments = [
        [recipe, "--input", str(folder), "--output", str(out / name), "--mode", "none", *options]
        for name, (recipe, *options) in questions.items()
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(packages),
        "PATH": f"{nsys.parent}:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        [python, "-c", DRIVER],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=600,
    )
    sys.stderr.write(done.stderr[-4000:])
    return answers_in(out, questions)


def answers_in(out: Path, questions: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """What `ask_nsight` answered into this folder."""
    return {
        name: {file.stem: pq.read_table(file) for file in sorted((out / name).glob("*.parquet"))} for name in questions
    }


def rows_of(table: Any, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows of one of its tables, NaN as None; the index is a column called as in `columns` where that names it."""
    metadata = json.loads(table.schema.metadata[b"pandas"])
    index = [i for i in metadata["index_columns"] if isinstance(i, str)]
    order = [*index, *(n for n in table.column_names if n not in index)]
    names = [n for n in order if n in columns or not n.startswith("__index")]
    assert names == list(columns)[: len(names)]
    return [
        tuple(None if v != v else v for v in row)
        for row in zip(*(table.column(n).to_pylist() for n in names), strict=True)
    ]


def close(one: Any, other: Any) -> bool:
    """Whether two cells are equal; fractions to within the last digits of a float64."""
    if isinstance(one, float) or isinstance(other, float):
        return one is not None and other is not None and abs(one - other) <= 1e-9 * max(abs(one), abs(other), 1.0)
    return bool(one == other)
