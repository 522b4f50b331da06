"""What makes a finding more or less sure."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from alltrace.recipes.questions.diagnose.confidence import confidence_of
from alltrace.recipes.questions.diagnose.finding import Finding, Loss
from alltrace.recipes.questions.diagnose.ranking import Ranked

SPAN_NS = 1_000_000


def run(error=0.0, score=1.0, missing=(), covered=1.0, ranks=4):
    manifest = SimpleNamespace(missing_ranks=missing)
    alignment = SimpleNamespace(matching_score=score, run=SimpleNamespace(manifest=manifest))
    return SimpleNamespace(
        replay_error=error, alignment=alignment, ranks=range(ranks), covered_share=lambda ranks: covered
    )


def found(claim=200_000, kind="sync", classes=("sync",), own=0.9, basis="replay", unknown=None, own_ns=None, **more):
    loss = Loss(claim, basis, classes, claim if own_ns is None else own_ns, claim, unknown)
    return Ranked(Finding(kind, loss, (0,), "", "", confidence=own, **more), claim, SPAN_NS)


def sure(finding, others=(), **given):
    return confidence_of(finding, run(**given), [finding, *others])


def test_a_large_loss_that_a_replay_tells_is_nearly_sure():
    assert 0.95 <= sure(found()) < 1


@pytest.mark.parametrize(
    ("finding", "others", "given"),
    [
        (found(own=0.6), (), {}),
        (found(claim=10_000), (), {}),
        (found(), (found(claim=180_000, kind="launch-bound"),), {}),
        (found(), (found(claim=90_000, kind="launch-bound"),), {}),
        (found(), (), {"error": 0.05}),
        (found(basis="ceiling"), (), {}),
        (found(basis="ceiling", unknown="not known"), (), {}),
        (found(classes=("communication",), kind="exposed-communication"), (), {"missing": (3,)}),
        (found(), (), {"score": 0.6}),
        (found(own_ns=100_000), (), {}),
        (found(), (), {"covered": 0.7}),
    ],
    ids=[
        "detector",
        "small",
        "margin",
        "half",
        "error",
        "ceiling",
        "unknown",
        "missing",
        "matching",
        "shared",
        "covered",
    ],
)
def test_each_doubt_lowers_it(finding, others, given):
    assert sure(finding, others, **given) < sure(found()) - 0.005


def test_what_nobody_knows_is_no_better_than_a_guess():
    assert sure(found(basis="ceiling", unknown="not known")) <= 0.6
    assert sure(found(classes=("communication",), kind="exposed-communication"), missing=(3,)) <= 0.6
    # the one that names the missing rank is not in doubt because of it, nor is what the host does
    assert sure(found(classes=("communication",), kind="missing-rank"), missing=(3,)) == sure(found())
    assert sure(found(), missing=(3,)) == sure(found())


def test_what_others_wait_for_is_sure_beside_a_sure_wait_for_a_missing_rank():
    exposed = found(classes=("communication",), kind="exposed-communication")

    def beside(**given):
        absent = found(claim=60_000, classes=("communication",), kind="missing-rank", **given)
        return sure(exposed, (absent,), missing=(3,))

    assert beside() == sure(found())
    assert beside(own=0.1, basis="ceiling") <= 0.6
    assert beside(unknown="not known") <= 0.6


def test_of_a_loss_that_is_sure_one_kind_is_as_likely_as_the_other():
    def withheld(least_ns, **given):
        finding = found(claim=600_000, unknown="one or the other")
        loss = replace(finding.finding.loss, least_ns=least_ns)
        return sure(replace(finding, finding=replace(finding.finding, loss=loss)), **given)

    assert withheld(600_000) == 0.5
    assert withheld(599_999) > 0.5  # as certain as what nobody knows is
    assert withheld(600_000, score=0.1) < 0.3


def test_one_rank_alone_meets_nobody():
    assert sure(found(), score=0.1, ranks=1) == sure(found())
    assert sure(found(), score=None) == sure(found())


def test_a_smaller_finding_far_behind_takes_nothing_away():
    assert sure(found(), (found(claim=60_000, kind="launch-bound"),)) == sure(found())


def test_the_closer_another_kind_comes_the_less_sure_is_the_larger():
    said = [
        sure(found(), (found(claim=claim, kind="launch-bound"),))
        for claim in (60_000, 80_000, 100_000, 140_000, 190_000)
    ]
    assert said == sorted(said, reverse=True)
    assert len(set(said)) == len(said)


def test_another_part_of_the_same_cause_takes_nothing_away():
    assert sure(found(), (found(claim=190_000),)) == sure(found())


def test_opportunities_and_what_costs_no_time_have_their_own():
    assert sure(found(claim=0, own=0.55, opportunity=0.3)) == 0.55
    assert sure(found(claim=0, own=1.0, classes=())) == 1.0
