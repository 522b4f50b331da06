"""What the peers take, of arrays made by hand."""

from __future__ import annotations

from time import process_time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from alltrace.replay import path, peers
from alltrace.replay.peers import _transfers, _typical, likes
from alltrace.replay.rank_graph import COMPUTE, HOST


def exchanges(sizes, members=8):
    """Instances of these sizes, with a transfer of each member."""
    instance = np.repeat(np.arange(len(sizes)), members)
    table = pa.table(
        {
            "instance": instance,
            "op": pa.array(["AllToAll"] * len(instance)).dictionary_encode(),
            "bytes": np.repeat(sizes, members),
            "members": np.full(len(instance), members),
        }
    )
    return instance.astype(np.int32), table


def launches(hosts, *, sources, targets, ranks, steps, when):
    """A replay with arcs from waits of hosts to work that they launch."""
    graph = SimpleNamespace(source=np.array(sources), target=np.array(targets))
    return SimpleNamespace(
        graph=graph, host_ns=np.array(hosts), rank=np.array(ranks), step=np.array(steps), when=np.array(when),
    )  # fmt: skip


def test_time_of_a_host_is_from_each_wait_to_the_last_launch_of_each_step():
    # nodes: a wait of rank 3, its work in steps 0, 0, 1, 1, a second wait, its work in step 1, and a wait of rank 5
    # with work
    sources, targets = [0, 0, 0, 0, 5, 7, 0], [1, 2, 3, 4, 6, 8, 1]
    made = launches(
        [10, 30, 45, 70, 8, 90, 0], sources=sources, targets=targets, ranks=[3] * 7 + [5] * 2,
        steps=[0, 0, 0, 1, 1, 1, 1, 0, 0], when=range(9),
    )  # fmt: skip
    assert peers.host_time_ns(made, np.array([3, 5]), np.array([0, 1])).tolist() == [[30.0, 40.0 + 8.0], [90.0, 0.0]]


def test_launches_take_the_median_of_those_at_their_place():
    # each rank launches its work three times: the first and the last are compared, the others are in between
    first, last = [10, 20, 30], [110, 220, 330]
    middle = [60, 120, 180]
    hosts = [h for rank in zip(first, middle, last, strict=True) for h in rank]
    made = launches(
        hosts, sources=np.repeat([0, 2, 4], 3), targets=np.repeat([1, 3, 5], 3), ranks=[0, 0, 1, 1, 2, 2],
        steps=[0] * 6, when=[0, 500, 0, 500, 0, 500],
    )  # fmt: skip
    assert peers._host(made, np.arange(3), np.zeros(3, np.int64)).tolist() == [20, 120, 220] * 3
    # of two the faster shows what is possible
    assert peers._host(made, np.arange(3), np.array([0, 0, 1]))[:6].tolist() == [10, 60, 110] * 2


def test_launches_are_compared_some_steps_at_a_time(monkeypatch):
    # three ranks, each with a wait and four launches in each of five steps
    draw, ranks, steps, many = np.random.default_rng(1), 3, 5, 4
    size = ranks * steps
    first = (1 + many) * np.arange(size)
    targets = (first[:, None] + 1 + np.arange(many)).ravel()
    replay = launches(
        draw.integers(1, 1_000, size * many), sources=np.repeat(first, many), targets=targets,
        ranks=np.repeat(np.arange(ranks), steps * (1 + many)), when=np.arange(size * (1 + many)),
        steps=np.tile(np.repeat(np.arange(steps), 1 + many), ranks),
    )  # fmt: skip
    calls = []
    monkeypatch.setattr(peers, "_by_place", lambda *args, real=peers._by_place: (calls.append(args), real(*args)))
    alike = np.zeros(ranks, np.int64)
    together = peers._host(replay, np.arange(ranks), alike)
    monkeypatch.setattr(peers, "_ARCS_AT_ONCE", 2 * ranks * many)
    assert peers._host(replay, np.arange(ranks), alike).tolist() == together.tolist() != replay.host_ns.tolist()
    assert [len(np.unique(args[3])) for args in calls] == [5, 2, 2, 1]


