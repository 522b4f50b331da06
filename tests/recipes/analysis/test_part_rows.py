from __future__ import annotations

import pyarrow as pa

from alltrace.recipes.analysis.sql_engine import PartRows, run_statement
from alltrace.recipes.part import Part

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
