"""Names, ids and ranges as a hostile or broken program writes them: each answer is what plain Python works out from the
rows."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.making import kernel, make_run

from alltrace.recipes.execution.ask import ask, resolve_options
from alltrace.recipes.questions.sql import query
from alltrace.recipes.registry import find
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.trace.errors import UsageError

NAMES = (
    "'; DROP TABLE parts; --", 'a "quoted" name', "$name", "$1", "${HOME}", "{rank}", "{0}", "%s%n%d%", "a\x00b",
    "a\x00c", "\x00", "--", "/* */", "x'); SELECT 1; (", "\u2028", "\n", "\r\n", "\t", "\\", "?", "names", "text_of(1)",
    "NULL", "nan", "a", "A", "é", "e\u0301", "\ufeff", "\x1b[31m", "\u202eesrever", "*", "a@b/0", "b" * 200_000,
    b"caf\xe9", b"caf\xe8", b"\xed\xa0\x80", b"caf\\xe9 is text",
)  # fmt: skip
"""Texts, and bytes that are not UTF-8; of the last two that differ in a bad byte, each is a name of its own."""


def text(name):
    return name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report with three kernels, ranges and calls of each name; what each kernel took, and each range and call."""
    folder = tmp_path_factory.mktemp("hostile")
    path = folder / "it's $a {report}; --.sqlite"
    thread, process = (1 << 48) | (100 << 24) | 100, (1 << 48) | (100 << 24)
    took = {"kernels": Counter(), "ranges": Counter(), "api": Counter()}
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        db.execute("CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT)")
        db.execute("INSERT INTO PROCESSES VALUES (?, 100, ?)", (process, "'; ${x}\x00\n"))
        kernels = (
            "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER"
        )
        db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({kernels}, demangledName INTEGER, shortName INTEGER)")
        calls = "start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER"
        db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME ({calls})")
        ranges = "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, domainId INTEGER"
        db.execute(f"CREATE TABLE NVTX_EVENTS ({ranges})")
        for n, name in enumerate(NAMES):
            cast = "?" if isinstance(name, str) else "CAST(? AS TEXT)"
            db.execute(f"INSERT INTO StringIds VALUES (?, {cast})", (n, name))
            for again in range(3):
                start, number = 10_000 * n + 1_000 * again, 3 * n + again
                lengths = {"kernels": 100 + number, "ranges": 900, "api": 10 + n}
                for table, length in lengths.items():
                    took[table][text(name)] += length
                row = (start + 200, start + 200 + lengths["kernels"], 0, 7, number, process, n, n)
                db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
                row = (start + 20, start + 20 + lengths["api"], thread, number, n)
                db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", row)
                row = (start, start + 900, 59, name, thread, 0)
                db.execute(f"INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, {cast}, ?, ?)", row)
    import_reports([str(path)], folder / "run", jobs=1)
    return Run(folder / "run"), took


@pytest.mark.parametrize(
    ("name", "table", "label", "total"),
    [
        ("stats:cuda_gpu_kern_sum", "kernels", "Name", "Total Time (ns)"),
        ("stats:cuda_api_sum", "api", "Name", "Total Time (ns)"),
        ("stats:nvtx_sum", "ranges", "Range", "Total Time (ns)"),
        ("stats:nvtx_gpu_proj_sum", "kernels", "Range", "Total Proj Time (ns)"),
        ("cuda_gpu_kern_sum", "kernels", "Name", "Total Time"),
        ("nvtx_sum", "ranges", "Text", "Sum"),
        ("kernels", "kernels", "name", "total_ns"),
    ],
)
def test_every_name_is_a_row_of_its_own(report, name, table, label, total):
    run, took = report
    found = ask(run, name).table.to_pylist()
    assert Counter({row[label].removeprefix(":"): int(row[total]) for row in found}) == took[table]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES[:-5], ids=lambda n: ascii(n)[:20])
def test_a_name_in_an_option_and_in_sql_is_text_and_nothing_else(report, name):
    run, took = report
    quoted = name.replace("'", "''")
    if "\x00" not in name:
        text_ = f"""select sum("end" - start) as s from kernels where name = '{quoted}'"""
        assert query(run, text_).table.to_pylist() == [{"s": took["kernels"][name]}]
    spelled = "".join(f"\\{c}" if c in "@/\\" else c for c in name)
    kept = ask(run, "cuda_gpu_kern_sum", {"filter_nvtx": spelled}).table.to_pylist()
    assert {r["Name"]: int(r["Total Time"]) for r in kept} == {name: took["kernels"][name]}
    (row,) = ask(run, "cuda_gpu_kern_sum", {"filter_nvtx": f"{spelled}/2"}).table.to_pylist()
    assert row["Total Time"] == 100 + 3 * NAMES.index(name) + 2


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [n for n in NAMES[:-5] if "\x00" not in n], ids=lambda n: ascii(n)[:20])
def test_a_name_in_a_statement_that_is_shown_is_text(report, name):
    run, _ = report
    recipe = find("kernels")
    with pytest.raises(UsageError):
        query(run, f"{name}; DROP TABLE ranks")
    shown = recipe.shown_statement(resolve_options(recipe, {"kind": name}))
    assert query(run, shown).table.num_rows == 0


