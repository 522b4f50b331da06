"""How findings about two causes that hide each other are judged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.benchmarks.programs.small_programs import EVERY, even_program

from benchmarks.programs.draw_pairs import Gains
from benchmarks.programs.draw_uneven import LATE
from benchmarks.programs.model import Cause
from benchmarks.programs.score_causes import summary_of_causes
from benchmarks.programs.score_pairs import CULPRITS, FAMILY, JOINT, MARKS, NAMED, RIGHT, SAID, judge_pair

STRAGGLER = Cause("straggler", "", (1,), 1.2, EVERY)
LOADER = Cause("data-stall", "slow workers", (3,), 1e6, EVERY)
LATE_HOST = Cause(LATE, "logging: ", (0,), 1e6, EVERY)
GAINS = Gains(1_000, (0.0, 0.059), 0.111)
VERDICT = "Rank 1 is slow. Rank 1's kernels and rank 3's loader hide each other: together 11.4 %, alone 0.0 and 5.9 %."


def finding(kind, ranks, share=0.05, **evidence):
    lost_ns = None if share is None else 2_000 * share  # the reports' judged time is not the program's
    return {
        "kind": kind,
        "lost_share": share,
        "lost_ns": lost_ns,
        "ranks": ranks,
        "evidence": {"together_ns": None} | evidence,
    }


def judged(*findings, causes=(STRAGGLER, LOADER), gains=GAINS, verdict=""):
    program = even_program(causes=causes)
    program = replace(program, view=replace(program.view, osrt=True, devices=1))
    return judge_pair(7, program, gains, findings, verdict, 0.01)


def test_both_are_named_and_said_together():
    both = finding("straggler", [1], 0.04, together_ns=230), finding("data-stall", [3], 0.0, together_ns=230)
    judgement = judged(*both, verdict=VERDICT)
    assert judgement.right == list(MARKS)
    assert judgement.counts
    assert not judgement.alarms


@pytest.mark.parametrize(
    ("findings", "right"),
    [
        ([finding("straggler", [1]), finding("data-stall", [3], 0.0)], {RIGHT, NAMED, CULPRITS}),
        ([finding("straggler", [1]), finding("data-stall", [2], None)], {RIGHT, NAMED}),
        ([finding("straggler", [1])], set()),
        ([finding("straggler", [1])] * 4 + [finding("data-stall", [3])], set()),
        (
            [finding("straggler", [2], together_ns=240), finding("data-stall", [3], together_ns=240)],
            {RIGHT, NAMED, JOINT},
        ),
        ([finding("straggler", [2], together_ns=300), finding("data-stall", [3], together_ns=300)], {RIGHT, NAMED}),
        ([finding("sync", [1], together_ns=240), finding("data-stall", [3], together_ns=240)], set()),
        ([finding("data-stall", [3], 0.0, together_ns=240)], set()),
    ],
)
def test_what_is_right_is_counted_as_that(findings, right):
    assert set(judged(*findings).right) == right


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (VERDICT, True),
        (VERDICT.replace("11.4", "10"), True),
        (VERDICT.replace("11.4", "14.0"), False),
        (VERDICT.replace("hide each other", "cost"), False),
        ("", False),
    ],
)
def test_what_the_verdict_says(verdict, said):
    assert (SAID in judged(verdict=verdict).right) == said


def test_a_finding_is_of_one_of_two_causes_and_a_late_rank_is_named():
    both = STRAGGLER, LATE_HOST
    assert judged(finding("straggler", [1]), causes=both).right == []
    assert judged(finding("straggler", [1]), finding("straggler", [2]), causes=both).right == []
    assert judged(finding("straggler", [1]), finding("straggler", [0]), causes=both).right == [RIGHT, NAMED, CULPRITS]
    assert judged(finding("straggler", [1]), finding("host-pause", [0]), causes=both).right == [RIGHT, NAMED, CULPRITS]


def test_a_third_cause_first_is_an_alarm_and_pairs_that_hide_nothing_do_not_count():
    assert judged(finding("jitter", []), finding("straggler", [1])).alarms == ["jitter"]
    assert judged(finding("capture-fault", []), finding("straggler", [1])).alarms == []
    assert not judged(gains=Gains(1_000, (0.05, 0.06), 0.11)).counts


def test_a_pair_of_which_the_judged_steps_do_not_show_both_causes_is_left_out_and_counted():
    judgement = judged(gains=replace(GAINS, traceless=True))
    assert not judgement.counts
    summary = summary_of_causes([judgement, judged()], [FAMILY], 0.01)
    assert "the judged steps record the same without one of the causes: 1" in summary
