"""Diagnoses of real recordings: four steps of the slow side of switches, on an H100 with PyTorch 2.11.

`benchmarks.ladder` recorded them and `benchmarks.ladder.excerpt` cut them. The gains are of the same run of the ladder, of 15 steps
without a profiler. The last three are of an earlier run, whose gains are not known.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.first_findings import diagnosed
from benchmarks.ladder.causes import CAUSES
from benchmarks.ladder.measuring import Times
from benchmarks.ladder.table import Measured, of_the_right_kind, within_a_third

STEP_MS = {
    "sync-each-step": (38.2, 34.9),
    "pageable-copies": (73.1, 48.6),
    "bf16": (233, 34.9),
    "attention": (53.9, 34.9),
    "allocator": (43.6, 34.9),
    "host-sleep": (65.9, 34.9),
    "garbage": (437, 34.9),
    "loader-workers": None,
    "cuda-graph": None,
    "compile": None,
}
"""The slow and the fast side."""


@pytest.mark.parametrize("name", STEP_MS)
def test_the_cause_comes_first_with_a_loss_near_the_gain(name, tmp_path):
    (cause,) = (c for c in CAUSES if c.name == name)
    found = diagnosed([Path(__file__).parent / "h100" / f"{name}.pt.trace.json.gz"], tmp_path / "cache")
    slow, fast = STEP_MS[name] or (1, 1)
    one = Measured(cause, Times((slow,), (fast,)), True, {"torch": found})
    finding = of_the_right_kind(one, "torch")
    assert finding is not None
    opportunity = finding.ceiling_share is not None
    # opportunities come after all losses, however small those are
    assert next(f for f in found.findings if (f.ceiling_share is not None) == opportunity) == finding
    assert opportunity or found.first == finding
    if STEP_MS[name] is not None:
        assert within_a_third(one, "torch")
