from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.align.planted import arrival, planted_run, rows_of
from tests.making import collective, flip, kernel, make_run

from alltrace.align import run_matching, steps, store
from alltrace.align.store import aligned
from alltrace.api import OpenRun
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.sql import query
from alltrace.run.manifest import read_manifest
from alltrace.run.overlay import STEPS
from alltrace.run.store import Run
from alltrace.trace.errors import DamageError, InputError


@pytest.fixture
def run(tmp_path):
    return planted_run(tmp_path / "run")


def arrivals(alignment):
    """Aligned arrivals less the true ones, which leaves a constant."""
    members = alignment.members
    true = [arrival(r, o) for r, o in zip(members["rank"].to_pylist(), members["ordinal"].to_pylist(), strict=True)]
    return np.array(members["arrival_ns"].to_pylist()) - np.array(true)


def test_times_are_those_planted_on_one_clock(run):
    alignment = aligned(run)
    left = arrivals(alignment)
    assert len(left) == 80
    assert np.ptp(left) < 400
    for rank in range(4):
        table = alignment.collectives(rank)
        assert np.ptp(np.array(table["start"].to_pylist()) - [arrival(rank, s) for s in range(20)]) == 0
        assert table.num_rows == 20


def test_members_tell_who_waited_for_whom(run):
    members = aligned(run).members
    assert members.num_rows == 80
    assert set(members["last_rank"].to_pylist()) == {2}
    waits = dict(zip(members["rank"].to_pylist(), members["wait_ns"].to_pylist(), strict=True))
    assert waits == pytest.approx({0: 2_000_000, 1: 1_980_000, 2: 0, 3: 1_940_000}, abs=400)
    assert members["transfer_ns"].to_pylist() == pytest.approx([500_000] * 80, abs=700)
    assert set(members["op"].to_pylist()) == {"AllReduce"}
    assert set(members["bytes"].to_pylist()) == {1 << 20}
    assert members["members"].to_pylist() == members["group_size"].to_pylist() == [4] * 80
    assert all(members["synchronising"].to_pylist())
    assert all(members["fact"].to_pylist())
    caused = sum(
        w for w, last in zip(members["wait_ns"].to_pylist(), members["last_rank"].to_pylist(), strict=True) if last == 2
    )
    assert sum(members["wait_ns"].to_pylist()) == caused > 0


def test_waits_below_what_the_clocks_may_be_off_are_no_facts(run):
    alignment = aligned(run)
    error = alignment.error_ns(0, 2)
    assert 10 < error < 2_000
    assert not alignment.is_fact(error - 1, 0, 2)
    assert alignment.is_fact(error, 0, 2)
    assert alignment.error_ns(2, 0) == error
    assert alignment.error_ns(1, 1) == 0


def test_the_clocks_are_in_the_manifest_and_the_run_is_read_by_them(run):
    before = run.in_session_time().rank(2).table("collectives")["start"][0].as_py()
    alignment = aligned(run)
    manifest = read_manifest(run.path)
    assert manifest.clocks == alignment.clocks
    assert [c.evidence for c in manifest.clocks] == [20, 20]
    assert [r.stamp_error_ns for r in manifest.ranks] == [r.stamp_error_ns for r in run.ranks]
    assert run.in_session_time().rank(2).table("collectives")["start"][0].as_py() - before == pytest.approx(
        7_150_000, abs=400
    )
    again = OpenRun(run.path)
    for plain in (again, run.as_imported()):
        assert plain.in_session_time().rank(2).table("collectives")["start"][0].as_py() == before
        assert plain.facts() == run.facts()
    aligned(again)
    assert again.rank(2).table("collectives").equals(run.rank(2).table("collectives"))
    assert again.span_ns == run.span_ns


def test_it_is_made_once(run, monkeypatch):
    aligned(run)
    stamp = (run.path / "align" / "alignment.json").stat().st_mtime_ns
    monkeypatch.setattr(store, "_make", lambda *_: pytest.fail("made again"))
    assert aligned(OpenRun(run.path)).members.num_rows == 80
    assert (run.path / "align" / "alignment.json").stat().st_mtime_ns == stamp


