"""Step times from the files alone, on generated files with known truth."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.together import together

from benchmarks.raw_steps import numbered_step_ns, period_ns, raw_step_ns


@given(
    st.integers(0, 10**15), st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 10**6)), min_size=3, max_size=20)
)
def test_the_mean_goes_from_the_first_start_to_the_last_end(first, steps):
    ranges, at = [], first
    for number, (duration, gap) in enumerate(steps):
        ranges.append((f"step {number + 7}", at, at + duration, 1))
        at += duration + gap
    expected = (ranges[-1][2] - first) / len(steps)
    assert numbered_step_ns(reversed(ranges)) == expected


def named(stem, numbers, duration=100, thread=1):
    return [(f"{stem}{n}", 1000 * i, 1000 * i + duration, thread) for i, n in enumerate(numbers)]


@together(
    "ranges",
    [
        named("step ", (1, 2)),  # too few
        named("op ", (1, 3, 4)),  # a number is left out
        named("layer ", (1, 2, 1, 2)),
        [("step 1", 0, 50, 1), ("step 2", 40, 90, 1), ("step 3", 80, 99, 1)],  # they overlap
        [("step 1", 0, 50, 1), ("step 2", 60, 90, 2), ("step 3", 100, 120, 3)],  # of several threads
        named("step", ("", "", "")),
        [],
    ],
)
def test_ranges_that_are_no_steps_have_no_time(ranges):
    assert numbered_step_ns(ranges) is None


def test_of_several_families_the_one_that_covers_most_time_is_the_step():
    outer, inner = named("step ", range(5), 900), named("data copy in ", range(5), 30)
    assert numbered_step_ns(inner + outer) == (4000 + 900) / 5


def periodic(names, times, gap=10):
    return [(name, gap * i) for i, name in enumerate(names * times)]


def test_the_period_is_the_time_until_the_names_come_again():
    assert period_ns(periodic("abcab", 6)) == 50
    odd = periodic("abcdefghij" * 4, 10)
    odd[200] = ("z", odd[200][1])  # one launch of its own does not hide the period
    assert period_ns(odd) == 100


@pytest.mark.parametrize("kernels", [[], periodic("abcde", 2), [(n, 10 * n) for n in range(100)]])
def test_kernels_that_do_not_come_again_have_no_period(kernels):
    assert period_ns(kernels) is None


def export(path, ranges=(), kernels=()):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        connection.execute(
            'CREATE TABLE NVTX_EVENTS (start INTEGER, "end" INTEGER, text TEXT, textId INTEGER, globalTid INTEGER)'
        )
        connection.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, globalPid INTEGER, deviceId INTEGER, demangledName"
            " INTEGER)"
        )
        for number, (name, start, end, thread) in enumerate(ranges):
            registered = number % 2  # a text stands in the event, or among the strings
            connection.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)",
                (start, end, None if registered else name, number if registered else None, thread),
            )
            connection.execute("INSERT INTO StringIds VALUES (?, ?)", (number, name))
        for process in (1, 2):
            connection.executemany(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, ?)",
                [(start, process, ord(name)) for name, start in kernels],
            )
    connection.close()


def test_an_export_tells_by_its_ranges_else_by_its_kernels(tmp_path):
    kernels = periodic("abcab", 6)
    export(tmp_path / "ranges.sqlite", [*named("step ", range(5), 900), ("open", 5, None, 1)], kernels)
    export(tmp_path / "kernels.sqlite", [("forward", 0, 5, 1)], kernels)
    export(tmp_path / "nothing.sqlite")
    found = {p.stem: raw_step_ns(p) for p in tmp_path.iterdir()}
    assert found == {"ranges": 980, "kernels": 50, "nothing": None}
    assert raw_step_ns(tmp_path) == (980 + 50) / 2


def test_a_trace_tells_by_the_steps_of_the_profiler_on_the_host(tmp_path):
    steps = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": 100 * n, "dur": 90, "tid": 1}
        for n in range(4)
    ]
    device = [{**step, "cat": "gpu_user_annotation", "ts": step["ts"] + 50, "dur": 95, "tid": 7} for step in steps]
    other = [*device, {"ph": "M", "name": "process_name"}]
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": other + steps}))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps(steps).encode()))
    assert [raw_step_ns(tmp_path / name) for name in ("a.json", "b.json.gz")] == [390_000 / 4] * 2


def test_other_files_have_no_time(tmp_path):
    (tmp_path / "run.nsys-rep").write_bytes(b"\0")
    (tmp_path / "settings.json").write_text('{"steps": 4}')
    assert raw_step_ns(tmp_path) is None
