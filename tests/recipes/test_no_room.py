"""No disk, or none that is left, and little memory: the same answer, or one sentence that says what to do."""

from __future__ import annotations

import errno
import random
import statistics
import tempfile

import pyarrow as pa
import pytest
from tests.making import collective, kernel, make_run

from alltrace.recipes.analysis import sql_engine
from alltrace.recipes.analysis.sql_engine import run_statement
from alltrace.recipes.analysis.statistics_sql import distribution_statement, statistics_statement
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.execution.ask_all import ask_all
from alltrace.recipes.execution.part_store import PartStore
from alltrace.recipes.part import Part
from alltrace.recipes.questions import sql
from alltrace.recipes.questions.sql import query
from alltrace.recipes.registry import find
from alltrace.trace.errors import AlltraceError, InputError

ASKED = (
    "stats:cuda_gpu_kern_sum",
    "stats:cuda_api_sum",
    "cuda_gpu_kern_sum",
    "nvtx_sum",
    "kernels",
    "gaps",
    "launches",
)
TOO_LARGE = "SELECT a, count(*) FROM (SELECT hash(range) AS a FROM range(2000000)) GROUP BY a ORDER BY a"


@pytest.fixture
def run(tmp_path):
    rows = {
        "kernels": [kernel(10 * n, 10 * n + 7, f"k{n % 3}", correlation=n) for n in range(20)] + [collective(300, 350)],
        "api": [{"start": 10 * n - 5, "end": 10 * n, "name": "cudaLaunchKernel", "correlation": n} for n in range(20)],
        "ranges": [{"start": 0, "end": 400, "name": "step", "kind": "pushpop", "depth": 0}],
    }
    return make_run(tmp_path / "run", {0: rows, 1: rows})


@pytest.fixture
def no_folder(monkeypatch):
    """No temporary folder can be made, as in a container whose disk may only be read; DuckDB may hold 32 MiB."""

    def refuse(*_, **__):
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp', '/var/tmp']")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    monkeypatch.setattr(sql_engine, "_LIMITS", ("SET memory_limit = '32MiB'",) * 3)
    engine = sql_engine._Engine()
    monkeypatch.setattr(sql_engine, "_engine", lambda _: engine)


def test_questions_that_memory_suffices_for_need_no_disk(run, request):
    before = {name: ask(run, name).table.to_pylist() for name in ASKED}
    text = 'select name, sum("end" - start) as s from kernels group by all order by all'
    counted = query(run, text).table.to_pylist()
    request.getfixturevalue("no_folder")
    assert {name: ask(run, name).table.to_pylist() for name in ASKED} == before
    assert (
        query(run, text).table.to_pylist()
        == counted
        == [
            {"name": "k0", "s": 2 * 7 * 7},
            {"name": "k1", "s": 2 * 7 * 7},
            {"name": "k2", "s": 2 * 6 * 7},
            {"name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "s": 2 * 50},
        ]
    )


def test_a_statement_that_needs_the_disk_says_so(no_folder):
    with pytest.raises(
        AlltraceError, match=r"^memory, without a temporary folder, does not suffice .*set TMPDIR to a folder"
    ) as error:
        run_statement(TOO_LARGE, {})
    assert "\n" not in str(error.value)
    assert run_statement("SELECT 1 AS a", {}).to_pylist() == [{"a": 1}]


def limited(monkeypatch, *settings):
    """Every connection that a query makes has these settings."""
    connect = sql.connect

    def connected(*arguments, **options):
        connection = connect(*arguments, **options)
        for setting in settings:
            connection.execute(setting)
        return connection

    monkeypatch.setattr(sql, "connect", connected)


def test_a_query_that_fills_memory_and_disk_says_so(run, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    limited(monkeypatch, "SET memory_limit = '16MiB'", "SET max_temp_directory_size = '1MiB'")
    with pytest.raises(
        AlltraceError, match=r"^memory and the temporary folder /.* do not suffice .*set TMPDIR"
    ) as error:
        query(run, TOO_LARGE)
    assert error.value.exit_code == 3
    assert not list(tmp_path.glob("alltrace-*"))


def test_a_query_without_a_temporary_folder_says_so(run, monkeypatch, no_folder):
    limited(monkeypatch, "SET memory_limit = '16MiB'")
    with pytest.raises(AlltraceError, match=r"^memory, without a temporary folder, does not suffice"):
        query(run, TOO_LARGE)


def test_few_rows_need_no_folder(run, no_folder):
    streamed = ask(run, "stats:cuda_kern_exec_trace", {"nvtx_name": True}, stream=True).read()
    assert streamed.table.num_rows == 2 * 20
    assert ask(run, "stats:cuda_kern_exec_trace", {"nvtx_name": True}).table.num_rows == 2 * 20


class Full:
    """A file on a disk that is full."""

    def __init__(self, *_):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("part", [pa.table({"a": range(100_000)}), ["x" * (2 << 20)]], ids=["table", "object"])
def test_parts_of_ranks_that_the_disk_cannot_take_are_a_sentence(part, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(pa, "OSFile", Full)
    monkeypatch.setattr("pathlib.Path.open", Full)
    with (
        PartStore(held_bytes=0) as store,
        pytest.raises(
            InputError, match=r"what the ranks contributed cannot be written there \(No space left on device\).*TMPDIR"
        ),
    ):
        store.keep(0, {0: Part(0, part)})
    assert not list(tmp_path.iterdir())


def test_all_questions_at_once_without_a_folder(run, no_folder):
    found = ask_all(run, [(find(name), {}) for name in ASKED])
    assert len(found) == len(ASKED)


@pytest.mark.slow
def test_many_distinct_durations_in_little_memory(monkeypatch, tmp_path):
    """Sums, quartiles and standard deviation of 300,000 values, by DuckDB in 24 MiB and by Python in whole numbers."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sql_engine, "_LIMITS", ("SET memory_limit = '24MiB'", "SET memory_limit = '512MiB'"))
    engine = sql_engine._Engine()
    monkeypatch.setattr(sql_engine, "_engine", lambda _: engine)
    draw = random.Random(5)
    values = [draw.randrange(1 << 40) for _ in range(300_000)]
    events = pa.table(
        {"rank": pa.array([0] * len(values), pa.int32()), "key": [n % 2 for n in range(len(values))], "value": values}
    )
    parts = run_statement(distribution_statement(["key"], "SELECT rank, key, value FROM events"), {"events": events})
    rows = run_statement(statistics_statement({"key": "key"}, ["key"]), {"parts": parts}).sort_by("key").to_pylist()
    for key, row in enumerate(rows):
        mine = values[key::2]
        assert (row["count"], int(row["total"]), row["min"], row["max"]) == (len(mine), sum(mine), min(mine), max(mine))
        assert row["median"] == statistics.median(mine)
        assert row["stddev"] == pytest.approx(statistics.stdev(mine), rel=1e-9)
    engine.remove()
