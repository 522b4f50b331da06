"""Which evidence clocks are made from."""

from __future__ import annotations

import numpy as np

from alltrace.align.clock_sharing import PlacedRank
from alltrace.align.clocks import Solution, _heaviest, _named, _rounded, _scatter, _typical, _usable
from alltrace.align.members import EXCHANGE, Evidence
from alltrace.run.manifest import Clock


def test_operations_that_are_too_short_or_of_hosts_apart_are_no_evidence():
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
    rows = _usable(evidence, ranks, ())
    assert rows.at.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert rows.start[[0, 2]].tolist() == [100.0, 22_000.0]
    assert rows.end[[0, 2]].tolist() == [1_099.0, 27_000.0]
    assert rows.synchronising.tolist() == [1, 2]
    assert rows.exchanges.tolist() == [5]
    assert rows.messages.tolist() == [6, 7]
    assert _usable(evidence, ranks, {"b"}).synchronising.tolist() == [1]
    assert _usable(evidence, ranks, {"a"}).messages.tolist() == []


def test_small_things():
    assert _heaviest(np.array([4, 2, 4, 9]), np.array([1, 5, 3, 2])) == 2
    assert (_rounded(1.2), _rounded(np.inf)) == (2, None)
    assert (_scatter(np.array([3.0, 3.0])), _scatter(np.array([0.0, 0.0, 0.0])), _scatter(np.full(3, 100.0))) == (None, 1, 148)
    assert _named(["a", "b", "c", "d"]) == "a, b, c, d"
    assert _named(list("abcdef")) == "a, b, c, d and 2 more hosts"
    clocks = [
        Clock(host, offset, 0.0, None, 0, component, None) for host, offset, component in (("a", 0, 0), ("b", 7, 0), ("c", 9, 1))
    ]
    solution = Solution(tuple(clocks), {}, {}, {})
    assert [_typical(solution, clock) for clock in clocks] == [0, 0, 9]
