"""How findings about causes that change in time are judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.programs.draw_changes import HEALTHY, draw_change, onsets_of
from benchmarks.programs.model import Cause
from benchmarks.programs.score_causes import summary_of_causes
from benchmarks.programs.score_changes import FAMILY, MARKS, judge_change

CAUSE = Cause("throttling", "from a step on", (1,), 1.5, frozenset(range(12, 30)), memory_amount=1.2)


def program(kind="throttling", **changes):
    drawn = replace(draw_change(1, HEALTHY, ideal=True), lengths=())
    return replace(drawn, causes=(replace(CAUSE, kind=kind, **changes),), steps=30)


def finding(kind="throttling", share=0.1, ranks=(1,), **evidence):
    return {"kind": kind, "lost_share": share, "ranks": list(ranks), "evidence": evidence}


def judged(*findings, share=0.1, **changes):
    return judge_change(7, "throttling", program(**changes), share, findings, 0.01)


def test_a_finding_that_is_right_in_all():
    judgement = judged(finding("capture-fault"), finding(since_step=13), finding("jitter"))
    assert judgement.right == list(MARKS)
    assert not judgement.is_wrong(FAMILY)


@pytest.mark.parametrize(
    ("findings", "wrong"),
    [
        ((finding("jitter"), finding(since_step=12)), {"first finding"}),
        ((finding(since_step=12, ranks=[2]),), {"culprits"}),
        ((finding(since_step=12, ranks=[1, 2]),), {"culprits"}),
        ((finding(since_step=15),), {"onset within 2 steps"}),
        ((finding(since_step=9),), {"onset within 2 steps"}),
        ((finding(),), {"onset within 2 steps"}),
        ((finding(since_step=10, share=0.12),), {"loss within 15 %"}),
        ((finding(since_step=14, share=None),), {"loss within 15 %"}),
        (
            (finding("jitter"),),
            {"first finding", "any finding", "culprits", "onset within 2 steps", "loss within 15 %"},
        ),
        ((), {"first finding", "any finding", "culprits", "onset within 2 steps", "loss within 15 %"}),
    ],
)
def test_what_is_wrong_is_counted_as_that(findings, wrong):
    judgement = judged(*findings)
    assert set(MARKS) - set(judgement.right) == wrong
    assert judgement.is_wrong(FAMILY)


def test_the_onset_of_what_grows_gradually_is_where_it_begins_up_to_half_of_it():
    steps = frozenset(range(10, 30))
    assert onsets_of(replace(CAUSE, steps=steps)) == (10, 10)
    assert onsets_of(replace(CAUSE, steps=steps, variant="kernels, gradually")) == (10, 19)
    for step, right in {7: False, 8: True, 21: True, 22: False}.items():
        judgement = judged(finding(since_step=step), steps=steps, variant="kernels, gradually")
        assert ("onset within 2 steps" in judgement.right) == right


def test_healthy_programs_have_none_of_the_kinds_and_small_causes_do_not_count():
    healthy = replace(program(), causes=())
    quiet = judge_change(1, HEALTHY, healthy, 0.0, [finding("jitter")], 0.01)
    loud = judge_change(2, HEALTHY, healthy, 0.0, [finding("jitter"), finding("regression")], 0.01)
    small = judged(share=0.005)
    assert (quiet.alarms, loud.alarms, small.counts) == ([], ["regression"], False)
    assert judged(finding(since_step=12), finding("regression")).alarms == ["regression"]
    right, late = judged(finding(since_step=12)), judged(finding(since_step=20))
    words = summary_of_causes([quiet, loud, small, right, late], [FAMILY], 0.01)
    assert "Healthy programs with another of these kinds: 1 of 2 (50.0 %)" in words
    assert "costs less than 1 %: 1" in words
    full, half, none = "2 of 2 (100.0 %)", "1 of 2 (50.0 %)", "0 of 2 (0.0 %)"
    assert f"| throttling | 2 | {full} | {full} | {full} | {half} | {full} | {none} |" in words
