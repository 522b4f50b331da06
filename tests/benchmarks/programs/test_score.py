"""Scoring: hand-made findings about a program with known truth."""

from __future__ import annotations

from dataclasses import replace

from tests.together import together

from benchmarks.programs.draw import plant
from benchmarks.programs.losses import Truth
from benchmarks.programs.model import Cause
from benchmarks.programs.score import judge, summary

PROGRAM = plant(10, "none")  # four ranks
EVERY = frozenset(range(PROGRAM.steps))


def finding(kind, share, ranks=(0, 1, 2, 3), severity="high", confidence=0.9):
    return {"kind": kind, "severity": severity, "lost_share": share, "ranks": list(ranks), "confidence": confidence}


def judged(causes, shares, findings, natural=None, least=0.01, **view):
    program = replace(PROGRAM, causes=tuple(causes), view=replace(PROGRAM.view, **view))
    kinds = dict(natural or {})
    for cause, share in zip(causes, shares, strict=True):
        kinds[cause.kind] = max(kinds.get(cause.kind, 0.0), share)
    return judge(1, program, Truth(10**8, tuple(shares), sum(shares), dict(natural or {}), kinds), findings, least)


STRAGGLER = Cause("straggler", "", (2,), 1.2, EVERY)
SYNC = Cause("sync", "stream", (), 1e5, EVERY)


def test_the_first_finding_is_right_by_its_kind_and_the_culprits_exactly():
    found = judged([STRAGGLER], [0.2], [finding("capture-fault", 0.0), finding("straggler", 0.19, [2])])
    assert (found.right, found.ranks_right, found.found_share, found.first) == (True, True, 0.19, "straggler")
    assert judged([STRAGGLER], [0.2], [finding("straggler", 0.2, [2, 3])]).ranks_right is False
    assert judged([STRAGGLER], [0.2], [finding("imbalance", 0.2, [2])]).right is False
    assert judged([STRAGGLER], [0.2], []).right is False


def test_what_the_program_loses_by_itself_can_be_the_right_answer():
    natural = {"exposed-communication": 0.3}
    assert judged([STRAGGLER], [0.2], [finding("straggler", 0.2, [2])], natural).right is False
    found = judged([STRAGGLER], [0.2], [finding("exposed-communication", 0.3)], natural)
    assert (found.right, found.natural, found.ranks_right) == (True, True, None)
    assert judged([STRAGGLER], [0.28], [finding("straggler", 0.2, [2])], natural).right is True  # within a tenth


def test_nothing_is_the_right_answer_where_nothing_costs_enough():
    assert judged([], [], []).right is True
    assert judged([], [], [finding("sync", 0.006, severity="low")]).right is True
    assert judged([], [], [], {"exposed-communication": 0.019}).right is True
    assert judged([], [], [], {"exposed-communication": 0.03}).right is False
    assert judged([STRAGGLER], [0.015], []).right is False
    found = judged([], [], [finding("sync", 0.2)])
    assert (found.right, found.false_alarms) == (False, ["sync"])
    assert judged([STRAGGLER], [0.004], [finding("straggler", 0.2, [2])]).false_alarms == ["straggler"]
    assert judged([STRAGGLER], [0.06], [finding("straggler", 0.2, [2])]).false_alarms == []


def test_all_of_several_causes_are_wanted_in_the_first_four():
    several = [finding("sync", 0.1), finding("a", 0.1), finding("b", 0.1), finding("straggler", 0.1, [2])]
    assert judged([STRAGGLER, SYNC], [0.1, 0.2], several).all_found is True
    assert judged([STRAGGLER, SYNC], [0.1, 0.2], [finding("c", 0.1), *several]).all_found is False
    assert judged([STRAGGLER, SYNC], [0.1, 0.005], several).all_found is None


def test_what_no_report_shows_need_not_be_told():
    stall = Cause("data-stall", "slow workers", (), 1e7, EVERY)
    pause = [finding("host-pause", 0.2)]
    assert judged([stall], [0.2], pause, data_text=None, osrt=False).right is True
    assert judged([stall], [0.2], pause, data_text="next_batch", osrt=False).right is False
    assert judged([stall], [0.2], pause, data_text=None, osrt=True).right is False


def test_of_two_equally_slow_ranks_either_or_both_will_do():
    pair = replace(STRAGGLER, variant="equally slow", ranks=(1, 2))
    for named, right in (([1], True), ([2], True), ([1, 2], True), ([], False), ([1, 3], False)):
        assert judged([pair], [0.2], [finding("straggler", 0.2, named)]).ranks_right is right


def test_impossible_losses_are_counted_and_null_ones_are_none():
    assert judged([STRAGGLER], [0.2], [finding("straggler", 1.2, [2])]).impossible == ["straggler"]
    found = judged([STRAGGLER], [0.2], [finding("straggler", None, [2])])
    assert (found.stated, found.found_share, found.impossible) == (True, None, [])


@together(
    ("line", "value"),
    [
        ("first finding has the costliest kind", "2 of 4 (50.0 %)"),
        ("culprits right, kind right", "2 of 2 (100.0 %)"),
        ("loss within 15 % of the truth", "1 of 2 (50.0 %)"),
        ("pairs in which the right one has more", "1 of 2 (50.0 %)"),
        ("right ones with 0.9 or more", "1 of 2 (50.0 %)"),
    ],
)
def test_the_summary_adds_up(line, value):
    made = [
        judged([STRAGGLER], [0.2], [finding("straggler", 0.21, [2], confidence=0.95)]),
        judged([STRAGGLER], [0.2], [finding("straggler", 0.4, [2], confidence=0.6)]),
        judged([STRAGGLER], [0.2], [finding("sync", 0.4, confidence=0.7)]),
        judged([STRAGGLER], [0.2], []),
    ]
    row = next(row for row in summary(made, 0.01).splitlines() if line in row)
    assert row.split("|")[-2].strip() == value