@pytest.mark.parametrize(("waiting", "needless"), [([0], [0]), ([0, 1], []), ([0, 1, 2], []), ([], [])])
def test_waits_that_few_of_the_peers_have_are_needless(waiting, needless):
    # each of three ranks launches ten kernels; some hosts then wait for the last
    parts, kinds, ranks, sources, targets, base = [], [], [], [], [], []
    for rank in range(3):
        base.append(len(kinds))
        kinds += [HOST, COMPUTE, HOST]
        ranks += [rank] * 3
        if rank in waiting:
            sources.append(base[-1] + 1)
            targets.append(base[-1] + 2)
        parts.append(
            SimpleNamespace(
                when=np.array([0, 50, 60]), kind=np.array([HOST, COMPUTE, HOST]), launched=np.array([0, 5, 0]),
                cell_node=np.array([1]), cell_count=np.array([10]),
            )
        )  # fmt: skip
    graph = SimpleNamespace(source=np.array(sources, np.int64), target=np.array(targets, np.int64))
    replay = SimpleNamespace(
        graph=graph,
        kind=np.array(kinds),
        rank=np.array(ranks),
        step=np.zeros(9, np.int64),
        parts=parts,
        base=np.array(base),
    )
    found = peers._needless(replay, np.arange(3), np.zeros(3, np.int64))
    assert found.tolist() == [n in needless for n in waiting]


def test_of_two_a_wait_that_the_other_has_not_is_needless():
    part = SimpleNamespace(
        when=np.array([0, 50, 60]), kind=np.array([HOST, COMPUTE, HOST]), launched=np.array([0, 5, 0]),
        cell_node=np.array([1]), cell_count=np.array([10]),
    )  # fmt: skip
    graph = SimpleNamespace(source=np.array([1]), target=np.array([2]))
    replay = SimpleNamespace(
        graph=graph, kind=np.array([HOST, COMPUTE, HOST] * 2), rank=np.repeat([0, 1], 3), step=np.zeros(6, np.int64),
        parts=[part, part], base=np.array([0, 3]),
    )  # fmt: skip
    assert peers._needless(replay, np.arange(2), np.zeros(2, np.int64)).tolist() == [True]
    assert peers._needless(replay, np.arange(2), np.array([0, 1])).tolist() == [False]


def test_a_transfer_takes_the_median_of_its_like():
    _, members = exchanges([64, 128, 64], members=2)
    arcs = np.array([2, 0, -1, 1, 2, 0, 1])
    work = np.array([30, 10, 99, 5, 40, 20, 8])
    found = _transfers(SimpleNamespace(instance=arcs, work_ns=work), members)
    assert found.tolist() == [25, 25, 0, 6, 25, 25, 6]


def test_as_many_sizes_as_instances_cost_no_look_at_all_for_each():
    # as of an exchange of experts' tokens; each kind was looked for among all transfers
    instance, members = exchanges(np.arange(40_000))
    work = np.arange(len(instance))
    begin = process_time()
    found = _transfers(SimpleNamespace(instance=instance, work_ns=work), members)
    assert process_time() - begin < 8
    assert (found == 8 * instance.astype(np.int64) + 3).all()


