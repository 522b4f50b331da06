from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from alltrace.nvidia.cells import Cell, round_half_up, round_printed, shares
from alltrace.nvidia.kernel_names import launch_dims
from alltrace.nvidia.report import Report


def test_cells_are_rounded_aligned_and_named_with_units():
    assert round_half_up(np.array([1.25, 0.25, 3.75, -1.25, 2.0])).tolist() == [1.3, 0.3, 3.8, -1.3, 2.0]
    values = np.array([500, 1500, 2500, 12_345_500, 499, 501, 0, 30_720_000]) / 1e6
    printed = [f"{v:.3f}" for v in round_printed(values, 3)]
    assert printed == [f"{v:.3f}" for v in values]
    assert printed == ["0.001", "0.002", "0.003", "12.345", "0.000", "0.001", "0.000", "30.720"]
    cells = [
        Cell("Avg", "mean_time", ""),
        Cell("Bytes", "size", ""),
        Cell("Time", "share", ""),
        Cell("Name", "text", ""),
    ]
    assert [c.header for c in cells] == ["Avg (ns)", "Bytes (MB)", "Time (%)", "Name"]
    assert [c.answer_column().unit for c in cells] == ["ns", "MB", "%", None]
    assert [(c.field().metadata or {}).get(b"decimals") for c in cells] == [b"1", b"3", b"1", None]
    x, y, z = pa.array([4, 12345, None], pa.int32()), pa.array([1, 2, 1], pa.int32()), pa.array([1, 3, 1], pa.int32())
    assert launch_dims(x, y, z).to_pylist() == ["   4    1    1", "12345    2    3", None]
    totals = pa.chunked_array([pa.array([30, 10, 0])])
    assert shares(totals).to_pylist() == [75.0, 25.0, 0.0]
    assert shares(totals, pa.chunked_array([pa.array([0, 0, 1])])).to_pylist() == [
        75.0,
        25.0,
        None,
    ]  # of no time, as nsys
    assert shares(pa.chunked_array([pa.array([0])])).to_pylist() == [None]


class Small(Report):
    """A report of two columns."""

    name = "small"
    title = "Small"
    cells = (Cell("Total Time", "time", "t"), Cell("Size", "size", "s"))

    def map(self, rank: object, options: object) -> object:
        raise NotImplementedError

    def reduce(self, parts: object, run: object, options: object) -> object:
        raise NotImplementedError


def test_answers_keep_nulls_large_totals_and_defaults():
    answer = Small().answer({"Total Time": pa.array([1, None]), "Size": pa.array([1234, None])}, {})
    assert answer.table.to_pydict() == {"Total Time (ns)": [1, None], "Size (MB)": [0.001, None]}
    assert [c.name for c in answer.columns] == answer.table.column_names
    total = pa.array([2**64], pa.decimal128(38, 0))
    answer = Small().answer({"Total Time": total, "Size": pa.array([0])}, {})
    assert int(answer.table.column(0)[0].as_py()) == 2**64
    small = Small()
    assert small.with_defaults({"by_rank": True}).options[0].default is True
    assert small.options[0].default is False
    with pytest.raises(KeyError):
        small.answer({}, {})
