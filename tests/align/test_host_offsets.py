from __future__ import annotations

import numpy as np
import pytest

from alltrace.align import host_offsets as module
from alltrace.align.host_offsets import HostOffset, _Forest, host_offsets
from alltrace.align.pairwise_clock_fit import ends_of

HOSTS = 40
WINDOW_NS = 1.5e9


def steps(offset_ns, seed, keys=1):
    """Ends of 60 operations of one kind at times of their own, as a host `offset_ns` ahead stamps them."""
    draw = np.random.default_rng(seed)
    return ends_of(1e12 + np.cumsum(draw.uniform(1e6, 9e6, 60)) + offset_ns, np.full(60, keys, np.int64))


@pytest.fixture
def asked(monkeypatch):
    """The pairs of hosts that are compared."""
    pairs = []
    real = module._between

    def between(ends, of_ranks, window):
        pairs.append(of_ranks)
        return real(ends, of_ranks, window)

    monkeypatch.setattr(module, "_between", between)
    return pairs


def test_each_host_is_related_to_a_near_one_that_shares_a_communicator(asked):
    # two chains: even hosts share a communicator, odd ones another, and the first two hosts a third
    ends = {h: steps(h * 3e8, seed=h % 2 if h > 1 else 7) for h in range(HOSTS)}
    ends[0], ends[1] = (
        ends_of(np.concatenate((e.time, steps(h * 3e8, h).time)), np.ones(120, np.int64)) for h, e in list(ends.items())[:2]
    )
    sharing = {h: {h % 2, *([2] if h < 2 else [])} for h in range(HOSTS)}
    found = host_offsets(ends, {h: f"n{h}" for h in range(HOSTS)}, sharing, WINDOW_NS)
    assert [round(found[f"n{h}"].shift_ns / 1e3) for h in range(HOSTS)] == [-h * 300_000 for h in range(HOSTS)]
    assert len(asked) == HOSTS - 1


def test_hosts_that_share_no_communicator_are_not_compared(asked):
    found = host_offsets(
        {h: steps(0.0, h) for h in range(HOSTS)}, {h: f"n{h}" for h in range(HOSTS)}, {h: {h} for h in range(HOSTS)}, WINDOW_NS
    )
    assert asked == []
    assert [f.certainty for f in found.values()] == [1.0] + [0.0] * (HOSTS - 1)
    assert {f.shift_ns for f in found.values()} == {0.0}


@pytest.mark.parametrize("told", [(), (0,)])
def test_hosts_whose_ends_never_coincide_are_each_compared_with_few(monkeypatch, told):
    pairs = []
    monkeypatch.setattr(module, "_between", lambda _ends, of_ranks, _window: pairs.append(of_ranks[0]))
    host_offsets(
        {h: steps(0.0, h) for h in range(HOSTS)},
        {h: f"n{h}" for h in range(HOSTS)},
        {h: set(told) for h in range(HOSTS)},
        WINDOW_NS,
    )
    assert len(pairs) == len(set(pairs))
    assert len(pairs) <= 2 * HOSTS * module._MOST_HOSTS


def test_groups_of_hosts_that_take_turns_are_told_apart():
    ends = {h: steps(h * 1e8, seed=h % 4) for h in range(16)}
    found = host_offsets(ends, {h: f"n{h}" for h in range(16)}, {}, WINDOW_NS)
    for h in range(16):
        assert found[f"n{h}"].shift_ns == pytest.approx(-(h - h % 4) * 1e8, abs=1e3)
    assert [f.certainty > 0.8 for f in found.values()] == [h % 4 == 0 for h in range(16)]


def test_a_host_is_compared_first_with_the_one_as_far_away_as_in_the_last_pair():
    forest = _Forest(12)
    for host in range(12):
        if host == 6:
            assert forest.candidates(host, [7])[:3] == [5, 4, 3]
            forest.connect(2, 6, HostOffset(0.0, 1.0))
        if host in (7, 8):
            assert forest.candidates(host, [7])[:3] == [host - 4, host - 1, host - 2]
            forest.connect(host - 4, host, HostOffset(0.0, 1.0))
        forest.add(host, [7])
