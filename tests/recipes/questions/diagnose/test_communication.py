"""The result for each rank and communicator equals a search over all members for it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from alltrace.recipes.analysis.network_state import Adapter, NetworkState
from alltrace.recipes.questions.diagnose import communication
from alltrace.recipes.questions.diagnose import late_ranks as late
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts, Members
from alltrace.recipes.questions.diagnose.finding import Finding, Loss
from alltrace.recipes.questions.diagnose.gaps import CLASSES
from alltrace.recipes.questions.diagnose.slow_communicators import SlowCommunicator, SlowLink

STEPS, STEP_NS = 3, 1_000


def made(seed):
    """Random members of five ranks, of which one has none, and the facts of all ranks with them."""
    draw = np.random.default_rng(seed)
    count = 200
    rank, step = draw.choice([0, 1, 3, 4], count), draw.integers(0, STEPS, count)
    group = draw.integers(0, 5, count)
    instance = np.sort(draw.integers(0, 60, count))
    start = step * STEP_NS + draw.integers(0, 900, count)
    length = draw.integers(1, 100, count)
    op = draw.choice(np.array(["AllReduce", "AllGather", "ReduceScatter"], object), count)
    last = start + draw.integers(0, 2, count)
    stream = np.where(rank == 3, 7, draw.integers(7, 9, count))
    names = (
        "instance",
        "communicator",
        "rank",
        "step",
        "stream",
        "size",
        "row",
        "op",
        "start",
        "end",
        "last_arrival",
        "transfer",
    )
    values = (
        instance,
        group,
        rank,
        step,
        stream,
        np.full(count, 1 << 20),
        np.arange(count),
        op,
        start,
        start + length,
        last,
        length,
    )
    more = {"waited": length, "moved": length, "fact": np.ones(count, bool), "certain": np.ones(count, bool)}
    more["keeps_host"] = np.zeros(count, bool)
    members = Members(**dict(zip(names, values, strict=True)), **more)
    regions = np.stack((np.arange(STEPS), np.arange(1, STEPS + 1)), axis=1) * STEP_NS
    all_ranks = AllRankFacts.__new__(AllRankFacts)
    all_ranks.facts = {
        r: SimpleNamespace(steps=np.arange(STEPS), regions=regions + r, times=np.ones((STEPS, len(CLASSES))))
        for r in range(5)
    }
    all_ranks.ranks, all_ranks.steps, all_ranks.hosts = (
        np.arange(5),
        np.arange(STEPS),
        {r: f"h{r // 2}" for r in range(5)},
    )
    groups = [
        SimpleNamespace(number=n, name=f"g{n}", size=2, ranks=r)
        for n, r in enumerate([(0, 1), (2, 3), (1, 2), (3, 4), (0, 4)])
    ]
    all_ranks.alignment, all_ranks.roles = SimpleNamespace(groups=groups), {}
    all_ranks.__dict__ |= {"members": members, "span_ns": STEPS * STEP_NS}
    all_ranks.__dict__ |= {"own": np.ones((5, STEPS)), "doubt": None, "_recovery": None, "clocks_unknown": False}
    all_ranks.__dict__ |= {"times": np.ones((5, STEPS, len(CLASSES))), "lengths": np.full(STEPS, float(STEP_NS))}
    return all_ranks, members


@pytest.mark.parametrize("seed", range(5))
def test_gradients_are_of_communicators_and_operations_that_begin_late(seed):
    all_ranks, members = made(seed)
    begins = (members.start - members.step * STEP_NS - members.rank) / STEP_NS
    found = np.zeros(len(begins), bool)
    for number in range(5):
        for op in ("AllReduce", "ReduceScatter"):
            rows = (members.communicator == number) & (members.op == op)
            found[rows] = rows.any() and np.percentile(begins[rows], 5) >= communication._GRADIENTS_BEGIN
    assert communication._gradients(all_ranks, members).tolist() == found.tolist()


def slow(ratio, peers, lost_ns, *rates):
    return SlowCommunicator((ratio, ratio, ratio), 0.0, 0.0, peers, lost_ns, 1_000.0, *rates)


@pytest.mark.parametrize(
    ("rank", "communicators", "kind", "ranks", "where", "advice"),
    [
        (1, (0, 2), "low-bandwidth", (1,), "g2, g0", "Communicators of rank 1 are slow {} network and NVLink {}"),
        (1, (0,), "low-bandwidth", (1,), "g0", "Communicators of rank 1 of its host are slow {} NVLink and PCIe {}"),
        (1, (2,), "low-bandwidth", (1,), "g2", "Communicators of rank 1 between hosts are slow {} network {}"),
        (
            None,
            (0, 2),
            "slow-communicator",
            (0, 1, 2),
            "g2, g0",
            "Transfers of g2, g0 take 2.0 times as long as elsewhere; check the links of its ranks.",
        ),
    ],
)
def test_each_cause_of_slow_transfers_is_a_finding(rank, communicators, kind, ranks, where, advice, monkeypatch):
    all_ranks, members = made(0)
    every = {0: slow(4.0, 3, 10.0), 2: slow(2.0, 1, 20.0, 5.0, 10.0)}
    causes = [SlowLink(rank, {n: every[n] for n in communicators}), SlowLink(None, {3: slow(5.0, 2, 5.0)})]
    monkeypatch.setattr(communication, "slow_links", lambda *_: causes)
    findings, excess, shares = communication._slow(all_ranks, members)
    assert shares == {n: 1 - 1 / one.ratio for cause in causes for n, one in cause.slow.items()}
    parts = np.array([shares.get(n, 0.0) for n in members.communicator.tolist()])
    assert excess.tolist() == (members.moved * parts).astype(int).tolist()
    one, other = findings
    assert (one.kind, one.ranks, one.where) == (kind, ranks, where)
    assert one.advice == advice.format("and those without it are not; check its", "connections.")
    costliest = communicators[-1]
    assert one.confidence == pytest.approx({0: 0.9 - 0.1 / 3, 2: 0.8}[costliest])
    rates = {"busbw_gb_per_s": 5.0, "peers_busbw_gb_per_s": 10.0} if 2 in communicators else {}
    assert one.evidence == {"slowdown": every[costliest].ratio, "communicators": len(communicators), **rates}
    assert (other.kind, other.ranks, other.where) == ("slow-communicator", (3, 4), "g3")
    assert one.loss.estimate_ns != other.loss.estimate_ns > 0


def test_who_queues_is_told_by_operations_and_not_by_what_they_take(monkeypatch):
    all_ranks, members = made(0)
    count = len(members.rank)
    moved = np.where(members.rank == 4, 10, 100)  # which waits for a late rank most of the time
    start = np.zeros(count, np.int64)
    for rank in (0, 1, 3, 4):
        mine = np.flatnonzero(members.rank == rank)
        start[mine] = 20 * np.arange(len(mine))
    stream = np.where(start, 7, 8)
    members = replace(members, start=start, end=start + 20, stream=stream, moved=moved)
    all_ranks.__dict__ |= {"members": members}
    monkeypatch.setattr(communication, "_needs", lambda all_ranks, members, after, ahead: np.zeros(len(after), bool))
    queued, (one,) = communication._serialized(all_ranks, members, moved // 2, {})
    assert one.ranks == (0, 1, 3, 4)
    for rank in (0, 1, 3, 4):  # all but the first in a row, on a stream
        own = members.communicator[members.rank == rank]
        assert queued[members.rank == rank].tolist() == [False, *(own[2:] != own[1:-1]).tolist(), False]
    # what a slow link takes too long is no queue's
    waited = np.bincount(members.rank, (moved - moved // 2) * queued)[[0, 1, 3, 4]] / STEPS
    assert one.evidence == {"queued": queued.sum(), "waited_ns_per_step": round(waited.mean())}


@pytest.mark.parametrize("rates", [{"h0": 24.0, "h1": 12.0, "h2": 24.0}, {"h0": 24.0, "h1": 23.0, "h2": 24.0}])
def test_communicators_over_a_host_wait_for_its_slow_adapter(rates):
    all_ranks, members = made(0)
    all_ranks.__dict__["networks"] = {
        h: NetworkState(adapters=(Adapter("mlx5_2", 4.0, rate),)) for h, rate in rates.items()
    }
    excess, shares = np.zeros(len(members.rank), np.int64), {3: 0.25}
    found = communication._slow_adapters(all_ranks, members, excess, shares)
    if rates["h1"] == 23.0:
        assert (found, shares, excess.any()) == ([], {3: 0.25}, False)
        return
    (one,) = found
    # the communicator of ranks 1 and 2; that of ranks 3 and 4 has another cause, the others lie elsewhere
    assert shares == {2: 0.5, 3: 0.25}
    assert excess.tolist() == np.where(members.communicator == 2, members.moved // 2, 0).tolist()
    assert (one.kind, one.ranks, one.hosts, one.where) == ("low-bandwidth", (2, 3), ("h1",), "adapter mlx5_2")
    assert one.evidence == {"gb_per_s": 12.0, "peers_gb_per_s": 24.0, "adapters": 1.0}
    assert (
        one.advice
        == "Communication between hosts waits for adapter mlx5_2 of h1, which carries as much as the others at 50 % of"
        " their rate; check its link and cable."
    )


@pytest.mark.parametrize(("begins", "late"), [(299, False), (300, True), (600, True)])
def test_gradients_begin_from_three_tenths_of_a_step_on(begins, late):
    all_ranks, members = made(0)
    start = members.step * STEP_NS + members.rank + np.where(members.communicator == 1, begins, 0)
    gradients = communication._gradients(all_ranks, replace(members, start=start))
    reduced = np.isin(members.op.astype(str), ("AllReduce", "ReduceScatter"))
    assert gradients.tolist() == (late & (members.communicator == 1) & reduced).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_who_arrives_last_is_told_by_the_members_of_each_rank(seed, monkeypatch):
    all_ranks, members = made(seed)
    monkeypatch.setattr(late, "_LEAST_LAST", 1e-9)
    monkeypatch.setattr(late, "_LEAST_EXCESS", 0.0)
    waited = set(members.instance[members.last_arrival > members.start].tolist())
    last = np.isin(members.instance, list(waited)) & (members.start >= members.last_arrival)
    shares = {f.ranks[0]: f.evidence["last_share"] for f in late.find(all_ranks, ())}
    wanted = {r: (last & (members.rank == r)).sum() / len(waited) for r in range(5)}
    assert shares == {r: round(float(s), 3) for r, s in wanted.items() if s}
    # a rank whose own time another finding knows is late for that reason, whether or not it costs anything
    chosen, excess = next(iter(shares)), 100 * all_ranks.own.shape[1]
    monkeypatch.setattr(all_ranks, "excess", lambda own: np.full(own.shape, 100.0))
    for held, left in ((excess, shares.keys() - {chosen}), (excess // 4, shares.keys())):
        known = [Finding("allocation", Loss(0, "replay", ("allocation",), held, held), (chosen,), "cudaFree", "")]
        assert {f.ranks[0] for f in late.find(all_ranks, (), known)} == set(left)


@pytest.mark.parametrize(
    ("ahead", "after", "needs"), [(100, 100, True), (100, 399, True), (100, 401, False), (401, 100, False)]
)
def test_reductions_of_unknown_size_that_differ_in_time_carry_different_data(ahead, after, needs):
    groups = [SimpleNamespace(number=0, size=2, ranks=(0, 1)), SimpleNamespace(number=1, size=2, ranks=(0, 2))]
    all_ranks = SimpleNamespace(
        alignment=SimpleNamespace(groups=groups), carries_on=lambda rank, row, ahead: np.zeros(len(rank), bool)
    )
    members = SimpleNamespace(
        communicator=np.array([0, 1]),
        op=np.array(["AllReduce"] * 2, object),
        size=np.zeros(2, np.int64),
        transfer=np.array([ahead, after]),
        rank=np.zeros(2, np.int64),
        row=np.arange(2),
    )
    assert communication._needs(all_ranks, members, np.array([1]), np.array([0])).tolist() == [needs]


@pytest.mark.parametrize(("sizes", "needs"), [((8, 8), [False, False]), ((8, 9), [False, True])])
def test_what_is_once_sent_before_another_operation_ends_never_needs_it(sizes, needs):
    groups = [SimpleNamespace(number=0, size=2, ranks=(0, 1)), SimpleNamespace(number=1, size=2, ranks=(0, 2))]
    all_ranks = SimpleNamespace(
        alignment=SimpleNamespace(groups=groups), carries_on=lambda rank, row, ahead: np.array([False, True])
    )
    members = SimpleNamespace(
        communicator=np.array([0, 1, 0, 1]),
        op=np.array(["AllReduce"] * 4, object),
        size=np.array([100, sizes[0], 100, sizes[1]]),
        transfer=np.full(4, 10),
        rank=np.zeros(4, np.int64),
        row=np.arange(4),
    )
    assert communication._needs(all_ranks, members, np.array([1, 3]), np.array([0, 2])).tolist() == needs


def test_a_call_of_mpi_keeps_its_host_and_cannot_overlap(monkeypatch):
    members = SimpleNamespace(
        op=np.array(["AllGather"] * 3, object), keeps_host=np.array([True, False, False]), communicator=np.zeros(3)
    )
    monkeypatch.setattr(communication, "_gradients", lambda all_ranks, members: np.zeros(3, np.bool_))
    monkeypatch.setattr(communication, "_only_sent", lambda members: np.zeros(3, np.bool_))
    monkeypatch.setattr(communication, "_last", lambda members, *keys: np.zeros(3, np.bool_))
    assert communication._hideable(None, members).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("compute", "amounts", "found"),
    [(100, (40, 50), [7, 8]), (80, (40, 50), []), (100, (40, 10), [7]), (100, (40, 0), [7])],
)
def test_what_begins_behind_all_compute_could_have_begun_before(compute, amounts, found):
    members = SimpleNamespace(
        instance=np.array([7, 8]), step=np.zeros(2, np.int64), transfer=np.array([40, 50]), firsts=np.arange(2)
    )
    all_ranks = SimpleNamespace(
        steps=np.arange(1), of=lambda name: np.full((2, 1), compute * (name == "compute")), judges_hosts=False
    )
    assert communication._behind_compute(all_ranks, members, np.array(amounts)).tolist() == found


@pytest.mark.parametrize(
    ("hosts", "waits", "behind", "compute"),
    [(True, 30, [7], 90), (True, 20, [], 90), (False, 30, [], 90), (True, 30, [7], 35), (True, 30, [], 25)],
)
def test_of_a_ring_of_hosts_what_the_first_to_leave_waits_is_the_whole_transfer(hosts, waits, behind, compute):
    members = SimpleNamespace(
        instance=np.full(3, 7),
        step=np.zeros(3, np.int64),
        transfer=np.full(3, 40),
        firsts=np.array([0]),
        last_arrival=np.full(3, 100),
        end=np.array([140, 130, 136]),
    )
    all_ranks = SimpleNamespace(steps=np.arange(1), of=lambda name: np.full((3, 1), compute), judges_hosts=hosts)
    assert communication._behind_compute(all_ranks, members, np.array([40, waits, 36])).tolist() == behind


@pytest.mark.parametrize(("share", "withheld"), [(0.0, False), (0.1, False), (0.2, True)])
def test_without_sizes_a_wait_that_a_slow_link_may_cause_is_withheld(share, withheld, monkeypatch):
    all_ranks, members = made(0)
    manifest = SimpleNamespace(reports=[SimpleNamespace(profiler="Nsight Systems 2025.3")])
    all_ranks.alignment.run = SimpleNamespace(manifest=manifest)
    monkeypatch.setattr(communication, "possible_excess", lambda *_: np.full(len(members.rank), share))
    exposed = Finding(
        "exposed-communication", Loss(700, "replay", ("communication",), 700, 700), (0,), "AllGather", "", {}, 0.7
    )
    found = communication._or_slow(exposed, all_ranks, members, members.moved)
    if not withheld:
        assert found is exposed
        return
    assert (
        found.loss.unknown
        == "messages are large or a link is slow, and no size tells which: no payload of NCCL's ranges gives it; "
        "import the job's NCCL logs with --nccl-log for it, or reports with payloads"
    )
    assert (found.loss.estimate_ns, found.loss.least_ns, found.confidence) == (
        700,
        700,
        0.5,
    )  # that time is lost either way
    doubted = replace(exposed, loss=replace(exposed.loss, unknown="in doubt"))
    assert communication._or_slow(doubted, all_ranks, members, members.moved) is doubted


@pytest.mark.parametrize(("least", "ranks"), [(0.06, (0, 1, 3, 4)), (0.04, (0, 1, 4))])
def test_all_ranks_that_wait_for_what_is_needed_at_once_are_its_culprits(least, ranks):
    all_ranks, members = made(0)
    amounts = np.array([1000, 1000, 0, 1000 * least, 1000])[members.rank].astype(np.int64)
    members = replace(
        members, op=np.full(len(members.rank), "AllToAll", object), instance=np.arange(len(members.rank)), moved=amounts
    )
    rows = np.concatenate([np.flatnonzero(members.rank == rank)[:20] for rank in (0, 1, 3, 4)])
    members = replace(members, **{name: getattr(members, name)[rows] for name in members.__dataclass_fields__})
    all_ranks.__dict__ |= {"members": members}
    none = np.zeros(len(members.rank), bool)
    (found,) = communication._needed_at_once(all_ranks, members, none.astype(np.int64), {}, none)
    assert (found.needed_at_once, found.ranks) == (True, ranks)


@pytest.mark.parametrize(("ranks", "amounts", "operations"), [(1, [10, 20, 0], 2.0), (3, [10, 20, 30, 40], 1.3)])
def test_exposed_operations_are_counted_for_each_rank_and_step(ranks, amounts, operations, monkeypatch):
    monkeypatch.setattr(communication, "_or_slow", lambda exposed, *_: exposed)
    all_ranks = SimpleNamespace(
        steps=np.arange(1), ranks=np.arange(ranks), spread=lambda amounts: np.full((ranks, 1), amounts.sum() / ranks),
        culprits=lambda *_: np.ones(ranks, np.bool_), of=lambda _: np.full((ranks, 1), 90.0),
        loss=lambda *_: Loss(5, "replay", ("communication",), 5, 5), waiting_ns=lambda _: 5,
    )  # fmt: skip
    members = SimpleNamespace(op=np.full(len(amounts), "AllGather", object), rank=np.arange(len(amounts)) % ranks)
    (found,) = communication._exposed_finding(all_ranks, members, np.array(amounts), None, "")
    assert found.evidence["operations_per_step"] == operations
    # of one culprit its own operations
    all_ranks.culprits = lambda *_: np.arange(ranks) == 0
    (of_one,) = communication._exposed_finding(all_ranks, members, np.array(amounts), None, "")
    assert of_one.evidence["operations_per_step"] == sum(a > 0 for a in amounts[::ranks])
