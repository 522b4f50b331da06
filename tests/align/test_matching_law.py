"""Whatever way the rounds of matching end, what breaks the law or explains too little is withheld."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

from alltrace.align import matching
from alltrace.align.communicators_by_order import Inferred
from alltrace.align.matching import Matching, match
from alltrace.align.related_clocks import Placing, RankClock

NONE = np.zeros(0, np.int64)
_NONE = np.zeros(1, np.int64)
NAMED = SimpleNamespace(nameless=_NONE != 0, member=_NONE, communicator=_NONE, names=["c"])


def clocks_of(*components):
    return {n: RankClock(0.0, 0.0, 0.0, 1.0, component) for n, component in enumerate(components)}


def matching_of(clocks, instance=MappingProxyType({}), timelines=None, **more):
    return Matching(timelines, clocks, instance, {}, NONE, NONE, (), {}, (), **more)


@pytest.mark.parametrize(
    ("fitted", "round_", "parted"),
    [
        ([(0, 1)], 1, True),  # no operation holds the clocks together: inferred again from the same clocks
        ([(0, 0), (0, 1)], 0, False),  # the second fit holds them less: what was before it
        ([(0, 0)] * 3, 3, False),  # two rounds that give the same to all members end them
        ([(0, 0)] * 4, 4, False),  # here the first two that match the same
    ],
)
def test_the_law_is_checked_however_rounds_end(monkeypatch, fitted, round_, parted):
    inferred: list[tuple[Inferred, bool]] = []
    fits = iter(fitted)

    def infer(operations, clocks, *, parted=False):
        turn = len(inferred)
        inferred.append((Inferred(lambda member: np.array([min(turn, member + 1)]), [1.0]), parted))
        return inferred[-1][0]

    monkeypatch.setattr(matching, "related_clocks", lambda *_: clocks_of(0, 0))
    monkeypatch.setattr(matching, "communicators_by_order", infer)

    def of_round(operations, clocks, its):
        turn = int(its.of(9)[0])
        instance = {0: np.array([0]), 1: np.array([min(turn, round_ - 1) if round_ == 4 else 0])}
        return matching_of(clocks, instance, score=turn)

    monkeypatch.setattr(matching, "_matched", of_round)
    monkeypatch.setattr(matching, "solve", lambda *_: "solved")
    monkeypatch.setattr(matching, "fitted_clocks", lambda *_: clocks_of(*next(fits)))
    monkeypatch.setattr(Matching, "evidence", lambda _: None)
    monkeypatch.setattr(matching, "_lawful", lambda operations, its, known, ranks: (its, known))
    settled, known = matching._settled(SimpleNamespace(extents=[0, 1]), None, [0, 1])
    assert (known, parted) == inferred[round_]
    assert settled.score == round_
    assert {c.component for c in settled.clocks.values()} == {0}


@pytest.mark.parametrize(
    ("clocks", "fitted", "explained", "withheld"),
    [
        ((0, 1), None, 0.49, True),
        ((0, 1), None, 0.5, False),
        ((0, 0), None, 0.49, False),  # all clocks are related, and few are sure of their partners
        ((0, 0), (0, 1), 0.49, True),
        ((0, 1), (0, 0), 0.49, False),
        ((0, 0), (0, 0, 1), 0.49, False),  # a rank without operations is related to none
    ],
)
def test_communicators_that_explain_less_than_half_of_unrelated_hosts_are_withheld(
    monkeypatch, clocks, fitted, explained, withheld
):
    solution = SimpleNamespace(components=dict(enumerate(fitted))) if fitted else None
    timelines = SimpleNamespace(kinds=SimpleNamespace(names=["inferred 0"]))
    more = {"timelines": timelines, "score": 0.1, "explained": explained, "solution": solution}
    of_few = matching_of(clocks_of(*clocks), **more)
    monkeypatch.setattr(matching, "_settled", lambda *_: of_few)
    monkeypatch.setattr(matching, "_matched", lambda operations, clocks, its: (clocks, its.of(0).tolist()))
    operations = SimpleNamespace(
        extents=[0, 1],
        kinds=NAMED,
        first_inferred=0,
        of=lambda member: SimpleNamespace(end=np.zeros(3)),
        rank_of=lambda member: member,
    )
    assert match(operations) == ((of_few.clocks, [-1, -1, -1]) if withheld else of_few)


def test_named_communicators_are_not_withheld_whatever_they_explain(monkeypatch):
    more = {"timelines": SimpleNamespace(kinds=NAMED), "score": 0.1, "explained": 0.1, "solution": None}
    of_few = matching_of(clocks_of(0, 1), **more)
    monkeypatch.setattr(matching, "_settled", lambda *_: of_few)
    operations = SimpleNamespace(extents=[0, 1], kinds=NAMED, first_inferred=1, rank_of=lambda member: member)
    assert match(operations) is of_few


@pytest.mark.parametrize(
    ("certainty", "matched", "withheld"),
    [
        ((1.0, 0.62), 13, True),  # what stages do in step relates them, and a third of the messages fits no other
        ((0.62, 1.0), 13, True),
        ((1.0, 0.62), 20, False),
        ((1.0, 0.8), 13, False),
        ((0.62, 0.62), 13, False),  # that both are doubtfully related to a third tells nothing of the pair
    ],
)
def test_pairs_of_doubtfully_related_clocks_are_withheld_if_many_messages_fit_no_other(
    monkeypatch, certainty, matched, withheld
):
    kinds = SimpleNamespace(
        messages=np.full(4, True),
        communicator=np.array([2, 2, -1, -1]),
        member=np.array([0, 1, 0, 1]),
        nameless=np.full(4, True),
        tag=np.full(4, -1),
        early=np.full(4, False),
    )
    number = np.where(np.arange(20) < matched, np.arange(20), -1)
    of = {m: SimpleNamespace(kind=np.where(number >= 0, 0, 2) + m) for m in (0, 1)}
    timelines = SimpleNamespace(kinds=kinds, first_inferred=2, of=of.__getitem__)
    clocks = {m: RankClock(0.0, 0.0, 0.0, sure, 0) for m, sure in enumerate(certainty)}
    its = matching_of(clocks, dict.fromkeys(of, number), timelines)
    assert matching._doubtful(its) == ([0] if withheld else [])

    monkeypatch.setattr(matching, "fitted_clocks", lambda *_: clocks)
    monkeypatch.setattr(matching, "_doubtful", lambda _: [0] if withheld else [])
    monkeypatch.setattr(matching, "_matched", lambda operations, clocks, its: its.of(0).tolist())
    of_none = matching_of(clocks, solution="solved")
    lawful = matching._lawful(timelines, of_none, Inferred(lambda _: np.array([0, -1]), [1.0]), [0])
    assert lawful == ([-1, -1] if withheld else of_none)


@pytest.mark.parametrize(("explained", "by_report"), [(0.55, True), (0.45, False)])
def test_the_pattern_of_each_report_counts_by_what_it_explains_where_no_clocks_relate_all(
    monkeypatch, explained, by_report
):
    timelines = SimpleNamespace(kinds=NAMED)
    host = matching_of(clocks_of(0, 0), timelines=timelines, score=0.1, explained=0.1)
    reports = matching_of(clocks_of(0, 1), timelines=timelines, score=0.3, explained=explained)
    placing = Placing({}, {}, {0: "a", 1: "a"}, frozenset((0, 1)))
    monkeypatch.setattr(matching, "_settled", lambda _, its, ranks: reports if its == placing else host)
    monkeypatch.setattr(matching, "with_names", lambda recorded, _: recorded)
    kinds = SimpleNamespace(**{**vars(NAMED), "nameless": _NONE == 0, "communicator": _NONE - 1})
    operations = SimpleNamespace(extents=[0, 1], kinds=kinds, first_inferred=1, rank_of=lambda member: member)
    assert match(operations, placing) is (reports if by_report else host)
