"""How findings about uneven work and a late rank are judged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.benchmarks.programs.small_programs import EVERY, even_program, imbalance

from benchmarks.programs.draw_uneven import LATE, TWIN
from benchmarks.programs.losses import Truth, measure
from benchmarks.programs.model import Cause, Without
from benchmarks.programs.score_uneven import MARKS, judge_uneven, truth_of_uneven

EXPERT = imbalance("hot expert, grids", (2,), 2.0)
LOGGING = Cause(LATE, "logging: ", (0,), 1e6, EVERY)


def finding(kind="imbalance", share=0.1, ranks=(2,), severity="low"):
    return {"kind": kind, "lost_share": share, "ranks": list(ranks), "severity": severity, "confidence": 0.5}


def judged(*findings, cause=EXPERT, share=0.1, devices=1, **kinds):
    program = even_program("experts", causes=(cause,))
    program = replace(program, view=replace(program.view, devices=devices))
    truth = Truth(1_000, (share,), share, {}, {cause.kind: share} | {k.replace("_", "-"): v for k, v in kinds.items()})
    return judge_uneven(7, "uneven-expert", program, truth, findings, 0.01)


def test_a_finding_that_is_right_in_all():
    judgement = judged(finding("capture-fault"), finding(), finding("sync", 0.001))
    assert judgement.right == list(MARKS)
    assert not judgement.alarms
    assert judgement.counts
    assert not judged(finding(), share=0.005).counts


@pytest.mark.parametrize(
    ("findings", "wrong"),
    [
        ((finding("jitter", 0.2), finding()), {"first finding"}),
        ((finding(ranks=[1]),), {"culprits", "one card"}),
        ((finding(ranks=[1, 2]),), {"culprits"}),
        ((finding(ranks=[1]), finding()), {}),
        ((finding(share=0.06), finding(share=0.1)), {"one card", "loss within 15 %"}),
        ((finding(), finding("straggler", 0.02)), {"one card"}),
        ((finding(share=None),), {"a loss", "loss within 15 %"}),
        ((finding(share=0.0),), {"loss within 15 %"}),
        ((finding(share=0.12),), {"loss within 15 %"}),
        ((finding("straggler"),), {"first finding", "any finding", "culprits", "a loss", "loss within 15 %"}),
        ((), set(MARKS)),
    ],
)
def test_what_is_wrong_is_counted_as_that(findings, wrong):
    assert set(MARKS) - set(judged(*findings).right) == set(wrong)


def test_what_the_program_loses_by_itself_may_come_first_if_it_is_more():
    findings = finding("exposed-communication", 0.3, [0, 1, 2, 3]), finding()
    assert "first finding" not in judged(*findings).right
    assert judged(*findings, exposed_communication=0.3).right == list(MARKS)
    assert "first finding" not in judged(finding(), exposed_communication=0.3).right


def test_a_loss_is_right_up_to_all_that_the_kind_costs():
    assert "loss within 15 %" in judged(finding(share=0.14), imbalance=0.13).right
    assert "loss within 15 %" not in judged(finding(share=0.16), imbalance=0.13).right


def test_work_that_goes_from_rank_to_rank_has_no_culprits():
    rotating = imbalance("longer sequences, rotating", (0, 1, 2, 3), 1.3)
    for ranks in ([], [0, 1, 2, 3], [0, 2]):
        assert judged(finding(ranks=ranks), cause=rotating).right == list(MARKS)
    assert "culprits" not in judged(finding(ranks=[1]), cause=rotating).right


def test_culprits_are_devices_of_processes_that_have_several():
    of_device = [finding(ranks=[1]) | {"devices": [{"rank": 1, "device": device}]} for device in (0, 1)]
    assert [judged(row, devices=2).right == list(MARKS) for row in of_device] == [True, False]
    assert "culprits" not in judged(finding(ranks=[1]), devices=2).right


@pytest.mark.parametrize(
    ("what", "right"),
    [("logging", {"host-pause", "data-stall", "straggler", "imbalance"}), ("device", {"straggler", "imbalance"})],
)
def test_a_late_rank_has_the_kind_of_its_own_work_and_never_the_waits_of_others(what, right):
    cause = replace(LOGGING, variant=f"{what}: evaluate")
    for kind in ("host-pause", "data-stall", "straggler", "imbalance", "sync", "unexplained"):
        judgement = judged(finding(kind, ranks=[0]), cause=cause)
        assert (judgement.right == list(MARKS)) == (kind in right)
    others = judged(finding("sync", 0.1, [1, 2, 3]), finding("host-pause", 0.1, [0]), cause=LOGGING)
    assert others.alarms == ["sync"]
    assert "first finding" not in others.right
    assert judged(finding("sync", 0.1, [1, 2, 3]), cause=LOGGING, sync=0.06).alarms == []
    assert judged(finding("sync", 0.005, [1, 2, 3]), cause=LOGGING).alarms == []


def test_a_card_on_what_the_program_loses_by_itself_is_no_second_card_of_a_late_rank():
    cards = finding("host-pause", 0.1, [0]), finding("imbalance", 0.011, [0, 2])
    marks = [judged(*cards, cause=LOGGING, imbalance=costs).right for costs in (0.0, 0.005, 0.01)]
    assert ["one card" in right for right in marks] == [False, False, True]


def test_a_healthy_program_has_no_finding_that_costs_less_than_half_of_its_severity():
    program = even_program("experts")
    truth = Truth(1_000, (), 0.0, {}, {"sync": 0.05})
    findings = [
        finding("sync", 0.06, severity="high"),
        finding("imbalance", 0.04, severity="medium"),
        finding("jitter", 0.01),
    ]
    assert judge_uneven(1, TWIN, program, truth, findings, 0.01).alarms == ["imbalance"]


def test_tokens_that_differ_by_themselves_cost_something_of_the_kinds_that_say_so():
    program = even_program("experts", tokens=(1.0, 1.0, 1.4, 1.0))
    truth = truth_of_uneven(program)
    gained = 1 - measure(replace(program, tokens=())) / measure(program)
    assert gained > 0.02
    assert truth.kinds["imbalance"] == pytest.approx(gained)
    planted = replace(program, causes=(imbalance("hot expert, grids", (2,), 1.5),))
    cost = 1 - measure(planted, Without(frozenset([0]))) / measure(planted)
    truth = truth_of_uneven(planted)
    assert truth.causes == (pytest.approx(cost),)
    everything = 1 - measure(replace(planted, tokens=()), Without(frozenset([0]))) / measure(planted)
    assert truth.kinds["imbalance"] == pytest.approx(everything)
    assert everything > cost + 0.02
