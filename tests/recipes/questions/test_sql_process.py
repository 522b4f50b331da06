"""Queries in a process with limits: what they answer, and that the process which asked goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.making import kernel, make_run

from alltrace.recipes.questions.sql import Limits, query
from alltrace.recipes.questions.sql_process import MEMORY_VARIABLE, limited_query, memory_bytes
from alltrace.trace.errors import UsageError

LIMITS = Limits(60.0, 512 << 20, 100)  # seconds that are not needed but on a busy machine


@pytest.fixture
def run(tmp_path):
    return make_run(
        tmp_path / "a [run]", {0: {"kernels": [kernel(0, 10), kernel(20, 50, "b")]}, 1: {"kernels": [kernel(5, 6)]}}
    )


@pytest.mark.parametrize(
    "text",
    ['select rank, name, start, "end" - start wait_ns from kernels order by all', "select rank from collectives"],
)
def test_the_answer_is_that_of_the_query(run, text):
    assert limited_query(run, text, LIMITS) == query(run, text, LIMITS)


def test_what_is_refused_is_refused_as_by_the_query(run):
    for text in ("select 1; select 2", "select nothing from kernels", "select * from read_text('/etc/hostname')"):
        with pytest.raises(UsageError) as expected:
            query(run, text, LIMITS)
        with pytest.raises(UsageError) as found:
            limited_query(run, text, LIMITS)
        assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(
    "text",
    [
        "select list_sum(range(2000000000))",
        "select repeat('x', 3000000000)",
        "select list(a.range) from range(30000000) a, range(50) b",
        "select length(repeat('ab', 500000000)) + length(repeat('cd', 900000000))",
    ],
)
def test_memory_is_bounded(run, text):
    with pytest.raises(UsageError, match="memory"):
        limited_query(run, text, LIMITS)


def test_time_is_bounded(run):
    begun = time.monotonic()
    text = "select count(*) from range(100000000000) a where regexp_matches(a.range::varchar, '(1+1+)+2')"
    with pytest.raises(UsageError, match=r"longer than 1 s"):
        limited_query(run, text, Limits(1.0, 512 << 20, 100))
    assert time.monotonic() - begun < 20


def test_one_who_no_longer_waits_ends_it(run):
    class GoneError(Exception):
        pass

    def children():
        return {
            int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()
        }

    started = set()

    def gone():
        started.update(children() - before)
        raise GoneError

    before = children()
    with pytest.raises(GoneError):
        limited_query(run, "select 1", LIMITS, gone)
    assert started
    assert not started & children()


def test_answers_of_too_many_bytes_are_refused(run):
    with pytest.raises(UsageError, match="select less"):
        limited_query(run, "select repeat('x', 4000000) from range(90)", Limits(10.0, 1 << 30, 100))


def test_the_memory_is_a_setting(monkeypatch):
    monkeypatch.setenv(MEMORY_VARIABLE, "5")
    assert memory_bytes() == 5 << 30
    for wrong in ("1", "x", "-3", "2.5", "٣"):
        monkeypatch.setenv(MEMORY_VARIABLE, wrong)
        with pytest.raises(UsageError, match="2 or more"):
            memory_bytes()
