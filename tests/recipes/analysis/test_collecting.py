"""The distribution of rows that arrive in pieces equals that of all rows at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from alltrace.recipes.analysis.collecting import Growing, in_pieces, whole_columns


def test_a_rank_that_holds_tables_is_asked_for_a_whole_one():
    class Held:
        def table(self, name, columns):
            return (name, tuple(columns))

    assert list(in_pieces(Held(), "api", ["start"])) == [("api", ("start",))]


@pytest.mark.parametrize("foreseen", [0, 2, 3, 100])
def test_rows_are_added_whatever_was_foreseen(foreseen):
    growing = Growing(2, foreseen)
    for part in ([1], [], [2, 3], list(range(4, 40))):
        growing.add(np.array(part, np.int64), -np.array(part, np.int64))
    assert [c.tolist() for c in growing.columns()] == [list(range(1, 40)), list(range(-1, -40, -1))]


@pytest.mark.parametrize("rows", [0, 3, 10])
def test_whole_columns_of_tables_one_after_the_other(rows):
    class Read:
        record = type("Record", (), {"rows": {"kernels": rows}})()

        def batches(self, table, columns, rows, *, lengths):
            numbers = {"kernels": [[1, None], [3]], "copies": [[None, 5]]}[table]
            for part in numbers:
                yield pa.table({name: pa.array(part, pa.int32() if name == "process" else pa.int64()) for name in columns})

    start, process = whole_columns(Read(), ("kernels", "copies"), {"start": 0, "process": -1})
    assert start.tolist() == [1, 0, 3, 0, 5]
    assert process.tolist() == [1, -1, 3, -1, 5]
    assert process.dtype == np.int64
