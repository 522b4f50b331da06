"""What the writers write is what alltrace imports: ranks, hosts, events, clocks."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import alltrace
from alltrace.run.importer import import_reports
from benchmarks.programs.draw import draw
from benchmarks.programs.machine import execute
from benchmarks.programs.nsys_file import write_reports
from benchmarks.programs.training import Lowered


def imported(program, folder):
    lowered = Lowered(program)
    timeline = execute(lowered.code, lowered.members, record=True)
    (folder / "reports").mkdir()
    files = write_reports(program, lowered, timeline, folder / "reports")
    import_reports([str(folder / "reports")], folder / "run", jobs=1)
    return timeline, files, alltrace.open(folder / "run")


def rows(run, table, rank):
    return run.connect().execute(f"SELECT count(*) FROM {table} WHERE rank = {rank}").fetchone()[0]


@pytest.mark.parametrize("seed", [4, 7, 10])
def test_a_run_has_the_ranks_and_events_of_the_program(seed, tmp_path):
    program = draw(seed)
    program = replace(program, view=replace(program.view, late=(), missing=(), graphs="none"))
    timeline, files, run = imported(program, tmp_path)
    assert [r.rank for r in run.ranks] == list(range(program.grid.ranks))
    assert len(files) == program.grid.ranks
    hosts = [r.host for r in run.ranks]
    assert len(set(hosts)) == program.grid.hosts
    assert [hosts.index(h) for h in hosts] == [
        next(s for s in range(program.grid.ranks) if program.grid.host_of(s) == program.grid.host_of(r))
        for r in range(program.grid.ranks)
    ]
    for rank, recorded in enumerate(timeline.recorded):
        assert rows(run, "kernels", rank) == len(recorded.kernels)
        assert rows(run, "api", rank) == len(recorded.calls)
        assert rows(run, "copies", rank) == len(recorded.copies)
        assert rows(run, "osrt", rank) == len(recorded.osrt)
        durations = run.connect().execute(f'SELECT sum("end" - start) FROM kernels WHERE rank = {rank}').fetchone()[0]
        assert durations == pytest.approx(sum(k[1] - k[0] for k in recorded.kernels), rel=1e-3)


def test_graphs_traced_as_a_whole_hide_their_kernels(tmp_path):
    program = next(p for p in (draw(seed, "none") for seed in range(400)) if p.view.graphs == "whole")
    program = replace(program, view=replace(program.view, late=()))
    timeline, _, run = imported(program, tmp_path)
    assert rows(run, "graphs", 0) == len(timeline.recorded[0].graphs) > 0
    assert rows(run, "kernels", 0) == sum(not k[7] for k in timeline.recorded[0].kernels)


def test_calls_of_mpi_replace_those_of_nccl(tmp_path):
    program = next(p for p in (draw(seed, "none") for seed in range(400)) if p.mpi)
    program = replace(program, view=replace(program.view, late=()))
    timeline, _, run = imported(program, tmp_path)
    assert {r.rank_source for r in run.ranks} == {"MPI_RANKS"}
    assert rows(run, "mpi", 0) == len(timeline.recorded[0].mpi) > 0
    assert run.connect().execute("SELECT count(*) FROM kernels WHERE kind = 'collective'").fetchone()[0] == 0


def test_a_rank_that_is_captured_late_and_one_without_a_report(tmp_path):
    program = draw(9, "missing-rank")
    late = next(r for r in range(program.grid.ranks) if r not in program.view.missing)
    program = replace(program, view=replace(program.view, late=((late, 1.5),)))
    timeline, files, run = imported(program, tmp_path)
    assert len(files) == program.grid.ranks - 1
    assert len(run.ranks) == program.grid.ranks - 1
    recorded = timeline.recorded[late]
    first, second = (max(ends[step] for ends in timeline.ends) for step in (0, 1))
    begins = first + (second - first) / 2
    kept = sum(k[0] >= begins for k in recorded.kernels)
    counts = [rows(run, "kernels", r.rank) for r in run.ranks]
    assert kept in counts
    assert kept < len(recorded.kernels)


@pytest.mark.parametrize("nccl", ["json", "binary"])
def test_payloads_tell_the_communicator_and_the_size(nccl, tmp_path):
    program = next(p for p in (draw(seed, "none") for seed in range(400)) if p.communicators and not p.mpi and p.grid.tp > 1)
    program = replace(program, view=replace(program.view, nccl=nccl, late=()))
    _, _, run = imported(program, tmp_path)
    found = (
        run.connect().execute("SELECT DISTINCT payload FROM ranges WHERE name = 'ncclAllReduce' AND payload IS NOT NULL").fetchall()
    )
    told = {(p["NCCL communicator ID"], p["Message size [bytes]"]) for p in (json.loads(text) for (text,) in found)}
    wanted = {c.identifier for c in program.communicators if c.role in ("tp", "dp", "norm")}
    assert {identifier for identifier, _ in told} == wanted
    tensor = {c.identifier for c in program.communicators if c.role == "tp"}
    assert {size for identifier, size in told if identifier in tensor} == {program.activation_bytes}