@pytest.mark.parametrize("seed", range(5))
def test_launches_before_a_node_are_those_of_its_step(seed):
    draw = np.random.default_rng(seed)
    parts, steps = [], []
    for _ in range(3):
        when = np.sort(draw.choice(1000, 40, replace=False))
        kind = np.where(draw.random(40) < 0.5, HOST, COMPUTE)
        launched = np.where(kind == HOST, 0, when - draw.integers(0, 3, 40))
        cells = np.flatnonzero(kind == COMPUTE)
        cell = {"cell_node": cells, "cell_count": draw.integers(1, 4, len(cells))}
        parts.append(SimpleNamespace(when=when, kind=kind, launched=launched, **cell))
        steps.append(np.where(draw.random(40) < 0.1, -1, when // 200))
    replay = SimpleNamespace(parts=parts, base=np.array([1, 41, 81]), step=np.concatenate(([-1], *steps)))
    nodes = np.concatenate([np.flatnonzero(p.kind == HOST) + b for p, b in zip(parts, (1, 41, 81), strict=True)])[:-3]
    before, whole = peers._launched_before(replay, nodes)
    for n, node in enumerate(nodes.tolist()):
        part, own = parts[(node - 1) // 40], steps[(node - 1) // 40]
        count = np.zeros(40, np.int64)
        count[part.cell_node] = part.cell_count
        order = [i for i in np.argsort(part.launched, kind="stable").tolist() if part.kind[i] != HOST]
        done = np.cumsum([0, *count[order]])
        its = [i for i, at in enumerate(order) if own[at] == own[(node - 1) % 40]]
        first, last = (done[its[0]], done[its[-1] + 1]) if its else (0, 0)
        by_then = done[sum(part.launched[i] < part.when[(node - 1) % 40] for i in order)]
        assert (before[n], whole[n]) == (np.clip(by_then - first, 0, last - first), last - first)


@pytest.mark.parametrize("seed", range(3))
def test_slack_and_blame_are_of_the_nodes_of_each_rank(monkeypatch, seed):
    draw = np.random.default_rng(seed)
    sizes = [7, 0, 12]
    rank = np.repeat([-1, 4, 1, 2, -1], [1, *sizes, 3])
    slack, target = draw.integers(0, 99, len(rank)), draw.permutation(len(rank))
    work, host, count = draw.integers(0, 50, len(rank)), draw.integers(0, 50, len(rank)), len(rank)
    parts = [SimpleNamespace(rank=r, when=np.zeros(n)) for r, n in zip((4, 1, 2), sizes, strict=True)]
    instance = np.where(draw.random(count) < 0.3, 1, -1)
    graph = SimpleNamespace(nodes=count, target=target)
    replay = SimpleNamespace(
        graph=graph, weights=None, recorded=(None, None), instance=instance, rank=rank, kind=np.full(count, COMPUTE),
        parts=parts, base=np.array([1, 8, 8]), work_ns=work, host_ns=host,
    )  # fmt: skip
    monkeypatch.setattr(path, "slack_ns", lambda *_: slack)
    own = {r: [n for n in range(count) if rank[n] == r and n not in target[instance >= 0]] for r in (4, 1, 2)}
    assert path.rank_slack_ns(replay) == {r: min(slack[n] for n in its) for r, its in own.items() if its}
    monkeypatch.setattr(path, "longest_path", lambda *_: np.arange(count))
    monkeypatch.setattr(path, "work_factors", lambda *_: np.full(count, 0.5))
    taken = SimpleNamespace(host_ns=host // 2, transfer_ns=work // 3, pace=SimpleNamespace(of_peers=None))
    excess = np.where(instance >= 0, 0.0, work * 0.5 + host - host // 2)
    found, transfers = path.blame_ns(replay, taken)
    assert found == {r: float(excess[rank[target] == r].sum()) for r in (4, 1, 2)}
    assert transfers == (work - work // 3)[instance >= 0].sum()


def test_what_corresponds_takes_its_median_and_of_two_the_lower():
    found = _typical(
        np.array([[0, 0, 0, 1, 2, 2, 3, 3, 3, 3]]), np.array([5.0, 1.0, 9.0, 4.0, 3.0, 7.0, 1.0, 2.0, 4.0, 9.0])
    )
    assert found[[0, 1, 2, 4, 5, 6, 7, 8, 9]].tolist() == [5.0, 5.0, 5.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    assert np.isnan(found[3])
    two = _typical(np.array([[0, 0, 0], [0, 1, 0]]), np.array([5.0, 1.0, 9.0]))
    assert (two[0], two[2], np.isnan(two[1])) == (5.0, 5.0, True)


def test_instances_are_alike_by_operation_size_and_members():
    members = pa.table({
        "instance": [0, 0, 1, 2, 4, 5],
        "op": pa.array(["a", "a", "a", "b", "a", "a"]).dictionary_encode(),
        "bytes": pa.array([8, 9, 8, 8, None, 8], pa.int64()),
        "members": [2, 2, 2, 2, 2, 3],
    })  # fmt: skip
    found = likes(members).tolist()
    assert found[0] == found[1]
    assert len({found[0], found[2], found[4], found[5]}) == 4
    assert found[3] == -1
    assert likes(members.slice(0, 0)).tolist() == []
