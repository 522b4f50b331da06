"""A run whose operations are in a file has the alignment of one whose operations are in memory."""

from __future__ import annotations

import resource
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from alltrace.align.all_collectives import AllCollectives
from alltrace.align.spilled_operations import SpilledOperations
from tests.align.planted import planted_run, rows_of
from tests.align.test_log_join import joined, judged
from tests.making import make_run

from alltrace.align import evidence, run_matching
from alltrace.align.store import aligned
from alltrace.run.store import Run
from alltrace.synth.write_logs import LogForm
from alltrace.trace.errors import InputError


@pytest.fixture
def held(monkeypatch):
    """How the operations of each alignment are held."""
    found = []
    real = run_matching.match_run

    def noted(run, parts, draft, operations, *args, **more):
        found.append(type(operations))
        return real(run, parts, draft, operations, *args, **more)

    monkeypatch.setattr(run_matching, "match_run", noted)
    return found


def again(run):
    """The alignment, made once more from the start."""
    shutil.rmtree(run.path / "align")
    shutil.rmtree(run.path / "operations")
    return aligned(Run(run.path))


def test_it_is_the_same_alignment(tmp_path, monkeypatch, held):
    run = planted_run(tmp_path / "run", steps=60)
    whole = aligned(run)
    expected = whole.members
    monkeypatch.setattr(run_matching, "most_at_once", lambda ranks: 120)
    found = again(run)
    assert held == [AllCollectives, SpilledOperations]
    assert sorted(p.name for p in (run.path / "align").iterdir()) == [
        "alignment.json",
        "collectives",
        "members.parquet",
        "names.parquet",
        "steps.parquet",
    ]
    for column in ("instance", "communicator", "ordinal", "rank", "row", "op", "bytes", "group_size", "confidence"):
        assert found.members.column(column).to_pylist() == expected.column(column).to_pylist(), column
    for column in ("start", "end", "wait_ns"):
        assert found.members.column(column).to_pylist() == pytest.approx(expected.column(column).to_pylist(), abs=200), column
    assert found.groups == whole.groups
    assert (found.unmatched, found.matching_score, found.notes) == (whole.unmatched, whole.matching_score, whole.notes)
    assert [c.offset_ns for c in found.clocks] == pytest.approx([c.offset_ns for c in whole.clocks], abs=200)
    assert found.steps.num_rows == whole.steps.num_rows
    for rank in range(4):
        assert found.run.rank(rank).shared("members").num_rows == 60
        assert found.collectives(rank).num_rows == 60
    ranks = pq.read_table(run.path / "align/members.parquet").column("rank").to_pylist()
    assert ranks == sorted(ranks)


