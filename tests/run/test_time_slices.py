from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from tests.making import kernel, make_run

from alltrace.run import row_groups
from alltrace.run.time_slices import PieceRoom, TimeSlices

TABLES = {"api": ("start", "end", "correlation"), "kernels": ("start", "end", "correlation")}


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch):
    monkeypatch.setattr(row_groups, "ROW_GROUP_ROWS", 8)
    monkeypatch.setattr(row_groups, "_SMALL_ROWS", 2)


def slices(folder, ids, room_bytes=1 << 20):
    """Calls at 0, 10, 20, ... with these ids, and a kernel of each id, which runs when all calls are over."""
    api = [{"start": 10 * n, "end": 10 * n + 1, "correlation": i} for n, i in enumerate(ids)]
    kernels = [kernel(10_000 + 10 * n, 10_005 + 10 * n, "k", correlation=i) for n, i in enumerate(ids)]
    return TimeSlices(
        make_run(folder / "run", {0: {"api": api, "kernels": kernels}}).rank(0),
        TABLES,
        PieceRoom(room_bytes),
        ("kernels",),
    )


def test_work_comes_with_its_calls(tmp_path):
    found = slices(tmp_path, range(100))
    span = found.between(200, 300)
    assert span.table("api", ["start"]).column("start").to_pylist() == list(range(200, 300, 10))
    assert span.table("kernels", ["correlation", "end"]).to_pylist() == [
        {"correlation": n, "end": 10_005 + 10 * n} for n in range(20, 30)
    ]
    assert found.between(2000, None).table("kernels", ["start"]).num_rows == 0


@pytest.mark.parametrize("room_bytes", [0, 1 << 20])
def test_all_spans_together_have_all_work(tmp_path, room_bytes):
    ids = np.random.default_rng(0).permutation(100).tolist()
    found = slices(tmp_path, [None if i % 7 == 0 else i for i in ids], room_bytes)
    bounds = [None, 100, 350, 600, None]
    seen = set()
    for since, until in pairwise(bounds):
        span = found.between(since, until)
        called = {i for i in span.table("api", ["correlation"]).column(0).to_pylist() if i is not None}
        work = set(span.table("kernels", ["correlation"]).column(0).to_pylist())
        assert called <= work
        seen |= called
    assert seen == {i for i in range(100) if i % 7}


def test_how_much_work_is_looked_through(tmp_path):
    ordered = slices(tmp_path / "ordered", range(100))
    assert ordered.most_looked_up() == 8
    mixed = slices(tmp_path / "mixed", [n * 37 % 100 for n in range(100)])
    assert mixed.most_looked_up() > 80
    assert slices(tmp_path / "none", []).most_looked_up() == 0


def test_calls_stand_for_the_rows_that_come_of_them(tmp_path):
    _, rows = slices(tmp_path, range(100)).sampled()
    assert int(rows.sum()) == 100, "the kernels are not counted beside their calls"
