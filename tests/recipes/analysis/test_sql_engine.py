from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from alltrace.recipes.analysis import sql_engine
from alltrace.recipes.analysis.sql_engine import PartRows, run_statement
from alltrace.recipes.part import Part
from alltrace.trace.errors import AlltraceError

NAMES = pa.table({"id": [1, 2], "value": ["one", "cudaLaunchKernel_v7000"]})


def test_texts_of_ids() -> None:
    found = run_statement(
        "SELECT text_of(id) AS t FROM ids ORDER BY t", {"ids": pa.table({"id": [1, None, 7]}), "names": NAMES}
    )
    assert found.column("t").to_pylist() == ["one", None, None]


def test_versions_of_calls_go() -> None:
    found = run_statement("SELECT call_name(value) AS t FROM names ORDER BY id", {"names": NAMES})
    assert found.column("t").to_pylist() == ["one", "cudaLaunchKernel"]


def test_parameters_are_values_and_never_text_of_the_statement() -> None:
    asked = "SELECT count(*) AS n FROM names WHERE value = $wanted"
    assert run_statement(asked, {"names": NAMES}, {"wanted": "one", "other": 3}).column("n").to_pylist() == [1]
    assert run_statement(asked, {"names": NAMES}, {"wanted": "' OR 1 = 1 --"}).column("n").to_pylist() == [0]


def test_whole_numbers_of_128_bits_are_int64_where_they_fit() -> None:
    found = run_statement("SELECT 1::HUGEINT AS a, (2::HUGEINT ** 100)::HUGEINT AS b", {})
    assert found.schema.field("a").type == pa.int64()
    assert found.to_pylist() == [{"a": 1, "b": 2**100}]


def test_a_sum_beyond_128_bits_is_refused_in_a_sentence() -> None:
    with pytest.raises(AlltraceError, match="too large to be summed exactly"):
        run_statement("SELECT sum(i) FROM (VALUES (170141183460469231731687303715884105727::HUGEINT), (1)) t(i)", {})


def test_few_rows_take_one_thread_and_many_as_many_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    statement = "SELECT current_setting('threads') AS n, (SELECT count(*) FROM events) AS events"
    usual = sql_engine._Engine().database.sql("SELECT current_setting('threads')").fetchall()[0][0]
    few = pa.table({"a": [1, 2]})
    parts = PartRows([Part(0, few)])  # how many rows they have is not known
    for most, table, threads in ((3, few, 1), (2, few, usual), (3, few, 1), (3, parts, usual)):
        monkeypatch.setattr(sql_engine, "_MANY_ROWS", most)
        assert run_statement(statement, {"events": table}).to_pylist() == [{"n": threads, "events": 2}]


def test_memory_and_disk_that_do_not_suffice_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_engine, "_LIMITS", ("SET memory_limit = '8MiB'",) * 3)
    engine = sql_engine._Engine()
    engine.database.execute("SET max_temp_directory_size = '0KiB'")
    monkeypatch.setattr(sql_engine, "_engine", lambda _: engine)
    with pytest.raises(AlltraceError, match=r"do not suffice for this query .*set TMPDIR"):
        run_statement("SELECT a, count(*) FROM (SELECT hash(range) AS a FROM range(3000000)) GROUP BY a ORDER BY a", {})


def test_what_cannot_go_to_disk_gets_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sql_engine, "_LIMITS", ("SET memory_limit = '8MiB'", "SET memory_limit = '1GiB'", "SELECT no_such_limit")
    )
    engine = sql_engine._Engine()
    monkeypatch.setattr(sql_engine, "_engine", lambda _: engine)
    found = run_statement("SELECT median(range) AS m FROM range(3000001)", {})
    assert found.column("m").to_pylist() == [1_500_000.0]
    run_statement("SELECT 1", {})  # the next one begins with little again
    assert engine.database.execute("SELECT current_setting('memory_limit')").fetchone() == ("8.0 MiB",)


def test_a_statement_that_spills_is_exact_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_engine, "_LIMITS", ("SET memory_limit = '64MiB'", "SELECT no_such_limit"))
    engine = sql_engine._Engine()
    monkeypatch.setattr(sql_engine, "_engine", lambda _: engine)
    found = run_statement(
        "SELECT sum(n) AS n FROM (SELECT hash(range) AS a, count(*) AS n FROM range(2000000) GROUP BY a)", {}
    )
    assert found.column("n").to_pylist() == [2_000_000]
    folder = Path(engine.folder)
    assert folder.is_dir()
    engine.remove()
    assert not folder.exists()


def test_nothing_else_is_within_reach(tmp_path: object) -> None:
    import duckdb

    outside = pa.table({"a": [1]})
    assert outside.num_rows
    with pytest.raises(duckdb.Error):
        run_statement("SELECT * FROM outside", {})


PARTS = [
    Part(0, pa.table({"name": pa.array([1, 2], pa.int32()), "word": pa.array(["a", None]).dictionary_encode()})),
    Part(7, pa.table({"word": pa.array(["b"]).dictionary_encode(), "name": pa.array([1 << 40])})),
    Part(9, pa.table({"rank": pa.array([8], pa.int64()), "name": pa.nulls(1), "word": pa.nulls(1)})),
]
ROWS = [(0, 1, "a"), (0, 2, None), (7, 1 << 40, "b"), (8, None, None)]


class Watched(Part):
    """Counts how often its rows were asked for."""

    looks = 0

    def batches(self):
        self.looks += 1
        return super().batches()


def test_a_statement_scans_the_rows_of_all_parts_as_often_as_it_has_them():
    parts = [Watched(p.rank, p.table) for p in PARTS]
    statement = "SELECT * FROM parts WHERE name IN (SELECT max(name) FROM parts) OR word IS NULL ORDER BY rank, name"
    found = run_statement(statement, {"parts": PartRows(parts)})
    assert [tuple(row[c] for c in ("rank", "name", "word")) for row in found.to_pylist()] == ROWS[1:]
    assert [p.looks for p in parts] == [2, 2, 2]


def test_columns_have_the_type_that_holds_those_of_all_parts():
    rows = PartRows(PARTS)
    assert {f.name: f.type for f in rows.schema} == {"rank": pa.int64(), "name": pa.int64(), "word": pa.string()}
    table = pa.Table.from_batches(rows.batches(), rows.schema)
    assert [tuple(row[c] for c in ("rank", "name", "word")) for row in table.to_pylist()] == ROWS
