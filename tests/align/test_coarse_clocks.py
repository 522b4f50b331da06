"""Ranks that are connected one by one: which are together, under which number, and how their times relate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from alltrace.align.coarse_clocks import _connect, _to_root, rank_clocks
from alltrace.align.host_offsets import HostOffset
from alltrace.align.pairwise_clock_fit import ClockLine
from alltrace.align.spilled_operations import SpilledOperations
from tests.align.collectives import Made, pipeline, simulated, table_of

from alltrace.align import coarse_clocks
from alltrace.align.disjoint_sets import DisjointSets


def test_ranks_are_connected_as_a_forest_whose_trees_are_the_sets_of_connected_ranks():
    draw = np.random.default_rng(0)
    ranks = draw.permutation(40)[:25].tolist()
    component, parent = DisjointSets(40), {}
    for _ in range(40):
        first, second = draw.choice(ranks, 2).tolist()
        if component.of(first) != component.of(second):
            _connect(first, second, a_course(draw), component, parent)
        roots = {}
        for rank in ranks:
            node = rank
            while node in parent:
                node = parent[node][0]
            roots[rank] = node
        assert all((component.of(a) == component.of(b)) == (roots[a] == roots[b]) for a in ranks for b in ranks)
    assert len(parent) == len(ranks) - len(set(roots.values()))


def a_course(draw):
    return ClockLine(float(draw.normal(0, 1e8)), float(draw.normal(0, 1e-4)), float(draw.uniform(1e12, 2e12)), 500.0, 9, 0.9, 0.8)


@pytest.mark.parametrize("seed", range(10))
def test_relations_along_a_tree_are_what_applying_each_in_turn_gives(seed):
    draw = np.random.default_rng(seed)
    ranks = draw.permutation(60)[:30].tolist()
    parent = {rank: (ranks[int(draw.integers(0, place))], a_course(draw)) for place, rank in enumerate(ranks) if place}
    to_root = _to_root(parent)
    times = draw.uniform(1e12, 2e12, 5)
    assert set(to_root) == set(ranks[1:])
    for rank, whole in to_root.items():
        expected, node, depth = times, rank, 0
        while node in parent:
            node, line = parent[node]
            expected, depth = line.apply(expected), depth + 1
        assert whole.apply(times) == pytest.approx(expected, abs=1e-2, rel=0)
        assert whole.scale_ns == pytest.approx(500.0 * depth**0.5)
        assert whole.certainty == 0.8


def test_a_chain_is_gone_through_once(monkeypatch):
    chain = {rank: (rank - 1, ClockLine(1.0, 0.0, 0.0, 3.0, 1, 1.0, 1.0)) for rank in range(1, 2_001)}
    calls = []
    then = ClockLine.then
    monkeypatch.setattr(ClockLine, "then", lambda inner, outer: calls.append(1) or then(inner, outer))
    found = _to_root(dict(sorted(chain.items(), reverse=True)))
    assert found[2_000].offset_ns == 2_000
    assert len(calls) == 1_999


def both(made, folder, most):
    """The timelines of a run in memory and in files."""
    spilled = SpilledOperations(folder / "operations", len(made.tables), most)
    for rank in sorted(made.tables):
        spilled.add(rank, made.tables[rank])
    return [HeldTimelines(flatten(made.tables, made.texts, {})), spilled.timelines(made.texts)]


def apart(made, clocks):
    """How far the ends of each true instance are apart with these clocks, ns."""
    ends: dict[int, list[float]] = {}
    for rank, table in made.tables.items():
        for end, instance in zip(table.column("end").to_numpy().tolist(), made.truth[rank].tolist(), strict=True):
            ends.setdefault(instance, []).append(clocks[rank].common(end))
    return np.array([max(e) - min(e) for e in ends.values()])


@pytest.mark.parametrize("tensor", [1, 4])
@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
def test_all_ranks_are_on_one_clock(tmp_path, tensor, named):
    made = simulated(3, ranks=16, tensor=tensor, steps=40, offset_ns=0.5e9, drift=50e-6)
    made = made if named else made.without("communicator")
    found = [rank_clocks(timelines, made.shifts_ns, {r: f"host {r}" for r in range(16)}) for timelines in both(made, tmp_path, 300)]
    assert found[0] == found[1]
    assert sorted(found[0]) == list(range(16))
    assert {c.component for c in found[0].values()} == {0}
    assert np.quantile(apart(made, found[0]), 0.95) < 6_000  # recorded ends scatter by 2,000
    assert max(c.rate for c in found[0].values()) - min(c.rate for c in found[0].values()) > 30e-6


def test_stages_that_only_meet_their_neighbours(tmp_path):
    made = pipeline(5, stages=6)
    for timelines in both(made, tmp_path, 200):
        assert np.quantile(apart(made, rank_clocks(timelines, made.shifts_ns)), 0.9) < 20_000


def test_ranks_of_two_jobs_are_components(tmp_path):
    made = simulated(1, ranks=4, steps=20)
    for rank, table in made.tables.items():
        name = f"job {rank // 2}"
        made.names.append(name)
        named = table_of(communicator=[name] * table.num_rows).column("communicator")
        made.tables[rank] = table.set_column(table.column_names.index("communicator"), "communicator", named)
    for timelines in both(made, tmp_path, 100):
        found = rank_clocks(timelines, made.shifts_ns)
        assert [found[r].component for r in range(4)] == [0, 0, 2, 2]
        for ranks in ([0, 1], [2, 3]):
            its = replace(made, tables={r: made.tables[r] for r in ranks})
            assert np.quantile(apart(its, found), 0.95) < 6_000


def test_ranks_without_operations_have_no_clock(tmp_path):
    made = simulated(1, ranks=4, tensor=2, steps=20)
    for rank in (2, 3):
        made.tables[rank] = made.tables[rank].slice(0, 0)
    for timelines in both(made, tmp_path, 100):
        assert sorted(rank_clocks(timelines, made.shifts_ns)) == [0, 1]


def periodic(ahead_ns, sequences):
    """Ranks whose steps are exactly alike; each is ahead by so much and has these sequence numbers."""
    ends = np.arange(1, 101) * 10_000_000
    tables = {
        rank: table_of(
            start=ends + ahead - 1_000_000,
            end=ends + ahead,
            op=["AllReduce"] * 100,
            communicator=["group"] * 100,
            sequence=sequence,
            evidence=["trace"] * 100,
        )
        for rank, (ahead, sequence) in enumerate(zip(ahead_ns, sequences, strict=True))
    }
    return Made(tables, dict.fromkeys(tables, np.arange(100)), dict.fromkeys(tables, 0), ["group"])


def test_sequence_numbers_decide_where_steps_are_alike(tmp_path):
    made = periodic((0, 32_000_000, -25_000_000), [range(100)] * 3)
    for timelines in both(made, tmp_path, 100):
        found = rank_clocks(timelines, made.shifts_ns)
        assert apart(made, found).max() < 1
        assert [c.certainty for c in found.values()] == [1.0] * 3


def test_sequence_numbers_that_several_operations_share_are_not_used(tmp_path):
    twice = np.concatenate((np.repeat(np.arange(45), 2), np.arange(45, 55)))
    made = periodic((0, 32_000_000), [twice, twice])
    # of those with equal numbers, the second rank lost the first one
    lost = np.isin(np.arange(100), np.arange(0, 90, 2))
    made.tables[1] = made.tables[1].filter(pa.array(~lost))
    made.truth[1] = made.truth[1][~lost]
    for timelines in both(made, tmp_path, 100):
        assert apart(made, rank_clocks(timelines, made.shifts_ns)).max() < 1


def test_sequence_numbers_that_contradict_the_times_are_not_used(tmp_path):
    made = simulated(3, ranks=2, steps=40)
    rng = np.random.default_rng(0)
    for rank, table in made.tables.items():
        numbers = table_of(sequence=rng.permutation(table.num_rows), evidence=["trace"] * table.num_rows)
        for name in ("sequence", "evidence"):
            table = table.set_column(table.column_names.index(name), name, numbers.column(name))
        made.tables[rank] = table
    for timelines in both(made, tmp_path, 100):
        assert np.quantile(apart(made, rank_clocks(timelines, made.shifts_ns)), 0.95) < 6_000


@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
def test_without_names_a_clock_is_no_surer_than_its_host(tmp_path, monkeypatch, named):
    made = simulated(3, ranks=4, steps=40, ranks_per_clock=2)
    made = made if named else made.without("communicator")
    monkeypatch.setattr(coarse_clocks, "_host_offsets", lambda *_: {"a": HostOffset(0.0, 1.0), "b": HostOffset(0.0, 0.3)})
    for timelines in both(made, tmp_path, 100):
        found = rank_clocks(timelines, made.shifts_ns, {0: "a", 1: "a", 2: "b", 3: "b"})
        assert [c.certainty < 0.5 for c in found.values()] == [False, False, not named, not named]


def test_times_of_so_many_ranks_are_kept_as_are_allowed(tmp_path, monkeypatch):
    made = simulated(2, ranks=12, steps=30, tensor=2)
    timelines = both(made, tmp_path, 300)[1]
    expected = rank_clocks(timelines, made.shifts_ns)
    asked = []
    real = timelines.of
    timelines.of = lambda rank: asked.append(rank) or real(rank)
    timelines.ranks_at_once = 2
    assert rank_clocks(timelines, made.shifts_ns) == expected
    few = len(asked)
    asked.clear()
    timelines.ranks_at_once = 64
    rank_clocks(timelines, made.shifts_ns)
    assert len(asked) == 12 < few
