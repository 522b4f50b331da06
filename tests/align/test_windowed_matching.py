"""Matching in windows: against the truth of made-up runs, and against the matching of the whole."""

from __future__ import annotations

import re
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.align.collectives import LAYOUTS, Made, collected, pipeline, quality, simulated, table_of
from tests.align.grids import Grid, execute
from tests.align.test_grids import GRIDS

from alltrace.align import windowed_matching
from alltrace.align.clocks import PlacedRank
from alltrace.align.coarse_clocks import RankClock
from alltrace.align.communicator_inference import Inferred
from alltrace.align.matching import match
from alltrace.align.members import evidence_of
from alltrace.align.spilled_operations import SpilledOperations
from alltrace.align.windowed_matching import match_in_windows
from alltrace.api import open_run
from alltrace.run.overlay import MEMBERS
from alltrace.synth import write_run


@pytest.fixture(scope="module", params=LAYOUTS)
def planted(request, tmp_path_factory):
    """A run of simulated reports, as collected, and what was planted."""
    folder = tmp_path_factory.mktemp("planted")
    truth = write_run(folder=folder / "reports", ranks=8, hosts=2, steps=12, seed=31, **LAYOUTS[request.param], ideal=True)
    return collected(open_run(folder / "reports", cache_dir=folder / "cache"), truth)


def placed(made, ranks_per_host=1):
    return [
        PlacedRank(rank=r, host=f"host {n // ranks_per_host}", report=n, shift_ns=made.shifts_ns[r])
        for n, r in enumerate(sorted(made.tables))
    ]


def in_windows(made, folder, most=400, ranks_per_host=1, progress=None):
    """What is found in windows of about so many operations; `members` is the table in the file."""
    folder.mkdir(exist_ok=True)
    spilled = SpilledOperations(folder / "operations", len(made.tables), most)
    for rank in sorted(made.tables):
        spilled.add(rank, made.tables[rank])
    file = folder / "members.parquet"
    found = match_in_windows(
        spilled, made.texts, placed(made, ranks_per_host), file, row_group_rows=100, most=most, progress=progress
    )
    spilled.remove()
    assert list(folder.iterdir()) == [file]
    table = pq.read_table(file)
    assert table.num_rows == found.members
    return SimpleNamespace(**found._asdict() | {"members": table})


def instances(matching):
    """The members of each instance, and its communicator's ranks."""
    table = matching.members
    members = defaultdict(set)
    groups = {}
    for row in table.to_pylist():
        members[row["instance"]].add((row["rank"], row["row"], row["start"], row["end"]))
        groups[row["instance"]] = matching.groups[row["communicator"]].ranks
    return {(frozenset(m), groups[i]) for i, m in members.items()}


def whole(made):
    return match(made.tables, made.texts, made.shifts_ns, {p.rank: p.host for p in placed(made)})


