"""The arithmetic of the measured gains, and what counts as right."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest

from benchmarks.processes_truth.blocks import Blocks, error_of
from benchmarks.processes_truth.causes import CAUSES, RANKS
from benchmarks.processes_truth.machine import lacking, placed
from benchmarks.processes_truth.measuring import Gain
from benchmarks.processes_truth.score import Scored, by_cause, summary

LATE = next(c for c in CAUSES if c.name == "late-barrier")
LINK = next(c for c in CAUSES if c.name == "slow-link")
GAIN = Gain((125_000_000, 125_000_000, 131_000_000, 119_000_000), (100_000_000,) * 4)


def scored(cause=LATE, kind="host-pause", ranks=(1,), loss=0.2):
    return Scored("torch", cause, GAIN, kind, ranks, loss, "", None)


def test_blocks_go_on_until_the_gain_is_known():
    blocks = Blocks(1, least=3, most=5)
    assert not blocks.enough([100, 100])
    assert blocks.enough([100, 101, 99])
    assert not blocks.enough([100, 200, 10])
    assert blocks.enough([100, 200, 10, 300, 5])


def test_the_standard_error_is_that_of_the_mean():
    assert error_of([1, 3]) == pytest.approx(sqrt(2) / sqrt(2))
    assert error_of([4]) == float("inf")


def test_a_gain_is_a_share_of_the_steps_with_the_cause():
    assert GAIN.share == pytest.approx(100 / 500)
    assert GAIN.error == pytest.approx(error_of([25e6, 25e6, 31e6, 19e6]) / 125e6)


@pytest.mark.parametrize(
    ("given", "kind", "culprit", "loss"),
    [
        ({}, True, True, True),
        ({"kind": "sync"}, False, False, False),
        ({"ranks": (0, 2, 3)}, True, False, True),
        ({"loss": 0.23}, True, True, True),
        ({"loss": 0.25}, True, True, False),
        ({"loss": None}, True, True, False),
        ({"kind": None, "ranks": (), "loss": None}, False, False, False),
        ({"cause": LINK, "kind": "exposed-communication", "ranks": (0, 1, 2, 3)}, True, True, True),
    ],
)
def test_a_first_finding_is_right_by_kind_culprits_and_loss(given, kind, culprit, loss):
    found = scored(**given)
    assert (found.kind_right, found.culprit_right, found.loss_right) == (kind, culprit, loss)


def test_a_loss_within_two_standard_errors_is_right():
    wide = replace(GAIN, with_ns=(110_000_000, 140_000_000, 150_000_000, 100_000_000))
    assert wide.error > 0.08
    assert replace(scored(loss=0.33), gain=wide).loss_right
    assert not replace(scored(loss=0.60), gain=wide).loss_right


def test_the_tables_count_what_is_right():
    rows = [scored(), scored(ranks=(0,)), scored(kind=None, ranks=(), loss=None)]
    assert rows[0].row() == "| torch | `late-barrier` | 20.0 % ± 2.0 % | `host-pause` | 1 | 20.0 % | yes | yes |"
    assert "| nothing | none | unknown | no | no |" in rows[2].row()
    assert "| the first finding has the cause's kind | 2 of 3 |" in "\n".join(summary(rows))
    assert "| and names its culprits | 1 of 3 |" in "\n".join(summary(rows))


def test_the_table_by_cause_has_medians_and_ranges_of_its_runs():
    rows = [scored(), scored(ranks=(0,), loss=0.31), scored(loss=0.22), scored(cause=LINK, kind=None, loss=None)]
    assert by_cause(rows)[1:] == [
        "| torch | `late-barrier` | 3 | 20.0 % | 20.0 % to 20.0 % | 22.0 % | 20.0 % to 31.0 % | 2 of 3 | 2 of 3 |",
        "| torch | `slow-link` | 1 | 20.0 % | 20.0 % to 20.0 % | unknown |  | 0 of 1 | 0 of 1 |",
    ]


def test_each_cause_has_culprits_among_the_ranks_and_a_name_of_its_own():
    assert len({c.name for c in CAUSES}) == len(CAUSES) == 10
    assert all(0 <= rank < RANKS for c in CAUSES for rank in c.culprits)
    assert all(c.kinds for c in CAUSES)


def test_a_cause_that_the_machine_does_not_allow_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.processes_truth.machine.GROUPS", tmp_path / "none")
    assert lacking(None) is None
    assert lacking("cpu").startswith("no control group of cpu can be made (No such file or directory: ")


def test_only_the_culprit_is_put_into_the_group():
    text = placed("RANK", 2, "cpu")[2]
    assert 'if [ "$RANK" = 2 ]; then' in text
    # torchrun takes two dollar signs for one
    assert "$$" not in text
    assert "cgroup.procs" not in placed("RANK", 2, None)[2]
    assert "ip netns exec" in placed("RANK", None, "link")[2]
