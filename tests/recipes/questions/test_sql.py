from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path

import pytest
from tests.making import kernel, make_run

from alltrace.charts.text_table import to_text
from alltrace.cli.csv_text import to_csv
from alltrace.cli.output import to_json, to_markdown
from alltrace.recipes.questions.sql import query
from alltrace.run.manifest import Clock
from alltrace.trace.errors import UsageError


@pytest.fixture
def run(tmp_path):
    ranks = {0: {"kernels": [kernel(0, 10), kernel(20, 50, "b")]}, 1: {"kernels": [kernel(5, 6)]}}
    return make_run(
        tmp_path / "it's a [run]", ranks, hosts={0: "a", 1: "b"}, clocks=(Clock("a"), Clock("b", offset_ns=5))
    )


def test_what_does_not_fit_in_memory_goes_to_a_temporary_folder_that_is_gone_afterwards(run):
    (row,) = query(run, "select current_setting('temp_directory') as folder").table.to_pylist()
    assert Path(row["folder"]).parent == Path(tempfile.gettempdir())
    assert not Path(row["folder"]).exists()


def test_tables_have_rank_host_names_as_text_and_aligned_times(run):
    answer = query(run, 'select rank, host, name, start, "end" from kernels order by all')
    assert [tuple(r.values()) for r in answer.table.to_pylist()] == [
        (0, "a", "b", 20, 50),
        (0, "a", "void gemm_kernel(int)", 0, 10),
        (1, "b", "void gemm_kernel(int)", 0, 1),
    ]
    assert [(c.name, c.unit) for c in answer.columns] == [
        ("rank", None), ("host", None), ("name", None), ("start", "ns"), ("end", "ns"),
    ]  # fmt: skip


def test_columns_that_bear_one_name_are_told_apart(run):
    assert query(run, "select 1 a, 2 a, 3 a_2, 4 a").table.to_pylist() == [{"a": 1, "a_3": 2, "a_2": 3, "a_4": 4}]


def test_tables_that_no_rank_has_are_empty(run):
    assert query(run, "select count(*) n from copies").table.to_pylist() == [{"n": 0}]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("select 1; select 2", "not a single statement that only reads"),
        ("create table t as select 1", "not a single statement that only reads"),
        ("drop table kernels", "not a single statement that only reads"),
        ("copy (select 1) to 'x.csv'", "not a single statement that only reads"),
        ("", "not a single statement that only reads"),
        ("attach 'x.db'", "not a single statement that only reads"),
        ("install httpfs", "not a single statement that only reads"),
        ("set threads = 1", "not a single statement that only reads"),
        ("call pragma_version()", "not a single statement that only reads"),
        ("explain copy (select 1) to 'x.csv'", "not a single statement that only reads"),
        ("explain analyze copy (select 1) to 'x.csv'", "not a single statement that only reads"),
        ("/* */ explain (analyze) -- x\n copy (select 1) to 'x.csv'", "not a single statement that only reads"),
        ("with x as (insert into ranks select * from ranks returning *) select * from x", "cannot be answered"),
        ("select * from read_text('/etc/hostname')", "cannot be answered: Permission Error"),
        ("select * from glob('/etc/*')", "cannot be answered: Permission Error"),
        ("select * from run", "cannot be answered: Catalog Error"),
        ("\udcff", "bytes that are not UTF-8"),
        ("select nothing from kernels", "cannot be answered: Binder Error"),
        ("selec", "cannot be answered: Parser Error"),
        ("select * from '/etc/passwd'", "cannot be answered"),
        ("select * from read_csv('/etc/hostname')", "cannot be answered: Permission Error"),
        ("select getenv('HOME')", "cannot be answered"),
        ("pragma database_list", "not a single statement that only reads"),
        ("load httpfs", "not a single statement that only reads"),
        ("select * from read_csv('http://127.0.0.1:9/x.csv')", "cannot be answered"),
        ("select * from read_parquet('s3://bucket/x.parquet')", "cannot be answered"),
        ("select * from 'http://127.0.0.1:9/x.parquet'", "cannot be answered"),
        ("select * from read_json('https://127.0.0.1:9/x.json')", "cannot be answered"),
        ("select * from read_blob('/proc/self/environ')", "cannot be answered: Permission Error"),
    ],
)
def test_what_is_no_question_to_the_run_is_refused(run, text, says):
    with pytest.raises(UsageError, match=says):
        query(run, text)


def test_explain_analyze_writes_nothing_into_the_run(run):
    target = run.path / "new.parquet"
    with pytest.raises(UsageError, match="not a single statement that only reads"):
        query(run, f"EXPLAIN ANALYZE COPY (SELECT 1) TO '{target}'".replace("it's", "it''s"))
    assert not target.exists()


@pytest.mark.parametrize(
    "text", ["describe kernels", "show tables", "summarize ranks", "explain select 1", "explain analyze select 1"]
)
def test_all_ways_of_reading(run, text):
    assert query(run, text).table.num_rows > 0


def test_sums_are_numbers(run):
    row = query(
        run, """select sum("end" - start) s, sum(1.5) f, sum(9223372036854775807) big, null::hugeint n from kernels"""
    ).table
    assert row.to_pylist() == [{"s": 41, "f": 4.5, "big": 3 * 9223372036854775807, "n": None}]
    assert type(row.to_pylist()[0]["s"]) is int


@pytest.mark.parametrize(
    "name", ["<img src=x onerror=alert(1)>", "two\nlines\x1b[31m", '=cmd()|a, "b"', "ünï ✓", "'; drop table ranks"]
)
def test_names_are_text_and_nothing_else(tmp_path, name):
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 10, name)]}})
    answer = query(run, "select name from kernels")
    assert json.loads(to_json("sql", answer, answer.table, run.facts()))["rows"] == [{"name": name}]
    shown = to_text(answer, answer.table).splitlines()[2]
    assert shown.isprintable()
    assert len(to_text(answer, answer.table).splitlines()) == 3
    assert "<img" not in to_markdown(answer, answer.table)
    assert list(csv.reader(io.StringIO(to_csv(answer.table)))) == [["name"], [name]]