def test_it_is_made_anew_when_the_run_is_another(run, tmp_path):
    aligned(run)
    other = planted_run(tmp_path / "other", steps=5)
    aligned(other)
    # the same folder with other ranks in it
    (run.path / "align").rename(tmp_path / "kept")
    (other.path / "align").rename(run.path / "align")
    again = OpenRun(run.path)
    assert again.overlay is None
    assert aligned(again).members.num_rows == 80


def test_it_is_made_anew_by_other_code(run, monkeypatch):
    aligned(run)
    monkeypatch.setattr("alltrace.run.overlay.code_version", lambda: "another")
    again = OpenRun(run.path)
    assert again.overlay is None
    assert aligned(again).members.num_rows == 80


def test_a_damaged_alignment_is_made_anew(run):
    aligned(run)
    (run.path / "align" / "alignment.json").write_text('{"signature": 3')
    again = OpenRun(run.path)
    assert again.overlay is None
    assert aligned(again).members.num_rows == 80
    assert json.loads((run.path / "align" / "alignment.json").read_text())["groups"]


def test_an_interrupted_alignment_leaves_nothing_that_counts(run, monkeypatch):

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_matching, "_write", stop)
    manifest = (run.path / "manifest.json").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        aligned(run)
    assert not (run.path / "align").exists()
    assert not list(run.path.glob(".align.*.tmp"))
    assert (run.path / "manifest.json").read_bytes() == manifest
    (run.path / f".align.{os.uname().nodename}-{os.getpid()}.tmp" / "collectives").mkdir(
        parents=True
    )  # of one that was killed
    monkeypatch.undo()
    assert aligned(OpenRun(run.path)).members.num_rows == 80
    assert not list(run.path.glob(".align.*.tmp"))


def test_two_that_make_it_at_once_where_there_are_no_locks_both_have_it(run, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSYS, "no locks")

    fill, other = store._fill, []

    def meanwhile(*given):
        facts = fill(*given)
        if not other:
            other.append(None)
            with monkeypatch.context() as one:
                one.setattr(os, "getpid", lambda: 99)
                other[0] = aligned(OpenRun(run.path)).members.num_rows
        return facts

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(store, "_fill", meanwhile)
    assert aligned(run).members.num_rows == 80
    assert other == [80]
    assert not list(run.path.glob(".align.*.tmp"))


def test_a_manifest_that_was_not_reached_gets_its_clocks_later(run):
    manifest = (run.path / "manifest.json").read_bytes()
    clocks = aligned(run).clocks
    (run.path / "manifest.json").write_bytes(manifest)
    assert aligned(OpenRun(run.path)).clocks == clocks
    assert read_manifest(run.path).clocks == clocks


def test_a_run_that_cannot_be_written_is_aligned_in_the_cache(run, tmp_path, monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != run.path and may(path, mode))
    manifest = (run.path / "manifest.json").read_bytes()
    alignment = aligned(run)
    assert np.ptp(arrivals(alignment)) < 400
    assert not (run.path / "align").exists()
    assert (run.path / "manifest.json").read_bytes() == manifest
    assert alignment.run.overlay.folder.parent == tmp_path / "cache" / "align"
    assert query(OpenRun(run.path), "SELECT count(*) AS n FROM members").table["n"].to_pylist() == [80]
    monkeypatch.setattr(store, "_make", lambda *_: pytest.fail("made again"))
    assert aligned(OpenRun(run.path)).members.num_rows == 80


def test_steps_that_cannot_be_found_are_a_note_and_a_damaged_file_is_an_error(run, monkeypatch):
    def refuse(rank):
        raise InputError("ranges.parquet", found=f"nothing on rank {rank.rank}", advice="look again")

    with monkeypatch.context() as one:
        one.setattr(steps, "rank_steps", refuse)
        alignment = aligned(run)
    assert alignment.members.num_rows
    assert not alignment.steps.num_rows
    assert "steps were not detected: ranges.parquet: nothing on rank 0; look again" in alignment.steps_notes

    def damaged(rank):
        raise DamageError("ranges.parquet", found="it is damaged", advice="import again")

    shutil.rmtree(run.path / "align")
    monkeypatch.setattr(steps, "rank_steps", damaged)
    with pytest.raises(DamageError):
        aligned(Run(run.path))
    assert not (run.path / "align").exists()


