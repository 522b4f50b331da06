"""Rows of an export may come in any order from Nsight Systems 2025.6 on: answers are equal to those with rows in
order."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing

import pytest

import alltrace
from alltrace.trace.errors import AlltraceError

pytestmark = pytest.mark.corpus

FILES = (
    "saxpy_mpi_nsys2022.2",
    "cuda_graphs_nsys2024.6",
    "schema3.1_nsys2023.1",
    "v100x4_mpi_openacc_one_report_nsys2022.3",
    "mpi_p2p_collectives_nsys2023.1",
)
QUESTIONS = (
    "info", "breakdown", "overlap", "kernels", "gaps", "collectives", "stragglers", "steps", "efficiency",
    "critical-path", "stats:cuda_gpu_kern_sum", "stats:cuda_api_sum", "stats:nvtx_sum", "stats:nvtx_pushpop_sum",
    "stats:mpi_event_sum", "stats:osrt_sum", "stats:cuda_gpu_mem_time_sum", "nvtx_gpu_proj_sum", "gpu_time_util",
)  # fmt: skip
# where the reports are, and how many rows each has as they lie in the file
OWN = {"reports"}


def shuffle(export):
    """Put the rows of every table but the dictionaries in another order."""
    draw = random.Random(7)
    with closing(sqlite3.connect(export)) as database, database:
        database.create_function("draw", 0, draw.random)
        names = [n for (n,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            if name == "StringIds" or name.startswith(("ENUM_", "META_", "TARGET_INFO", "sqlite_")):
                continue
            database.execute(f'CREATE TEMP TABLE moved AS SELECT * FROM "{name}" ORDER BY draw()')
            database.execute(f'DELETE FROM "{name}"')
            database.execute(f'INSERT INTO "{name}" SELECT * FROM moved')
            database.execute("DROP TABLE moved")


def answers(export, cache):
    run = alltrace.open(export, cache_dir=cache)
    found = {}
    for name in QUESTIONS:
        try:
            rows = run.recipe(name).to_pylist()
        except AlltraceError as error:
            rows = [{"refused": str(error).replace(str(export), "")}]
        found[name] = [{key: value for key, value in row.items() if key not in OWN} for row in rows]
    return found


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FILES)
def test_shuffled_rows_change_no_answer(corpus, tmp_path, name):
    for folder in ("plain", "moved"):
        (tmp_path / folder).mkdir()
        shutil.copyfile(corpus / "nsys" / f"{name}.sqlite", tmp_path / folder / "report.sqlite")
    shuffle(tmp_path / "moved" / "report.sqlite")
    one = answers(tmp_path / "plain" / "report.sqlite", tmp_path / "cache")
    other = answers(tmp_path / "moved" / "report.sqlite", tmp_path / "cache2")
    assert sum(bool(rows) for rows in one.values()) >= 5
    for question, rows in one.items():
        assert other[question] == rows, question
