"""Memory grows with a rank by the few bytes for each kernel that a question keeps, and not by whole tables."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from tests.making import COMPUTE_KERNEL, kernel, make_run
from tests.recipes.work import operator

from alltrace.run.checksums import write_rank_record
from alltrace.run.manifest import read_manifest, write_manifest
from alltrace.run.writer import TableWriter
from alltrace.trace.names import name_id
from alltrace.trace.schema import TABLES
from benchmarks.measure import ALLTRACE, run_once

_FEWER, _MORE = 1_100_000, 2_200_000
"""Kernels; both are more than a table in memory has."""

_LAUNCH = "cudaLaunchKernel"
_STEPS = 20


def large_run(folder, count, payloads=()):
    """A run of one rank with `count` kernels, each launched by a call, in steps; made from arrays.

    `payloads`: of operators, one around each call in place of the steps.
    """
    step = {"start": 0, "end": 1, "thread": 0, "name": "step"}
    if payloads:
        step = operator("aten::mm", 0, 1)
    first = {
        "kernels": [kernel(0, 1)],
        "api": [{"start": 0, "end": 1, "name": _LAUNCH, "correlation": 0}],
        "ranges": [step],
    }
    make_run(folder, {0: first})
    number = np.arange(count, dtype=np.int64)
    begin = number * 10_000 + number * 7919 % 3000
    place = np.arange(_STEPS, dtype=np.int64) * (count // _STEPS) * 10_000
    tables = {
        "kernels": {
            "start": begin + 5000,
            "end": begin + 9000 + number * 31 % 1500,
            "stream": np.full(count, 7),
            "grid_x": number % 40,
        },
        "api": {"start": begin, "end": begin + 3000, "thread": np.zeros(count)},
        "ranges": {
            "start": place,
            "end": np.append(place[1:] - 1000, count * 10_000),
            "thread": np.zeros(_STEPS),
            "depth": np.zeros(_STEPS),
        },
    }
    if payloads:
        domain, zero = np.full(count, name_id("cpu_op")), np.zeros(count)
        around = {"start": begin, "end": begin + 4000, "thread": zero, "depth": zero}
        tables["ranges"] = {**around, "domain": domain, "source_row": number, "payload": number % len(payloads)}
    names = {"kernels": name_id(COMPUTE_KERNEL), "api": name_id(_LAUNCH), "ranges": name_id(step["name"])}
    manifest = read_manifest(folder)
    record, rows = manifest.ranks[0], {}
    for table, columns in tables.items():
        many = len(columns["start"])
        columns |= {"name": np.full(many, names[table]), "process": np.zeros(many), "device": np.zeros(many)}
        columns |= {"correlation": number} if table != "ranges" else {}
        with TableWriter(TABLES[table], folder / record.folder / f"{table}.parquet", folder / "spill") as writer:
            for batch in _table(TABLES[table], columns, many, payloads).to_batches(max_chunksize=1 << 16):
                writer.append(batch)
            rows[table] = writer.finish().rows
    record = record._replace(rows=rows, end_ns=count * 10_000)
    write_rank_record(folder / record.folder, record, {})
    write_manifest(folder, manifest.with_ranks([record]))
    # an import has the names of a rank in its folder until all ranks are there
    (folder / record.folder / "names.parquet").write_bytes((folder / "names.parquet").read_bytes())
    return folder


def _table(declared, columns, many, payloads):
    arrays = []
    for field in declared.arrow_schema():
        if field.name == "payload" and payloads:
            arrays.append(pa.array(payloads).take(pa.array(columns[field.name])))
        elif field.name in columns:
            arrays.append(pa.array(columns[field.name].astype(np.int64)).cast(field.type))
        elif field.name == "kind" and declared.name == "kernels":
            arrays.append(
                pa.DictionaryArray.from_arrays(pa.array(np.zeros(many, np.int32)), ["compute"]).cast(field.type)
            )
        else:
            arrays.append(pa.nulls(many, field.type))
    return pa.Table.from_arrays(arrays, schema=declared.arrow_schema())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of one rank with fewer and with more kernels."""
    return [large_run(tmp_path_factory.mktemp("large") / "run", count) for count in (_FEWER, _MORE)]


@pytest.mark.parametrize(
    ("question", "bytes_of_a_kernel"),
    [
        ("diagnose", 100),
        ("kernels", 80),
        ("gaps", 110),
        ("launches", 220),
        ("operators", 150),
        ("kernel-sequences", 150),
        ("step-time", 30),
    ],
)
def test_memory_grows_by_few_bytes_for_each_kernel(runs, question, bytes_of_a_kernel):
    fewer, more = (
        run_once([*ALLTRACE, "recipe", question, str(run), "--jobs", "1", "--format", "csv"]).peak_mb for run in runs
    )
    assert more - fewer <= bytes_of_a_kernel * (_MORE - _FEWER) / 2**20


_OPERATORS = """
import sys, tracemalloc
from pathlib import Path
import numpy as np
import pyarrow as pa
from alltrace.recipes.questions.diagnose.operator_rates import slow_operators
from alltrace.run import collecting, rank
from alltrace.run.store import Run
from alltrace.trace import arrays
rank._MOST_HELD_ROWS, collecting._PIECE_ROWS, arrays.BLOCK_ROWS = 0, 1 << 12, 1 << 12
own = Run(Path(sys.argv[1])).rank(0)
tracemalloc.start()
assert slow_operators(own, np.zeros(own.record.rows["kernels"], np.int32))
print(tracemalloc.get_traced_memory()[1] + pa.default_memory_pool().max_memory())
"""


def test_operators_take_few_bytes_each_and_not_their_texts(tmp_path):
    shapes = [f'"Input Dims": [[{n}, 64], [64, 64]], "Input type": ["float", "float"]' for n in range(1, 50)]
    payloads = [f'{{{text}, "Call stack": "{"train.py(3): step;" * 20}"}}' for text in shapes]
    fewer, more = 100_000, 250_000
    taken = []
    for count in (fewer, more):
        run = large_run(tmp_path / str(count), count, payloads)
        done = subprocess.run([sys.executable, "-c", _OPERATORS, str(run)], capture_output=True, check=True)
        taken.append(int(done.stdout))
    assert taken[1] - taken[0] <= 430 * (more - fewer)


_LOOKED_THROUGH = """
import sys
from pathlib import Path
from alltrace.run.missing_records import missing_records
from alltrace.run.pieces import Piece
from alltrace.run.plausibility import set_aside
from alltrace.run.store import Run
piece = Piece(Path(sys.argv[1]) / "ranks" / "rank=0", Run(Path(sys.argv[1])).ranks[0].rows)
piece.processes = 1
set_aside(piece, piece.folder, "report")
piece.end_ns = 1
assert not piece.row_warnings and not missing_records(piece).records
"""


def test_an_import_looks_through_a_rank_in_memory_that_does_not_grow_with_it(runs):
    fewer, more = (run_once([sys.executable, "-c", _LOOKED_THROUGH, str(run)]).peak_mb for run in runs)
    # less than the starts and ends of one of its tables
    assert more - fewer <= 16 * (_MORE - _FEWER) / 2**20
