"""An alignment cut down to steps keeps for each rank what a search over all rows for that rank finds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from alltrace.recipes.execution import window_alignment
from alltrace.recipes.execution.window import select, window_of


@pytest.mark.parametrize("seed", range(5))
def test_members_and_steps_are_those_of_each_ranks_window(seed):
    draw = np.random.default_rng(seed)
    listed = draw.permutation([(r, s) for r in (0, 1, 3) for s in range(6) if (r, s) != (3, 2)])
    start = listed[:, 1] * 100
    lacking = draw.random(len(start)) < 0.2
    steps = pa.table(
        {
            "rank": listed[:, 0],
            "step": listed[:, 1],
            "start": start,
            "end": start + 90,
            "device_start": pa.array(start + 5, mask=lacking),
            "device_end": pa.array(start + 80, mask=lacking),
            "kind": ["step"] * len(start),
        }
    )
    window = window_of(select("2:4"), steps, [0, 1, 3])
    assert {r: w.steps.tolist() for r, w in window.ranks.items()} == {0: [2, 3], 1: [2, 3], 3: [3]}
    instance = np.sort(draw.integers(0, 40, 100))
    rank, row, begin = draw.integers(0, 4, 100), draw.integers(0, 50, 100), draw.integers(0, 600, 100)
    evidence = draw.choice(["log", "mpi"], 100)
    columns = {"instance": instance, "rank": rank, "row": row, "start": begin, "evidence": evidence.tolist()}
    rows_of = {r: draw.permutation(50) for r in range(4)}
    views = {
        r: SimpleNamespace(view=lambda _, r=r: SimpleNamespace(collective_rows=lambda: rows_of[r])) for r in range(4)
    }
    whole = SimpleNamespace(members=pa.table(columns), steps=steps, run=SimpleNamespace(rank=views.get))
    found = window_alignment.WindowedAlignment(whole, window)
    kept = []
    for n in range(100):
        head = int(np.searchsorted(instance, instance[n]))
        its = window.ranks.get(int(rank[head]))
        if its is not None and its.holds(begin[head : head + 1], device=evidence[head] != "mpi")[0]:
            kept.append(
                (int(instance[n]), int(rank[n]), int(rows_of[rank[n]][row[n]]) if rank[n] in window.ranks else -1)
            )
    members = found.members.to_pydict()
    assert list(zip(members["instance"], members["rank"], members["row"], strict=True)) == kept
    assert found.steps.to_pylist() == [s for s in steps.to_pylist() if 2 <= s["step"] < 4]
