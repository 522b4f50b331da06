"""Losses are shares of the judged time, and no time is lost twice: on any findings, any run, and every real report."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.making import collective, kernel, make_run
from tests.recipes.questions.diagnose.bounds import most_ns

import alltrace
from alltrace.recipes.questions.diagnose import _by_severity
from alltrace.recipes.questions.diagnose.finding import Finding, Loss
from alltrace.recipes.questions.diagnose.gaps import CLASSES
from alltrace.recipes.questions.diagnose.ranking import ranked
from alltrace.trace.errors import AlltraceError

SPAN_NS = 10_000
WHOLE = 1 + 1e-9


@st.composite
def findings(draw):
    """Findings with any estimates and bounds."""
    classes = tuple(draw(st.lists(st.sampled_from(CLASSES), min_size=1, max_size=4, unique=True)))
    bound = draw(st.integers(0, SPAN_NS))
    loss = Loss(
        draw(st.integers(-SPAN_NS, 300 * SPAN_NS)),
        "replay",
        classes,
        draw(st.integers(0, bound)),
        bound,
        draw(st.none() | st.just("not known")),
        draw(st.integers(0, SPAN_NS)),
    )
    severity = draw(st.none() | st.sampled_from(["medium", "low"]))
    return Finding("sync", loss, (0,), "", "", severity=severity, told=draw(st.booleans()))


@settings(deadline=None)
@given(st.lists(findings(), max_size=8))
def test_claims_are_exclusive(found):
    rows = ranked(found, SPAN_NS)
    assert sum(r.claim_ns for r in rows) <= SPAN_NS
    for row in rows:
        assert 0 <= row.claim_ns <= max(min(row.finding.loss.estimate_ns, row.finding.loss.bound_ns), 0)
        held = (
            row.claim_ns == 0 and min(row.finding.loss.estimate_ns, row.finding.loss.bound_ns) > 0
        )  # by other findings
        stated = row.finding.loss.unknown is None and not held
        assert (row.lost_ns, row.share) == ((row.claim_ns, row.claim_ns / SPAN_NS) if stated else (None, None))
        assert (row.note is None) == stated
    severities = [("high", "medium", "low").index(r.severity) for r in rows]
    assert severities == sorted(severities)
    for one, other in pairwise(rows):
        assert one.severity != other.severity or one.claim_ns >= other.claim_ns


@pytest.mark.parametrize(
    ("needed", "other", "severities"),
    [(4000, 2000, ["high", "high"]), (2000, 4000, ["high", "medium"]), (4000, 500, ["medium", "medium"])],
)
def test_what_is_needed_at_once_is_high_only_before_something_that_is(needed, other, severities):
    found = [
        one(needed, ("communication",), needed, needed, needed_at_once=True),
        one(other, ("launch",), other, other),
    ]
    rows = ranked(found, SPAN_NS)
    assert [r.severity for r in rows] == severities
    assert rows[0].claim_ns == max(needed, other)


@pytest.mark.parametrize(
    ("least", "severity"), [(0, "low"), (299, "low"), (300, "medium"), (1_000, "high"), (9_000, "high")]
)
def test_a_loss_that_is_not_known_is_as_grave_as_what_is_sure_of_it(least, severity):
    loss = Loss(5_000, "ceiling", ("sync",), 5_000, 5_000, "not known", least)
    (row,) = ranked([Finding("sync", loss, (0,), "", "")], SPAN_NS)
    assert (row.severity, row.lost_ns, row.claim_ns) == (severity, None, 5_000)


def one(estimate, classes, own, bound, kind="sync", **more):
    return Finding(kind, Loss(estimate, "replay", classes, own, bound), (0,), "", "", **more)


def test_the_largest_claims_first_and_leaves_others_what_their_own_classes_hold():
    launches = one(9_000, ("launch", "data"), 2_000, 6_000, "launch-bound")
    data = one(4_000, ("data", "launch"), 3_500, 6_000, "data-stall")
    assert [(r.finding.kind, r.claim_ns) for r in ranked([data, launches], SPAN_NS)] == [
        ("data-stall", 3_500),
        ("launch-bound", 2_500),
    ]
    # what shares no class is not in the way, but for the judged time
    slow = one(8_000, ("compute",), 8_000, 8_000, "straggler")
    assert [r.claim_ns for r in ranked([launches, slow], SPAN_NS)] == [8_000, 2_000]


def test_what_its_own_class_holds_is_its_own_however_much_is_left_of_what_it_shares():
    # on different ranks: together more than any rank has
    loads = one(6_000, ("module", "sync", "launch"), 6_500, 8_000, "module-loading")
    waits = one(2_500, ("sync", "module", "launch"), 900, 8_000)
    launches = one(1_500, ("launch", "module", "sync"), 1_400, 8_000, "launch-bound")
    claims = {r.finding.kind: r.claim_ns for r in ranked([loads, waits, launches], SPAN_NS)}
    assert claims == {"module-loading": 6_000, "sync": 900, "launch-bound": 1_400}
    again = one(2_400, ("sync", "launch"), 900, 8_000, "host-pause")
    assert {r.finding.kind: r.claim_ns for r in ranked([loads, waits, again], SPAN_NS)} == {
        "module-loading": 6_000,
        "sync": 1_100,
        "host-pause": 900,
    }


def test_a_capture_fault_stands_behind_graver_findings_and_before_those_as_grave():
    fault = one(0, (), 0, 0, "capture-fault", severity="medium")
    rows = ranked([fault, one(1_500, ("sync",), 1_500, 1_500), one(100, ("idle",), 100, 100, "idle-gap")], SPAN_NS)
    assert [r.finding.kind for r in rows] == ["sync", "capture-fault", "idle-gap"]


def exposed(hideable, needed):
    """The two parts of what a program communicates while devices wait."""
    return [
        one(hideable, ("communication",), hideable + needed, hideable + needed, "exposed-communication"),
        one(
            needed,
            ("communication",),
            hideable + needed,
            hideable + needed,
            "exposed-communication",
            needed_at_once=True,
        ),
    ]


@pytest.mark.parametrize(
    ("hideable", "needed", "other", "order", "severities"),
    [
        (1_340, 680, 1_360, ["exposed", "other", "exposed"], ["high", "high", "medium"]),  # together they cost more
        (600, 680, 1_360, ["other", "exposed", "exposed"], ["high", "medium", "medium"]),
        (200, 180, 350, ["exposed", "other", "exposed"], ["medium", "medium", "low"]),
        (100, 1_400, 1_350, ["exposed", "other", "exposed"], ["high", "high", "low"]),
        (100, 1_400, 1_360, ["other", "exposed", "exposed"], ["high", "high", "low"]),  # as much as the design
        (1_400, 100, 1_485, ["exposed", "other", "exposed"], ["high", "high", "low"]),
        (1_340, 680, 200, ["exposed", "exposed", "other"], ["high", "medium", "low"]),  # no fault, and nothing less
        (1_340, 10, 1_345, ["other", "exposed"], ["high", "high"]),  # what is not reported does not count
    ],
)
def test_the_costliest_part_of_a_cause_has_the_place_of_their_sum(hideable, needed, other, order, severities):
    rows = ranked([*exposed(hideable, needed), one(other, ("compute",), other, other, "straggler")], SPAN_NS)
    assert ["exposed" if r.finding.kind == "exposed-communication" else "other" for r in rows] == order
    assert [r.severity for r in rows] == severities
    assert sorted(r.claim_ns for r in rows) == sorted(n for n in (hideable, needed, other) if n >= 50)


@st.composite
def runs(draw):
    """Ranks with any kernels, calls and collectives, in order or not."""
    ranks = {}
    for rank in range(draw(st.integers(1, 3))):
        kernels, calls, at, host = [], [], draw(st.integers(0, 3_000_000)), 0
        for number in range(draw(st.integers(1, 12))):
            took = draw(st.integers(0, 400_000))
            name = draw(st.sampled_from(["cudaLaunchKernel", "cudaMalloc", "cudaDeviceSynchronize", "cudaMemcpy"]))
            calls.append({"start": host, "end": host + took, "name": name, "correlation": number})
            host += took + draw(st.integers(0, 2_000_000))
            at += draw(st.integers(0, 1_000_000))
            made = draw(st.sampled_from([kernel, collective]))
            kernels.append(
                made(at, at + draw(st.integers(1, 500_000)), correlation=number, stream=draw(st.sampled_from([7, 20])))
            )
        ranks[rank] = {"kernels": kernels, "api": calls}
    return ranks


def assert_exclusive(answer):
    rows = answer.to_pylist()
    shares = [r["lost_share"] for r in rows if r["lost_share"] is not None]
    assert all(0 <= share <= WHOLE for share in shares)
    assert sum(shares) <= WHOLE
    for row in rows:
        assert (row["lost_ns"] is None) == (row["lost_share"] is None) == (row["loss_note"] is not None)
        assert set(row["classes"]) <= set(CLASSES)
        assert 0 <= row["confidence"] <= 1


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(runs())
def test_losses_of_any_run_are_exclusive_shares(ranks):
    with tempfile.TemporaryDirectory() as folder:
        assert_exclusive(make_run(Path(folder) / "run", ranks).recipe("diagnose"))


@pytest.mark.slow
@pytest.mark.corpus
def test_losses_of_real_reports_are_exclusive_shares_within_what_their_calls_and_kernels_take(corpus, tmp_path):
    judged = 0
    beyond = []
    for path in sorted(p for form in ("nsys", "kineto") for p in (corpus / form).rglob("*") if p.is_file()):
        try:
            run = alltrace.open(path, cache_dir=tmp_path)
            answer = run.recipe("diagnose")
        except AlltraceError:
            continue
        judged += 1
        assert_exclusive(answer)
        for row in answer.to_pylist():
            most = most_ns(run, row) if row["lost_ns"] else None
            if most is not None and row["lost_ns"] > most:
                beyond.append((path.name, row["kind"], row["where"], row["lost_ns"], most))
    assert beyond == []
    assert judged > 20


def test_what_larger_losses_hold_is_reported_where_a_replay_gives_it_back():
    larger = one(4_000, ("launch", "data"), 4_000, 4_000, "recompilation")
    hidden = one(3_000, ("data", "launch"), 0, 4_000, "host-pause")
    rows = ranked([hidden, larger], SPAN_NS)
    assert [(r.finding.kind, r.severity) for r in rows] == [("recompilation", "high"), ("host-pause", "low")]
    assert [r.lost_ns for r in rows] == [4_000, None]
    assert rows[1].note == "this time is already included in the losses of other findings"
    for not_replayed in (
        one(40, ("data", "launch"), 0, 4_000, "host-pause"),
        Finding("host-pause", Loss(3_000, "ceiling", ("data", "launch"), 0, 4_000), (0,), "", ""),
    ):
        assert [r.finding.kind for r in ranked([not_replayed, larger], SPAN_NS)] == ["recompilation"]


@pytest.mark.parametrize(
    ("evidence", "severity"),
    [
        ({"stalled_ns_per_step": 10.0, "longest_step_ns": 90.0, "steps": 10.0}, "medium"),
        ({"stalled_ns_per_step": 10.0, "longest_step_ns": 49.0, "steps": 10.0}, "high"),
        ({"stalled_ns_per_step": 10.0, "longest_step_ns": 80.0, "steps": 9.0}, "high"),  # of few steps one is many
        ({}, "high"),
    ],
)
def test_what_happened_once_in_many_steps_is_not_high(evidence, severity):
    row = {"severity": "high", "confidence": 0.9, "opportunity_share": None, "evidence": evidence}
    (told,) = _by_severity([row], ranked([one(2_000, ("sync",), 2_000, 2_000)], SPAN_NS), ALL_RANKS)
    assert told["severity"] == severity


ALL_RANKS = SimpleNamespace(whole_run=False, steps=range(20))


@pytest.mark.parametrize(("sure", "order"), [(0.9, ["data-stall", "sync"]), (0.1, ["sync", "data-stall"])])
def test_of_doubtful_findings_the_one_that_may_cost_most_comes_first(sure, order):
    withheld = Finding("sync", Loss(2_000, "ceiling", ("sync",), 2_000, 2_000, "not known"), (0,), "", "")
    claims = ranked([withheld, one(400, ("data",), 400, 400, "data-stall")], SPAN_NS)
    assert [c.finding.kind for c in claims] == ["data-stall", "sync"]  # of which 4 % are sure, and nothing
    told = {"data-stall": sure, "sync": 0.1}
    rows = [
        {
            "kind": c.finding.kind,
            "severity": c.severity,
            "confidence": told[c.finding.kind],
            "opportunity_share": None,
            "evidence": {},
        }
        for c in claims
    ]
    assert [row["kind"] for row in _by_severity(rows, claims, ALL_RANKS)] == order


@pytest.mark.parametrize(
    ("steps", "claimed"),
    [
        (([10.0, 0.0], [1.0, 0.0]), [90, 60]),  # the other one's are other steps
        (([0.0, 100.0], [0.0, 1.0]), [90, 10]),
        (([50.0, 50.0], [0.5, 0.5]), [90, 50]),  # at most half of it is taken in the steps of the other
        (None, [90, 10]),
    ],
)
def test_a_loss_in_other_steps_takes_nothing_away(steps, claimed):
    first, second = (
        Finding("straggler", Loss(n, "replay", ("compute",), 100, 100), (r,), "", "") for n, r in ((90, 0), (60, 1))
    )
    first = replace(first, loss=replace(first.loss, steps=(np.array([0.0, 100.0]), np.array([0.0, 1.0]))))
    second = replace(second, loss=replace(second.loss, steps=None if steps is None else tuple(map(np.array, steps))))
    assert [r.claim_ns for r in ranked([first, second], SPAN_NS)] == claimed