@pytest.mark.sampled(10)
@pytest.mark.parametrize("windows", [3, 15])
def test_windows_find_what_the_whole_has(planted, tmp_path, windows):
    made = planted
    rows = sum(t.num_rows for t in made.tables.values())
    found, expected = in_windows(made, tmp_path / "w", max(rows // windows, 100), ranks_per_host=4), whole(made)
    assert instances(found) == instances(expected)
    assert sorted(g.ranks for g in found.groups) == sorted(g.ranks for g in expected.groups)
    assert {(g.name, g.ranks, g.size, g.found_by, g.messages, g.all_to_all) for g in found.groups} == {
        (g.name, g.ranks, g.size, g.found_by, g.messages, g.all_to_all) for g in expected.groups
    }
    assert found.unmatched == expected.unmatched
    assert found.notes == expected.notes
    assert found.score == pytest.approx(expected.score, abs=0.01)
    assert found.reason is None


@pytest.mark.sampled(5)
def test_with_drops_and_a_late_start_no_instance_is_false(planted, tmp_path):
    made = planted.dropped(0.05, 3, {3: 0.4})
    found = in_windows(made, tmp_path / "w", sum(t.num_rows for t in made.tables.values()) // 4)
    precision, recall = quality(found, made)
    assert precision == 1.0
    assert recall >= 0.99
    expected = whole(made)
    assert sum(found.unmatched.values()) <= sum(expected.unmatched.values()) + 10


@pytest.mark.parametrize("seed", range(3))
def test_sends_and_receives(tmp_path, seed):
    made = pipeline(seed, steps=40).dropped(0.05, seed, {2: 0.4})
    found = in_windows(made, tmp_path / "w")
    assert quality(found, made) == (1.0, pytest.approx(1.0, abs=0.01))


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize(("seed", "tensor"), [(0, 1), (1, 2), (2, 4)])
def test_communicators_that_nothing_names(tmp_path, seed, tensor):
    made = simulated(seed, ranks=8, tensor=tensor, steps=60).without("communicator")
    found, expected = in_windows(made, tmp_path / "w"), whole(made)
    assert quality(found, made)[0] == 1.0
    assert instances(found) == instances(expected)
    assert {(g.name, g.ranks, g.size, g.found_by, g.messages) for g in found.groups} == {
        (g.name, g.ranks, g.size, g.found_by, g.messages) for g in expected.groups
    }
    assert found.unmatched == expected.unmatched
    assert found.notes == expected.notes
    assert (found.score, found.reason) == (pytest.approx(expected.score, abs=0.01), expected.reason)


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    "missing", ["half of the names", "names and a twentieth of the operations", "names and the start of a rank"]
)
@pytest.mark.parametrize("grid", ["wide tensor and data on one stream", "data and stages on one stream", "tensor, data and stages"])
def test_grids_of_which_not_all_is_known(tmp_path, grid, missing):
    made = execute(Grid(**{**vars(GRIDS[grid]), "offset_s": 20.0, "seed": 4})).made
    names = sorted({n for t in made.tables.values() for n in t.column("communicator").to_pylist()})
    gone = pa.array(names[::2] if missing.startswith("half") else names)
    for rank, table in made.tables.items():
        at = table.column_names.index("communicator")
        left = pc.if_else(pc.is_in(table.column(at), gone), None, table.column(at))
        made.tables[rank] = table.set_column(at, table.schema.field(at), left)
    if "twentieth" in missing:
        made = made.dropped(0.05, 4)
    elif "start" in missing:
        made = made.dropped(0.0, 4, {1: 0.4})
    most = max(sum(t.num_rows for t in made.tables.values()) // 5, 200)
    found, expected = in_windows(made, tmp_path / "w", most), whole(made)
    assert instances(found) == instances(expected)
    assert (found.unmatched, found.notes) == (expected.unmatched, expected.notes)
    # whether an operation could have a partner depends on which ranks a window has
    assert found.score == pytest.approx(expected.score, abs=0.01)
    assert re.sub(r"\d+%", "", found.reason or "") == re.sub(r"\d+%", "", expected.reason or "")


@pytest.mark.slow
def test_the_clocks_are_those_planted(tmp_path):
    made = simulated(4, ranks=8, steps=200, drift=20e-6, offset_ns=5e6)
    found = in_windows(made, tmp_path / "w", most=800)
    every = windowed_matching.solve(evidence_of(whole(made).members, made.tables, made.texts), placed(made))
    for one, other in zip(found.solution.clocks, every.clocks, strict=True):
        assert one.drift_ppm == pytest.approx(other.drift_ppm, abs=0.2)
        # at the zero, which is seconds before the first operation
        assert one.offset_ns == pytest.approx(other.offset_ns, abs=5_000)
    assert any(abs(c.drift_ppm) > 5 for c in every.clocks)


def test_progress_is_of_all_ranks(tmp_path):
    made = simulated(7, ranks=8, steps=100, offset_ns=5e6)
    told = []
    in_windows(made, tmp_path / "w", most=600, progress=told.append)
    assert sum(told) == 8
    assert len(told) > 3


def test_the_table_is_in_order(tmp_path):
    made = simulated(6, ranks=5, steps=50, offset_ns=5e6)
    found = in_windows(made, tmp_path / "w")
    table = found.members
    assert table.schema.equals(MEMBERS.arrow_schema())
    rank, instance, communicator, ordinal = (
        table.column(c).to_numpy().astype(np.int64) for c in ("rank", "instance", "communicator", "ordinal")
    )
    assert (np.diff(rank * (instance.max() + 1) + instance) > 0).all()
    assert sorted(set(instance.tolist())) == list(range(instance.max() + 1))
    of_instance = dict(zip(instance.tolist(), zip(communicator.tolist(), ordinal.tolist(), strict=True), strict=True))
    for number in range(len(found.groups)):
        assert [o for _, (c, o) in sorted(of_instance.items()) if c == number] == list(
            range(sum(c == number for c, _ in of_instance.values()))
        )
    for row in table.to_pylist():
        own = made.tables[row["rank"]]
        assert (row["start"], row["end"]) == (own["start"][row["row"]].as_py(), own["end"][row["row"]].as_py())
    metadata = pq.read_metadata(tmp_path / "w/members.parquet")
    assert max(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)) <= 100


def test_no_window_has_many_more_operations_than_it_may(tmp_path, monkeypatch):
    made = simulated(7, ranks=8, steps=100, offset_ns=5e6)
    seen = []

    def counted(tables, *args, **more):
        seen.append(sum(t.num_rows for t in tables.values()))
        return match(tables, *args, **more)

    monkeypatch.setattr(windowed_matching, "match", counted)
    in_windows(made, tmp_path / "w", most=600)
    rows = sum(t.num_rows for t in made.tables.values())
    assert len(seen) > 3
    assert max(seen) <= 600 * 1.3
    assert rows < sum(seen) < 2 * rows + 600


def two_hosts():
    """Two hosts of two ranks each, with a communicator each."""
    one, other = simulated(1, ranks=2, steps=40), simulated(2, ranks=2, steps=40)
    tables = one.tables | {r + 2: t for r, t in other.tables.items()}
    truth = one.truth | {r + 2: t + 1_000 for r, t in other.truth.items()}
    made = Made(tables, truth, one.shifts_ns | {r + 2: s for r, s in other.shifts_ns.items()}, ["group 0.0"])
    names = {0: "group 0.0", 1: "group 0.0", 2: "x", 3: "x"}
    for rank, name in names.items():
        column = table_of(communicator=[name] * tables[rank].num_rows).column("communicator")
        made.tables[rank] = tables[rank].set_column(tables[rank].column_names.index("communicator"), "communicator", column)
    made.names.append("x")
    return made


def test_hosts_that_never_meet_are_components(tmp_path):
    made = two_hosts()
    found, expected = in_windows(made, tmp_path / "w", most=100), whole(made)
    assert instances(found) == instances(expected)
    assert quality(found, made) == (1.0, 1.0)
    assert found.unmatched == expected.unmatched
    components = found.solution.components
    assert (components[0], components[2]) == (components[1], components[3])
    assert components[0] != components[2]


def test_of_hosts_that_nothing_connects_the_score_is_low(tmp_path):
    made = two_hosts().without("communicator")
    made.shifts_ns |= {r: made.shifts_ns[r] + 10**12 for r in (2, 3)}
    found, expected = in_windows(made, tmp_path / "w", most=100), whole(made)
    assert instances(found) == instances(expected)
    assert expected.score < 0.5
    assert "the clocks of 2 groups of ranks could not be related" in expected.reason
    assert (found.score, found.reason) == (pytest.approx(expected.score, abs=0.01), expected.reason)
    assert [g.score for g in found.groups] == pytest.approx([g.score for g in expected.groups], abs=0.01)


def test_hosts_that_never_meet_were_captured_at_their_own_times(tmp_path):
    made = two_hosts().dropped(0.0, 1, {3: 0.5})
    made.shifts_ns |= {r: made.shifts_ns[r] + 10**12 for r in (2, 3)}
    found, expected = in_windows(made, tmp_path / "w", most=100), whole(made)
    assert found.unmatched[2] > 0.4 * made.tables[2].num_rows
    assert found.unmatched == expected.unmatched
    assert found.notes == expected.notes == ()


def test_a_rank_that_shares_its_communicator_with_none_is_named(tmp_path):
    made = two_hosts()
    made.tables[3] = made.tables[3].slice(0, 0)
    found, expected = in_windows(made, tmp_path / "w", most=100), whole(made)
    assert [n for n in found.notes if n.startswith("rank 2: more than 10%")]
    assert found.notes == expected.notes


def test_without_operations_there_are_no_windows(tmp_path):
    found = in_windows(Made({}, {}, {}, []), tmp_path / "none")
    assert (found.members.num_rows, found.groups, found.unmatched, found.score) == (0, (), {}, None)


def test_a_rank_that_misses_partners_is_named(tmp_path):
    made = simulated(8, ranks=4, steps=80, offset_ns=5e6)
    table = made.tables[2]
    shift = np.where(np.arange(table.num_rows) % 3 == 0, 7_000_000, 0)
    for name in ("start", "end"):
        column = table_of(**{name: table.column(name).to_numpy() + shift}).column(name)
        table = table.set_column(table.column_names.index(name), name, column)
    made.tables[2] = table
    found, expected = in_windows(made, tmp_path / "w", most=500), whole(made)
    assert [n for n in found.notes if n.startswith("rank 2: more than 10%")]
    assert found.notes == expected.notes
    assert found.unmatched[2] == pytest.approx(expected.unmatched[2], abs=3)


def test_the_evidence_for_the_clocks_is_of_the_whole_run_and_bounded(tmp_path, monkeypatch):
    made = simulated(9, ranks=4, steps=400, offset_ns=5e6)
    given = []
    solve = windowed_matching.solve

    def solved(evidence, ranks):
        given.append(evidence)
        return solve(evidence, ranks)

    monkeypatch.setattr(windowed_matching, "solve", solved)
    found = in_windows(made, tmp_path / "w", most=500)
    used = np.unique(given[-1].instance)
    last = found.members.column("instance").to_numpy().max()
    assert len(given[-1].instance) <= 500
    assert used[:16].tolist() == list(range(16))
    assert used[-1] > 0.9 * last
    assert np.diff(used[16:]).max() <= 2 * np.diff(used[16:]).min()


def messages(ends, *, late_ns):
    """Two ranks: the first sends to the second, which receives so much later."""
    sent = np.array(ends, np.int64)
    received = sent + late_ns
    tables = {
        rank: table_of(
            start=end - 100_000,
            end=end,
            communicator=["pipe"] * len(end),
            op=[op] * len(end),
            peer=[1 - rank] * len(end),
            group_rank=[rank] * len(end),
            group_size=[2] * len(end),
            bytes=[1 << 20] * len(end),
        )
        for rank, (op, end) in enumerate((("Send", sent), ("Recv", received)))
    }
    truth = np.arange(len(sent))
    return Made(tables, {0: truth, 1: truth}, {0: 0, 1: 0}, ["pipe"])


def test_a_member_that_ends_later_than_what_was_read_is_waited_for(tmp_path, monkeypatch):
    ends = np.cumsum(np.random.default_rng(5).uniform(9e6, 11e6, 400))
    made = messages(ends, late_ns=2_000_000)
    clock = RankClock(0.0, 0.0, 500.0, 1.0, 0)
    known = ({0: clock, 1: clock}, Inferred(lambda _: None, []))
    monkeypatch.setattr(windowed_matching, "clocks_and_communicators", lambda *_: known)
    found = in_windows(made, tmp_path / "w", most=100)
    assert quality(found, made) == (1.0, 1.0)
    assert found.unmatched == {0: 0, 1: 0}


def test_operations_before_another_rank_was_captured_are_not_named(tmp_path):
    made = simulated(10, ranks=2, steps=80, offset_ns=5e6).dropped(0.0, 1, {1: 0.5})
    found, expected = in_windows(made, tmp_path / "w", most=200), whole(made)
    assert found.unmatched[0] > 0.4 * made.tables[0].num_rows
    assert found.unmatched == expected.unmatched
    assert found.notes == expected.notes == ()


def test_a_pattern_that_repeats_exactly_is_as_in_the_whole(tmp_path):
    made = messages(np.arange(1, 200) * 10_000_000, late_ns=50_000)
    found, expected = in_windows(made, tmp_path / "w", most=100), whole(made)
    assert instances(found) == instances(expected)
    assert (found.score, found.reason) == (pytest.approx(expected.score, abs=0.01), expected.reason)
