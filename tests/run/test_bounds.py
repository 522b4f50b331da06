"""Numbers that no job reaches: a report with such a time or sum is refused in a sentence, a value that is not a number
is noted."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.readers.base import ReportWarning
from alltrace.run.bounds import MOST_SUM, MOST_TIME_NS, MOST_VALUE, Bounds
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run
from alltrace.trace.errors import InputError
from alltrace.trace.schema import TABLES


def batch(table, **columns):
    schema = TABLES[table].arrow_schema()
    count = len(next(iter(columns.values())))
    arrays = [pa.array(columns.get(f.name, [None] * count), f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


TIMES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-100, 100),
    st.sampled_from([MOST_TIME_NS, -MOST_TIME_NS, MOST_TIME_NS + 1]),
)
SIZES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 9), st.sampled_from([MOST_SUM // 2, -MOST_SUM // 2])
)

LEFT_OUT = "values of `gpu_metrics` left out because they are not finite or are 1e100 or more"


@given(st.lists(st.lists(st.tuples(TIMES, TIMES, SIZES), min_size=1, max_size=4), max_size=4))
def test_what_passes_can_be_added_up(batches):
    bounds = Bounds("r.sqlite", TABLES["copies"])
    rows = [row for part in batches for row in part]
    reachable = [
        all(t is None or abs(t) <= MOST_TIME_NS for t in (start, end))
        and (None in (start, end) or abs(end - start) <= 2**55)
        for start, end, _ in rows
    ]
    wanted = [
        (s, e, n if n is not None and abs(n) <= 2**50 else None)
        for (s, e, n), ok in zip(rows, reachable, strict=True)
        if ok
    ]
    passed = []
    for part in batches:
        start, end, size = (list(column) for column in zip(*part, strict=True))
        checked = bounds.checked(batch("copies", start=start, end=end, bytes=size))
        passed += zip(*(checked.column(c).to_pylist() for c in ("start", "end", "bytes")), strict=True)
    assert passed == wanted
    assert sum(b.num_rows for b in bounds.unreachable) == len(rows) - len(wanted)
    if 2 * len(wanted) < len(rows):
        with pytest.raises(InputError, match=r"^r.sqlite: table 'copies': most rows have a time that cannot be"):
            bounds.warnings()
    else:
        texts = {w.text.partition(" of")[0]: w.number for w in bounds.warnings() if "without an end" not in w.text}
        sizes = sum(n is not None and abs(n) > 2**50 for (*_, n), ok in zip(rows, reachable, strict=True) if ok)
        assert texts == {k: n for k, n in (("rows", len(rows) - len(wanted)), ("sizes", sizes)) if n}


@given(st.lists(st.one_of(st.none(), st.floats()), min_size=1, max_size=8))
def test_values_that_are_no_numbers_are_left_out_and_counted(values):
    bounds = Bounds("r.sqlite", TABLES["gpu_metrics"])
    kept = bounds.checked(batch("gpu_metrics", time=list(range(len(values))), value=values)).column("value").to_pylist()
    good = [None if v is None or not math.isfinite(v) or abs(v) >= MOST_VALUE else v for v in values]
    assert kept == good
    lost = good.count(None) - values.count(None)
    assert bounds.warnings() == ((ReportWarning(LEFT_OUT, ("gpu_metrics",), lost),) if lost else ())


@given(st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=8))
def test_rows_without_an_end_are_counted(times):
    """Of a range that has no end it is not known that anything is wrong."""
    found = {}
    for table in ("kernels", "ranges"):
        bounds = Bounds("r.sqlite", TABLES[table])
        for part in (times[:3], times[3:]):
            columns = {"start": [s for s, _ in part], "end": [e for _, e in part]}
            bounds.checked(batch(table, **columns))
        found[table] = {w.text.partition("` ")[2][:12]: w.number for w in bounds.warnings()}
    endless = sum(e is None for _, e in times)
    assert found["kernels"] == ({"without an e": endless} if endless else {})
    assert found["ranges"] == {}


def test_columns_without_any_value_are_told():
    bounds = Bounds("r.sqlite", TABLES["copies"])
    bounds.checked(batch("copies", start=[1], end=[2], bytes=[None]))
    bounds.checked(batch("copies", start=[1], end=[2], bytes=[4]))
    lacking = bounds.lacking()
    assert "correlation" in lacking
    assert not {"start", "end", "bytes"} & set(lacking)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_run("tiny", folder, ideal=True)
    return folder / "tiny_rank0.sqlite"


def changed(report, path, *statements):
    path.write_bytes(report.read_bytes())
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)
    return path


@pytest.mark.parametrize(
    "change", ["end = start + 4611686018427387904", "start = -9223372036854775808", "end = 9223372036854775807"]
)
def test_a_report_whose_times_cannot_be_is_refused(report, tmp_path, change):
    path = changed(report, tmp_path / "bad.sqlite", f"UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET {change}")
    text = (
        rf"^{path}: table 'api': most rows have a time that cannot be, such as .*; expected .*; record or export it"
        r" again"
    )
    with pytest.raises(InputError, match=text):
        import_reports([str(path)], tmp_path / "run", jobs=1)
    assert not (tmp_path / "run").exists()
    other = import_reports([str(path)], tmp_path / "run", tables=["osrt"], jobs=1)
    assert other.ranks[0].rows["osrt"]


TIME = "with a time more than 36 years away"


@pytest.mark.parametrize(
    ("change", "table", "text"),
    [
        (
            "CUPTI_ACTIVITY_KIND_KERNEL SET end = 9223372036854775807 WHERE rowid = 3",
            "kernels",
            f"rows of `kernels` {TIME}",
        ),
        (
            "CUPTI_ACTIVITY_KIND_KERNEL SET start = -9223372036854775808 WHERE rowid = 3",
            "kernels",
            f"rows of `kernels` {TIME}",
        ),
        (
            "CUPTI_ACTIVITY_KIND_RUNTIME SET end = start + 288230376151711744 WHERE rowid = 3",
            "api",
            f"rows of `api` {TIME}",
        ),
        (
            "CUPTI_ACTIVITY_KIND_MEMCPY SET bytes = 9223372036854775807 WHERE rowid = 1",
            "copies",
            "sizes of `copies` left out",
        ),
    ],
)
def test_one_impossible_number_leaves_out_its_row_or_itself(report, tmp_path, change, table, text):
    whole = import_reports([str(report)], tmp_path / "whole", jobs=1).ranks[0]
    path = changed(report, tmp_path / "bad.sqlite", f"UPDATE {change}")
    rank = import_reports([str(path)], tmp_path / "run", jobs=1).ranks[0]
    (warning,) = (w for w in rank.row_warnings["0"] if w.text.startswith(text))
    assert (warning.tables, warning.number) == ((table,), 1)
    assert rank.rows[table] == whole.rows[table] - (table != "copies")
    assert (rank.start_ns, rank.end_ns) == (whole.start_ns, whole.end_ns)


def test_metrics_that_are_no_numbers_are_noted_once(report, tmp_path):
    path = changed(
        report,
        tmp_path / "metrics.sqlite",
        "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value REAL)",
        "INSERT INTO GPU_METRICS VALUES (1, 0, 7, 9e999), (2, 0, 7, -9e999), (3, 0, 7, NULL), (4, 0, 7, 1e300), (5, 0,"
        " 7, 2.5)",
    )
    (rank,) = import_reports([str(path)], tmp_path / "run", jobs=1).ranks
    assert rank.row_warnings == {"0": (ReportWarning(LEFT_OUT, ("gpu_metrics",), 3),)}
    values = Run(tmp_path / "run").table("gpu_metrics").order("time").to_arrow_table().column("value").to_pylist()
    assert values == [None, None, None, None, 2.5]


def test_a_run_that_was_there_stays_where_other_reports_are_refused(report, tmp_path):
    import_reports([str(report)], tmp_path / "run", jobs=1)
    (tmp_path / "run" / "notes.json").write_text("{}")
    path = changed(
        report, tmp_path / "bad.sqlite", "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = -9223372036854775808"
    )
    with pytest.raises(InputError, match="most rows have a time that cannot be"):
        import_reports([str(path)], tmp_path / "run", jobs=1)
    assert (tmp_path / "run" / "notes.json").exists()