def test_one_rank_has_its_steps_and_nothing_to_align(tmp_path):
    ranges = [{"start": 100 * n, "end": 100 * n + 90, "name": f"step {n}"} for n in range(3)]
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 10), collective(20, 30)], "ranges": ranges}})
    manifest = (run.path / "manifest.json").read_bytes()
    alignment = aligned(run)
    assert alignment.members.num_rows == 0
    assert alignment.notes == ("the run has one rank with one device, so there is nothing to align",)
    assert alignment.steps["step"].to_pylist() == [0, 1, 2]
    assert run.rank(0).shared("steps").equals(alignment.steps)
    assert query(OpenRun(run.path), "SELECT count(*) AS n FROM steps").table["n"].to_pylist() == [3]
    assert (run.path / "manifest.json").read_bytes() == manifest


def test_ranks_without_kernels_have_nothing_to_align(tmp_path):
    run = make_run(tmp_path / "run", {0: {}, 1: {}})
    alignment = aligned(run)
    assert "UTC stamps" in alignment.notes[0]
    assert alignment.members.num_rows == alignment.steps.num_rows == 0


def test_ranks_without_collectives_keep_their_clocks_and_it_is_said(tmp_path):
    run = make_run(tmp_path / "run", {r: {"kernels": [kernel(0, 10)]} for r in (0, 1)}, hosts={0: "a", 1: "b"})
    before = run.manifest.clocks
    alignment = aligned(run)
    assert alignment.clocks == before
    assert alignment.members.num_rows == 0
    assert any("UTC stamps" in n for n in alignment.notes)
    assert alignment.error_ns(0, 1) is None
    assert not alignment.is_fact(10**12, 0, 1)


def test_a_run_with_a_damaged_rank_is_not_aligned_without_it(tmp_path):
    run = planted_run(tmp_path / "run")
    flip(run.path / "ranks" / "rank=3" / "collectives.parquet")
    with pytest.raises(DamageError, match=r"rank=3/collectives\.parquet: it is damaged"):
        aligned(run)
    assert not (run.path / "align").exists()


def test_a_damaged_alignment_never_enters_an_answer(tmp_path):
    """Its facts are made anew; a table of it is an error."""
    run = planted_run(tmp_path / "run")
    members = aligned(run).members
    flip(run.path / "align" / "alignment.json", 500)
    assert aligned(Run(run.path)).members.equals(members)
    flip(run.path / "align" / "members.parquet")
    with pytest.raises(DamageError, match=r"align/members\.parquet: it is damaged"):
        len(aligned(Run(run.path)).members)
    with pytest.raises(DamageError, match=r"align/members\.parquet: it is damaged"):
        query(Run(run.path), "SELECT count(*) FROM members")


def test_sql_sees_the_derived_tables_on_the_aligned_clock(run):
    answer = query(
        run,
        "SELECT m.rank, min(m.start - c.start) AS a, max(m.start - c.start) AS b, count(*) AS n FROM members m "
        "JOIN collectives c ON c.rank = m.rank AND c.sequence = m.ordinal GROUP BY 1 ORDER BY 1",
    )
    assert answer.table.to_pylist() == [{"rank": r, "a": 0, "b": 0, "n": 20} for r in range(4)]
    (first,) = query(run, "SELECT min(start) AS t FROM collectives").table["t"].to_pylist()
    assert first == min(aligned(run).members["start"].to_pylist())
    assert query(run, "SELECT * FROM steps").table.column_names == [
        "rank",
        "host",
        *(c.name for c in STEPS.columns[1:]),
    ]


def test_sql_without_an_alignment_has_empty_tables(tmp_path):
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 10)]}})
    assert query(run, "SELECT * FROM members").table.num_rows == 0
    assert query(run, "SELECT count(*) AS n FROM steps").table["n"].to_pylist() == [0]


def test_a_rank_reads_its_own_share(run):
    aligned(run)
    own = run.rank(2).shared("members")
    assert own["rank"].to_pylist() == [2] * 20
    assert own["start"].to_pylist() == run.rank(2).table("collectives")["start"].to_pylist()
    assert Run(run.path).rank(2).shared("members") is None


