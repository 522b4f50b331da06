"""What is wrong with the data is a note on every answer that is made from it, and on no other."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing

import pytest
from tests.making import make_run, random_rows
from tests.recipes.test_every_recipe import EVERY, options_of

from alltrace.align.schema import SOURCES
from alltrace.api import open_run
from alltrace.cli.main import main
from alltrace.readers.base import ReportWarning
from alltrace.recipes.execution.ask import ask, resolve_options, wants_alignment
from alltrace.recipes.execution.ask_all import ask_all
from alltrace.recipes.questions.sql import query
from alltrace.recipes.registry import find
from alltrace.synth import write_run
from alltrace.trace.schema import EVENT_TABLES

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"


@pytest.mark.slow
def test_every_recipe_says_it_if_and_only_if_it_reads_the_table(tmp_path, monkeypatch):
    draw = random.Random(5)
    rows = {t: random_rows(t, 12, draw) for t in EVENT_TABLES}
    warnings = [ReportWarning(f"rows of {t} that were lost", (t,), 3) for t in EVENT_TABLES]
    run = make_run(tmp_path, {0: rows, 1: rows}, warnings=warnings)
    questions = [(find(name), options_of(find(name))) for name in EVERY]
    replies = ask_all(run, questions, jobs=1)
    answered = [
        (recipe, given, reply.answer) for (recipe, given), reply in zip(questions, replies, strict=True) if reply.answer
    ]
    assert len(answered) > 80
    monkeypatch.setattr("alltrace.recipes.execution.availability._MOST_NOTES", 99)
    for recipe, given, answer in answered:
        if recipe.name == "info":
            continue
        options = resolve_options(recipe, given)
        read = set(recipe.reads(options)) | (set(SOURCES) if wants_alignment(recipe, run, options) else set())
        expected = {f"rank 0: rows of {t} that were lost: 3" for t in read.intersection(EVENT_TABLES)}
        said = {n for n in answer.notes if "that were lost" in n}
        more = [n for n in answer.notes if "more warnings concern the data used" in n]
        assert said == expected or (said < expected and more), recipe.name


def test_many_warnings_are_cut_short(tmp_path):
    warnings = [ReportWarning(f"kind {n}", ("kernels",)) for n in range(30)]
    run = make_run(tmp_path, {0: {"kernels": random_rows("kernels", 3, random.Random(1))}}, warnings=warnings)
    notes = ask(run, "kernels").notes
    assert [n for n in notes if "kind" in n] == [f"rank 0: kind {n}" for n in range(20)]
    assert "10 more warnings concern the data used; `alltrace info` lists them" in notes


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    write_run("tiny", folder, ideal=True)
    return folder


ENDLESS = "without an end, so their duration is unknown: "
UNTIMED = "that are left out because they have no time: 2"
NO_JOIN = "has a `correlation`, so calls and the GPU work that they launched cannot be joined"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("statement", "reads", "says"),
    [
        (f"UPDATE {KERNELS} SET end = start - 5 WHERE rowid < 4", "kernels", "that end before they start: 3"),
        (f"UPDATE {KERNELS} SET end = NULL WHERE rowid < 3", "kernels", f"{ENDLESS}2"),
        (f"UPDATE {KERNELS} SET start = NULL WHERE rowid < 3", "kernels", UNTIMED),
        (
            f"ALTER TABLE {KERNELS} RENAME COLUMN start TO begin",
            "kernels",
            "has no column start, so none of its rows are",
        ),
        (f"ALTER TABLE {KERNELS} RENAME COLUMN end TO stop", "kernels", ENDLESS),
        (
            "ALTER TABLE NVTX_EVENTS RENAME COLUMN eventType TO kind",
            "ranges",
            "has no column eventType, so none of its rows are",
        ),
        (f"ALTER TABLE {RUNTIME} RENAME COLUMN correlationId TO c", "api", f"no row of `api` {NO_JOIN}"),
        (f"UPDATE {KERNELS} SET correlationId = NULL", "kernels", f"no row of `kernels` {NO_JOIN}"),
    ],
)
def test_damage_of_a_report_is_told_by_what_reads_it(reports, tmp_path, capsys, monkeypatch, statement, reads, says):
    path = tmp_path / "damaged.sqlite"
    path.write_bytes((reports / "tiny_rank0.sqlite").read_bytes())
    with closing(sqlite3.connect(path)) as database, database:
        # as SQLite makes it from a SELECT, a table may have missing values anywhere
        database.execute(f"CREATE TABLE k AS SELECT * FROM {KERNELS}")
        database.execute(f"DROP TABLE {KERNELS}")
        database.execute(f"ALTER TABLE k RENAME TO {KERNELS}")
        database.execute(statement)
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    run = open_run(path)
    about = {"kernels": "stats:cuda_gpu_kern_sum", "api": "stats:cuda_api_sum", "ranges": "stats:nvtx_sum"}
    joins = "correlation" in says
    for table, name in about.items():
        told = [n for n in ask(run, "launches" if joins else name).notes if says in n]
        assert bool(told) == (joins or table == reads), (table, name)
        assert all(n.startswith("rank 0: ") for n in told)
    question = "launches" if joins else about[reads]
    verb = ["stats", question.removeprefix("stats:")] if question.startswith("stats:") else ["recipe", question]
    for form in ("json", "csv", "md", "table"):
        assert main([*verb, str(path), "--format", form]) == 0
        printed = capsys.readouterr()
        assert says in (
            " ".join(json.loads(printed.out)["notes"])
            if form == "json"
            else printed.out.replace("\\", "") + printed.err
        )
    if not joins and "none of its" not in says:
        assert any(says in n for n in query_notes(run, f"SELECT count(*) FROM {reads}"))
        assert not any(says in n for n in query_notes(run, "SELECT count(*) FROM osrt"))


def query_notes(run, text):
    return query(run, text).notes
