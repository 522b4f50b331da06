"""Faults of the capture that reports show in their warnings."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from tests.making import kernel, make_run

from alltrace.recipes.questions.diagnose.capture import _short

NEWER = "The export's schema 9.1.0 is newer than 3.25, the newest supported version."


@pytest.mark.parametrize(
    ("warning", "where"),
    [
        (NEWER, "newer report"),
        ("CUDA profiling might have lost events.", "dropped events"),
        ("Not all events might be missing: the buffer did overflow", "dropped events"),
    ],
)
def test_warnings_of_a_report_become_findings_that_name_its_rank(tmp_path, warning, where):
    rows = {
        "kernels": [kernel(n * 1_000, n * 1_000 + 900) for n in range(50)],
        "ranges": [{"start": 0, "end": 9, "name": "a"}],
    }
    run = make_run(tmp_path / "run", {0: rows, 1: rows}, warnings=[warning])
    first, *rest = (r for r in run.recipe("diagnose").to_pylist() if r["kind"] == "capture-fault")
    assert (first["where"], first["ranks"], first["lost_ns"], first["lost_share"]) == (where, [0], 0, 0)
    assert first["severity"] == "medium"
    assert where not in {r["where"] for r in rest}


def test_missing_ranks_are_named(tmp_path):
    rows = {"kernels": [kernel(n * 1_000, n * 1_000 + 900) for n in range(50)]}
    run = make_run(tmp_path / "run", {0: rows, 2: rows}, missing=[1, 3])
    found = {r["where"]: r["ranks"] for r in run.recipe("diagnose").to_pylist() if r["kind"] == "capture-fault"}
    assert found == {"missing ranks": [1, 3], "no ranges": [0, 2]}


def test_reports_of_thousands_of_ranks_that_begin_late_or_end_early_are_named():
    rank, step = np.repeat(np.arange(4000), 100), np.tile(np.arange(100), 4000)
    there = ~((rank == 7) & (step < 3)) & ~((rank == 9) & (step > 5))
    order = np.random.default_rng(1).permutation(np.flatnonzero(there))
    steps = pa.table(
        {"rank": rank[order], "step": step[order], "source": pa.array(["range"]).take(pa.array(np.zeros_like(order)))}
    )
    run = SimpleNamespace(alignment=SimpleNamespace(steps=steps))
    late, short = _short(run)
    assert (late.where, late.ranks, late.evidence["first_step"]) == ("late start", (7,), 3)
    assert (short.where, short.ranks, short.evidence["first_missing_step"]) == ("cut short", (9,), 6)