def test_info_is_aligned_and_shows_the_clocks(run):
    answer = ask(run, "info")
    assert [(c["host"], c["evidence"], c["component"]) for c in answer.extra["clocks"]] == [("a", 20, 0), ("b", 20, 0)]
    assert all(10 < c["residual_ns"] < 500 for c in answer.extra["clocks"])
    ends = answer.table["end_ns"].to_pylist()
    assert max(ends) - min(ends) < 700


def test_ranks_in_other_processes_see_the_same(run):
    whole = ask(run, "collectives", {"instances": True}, jobs=1).table
    assert ask(OpenRun(run.path), "collectives", {"instances": True}, jobs=2).table.equals(whole)


def test_two_hosts_that_never_meet_are_said_to(tmp_path):
    ranks = {r: {"collectives": rows_of(r % 2, 10, 0, size=8, members=2, communicator=f"c{r // 2}")} for r in range(4)}
    run = make_run(tmp_path / "run", ranks, hosts={0: "a", 1: "a", 2: "b", 3: "b"})
    alignment = aligned(run)
    assert [c.component for c in alignment.clocks] == [0, 1]
    assert alignment.error_ns(0, 1) is not None
    assert alignment.error_ns(0, 2) is None
    assert any("share no collective" in n for n in alignment.notes)


def test_a_rank_reads_its_own_members_and_little_else(run, tmp_path, monkeypatch):
    whole = aligned(run).members
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    shutil.rmtree(copy / "align")
    monkeypatch.setattr(store, "_SHARED_ROWS", 8)
    again = Run(copy)
    alignment = aligned(again)
    assert alignment.members.equals(whole)
    path = again.overlay.folder / "members.parquet"
    ranks = pq.read_table(path).column("rank").to_pylist()
    assert ranks == sorted(ranks)
    assert pq.read_metadata(path).num_row_groups == -(-len(ranks) // 8)
    for record in again.ranks:
        own = again.rank(record.rank).shared("members")
        wanted = whole.filter(pc.equal(whole.column("rank"), record.rank))
        assert own.num_rows == ranks.count(record.rank) > 0
        for column in ("instance", "row", "start", "end"):
            assert own.column(column).to_pylist() == wanted.column(column).to_pylist()


def test_ranks_that_are_done_out_of_order_make_the_same_alignment(run, monkeypatch):
    aligned(run)
    expected = {p.name: p.read_bytes() for p in (run.path / "align").rglob("*") if p.is_file()}
    shutil.rmtree(run.path / "align")
    shutil.rmtree(run.path / "operations")
    real = store.run_tasks
    monkeypatch.setattr(store, "run_tasks", lambda *args, **more: iter([*real(*args, **more)][::-1]))
    aligned(Run(run.path))
    assert {p.name: p.read_bytes() for p in (run.path / "align").rglob("*") if p.is_file()} == expected


def test_what_a_worker_wrote_where_this_process_does_not_see_it_is_a_sentence(run, monkeypatch):
    real = store._collected

    def elsewhere(sent, folder, *args):
        taken = real(sent, folder, *args)
        shutil.rmtree(folder / "rank=2", ignore_errors=True)
        return taken

    monkeypatch.setattr(store, "_collected", elsewhere)
    with pytest.raises(InputError, match=r"what was made of rank 2 is not there.*all nodes must see this folder"):
        aligned(run)
    assert not (run.path / "align").exists()


@pytest.mark.parametrize("most", [10**6, 30], ids=["in memory", "in files"])
def test_ranks_are_done_once_they_are_collected_and_matched(run, monkeypatch, most):
    monkeypatch.setattr(run_matching, "MOST_IN_MEMORY", most)
    collected, told = [], []
    real = run_matching.match_run

    def noted(*args, **more):
        collected.append(sum(told))
        return real(*args, **more)

    monkeypatch.setattr(run_matching, "match_run", noted)
    aligned(run, progress=told.append)
    assert (collected, sum(told)) == ([2], 4)
    assert min(told) > 0