@pytest.mark.parametrize(
    ("recipe", "option"), [("kernels", "kind"), ("cuda_gpu_kern_hist", "name"), ("nccl_size_spread", "op")]
)
def test_an_option_that_is_no_utf8_is_a_sentence(report, recipe, option):
    with pytest.raises(
        UsageError, match=rf"^--{option} of {recipe} is '\\udcff', with bytes that are not UTF-8; expected text$"
    ):
        ask(report[0], recipe, {option: "\udcff"})


@pytest.mark.parametrize("value", [(1 << 63) - 1, -(1 << 63), (1 << 62) + 1])
def test_a_filter_by_a_time_that_cannot_be_is_a_sentence(report, value):
    for recipe in ("cuda_gpu_time_util_map", "cuda_gpu_kern_sum"):
        with pytest.raises(
            UsageError, match=rf"^--start of {recipe} is {value}; expected -?4611686018427387904 or (more|less)$"
        ):
            ask(report[0], recipe, {"start": value})
        assert ask(report[0], recipe, {"filter_time": "999999999999999999h/"}).table is not None


TIME = st.integers(0, 60)
CALLS = st.lists(st.tuples(TIME, st.integers(1, 9), st.integers(1, 4), st.integers(0, 1)), max_size=8)
OPS = st.lists(st.tuples(TIME, st.integers(1, 9), st.integers(1, 5)), max_size=8)
RANGES = st.lists(
    st.tuples(
        TIME,
        st.one_of(st.none(), st.integers(0, 30)),
        st.sampled_from("ab"),
        st.integers(0, 1),
        st.sampled_from(("here", "away")),
    ),
    max_size=6,
)
"""Start, duration (None: it never ended), name, thread, and whether it ended on its thread."""
THREADS = [{"thread": n, "process": 0, "tid": 4001 + n, "name": f"t{n}"} for n in (0, 1)]


def made(tmp_path_factory, calls, ops, ranges=()):
    rows = {
        "api": [
            {"start": s, "end": s + d, "correlation": c, "name": "cudaLaunchKernel", "thread": t, "kind": "runtime"}
            for s, d, c, t in calls
        ],
        "kernels": [kernel(100 + s, 100 + s + d, "k", correlation=c) for s, d, c in ops],
        "ranges": [
            {
                "start": s,
                "end": None if d is None else s + d,
                "name": n,
                "thread": t,
                "kind": "pushpop" if ended == "here" else "startend",
                "end_thread": None if ended == "here" else 1 - t,
            }
            for s, d, n, t, ended in ranges
        ],
        "threads": THREADS,
    }
    return make_run(tmp_path_factory.mktemp("made") / "run", {0: rows})


@pytest.mark.slow
@settings(max_examples=25)
@given(calls=CALLS, ops=OPS)
def test_several_calls_and_kernels_of_one_correlation_id(tmp_path_factory, calls, ops):
    """Each kernel with each call of its id, once; a kernel without a call is in the sum of kernels and in no pair."""
    run = made(tmp_path_factory, calls, ops)
    pairs = [(s, d, 100 + at, took) for s, d, c, _ in calls for at, took, correlation in ops if c == correlation]
    found = ask(run, "stats:cuda_kern_exec_trace").table.to_pylist()
    rows = [(r["API Start (ns)"], r["API Dur (ns)"], r["Kernel Start (ns)"], r["Kernel Dur (ns)"]) for r in found]
    assert sorted(rows) == sorted(pairs)
    counted = ask(run, "stats:cuda_kern_exec_sum").table.to_pylist()
    assert sum(r["Count"] for r in counted) == len(pairs)
    (kernels,) = ask(run, "stats:cuda_gpu_kern_sum").table.to_pylist() or [{"Instances": 0, "Total Time (ns)": 0}]
    assert (kernels["Instances"], kernels["Total Time (ns)"]) == (len(ops), sum(d for _, d, _ in ops))


@pytest.mark.slow
@settings(max_examples=25)
@given(calls=CALLS, ops=OPS, ranges=RANGES)
def test_ranges_that_cross_or_never_end(tmp_path_factory, calls, ops, ranges):
    """What a range takes, and what ran on the GPU of the calls that lie in it, whatever other ranges do."""
    run = made(tmp_path_factory, calls, ops, ranges)
    latest = max((max(s, s if d is None else s + d) for s, d, *_ in ranges), default=0)
    ended = [(s, latest if d is None else s + d, n, t, where) for s, d, n, t, where in ranges]
    total = Counter()
    for start, end, name, *_ in ended:
        total[name] += end - start
    found = Counter()
    for row in ask(run, "stats:nvtx_sum").table.to_pylist():
        found[row["Range"].removeprefix(":")] += row["Total Time (ns)"]
    assert found == total
    projected = defaultdict(list)
    for start, end, name, thread, where in ended:
        inside = {c for s, d, c, t in calls if t == thread and start <= s and s + d <= end}
        work = [(100 + s, 100 + s + d) for s, d, c in ops if c in inside]
        if work and where == "here":  # whose work one that ended elsewhere is around, nobody knows
            projected[name].append((min(s for s, _ in work), max(e for _, e in work) - min(s for s, _ in work)))
    trace = defaultdict(list)
    for row in ask(run, "stats:nvtx_gpu_proj_trace").table.to_pylist():
        if row["Name"] is None:  # work outside of ranges
            continue
        trace[row["Name"]].append((row["Projected Start (ns)"], row["Projected Duration (ns)"]))
    assert {n: sorted(v) for n, v in trace.items()} == {n: sorted(v) for n, v in projected.items()}
