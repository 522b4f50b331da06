"""The shares of the critical path by rank and class."""

from __future__ import annotations

import numpy as np
import pytest

from alltrace.recipes.questions.critical_path import _shares
from alltrace.replay import path


@pytest.mark.parametrize("seed", range(5))
def test_each_share_is_the_time_of_its_pieces(monkeypatch, seed):
    draw = np.random.default_rng(seed)
    monkeypatch.setattr(path, "rank_slack_ns", lambda _: {1: 7})
    rank, kind, time = draw.integers(0, 4, 60), draw.integers(0, len(path.CLASSES), 60), draw.integers(1, 99, 60)
    pieces = path.Pieces(np.cumsum(time), time, rank, kind, np.arange(60))
    rows = _shares(None, pieces)
    assert {(r["rank"], r["class"]): (r["time_ns"], r["slack_ns"]) for r in rows} == {
        (r, path.CLASSES[k]): (time[(rank == r) & (kind == k)].sum(), 7 if r == 1 else None)
        for r, k in zip(rank.tolist(), kind.tolist(), strict=True)
    }
    assert sum(r["share_percent"] for r in rows) == pytest.approx(100)