def test_without_names_it_is_the_same_alignment(tmp_path, monkeypatch, held):
    ranks = {r: {"collectives": rows_of(r, 30, 0, size=8, members=4, communicator=None)} for r in range(4)}
    run = make_run(tmp_path / "run", ranks, hosts={0: "a", 1: "a", 2: "b", 3: "b"})
    whole = aligned(run)
    expected, files = whole.members, sorted(p.name for p in (run.path / "align").iterdir())
    monkeypatch.setattr(run_matching, "most_at_once", lambda ranks: 50)
    found = again(run)
    assert held == [AllCollectives, SpilledOperations]
    for column in ("instance", "communicator", "ordinal", "rank", "row", "confidence"):
        assert found.members.column(column).to_pylist() == expected.column(column).to_pylist(), column
    assert found.members.column("end").to_pylist() == pytest.approx(expected.column("end").to_pylist(), abs=200)
    assert (found.groups, found.notes, found.unmatched) == (whole.groups, whole.notes, whole.unmatched)
    assert found.matching_score == whole.matching_score
    assert [c.offset_ns for c in found.clocks] == pytest.approx([c.offset_ns for c in whole.clocks], abs=200)
    assert sorted(p.name for p in (run.path / "align").iterdir()) == files


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, monkeypatch):
    run = planted_run(tmp_path / "run", steps=60)
    aligned(run)
    files = sorted(p.name for p in run.path.iterdir())
    shutil.rmtree(run.path / "align")
    largest = max(p.stat().st_size for p in (run.path / "operations").iterdir())
    monkeypatch.setattr(run_matching, "most_at_once", lambda ranks: 120)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 4_096, limits[1]))  # as if the disk were full
    try:
        with pytest.raises(InputError, match=r"align.*cannot be written \(.*free some space"):
            aligned(Run(run.path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(p.name for p in run.path.iterdir()) == [f for f in files if f != "align"]
    assert aligned(Run(run.path)).members.num_rows == 240


@pytest.mark.parametrize("many", [3, 4, 30])
def test_operations_are_in_a_file_where_they_are_many(tmp_path, monkeypatch, many):
    monkeypatch.setattr(run_matching, "most_at_once", lambda ranks: 9)
    run = planted_run(tmp_path / "run", steps=many)
    tables = [(r, run.in_session_time().rank(r).table("collectives")) for r in range(3)]
    held = run_matching.hold(iter(tables), tmp_path, 3)
    assert isinstance(held, SpilledOperations if many > 3 else AllCollectives)
    assert dict(held.rows) == dict.fromkeys(range(3), many)


def instances(found):
    """The members of each instance as rank and row, with the communicator's ranks and its name unless it was inferred."""
    groups = {g.number: (g.ranks, g.size, g.found_by, g.found_by == "structure" or g.name) for g in found.groups}
    members = {}
    for row in found.members.select(["instance", "communicator", "rank", "row"]).to_pylist():
        members.setdefault((row["instance"], groups[row["communicator"]]), set()).add((row["rank"], row["row"]))
    return {(group, frozenset(its)) for (_, group), its in members.items()}


def stored(run):
    """The operations of each rank as the alignment has them, in the time of the rank's files."""
    return {p.name: pq.read_table(p).to_pydict() for p in (run.path / "align/collectives").iterdir()}


CUT_SHORT = {"faults": ("cut-short:ranks=1,2,3:share=0.5",)}


@pytest.fixture
def tried(monkeypatch):
    """The members files of each attempt at windows."""
    found = []
    real = run_matching.match_in_windows

    def noted(operations, texts, ranks, members, **more):
        found.append(members.name)
        return real(operations, texts, ranks, members, **more)

    monkeypatch.setattr(run_matching, "match_in_windows", noted)
    return found


@pytest.mark.slow
@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("name", "form", "drop", "other", "changes", "windows"),
    [
        ("tensor-data", None, (), None, {"nvtx": False}, ["members.parquet"]),
        ("pipeline", None, (), None, {"nvtx": False, "steps": 3}, ["members.parquet"]),
        ("tensor-data", LogForm(cut_share=0.01), (), None, {"nvtx": False}, ["members.parquet"]),
        ("tensor-data", None, (5,), None, {}, ["own.parquet"]),
        ("tensor-data", None, (), {"seed": 77, "layers": 4}, {}, ["own.parquet"]),
        ("sharded", None, (2,), None, {"nvtx": False}, ["own.parquet"]),
        ("tensor-data", None, (), None, CUT_SHORT, ["members.parquet", "own.parquet"]),
        ("tensor-data", None, (), None, {"nvtx": False, **CUT_SHORT}, ["members.parquet", "own.parquet"]),
    ],
    ids=[
        "complete",
        "messages",
        "lines lost",
        "a rank without a log",
        "another run's logs",
        "no communicators",
        "few partners",
        "few partners and no communicators",
    ],
)
def test_logs_are_joined_in_windows_as_at_once(tmp_path, monkeypatch, held, tried, name, form, drop, other, changes, windows):
    whole, _truth = joined(tmp_path, name, form, drop=drop, other=other, **{"steps": 5, **changes})
    expected, tables, matches = instances(whole), stored(whole.run), whole.run.manifest.log_matches
    files = sorted(p.name for p in (whole.run.path / "align").iterdir())
    monkeypatch.setattr(run_matching, "most_at_once", lambda ranks: whole.members.num_rows // 4)
    found = again(whole.run)
    assert held == [AllCollectives, SpilledOperations]
    assert tried == windows
    assert instances(found) == expected
    assert stored(found.run) == tables
    assert found.run.manifest.log_matches == matches
    assert (found.unmatched, found.notes) == (whole.unmatched, whole.notes)
    assert sorted(p.name for p in (found.run.path / "align").iterdir()) == files


@pytest.mark.slow
def test_sizes_come_from_other_ranks_in_windows(tmp_path, monkeypatch, held, tried):
    """The trace names communicators and has no sizes, and a rank has no log."""
    collect = evidence.collect

    def without_sizes(rank):
        table = collect(rank)
        return table.set_column(
            table.column_names.index("bytes"), "bytes", pa.nulls(table.num_rows, table.schema.field("bytes").type)
        )

    monkeypatch.setattr(evidence, "collect", without_sizes)
    whole, truth = joined(tmp_path, "tensor-data", drop=(5,), steps=5)
    assert judged(whole, truth)[1:] == (truth.num_rows, 0)
    rows, tables, matches = whole.members.num_rows, stored(whole.run), whole.run.manifest.log_matches
    assert matches[5].from_others == matches[5].operations > 0
    monkeypatch.setattr(run_matching, "most_at_once", lambda ranks: rows // 4)
    found = again(whole.run)
    assert (held[-1], tried) == (SpilledOperations, ["own.parquet"])
    assert stored(found.run) == tables
    assert found.run.manifest.log_matches == matches
    assert found.notes == whole.notes


@pytest.mark.slow
def test_windows_over_what_logs_filled_do_not_count_if_far_fewer_find_a_partner(tmp_path, monkeypatch):
    whole, _truth = joined(tmp_path, "tensor-data", steps=5)
    expected = instances(whole)
    real = run_matching.match_in_windows

    def poor(operations, texts, ranks, members, **more):
        found = real(operations, texts, ranks, members, **more)
        if members.name == "own.parquet":
            return found
        members.write_bytes(b"")
        return found._replace(members=1, unmatched={0: found.members - 1})

    monkeypatch.setattr(run_matching, "match_in_windows", poor)
    monkeypatch.setattr(run_matching, "most_at_once", lambda ranks: whole.members.num_rows // 4)
    assert instances(again(whole.run)) == expected
