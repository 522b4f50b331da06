"""The shares of the critical path by rank and class."""

from __future__ import annotations

import numpy as np
import pytest
from tests.making import COMPUTE_KERNEL, make_run

from alltrace.recipes.questions import critical_path as question
from alltrace.recipes.questions.critical_path import _shares
from alltrace.replay import path


@pytest.mark.parametrize("seed", range(5))
def test_each_share_is_the_time_of_its_pieces(monkeypatch, seed):
    draw = np.random.default_rng(seed)
    monkeypatch.setattr(question, "rank_slack_ns", lambda _: {1: 7})
    rank, kind, time = draw.integers(0, 4, 60), draw.integers(0, len(path.CLASSES), 60), draw.integers(1, 99, 60)
    pieces = path.Pieces(np.cumsum(time), time, rank, kind, np.arange(60))
    rows = _shares(None, pieces)
    assert {(r["rank"], r["class"]): (r["time_ns"], r["slack_ns"]) for r in rows} == {
        (r, path.CLASSES[k]): (time[(rank == r) & (kind == k)].sum(), 7 if r == 1 else None)
        for r, k in zip(rank.tolist(), kind.tolist(), strict=True)
    }
    assert sum(r["share_percent"] for r in rows) == pytest.approx(100)


@pytest.mark.parametrize(("kernel_ns", "kernels"), [(8_000, "78.9"), (9_500, "93.4"), (3_000, None), (30_000, None)])
def test_a_path_through_launches_is_explained_where_devices_compute_most_of_the_time(tmp_path, kernel_ns, kernels):
    """A launch each 10 us: shorter kernels wait for their launches and lie beside the path, longer ones are the
    path."""
    calls, work, free_ns = [], [], 0
    for n in range(50):
        begin = n * 10_000
        calls.append({"start": begin, "end": begin + 9_000, "name": "cudaLaunchKernel", "correlation": n})
        free_ns = max(free_ns, begin + 9_200)
        work.append(
            {"start": free_ns, "end": free_ns + kernel_ns, "name": COMPUTE_KERNEL, "correlation": n, "stream": 7}
        )
        free_ns += kernel_ns
    run = make_run(tmp_path, {0: {"api": calls, "kernels": work}})
    notes = [note for note in run.recipe("critical-path").answer.notes if "host and gap are" in note]
    if kernels is None:
        assert notes == []
    else:
        (note,) = notes
        assert f"although a rank's kernels take {kernels}" in note
