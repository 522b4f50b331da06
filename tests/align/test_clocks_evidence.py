"""Which evidence clocks are made from."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from alltrace.align import clocks
from alltrace.align.clock_fit import Clocks
from alltrace.align.clock_sharing import PlacedRank
from alltrace.align.clocks import (
    Solution,
    _heaviest,
    _join_by_messages,
    _named,
    _rounded,
    _scatter,
    _solved,
    _typical,
    _usable,
)
from alltrace.align.members import EXCHANGE, Evidence
from alltrace.run.manifest import Clock


def test_operations_that_are_too_short_or_of_hosts_apart_are_no_evidence(monkeypatch):
    ranks = [PlacedRank(3, "a", 0, 100), PlacedRank(5, "b", 1, 2000)]
    length = np.array([999, 1000, 5000, 5000, 999, 1000, 10, 5000])
    start = np.arange(8) * 10_000
    evidence = Evidence(
        instance=np.arange(8),
        communicator=np.zeros(8, np.int64),
        rank=np.array([3, 3, 5, 3, 3, 3, 3, 3]),
        start=start,
        end=start + length,
        synchronising=np.array([1, 1, 1, 0, 0, 0, 0, 0], bool),
        direction=np.array([0, 0, 0, 0, EXCHANGE, EXCHANGE, 1, -1], np.int8),
    )
    usable = _usable(evidence, ranks, ())
    assert usable.rank.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert usable.start[[0, 2]].tolist() == [100, 22_000]
    assert usable.end[[0, 2]].tolist() == [1_099, 27_000]
    assert _usable(evidence, ranks, {"b"}).instance.tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert _usable(evidence, ranks, {"a"}).instance.tolist() == [2]
    used = []

    def fit(evidence, of, ranks):
        used.append(evidence.instance[of].tolist())
        if len(used) == 2:
            raise StopIteration
        return SimpleNamespace(component=np.arange(2)), {}, SimpleNamespace()

    monkeypatch.setattr(clocks, "_fit_with_jumps", fit)
    with pytest.raises(StopIteration):
        _solved(usable, ranks)
    assert used == [[1, 2], [1, 2, 5]]


def test_small_things():
    assert _heaviest(np.array([4, 2, 4, 9]), np.array([1, 5, 3, 2])) == 2
    assert (_rounded(1.2), _rounded(np.inf)) == (2, None)
    assert (_scatter(np.array([3.0, 3.0])), _scatter(np.array([0.0, 0.0, 0.0])), _scatter(np.full(3, 100.0))) == (
        None,
        1,
        148,
    )
    assert _named(["a", "b", "c", "d"]) == "a, b, c, d"
    assert _named(list("abcdef")) == "a, b, c, d and 2 more hosts"
    hosts = [
        Clock(host, offset, 0.0, None, 0, component, None)
        for host, offset, component in (("a", 0, 0), ("b", 7, 0), ("c", 9, 1))
    ]
    solution = Solution(tuple(hosts), {}, {}, {})
    assert [_typical(solution, clock) for clock in hosts] == [0, 0, 9]


@dataclass
class Fit:
    clocks: Clocks
    component: np.ndarray


def test_components_are_joined_by_the_tightest_messages_first():
    # the clock of rank 1 is 1,000 ahead of rank 0's, that of rank 2 5,000; sender, receiver, and when each ends by its
    # clock
    sent = [
        (0, 1, 0, 1_100),
        (1, 0, 1_200, 300),
        (1, 2, 1_000, 5_020),
        (2, 1, 5_050, 1_070),
        (0, 2, 0, 5_500),
        (2, 0, 5_000, 500),
    ]
    rank = np.array([r for one, other, _, _ in sent for r in (one, other)])
    end = np.array([t for _, _, *times in sent for t in times])
    direction = np.tile(np.array([1, -1], np.int8), 6)
    evidence = SimpleNamespace(instance=np.repeat(np.arange(6), 2), direction=direction, rank=rank, end=end)
    fit = Fit(Clocks(np.zeros(3), np.zeros(3), 0.0), np.arange(3))
    state = SimpleNamespace(fit=fit, widths=np.zeros(3), messages=np.zeros(3, np.int64))
    _join_by_messages(state, evidence)
    assert state.fit.clocks.ahead_ns.tolist() == [0.0, 1_000.0, 5_000.0]
    assert state.fit.component.tolist() == [0, 0, 0]
    assert state.widths.tolist() == [0.0, 100.0, 120.0]
    assert state.messages.tolist() == [2, 4, 4]
    joined = state.fit
    _join_by_messages(state, evidence)
    assert state.fit is joined
