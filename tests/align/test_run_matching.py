"""A run whose operations are in a file has the alignment of one whose operations are in memory."""

from __future__ import annotations

import shutil

import pyarrow.parquet as pq
import pytest
from tests.align.planted import planted_run, rows_of
from tests.making import make_run

from alltrace.align import run_matching
from alltrace.align.all_collectives import AllCollectives
from alltrace.align.spilled_operations import SpilledOperations
from alltrace.align.store import aligned
from alltrace.run.store import Run


@pytest.fixture
def held(monkeypatch):
    """How the operations of each alignment are held."""
    found = []
    real = run_matching.match_run

    def noted(run, draft, operations, *args, **more):
        found.append(type(operations))
        return real(run, draft, operations, *args, **more)

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


def test_what_no_window_can_match_is_matched_as_a_whole(tmp_path, monkeypatch, held):
    ranks = {r: {"collectives": rows_of(r, 30, 0, size=8, members=4, communicator=None)} for r in range(4)}
    run = make_run(tmp_path / "run", ranks, hosts={0: "a", 1: "a", 2: "b", 3: "b"})
    whole = aligned(run)
    expected, files = whole.members, sorted(p.name for p in (run.path / "align").iterdir())
    monkeypatch.setattr(run_matching, "most_at_once", lambda ranks: 50)
    found = again(run)
    assert held == [AllCollectives, SpilledOperations]
    assert found.members.equals(expected)
    assert (found.clocks, found.groups, found.notes) == (whole.clocks, whole.groups, whole.notes)
    assert sorted(p.name for p in (run.path / "align").iterdir()) == files


@pytest.mark.parametrize("many", [3, 4, 30])
def test_operations_are_in_a_file_where_they_are_many(tmp_path, monkeypatch, many):
    monkeypatch.setattr(run_matching, "most_at_once", lambda ranks: 9)
    run = planted_run(tmp_path / "run", steps=many)
    tables = [(r, run.in_session_time().rank(r).table("collectives")) for r in range(3)]
    assert isinstance(run_matching.hold(iter(tables), tmp_path, 3, can_spill=False), AllCollectives)
    held = run_matching.hold(iter(tables), tmp_path, 3, can_spill=True)
    assert isinstance(held, SpilledOperations if many > 3 else AllCollectives)
    assert dict(held.rows) == dict.fromkeys(range(3), many)
