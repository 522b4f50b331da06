"""A run whose operations are in a file has the alignment of one whose operations are in memory."""

from __future__ import annotations

import resource
import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.align.planted import planted_run, rows_of
from tests.align.test_log_join import joined, judged
from tests.making import make_run

from alltrace.align import evidence, run_matching
from alltrace.align.store import aligned
from alltrace.run.store import Run
from alltrace.synth.write_logs import LogForm
from alltrace.trace.errors import InputError


@pytest.fixture
def read(monkeypatch):
    """The ranks whose operations were read, in order."""
    ranks = []
    real = run_matching.Timelines

    def noted(names, table_of, texts, most):
        def of(rank):
            ranks.append(rank)
            return table_of(rank)

        return real(names, of, texts, most)

    monkeypatch.setattr(run_matching, "Timelines", noted)
    return ranks


def in_files(monkeypatch, most):
    """Keep no more operations than these in memory."""
    monkeypatch.setattr(run_matching, "MOST_IN_MEMORY", most)


def again(run):
    """The alignment, made once more from the start."""
    shutil.rmtree(run.path / "align")
    shutil.rmtree(run.path / "operations")
    return aligned(Run(run.path))


def test_it_is_the_same_alignment(tmp_path, monkeypatch, read):
    run = planted_run(tmp_path / "run", steps=60)
    whole = aligned(run)
    assert sorted(read) == [0, 1, 2, 3]
    expected = whole.members
    in_files(monkeypatch, 120)
    found = again(run)
    assert sorted(read) == [0, 0, 1, 1, 2, 2, 3, 3]
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
        assert found.members.column(column).to_pylist() == pytest.approx(
            expected.column(column).to_pylist(), abs=200
        ), column
    assert found.groups == whole.groups
    assert (found.unmatched, found.matching_score, found.notes) == (whole.unmatched, whole.matching_score, whole.notes)
    assert [c.offset_ns for c in found.clocks] == pytest.approx([c.offset_ns for c in whole.clocks], abs=200)
    assert found.steps.num_rows == whole.steps.num_rows
    for rank in range(4):
        assert found.run.rank(rank).shared("members").num_rows == 60
        assert found.collectives(rank).num_rows == 60
    ranks = pq.read_table(run.path / "align/members.parquet").column("rank").to_pylist()
    assert ranks == sorted(ranks)


def test_without_names_it_is_the_same_alignment(tmp_path, monkeypatch, read):
    ranks = {r: {"collectives": rows_of(r, 30, 0, size=8, members=4, communicator=None)} for r in range(4)}
    run = make_run(tmp_path / "run", ranks, hosts={0: "a", 1: "a", 2: "b", 3: "b"})
    whole = aligned(run)
    expected, files = whole.members, sorted(p.name for p in (run.path / "align").iterdir())
    in_files(monkeypatch, 50)
    found = again(run)
    assert sorted(read) == [0, 0, 1, 1, 2, 2, 3, 3]
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
    most = (run.path / "align" / "members.parquet").stat().st_size // 2
    shutil.rmtree(run.path / "align")
    in_files(monkeypatch, 120)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))  # as if the disk were full
    try:
        with pytest.raises(InputError, match=r"align.*cannot be written \(.*free some space"):
            aligned(Run(run.path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(p.name for p in run.path.iterdir()) == [f for f in files if f != "align"]
    assert aligned(Run(run.path)).members.num_rows == 240


def instances(found):
    """The members of each instance as rank and row, with the communicator's ranks and its name unless it was
    inferred."""
    groups = {g.number: (g.ranks, g.size, g.found_by, g.found_by == "structure" or g.name) for g in found.groups}
    members = {}
    for row in found.members.select(["instance", "communicator", "rank", "row"]).to_pylist():
        members.setdefault((row["instance"], groups[row["communicator"]]), set()).add((row["rank"], row["row"]))
    return {(group, frozenset(its)) for (_, group), its in members.items()}


def stored(run):
    """The operations of each rank as the alignment has them, in the time of the rank's files."""
    return {p.name: pq.read_table(p).to_pydict() for p in (run.path / "align/collectives").iterdir()}


CUT_SHORT = {"faults": ("cut-short:ranks=1,2,3:share=0.5",)}


@pytest.mark.slow
@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("name", "form", "drop", "other", "changes"),
    [
        ("tensor-data", None, (), None, {"nvtx": False}),
        ("pipeline", None, (), None, {"nvtx": False, "steps": 3}),
        ("tensor-data", LogForm(cut_share=0.01), (), None, {"nvtx": False}),
        ("tensor-data", None, (5,), None, {}),
        ("tensor-data", None, (), {"seed": 77, "layers": 4}, {}),
        ("sharded", None, (2,), None, {"nvtx": False}),
        ("tensor-data", None, (), None, CUT_SHORT),
        ("tensor-data", None, (), None, {"nvtx": False, **CUT_SHORT}),
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
def test_logs_are_joined_with_operations_in_files_as_in_memory(tmp_path, monkeypatch, name, form, drop, other, changes):
    whole, _truth = joined(tmp_path, name, form, drop=drop, other=other, **{"steps": 5, **changes})
    expected, tables, matches = instances(whole), stored(whole.run), whole.run.manifest.log_matches
    files = sorted(p.name for p in (whole.run.path / "align").iterdir())
    in_files(monkeypatch, whole.members.num_rows // 4)
    found = again(whole.run)
    assert instances(found) == expected
    assert stored(found.run) == tables
    assert found.run.manifest.log_matches == matches
    assert (found.unmatched, found.notes) == (whole.unmatched, whole.notes)
    assert sorted(p.name for p in (found.run.path / "align").iterdir()) == files


@pytest.mark.slow
def test_sizes_come_from_other_ranks_with_operations_in_files(tmp_path, monkeypatch):
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
    in_files(monkeypatch, rows // 4)
    found = again(whole.run)
    assert stored(found.run) == tables
    assert found.run.manifest.log_matches == matches
    assert found.notes == whole.notes


@pytest.mark.slow
def test_what_logs_filled_does_not_count_if_far_fewer_find_a_partner(tmp_path, monkeypatch):
    whole, _truth = joined(tmp_path, "tensor-data", steps=5)
    expected = instances(whole)
    real, attempts = run_matching.match, []

    def poor(timelines, placing, ranks):
        attempts.append(real(timelines, placing, ranks))
        found = attempts[-1]
        if len(attempts) == 1:
            found.instance = {m: np.full_like(n, -1) for m, n in found.instance.items()}
            found.unmatched = dict.fromkeys(found.unmatched, 1)
        return found

    monkeypatch.setattr(run_matching, "match", poor)
    assert instances(again(whole.run)) == expected
    assert len(attempts) == 2


def test_what_most_reports_have_is_no_reason_to_leave_one_out():
    ranks = [SimpleNamespace(rank=n, doubt=None if n > 1 else "its clock stands") for n in range(4)]
    assert run_matching._recorded_doubts(ranks) == {0: "its clock stands", 1: "its clock stands"}
    assert run_matching._recorded_doubts(ranks[:3]) == {}
