"""Diagnoses of real recordings: three or four steps of the slow side of switches, on an H100 with PyTorch 2.11.

`benchmarks.ladder` recorded them and `benchmarks.ladder.excerpt` cut them. The times are of the run of the
ladder that recorded each, of 15 steps without a profiler.
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
    "loader-workers": (95.1, 23.8),
    "slow-transform": (787, 22.2),
    "tf32": (233, 65.4),
    "cuda-graph": (16.2, 1.94),
    "compile": (16.2, 14.5),
    "shared-gpu": (79.9, 35.1),
}
"""The slow and the fast side."""

NOT_ALL_GAINED = frozenset({"compile"})
"""Switches that leave most of their cause: compiled kernels are fewer, but are launched one by one as well."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", STEP_MS)
def test_the_cause_comes_first_with_a_loss_near_the_gain(name, tmp_path):
    (cause,) = (c for c in CAUSES if c.name == name)
    found = diagnosed([Path(__file__).parent / "h100" / f"{name}.pt.trace.json.gz"], tmp_path / "cache")
    slow, fast = STEP_MS[name]
    one = Measured(cause, Times((slow,), (fast,)), True, {"torch": found})
    finding = of_the_right_kind(one, "torch")
    assert finding is not None
    opportunity = finding.ceiling_share is not None
    # opportunities come after all losses, however small those are
    assert next(f for f in found.findings if (f.ceiling_share is not None) == opportunity) == finding
    assert opportunity or found.first == finding
    assert within_a_third(one, "torch") or name in NOT_ALL_GAINED


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(STEP_MS))
def test_only_a_device_that_is_shared_is_said_to_be(name, tmp_path):
    found = diagnosed([Path(__file__).parent / "h100" / f"{name}.pt.trace.json.gz"], tmp_path / "cache")
    assert ("shared-device" in {f.kind for f in found.findings}) == (name == "shared-gpu")
