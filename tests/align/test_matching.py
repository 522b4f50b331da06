"""Which operations are one instance: against the truth of made-up runs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from tests.align.collectives import LAYOUTS, Made, collected, pipeline, quality, simulated, table_of
from tests.align.tables import match_tables

from alltrace.align import matching
from alltrace.align.related_clocks import Placing
from alltrace.api import open_run
from alltrace.run.overlay import MEMBERS
from alltrace.synth import write_run

ANONYMOUS = ("communicator", "bytes", "group_size")


@pytest.fixture(scope="module", params=LAYOUTS)
def planted(request, tmp_path_factory):
    """A run of simulated reports, as collected, and what was planted."""
    folder = tmp_path_factory.mktemp("planted")
    truth = write_run(
        folder=folder / "reports", ranks=8, hosts=2, steps=10, seed=17, **LAYOUTS[request.param], ideal=True
    )
    made = collected(open_run(folder / "reports", cache_dir=folder / "cache"), truth)
    return request.param, made


def matched(made, *, stamped=True):
    return match_tables(made.tables, made.texts, made.shifts_ns if stamped else None)


def confidences(matching):
    return set(np.round(matching.members.column("confidence").to_numpy(), 3).tolist())


def hand_made(ends, *, ops=None, sizes=None, names=None, duration=50_000, **more):
    """A run of ranks whose operations end at these times, in microseconds."""
    tables, truth = {}, {}
    for rank, mine in enumerate(ends):
        stop = np.array([e for e, _ in mine]) * 1000
        tables[rank] = table_of(
            start=stop - duration,
            end=stop,
            communicator=(names or {}).get(rank, ["c"] * len(mine)),
            op=(ops or {}).get(rank, ["AllReduce"] * len(mine)),
            bytes=(sizes or {}).get(rank, [1024] * len(mine)),
            stream=[7] * len(mine),
            **{k: v[rank] for k, v in more.items()},
        )
        truth[rank] = np.array([t for _, t in mine])
    return Made(tables, truth, dict.fromkeys(tables, 0), ["c", "d"])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("tensor", [1, 4])
@pytest.mark.parametrize("seed", range(5))
def test_equal_operations_with_drops_and_a_late_start_are_never_shifted(seed, tensor, stamped):
    made = simulated(seed, ranks=8, tensor=tensor, steps=30).dropped(0.05, seed + 100, {seed: 0.4})
    found = matched(made, stamped=stamped)
    precision, recall = quality(found, made)
    assert precision == 1.0
    assert recall >= 0.99
    assert len(found.groups) == (1 if tensor == 1 else 6)
    assert confidences(found) == {0.98}
    assert found.members.schema == MEMBERS.arrow_schema()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
def test_without_identity_communicators_are_inferred(seed):
    made = simulated(seed, ranks=8, tensor=4, steps=30).dropped(0.05, seed, {3: 0.4}).without(*ANONYMOUS)
    found = matched(made)
    assert quality(found, made) == (1.0, pytest.approx(1.0, abs=0.01))
    assert sorted(g.ranks for g in found.groups) == [(0, 1, 2, 3), (0, 4), (1, 5), (2, 6), (3, 7), (4, 5, 6, 7)]
    assert 0.6 < max(confidences(found)) <= 0.882
    assert found.score > 0.6
    assert [n for n in found.notes if "6 communicators are inferred from times" in n]


@pytest.mark.parametrize("seed", range(4))
def test_ends_that_are_recorded_late_find_their_place(seed):
    made = simulated(seed, outliers=0.05).dropped(0.05, seed, {2: 0.3})
    found = matched(made)
    precision, recall = quality(found, made)
    assert precision >= 0.995  # where an operation was lost, one that ends late may take its place
    assert recall >= 0.985


@pytest.mark.parametrize("op", ["Broadcast", "AllToAll", "ReduceScatter"])
def test_other_operations(op):
    made = simulated(3, op=op).dropped(0.05, 1, {1: 0.3})
    found = matched(made)
    precision, recall = quality(found, made)
    assert precision >= (0.9 if op == "Broadcast" else 1.0)
    assert recall >= (0.9 if op == "Broadcast" else 0.99)
    assert confidences(found) == {0.9 if op == "Broadcast" else 0.98}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_sends_and_receives_are_paired(seed, known):
    made = pipeline(seed).dropped(0.05, seed, {2: 0.4})
    found = matched(made if known else made.without("group_rank"))
    assert quality(found, made) == (1.0, pytest.approx(1.0, abs=0.01))
    counts = np.bincount(found.members.column("instance").to_numpy())
    assert set(counts.tolist()) == {2}


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(4))
def test_simulated_reports_with_drops_and_a_late_start(planted, seed):
    layout, whole = planted
    made = whole.dropped(0.05, seed, {seed: 0.4})
    found = matched(made)
    precision, recall = quality(found, made)
    assert precision >= (0.998 if layout == "pipeline" else 1.0)
    assert recall >= 0.99
    assert {g.size for g in found.groups} == {len(g.ranks) for g in found.groups}
    assert max(confidences(found)) == 0.98
    if (
        layout == "pipeline" and seed == 3
    ):  # each exchange counts once, and rank 3 has few: they relate its clock less surely
        assert min(confidences(found)) >= 0.8
    else:
        assert confidences(found) == ({0.9, 0.98} if layout == "pipeline" else {0.98})


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(4))
def test_simulated_kernels_alone(planted, seed):
    layout, whole = planted
    made = whole.dropped(0.0, seed, {seed: 0.4})
    found = matched(made.without(*ANONYMOUS, "group_rank", "peer"))
    precision, recall = quality(found, made)
    assert precision == 1.0
    assert recall >= 0.99
    pairs = {(0, 1), (2, 3), (4, 5), (6, 7)}
    groups = {
        "tensor": pairs | {(0, 2, 4, 6), (1, 3, 5, 7)},
        "pipeline": pairs | {(0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7)},
    }
    assert {g.ranks for g in found.groups} == groups.get(layout, {tuple(range(8))})


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("wrong_ns", [-500_000_000, 500_000_000])
def test_wrong_clocks_do_not_matter(planted, seed, wrong_ns):
    made = planted[1].dropped(0.05, seed, {1: 0.3})
    shifts = {r: s + wrong_ns * (r % 3 - 1) for r, s in made.shifts_ns.items()}
    assert match_tables(made.tables, made.texts, shifts).members.equals(matched(made).members)


def test_the_members_table_is_in_order_and_copies_the_times():
    made = simulated(1, ranks=4, tensor=2, steps=5)
    found = matched(made)
    rows = found.members.to_pylist()
    assert [(r["instance"], r["rank"]) for r in rows] == sorted((r["instance"], r["rank"]) for r in rows)
    for row in rows:
        table = made.tables[row["rank"]]
        assert (row["start"], row["end"]) == (table["start"][row["row"]].as_py(), table["end"][row["row"]].as_py())
    for group in found.groups:
        own = [r["ordinal"] for r in rows if r["communicator"] == group.number and r["rank"] == group.ranks[0]]
        assert own == list(range(20))
        assert group.size == len(group.ranks) == 2
    assert found.unmatched == dict.fromkeys(range(4), 0)


def test_a_sequence_number_of_the_profiler_decides_alone():
    ends = [[(100, 0), (200, 1), (300, 2)], [(9_000_000, 1), (9_000_007, 2)]]
    made = hand_made(ends, sequence={0: [0, 1, 2], 1: [1, 2]}, evidence={0: ["trace"] * 3, 1: ["trace"] * 2})
    found = matched(made, stamped=False)
    assert quality(found, made) == (1.0, 1.0)
    assert confidences(found) == {1.0}
    assert found.unmatched == {0: 1, 1: 0}


def test_operations_that_share_a_sequence_number_are_instances_of_their_own():
    # as those that a framework coalesces: the first with the first, the second with the second
    ends = [[(100, 0), (220, 1), (400, 2)], [(103, 0), (223, 1), (404, 2)]]
    told = {"sequence": {0: [4, 4, 5], 1: [4, 4, 5]}, "evidence": {0: ["trace"] * 3, 1: ["trace"] * 3}}
    found = matched(hand_made(ends, **told))
    assert quality(found, hand_made(ends)) == (1.0, 1.0)
    assert confidences(found) == {1.0}
    assert found.members.column("instance").to_pylist() == [0, 0, 1, 1, 2, 2]


def test_one_rank_alone_is_no_instance_however_often_it_tells_a_sequence_number():
    ends = [[(100, 0), (200, 1), (300, 2)], [(303, 2)]]
    made = hand_made(ends, sequence={0: [4, 4, 5], 1: [5]}, evidence={0: ["trace"] * 3, 1: ["trace"]})
    found = matched(made)
    assert found.members.select(["rank", "row"]).to_pylist() == [{"rank": 0, "row": 2}, {"rank": 1, "row": 0}]
    assert found.unmatched == {0: 2, 1: 0}


def test_of_shared_sequence_numbers_with_a_dropped_event_time_decides():
    ends = [[(10_000 * k, k) for k in range(1, 9)], [(10_000 * k + 3, k) for k in range(1, 9) if k != 4]]
    numbers = [0, 1, 2, 4, 4, 5, 6, 7]  # the third and the fourth were coalesced
    told = {0: numbers, 1: numbers[:3] + numbers[4:]}
    made = hand_made(ends, sequence=told, evidence={0: ["trace"] * 8, 1: ["trace"] * 7})
    found = matched(made)
    assert quality(found, made) == (1.0, 1.0)
    assert found.unmatched == {0: 1, 1: 0}


def test_named_operations_relate_clocks_though_a_member_has_nameless_ones_too():
    times = np.cumsum(np.random.default_rng(2).uniform(1000, 3000, 60))
    # stamps of a host that are off by 10 ms for every second rank
    ends = [[(time + 10_000 * (rank % 2), n) for n, time in enumerate(times)] for rank in range(4)]
    of_columns = (["c", "c", "e"] * 20, ["d", "d", "e"] * 20)
    names = {0: of_columns[0], 1: [None, *of_columns[1][1:]], 2: of_columns[0], 3: of_columns[1]}
    names |= {rank: [n.replace("e", "f") if n else n for n in names[rank]] for rank in (2, 3)}
    placing = Placing({}, {}, dict.fromkeys(range(4), "a"), frozenset(range(4)))
    made = hand_made(ends, names=names)
    assert match_tables(made.tables, made.texts, placing=placing).unmatched == {0: 0, 1: 1, 2: 0, 3: 1}


def test_named_operations_of_one_member_relate_no_clocks():
    random = np.random.default_rng(0)
    ends = [[(100.0, rank)] + [(2000 * n + random.normal(0, 5), 4 + n) for n in range(1, 61)] for rank in range(4)]
    ends[1] = ends[1][:1] + ends[1][31:]  # begun later, and nothing in the times shows by how much
    names = {rank: [str(rank), *[None] * (len(its) - 1)] for rank, its in enumerate(ends)}
    placing = Placing({}, {}, dict.fromkeys(range(4), "a"), frozenset(range(4)))
    made = hand_made(ends, names=names)
    made.names.extend(names[rank][0] for rank in range(4))
    assert match_tables(made.tables, made.texts, placing=placing).unmatched == dict.fromkeys(range(4), 1)


def test_a_gap_by_hand():
    ends = [[(e, k) for k, e in enumerate((1000, 2100, 3050, 4200, 5020))] for _ in range(3)]
    del ends[1][2]
    made = hand_made(ends)
    found = matched(made)
    assert quality(found, made) == (1.0, 1.0)
    assert np.bincount(found.members["instance"].to_numpy()).tolist() == [3, 3, 2, 3, 3]


def test_different_operations_and_sizes_are_never_one():
    ends = [[(1000, 0), (2100, 1), (3050, 2), (4200, 3)], [(1000, 0), (2100, 4), (3050, 5), (4200, 3)]]
    made = hand_made(
        ends,
        ops={0: ["AllReduce"] * 4, 1: ["AllReduce", "AllGather", "AllReduce", "AllReduce"]},
        sizes={0: [8] * 4, 1: [8, 8, 16, 8]},
    )
    found = matched(made)
    assert quality(found, made) == (1.0, 1.0)
    assert found.unmatched == {0: 2, 1: 2}


def test_one_shared_operation_is_matched_without_certainty():
    made = hand_made([[(1000, 0)], [(201_000, 0)]])
    found = matched(made)
    assert found.members.num_rows == 2
    assert max(confidences(found)) < 0.7
    nameless = matched(made.without("communicator"))
    assert nameless.members.num_rows == 0
    assert nameless.unmatched == {0: 1, 1: 1}


def test_one_rank_and_none_have_no_instance():
    one = hand_made([[(1000, 0), (2000, 1)]])
    assert (matched(one).members.num_rows, matched(one).unmatched, matched(one).groups) == (0, {0: 2}, ())
    empty = hand_made([[], []])
    assert (matched(empty).members.num_rows, matched(empty).unmatched) == (0, {0: 0, 1: 0})
    assert match_tables({}, one.texts).unmatched == {}


@pytest.mark.parametrize("seed", range(4))
def test_two_runs_in_one_folder_do_not_mix(seed):
    one, other = simulated(seed, ranks=4), simulated(seed + 50, ranks=4)
    tables = {r: (one if r % 2 else other).tables[r] for r in range(4)}
    truth = {r: one.truth[r] if r % 2 else other.truth[r] + 10**6 for r in range(4)}
    mixed = Made(tables, truth, one.shifts_ns, one.names)
    for made in (mixed, mixed.without(*ANONYMOUS)):
        found = matched(made)
        assert quality(found, made)[0] == 1.0
        assert found.members.num_rows >= 320
        assert all(
            g[0] in ((0, 2), (1, 3)) for g in [(tuple(sorted(set(_ranks(found, i)))),) for i in _instances(found)]
        )


def _instances(found):
    return np.unique(found.members["instance"].to_numpy()).tolist()


def _ranks(found, instance):
    return found.members["rank"].to_numpy()[found.members["instance"].to_numpy() == instance].tolist()


@pytest.mark.parametrize(
    ("at", "jump_ns"), [pytest.param(0.5, 3e6, marks=pytest.mark.xfail), (0.5, 50e6), (0.3, 300e6), (0.7, -400e6)]
)
def test_a_clock_that_is_set_costs_partners_but_makes_no_false_ones(at, jump_ns):
    made = simulated(2, ranks=4)
    table = made.tables[2]
    start, end = (table[c].to_numpy() for c in ("start", "end"))
    late = (start > start.min() + at * np.ptp(start)) * int(jump_ns)
    made.tables[2] = table.set_column(0, "start", pa.array(start + late)).set_column(1, "end", pa.array(end + late))
    found = matched(made)
    precision, recall = quality(found, made)
    assert precision >= 0.995
    assert recall > 0.7


def test_operations_without_length_and_before_zero():
    made = simulated(5, ranks=4, steps=20)
    for rank, table in made.tables.items():
        end = table["end"].to_numpy() - int(table["end"].to_numpy().max())
        made.tables[rank] = table.set_column(0, "start", pa.array(end)).set_column(1, "end", pa.array(end))
    found = matched(made, stamped=False)
    assert quality(found, made) == (1.0, 1.0)


def test_what_repeats_exactly_is_ambiguous_and_says_so():
    made = hand_made([[(1000 * k, k) for k in range(60)], [(1000 * k, k) for k in range(60) if k != 20]])
    assert max(confidences(matched(made))) < 0.7


def test_order_decides_where_time_cannot_but_only_for_equal_sequences():
    ends = [[(1000, 0), (2000, 1)], [(700_000, 0), (803_000, 1)]]
    ops = {r: ["Broadcast", "Reduce"] for r in range(2)}
    found = matched(hand_made(ends, ops=ops))
    assert (found.members.num_rows, confidences(found)) == (4, {0.45})
    ops[1] = ["Reduce", "Broadcast"]
    assert matched(hand_made(ends, ops=ops)).members.num_rows in (0, 2)
    far = [[(1000, 0), (2000, 1)], [(9_700_000, 0), (9_803_000, 1)]]
    assert matched(hand_made(far, ops={r: ["Broadcast", "Reduce"] for r in range(2)})).members.num_rows == 0


def test_calls_without_a_kernel_are_no_members():
    made = simulated(1, ranks=2, steps=10)
    table = made.tables[0]
    nothing = pa.nulls(table.num_rows, pa.int64())
    calls = table.set_column(0, "start", nothing).set_column(1, "end", nothing)
    made.tables[0] = calls.set_column(2, "api_start", table["start"]).set_column(3, "api_end", table["end"])
    found = matched(made)
    assert found.members.num_rows == 0
    lacks = "no kernel, end, communicator or set-up in the reports"
    assert found.notes[0] == f"40 communication calls have {lacks}, so they are not matched"


def test_the_order_of_the_ranks_does_not_matter():
    made = simulated(6, ranks=6, tensor=2).dropped(0.05, 3, {4: 0.3})
    turned = {r: made.tables[r] for r in sorted(made.tables, reverse=True)}
    assert match_tables(turned, made.texts, made.shifts_ns).members.equals(matched(made).members)


@pytest.mark.parametrize(
    ("pairs", "dense"),
    [
        ([(a, b) for a in range(4) for b in range(4) if a != b], True),
        ([(a, b) for a in range(4) for b in (a - 1, a + 1) if 0 <= b < 4], False),
    ],
)
def test_members_that_all_send_to_each_other_exchange_and_stages_of_a_pipeline_do_not(pairs, dense):
    rank, peer = (np.array(side * 2) for side in zip(*pairs, strict=True))
    paired = np.repeat([1, -1], len(pairs))
    nothing = np.zeros(len(rank), np.bool_)
    kinds = SimpleNamespace(
        member=rank, peer=peer, paired=paired, exchanging=nothing, all_to_all=nothing, count=np.ones(len(rank))
    )
    assert matching._all_to_all(kinds, np.arange(len(rank)), 0.0, 4) is dense


@pytest.mark.parametrize(("whole", "size", "dense"), [(1.0, 8, True), (0.25, 8, False), (1.0, 2, False)])
def test_a_kernel_that_all_members_run_at_once_is_an_exchange(whole, size, dense):
    kinds = SimpleNamespace(
        member=np.arange(size),
        peer=np.full(size, -1),
        paired=np.zeros(size, int),
        exchanging=np.ones(size, bool),
        all_to_all=np.zeros(size, bool),
        count=np.ones(size),
    )
    assert matching._all_to_all(kinds, np.arange(size), whole, size) is dense
